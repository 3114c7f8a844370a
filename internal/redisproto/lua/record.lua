-- record: what all scripts share; it stands in front of each of them.
--
-- A record is one hash. Its fields:
--   m           the header, 64 bytes, so that a small record stays a listpack
--   o           the owner of the first claim, written when m stops telling it
--   w           there while somebody waits for the record to settle
--   r           the answer, or r:<owner> if it did not travel through a script
--   s:<name>    the value of a step
--
-- The header, numbers big-endian:
--   1      format version, 1
--   2      state
--   3      flags: 1 = hold when the lease ends, 2 = the answer is in r:<owner>
--   4-7    attempt
--   8-11   lease in ms
--   12-16  lifetime in ms: what the expiry of the hash was last set to
--   17-48  fingerprint
--   49-64  owner
--
-- The hash always expires. What is left of the lease follows from what is left of
-- the lifetime, so only the server's expiry clock counts and nobody asks for the time.
--
-- A server that is out of memory refuses the first command of a script that may need
-- more of it, but lets a script that has already written go on to its end. Scripts
-- that must succeed then begin with a write that needs no memory.
local CLAIMED, RELEASED, COMPLETED, HELD = 1, 2, 3, 4

local function uint(s, first, last)
  local n = 0
  for i = first, last do
    n = n * 256 + s:byte(i)
  end
  return n
end

-- readable tells whether m is a header of this version.
local function readable(m)
  return #m == 64 and m:byte(1) == 1
end

-- unreadable is what a script returns for any other m.
local function unreadable(m)
  if #m > 0 and m:byte(1) > 1 then
    return -3
  end
  return -2
end

-- live tells whether the lease of a claimed record has not ended.
local function live(m, ttl)
  return uint(m, 8, 11) > uint(m, 12, 16) - ttl
end

-- touch is a write without effect that needs no memory. A ttl of 0 would delete; none,
-- which somebody else has seen to, is left.
local function touch(key, ttl)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, math.max(ttl, 1))
  end
end

