--[[
forget: removes everything of a SKU, unless somebody is still owed an outcome.

KEYS
  1 stock         hash    counters
  2 requests      hash    removed
  3 nonces        set     removed
  4 persons       hash    removed
  5 reservations  hash    removed
  6 order         list    removed
  7 adjustments   hash    removed
  8 seats         string  removed
  9 seatNames     hash    removed
  10 places       hash    removed
  11 outbox       stream  removed
  12 partial      hash    removed
  13 buried       list    removed
  14 orphaned     hash    removed
ARGV
RETURNS
  1 when nothing of it is left, 0 when a reservation is held or a message waits
]]
local stock = redis.call('HMGET', KEYS[1], 'held', 'produced', 'acked', 'buried')
if stock[1] and (tonumber(stock[1]) > 0
  or tonumber(stock[2]) - tonumber(stock[3]) - tonumber(stock[4]) > 0) then
  return 0
end
redis.call('UNLINK', unpack(KEYS))
return 1
