--[[
reserve-one: the usual design, one script call per request, with the semantics of `reserve`.

KEYS
  1 stock         hash    counters
  2 requests      hash    h[request id, user id] -> reservation text
  3 nonces        set     nonces used
  4 persons       hash    person -> live units
  5 order         list    fields of requests, in order
  6 outbox        stream  fields of requests whose message waits
ARGV
  seen, field, nonce, person, quantity, limit, text, now
RETURNS
  { letter, seq, gen, epoch, available, held }, and for k the known text
]]
local stock = redis.call('HMGET', KEYS[1], 'seq', 'gen', 'epoch', 'available', 'held', 'paused')
if not stock[1] then return { 'unknown_sku' } end
local seq, epoch, available, held = tonumber(stock[1]), tonumber(stock[3]), tonumber(stock[4]), tonumber(stock[5])
if seq < tonumber(ARGV[1]) then return { 'forgotten' } end
if stock[6] == '1' then return { 'paused' } end
local known = redis.call('HGET', KEYS[2], ARGV[2])
if known then return { 'k', seq, stock[2], epoch, available, held, known } end
if redis.call('SISMEMBER', KEYS[3], ARGV[3]) == 1 then return { 'n', seq, stock[2], epoch, available, held } end
local quantity = tonumber(ARGV[5])
local units = tonumber(redis.call('HGET', KEYS[4], ARGV[4]) or 0)
if units + quantity > tonumber(ARGV[6]) then return { 'l', seq, stock[2], epoch, available, held } end
if available < quantity then return { 's', seq, stock[2], epoch, available, held } end
redis.call('XADD', KEYS[6], '*', 'f', ARGV[2], 'n', '1', 'g', stock[2], 't', ARGV[8])
redis.call('HSET', KEYS[2], ARGV[2], ARGV[7])
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('HSET', KEYS[4], ARGV[4], units + quantity)
redis.call('RPUSH', KEYS[5], ARGV[2])
seq, available, held = seq + 1, available - quantity, held + quantity
if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
redis.call('HSET', KEYS[1], 'seq', string.format('%.0f', seq), 'available', available, 'held', held,
  'epoch', string.format('%.0f', epoch))
return { 'g', seq, stock[2], epoch, available, held }
