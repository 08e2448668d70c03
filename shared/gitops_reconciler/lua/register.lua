-- ARGV: header, item, first due ms ('' = none), refs (JSON), guard (JSON or ''), what goes with it (JSON), fields and
-- values… -> 1 new, 2 known, 0 guard refused. What goes with it is done in the same go, so that no crash comes between:
-- {cause = …} asks, {suspend = true|false, actor = …, reason = …} suspends or resumes. A stale item is fresh again.
local item, refs = ARGV[2], cjson.decode(ARGV[4])
if ARGV[5] ~= '' then -- written by a run: only while that run's lease is its own
  local guard = cjson.decode(ARGV[5])
  local held = fields(item_key(guard.item), 'token', 'run')
  if held.token ~= guard.token or held.run ~= guard.run then return answer(0) end
end
local key, with = item_key(item), cjson.decode(ARGV[6])
local before = fields(key, 'kind', 'schedule', 'refs', 'suspended', 'desired', 'token', 'stale', 'status', 'pool')
for _, ref in ipairs(cjson.decode(before.refs or '[]')) do redis.call('SREM', P .. 'watch:' .. ref, item) end
for _, ref in ipairs(refs) do redis.call('SADD', P .. 'watch:' .. ref, item) end
local pairs_ = {}
for index = 7, #ARGV do pairs_[#pairs_ + 1] = ARGV[index] end
redis.call('HSET', key, 'refs', #refs > 0 and ARGV[4] or '[]', unpack(pairs_))
redis.call('ZADD', P .. 'items', 0, item)
redis.call('SADD', P .. 'pools', redis.call('HGET', key, 'pool'))
local schedule = redis.call('HGET', key, 'schedule')
if not before.kind then
  redis.call('HSET', key, 'status', 'pending', 'status_since', int(NOW), 'requested', 0, 'observed', 0)
  if ARGV[3] ~= '' then redis.call('ZADD', P .. 'due', NOW + tonumber(ARGV[3]), item) end
elseif before.stale or before.schedule ~= schedule then
  if before.token then -- the end of its run would write when it is due by the schedule that it began with
    redis.call('HSET', key, 'due_anew', ARGV[3] == '' and 'off' or int(NOW + tonumber(ARGV[3])))
  elseif ARGV[3] == '' then redis.call('ZREM', P .. 'due', item)
  elseif before.desired ~= 'absent' then redis.call('ZADD', P .. 'due', NOW + tonumber(ARGV[3]), item) end
end
if before.stale then
  redis.call('HDEL', key, 'stale')
  event('restored', item, {kind = redis.call('HGET', key, 'kind')})
end

if with.suspend == true and not before.suspended then
  redis.call('HSET', key, 'suspended', int(NOW), 'suspended_by', with.actor, 'suspended_why', with.reason)
  event('suspended', item, {actor = with.actor, reason = with.reason})
elseif with.suspend == false and before.suspended then
  redis.call('HDEL', key, 'suspended', 'suspended_by', 'suspended_why')
  event('resumed', item, {actor = with.actor, reason = with.reason})
end
local is_let_go = before.stale or (with.suspend == false and before.suspended)
if with.cause then ask(item, with.cause)
elseif is_let_go then ask(item, {trigger = 'source', actor = with.actor or ''}) -- what was asked meanwhile is still open
elseif before.pool and before.pool ~= redis.call('HGET', key, 'pool') and redis.call('ZSCORE', P .. 'queued', item) then
  wake(item, redis.call('HGET', key, 'pool')) -- nobody may be left who serves the other queue
end
local known = fields(key, 'suspended', 'desired', 'status', 'stale')
if hindrance(known) then
  redis.call('ZREM', P .. 'due', item)
  unqueue(item)
end
return answer(before.kind and 2 or 1)
