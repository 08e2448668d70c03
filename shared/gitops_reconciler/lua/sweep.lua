-- ARGV: header, limit, rewake after ms, ttl ms, server run id, longest pause of sweeps ms -> {asked, reclaimed, rewoken, more}
local limit, rewake_after, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local swept = redis.call('HMGET', P .. 'swept', 'at', 'server')
local last = tonumber(swept[1] or '0')
local restarted = (swept[2] or '') ~= '' and ARGV[5] ~= '' and swept[2] ~= ARGV[5]
local jumped_back = last > NOW + 1000
redis.call('HSET', P .. 'swept', 'at', int(NOW)) -- first: with memory full nothing is done, rather than a part
if ARGV[5] ~= '' then redis.call('HSET', P .. 'swept', 'server', ARGV[5]) end
if last > 0 and (restarted or jumped_back or NOW - last > tonumber(ARGV[6])) then
  redis.call('SET', P .. 'gap_until', NOW + ttl, 'PX', ttl)
  -- Whatever was under way may have been forgotten, and due times may be far off: every item is asked once.
  redis.call('SET', P .. 'asking_all', '')
end
if jumped_back then -- what was to happen by the old time would wait until that has come again
  for _, item in ipairs(redis.call('ZRANGE', P .. 'leases', 0, -1)) do
    if redis.call('PTTL', lease_key(item)) > ttl then redis.call('PEXPIRE', lease_key(item), ttl) end
    redis.call('ZADD', P .. 'leases', 'XX', int(NOW + ttl), item)
  end
  for _, item in ipairs(redis.call('ZRANGEBYSCORE', P .. 'queued', '(' .. int(NOW), '+inf')) do
    redis.call('ZADD', P .. 'queued', int(NOW), item)
    redis.call('HSET', item_key(item), 'queued_at', int(NOW))
  end
end

-- A part at a time, so that Redis is never held up; where the next one begins is kept here, so that neither several
-- beats nor the end of one leave out an item or ask for it twice.
local ASKED_AT_ONCE = 1000
local done_to = redis.call('GET', P .. 'asking_all')
if done_to then
  local start = done_to == '' and '-' or ('(' .. done_to)
  local items = redis.call('ZRANGEBYLEX', P .. 'items', start, '+', 'LIMIT', 0, ASKED_AT_ONCE)
  for _, item in ipairs(items) do
    local known = fields(item_key(item), 'suspended', 'desired', 'status', 'stale')
    if not hindrance(known) then redis.call('ZADD', P .. 'due', 'LT', NOW, item) end
  end
  if #items < ASKED_AT_ONCE then
    redis.call('DEL', P .. 'asking_all')
    done_to = nil
  else
    redis.call('SET', P .. 'asking_all', items[#items])
  end
end
if redis.call('EXISTS', P .. 'paused') == 1 then -- of a paused fleet only the sources go on
  local asked = 0
  for _, item in ipairs(redis.call('ZRANGEBYLEX', P .. 'items', '[source:', '(source;')) do
    if tonumber(redis.call('ZSCORE', P .. 'due', item) or NOW + 1) <= NOW then
      redis.call('ZREM', P .. 'due', item)
      ask(item, {trigger = 'schedule', actor = ''})
      asked = asked + 1
    end
  end
  return answer({asked, 0, 0, 0})
end

local due = redis.call('ZRANGEBYSCORE', P .. 'due', '-inf', NOW, 'LIMIT', 0, limit)
for _, item in ipairs(due) do
  redis.call('ZREM', P .. 'due', item)
  local early = redis.call('HGET', item_key(item), 'early_ends') or redis.call('HGET', item_key(item), 'lost_ends')
  if redis.call('HGET', item_key(item), 'schedule') == '{}' and not early then -- due only because of a restart, see above
    ask(item, {trigger = 'retry', actor = 'store restarted'})
  else
    ask(item, {trigger = early and 'retry' or 'schedule', actor = ''})
  end
end

local reclaimed = 0
local expired = redis.call('ZRANGEBYSCORE', P .. 'leases', '-inf', NOW, 'LIMIT', 0, limit)
for _, item in ipairs(expired) do
  local left = redis.call('PTTL', lease_key(item))
  if left > 0 then
    redis.call('ZADD', P .. 'leases', NOW + left, item) -- renewed; renewals do not touch the index
  elseif not redis.call('HGET', item_key(item), 'token') then
    redis.call('ZREM', P .. 'leases', item)
  elseif not in_gap() then
    reclaimed = reclaimed + 1
    again_after_loss(item, mark_lost(item))
  end
end

-- An ask without a message. In this Redis the queue itself tells: it is empty, or what it hands out next was sent later,
-- or, should others send to it as well, it holds fewer messages than items wait. Of a broker elsewhere nothing is known,
-- so it gets a message after ever longer waits.
local function has_lost_its_message(item, known)
  local waited = NOW - tonumber(known.queued_at or NOW)
  if not HEAD.push then
    local times = tonumber(known.rewakes or '0')
    if waited < rewake_after * 2 ^ math.min(times + 1, 12) then return false end
    redis.call('HINCRBY', item_key(item), 'rewakes', 1)
    return true
  end
  local queue = HEAD.queue .. known.pool
  local messages, oldest, mine = redis.call('LLEN', queue), oldest_message(queue), tonumber(known.queued_message or '')
  if messages == 0 or not oldest or not mine then
    return messages == 0 or (waited > 10 * rewake_after and messages < tonumber(redis.call('HGET', P .. 'queued_in', known.pool) or '0'))
  end
  return oldest > mine
end

local rewoken = 0
local old = redis.call('ZRANGEBYSCORE', P .. 'queued', '-inf', NOW - rewake_after, 'LIMIT', 0, limit)
for _, item in ipairs(old) do
  local known = fields(item_key(item), 'pool', 'token', 'suspended', 'desired', 'status', 'stale', 'queued_at', 'queued_message', 'rewakes')
  if not known.pool or known.token or (hindrance(known) and hindrance(known) ~= 'destroyed') then
    unqueue(item)
  elseif has_lost_its_message(item, known) then
    rewoken = rewoken + 1
    wake(item, known.pool)
    redis.call('ZADD', P .. 'queued', 'XX', NOW, item)
  else
    redis.call('ZADD', P .. 'queued', 'XX', NOW, item) -- looked at again later: the head must not starve other pools
  end
end
return answer({#due, reclaimed, rewoken, (done_to or #due == limit or (#expired == limit and not in_gap())) and 1 or 0})
