--[[
find: what one request id of one user reserved.

KEYS
  1 stock         hash  for the generation
  2 requests      hash  h[request id, user id] -> reservation text
  3 reservations  hash  reservation id -> state, where it is indexed
  4 places        hash  seats of reservations
ARGV
  1 field   of the request
RETURNS
  {}, or { generation, state letter, text, places or '' }
]]
local text = redis.call('HGET', KEYS[2], ARGV[1])
if not text then return {} end
local id = string.match(text, '^%[%d+,"([^"]*)"')
local value = redis.call('HGET', KEYS[3], id)
return {
  tonumber(redis.call('HGET', KEYS[1], 'gen')),
  value and string.sub(value, 1, 1) or 'h',
  text,
  redis.call('HGET', KEYS[4], id) or '',
}
