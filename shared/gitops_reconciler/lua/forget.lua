-- ARGV: header, item -> 1 forgotten, 0 not known. A run that still goes on is refused at its next renewal.
local item = ARGV[2]
local known = fields(item_key(item), 'kind', 'refs')
if not known.kind then return answer(0) end
for _, ref in ipairs(cjson.decode(known.refs or '[]')) do redis.call('SREM', P .. 'watch:' .. ref, item) end
unqueue(item)
keep_resources(item, function() return false end)
for _, index in ipairs({'due', 'items'}) do redis.call('ZREM', P .. index, item) end
if redis.call('EXISTS', lease_key(item)) == 0 then redis.call('ZREM', P .. 'leases', item) end
for _, run in ipairs(redis.call('ZRANGE', runs_key(item), 0, -1)) do redis.call('DEL', run_key(run)) end
-- The lease key stays for its time: should the name come back at once, no new run overlaps the old one.
redis.call('DEL', item_key(item), causes_key(item), runs_key(item), P .. 'marker:' .. item)
return answer(1)
