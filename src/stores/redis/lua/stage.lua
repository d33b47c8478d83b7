--[[
stage: puts a part of a rebuild aside, under keys of its own that nobody reads until it commits.

KEYS
  1 requests      hash  staged
  2 nonces        set   staged
  3 persons       hash  staged
  4 reservations  hash  staged
  5 order         list  staged
  6 seatNames     hash  staged
  7 places        hash  staged
ARGV
  1 ttl    seconds after which an abandoned rebuild is gone
  2 part   packed: fields and values for keys 1, 3, 4, 6, 7; members for 2; elements for 5,
           in the order of the keys
RETURNS
  1
]]
local part = cmsgpack.unpack(ARGV[2])
local commands = { 'HSET', 'SADD', 'HSET', 'HSET', 'RPUSH', 'HSET', 'HSET' }
for at = 1, 7 do
  local values = part[at]
  for from = 1, #values, 1000 do
    redis.call(commands[at], KEYS[at], unpack(values, from, math.min(from + 999, #values)))
  end
  if #values > 0 then redis.call('EXPIRE', KEYS[at], ARGV[1]) end
end
return 1
