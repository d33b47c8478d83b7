--[[
budget-renew: one renewal of a lease, as core/limit/budget.ts defines it.

KEYS
  1 budget  hash  e epoch, l level in units of capacity u, t counted to, s h z timeline, and i:INSTANCE for each holder
ARGV
  1 now      microseconds; empty for the server's own clock
  2 bucket   JSON: [tick, units per tick, units per thousandth, capacity units, initial units, fill us, burst, thousandths a second, ttl ms]
  3 request  JSON: [instance, sequence, epoch, lease, keep, return, demand, round trip us, leaving 0 or 1]
  4 bounds   JSON: [calls per token, tokens per lease, least us, most us, times, headroom, holders, floor divisor]
RETURNS
  { epoch, lease, granted, kept, lease us, scarce 0 or 1, instances }   numbers as text
]]
local function whole(n) return string.format('%.0f', n) end
local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(ARGV[1])
end
local tick, per_tick, per_milli, capacity, initial, fill, burst, per_second, ttl =
  unpack(cjson.decode(ARGV[2]))
local instance, sequence, asked_epoch, asked_lease, keep, give, demand, round_trip, leaving =
  unpack(cjson.decode(ARGV[3]))
local calls_per_token, tokens_per_lease, least_us, most_us, busiest, headroom, holders_max, divisor =
  unpack(cjson.decode(ARGV[4]))

local all = redis.call('HGETALL', KEYS[1])
local fields, holders = {}, {}
for at = 1, #all, 2 do
  local name = string.match(all[at], '^i:(.*)$')
  if name then
    local h = {}
    for word in string.gmatch(all[at + 1], '%S+') do h[#h + 1] = tonumber(word) end
    holders[name] = { lease = h[1], before = h[2], tokens = h[3], granted = h[4], sequence = h[5],
      expires = h[6], demand = h[7], seen = h[8] }
  else
    fields[all[at]] = tonumber(all[at + 1])
  end
end

local epoch, level, last = fields.e, fields.l, fields.t
local steady, high, base = fields.s or 0, fields.h or 0, fields.z or -1
if not epoch or asked_epoch > epoch then
  -- Unknown here, or known better there: what was out is not known. Only a budget that nobody has
  -- seen before starts with what it holds.
  epoch, last, level = asked_epoch + 1, nil, 0
  if not fields.e and asked_epoch == 0 then level = initial end
  for name in pairs(holders) do redis.call('HDEL', KEYS[1], 'i:' .. name) end
  holders = {}
end
-- An edited budget keeps the share that was left of it.
if fields.u and fields.u ~= capacity and level > 0 then level = math.floor(level / fields.u * capacity) end
if now >= high then
  steady, high, base = math.max(steady, now), now, -1
elseif base < 0 or now < base then
  base = now
else
  steady = math.max(steady, high + (now - base))
end
last = last or steady
local elapsed = steady - last
if elapsed >= fill then
  level = capacity
elseif elapsed > 0 then
  level = math.min(capacity, level + math.floor(elapsed / tick) * per_tick)
end
if elapsed > 0 then last = steady - math.fmod(elapsed, tick) end

local count, total = 0, 0
for name, holder in pairs(holders) do
  if holder.expires <= steady then
    redis.call('HDEL', KEYS[1], 'i:' .. name)
    holders[name] = nil
  else
    count = count + 1
    if name ~= instance then total = total + holder.demand end
  end
end
local held = holders[instance]

local function save()
  redis.call('HSET', KEYS[1], 'e', whole(epoch), 'l', whole(level), 't', whole(last),
    'u', whole(capacity), 's', whole(steady), 'h', whole(high), 'z', whole(base))
  redis.call('PEXPIRE', KEYS[1], whole(ttl))
end

if held and sequence <= held.sequence and asked_epoch == epoch then
  save()
  return { whole(epoch), whole(held.lease), '0', '0', whole(least_us), '1', whole(count) }
end

local returned, kept = 0, 0
if held and asked_epoch == epoch then
  local knows = held.lease == asked_lease
  local missed = not knows and held.before == asked_lease
  if knows or missed then
    local known = held.tokens
    if missed then known = held.tokens - held.granted end
    local given = math.min(give, known)
    if leaving == 0 then kept = math.min(keep, known - given) end
    returned = given
    if missed then returned = given + held.granted end
  end
end
level = math.min(capacity, level + returned * per_milli)

local lease = 1
if held then lease = held.lease + 1 end
if leaving == 1 or (not held and count >= holders_max) then
  redis.call('HDEL', KEYS[1], 'i:' .. instance)
  if held then count = count - 1 end
  save()
  return { whole(epoch), whole(lease), '0', whole(kept), whole(most_us), whole(1 - leaving), whole(count) }
end

demand = math.max(0, math.floor(demand))
total = total + demand
local instances = count
if not held then instances = count + 1 end
local level_milli = math.floor(level / per_milli)
local share = 1 / instances
if total > 0 then share = demand / total end
local function nominal_us(flow)
  local us = instances * 1000000 / (flow / 1000 * calls_per_token)
  return math.min(most_us, math.max(least_us, math.floor(us)))
end
local flowing = math.min(per_second, math.max(total, per_second / 10))
local nominal = most_us
if flowing > 0 then nominal = nominal_us(flowing) end
local paid = nominal
if flowing * share > 0 then paid = tokens_per_lease * 1000 * 1000000 / (flowing * share) end
local lease_us = math.min(nominal, math.max(paid, nominal / busiest, least_us))
lease_us = math.floor(lease_us + 2 * math.min(round_trip, least_us))

local wanted = math.ceil(demand * lease_us * headroom / 1000000)
local flow = per_second * math.max(share, 1 / (instances * divisor))
local since = lease_us
if held then since = steady - held.seen end
since = math.min(since, most_us)
local surplus = math.max(0, level_milli - burst / 2)
local entitled = level_milli
if total > per_second then entitled = flow * since / 1000000 + surplus * share end
local floor_milli = per_second * lease_us / 1000000 / (instances * divisor)
local granted = math.max(0, math.floor(math.min(math.max(wanted, floor_milli) - kept, entitled, level_milli)))
local scarce = '0'
if granted + kept < wanted then scarce = '1' end

level = level - granted * per_milli
redis.call('HSET', KEYS[1], 'i:' .. instance, table.concat({ whole(lease), whole(asked_lease),
  whole(kept + granted), whole(granted), whole(sequence), whole(steady + lease_us), whole(demand),
  whole(steady) }, ' '))
save()
return { whole(epoch), whole(lease), whole(granted), whole(kept), whole(lease_us), scarce, whole(instances) }
