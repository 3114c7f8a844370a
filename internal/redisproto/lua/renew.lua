-- renew starts the lease and the lifetime of a claim anew, in one atomic step.
--
-- KEYS[1]  record
-- ARGV[1]  owner
--
-- Returns 1 when it has, as told does; -4 when the owner does not hold the claim; -2, -3 when m is unreadable.
local m, t = claimOf(KEYS[1], ARGV[1])
if not m then
  return t
end
redis.call('PEXPIRE', KEYS[1], lifetime(m))
return told(1, lifetime(m), t)
