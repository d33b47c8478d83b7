--[[
pause: stops or resumes reservations of a SKU.

KEYS
  1 stock   hash  counters
ARGV
  1 paused   1 or 0
RETURNS
  {} for a SKU not loaded, or { seq, gen, epoch, total, available, held, ordered, paused }
]]
local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused')
if not stock[1] then return {} end
local seq = tonumber(stock[1])
if stock[8] ~= ARGV[1] then
  seq = seq + 1
  redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'paused', ARGV[1])
end
return { seq, tonumber(stock[2]), tonumber(stock[3]), tonumber(stock[4]), tonumber(stock[5]),
  tonumber(stock[6]), tonumber(stock[7]), tonumber(ARGV[1]) }
