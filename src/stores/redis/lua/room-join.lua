--[[
room-join: one place in a room per entry id, in the order of the participant log.

KEYS
  1 room          hash  counters
  2 entries       hash  entry id -> its newest place
  3 participants  list  everybody who joined, in order
ARGV
  1 now     wall time, ms; empty for the server's own clock
  2 entry   entry id
  3 wish    weight|group|SKUs, as they are kept
  4 most    places in one room
RETURNS
  { 'full' }
  { created (1 or 0), the entry's text, entries before the marker, or -1 while the lobby is open }
  An entry's text is sequence|- or L where it left|joined at|weight|group|SKUs.
]]
local entry = redis.call('HGET', KEYS[2], ARGV[2])
local lobby = tonumber(redis.call('HGET', KEYS[1], 'lobby') or -1)
if entry and string.match(entry, '^%d+|(.)') ~= 'L' then return { 0, entry, lobby } end
local joined = tonumber(redis.call('HGET', KEYS[1], 'joined') or 0)
if joined >= tonumber(ARGV[4]) then return { 'full' } end
local now = ARGV[1]
if now == '' then
  local time = redis.call('TIME')
  now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
end
entry = string.format('%.0f', joined) .. '|-|' .. now .. '|' .. ARGV[3]
redis.call('RPUSH', KEYS[3], ARGV[2] .. '|' .. ARGV[3])
redis.call('HSET', KEYS[2], ARGV[2], entry)
redis.call('HINCRBY', KEYS[1], 'joined', 1)
return { 1, entry, lobby }
