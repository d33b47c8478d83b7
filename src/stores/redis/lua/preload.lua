--[[
preload: creates a SKU, or replaces one of a lower generation. Its outbox stays.

KEYS
  1 stock         hash    counters
  2 requests      hash    replaced
  3 nonces        set     replaced
  4 persons       hash    replaced
  5 reservations  hash    replaced
  6 order         list    replaced
  7 adjustments   hash    replaced
  8 seats         string  replaced
  9 seatNames     hash    replaced
  10 places       hash    replaced
  11 outbox       stream  stays
  12 orphaned     hash    texts of what waits in the outbox
ARGV
  1 total        units
  2 generation   of this stock
  3 epoch        lowest that it may begin with
  4 base         sequence that this generation begins above
  5 seats        map of seats, or '' for none
  6 names        packed: fields and values of `seatNames`
  7 shards       that the SKU is cut into
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
  'produced', 'acked', 'buried')
local generation = tonumber(ARGV[2])
if stock[1] and tonumber(stock[2]) >= generation then
  return { tonumber(stock[1]), tonumber(stock[2]), tonumber(stock[3]), tonumber(stock[4]),
    tonumber(stock[5]), tonumber(stock[6]), tonumber(stock[7]), tonumber(stock[8]) }
end
local total, epoch, seq = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
if stock[1] then
  seq = math.max(seq, tonumber(stock[1]))
  epoch = math.max(epoch, tonumber(stock[3]) + 1)
  keepTexts(KEYS[11], KEYS[12], KEYS[2])
  redis.call('UNLINK', unpack(KEYS, 2, 10))
end
seq = seq + 1
if (total > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
local seated = ARGV[5] ~= ''
if seated then
  redis.call('SET', KEYS[8], ARGV[5])
  local names = cmsgpack.unpack(ARGV[6])
  for from = 1, #names, 1000 do
    redis.call('HSET', KEYS[9], unpack(names, from, math.min(from + 999, #names)))
  end
end
local paused = tonumber(stock[8] or 0)
redis.call('HSET', KEYS[1],
  'seq', string.format('%.0f', seq), 'gen', ARGV[2], 'epoch', string.format('%.0f', epoch),
  'total', ARGV[1], 'available', ARGV[1], 'held', '0', 'ordered', '0', 'paused', paused,
  'seated', seated and '1' or '0', 'shards', ARGV[7], 'indexed', '0',
  'produced', stock[9] or '0', 'acked', stock[10] or '0', 'buried', stock[11] or '0')
return { seq, generation, epoch, total, total, 0, 0, paused }
