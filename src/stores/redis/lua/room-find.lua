--[[
room-find: one entry, and where the marker stands.

KEYS
  1 room     hash  counters
  2 entries  hash  entry id -> its newest place
ARGV
  1 entry   entry id
RETURNS
  {} for an entry that is not there
  { the entry's text, as room-join tells it, entries before the marker, or -1 while the lobby is open }
]]
local entry = redis.call('HGET', KEYS[2], ARGV[1])
if not entry then return {} end
return { entry, tonumber(redis.call('HGET', KEYS[1], 'lobby') or -1) }
