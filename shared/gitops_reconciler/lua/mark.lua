-- ARGV: header, item, what, actor, reason, guard (JSON or '') -> 1 done, 0 not known or guard refused
-- what: suspend, resume, stale, absent, present, unlock
local item, what = ARGV[2], ARGV[3]
local key = item_key(item)
if ARGV[6] ~= '' then
  local guard = cjson.decode(ARGV[6])
  local held = fields(item_key(guard.item), 'token', 'run')
  if held.token ~= guard.token or held.run ~= guard.run then return answer(0) end
end
local known = fields(key, 'kind', 'token', 'stale', 'suspended', 'desired', 'status')
if not known.kind then return answer(0) end
local about = {kind = known.kind, actor = ARGV[4], reason = ARGV[5]}
if what == 'suspend' then
  redis.call('HSET', key, 'suspended', int(NOW), 'suspended_by', ARGV[4], 'suspended_why', ARGV[5])
  redis.call('ZREM', P .. 'due', item)
  unqueue(item)
  event('suspended', item, about)
elseif what == 'resume' then
  redis.call('HDEL', key, 'suspended', 'suspended_by', 'suspended_why')
  known.suspended = nil
  if hindrance(known) ~= 'destroyed' then ask(item, {trigger = 'manual', actor = ARGV[4]}) end
  event('resumed', item, about)
elseif what == 'stale' then
  if not known.stale then
    redis.call('HSET', key, 'stale', int(NOW), 'message', ARGV[5])
    known.stale = int(NOW)
    if hindrance(known) then -- a wish to be absent holds on
      redis.call('ZREM', P .. 'due', item)
      unqueue(item)
    end
    event('stale', item, about)
  end
elseif what == 'absent' or what == 'present' then
  redis.call('HSET', key, 'desired', what)
  if what == 'absent' then redis.call('ZREM', P .. 'due', item) end
  ask(item, {trigger = 'manual', actor = ARGV[4]})
elseif what == 'unlock' then
  if known.token then redis.call('HSET', key, 'revoked', known.token) end
  event('unlocked', item, about)
end
return answer(1)
