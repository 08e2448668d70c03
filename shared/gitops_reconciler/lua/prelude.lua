-- Shared by all scripts of the work protocol. KEYS[1] is the prefix (one hash slot), ARGV[1] is the header.
-- Time is Redis' own. Numbers above 2^53 never occur; they are written with %.0f, since Lua would round them.
local P = KEYS[1] .. ':'
local HEAD = cjson.decode(ARGV[1])
local clock = redis.call('TIME')
local US = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local NOW = math.floor(US / 1000)
local WAKES = {}
local CAUSES_KEPT = 20
local BACKOFF_BASE_MS, BACKOFF_CAP_MS, LOST_LIMIT = 10000, 900000, 3

local function int(number) return string.format('%.0f', number) end
local function item_key(item) return P .. 'item:' .. item end
local function lease_key(item) return P .. 'lease:' .. item end
local function causes_key(item) return P .. 'causes:' .. item end
local function run_key(run) return P .. 'run:' .. run end
local function runs_key(item) return P .. 'runs:' .. item end

local function fields(key, ...)
  local names = {...}
  local values, found = redis.call('HMGET', key, ...), {}
  for index, name in ipairs(names) do found[name] = values[index] or nil end
  return found
end

-- A message for the item's pool: a hint, and no more. With the broker in this Redis it is pushed here, in Celery's
-- own format (protocol 2); otherwise the caller sends what WAKES lists.
local function push(queue, task, args, repr)
  local id = task .. '-' .. int(redis.call('INCR', P .. 'seq'))
  local body = '[' .. args .. ',{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
  redis.call('LPUSH', queue,
    '{"body":' .. cjson.encode(body) .. ',"content-encoding":"utf-8","content-type":"application/json","headers":{"lang":"py","task":"'
    .. task .. '","id":"' .. id .. '","root_id":"' .. id .. '","parent_id":null,"group":null,"retries":0,"timelimit":[null,null],"argsrepr":'
    .. cjson.encode(repr) .. ',"kwargsrepr":"{}","origin":"gitops","ignore_result":true},"properties":{"correlation_id":"' .. id
    .. '","reply_to":"","delivery_mode":2,"delivery_info":{"exchange":"","routing_key":"' .. queue
    .. '"},"priority":0,"delivery_tag":"' .. id .. '"}}')
  return string.match(id, '%d+$')
end

-- The number of the message that its queue hands out next; nil where the queue is empty or somebody else's message is.
local function oldest_message(queue)
  return tonumber(string.match(redis.call('LINDEX', queue, -1) or '', '"id":"[^"]-%-(%d+)"') or '')
end

-- `queued` says for which items a message is under way, `queued_in` how many these are in each pool.
local function unqueue(item)
  if redis.call('ZREM', P .. 'queued', item) == 0 then return end
  local pool = redis.call('HGET', item_key(item), 'queued_pool')
  if pool and redis.call('HINCRBY', P .. 'queued_in', pool, -1) <= 0 then redis.call('HDEL', P .. 'queued_in', pool) end
  redis.call('HDEL', item_key(item), 'queued_pool', 'queued_at', 'queued_message', 'rewakes')
end

