--[[
state-save: a small durable fact of the control role, compared and set, behind a fence.

KEYS
  1 states   hash  name -> version and value
ARGV
  1 name      of the fact
  2 value     new value
  3 expected  version that it has now; 0 where it is not there
  4 fence     name of another fact of the same key; empty for none
  5 standing  version that the fence must still have
RETURNS
  1 where it was written, 0 where the version was another, -1 where the fence was
]]
local function versionOf(name)
  return tonumber(string.match(redis.call('HGET', KEYS[1], name) or '0 ', '^(%d+) '))
end
if ARGV[4] ~= '' and versionOf(ARGV[4]) ~= tonumber(ARGV[5]) then return -1 end
local version = versionOf(ARGV[1])
if version ~= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', version + 1) .. ' ' .. ARGV[2])
return 1
