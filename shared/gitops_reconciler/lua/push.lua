-- ARGV: header, cause, delivery ('' = none), seconds to remember it, ref… -> {seen} or {asks = [[item, answer, generation]…]}
local cause, delivery = cjson.decode(ARGV[2]), ARGV[3]
if delivery ~= '' and redis.call('EXISTS', P .. 'seen:' .. delivery) == 1 then return answer({seen = true}) end
local asked, result = {}, {}
for index = 5, #ARGV do
  local items = redis.call('SMEMBERS', P .. 'watch:' .. ARGV[index])
  table.sort(items)
  for _, item in ipairs(items) do
    if not asked[item] then
      asked[item] = true
      local told = ask(item, cause)
      result[#result + 1] = {item, told[1], told[2]}
    end
  end
end
-- A delivery that asked for nothing is not remembered: delivered again once a target tracks the ref, it must count.
if delivery ~= '' and #result > 0 then redis.call('SET', P .. 'seen:' .. delivery, int(NOW), 'EX', tonumber(ARGV[4])) end
return answer({asks = #result > 0 and result or cjson.null})
