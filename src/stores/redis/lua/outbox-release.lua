--[[
outbox-release: gives an entry back at once, if this consumer still has it from that very attempt.

KEYS
  1 outbox    stream  entries
ARGV
  1 group      of consumers
  2 consumer   who gives back
  3 entry      its id
  4 attempt    how often it had been given when this consumer got it
  5 idle       ms that it shall count as silent
RETURNS
  1 given back, 0 not this consumer's any more
]]
local pending = redis.pcall('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], '1')
if pending.err or not pending[1] then return 0 end
local one = pending[1]
if one[2] ~= ARGV[2] or one[4] ~= tonumber(ARGV[4]) then return 0 end
redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], '0', ARGV[3], 'IDLE', ARGV[5], 'JUSTID')
return 1
