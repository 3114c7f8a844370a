-- oldest reads the index. It is a script for the same reason as survey, and not a transaction,
-- because a server that is out of memory queues no command.
--
-- KEYS[1]  index
-- ARGV[1]  time in µs
-- ARGV[2]  number
--
-- Returns the first claims that were entered after that time, at most that number, each followed by
-- the time at which it was entered.
return redis.call('ZRANGE', KEYS[1], '(' .. ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
