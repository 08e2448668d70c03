-- ARGV: header, actor, reason, item to go on after ('' = begin: lifts the pause), limit, whether each item is asked once
-- -> {was paused, item to go on after ('' = done), whether each item is asked once}. A page of items at a time, so that
-- Redis is never held up.
local after, limit, all = ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'
if after == '' then
  if redis.call('EXISTS', P .. 'paused') == 0 then return answer({0, '', 0}) end
  redis.call('DEL', P .. 'paused')
  local epochs = redis.call('SMEMBERS', P .. 'estranged')
  for _, epoch in ipairs(epochs) do redis.call('SADD', P .. 'adopted', epoch) end
  redis.call('DEL', P .. 'estranged')
  all = #epochs > 0 -- what this store remembers is of another time
  local message = 'by ' .. ARGV[2] .. (ARGV[3] ~= '' and (': ' .. ARGV[3]) or '')
  event('resumed', '', {actor = ARGV[2], reason = '', message = message})
end
local names = redis.call('ZRANGEBYLEX', P .. 'items', after == '' and '-' or ('(' .. after), '+', 'LIMIT', 0, limit)
for _, item in ipairs(names) do
  local known = fields(item_key(item), 'pool', 'token', 'suspended', 'desired', 'status', 'stale')
  if known.pool and not known.token then
    if redis.call('ZSCORE', P .. 'queued', item) then -- its message came while nothing was claimed, and is gone
      wake(item, known.pool)
    elseif all and not hindrance(known) then
      redis.call('ZADD', P .. 'due', 'LT', NOW, item)
    end
  end
end
return answer({1, #names == limit and names[#names] or '', all and 1 or 0})
