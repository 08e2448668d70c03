-- ARGV: header, item, token, run, what (JSON), record fields and values… -> 1 recorded, 0 refused
local item, token, run, what = ARGV[2], ARGV[3], ARGV[4], cjson.decode(ARGV[5])
local key = item_key(item)
local known = fields(key, 'token', 'run', 'claimed', 'requested', 'status_before', 'kind', 'pool', 'alerted', 'suspended', 'desired', 'stale', 'source')
local record = {}
for index = 6, #ARGV, 2 do record[ARGV[index]] = ARGV[index + 1] end

if known.token ~= token or known.run ~= run then
  -- A dead token fills in its own run record at most, and its writer may have done anything: look again.
  local mine = fields(run_key(run), 'token', 'state', 'ended_at')
  if mine.token == token and mine.ended_at and mine.state ~= 'lost' then return answer(1) end -- taken before, unheard
  if mine.token == token then
    redis.call('HSET', run_key(run), 'late_state', record.state or '', 'late_message', record.message or '', 'late_log', record.log or '')
    ask(item, {trigger = 'retry', actor = 'late run'})
  end
  return answer(0)
end

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
local before = known.status_before or 'pending'
local status = what.status or before
drop_lease(item)
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
if what.next_ask == 'stalled' then
  redis.call('HSET', key, 'stalled_at', (record.revision or '') .. ' ' .. (record.document_hash or ''))
elseif what.status then
  redis.call('HDEL', key, 'stalled_at')
end

redis.call('HDEL', key, 'lost_ends')
local due
if what.next_ask == 'backoff' then
  due = NOW + backoff_ms(redis.call('HINCRBY', key, 'early_ends', 1))
else
  redis.call('HDEL', key, 'early_ends')
  if what.due_in_ms and what.due_in_ms ~= cjson.null then due = NOW + what.due_in_ms end
end
if record.state == 'skipped' then -- who asked is still waiting for an answer
  local causes = cjson.decode(redis.call('HGET', run_key(run), 'causes') or '[]')
  for _, cause in ipairs(causes) do remember_cause(item, cause) end
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
