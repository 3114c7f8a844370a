-- claimOf returns the header and the tags of a claim that an owner holds. Otherwise it returns nil, and the
-- result of a script that only the owner may execute.
local function claimOf(key, name)
  local rec = redis.call('HMGET', key, 'm', 't')
  local m = rec[1]
  if not m then
    return nil, -4
  end
  if not readable(m) then
    return nil, unreadable(m)
  end
  if m:byte(2) ~= CLAIMED or not isOf(m, name) then
    return nil, -4
  end
  return m, rec[2]
end

