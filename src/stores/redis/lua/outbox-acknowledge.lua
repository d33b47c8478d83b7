--[[
outbox-acknowledge: messages whose fate is committed; an entry with none left is trimmed.

KEYS
  1 stock     hash    counters
  2 outbox    stream  entries
  3 partial   hash    what of an entry is done
  4 orphaned  hash    texts of entries whose reservations were replaced
ARGV
  1 group   of consumers
  2 done    packed: per entry its id, how many messages it has, and the indexes done (from 1)
RETURNS
  messages newly acknowledged
]]
local acked = 0
for _, one in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, count, indexes = one[1], one[2], one[3]
  local before = redis.call('HGET', KEYS[3], id)
  -- Trimmed already, or never here: then nothing is left to say of it.
  if before or #redis.call('XRANGE', KEYS[2], id, id) > 0 then
    local done, left = {}, 0
    for at = 1, count do
      done[at] = before and string.sub(before, at, at) or '0'
    end
    for _, index in ipairs(indexes) do
      if done[index] == '0' then
        done[index] = '1'
        acked = acked + 1
      end
    end
    for at = 1, count do
      if done[at] == '0' then left = left + 1 end
    end
    if left == 0 then
      redis.call('XACK', KEYS[2], ARGV[1], id)
      redis.call('XDEL', KEYS[2], id)
      redis.call('HDEL', KEYS[3], id)
      redis.call('HDEL', KEYS[4], id)
    else
      redis.call('HSET', KEYS[3], id, table.concat(done))
    end
  end
end
if acked > 0 then redis.call('HINCRBY', KEYS[1], 'acked', acked) end
return acked
