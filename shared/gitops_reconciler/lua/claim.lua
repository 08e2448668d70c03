-- ARGV: header, item, run, ttl ms, holder, kept runs, kept seconds -> refusal text or the claim's fields
local item, run, ttl = ARGV[2], ARGV[3], tonumber(ARGV[4])
local known = fields(item_key(item), 'kind', 'pool', 'requested', 'observed', 'suspended', 'token', 'fence', 'desired',
  'repository', 'schedule', 'deadline_seconds', 'early_ends', 'status', 'queued_at', 'stale', 'stalled_at')
if not known.kind then return answer('unknown') end
if redis.call('EXISTS', lease_key(item)) == 1 then return answer('busy') end
if known.token then
  if in_gap() then return answer('gap') end
  if mark_lost(item) == 'stalled' then
    redis.call('ZREM', P .. 'queued', item)
    return answer('nothing to do')
  end
  remember_cause(item, {trigger = 'retry', actor = 'lost'})
  known.status = redis.call('HGET', item_key(item), 'status')
end
if redis.call('EXISTS', P .. 'paused') == 1 then return answer('paused') end
redis.call('ZREM', P .. 'queued', item)
redis.call('HDEL', item_key(item), 'queued_at')
if known.suspended then return answer('suspended') end
if known.stale and known.desired ~= 'absent' then return answer('stale') end
if tonumber(known.requested or '0') <= tonumber(known.observed or '0') then return answer('nothing to do') end
local token = int(math.max(tonumber(known.fence or '0') + 1, US))
local causes = redis.call('LRANGE', causes_key(item), 0, -1)
redis.call('DEL', causes_key(item))
redis.call('SET', lease_key(item), token .. ':' .. run, 'PX', ttl)
redis.call('ZADD', P .. 'leases', NOW + ttl, item)
redis.call('ZREM', P .. 'due', item)
redis.call('HSET', item_key(item), 'token', token, 'fence', token, 'run', run, 'holder', ARGV[5], 'claimed', known.requested,
  'status_before', known.status or 'pending', 'status', 'running')
redis.call('HSET', run_key(run), 'run', run, 'item', item, 'kind', known.kind, 'pool', known.pool, 'state', 'running',
  'token', token, 'generation', known.requested, 'causes', '[' .. table.concat(causes, ',') .. ']', 'holder', ARGV[5],
  'started_at', int(NOW), 'waited_ms', int(NOW - tonumber(known.queued_at or NOW)))
redis.call('EXPIRE', run_key(run), tonumber(ARGV[7]))
redis.call('ZADD', runs_key(item), int(US), run)
local gone = redis.call('ZRANGE', runs_key(item), 0, -tonumber(ARGV[6]) - 1)
for _, old in ipairs(gone) do
  redis.call('DEL', run_key(old))
  redis.call('ZREM', runs_key(item), old)
end
local asked = '0'
if known.repository and known.repository ~= '' then asked = redis.call('HGET', P .. 'asks', known.repository) or '0' end
return answer({token = token, generation = known.requested, kind = known.kind, pool = known.pool,
  desired = known.desired or 'present', causes = '[' .. table.concat(causes, ',') .. ']', asked = asked,
  epoch = redis.call('GET', P .. 'epoch') or '', early_ends = known.early_ends or '0', schedule = known.schedule or '{}',
  deadline_seconds = known.deadline_seconds or '3600', stalled_at = known.stalled_at or ''})
