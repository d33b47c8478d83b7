--[[
outbox-receive: entries for one consumer: those that another was silent about first, then new ones.

KEYS
  1 outbox     stream  entries: fields of requests
  2 partial    hash    what of an entry is done
  3 requests   hash    h[request id, user id] -> reservation text
  4 orphaned   hash    texts of entries whose reservations were replaced by a rebuild
ARGV
  1 group      of consumers; made where it is missing
  2 consumer   who asks
  3 messages   wanted; the last entry may bring more
  4 idle       ms after which an entry given to somebody is given again
RETURNS
  per entry: { id, times given, done ('' or one byte per message), generation,
               seats (JSON, or ''), fields joined by line breaks, then the texts }
]]
local wanted, reply = tonumber(ARGV[3]), {}
if redis.call('EXISTS', KEYS[1]) == 0 then return reply end

local function add(entry, times)
  -- Acknowledged by somebody between being listed and being claimed.
  if not entry[2] then return end
  local named = {}
  for at = 1, #entry[2], 2 do named[entry[2][at]] = entry[2][at + 1] end
  wanted = wanted - tonumber(named.n)
  local one = { entry[1], times, redis.call('HGET', KEYS[2], entry[1]) or '', named.g, named.s or '', named.f }
  local orphaned = redis.call('HGET', KEYS[4], entry[1])
  if orphaned then
    for text in string.gmatch(orphaned, '[^\n]+') do one[#one + 1] = text end
  else
    local fields = {}
    for field in string.gmatch(named.f, '[^\n]+') do fields[#fields + 1] = field end
    local texts = redis.call('HMGET', KEYS[3], unpack(fields))
    for at = 1, #texts do one[#one + 1] = texts[at] end
  end
  reply[#reply + 1] = one
end

local waiting = redis.pcall('XPENDING', KEYS[1], ARGV[1], 'IDLE', ARGV[4], '-', '+', '100')
if waiting.err then
  if string.sub(waiting.err, 1, 7) ~= 'NOGROUP' then return waiting end
  redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0')
  waiting = {}
end
for _, pending in ipairs(waiting) do
  if wanted <= 0 then return reply end
  local claimed = redis.call('XCLAIM', KEYS[1], ARGV[1], ARGV[2], ARGV[4], pending[1])
  if claimed[1] then add(claimed[1], pending[4] + 1) end
end
while wanted > 0 do
  local fresh = redis.call('XREADGROUP', 'GROUP', ARGV[1], ARGV[2], 'COUNT', '1', 'STREAMS', KEYS[1], '>')
  if not fresh then return reply end
  add(fresh[1][2][1], 1)
end
return reply
