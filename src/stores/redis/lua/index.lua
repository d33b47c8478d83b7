--[[
index: finds the ids of reservations that no fate has reached yet, so that one can.

Reserving does not write this index: it would be a quarter of its cost, at the one moment when every
microsecond counts. Whoever settles needs it, later and at its own pace.

KEYS
  1 stock         hash  how far the index goes
  2 requests      hash  h[request id, user id] -> reservation text
  3 reservations  hash  reservation id -> state
  4 order         list  fields of requests, one element per batch
ARGV
  1 most   elements to index in this call
RETURNS
  elements that are left
]]
local from = tonumber(redis.call('HGET', KEYS[1], 'indexed') or 0)
local elements = redis.call('LRANGE', KEYS[4], from, from + tonumber(ARGV[1]) - 1)
for _, joined in ipairs(elements) do
  local fields, pairs = {}, {}
  for field in string.gmatch(joined, '[^\n]+') do fields[#fields + 1] = field end
  local texts = redis.call('HMGET', KEYS[2], unpack(fields))
  for i = 1, #fields do
    pairs[2 * i - 1], pairs[2 * i] = string.match(texts[i], '^%[%d+,"([^"]*)"'), fields[i]
  end
  redis.call('HSET', KEYS[3], unpack(pairs))
end
if #elements > 0 then redis.call('HINCRBY', KEYS[1], 'indexed', #elements) end
return redis.call('LLEN', KEYS[4]) - from - #elements
