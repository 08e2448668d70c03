-- ARGV: header, item, token, run, ttl ms -> 0 lost, 1 held, 2 held and asked again
-- PEXPIRE is no deny-oom command, so that a renewal goes through when memory is full.
local item, token, run = ARGV[2], ARGV[3], ARGV[4]
local held = fields(item_key(item), 'token', 'run', 'revoked', 'requested', 'claimed')
if held.token ~= token or held.run ~= run or held.revoked == token then return 0 end
if redis.call('PEXPIRE', lease_key(item), tonumber(ARGV[5])) == 0 then
  -- expired, and nobody has claimed since: the same holder may confirm it again
  redis.call('SET', lease_key(item), token .. ':' .. run, 'PX', tonumber(ARGV[5]))
end
return tonumber(held.requested) > tonumber(held.claimed) and 2 or 1
