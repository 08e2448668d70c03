-- ARGV: header, actor, reason, item to go on after ('' = begin: lifts the pause), limit -> {was paused, item to go on
-- after ('' = done)}. A page of items at a time, so that Redis is never held up.
local after, limit = ARGV[4], tonumber(ARGV[5])
if after == '' then
  if redis.call('EXISTS', P .. 'paused') == 0 then return answer({0, ''}) end
  redis.call('DEL', P .. 'paused')
  local epochs = redis.call('SMEMBERS', P .. 'estranged')
  for _, epoch in ipairs(epochs) do redis.call('SADD', P .. 'adopted', epoch) end
  redis.call('DEL', P .. 'estranged')
  if #epochs > 0 then redis.call('SET', P .. 'asking_all', '') end -- what it remembers is of another time; sweeps do it
  local message = 'by ' .. ARGV[2] .. (ARGV[3] ~= '' and (': ' .. ARGV[3]) or '')
  event('resumed', '', {actor = ARGV[2], reason = '', message = message})
end
local names = redis.call('ZRANGEBYLEX', P .. 'items', after == '' and '-' or ('(' .. after), '+', 'LIMIT', 0, limit)
for _, item in ipairs(names) do
  local known = fields(item_key(item), 'pool', 'token')
  if known.pool and not known.token and redis.call('ZSCORE', P .. 'queued', item) then
    wake(item, known.pool) -- its message came while nothing was claimed, and is gone
  end
end
return answer({1, #names == limit and names[#names] or ''})
