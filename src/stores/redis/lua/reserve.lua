--[[
reserve: judges a batch of requests for one SKU, in order, and takes units for those granted.

One call per data structure, not per request; in the common case, where nobody in the batch has been
here before and enough is left, no request is looked at one by one but to see that this is so.

KEYS
  1 stock         hash    counters
  2 requests      hash    h[request id, user id] -> reservation text
  3 nonces        set     nonces used
  4 persons       hash    person -> live units
  5 reservations  hash    reservation id -> state, where it is indexed
  6 order         list    fields of requests, in order
  7 outbox        stream  fields of requests whose message waits
  8 seats         string  map of seats
  9 seatNames     hash    names of seats
  10 places       hash    seats of reservations
ARGV
  1 seen    highest sequence that the caller has seen
  2 now     wall time of the batch, ms
  3 batch   packed: fields, nonces, persons, quantities, limits, ids, texts, seats (arrays of names,
            or false), units of all together, and whether no two share a field, nonce or person, none
            names seats and none is above its own limit
RETURNS
  { 'unknown_sku' }
  { kind, seq, gen, epoch, total, available, held, ordered, paused }   kind 'forgotten' or 'paused'
  { 'done', seq .. paused, outcomes, details ... }
    outcomes  one letter per request: g granted, G granted with seats, k known, n nonce used, l limit, s sold out, t seat taken
    details   for k: state letter, field, text, places; for l: count, then that for each live reservation;
              for t and G: names as JSON; in order of requests
]]
local stock = redis.call('HMGET', KEYS[1],
  'seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused', 'seated', 'produced')
if not stock[1] then return { 'unknown_sku' } end
local seq, gen, epoch = tonumber(stock[1]), tonumber(stock[2]), tonumber(stock[3])
local total, available = tonumber(stock[4]), tonumber(stock[5])
local held, ordered, paused = tonumber(stock[6]), tonumber(stock[7]), tonumber(stock[8])
local seated = stock[9] == '1'

local function whole(number) return string.format('%.0f', number) end

if seq < tonumber(ARGV[1]) then
  -- What was acknowledged is gone. Nobody buys from this copy until it is rebuilt.
  if paused == 0 then
    seq, paused = seq + 1, 1
    redis.call('HSET', KEYS[1], 'seq', whole(seq), 'paused', '1')
  end
  return { 'forgotten', seq, gen, epoch, total, available, held, ordered, paused }
end
if paused == 1 then
  return { 'paused', seq, gen, epoch, total, available, held, ordered, paused }
end

local batch = cmsgpack.unpack(ARGV[3])
local fields, nonces, persons = batch[1], batch[2], batch[3]
local quantities, limits, ids, texts = batch[4], batch[5], batch[6], batch[7]
local count = #fields
if count == 0 then
  return { 'done', seq, gen, epoch, total, available, held, ordered, paused, '' }
end

local known = redis.call('HMGET', KEYS[2], unpack(fields))
local used = redis.call('SMISMEMBER', KEYS[3], unpack(nonces))
local living = redis.call('HMGET', KEYS[4], unpack(persons))

local offsetsTaken = {}
local reply = { 'done', 0, gen, 0, total, 0, 0, ordered, paused, '' }

local function commit(pairsOfRequests, noncesUsed, pairsOfPersons, joined, granted, units, seatsOf, pairsOfPlaces)
  -- The one call that could fail on its own account comes first: nothing is written yet.
  if seatsOf then
    redis.call('XADD', KEYS[7], '*', 'f', joined, 'n', granted, 'g', stock[2], 't', ARGV[2], 's', cjson.encode(seatsOf))
    redis.call('HSET', KEYS[10], unpack(pairsOfPlaces))
    for _, offset in ipairs(offsetsTaken) do redis.call('SETRANGE', KEYS[8], offset, '1') end
  else
    redis.call('XADD', KEYS[7], '*', 'f', joined, 'n', granted, 'g', stock[2], 't', ARGV[2])
  end
  redis.call('HSET', KEYS[2], unpack(pairsOfRequests))
  redis.call('SADD', KEYS[3], unpack(noncesUsed))
  redis.call('HSET', KEYS[4], unpack(pairsOfPersons))
  redis.call('RPUSH', KEYS[6], joined)
  seq, available, held = seq + 1, available - units, held + units
  if (available > 0) ~= (epoch % 2 == 0) then epoch = epoch + 1 end
  redis.call('HSET', KEYS[1], 'seq', whole(seq), 'available', available, 'held', held,
    'epoch', whole(epoch), 'produced', whole(tonumber(stock[10]) + granted))
end

local function answer(outcomes)
  reply[2], reply[4], reply[6], reply[7], reply[10] = seq, epoch, available, held, outcomes
  return reply
end

local clean = batch[10] and not seated and available >= batch[9]
if clean then
  for i = 1, count do
    if known[i] or living[i] or used[i] == 1 then clean = false break end
  end
end
if clean then
  local requests, people = {}, {}
  for i = 1, count do
    local a, b = 2 * i - 1, 2 * i
    local field = fields[i]
    requests[a], requests[b] = field, texts[i]
    people[a], people[b] = persons[i], quantities[i] == 1 and field or cjson.encode({ quantities[i], field })
  end
  commit(requests, nonces, people, table.concat(fields, '\n'), count, batch[9])
  return answer(string.rep('g', count))
