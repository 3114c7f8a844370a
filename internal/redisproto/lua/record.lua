-- record is the beginning of every script of a record: the form of a record, and how to read it. The server makes each
-- function anew for each call, so what few scripts need has files of its own.
--
-- A record is one hash. Its fields:
--   m           the header: 64 bytes until there is an answer, so that Redis keeps a small
--               record as a listpack
--   w           exists while somebody waits for the record to settle
--   r           the answer, or r:<owner> if it did not travel through a script
--   s:<name>    the value of a step
--   n           the note of the last claim that was granted: its length in a byte, the note, and
--               the label of the claim, unless it is in l
--   l           that label, if it would make n longer than 64 bytes
--   h           the notes before that one, each with its length in a byte, oldest first
--   d           the notes of decisions, each with its length as a varint, oldest first
--   k           the sealed key of the last claim that had one and was granted
--   t           the tags of the last claim that had some and was granted, 16 bytes each, and one byte more if a later
--               claim has not entered them anew
--
-- A claim without note, label, sealed key and tags leaves no such field.
--
-- The header, numbers big-endian:
--   1      format version, 1
--   2      state
--   3      flags: 1 = hold when the lease ends, 2 = the answer is in r:<owner>,
--          4 = a record that is held ends with its lifetime,
--          8 = held because the lease ended, and not by its owner,
--          16 = blank: nothing was done under the record, 32 = released unbound, or claimed
--          after that,
--          64 = claimed, because the lease of another owner had ended,
--          128 = settled by hand: the owner has lost the claim
--   4-7    attempt
--   8-11   lease in ms
--   12-16  lifetime in ms: what the expiry of the hash is set to, unless the record is endless
--   17-48  fingerprint
--   49-64  owner
-- and, if the record is completed, what a lookup tells of the answer:
--   65-66  status
--   67-70  length
--
-- The hash always has an expiry. The rest of the lease is computed from the rest of the
-- lifetime, so only the server's expiry clock counts and no script asks for the time. A
-- record that has no end of its own needs an expiry for that too: it gets ENDLESS.
--
-- A server that is out of memory refuses a script's first write if it may need memory. A
-- script that has already written may go on to its end. So the scripts that must succeed
-- on such a server begin with a write that needs no memory.
--
-- An account may lack a command, and a server does not undo what a script has written before. So what a write of a
-- script changes is whole by itself, and an expiry that may be shorter than the one before comes behind it.
local CLAIMED, RELEASED, COMPLETED, HELD = 1, 2, 3, 4

-- ENDLESS is the largest lifetime that a header can hold: 34 years.
local ENDLESS = 1099511627775

local function uint(s, first, last)
  local n = 0
  for i = first, last do
    n = n * 256 + s:byte(i)
  end
  return n
end

-- size returns how long a header of this version is that has the state of m.
local function size(m)
  if m:byte(2) == COMPLETED then
    return 70
  end
  return 64
end

-- readable reports whether m is a header of this version.
local function readable(m)
  return #m == size(m) and m:byte(1) == 1
end

-- owner returns the owner of a claim or a record.
local function owner(m)
  return m:sub(49, 64)
end

-- byHand reports whether a record was settled by hand.
local function byHand(m)
  return m:byte(3) >= 128
end

-- isOf reports whether the owner of that name has the record: whether it was the last to get
-- the claim, and has not lost it since.
local function isOf(m, name)
  return owner(m) == name and not byHand(m)
end

-- unreadable returns the result of a script for any other m. One that says more than this version knows is
-- of another one.
local function unreadable(m)
  if #m > 0 and (m:byte(1) > 1 or m:byte(1) == 1 and #m > size(m)) then
    return -3
  end
  return -2
end

-- lifetime returns what the expiry of the record was last set to. What is held, or will be
-- when its lease ends, has no end of its own unless its claim has asked for one.
local function lifetime(m)
  local state, flags = m:byte(2), m:byte(3)
  if flags % 8 < 4 and (state == HELD or (state == CLAIMED and flags % 2 == 1)) then
    return ENDLESS
  end
  return uint(m, 12, 16)
end

-- blank reports whether nothing was done under the record.
local function blank(m)
  return m:byte(3) % 32 >= 16
end

-- live reports whether the lease of a claimed record has not ended.
local function live(m, ttl)
  return uint(m, 8, 11) > lifetime(m) - ttl
end

-- touch is a write that changes nothing and needs no memory. An expiry of 0 would delete
-- the record, so it becomes 1. A record without an expiry is left alone: something else
-- has taken the expiry away.
local function touch(key, ttl)
  if ttl >= 0 then
    redis.call('PEXPIRE', key, math.max(ttl, 1))
  end
end

