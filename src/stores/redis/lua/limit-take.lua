--[[
limit-take: charges all limits of a request, or none; or gives one charge back.

The same arithmetic as core/limit/algorithms in TypeScript, step for step: integers in floats, products
below 2^53, remainders by fmod, which is exact where Lua's % is not. A limit's own parameters are kept
beside its state, so that a changed limit takes the share over that was left under the old one.

KEYS
  1 limit  hash  p parameters, c state cells, s h z timeline; one key per check, all in one slot
ARGV
  1 now     microseconds; empty for the server's own clock
  2 mode    take, or give (adds the cost of each check back)
  3 checks  JSON: for each key [parameters, cost, keep, ttl ms], numbers in thousandths
RETURNS
  { longest wait in us (0: all charged), index of the check that it is of (0: none), left ... }
  numbers as text; a wait of 9007199254740991 says that no wait helps
]]
local never = 9007199254740991
local function whole(n) return string.format('%.0f', n) end
local function floordiv(a, b) return (a - math.fmod(a, b)) / b end
local function ceildiv(a, b)
  local rest = math.fmod(a, b)
  if rest == 0 then return a / b end
  return (a - rest) / b + 1
end
local function muldiv(a, b, c)
  if a * b <= never then return floordiv(a * b, c) end
  return math.floor(a / c * b)
end
local function least(enough, most)
  local low, high = 0, most
  while low < high do
    local middle = low + math.floor((high - low) / 2)
    if enough(middle) then high = middle else low = middle + 1 end
  end
  return low
end

local algorithms = {}

-- p: tick, units per tick, units per thousandth, capacity units, initial units, fill us, burst
-- c: level, last
local bucket = {}
algorithms.token_bucket = bucket
function bucket.level(p, c, now)
  local elapsed = now - c[2]
  if elapsed <= 0 then return c[1] end
  if elapsed >= p[6] then return p[4] end
  local level = c[1] + math.floor(elapsed / p[1]) * p[2]
  if level < p[4] then return level end
  return p[4]
end
function bucket.counted(p, c, now)
  if now <= c[2] then return c[2] end
  return now - math.fmod(now - c[2], p[1])
end
function bucket.fresh(p, now) return { p[5], now } end
function bucket.wait(p, c, now, cost)
  if p[7] == 0 then return never end
  local level, units = bucket.level(p, c, now), cost * p[3]
  if level >= units then return 0 end
  if p[2] == 0 then return never end
  return math.min(never, math.ceil((units - level) / p[2]) * p[1] - (now - bucket.counted(p, c, now)))
end
function bucket.charge(p, c, now, cost)
  local level, counted = bucket.level(p, c, now), bucket.counted(p, c, now)
  c[1], c[2] = level - cost * p[3], counted
end
function bucket.give(p, c, now, cost) c[1] = math.min(p[4], c[1] + cost * p[3]) end
function bucket.left(p, c, now) return math.floor(bucket.level(p, c, now) / p[3]) end
function bucket.capacity(p) return p[7] end
function bucket.adopt(p, now, left, of)
  if of == 0 then return { p[5], now } end
  return { muldiv(p[4], left, of), now }
end

-- p: limit, window; c: start, spent
local fixed = {}
algorithms.fixed_window = fixed
function fixed.start(p, c, now)
  if now < c[1] + p[2] then return c[1] end
  return now - math.fmod(now, p[2])
end
function fixed.spent(p, c, now)
  if fixed.start(p, c, now) == c[1] then return c[2] end
  return 0
end
function fixed.fresh(p, now) return { now - math.fmod(now, p[2]), 0 } end
function fixed.wait(p, c, now, cost)
  if p[1] == 0 then return never end
  if fixed.spent(p, c, now) + cost <= p[1] then return 0 end
  return fixed.start(p, c, now) + p[2] - now
end
function fixed.charge(p, c, now, cost)
  local spent, start = fixed.spent(p, c, now), fixed.start(p, c, now)
  c[1], c[2] = start, spent + cost
end
function fixed.give(p, c, now, cost)
  if now < c[1] + p[2] then c[2] = math.max(0, c[2] - cost) end
end
function fixed.left(p, c, now) return p[1] - fixed.spent(p, c, now) end
function fixed.capacity(p) return p[1] end
function fixed.adopt(p, now, left, of)
  local spent = 0
  if of > 0 then spent = p[1] - muldiv(p[1], left, of) end
  return { now - math.fmod(now, p[2]), spent }
end

-- p: limit, window, tick; c: start, spent before, spent
local sliding = {}
algorithms.sliding_window = sliding
function sliding.at(p, c, now)
  local own, window = c[1], p[2]
  local start = own
  if now >= own + window then start = now - math.fmod(now, window) end
  local before, spent = 0, 0
  if start == own then before, spent = c[2], c[3]
  elseif start == own + window then before = c[3] end
  local elapsed = 0
  if now > start then elapsed = floordiv(now - start, p[3]) end
  return start, before, spent, elapsed
