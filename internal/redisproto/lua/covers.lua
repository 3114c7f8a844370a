-- covers is for how many ms the index of a tag has a record at least that is kept for a time, in ms.
local function covers(kept)
  return kept + math.floor(kept / 8)
end

