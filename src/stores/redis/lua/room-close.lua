--[[
room-close: writes the marker that parts the lobby from late arrivals, once.

KEYS
  1 room   hash  counters
ARGV
  1 now   wall time, ms; empty for the server's own clock
RETURNS
  { entries before the marker, when it was written, ms as text }
]]
local known = redis.call('HMGET', KEYS[1], 'lobby', 'closed', 'joined')
if known[1] then return { tonumber(known[1]), known[2] } end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
local lobby = known[3] or '0'
redis.call('HSET', KEYS[1], 'lobby', lobby, 'closed', now)
return { tonumber(lobby), now }
