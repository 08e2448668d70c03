-- ARGV: header, source, guard (JSON), name and document… -> 1 written, 0 guard refused. Replaces what all targets of a
-- source share.
local guard, key = cjson.decode(ARGV[3]), P .. 'tree:' .. ARGV[2]
local held = fields(item_key(guard.item), 'token', 'run')
if held.token ~= guard.token or held.run ~= guard.run then return answer(0) end
redis.call('DEL', key)
for index = 4, #ARGV, 2 do redis.call('HSET', key, ARGV[index], ARGV[index + 1]) end
return answer(1)
