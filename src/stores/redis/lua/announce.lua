--[[
announce: the newest word on a topic, to whoever listens now and whoever reads later. An older word
than the last one changes nothing, whoever says it.

KEYS
  1 announced  string  the last word, while it is worth reading
  2 announcer  hash    epoch and version of the last word
ARGV
  1 epoch    of whoever speaks
  2 version  grows within an epoch
  3 ttl      ms that the word is worth reading
  4 memory   ms that its order is remembered
  5 channel  on which it is published
  6 word     the word itself
RETURNS
  1 where it was said, 0 where a newer one stands
]]
local epoch, version = tonumber(ARGV[1]), tonumber(ARGV[2])
local known = redis.call('HMGET', KEYS[2], 'epoch', 'version')
if known[1] then
  local last = tonumber(known[1])
  if epoch < last or (epoch == last and version <= tonumber(known[2])) then return 0 end
end
redis.call('HSET', KEYS[2], 'epoch', ARGV[1], 'version', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
redis.call('SET', KEYS[1], ARGV[6], 'PX', ARGV[3])
redis.call('PUBLISH', ARGV[5], ARGV[6])
return 1
