-- drop takes claims out of the index that were settled when a reader looked, in one atomic
-- step. A claim that was entered anew since then stays.
--
-- KEYS[1]  index
-- ARGV     claims, each followed by the time at which it was entered
--
-- Returns 1.
for i = 1, #ARGV, 2 do
  local time = redis.call('ZSCORE', KEYS[1], ARGV[i])
  if time and tonumber(time) == tonumber(ARGV[i + 1]) then
    redis.call('ZREM', KEYS[1], ARGV[i])
  end
end
return 1
