--[[
adjust: adds or removes available units, once per adjustment id.

KEYS
  1 stock        hash  counters
  2 adjustments  hash  adjustment id -> units
ARGV
  1 id      of the adjustment
  2 delta   units to add; negative to remove
  3 most    adjustments that one SKU may have
RETURNS
  {} for a SKU not loaded
  { 'other', units of the adjustment made before under this id }
  { 'seated' } for a SKU with seats, { 'many' } past the most
  { 'applied' or 'short', seq, gen, epoch, total, available, held, ordered, paused }
]]
local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused', 'seated')
if not stock[1] then return {} end
local delta = tonumber(ARGV[2])
local seq, epoch = tonumber(stock[1]), tonumber(stock[3])
local total, available = tonumber(stock[4]), tonumber(stock[5])
local kind = 'applied'
local before = redis.call('HGET', KEYS[2], ARGV[1])
if before then
  if tonumber(before) ~= delta then return { 'other', before } end
elseif stock[9] == '1' then
  return { 'seated' }
elseif redis.call('HLEN', KEYS[2]) >= tonumber(ARGV[3]) then
  return { 'many' }
elseif available + delta < 0 then
  kind = 'short'
else
  seq, total, available = seq + 1, total + delta, available + delta
  if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
  redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
  redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'epoch', string.format('%.0f', epoch),
    'total', total, 'available', available)
end
return { kind, seq, tonumber(stock[2]), epoch, total, available, tonumber(stock[6]),
  tonumber(stock[7]), tonumber(stock[8]) }
