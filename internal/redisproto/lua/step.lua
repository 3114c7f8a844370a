-- step records a part of a run for its owner. It is one atomic step, which also works on a
-- server that is out of memory.
--
-- KEYS[1]  record
-- ARGV[1]  owner
-- ARGV[2]  field of the step
-- ARGV[3]  value
--
-- Returns 1 when it has; -4 when the owner does not hold the claim; -2, -3 when m is unreadable.
local m, refusal = claimOf(KEYS[1], ARGV[1])
if not m then
  return refusal
end
if blank(m) then
  m = m:sub(1, 2) .. string.char(m:byte(3) - 16) .. m:sub(4)
end
redis.call('HDEL', KEYS[1], '') -- the write that needs no memory
redis.call('HSET', KEYS[1], 'm', m, ARGV[2], ARGV[3])
return 1
