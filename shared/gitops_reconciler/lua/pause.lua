-- ARGV: header, actor, reason, advice, epoch that the caller's host worked with ('' = a person pauses)
-- -> same (it is this store's), adopt (a person has resumed the fleet for hosts that come from there), known (paused
-- already), paused
local actor, reason, advice, epoch = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local by = epoch == '' and 'person' or 'host'
if by == 'host' then
  if redis.call('GET', P .. 'epoch') == epoch then return answer('same') end
  if redis.call('SISMEMBER', P .. 'adopted', epoch) == 1 then return answer('adopt') end
  redis.call('SADD', P .. 'estranged', epoch)
end
local before = redis.call('GET', P .. 'paused')
if before then -- said once; but a person's pause must not hide that the store is another one
  local is_read, known = pcall(cjson.decode, before)
  if by == 'person' or not is_read or known.by ~= 'person' then return answer('known') end
end
redis.call('SET', P .. 'paused', cjson.encode({reason = reason, advice = advice, actor = actor, by = by, at = int(NOW)}))
redis.call('DEL', P .. 'unserved')
local message = by == 'host' and reason or ('by ' .. actor .. (reason ~= '' and (': ' .. reason) or ''))
if advice ~= '' then message = message .. '; ' .. advice end
event('paused', '', {actor = actor, reason = 'FleetPaused', message = message})
return answer('paused')
