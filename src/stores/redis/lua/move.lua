--[[
move: sends available units towards another shard of a SKU, or receives what another has sent.

The counters `out:GENERATION:SHARD` and `in:GENERATION:SHARD` only grow: what was sent and is not yet
received is the sender's less the receiver's.

KEYS
  1 stock   hash  counters
ARGV
  1 way          out or in
  2 other        the other shard's number
  3 units        out: how many at most; in: the sender's counter
  4 generation   of which the caller speaks; of another, nothing changes
RETURNS
  {} for a shard not loaded, or
  { seq, gen, epoch, total, available, held, ordered, paused, counter of `way` and `other` }
]]
local field = ARGV[1] .. ':' .. ARGV[4] .. ':' .. ARGV[2]
local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused', field)
if not stock[1] then return {} end
local seq, epoch = tonumber(stock[1]), tonumber(stock[3])
local total, available = tonumber(stock[4]), tonumber(stock[5])
local counter = tonumber(stock[9] or 0)
if stock[2] == ARGV[4] then
  local units, sign
  if ARGV[1] == 'out' then
    units, sign = math.min(tonumber(ARGV[3]), available), -1
  else
    units, sign = tonumber(ARGV[3]) - counter, 1
  end
  if units > 0 then
    counter, seq = counter + units, seq + 1
    total, available = total + sign * units, available + sign * units
    if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
    redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'epoch', string.format('%.0f', epoch),
      'total', total, 'available', available, field, string.format('%.0f', counter))
  end
end
return { seq, tonumber(stock[2]), epoch, total, available, tonumber(stock[6]), tonumber(stock[7]),
  tonumber(stock[8]), counter }
