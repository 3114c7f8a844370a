-- get reads a record without its answer, in one atomic step. It changes nothing.
--
-- KEYS[1]  record
--
-- Returns a list of strings. If there is no record: -2. Otherwise: the expiry in ms, the
-- header, 1 if the field is there in which the header has the answer, the fields n, h, l, k
-- and d, and the names and values of the steps in turn. What is not there is an empty string.
local key = KEYS[1]
local ttl = redis.call('PTTL', key)
if ttl == -2 then
  return {ttl}
end
local rec = redis.call('HMGET', key, 'm', 'n', 'h', 'l', 'k', 'd')
local m = rec[1] or ''
local answer = 'r'
if readable(m) and m:byte(3) % 4 >= 2 then
  answer = 'r:' .. owner(m)
end
local reply = {ttl, m, '', rec[2] or '', rec[3] or '', rec[4] or '', rec[5] or '', rec[6] or ''}
for _, field in ipairs(redis.call('HKEYS', key)) do
  if field == answer then
    reply[3] = '1'
  elseif field:sub(1, 2) == 's:' then
    reply[#reply + 1] = field:sub(3)
    reply[#reply + 1] = redis.call('HGET', key, field)
  end
end
return reply
