local Account = {}
Account.__index = Account
function Account.new(n) return setmetatable({ n = n }, Account) end
function Account:add(m) self.n = self.n + m return self end
print(Account.new(1):add(41).n)
local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end)
print(co(), co(), co())
local words = {}
for w in ("the quick brown the"):gmatch("%a+") do words[w] = (words[w] or 0) + 1 end
local keys = {}
for k in pairs(words) do keys[#keys + 1] = k end
table.sort(keys)
for _, k in ipairs(keys) do io.write(k, "=", words[k], " ") end
print()
local name = os.tmpname()
local f = assert(io.open(name, "w"))
f:write("text\n", 1.5, "\n")
f:close()
for l in io.lines(name) do print(l) end
os.remove(name)
print(pcall(error, { code = 2 }), select("#", 1, nil, 3), 7 // 2, 2 ^ 10, 1 << 4)
print(utf8.len("žluť"), string.format("%5.2f|%q", math.pi, "a\nb"), os.date("!%Y-%m-%d", 0))
print(io.popen("echo child"):read("a"))
os.exit(13)
