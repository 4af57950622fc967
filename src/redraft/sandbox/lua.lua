-- The world of a script: what it may call, and for how long.
-- Returns run, env, array, object, integer, kind, null, nulls.
local seconds, most_printed = ...
local sethook, raw_getmetatable, raw_setmetatable = debug.sethook, getmetatable, setmetatable
local load, error, type, rawget, tostring = load, error, type, rawget, tostring
local pack, unpack, concat, clock = table.pack, table.unpack, table.concat, os.clock
local create, resume, status = coroutine.create, coroutine.resume, coroutine.status

local TIMEOUT, OUTPUT = "\0timeout", "\0output"
local stop_at, stopped = clock() + seconds, nil

-- Once time is up, every single instruction raises: a script can't catch its way on.
local hook
hook = function()
  if stopped or clock() > stop_at then
    stopped = stopped or TIMEOUT
    sethook(hook, "", 1)
    error(stopped, 0)
  end
end

local function watched(body)
  local thread = create(body)
  sethook(thread, hook, "", 1000)
  return thread
end

local next, rawset, tonumber = next, rawset, tonumber
local null = raw_setmetatable({}, { __metatable = "null", __tostring = function() return "null" end })
-- The keys that are null in each object that was passed in. They read as nil, but are not lost.
local nulls = raw_setmetatable({}, { __mode = "k" })
local ARRAY = { __metatable = "array" }
local OBJECT = {
  __metatable = "object",
  __newindex = function(t, key, value)
    if nulls[t] then nulls[t][key] = nil end
    rawset(t, key, value)
  end,
  __pairs = function(t)
    local absent = nulls[t]
    if not absent then return next, t, nil end
    local last, are_left = nil, true
    return function(_, key)
      if are_left then
        last = next(absent, last)
        if last ~= nil then return last, null end
        are_left, key = false, nil
      end
      return next(t, key)
    end, t, nil
  end,
}
local function array(t) return raw_setmetatable(t, ARRAY) end
local function object(t) return raw_setmetatable(t, OBJECT) end
local function kind(t)
  local meta = raw_getmetatable(t)
  return type(meta) == "string" and meta or ""
end

-- An integer of more than 64 bits: it keeps its digits, and counts as a float.
local digits = raw_setmetatable({}, { __mode = "k" })
local function float(value) return tonumber(digits[value] or value) + 0.0 end
local function text(value) return digits[value] or tostring(value) end
local INTEGER = {
  __metatable = "integer",
  __newindex = function() error("an integer can't be changed", 2) end,
  __tostring = text,
  __concat = function(a, b) return text(a) .. text(b) end,
  __eq = function(a, b) return text(a) == text(b) end,
  __lt = function(a, b) return float(a) < float(b) end,
  __le = function(a, b) return float(a) <= float(b) end,
  __unm = function(a) return -float(a) end,
  __add = function(a, b) return float(a) + float(b) end,
  __sub = function(a, b) return float(a) - float(b) end,
  __mul = function(a, b) return float(a) * float(b) end,
  __div = function(a, b) return float(a) / float(b) end,
  __mod = function(a, b) return float(a) % float(b) end,
  __idiv = function(a, b) return float(a) // float(b) end,
  __pow = function(a, b) return float(a) ^ float(b) end,
}
local function integer(written)
  local value = raw_setmetatable({}, INTEGER)
  digits[value] = written
  return value
end

local printed, written = {}, 0
local function print(...)
  local words = pack(...)
  for i = 1, words.n do words[i] = tostring(words[i]) end
  local line = concat(words, "\t") .. "\n"
  written = written + #line
  if written > most_printed then
    stopped = OUTPUT
    sethook(hook, "", 1)
    error(OUTPUT, 0)
  end
  printed[#printed + 1] = line
end

local function copy(library, without)
  local copied = {}
  for name, value in pairs(library) do
    if name ~= without then copied[name] = value end
  end
  return copied
end

local env = {
  assert = assert, error = error, ipairs = ipairs, next = next, pairs = pairs, pcall = pcall, print = print,
  rawequal = rawequal, rawget = rawget, rawlen = rawlen, rawset = rawset, select = select, tonumber = tonumber,
  tostring = tostring, type = type, xpcall = xpcall, _VERSION = _VERSION,
  array = array, object = object, null = null,
  math = copy(math), string = copy(string, "dump"), table = copy(table), utf8 = copy(utf8),
  os = { clock = os.clock, date = os.date, difftime = os.difftime, time = os.time },
  coroutine = {
    create = watched, resume = resume, yield = coroutine.yield, status = coroutine.status,
    isyieldable = coroutine.isyieldable, running = coroutine.running, close = coroutine.close,
    wrap = function(body)
      local thread = watched(body)
      return function(...)
        local results = pack(resume(thread, ...))
        if not results[1] then error(results[2], 0) end
        return unpack(results, 2, results.n)
      end
    end,
  },
}
env._G = env

env.getmetatable = function(value)
  if type(value) == "table" then return raw_getmetatable(value) end
end
-- A finalizer would run when the time limit no longer applies.
env.setmetatable = function(value, meta)
  if type(meta) == "table" and rawget(meta, "__gc") ~= nil then
    error("a metatable with __gc is not allowed", 2)
  end
  return raw_setmetatable(value, meta)
end
local of_strings = raw_getmetatable("")
of_strings.__index, of_strings.__metatable = env.string, false

-- Cut a long message between two characters of UTF-8.
local find, sub = string.find, string.sub
local MAX_MESSAGE = 8000
local function cut(text)
  if #text <= MAX_MESSAGE then return text end
  text = sub(text, 1, MAX_MESSAGE)
  return sub(text, 1, (find(text, "[\xC0-\xFF][\x80-\xBF]*$") or #text + 1) - 1)
end

-- An error may be any value. Asking a table for its text would run code of the script again.
local function message_of(problem)
  if type(problem) == "string" then return cut(problem) end
  if type(problem) == "number" then return tostring(problem) end
  return "an error that is a " .. type(problem)
end

local function run(source)
  local chunk, problem = load(source, "=script", "t", env)
  if not chunk then return "syntax", cut(problem), "" end
  local thread = watched(chunk)
  local results = pack(resume(thread))
  local text = concat(printed)
  if stopped then return stopped == TIMEOUT and "timeout" or "output", "", text end
  if not results[1] then return "raised", message_of(results[2]), text end
  if status(thread) ~= "dead" then return "raised", "it yields outside of a coroutine", text end
  local result = results[2]
  if result == nil then result = rawget(env, "result") end
  return "returned", result, text
end

return run, env, array, object, integer, kind, null, nulls