end

-- One by one. What this batch has granted so far lies over what the store knew before.
local byField, nonceNow, personNow = {}, {}, {}
local requests, noncesNew, fieldsNew, seatsNew, placesNew = {}, {}, {}, {}, {}
local outcomes, units, granted = {}, 0, 0
local map = seated and redis.call('GET', KEYS[8])
local placed = {}

local function detail(state, field, text, places)
  reply[#reply + 1] = state
  reply[#reply + 1] = field
  reply[#reply + 1] = text
  reply[#reply + 1] = places
end

-- A reservation of an earlier batch. One that no fate has reached may not be indexed yet: it is held.
local function describe(field, text)
  local id = string.match(text, '^%[%d+,"([^"]*)"')
  local value = redis.call('HGET', KEYS[5], id)
  local places = seated and redis.call('HGET', KEYS[10], id)
  detail(value and string.sub(value, 1, 1) or 'h', field, text, places or '')
end

local function personOf(i)
  local person = personNow[persons[i]]
  if person then return person end
  local value = living[i]
  if not value then
    person = { 0 }
  elseif string.byte(value) == 91 then
    person = cjson.decode(value)
  else
    person = { 1, value }
  end
  personNow[persons[i]] = person
  return person
end

-- Offsets and names of the seats that this request would get, or nil and the names that are taken.
local function choose(i, quantity)
  local named = batch[8] and batch[8][i]
  if named then
    local asked = {}
    for at = 1, #named do asked[at] = 'n' .. named[at] end
    local offsets, taken = redis.call('HMGET', KEYS[9], unpack(asked)), {}
    for at = 1, #named do
      local offset = offsets[at] and tonumber(offsets[at])
      if not offset or string.byte(map, offset + 1) ~= 48 then taken[#taken + 1] = named[at] end
    end
    if #taken > 0 then return nil, taken end
    return offsets, named
  end
  local first = string.find(map, string.rep('0', quantity), 1, true)
  if not first then return nil, {} end
  local offsets, asked = {}, {}
  for at = 1, quantity do
    offsets[at] = whole(first + at - 2)
    asked[at] = 'p' .. offsets[at]
  end
  return offsets, redis.call('HMGET', KEYS[9], unpack(asked))
end

-- An empty table is an object to cjson.
local function json(names) return #names == 0 and '[]' or cjson.encode(names) end

for i = 1, count do
  local quantity, id = quantities[i], ids[i]
  local earlier = byField[fields[i]]
  if earlier then
    outcomes[i] = 'k'
    detail('h', fields[earlier], texts[earlier], placed[earlier] or '')
  elseif known[i] then
    outcomes[i] = 'k'
    describe(fields[i], known[i])
  elseif used[i] == 1 or nonceNow[nonces[i]] then
    outcomes[i] = 'n'
  else
    local person = personOf(i)
    if person[1] + quantity > limits[i] then
      outcomes[i] = 'l'
      reply[#reply + 1] = #person - 1
      for at = 2, #person do
        local now = byField[person[at]]
        if now then
          detail('h', fields[now], texts[now], placed[now] or '')
        else
          describe(person[at], redis.call('HGET', KEYS[2], person[at]))
        end
      end
    elseif available - units < quantity then
      outcomes[i] = 's'
    else
      local offsets, names = nil, nil
      local named = batch[8] and batch[8][i]
      if seated then
        offsets, names = choose(i, quantity)
      elseif named then
        names = named
      end
      if names and not offsets then
        outcomes[i] = 't'
        reply[#reply + 1] = json(names)
      else
        outcomes[i] = offsets and 'G' or 'g'
        granted, units = granted + 1, units + quantity
        byField[fields[i]], nonceNow[nonces[i]] = i, true
        person[1], person[#person + 1] = person[1] + quantity, fields[i]
        requests[2 * granted - 1], requests[2 * granted] = fields[i], texts[i]
        noncesNew[granted], fieldsNew[granted] = nonces[i], fields[i]
        if offsets then
          local written = cjson.encode(names)
          placed[i] = table.concat(offsets, ',') .. '\n' .. written
          reply[#reply + 1] = written
          seatsNew[granted] = names
          placesNew[2 * granted - 1], placesNew[2 * granted] = id, placed[i]
          for at = 1, #offsets do
            local offset = tonumber(offsets[at])
            offsetsTaken[#offsetsTaken + 1] = offset
            map = string.sub(map, 1, offset) .. '1' .. string.sub(map, offset + 2)
          end
        end
      end
    end
  end
end

if granted > 0 then
  local people, written = {}, {}
  for i = 1, count do
    local name = persons[i]
    if (outcomes[i] == 'g' or outcomes[i] == 'G') and not written[name] then
      local person = personNow[name]
      written[name] = true
      people[#people + 1] = name
      people[#people + 1] = person[1] == 1 and person[2] or cjson.encode(person)
    end
  end
  commit(requests, noncesNew, people, table.concat(fieldsNew, '\n'), granted, units,
    seated and seatsNew, placesNew)
end
return answer(table.concat(outcomes))