end
function sliding.fresh(p, now) return { now - math.fmod(now, p[2]), 0, 0 } end
function sliding.wait(p, c, now, cost)
  if p[1] == 0 then return never end
  local ticks = p[2] / p[3]
  local start, before, spent, elapsed = sliding.at(p, c, now)
  local room = p[1] - spent - cost
  if before * (ticks - elapsed) <= room * ticks then return 0 end
  local free
  if room >= 0 then free = ticks - floordiv(room * ticks, before)
  else free = 2 * ticks - floordiv((p[1] - cost) * ticks, spent) end
  return start + free * p[3] - now
end
function sliding.charge(p, c, now, cost)
  local start, before, spent = sliding.at(p, c, now)
  c[1], c[2], c[3] = start, before, spent + cost
end
function sliding.give(p, c, now, cost) c[3] = math.max(0, c[3] - cost) end
function sliding.left(p, c, now)
  local ticks = p[2] / p[3]
  local start, before, spent, elapsed = sliding.at(p, c, now)
  local left = (p[1] - spent) * ticks - before * (ticks - elapsed)
  if left <= 0 then return 0 end
  return floordiv(left, ticks)
end
function sliding.capacity(p) return p[1] end
function sliding.adopt(p, now, left, of)
  local spent = 0
  if of > 0 then spent = p[1] - muldiv(p[1], left, of) end
  return { now - math.fmod(now, p[2]), 0, spent }
end

-- p: limit, window; c: instants, oldest first
local log = {}
algorithms.sliding_log = log
function log.gone(p, c, now)
  local gone = 0
  while gone < #c and c[gone + 1] + p[2] <= now do gone = gone + 1 end
  return gone
