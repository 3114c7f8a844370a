-- enter adds a claim to the index of records that are held, or claimed by a claim that says
-- hold. It is one atomic step, which also works on a server that is out of memory.
--
-- KEYS[1]   index: a sorted set of claims by the times in µs at which they were entered
-- ARGV[1]   claim: its owner, and the key of its record
-- ARGV[2]   NX if a claim that is in the index stays where it is; CH if it is entered anew
-- ARGV[3…]  claims that have been settled and leave the index
--
-- Returns 1.
--
-- A reader goes on from a time, and takes an entry out by its claim and its time. So no two
-- entries have the same time, and a claim that is entered anew has another one than before.
local index = KEYS[1]
redis.call('ZREM', index, '', unpack(ARGV, 3)) -- the write that needs no memory

local now = redis.call('TIME')
local time = now[1] * 1000000 + now[2]
local last = redis.call('ZRANGE', index, -1, -1, 'WITHSCORES')
if last[2] then
  time = math.max(time, last[2] + 1)
end
redis.call('ZADD', index, ARGV[2], string.format('%.0f', time), ARGV[1])
return 1
