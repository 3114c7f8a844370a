-- told returns the result of a script that has kept the record for a time from now on, in ms: a number, or a list of
-- it, that time, and the tags t if the record has some. Their entries are to be kept for so long, too.
local function told(result, kept, t)
  if t then
    return {result, kept, t}
  end
  return result
end

