-- ARGV: header, limit, rewake after ms, ttl ms, server run id, longest pause of sweeps ms -> {asked, reclaimed, rewoken, more}
local limit, rewake_after, ttl = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local swept = redis.call('HMGET', P .. 'swept', 'at', 'server')
local last = tonumber(swept[1] or '0')
local restarted = swept[2] and swept[2] ~= ARGV[5]
if last > 0 and (restarted or NOW - last > tonumber(ARGV[6]) or last > NOW + 1000) then
  redis.call('SET', P .. 'gap_until', NOW + ttl, 'PX', ttl)
  if restarted then -- whatever was under way may have been forgotten: every item is asked once
    for _, item in ipairs(redis.call('ZRANGE', P .. 'items', 0, -1)) do
      local known = fields(item_key(item), 'suspended', 'desired', 'status', 'stale')
      if not hindrance(known) then redis.call('ZADD', P .. 'due', 'LT', NOW, item) end
    end
  end
end
redis.call('HSET', P .. 'swept', 'at', int(NOW), 'server', ARGV[5])
if redis.call('EXISTS', P .. 'paused') == 1 then return answer({0, 0, 0, 0}) end

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

-- An ask without a message. In this Redis the queue itself tells: it is empty, or it holds fewer messages than items
-- wait in its pool. Of a broker elsewhere nothing is known, so it gets a message after ever longer waits.
local function has_lost_its_message(item, known)
  local waited = NOW - tonumber(known.queued_at or NOW)
  if not HEAD.push then
    local times = tonumber(known.rewakes or '0')
    if waited < rewake_after * 2 ^ math.min(times + 1, 12) then return false end
    redis.call('HINCRBY', item_key(item), 'rewakes', 1)
    return true
  end
  local messages = redis.call('LLEN', HEAD.queue .. known.pool)
  local waiting = tonumber(redis.call('HGET', P .. 'queued_in', known.pool) or '0')
  return messages == 0 or (waited > 10 * rewake_after and messages < waiting)
end

local rewoken = 0
local old = redis.call('ZRANGEBYSCORE', P .. 'queued', '-inf', NOW - rewake_after, 'LIMIT', 0, limit)
for _, item in ipairs(old) do
  local known = fields(item_key(item), 'pool', 'token', 'suspended', 'desired', 'status', 'stale', 'queued_at', 'rewakes')
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
return answer({#due, reclaimed, rewoken, (#due == limit or #expired == limit) and 1 or 0})
