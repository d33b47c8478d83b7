--[[
room-leave: frees a place, once.

KEYS
  1 room     hash  counters
  2 entries  hash  entry id -> its newest place
  3 changes  list  what happened to entries, in order
ARGV
  1 now     wall time, ms; empty for the server's own clock
  2 entry   entry id
RETURNS
  1 where the entry left now, 0 where it was not there or had left before
]]
local entry = redis.call('HGET', KEYS[2], ARGV[2])
if not entry then return 0 end
local sequence, state, rest = string.match(entry, '^(%d+)|(.)(.*)$')
if state == 'L' then return 0 end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
redis.call('RPUSH', KEYS[3], 'l|' .. ARGV[2] .. '|' .. sequence .. '|' .. now)
redis.call('HSET', KEYS[2], ARGV[2], sequence .. '|L' .. rest)
redis.call('HINCRBY', KEYS[1], 'left', 1)
return 1
