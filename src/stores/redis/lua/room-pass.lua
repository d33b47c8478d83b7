--[[
room-pass: counts an admitted entry's claim and fixes its attempt and expiry, or repeats that.

KEYS
  1 room     hash  counters
  2 entries  hash  entry id -> its newest place
  3 claims   hash  entry id -> its claims, oldest first
  4 changes  list  what happened to entries, in order
ARGV
  1 now        wall time, ms; empty for the server's own clock
  2 entry      entry id
  3 sku        SKU chosen
  4 wave       wave that released the entry
  5 before     until when that wave may claim, ms
  6 life       of a pass, ms
  7 renewable  1 where an expired pass may be followed by another
  8 most       claims kept of one entry
RETURNS
  { 'unknown_entry' }, { 'left' }, { 'missed' } or { 'other_sku', SKU }
  { 'taken', attempt, wave, when as text, expiry as text, fresh (1 or 0) }
  A claim is sequence,SKU,wave,attempt,when,expiry,state; claims are divided by ; and the state is 0,
  or 1 ended, 2 finished, 3 both.
]]
local entry = redis.call('HGET', KEYS[2], ARGV[2])
if not entry then return { 'unknown_entry' } end
local sequence, left = string.match(entry, '^(%d+)|(.)')
if left == 'L' then return { 'left' } end

local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local function whole(number) return string.format('%.0f', number) end

local claims, newest, attempt = {}, nil, 0
for claim in string.gmatch(redis.call('HGET', KEYS[3], ARGV[2]) or '', '[^;]+') do
  local sku, wave, number, at, expires, state =
    string.match(claim, '^%d+,([^,]*),(%d+),(%d+),(%d+),(%d+),(%d)$')
  newest = { sku = sku, wave = wave, attempt = number, at = at, expires = expires, state = state }
  newest.text = claim
  claims[#claims + 1] = newest
  if sku == ARGV[3] then attempt = math.max(attempt, tonumber(number)) end
end

-- Another wave than the claim's: the entry was released again, and the old pass no longer counts.
if newest and newest.wave == ARGV[4] and newest.state % 2 == 0 then
  if now < tonumber(newest.expires) then
    if newest.sku ~= ARGV[3] then return { 'other_sku', newest.sku } end
    return { 'taken', tonumber(newest.attempt), tonumber(newest.wave), newest.at, newest.expires, 0 }
  end
  if ARGV[7] ~= '1' then return { 'missed' } end
end
if now >= tonumber(ARGV[5]) then return { 'missed' } end

if #claims >= tonumber(ARGV[8]) then
  -- The oldest goes whose SKU has a newer one: an attempt's number must never come again.
  local later = {}
  for at = #claims, 1, -1 do
    claims[at].replaced = later[claims[at].sku]
    later[claims[at].sku] = true
  end
  for at = 1, #claims do
    if claims[at].replaced then table.remove(claims, at) break end
  end
end
attempt = attempt + 1
local taken, expires = whole(now), whole(math.ceil((now + tonumber(ARGV[6])) / 1000) * 1000)
local texts = {}
for at = 1, #claims do texts[at] = claims[at].text end
texts[#texts + 1] = table.concat({ sequence, ARGV[3], ARGV[4], whole(attempt), taken, expires, '0' }, ',')
redis.call('RPUSH', KEYS[4],
  table.concat({ 'c', ARGV[2], sequence, ARGV[3], ARGV[4], whole(attempt), taken, expires }, '|'))
redis.call('HSET', KEYS[3], ARGV[2], table.concat(texts, ';'))
redis.call('HINCRBY', KEYS[1], 'claimed', 1)
return { 'taken', attempt, tonumber(ARGV[4]), taken, expires, 1 }
