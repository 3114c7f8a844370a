-- forget removes a record that nobody runs under, in one atomic step.
--
-- KEYS[1]  record
-- ARGV[1]  owner that the caller has seen
-- ARGV[2]  attempt that the caller has seen
-- ARGV[3]  state that the caller has seen
-- ARGV[4]  header that the caller could not read, instead of the others
--
-- Returns 1 when there is no record any more, also if there was none; -4 when the record is
-- another one than the caller has seen, or its lease has not ended; -2, -3 when it cannot be
-- read, and the caller has seen something else.
local key, unread = KEYS[1], ARGV[4]
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  return 1
end
local m = redis.call('HGET', key, 'm') or ''
if unread then
  if m ~= unread then
    return -4
  end
elseif not readable(m) then
  return unreadable(m)
elseif ttl < 0 then
  return -2
elseif not wasSeen(m, ARGV[1], ARGV[2]) or shown(m, ttl) ~= tonumber(ARGV[3]) or
  (m:byte(2) == CLAIMED and live(m, ttl)) then
  return -4
end
redis.call('DEL', key)
return 1
