-- tag enters a record in the index of a tag. It is one atomic step, which also works on a server that is out of
-- memory.
--
-- KEYS[1]  index of the tag: a sorted set of the keys of records by the times in ms until which they are kept at least
-- ARGV[1]  key of the record
-- ARGV[2]  for how long the record is kept from now on, in ms
-- ARGV[3]  1 if that may be less than what the index has
--
-- Returns 1.
--
-- Entries whose time is over leave, a hundred at once, and the index ends with its last entry. An entry stays longer
-- than its record by an eighth, which is for the run of a claim, and for a clock that is ahead. A reader takes an entry
-- out by its key and its time, so one that is entered anew has another time than before.
local index, key = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local ended = redis.call('ZRANGE', index, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
redis.call('ZREM', index, '', unpack(ended)) -- the write that needs no memory

local time = now + covers(ARGV[2])
local was = tonumber(redis.call('ZSCORE', index, key) or 0)
if was == time or was > time and ARGV[3] ~= '1' then
  time = was + 1
end
redis.call('ZADD', index, string.format('%.0f', time), key)
local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
redis.call('PEXPIRE', index, string.format('%.0f', math.max(last[2] - now, 1)))
return 1
