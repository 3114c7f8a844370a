-- survey reads what a list shows of a record, in one atomic step. It is a script because a
-- client of a Cluster may send a script to no replica, which may be late.
--
-- KEYS[1]  record
-- ARGV     fields
--
-- Returns the expiry in ms and the values of the fields.
return {redis.call('PTTL', KEYS[1]), unpack(redis.call('HMGET', KEYS[1], unpack(ARGV)))}
