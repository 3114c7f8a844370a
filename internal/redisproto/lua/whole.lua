-- whole reads a record with its answer, in one atomic step. It stands in for a transaction on a
-- server that is out of memory, which queues no command. Large answers are slow this way.
--
-- KEYS[1]  record
--
-- Returns the expiry in ms, and the names and values of the fields in turn, of which there are none
-- if there is no record.
return {redis.call('PTTL', KEYS[1]), unpack(redis.call('HGETALL', KEYS[1]))}
