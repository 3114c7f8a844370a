-- resolve settles a held record for an operator, in one atomic step. It takes the claim from
-- its owner, so that a late answer of the last run is refused.
--
-- KEYS[1]   record
-- ARGV[1]   owner that the caller has seen
-- ARGV[2]   attempt that the caller has seen
-- ARGV[3]   new state
-- ARGV[4]   channel on which the settled record is announced
-- ARGV[5]   new lifetime in the form of the header, and status and length of the answer; or
--           empty to start the old lifetime anew
-- ARGV[6]   answer
-- ARGV[7]   note of the decision behind its length, or empty
-- ARGV[8…]  fields of the steps that did not happen, each followed by its value
--
-- Returns 1 when it has, now or by an earlier call, as told does; -4 when the record is not held or not the one
-- that was seen, or one of the steps has another value, or the note is not that of the earlier call; -1 when there
-- is none; -2, -3 when m is unreadable.
local key, state = KEYS[1], tonumber(ARGV[3])
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  return -1
end
local rec = redis.call('HMGET', key, 'm', 'w', 'r', 'd', 't')
local m = rec[1] or ''
if not readable(m) then
  return unreadable(m)
end
if not wasSeen(m, ARGV[1], ARGV[2]) then
  return -4
end

-- later returns the last eight of some notes.
local function later(notes)
  local starts, i = {}, 1
  while i <= #notes do
    starts[#starts + 1] = i
    local size, unit = 0, 1
    while i < #notes and notes:byte(i) >= 128 do
      size, unit, i = size + (notes:byte(i) - 128) * unit, unit * 128, i + 1
    end
    i = i + 1 + size + notes:byte(i) * unit
  end
  return notes:sub(starts[math.max(#starts - 7, 1)])
end

local decided, note = rec[4] or '', ARGV[7]
local gone, same = true, true
for i = 8, #ARGV, 2 do
  local value = redis.call('HGET', key, ARGV[i])
  gone, same = gone and not value, same and value == ARGV[i + 1]
end

if m:byte(2) == state and byHand(m) and gone and decided:sub(#decided - #note + 1) == note and (state ~= COMPLETED or rec[3] == ARGV[6]) then
  touch(key, ttl) -- so that a WAIT behind the call has a write to wait for
  return told(1, ttl, rec[5])
end
if shown(m, ttl) ~= HELD or not same then
  return -4
end

local span, about = ARGV[5]:sub(1, 5), ARGV[5]:sub(6)
if span == '' then
  span = m:sub(12, 16)
end
m = m:sub(1, 1) .. string.char(state, m:byte(3) % 8 + 128) .. m:sub(4, 11) .. span .. m:sub(17, 64) .. about
local fields = {'m', m}
if note ~= '' then
  fields[3], fields[4] = 'd', later(decided .. note)
end
if state == COMPLETED then
  fields[#fields + 1], fields[#fields + 2] = 'r', ARGV[6]
end
touch(key, ttl)
if #ARGV >= 8 then
  redis.call('HDEL', key, '') -- as touch is
end
redis.call('HSET', key, unpack(fields))
redis.call('PEXPIRE', key, lifetime(m))
for i = 8, #ARGV, 2 do
  redis.call('HDEL', key, ARGV[i])
end
if rec[2] then
  redis.call('HDEL', key, 'w')
  redis.call('PUBLISH', ARGV[4], key)
end
return told(1, lifetime(m), rec[5])
