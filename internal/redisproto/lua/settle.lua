-- settle ends a claim for its owner: the record becomes completed, released or held. It is
-- one atomic step, which also works on a server that is out of memory.
--
-- KEYS[1]  record
-- ARGV[1]  owner
-- ARGV[2]  new state
-- ARGV[3]  channel on which the settled record is announced
-- ARGV[4]  new lifetime in the form of the header, and status and length of the answer; or
--          empty to start the old lifetime anew. With a release it counts only if it is
--          shorter
-- ARGV[5]  answer
-- ARGV[6]  flags to set: 2 if an HSETNX in the same MULTI has put the answer into r:<owner>;
--          16 if the owner has done nothing, 32 if the record shall be unbound then, and 64 if
--          it shall be so if the claim has found it so.
--          What a release says here and in ARGV[4] counts only for a record that is blank
-- ARGV[7]  note that replaces that of the claim, or empty
--
-- Returns 1 when the owner has put the record into that state, now or by an earlier
-- call, or 2 if the claim has been entered in the index of what is held, both as told does unless the entries of the
-- tags are kept for long enough; -4 when the owner does not hold the claim; -2, -3 when m is unreadable.
local key, caller, state = KEYS[1], ARGV[1], tonumber(ARGV[2])
local said = tonumber(ARGV[6] or 0)
local detached = said == 2
local rec = redis.call('HMGET', key, 'm', 'w', 't')
local m, t = rec[1], rec[3]
local result = -4

-- lapsed reports whether a record is held because its lease ended. The owner has not said
-- that the outcome is unknown, and may still say that nothing has happened.
local function lapsed(m)
  return m:byte(2) == HELD and m:byte(3) % 16 >= 8
end

-- done returns the result of success, given the header before it.
local function done(m)
  if m:byte(3) % 2 == 1 or (m:byte(2) == HELD and state ~= HELD) then
    return 2
  end
  return 1
end

if m and not readable(m) then
  result = unreadable(m)
elseif m and isOf(m, caller) then
  local was = m:byte(2)
  if was == state and not lapsed(m) then
    -- A repeated call. It writes, so that a WAIT behind it has a write to wait for.
    local ttl = redis.call('PTTL', key)
    touch(key, ttl)
    detached = detached and m:byte(3) % 4 < 2
    result = told(done(m), ttl, t)
  elseif was == CLAIMED or lapsed(m) or (was == HELD and state == COMPLETED) then
    local flags, span, about = m:byte(3) % 8, m:sub(12, 16), ARGV[4]:sub(6)
    if state == COMPLETED or blank(m) then
      local new = ARGV[4]:sub(1, 5)
      if said >= 64 then
        said = said - 64 + m:byte(3) % 64 - m:byte(3) % 32
      end
      flags = flags + said
      if new ~= '' and (state == COMPLETED or uint(new, 1, 5) < uint(span, 1, 5)) then
        span = new
      end
    end
    result = done(m)
    local before, age = lifetime(m)
    if t then
      age = before - redis.call('PTTL', key)
    end
    m = m:sub(1, 1) .. string.char(state, flags) .. m:sub(4, 11) .. span .. m:sub(17, 64) .. about
    local kept, fields = lifetime(m), {'m', m}
    if state == COMPLETED and not detached then
      fields[3], fields[4] = 'r', ARGV[5]
    end
    local note = ARGV[7] or ''
    local n = note ~= '' and redis.call('HGET', key, 'n')
    if n then
      fields[#fields + 1], fields[#fields + 2] = 'n', string.char(#note) .. note .. n:sub(n:byte() + 2)
    end
    redis.call('PEXPIRE', key, before) -- the write that needs no memory, and shortens nothing
    redis.call('HSET', key, unpack(fields))
    redis.call('PEXPIRE', key, kept)
    if rec[2] then
      redis.call('HDEL', key, 'w')
      redis.call('PUBLISH', ARGV[3], key)
    end
    -- The entries of an endless record are to end with it now.
    if t and #t % 16 == 0 and before < ENDLESS and age + kept <= covers(before) then
      return result
    end
    return told(result, kept, t)
  end
end

-- The field of an owner that came too late must not stay.
if detached then
  redis.call('HDEL', key, 'r:' .. caller)
end
return result
