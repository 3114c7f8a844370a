-- scan reads a part of the index of a tag. It is a script for the same reason as survey.
--
-- KEYS[1]  index of the tag
-- ARGV[1]  cursor
-- ARGV[2]  about how many entries
--
-- Returns the next cursor and, for each entry, the key of the record and its time.
return redis.call('ZSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
