-- ARGV: header, item, run, ttl ms, holder, kept runs, kept seconds, pools served (JSON, '' = all) -> refusal text or the
-- claim's fields
local item, run, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local known = fields(item_key(item), 'kind', 'pool', 'requested', 'observed', 'suspended', 'token', 'fence', 'desired',
  'repository', 'schedule', 'deadline_seconds', 'early_ends', 'status', 'queued_at', 'stale', 'stalled_at', 'run', 'claimed', 'revoked', 'queued_pool')
if not known.kind then return answer('unknown') end

local function claimed(token, generation, causes)
  local asked = '0'
  if known.repository and known.repository ~= '' then asked = redis.call('HGET', P .. 'asks', known.repository) or '0' end
  return answer({token = token, generation = generation, kind = known.kind, pool = known.pool,
    desired = known.desired or 'present', causes = causes, asked = asked, epoch = redis.call('GET', P .. 'epoch') or '',
    early_ends = known.early_ends or '0', schedule = known.schedule or '{}',
    deadline_seconds = known.deadline_seconds or '3600', stalled_at = known.stalled_at or ''})
end

-- Its own claim, whose answer was lost on the way: the lease counts from now, as whoever asks again believes.
if known.token and known.run == run and known.revoked ~= known.token then
  redis.call('SET', lease_key(item), known.token .. ':' .. run, 'PX', ttl)
  return claimed(known.token, known.claimed, redis.call('HGET', run_key(run), 'causes') or '[]')
end
if redis.call('EXISTS', lease_key(item)) == 1 then return answer('busy') end
-- Sources are synced meanwhile: their targets are to be seen, and suspended, before anything of them runs.
if known.kind ~= 'source' and redis.call('EXISTS', P .. 'paused') == 1 then return answer('paused') end
if ARGV[8] ~= '' then -- credentials follow pools: a message that lies in another pool's queue starts nothing here
  local is_served = false
  for _, pool in ipairs(cjson.decode(ARGV[8])) do is_served = is_served or pool == known.pool end
  if not is_served then
    if known.queued_pool and known.queued_pool ~= known.pool then wake(item, known.pool) end
    return answer('elsewhere')
  end
end
local is_asked
if known.token then
  if in_gap() then return answer('gap') end
  local how = mark_lost(item)
  known.status = redis.call('HGET', item_key(item), 'status')
  if how == 'now' and not hindrance(known) then
    remember_cause(item, {trigger = 'retry', actor = 'lost'})
    is_asked = true
  else
    again_after_loss(item, how)
  end
end
is_asked = is_asked or redis.call('ZSCORE', P .. 'queued', item)
unqueue(item)
local why_not = hindrance(known)
if why_not == 'destroyed' and is_asked then why_not = nil end
if why_not then return answer(why_not) end
-- A message alone starts nothing: what waits for its backoff, or is stalled, has an open ask as well.
if not is_asked or tonumber(known.requested or '0') <= tonumber(known.observed or '0') then return answer('nothing to do') end
local token = int(math.max(tonumber(known.fence or '0') + 1, US))
local causes = redis.call('LRANGE', causes_key(item), 0, -1)
redis.call('DEL', causes_key(item))
redis.call('SET', lease_key(item), token .. ':' .. run, 'PX', ttl)
if known.run == run then redis.call('DEL', run_key(run)) end -- lost before: what was written of it then is not of this one
redis.call('ZADD', P .. 'leases', NOW + ttl, item)
redis.call('ZREM', P .. 'due', item)
redis.call('HSET', item_key(item), 'token', token, 'fence', token, 'run', run, 'holder', ARGV[5], 'claimed', known.requested,
  'status_before', known.status or 'pending', 'status', 'running')
redis.call('HSET', run_key(run), 'run', run, 'item', item, 'kind', known.kind, 'pool', known.pool, 'state', 'running',
  'token', token, 'generation', known.requested, 'causes', '[' .. table.concat(causes, ',') .. ']', 'holder', ARGV[5],
  'started_at', int(NOW), 'waited_ms', int(NOW - tonumber(known.queued_at or NOW)))
redis.call('EXPIRE', run_key(run), tonumber(ARGV[7]))
redis.call('ZADD', runs_key(item), token, run) -- not by the time, which may jump back
local gone = redis.call('ZRANGE', runs_key(item), 0, -tonumber(ARGV[6]) - 1)
for _, old in ipairs(gone) do
  redis.call('DEL', run_key(old))
  redis.call('ZREM', runs_key(item), old)
end
return claimed(token, known.requested, '[' .. table.concat(causes, ',') .. ']')
