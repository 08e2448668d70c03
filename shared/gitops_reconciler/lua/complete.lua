-- ARGV: header, item, token, run, what (JSON), record fields and values… -> 1 recorded, 0 refused
local item, token, run, what = ARGV[2], ARGV[3], ARGV[4], cjson.decode(ARGV[5])
local key = item_key(item)
local known = fields(key, 'token', 'run', 'claimed', 'requested', 'status_before', 'kind', 'pool', 'alerted', 'suspended', 'desired', 'stale', 'source', 'due_anew', 'schedule',
  'resource', 'resources')
local record = {}
for index = 6, #ARGV, 2 do record[ARGV[index]] = ARGV[index + 1] end

if known.token ~= token or known.run ~= run then
  -- A dead token fills in its own run record at most, and its writer may have done anything: look again.
  local mine = fields(run_key(run), 'token', 'ended_at', 'reclaimed_at', 'late_state')
  if mine.token == token then
    if mine.ended_at and not mine.reclaimed_at then return answer(1) end -- taken before, unheard
    if mine.late_state then return answer(0) end -- refused before, unheard
    redis.call('HSET', run_key(run), 'late_state', record.state or '', 'late_message', record.message or '', 'late_log', record.log or '')
  end
  ask(item, {trigger = 'retry', actor = 'late run'})
  return answer(0)
end

-- First: a script that began with what frees memory may go on when memory is full, and the record is not lost.
drop_lease(item)

-- What the run noted of its revision before it was cut off.
if (record.revision or '') == '' and record.state ~= 'skipped' then
  record.revision = redis.call('HGET', run_key(run), 'revision') or ''
end
local written = {'ended_at', int(NOW)}
for name, value in pairs(record) do
  written[#written + 1] = name
  written[#written + 1] = value
end
redis.call('HSET', run_key(run), unpack(written))
if record.state == 'lost' then -- seen by the worker that had started it: it counts like one that nobody saw
  local times = redis.call('HINCRBY', key, 'lost_ends', 1)
  if times >= LOST_LIMIT then
    what.status, what.next_ask, record.message = 'stalled', 'stalled', lost_message(times)
    record.document_hash = redis.call('HGET', key, 'document_hash') or ''
  end
else
  redis.call('HDEL', key, 'lost_ends')
end
local before = known.status_before or 'pending'
local status = what.status or before
redis.call('HSET', key, 'observed', known.claimed, 'last_run', run, 'last_run_state', record.state, 'last_run_at', int(NOW),
  'status', status)
if record.state == 'skipped' then -- nothing is known of the target that was not known before
  redis.call('HSET', key, 'waiting_for', record.message or '')
else
  redis.call('HDEL', key, 'waiting_for')
  if not known.stale then redis.call('HSET', key, 'reason', record.reason or '', 'message', record.message or '') end
end
if record.kept then redis.call('HSET', key, 'kept', record.kept) end
if status ~= before then redis.call('HSET', key, 'status_since', int(NOW)) end
if record.seen_revision and record.seen_revision ~= '' then redis.call('HSET', key, 'seen_revision', record.seen_revision) end
if record.revision and record.revision ~= '' then redis.call('HSET', key, 'revision', record.revision, 'subject', record.subject or '', 'author', record.author or '') end
if what.applied then
  redis.call('HSET', key, 'applied_revision', record.revision or '', 'applied_at', int(NOW), 'applied_result', record.state,
    'applied_message', record.message or '', 'applied_hash', record.document_hash or '', 'outputs_digest', what.outputs_digest or '')
  -- what a destroy will need, should the document change or leave meanwhile
  local stored = fields(key, 'document', 'document_hash')
  if stored.document and stored.document_hash == record.document_hash then
    local tree, at = P .. 'tree:' .. (known.source or ''), fields(key, 'url', 'ref')
    local config = cjson.decode(stored.document).provider_config
    redis.call('HSET', key, 'applied_document', stored.document, 'applied_url', at.url or '', 'applied_ref', at.ref or '',
      'applied_manifest', redis.call('HGET', tree, 'manifest/' .. known.kind) or '',
      'applied_provider_config', redis.call('HGET', tree, 'providerconfig/' .. known.kind .. '/' .. tostring(config)) or '')
  end
end
if known.resources and (what.applied or status == 'destroyed') then
  keep_resources(item, function(resource) return what.applied and resource == known.resource end)
end
if what.next_ask == 'stalled' then
  redis.call('HSET', key, 'stalled_at', (record.revision or '') .. ' ' .. (record.document_hash or ''))
elseif what.status then
  redis.call('HDEL', key, 'stalled_at')
end

local due
if what.next_ask == 'backoff' then
  due = NOW + backoff_ms(redis.call('HINCRBY', key, 'early_ends', 1))
  -- The first loss is no sign that the target is to blame: looked at again at once, as where nobody saw it.
  if record.state == 'lost' and redis.call('HGET', key, 'lost_ends') == '1' then due = NOW end
else
  redis.call('HDEL', key, 'early_ends')
  if what.due_in_ms and what.due_in_ms ~= cjson.null then due = NOW + what.due_in_ms end
  if record.state == 'lost' then due = next_look(known.schedule) end
  if known.due_anew and what.next_ask ~= 'never' then due = tonumber(known.due_anew) end -- nil when it is off now
end
redis.call('HDEL', key, 'due_anew')
if record.state == 'skipped' or record.state == 'lost' then -- who asked is still waiting for an answer
  restore_causes(item, run)
end
known.status = status
if known.desired == 'absent' and what.next_ask ~= 'backoff' then due = nil end
if due and not hindrance(known) then redis.call('ZADD', P .. 'due', int(due), item) else redis.call('ZREM', P .. 'due', item) end

-- Transitions, on a state that only ends of runs change: one event when it breaks, one when it is well again.
local about = {run = run, kind = known.kind, revision = record.revision or '', reason = record.reason or '', message = record.message or '',
  state = record.state, status = status, token = token}
local bad = status == 'failed' or status == 'unreachable' or status == 'stalled'
if bad and what.status and (not known.alerted or (status == 'stalled' and known.alerted ~= 'stalled')) then
  redis.call('HSET', key, 'alerted', status)
  event(status, item, about)
elseif (status == 'ready' or status == 'destroyed') and known.alerted then
  redis.call('HDEL', key, 'alerted')
  event('recovered', item, about)
end
if record.state == 'changed' then event('changed', item, about) end
if status == 'destroyed' then event('destroyed', item, about) end
event('ended', item, about)

if tonumber(known.requested) > tonumber(known.claimed) and not hindrance(known) then wake(item, known.pool) end
return answer(1)
