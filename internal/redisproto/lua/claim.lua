-- claim asks for the right to run, in one atomic step.
--
-- KEYS[1]  record
-- ARGV[1]   header of the claim: attempt 1, state claimed
-- ARGV[2]   expiry in ms: the lifetime of the header, or ENDLESS
-- ARGV[3]   1 if the caller will wait for the record to settle
-- ARGV[4…]  the fields n, l, k and t of the claim, as far as it has them, each followed by its value;
--           n is there if one of the others is
--
-- Returns a list of strings. For a new record: the expiry in ms, and the owner. For any
-- other record: the expiry in ms, the header as it is now, the answer, and the fields n and h.
-- What is not there is an empty string. If the caller holds the claim, the names and values of
-- the steps follow in turn.
--
-- The state and the owner in the header tell whose claim it is. The owner of a new record
-- is returned so that a reply that was read off the wrong connection starts no run.
local key, claim = KEYS[1], ARGV[1]

-- The expiry is needed anyway, and it tells whether there is a record. HSETNX would tell
-- that too, but not on a server that is out of memory.
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  redis.call('HSET', key, 'm', claim, unpack(ARGV, 4))
  -- An account may lack the command. Without an expiry, nobody could ever read the record.
  local set = redis.pcall('PEXPIRE', key, ARGV[2])
  if type(set) == 'table' then
    redis.call('DEL', key)
    return set
  end
  return {ARGV[2], owner(claim)}
end

local rec = redis.call('HMGET', key, 'm', 'r', 'w', 'n', 'h', 't')
local m, note, history = rec[1] or '', rec[4] or '', rec[5] or ''
if ttl < 0 or not readable(m) then
  return {ttl, m, ''}
end
local state, own = m:byte(2), isOf(m, owner(claim))
local unbound = state == RELEASED and not own and m:byte(3) % 64 >= 32
if m:sub(17, 48) ~= claim:sub(17, 48) and not unbound then
  return {ttl, m, '', note, history}
end
local attempt = uint(m, 4, 7)
if attempt == 0 then
  return {ttl, m, ''} -- damaged: the caller reports it
end

-- If the expiry is beyond the lifetime, the clock was set back, or this server was promoted
-- and its clock is behind. Nobody knows how much of the lease is left, so the lease starts
-- anew. Otherwise a dead owner would block the key for as long as the clock was set back.
if ttl > lifetime(m) then
  ttl = lifetime(m)
  redis.call('PEXPIRE', key, ttl)
end

-- later returns the last notes of a history, at most n.
local function later(notes, n)
  local starts, i = {}, 1
  while i <= #notes do
    starts[#starts + 1] = i
    i = i + notes:byte(i) + 1
  end
  return notes:sub(starts[math.max(#starts - n + 1, 1)])
end

local function mine(expiry, header)
  local reply = {expiry, header, '', note, history}
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    if fields[i]:sub(1, 2) == 's:' then
      reply[#reply + 1] = fields[i]:sub(3)
      reply[#reply + 1] = fields[i + 1]
    end
  end
  return reply
end

if state == CLAIMED then
  if own then
    -- A repeated call. It starts the lease anew, which also gives a WAIT behind the call
    -- a write to wait for.
    ttl = lifetime(m)
    redis.call('PEXPIRE', key, ttl)
    return mine(ttl, m)
  end
  if live(m, ttl) then
    if ARGV[3] == '1' and not rec[3] then
      touch(key, ttl)
      redis.call('HSET', key, 'w', '')
    end
    return {ttl, m, '', note, history}
  end
  if m:byte(3) % 2 == 1 or claim:byte(3) % 2 == 1 then
    local age = lifetime(m) - ttl
    m = m:sub(1, 1) .. string.char(HELD, m:byte(3) + 8) .. m:sub(4)
    ttl = lifetime(m) - age -- later than before if the record has become endless
    touch(key, ttl)
    redis.call('HSET', key, 'm', m)
    return {ttl, m, '', note, history}
  end
elseif state ~= RELEASED or own or ARGV[3] == '1' then
  -- An owner that has released its claim does not get it back. Who waits has waited for this end.
  return {ttl, m, rec[2] or '', note, history}
end

attempt = attempt + 1
local flags = claim:byte(3)
if state ~= RELEASED or not blank(m) then
  flags = flags - 16 -- an earlier attempt may have done something
end
if state == CLAIMED then
  flags = flags + 64
end
if unbound then
  flags = flags + 32
end
local header = claim:sub(1, 2) .. string.char(flags,
  math.floor(attempt / 16777216) % 256, math.floor(attempt / 65536) % 256,
  math.floor(attempt / 256) % 256, attempt % 256) .. claim:sub(8)
-- One write has all, and is the first: a server that is out of memory, or an account that lacks a command, refuses the
-- attempt before anything has changed.
local fields, labelled = {'m', header, unpack(ARGV, 4)}, ARGV[6] == 'l'
if note ~= '' then
  history = later(history .. note:sub(1, note:byte() + 1), 15)
  fields[#fields + 1], fields[#fields + 2] = 'h', history
end
redis.call('HSET', key, unpack(fields))
if note ~= '' then
  note = ARGV[5] or ''
  if note == '' then
    redis.call('HDEL', key, 'n', 'l')
  elseif not labelled then
    redis.call('HDEL', key, 'l')
  end
end
local t = rec[6]
if t and ARGV[#ARGV - 1] ~= 't' then -- they are of an earlier claim
  if m:sub(17, 48) ~= claim:sub(17, 48) then
    redis.call('HDEL', key, 't')
  elseif #t % 16 == 0 then
    redis.call('HSET', key, 't', t .. '\0')
  end
end
redis.call('PEXPIRE', key, ARGV[2])
return mine(ARGV[2], header)