local function wake(item, pool)
  if redis.call('HGET', item_key(item), 'queued_pool') ~= pool then unqueue(item) end
  local is_new = redis.call('ZADD', P .. 'queued', NOW, item) == 1
  local message = ''
  if HEAD.push then
    message = push(HEAD.queue .. pool, HEAD.task, '[' .. cjson.encode(item) .. ']', "('" .. item .. "',)")
  else
    WAKES[#WAKES + 1] = {item, pool}
  end
  if is_new then
    redis.call('HSET', item_key(item), 'queued_pool', pool, 'queued_at', int(NOW), 'queued_message', message)
    redis.call('HINCRBY', P .. 'queued_in', pool, 1)
  else
    redis.call('HSET', item_key(item), 'queued_message', message)
  end
end

-- One message in the queue is enough: whoever takes it reads all events there are by then.
local NOTIFIER_WOKEN = false
local function wake_notifier()
  if NOTIFIER_WOKEN then return end
  NOTIFIER_WOKEN = true
  if not HEAD.push then WAKES[#WAKES + 1] = {'', ''}
  elseif redis.call('LLEN', HEAD.notify_queue) == 0 then push(HEAD.notify_queue, HEAD.notify_task, '[]', '()') end
end

-- Events are written by the scripts that cause them, so that none is lost with a message or a worker. Those that
-- people must hear of have a stream of their own: ordinary ends of runs never push them out. What has no item is of the
-- whole fleet (paused, resumed, pool_dead, pool_alive), and always of that sort.
local ALERTING = {failed = true, unreachable = true, stalled = true, stale = true, recovered = true}
local function event(kind, item, more)
  local entry = {'event', kind, 'item', item, 'at', int(NOW)}
  for name, value in pairs(more) do
    entry[#entry + 1] = name
    entry[#entry + 1] = tostring(value)
  end
  redis.call('XADD', P .. 'events', 'MAXLEN', '~', 10000, '*', unpack(entry))
  if ALERTING[kind] or item == '' then
    redis.call('XADD', P .. 'alerts', 'MAXLEN', '~', 10000, '*', unpack(entry))
    wake_notifier()
  end
end

local function remember_cause(item, cause)
  for _, kept in ipairs(redis.call('LRANGE', causes_key(item), 0, -1)) do
    local known = cjson.decode(kept)
    if known.trigger == cause.trigger and known.actor == cause.actor then return end
  end
  redis.call('RPUSH', causes_key(item), cjson.encode(cause))
  redis.call('LTRIM', causes_key(item), -CAUSES_KEPT, -1)
end

-- Whether a run may start at all; else the reason, which is the answer to an ask.
local function hindrance(known)
  if known.suspended then return 'suspended' end
  if known.desired == 'absent' then return known.status == 'destroyed' and 'destroyed' or nil end
  if known.stale then return 'stale' end
  return nil
end

-- One ask: a generation up, the cause kept, at most one message. Answers {answer, generation}.
local function ask(item, cause)
  local known = fields(item_key(item), 'kind', 'pool', 'repository', 'suspended', 'token', 'stale', 'desired', 'status')
  if not known.kind then return {'unknown', '0'} end
  local generation = redis.call('HINCRBY', item_key(item), 'requested', 1)
  if known.repository and known.repository ~= '' then redis.call('HINCRBY', P .. 'asks', known.repository, 1) end
  remember_cause(item, cause)
  if cause.trigger == 'manual' or cause.trigger == 'webhook' or cause.trigger == 'source' then
    redis.call('HDEL', item_key(item), 'early_ends', 'lost_ends')
  end
  local why_not = hindrance(known)
  if why_not == 'destroyed' and cause.trigger == 'manual' then why_not = nil end
  if why_not then return {why_not, int(generation)} end
  if known.token then return {'deferred', int(generation)} end
  if redis.call('ZSCORE', P .. 'queued', item) then return {'coalesced', int(generation)} end
  wake(item, known.pool)
  return {'queued', int(generation)}
end

-- When an item that losses stalled is looked at next; what a cron expression says is not known here.
local function next_look(schedule)
  local known = cjson.decode(schedule or '{}')
  return (known.interval or known.cron) and NOW + (known.interval or 3600) * 1000 or nil
end

local function backoff_ms(times) return math.min(BACKOFF_CAP_MS, BACKOFF_BASE_MS * 2 ^ math.min(times - 1, 10)) end

-- What an item owns that others could own as well (keys.OWNERS). What it does not keep is free for others.
local function keep_resources(item, is_kept)
  local kept = {}
  for _, resource in ipairs(cjson.decode(redis.call('HGET', item_key(item), 'resources') or '[]')) do
    if is_kept(resource) then
      kept[#kept + 1] = resource
    elseif redis.call('HGET', P .. 'owners', resource) == item then
      redis.call('HDEL', P .. 'owners', resource)
    end
  end
  if #kept > 0 then redis.call('HSET', item_key(item), 'resources', cjson.encode(kept))
  else redis.call('HDEL', item_key(item), 'resources') end
end

local function drop_lease(item)
  redis.call('DEL', lease_key(item))
  redis.call('ZREM', P .. 'leases', item)
  redis.call('HDEL', item_key(item), 'token', 'run', 'holder', 'claimed', 'revoked', 'status_before')
end

-- Who asked for a run of which nothing came: the next one is theirs.
local function restore_causes(item, run)
  for _, cause in ipairs(cjson.decode(redis.call('HGET', run_key(run), 'causes') or '[]')) do remember_cause(item, cause) end
end

local function lost_message(times)
  return 'lost ' .. int(times) .. ' times in a row: not tried again until there is a new revision or a person asks'
end

-- The holder is gone and the outcome unknown: its run is `lost`. The ask that it served is still open, and stays so should
-- losses in a row stall the item. Answers how to go on: now, later, stalled.
local function mark_lost(item)
  local held = fields(item_key(item), 'run', 'status_before', 'kind', 'pool', 'alerted', 'document_hash', 'schedule', 'desired',
    'suspended', 'stale')
  if redis.call('EXISTS', run_key(held.run)) == 1 then
    redis.call('HSET', run_key(held.run), 'state', 'lost', 'reason', 'Lost', 'ended_at', int(NOW), 'reclaimed_at', int(NOW),
      'message', 'the run did not come back within its lease: outcome unknown')
  end
  redis.call('HSET', item_key(item), 'status', held.status_before or 'pending', 'last_run', held.run, 'last_run_state', 'lost',
    'last_run_at', int(NOW))
  restore_causes(item, held.run)
  drop_lease(item)
  redis.call('HDEL', item_key(item), 'due_anew')
  local times = redis.call('HINCRBY', item_key(item), 'lost_ends', 1)
  event('lost', item, {run = held.run, kind = held.kind, reason = 'Lost'})
  if times >= LOST_LIMIT then
    -- Looked at by its interval, and tried again only once the revision or the document is another one.
    local seen = redis.call('HGET', run_key(held.run), 'revision') or ''
    redis.call('HSET', item_key(item), 'status', 'stalled', 'reason', 'Lost', 'status_since', int(NOW), 'alerted', 'stalled',
      'stalled_at', seen .. ' ' .. (held.document_hash or ''),
      'message', lost_message(times))
    held.status = 'stalled'
    local look = held.desired ~= 'absent' and not hindrance(held) and next_look(held.schedule)
    if look then redis.call('ZADD', P .. 'due', int(look), item) end
    if held.alerted ~= 'stalled' then
      event('stalled', item, {run = held.run, kind = held.kind, reason = 'Lost', message = 'lost ' .. int(times) .. ' times in a row'})
    end
    return 'stalled'
  end
  return times == 1 and 'now' or 'later'
end

local function again_after_loss(item, how)
  if how == 'stalled' then return end
  remember_cause(item, {trigger = 'retry', actor = 'lost'})
  local known = fields(item_key(item), 'pool', 'suspended', 'stale', 'desired', 'status', 'lost_ends')
  if hindrance(known) then return end
  if how == 'now' then wake(item, known.pool)
  else redis.call('ZADD', P .. 'due', NOW + backoff_ms(tonumber(known.lost_ends) - 1), item) end
end

-- Redis was away, or time jumped: holders come first, nobody takes an expired lease until they had one ttl for it. Sweeps
-- write down when that is; a claim that comes before the first of them must not be quicker than the holders either.
local function in_gap()
  if NOW < tonumber(redis.call('GET', P .. 'gap_until') or '0') then return true end
  local swept = redis.call('HMGET', P .. 'swept', 'at', 'server')
  local last, before = tonumber(swept[1] or '0'), swept[2] or ''
  if last == 0 then return false end
  if last > NOW + 1000 or NOW - last > HEAD.longest_pause then return true end
  local info = redis.pcall('INFO', 'server') -- only where it is allowed
  local server = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
  return before ~= '' and server ~= '' and before ~= server
end

local function answer(result) return cjson.encode({result = result, wakes = WAKES}) end
