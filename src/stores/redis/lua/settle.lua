--[[
settle: ordered, released or retaken, for reservations whose fate is decided; once, however often said.

KEYS
  1 stock         hash    counters
  2 requests      hash    h[request id, user id] -> reservation text
  3 persons       hash    person -> live units
  4 reservations  hash    reservation id -> state
  5 seats         string  map of seats
  6 places        hash    seats of reservations
  7 order         list    fields of requests, one element per batch
ARGV
  1 fates   packed: ids; what is said, one letter each: o ordered, t retaken, or the letter of a release
RETURNS
  { changed, seq, gen, epoch, total, available, held, ordered, paused }, or {} for a SKU not loaded
  { 'index' }, and nothing is done: an id is unknown that may only not be indexed yet
  States: h held, o ordered, and released as e expired, c cancelled, d deadline, f refused, m refunded,
  l lost.
]]
local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused', 'seated', 'indexed')
if not stock[1] then return {} end
local seq, epoch = tonumber(stock[1]), tonumber(stock[3])
local available, held, ordered = tonumber(stock[5]), tonumber(stock[6]), tonumber(stock[7])
local seated = stock[9] == '1'
local fates = cmsgpack.unpack(ARGV[1])
local ids, said = fates[1], fates[2]
local changed = 0

local function whole(number) return string.format('%.0f', number) end

-- A thousand at a time: a call takes only so many arguments.
local value = {}
for from = 1, #ids, 1000 do
  local to = math.min(from + 999, #ids)
  local values = redis.call('HMGET', KEYS[4], unpack(ids, from, to))
  for i = from, to do value[ids[i]] = values[i - from + 1] or nil end
end

if redis.call('LLEN', KEYS[7]) > tonumber(stock[10]) then
  for i = 1, #ids do
    if not value[ids[i]] then return { 'index' } end
  end
end

-- How many units, and whose.
local function look(rest)
  local text = redis.call('HGET', KEYS[2], 'h' .. rest)
  local quantity, length, at = string.match(text, '^%[(%d+),"[^"]*",(%d+),()')
  return tonumber(quantity), string.sub(text, at, at + length - 1)
end

local function unitsOf(person)
  local now = redis.call('HGET', KEYS[3], person)
  if not now then return { 0 } end
  if string.byte(now) == 91 then return cjson.decode(now) end
  return { 1, now }
end

local function keepUnits(person, units)
  if #units == 1 then
    redis.call('HDEL', KEYS[3], person)
  elseif units[1] == 1 then
    redis.call('HSET', KEYS[3], person, units[2])
  else
    redis.call('HSET', KEYS[3], person, cjson.encode(units))
  end
end

local function mark(places, with)
  for offset in string.gmatch(string.match(places, '^[^\n]*'), '%d+') do
    redis.call('SETRANGE', KEYS[5], offset, with)
  end
end

local function free(places)
  for offset in string.gmatch(string.match(places, '^[^\n]*'), '%d+') do
    if redis.call('GETRANGE', KEYS[5], offset, offset) ~= '0' then return false end
  end
  return true
end

for i = 1, #ids do
  local id, says = ids[i], string.sub(said, i, i)
  local state = value[id] and string.sub(value[id], 1, 1)
  local live = state == 'h' or state == 'o'
  local becomes = nil
  if state then
    local rest = string.sub(value[id], 2)
    if says == 'o' then
      if state == 'h' then
        local quantity = look(rest)
        held, ordered, becomes = held - quantity, ordered + quantity, 'o'
      end
    elseif says == 't' then
      local quantity, person = look(rest)
      local places = seated and redis.call('HGET', KEYS[6], id)
      if not live and available >= quantity and (not places or free(places)) then
        local units = unitsOf(person)
        units[1], units[#units + 1] = units[1] + quantity, 'h' .. rest
        keepUnits(person, units)
        if places then mark(places, '1') end
        available, ordered, becomes = available - quantity, ordered + quantity, 'o'
      end
    elseif live then
      local quantity, person = look(rest)
      local units = unitsOf(person)
      local left = { units[1] - quantity }
      for at = 2, #units do
        if units[at] ~= 'h' .. rest then left[#left + 1] = units[at] end
      end
      keepUnits(person, left)
      local places = seated and redis.call('HGET', KEYS[6], id)
      if places then mark(places, '0') end
      available = available + quantity
      if state == 'h' then held = held - quantity else ordered = ordered - quantity end
      becomes = says
    end
    if becomes then
      changed = changed + 1
      value[id] = becomes .. rest
      redis.call('HSET', KEYS[4], id, value[id])
    end
  end
end

if changed > 0 then
  seq = seq + 1
  if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
  redis.call('HSET', KEYS[1], 'seq', whole(seq), 'epoch', whole(epoch),
    'available', available, 'held', held, 'ordered', ordered)
end
return { changed, seq, tonumber(stock[2]), epoch, tonumber(stock[4]), available, held, ordered,
  tonumber(stock[8]) }
