--[[
room-end: the request that a pass was used for has ended; the next pass is a new attempt. Once.

KEYS
  1 claims   hash  entry id -> its claims, oldest first
  2 changes  list  what happened to entries, in order
ARGV
  1 now      wall time, ms; empty for the server's own clock
  2 entry    entry id
  3 sku      SKU of the pass
  4 attempt  its number
RETURNS
  1 where it ended now, 0 where it had ended before or is not known
]]
local text = redis.call('HGET', KEYS[1], ARGV[2])
if not text then return 0 end
local found, changed = nil, {}
for claim in string.gmatch(text, '[^;]+') do
  local head, state = string.match(claim, '^(.*,)(%d)$')
  local sequence, sku, attempt = string.match(claim, '^(%d+),([^,]*),%d+,(%d+),')
  if sku == ARGV[3] and attempt == ARGV[4] and state % 2 == 0 then
    found = sequence
    claim = head .. string.format('%.0f', state + 1)
  end
  changed[#changed + 1] = claim
end
if not found then return 0 end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('RPUSH', KEYS[2], table.concat({ 'e', ARGV[2], found, ARGV[3], ARGV[4], now }, '|'))
redis.call('HSET', KEYS[1], ARGV[2], table.concat(changed, ';'))
return 1
