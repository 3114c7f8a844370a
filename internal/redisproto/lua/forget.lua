-- forget removes a record that nobody runs under, in one atomic step.
--
-- KEYS[1]  record
-- ARGV[1]  attempt, or 0 for any
--
-- Returns 1 when there is no record any more, also if there was none or it could not be
-- read; 0 when the record has another attempt or its lease has not ended; -3 when a newer
-- version wrote it.
local key = KEYS[1]
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  return 1
end
local m = redis.call('HGET', key, 'm') or ''
if not readable(m) then
  if unreadable(m) == -3 then
    return -3
  end
  redis.call('DEL', key)
  return 1
end
local attempt = tonumber(ARGV[1])
if (attempt ~= 0 and uint(m, 4, 7) ~= attempt) or (m:byte(2) == CLAIMED and live(m, ttl)) then
  return 0
end
redis.call('DEL', key)
return 1