end
function log.fresh() return {} end
function log.wait(p, c, now, cost)
  if p[1] == 0 then return never end
  local limit, calls = p[1] / 1000, cost / 1000
  if #c - log.gone(p, c, now) + calls <= limit then return 0 end
  return c[#c + calls - limit] + p[2] - now
end
function log.charge(p, c, now, cost)
  local gone, kept = log.gone(p, c, now), {}
  for at = gone + 1, #c do kept[#kept + 1] = c[at] end
  local newest = now
  if #kept > 0 and kept[#kept] > now then newest = kept[#kept] end
  for _ = 1, cost / 1000 do kept[#kept + 1] = newest end
  for at = 1, math.max(#c, #kept) do c[at] = kept[at] end
end
function log.give(p, c, now, cost)
  for _ = 1, cost / 1000 do if #c > 0 then c[#c] = nil end end
end
function log.left(p, c, now) return p[1] - (#c - log.gone(p, c, now)) * 1000 end
function log.capacity(p) return p[1] end
function log.adopt(p, now, left, of)
  local cells = {}
  if of > 0 then
    for _ = 1, math.ceil(p[1] / 1000 * (of - left) / of) do cells[#cells + 1] = now end
  end
  return cells
end

-- p: tick, units per tick, units per thousandth, allowed units, drain us, capacity; c: backlog, last
local leaky = {}
algorithms.leaky_bucket = leaky
function leaky.counted(p, c, now)
  if now <= c[2] then return c[2] end
  return now - math.fmod(now - c[2], p[1])
end
function leaky.backlog(p, c, now)
  local elapsed = leaky.counted(p, c, now) - c[2]
  if elapsed >= p[5] then return 0 end
  return math.max(0, c[1] - elapsed / p[1] * p[2])
end
function leaky.fresh(p, now) return { 0, now } end
function leaky.wait(p, c, now, cost)
  if p[2] == 0 then return never end
  local backlog = leaky.backlog(p, c, now)
  if backlog <= p[4] then return 0 end
  return ceildiv(backlog - p[4], p[2]) * p[1] - (now - leaky.counted(p, c, now))
end
function leaky.charge(p, c, now, cost)
  local backlog, counted = leaky.backlog(p, c, now), leaky.counted(p, c, now)
  c[1], c[2] = backlog + cost * p[3], counted
end
function leaky.give(p, c, now, cost) c[1] = math.max(0, c[1] - cost * p[3]) end
function leaky.left(p, c, now)
  local room = p[4] - leaky.backlog(p, c, now)
  if room < 0 or p[2] == 0 then return 0 end
  return math.min(p[6], floordiv(room, p[3]) + 1000)
end
function leaky.capacity(p) return p[6] end
function leaky.adopt(p, now, left, of)
  if of == 0 then return { 0, now } end
  return { muldiv(p[4], of - left, of), now }
end

-- p: tick, units per tick, units per thousandth, warm ticks, cold of, cold parts, burst, idle us,
--    slowest fill in ticks, cold level; c: level, last, warmth
local warm = {}
algorithms.warm_up = warm
function warm.cold_level(p) return p[10] end
function warm.earned(p, warmth, ticks)
  local rise_to = math.min(p[4], warmth + ticks)
  local rising = p[2] * (2 * p[5] * p[4] * (rise_to - warmth)
    + (p[6] - p[5]) * (rise_to * rise_to - warmth * warmth))
  return rising + (ticks - (rise_to - warmth)) * p[2] * 2 * p[6] * p[4]
end
function warm.ticks(p, c, now)
  if now <= c[2] then return 0 end
  return math.floor((now - c[2]) / p[1])
end
function warm.is_cold(p, c, now) return p[2] > 0 and now - c[2] >= p[8] end
function warm.level(p, c, now)
  if warm.is_cold(p, c, now) then return warm.cold_level(p) end
  local ticks, capacity = warm.ticks(p, c, now), p[7] * p[3]
  if p[2] > 0 and ticks >= p[9] then return capacity end
  return math.min(capacity, c[1] + warm.earned(p, c[3], ticks))
end
function warm.fresh(p, now) return { warm.cold_level(p), now, 0 } end
function warm.wait(p, c, now, cost)
  if p[7] == 0 then return never end
  local units = cost * p[3]
  if warm.level(p, c, now) >= units then return 0 end
  if p[2] == 0 then return never end
  local stored, warmth, from = c[1], c[3], c[2]
  if warm.is_cold(p, c, now) then stored, warmth, from = warm.cold_level(p), 0, now end
  local ticks = least(function(n) return stored + warm.earned(p, warmth, n) >= units end, p[9])
  return from + ticks * p[1] - now
end
function warm.note(p, c, now)
  if warm.is_cold(p, c, now) then c[1], c[2], c[3] = warm.cold_level(p), now, 0 end
end
function warm.charge(p, c, now, cost)
  local level, ticks, cooled = warm.level(p, c, now), warm.ticks(p, c, now), warm.is_cold(p, c, now)
  c[1] = level - cost * p[3]
  if cooled then c[2], c[3] = now, 0
  else c[2], c[3] = c[2] + ticks * p[1], math.min(p[4], c[3] + ticks) end
end
function warm.give(p, c, now, cost) c[1] = math.min(p[7] * p[3], c[1] + cost * p[3]) end
function warm.left(p, c, now) return math.floor(warm.level(p, c, now) / p[3]) end
function warm.capacity(p) return p[7] end
function warm.adopt(p, now, left, of)
  if of == 0 then return { warm.cold_level(p), now, 0 } end
  return { muldiv(p[7] * p[3], left, of), now, p[4] }
end

local function numbers(text)
  local list = {}
  for word in string.gmatch(text, '%S+') do list[#list + 1] = tonumber(word) end
  return list
end
local function parameters(text)
  local name, rest = string.match(text, '^(%S+) (.*)$')
  return algorithms[name], numbers(rest)
end

local now
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(ARGV[1])
end

local entries, longest, by = {}, 0, 0
for at, check in ipairs(cjson.decode(ARGV[3])) do
  local text, cost, keep, ttl = check[1], check[2], check[3], check[4]
  local stored = redis.call('HMGET', KEYS[at], 'p', 'c', 's', 'h', 'z')
  local algorithm, p = parameters(text)
  local steady, high, base = tonumber(stored[3] or 0), tonumber(stored[4] or 0), tonumber(stored[5] or -1)
  -- One steady time out of a clock that steps: core/limit/timeline.ts.
  if now >= high then
    steady, high, base = math.max(steady, now), now, -1
  elseif base < 0 or now < base then
    base = now
  else
    steady = math.max(steady, high + (now - base))
  end
  local debt = steady - now
  if base >= 0 then debt = steady - (high + (now - base)) end
  local cells, fresh = nil, false
  if not stored[1] then
    cells, fresh = algorithm.fresh(p, steady), true
  elseif stored[1] == text then
    cells = numbers(stored[2])
  else
    local old, q = parameters(stored[1])
    cells = algorithm.adopt(p, steady, old.left(q, numbers(stored[2]), steady), old.capacity(q))
  end
  local wait = 0
  if ARGV[2] == 'take' then
    wait = algorithm.wait(p, cells, steady, cost + keep)
    if wait > 0 then
      if algorithm.note then algorithm.note(p, cells, steady) end
      if wait < never then wait = wait + debt end
    end
  end
  if wait > longest then longest, by = wait, at end
  entries[at] = { key = KEYS[at], text = text, algorithm = algorithm, p = p, cells = cells, cost = cost,
    ttl = ttl, fresh = fresh, steady = steady, high = high, base = base }
end

local reply = { whole(longest), by }
for at, entry in ipairs(entries) do
  if ARGV[2] == 'give' then
    if not entry.fresh then entry.algorithm.give(entry.p, entry.cells, entry.steady, entry.cost) end
  elseif longest == 0 then
    entry.algorithm.charge(entry.p, entry.cells, entry.steady, entry.cost)
  end
  reply[at + 2] = whole(entry.algorithm.left(entry.p, entry.cells, entry.steady))
  if ARGV[2] == 'take' or not entry.fresh then
    local cells = {}
    for n, cell in ipairs(entry.cells) do cells[n] = whole(cell) end
    redis.call('HSET', entry.key, 'p', entry.text, 'c', table.concat(cells, ' '),
      's', whole(entry.steady), 'h', whole(entry.high), 'z', whole(entry.base))
    -- A refusal does not keep a key alive, but a key without a life would never go.
    if longest == 0 or entry.fresh then redis.call('PEXPIRE', entry.key, whole(entry.ttl)) end
  end
end
return reply
