--[[
live: a page of live reservations, in order of reserving.

KEYS
  1 stock         hash  for the generation
  2 requests      hash  h[request id, user id] -> reservation text
  3 reservations  hash  reservation id -> state, where it is indexed
  4 order         list  fields of requests, one element per batch
  5 places        hash  seats of reservations
ARGV
  1 element   of `order` to begin at, from 0
  2 offset    reservations of that element to pass over
  3 limit     reservations wanted
RETURNS
  { generation, next element, next offset, whether the end was reached (1 or 0),
    then per reservation: element, offset after it, state letter, field, text, places or '' }
  Looks at no more than 16 elements, so that one call stays short: a page may be short and not the last.
]]
local element, offset, limit = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local reply = { tonumber(redis.call('HGET', KEYS[1], 'gen') or 0), element, offset, 0 }
local found = 0
local last = element + 15
for _, joined in ipairs(redis.call('LRANGE', KEYS[4], element, last)) do
  local fields, ids, at = {}, {}, 0
  for field in string.gmatch(joined, '[^\n]+') do
    at = at + 1
    if at > offset then fields[#fields + 1] = field end
  end
  if #fields > 0 then
    local texts = redis.call('HMGET', KEYS[2], unpack(fields))
    for i = 1, #fields do ids[i] = string.match(texts[i], '^%[%d+,"([^"]*)"') end
    local values = redis.call('HMGET', KEYS[3], unpack(ids))
    for i = 1, #fields do
      if found == limit then
        reply[2], reply[3] = element, offset
        return reply
      end
      offset = offset + 1
      local state = values[i] and string.sub(values[i], 1, 1) or 'h'
      if state == 'h' or state == 'o' then
        found = found + 1
        reply[#reply + 1] = element
        reply[#reply + 1] = offset
        reply[#reply + 1] = state
        reply[#reply + 1] = fields[i]
        reply[#reply + 1] = texts[i]
        reply[#reply + 1] = redis.call('HGET', KEYS[5], ids[i]) or ''
      end
    end
  end
  element, offset = element + 1, 0
end
reply[2], reply[3] = element, offset
if element > last then return reply end
reply[4] = 1
return reply
