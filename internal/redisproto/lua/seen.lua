-- wasSeen reports whether the record is the attempt that a caller has seen, and not one of
-- another record that the key had before.
local function wasSeen(m, name, attempt)
  return owner(m) == name and uint(m, 4, 7) == tonumber(attempt)
end

-- shown returns the state that callers see. A lapsed claim that says hold is held, although
-- only the next claim that finds it writes that down.
local function shown(m, ttl)
  if m:byte(2) == CLAIMED and m:byte(3) % 2 == 1 and not live(m, ttl) then
    return HELD
  end
  return m:byte(2)
end

