-- ARGV: header, guard (JSON), resource key ('' = nothing of the item's is shared) -> '' it is the item's own now, else the
-- item that it belongs to; false: the guard's lease is lost
-- What a stale item left behind goes to whoever asks for it, which is how a target gets another name. While that item
-- runs, or is to be torn down, it is still its own.
local guard, resource = cjson.decode(ARGV[2]), ARGV[3]
local item, key = guard.item, item_key(guard.item)
local held = fields(key, 'token', 'run', 'kind', 'resources')
if held.token ~= guard.token or held.run ~= guard.run then return answer(false) end
if resource ~= '' then
  local owner = redis.call('HGET', P .. 'owners', resource)
  if owner and owner ~= item then
    local other = fields(item_key(owner), 'kind', 'stale', 'token', 'desired', 'resources')
    if other.kind and (not other.stale or other.token or other.desired == 'absent') then return answer(owner) end
    if other.kind then
      keep_resources(owner, function(kept) return kept ~= resource end)
      event('adopted', item, {run = guard.run, kind = held.kind, from = owner, resource = resource,
        message = resource .. " was '" .. owner .. "' before, which is stale"})
    end
  end
  redis.call('HSET', P .. 'owners', resource, item)
end
local known = cjson.decode(held.resources or '[]')
local is_new = resource ~= ''
for _, one in ipairs(known) do is_new = is_new and one ~= resource end
if is_new then known[#known + 1] = resource end
redis.call('HSET', key, 'resource', resource, 'resources', #known > 0 and cjson.encode(known) or '[]')
return answer('')
