--[[
outbox-bury: moves one message to the dead letters; its neighbours in the entry stay.

KEYS
  1 stock     hash    counters
  2 outbox    stream  entries
  3 partial   hash    what of an entry is done
  4 buried    list    dead letters
  5 orphaned  hash    texts of entries whose reservations were replaced
ARGV
  1 group    of consumers
  2 entry    packed: its id, and how many messages it has
  3 index    of the message, from 1
  4 letter   as JSON
  5 most     dead letters that one SKU may have
RETURNS
  1 buried now, 0 done before, -1 too many dead letters
]]
local entry = cmsgpack.unpack(ARGV[2])
local id, count, index = entry[1], entry[2], tonumber(ARGV[3])
local done = redis.call('HGET', KEYS[3], id)
if not done then
  if #redis.call('XRANGE', KEYS[2], id, id) == 0 then return 0 end
  done = string.rep('0', count)
end
if string.sub(done, index, index) == '1' then return 0 end
if redis.call('LLEN', KEYS[4]) >= tonumber(ARGV[5]) then return -1 end
done = string.sub(done, 1, index - 1) .. '1' .. string.sub(done, index + 1)
redis.call('LPUSH', KEYS[4], ARGV[4])
if string.find(done, '0', 1, true) then
  redis.call('HSET', KEYS[3], id, done)
else
  redis.call('XACK', KEYS[2], ARGV[1], id)
  redis.call('XDEL', KEYS[2], id)
  redis.call('HDEL', KEYS[3], id)
  redis.call('HDEL', KEYS[5], id)
end
redis.call('HINCRBY', KEYS[1], 'buried', 1)
return 1
