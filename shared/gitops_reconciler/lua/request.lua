-- ARGV: header, cause, item… -> [[answer, generation]…]
local cause, result = cjson.decode(ARGV[2]), {}
for index = 3, #ARGV do result[#result + 1] = ask(ARGV[index], cause) end
return answer(result)
