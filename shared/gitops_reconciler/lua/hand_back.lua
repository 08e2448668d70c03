-- ARGV: header, item -> 1 if it got a new message, else 0
-- Who took its message begins no run. It may be one of several, and one too many does no harm.
local item = ARGV[2]
local known = fields(item_key(item), 'pool', 'token')
if not known.pool or known.token or not redis.call('ZSCORE', P .. 'queued', item) then return answer(0) end
wake(item, known.pool)
return answer(1)
