--[[
rebuild: replaces everything known of a SKU by what was staged. Its outbox and adjustments stay.

KEYS
  1 stock          hash    counters
  2 requests       hash    replaced
  3 nonces         set     replaced
  4 persons        hash    replaced
  5 reservations   hash    replaced
  6 order          list    replaced
  7 seats          string  replaced
  8 seatNames      hash    replaced
  9 places         hash    replaced
  10 requests      hash    staged
  11 nonces        set     staged
  12 persons       hash    staged
  13 reservations  hash    staged
  14 order         list    staged
  15 seatNames     hash    staged
  16 places        hash    staged
  17 outbox        stream  stays
  18 orphaned      hash    texts of what waits in the outbox
ARGV
  1 total        units
  2 generation   must be higher than the standing one
  3 epoch        it becomes higher than this
  4 base         sequence that this generation begins above
  5 held         units held among the staged
  6 ordered      units of orders among the staged
  7 seats        map of seats, or '' for none
  8 shards       that the SKU is cut into, or '' where that is known here
RETURNS
  { seq, gen, epoch, total, available, held, ordered, paused } as it stands now
]]
-- Messages outlive the reservations that they speak of: keep their texts. O(messages waiting).
local function keepTexts(outbox, orphaned, requests)
  for _, entry in ipairs(redis.call('XRANGE', outbox, '-', '+')) do
    if redis.call('HEXISTS', orphaned, entry[1]) == 0 then
      local fields = {}
      for at = 1, #entry[2], 2 do
        if entry[2][at] == 'f' then
          for field in string.gmatch(entry[2][at + 1], '[^\n]+') do fields[#fields + 1] = field end
        end
      end
      redis.call('HSET', orphaned, entry[1], table.concat(redis.call('HMGET', requests, unpack(fields)), '\n'))
    end
  end
end

local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused',
  'produced', 'acked', 'buried', 'shards')
local staged = { unpack(KEYS, 10, 16) }
local generation = tonumber(ARGV[2])
if stock[1] and tonumber(stock[2]) >= generation then
  redis.call('UNLINK', unpack(staged))
  return { tonumber(stock[1]), tonumber(stock[2]), tonumber(stock[3]), tonumber(stock[4]),
    tonumber(stock[5]), tonumber(stock[6]), tonumber(stock[7]), tonumber(stock[8]) }
end
keepTexts(KEYS[17], KEYS[18], KEYS[2])
redis.call('UNLINK', unpack(KEYS, 2, 9))
local targets = { KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[8], KEYS[9] }
for at = 1, 7 do
  if redis.call('EXISTS', staged[at]) == 1 then
    redis.call('RENAME', staged[at], targets[at])
    redis.call('PERSIST', targets[at])
  end
end
local seated = ARGV[7] ~= ''
if seated then redis.call('SET', KEYS[7], ARGV[7]) end
local total, held, ordered = tonumber(ARGV[1]), tonumber(ARGV[5]), tonumber(ARGV[6])
local available = total - held - ordered
local seq = math.max(tonumber(stock[1] or 0), tonumber(ARGV[4])) + 1
local epoch = math.max(tonumber(stock[3] or 0), tonumber(ARGV[3])) + 1
if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
local paused = tonumber(stock[8] or 0)
redis.call('HSET', KEYS[1],
  'seq', string.format('%.0f', seq), 'gen', ARGV[2], 'epoch', string.format('%.0f', epoch),
  'total', ARGV[1], 'available', available, 'held', ARGV[5], 'ordered', ARGV[6], 'paused', paused,
  'seated', seated and '1' or '0',
  'shards', ARGV[8] ~= '' and ARGV[8] or stock[12] or '1', 'indexed', redis.call('LLEN', KEYS[6]),
  'produced', stock[9] or '0', 'acked', stock[10] or '0', 'buried', stock[11] or '0')
return { seq, generation, epoch, total, available, held, ordered, paused }
