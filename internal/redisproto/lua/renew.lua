-- renew starts the lease and the lifetime of a claim anew, in one atomic step.
--
-- KEYS[1]  record
-- ARGV[1]  owner
--
-- Returns 1 when it has; 0 when the owner does not hold the claim; -2, -3 when m is unreadable.
local m = redis.call('HGET', KEYS[1], 'm')
if not m then
  return 0
end
if not readable(m) then
  return unreadable(m)
end
if m:byte(2) ~= CLAIMED or owner(m) ~= ARGV[1] then
  return 0
end
redis.call('PEXPIRE', KEYS[1], lifetime(m))
return 1
