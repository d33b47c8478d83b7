--[[
room-finish: an admitted entry is done with its newest claim, once.

KEYS
  1 room     hash  counters
  2 claims   hash  entry id -> its claims, oldest first
  3 changes  list  what happened to entries, in order
ARGV
  1 now      wall time, ms; empty for the server's own clock
  2 entry    entry id
  3 outcome  bought, gave_up or failed
RETURNS
  1 where it finished now, 0 where it had finished before or never claimed
]]
local text = redis.call('HGET', KEYS[2], ARGV[2])
if not text then return 0 end
local head, state = string.match(text, '^(.*,)(%d)$')
if tonumber(state) >= 2 then return 0 end
local sequence = string.match(head, '([^;,]+),[^;]*$')
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('RPUSH', KEYS[3], table.concat({ 'f', ARGV[2], sequence, ARGV[3], now }, '|'))
redis.call('HSET', KEYS[2], ARGV[2], head .. string.format('%.0f', state + 2))
redis.call('HINCRBY', KEYS[1], 'finished', 1)
return 1
