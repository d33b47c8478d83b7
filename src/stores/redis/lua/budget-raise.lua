--[[
budget-raise: ends every lease of a budget, by a higher epoch. What was granted stays debited.

KEYS
  1 budget  hash  e epoch, and i:INSTANCE for each holder
ARGV
  1 ttl  ms that the key lives without renewals
RETURNS
  the new epoch, as text
]]
for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 2) == 'i:' then redis.call('HDEL', KEYS[1], field) end
end
local epoch = (tonumber(redis.call('HGET', KEYS[1], 'e')) or 0) + 1
if epoch == 1 then
  -- Nobody has used it: it starts empty, since there may be leases that nobody here remembers.
  redis.call('HSET', KEYS[1], 'l', '0')
end
redis.call('HSET', KEYS[1], 'e', string.format('%.0f', epoch))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return string.format('%.0f', epoch)
