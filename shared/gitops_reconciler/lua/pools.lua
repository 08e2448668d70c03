-- ARGV: header, dead after ms, silent after ms -> {dead = [[pool, message]…], alive = [pool…]}: what is new
-- A pool is dead when asks have waited in it for so long while no live worker served it. Any number of beats may look:
-- what they remember of a pool lies here, so that one alert and one recovery are told.
local dead_after, silent_after = tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('EXISTS', P .. 'paused') == 1 then return answer({dead = cjson.null, alive = cjson.null}) end -- nothing is claimed anyway

local served = {}
for _, text in ipairs(redis.call('HVALS', P .. 'workers')) do
  local is_read, sign = pcall(cjson.decode, text)
  if is_read and type(sign) == 'table' and type(sign.pools) == 'table' and NOW - (tonumber(sign.at) or 0) <= silent_after then
    for _, pool in ipairs(sign.pools) do served[pool] = true end
  end
end
local waiting, counts = {}, redis.call('HGETALL', P .. 'queued_in')
for index = 1, #counts, 2 do
  if tonumber(counts[index + 1]) > 0 and not served[counts[index]] then waiting[counts[index]] = tonumber(counts[index + 1]) end
end

local function oldest_in(pool)
  local found, since
  for _, item in ipairs(redis.call('ZRANGE', P .. 'queued', 0, 999)) do
    local known = fields(item_key(item), 'queued_pool', 'queued_at')
    local at = tonumber(known.queued_at or '')
    if known.queued_pool == pool and at and (not since or at < since) then found, since = item, at end
  end
  return found or '', since or NOW
end

local dead, alive = {}, {}
for pool, count in pairs(waiting) do
  local noticed = redis.call('HGET', P .. 'unserved', pool)
  if not noticed then
    redis.call('HSET', P .. 'unserved', pool, int(NOW))
  elseif NOW - tonumber(noticed) >= dead_after and redis.call('HEXISTS', P .. 'dead_pools', pool) == 0 then
    local oldest, since = oldest_in(pool)
    redis.call('HSET', P .. 'dead_pools', pool, cjson.encode({since = int(since), oldest = oldest}))
    local message = string.format("no live worker serves pool '%s', where %d %s: '%s' is the oldest, since %d s; start a worker "
      .. 'with GITOPS_POOLS=%s, or find out why its workers are gone', pool, count, count == 1 and 'ask waits' or 'asks wait',
      oldest, math.floor((NOW - since) / 1000), pool)
    event('pool_dead', '', {pool = pool, waiting = int(count), since = int(since), oldest = oldest, reason = 'PoolDead', message = message})
    dead[#dead + 1] = {pool, message}
  end
end
for _, pool in ipairs(redis.call('HKEYS', P .. 'unserved')) do
  if not waiting[pool] then redis.call('HDEL', P .. 'unserved', pool) end
end
for _, pool in ipairs(redis.call('HKEYS', P .. 'dead_pools')) do
  if not waiting[pool] then
    redis.call('HDEL', P .. 'dead_pools', pool)
    local how = served[pool] and 'is served by a live worker again' or 'has nothing that waits any more'
    event('pool_alive', '', {pool = pool, reason = '', message = string.format("pool '%s' %s", pool, how)})
    alive[#alive + 1] = pool
  end
end
return answer({dead = #dead > 0 and dead or cjson.null, alive = #alive > 0 and alive or cjson.null})
