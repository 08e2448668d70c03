-- ARGV: header, name to begin after ('' = the first), limit -> {last name ('' = no more), rows…}; a row is tab-separated:
-- name, kind, pool, status, stale, suspended, desired, labels. A page of names at a time, so that Redis is never held up.
local start = ARGV[2] == '' and '-' or ('(' .. ARGV[2])
local names = redis.call('ZRANGEBYLEX', P .. 'items', start, '+', 'LIMIT', 0, tonumber(ARGV[3]))
local rows = {#names == tonumber(ARGV[3]) and names[#names] or ''}
for _, name in ipairs(names) do
  local row = redis.call('HMGET', item_key(name), 'kind', 'pool', 'status', 'stale', 'suspended', 'desired', 'labels')
  if row[1] then
    for index = 1, 7 do row[index] = row[index] or '' end
    rows[#rows + 1] = name .. '\t' .. table.concat(row, '\t')
  end
end
return rows
