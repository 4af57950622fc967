"""Scripts in Lua: their values, errors, limits and attacks."""

# ruff: noqa: E501 (a table: a case a line where it fits)
import re
import sys
from pathlib import Path

import pytest

from redraft.errors import SandboxError, SandboxMemoryError, SandboxTimeoutError, ScriptError
from redraft.sandbox import scripts
from support.scripts import GRACE, NAMES, alive, attempt, value_of

VALUES = {
    "number": ("return 1 + 1", 2),
    "boolean": ("return state.name == 'Ada'", True),
    "text": ("return state.name .. '!'", "Ada!"),
    "evaluation": (
        "return {valid = true, score = 0.5, errors = {}, suggestions = {'add a name'}}",
        {"valid": True, "score": 0.5, "errors": [], "suggestions": ["add a name"]},
    ),
    "result": ("result = {valid = false}", {"valid": False}),
    "a returned value wins over result": ("result = 1\nreturn 2", 2),
    "result, if nothing is returned": ("result = 1\nreturn nil", 1),
    "first of many": ("return 1, 2, 3", 1),
    "nothing": ("local x = 1", None),
    "nothing at all": ("", None),
    "float": ("return 1 / 2", 0.5),
    "integer": ("return 9007199254740993", 9007199254740993),
    "object as it came": ("return state", NAMES["state"]),
    "null that is set": ("state.gone = 1 return state.gone + 1", 2),
    "null that is removed": (
        "state.gone = nil return object {keys = state.gone, state = state}",
        {"state": {"name": "Ada", "age": 36, "tags": ["a", None, {}]}},
    ),
    "null that is set and then removed": (
        "state.gone = 1 state.gone = nil return state.name .. #state.tags",
        "Ada3",
    ),
    "null in a copy": (
        "local copy = {} for key, value in pairs(state) do copy[key] = value end return copy",
        NAMES["state"],
    ),
    "null among pairs": (
        "local n = 0 for key, value in pairs(state) do n = n + 1 if value == null then state[key] = key end end return {n >= 4, state.gone}",
        [True, "gone"],
    ),
    "nested as it came": ("return reflection_output", NAMES["reflection_output"]),
    "texts as they came": ("return reflection_errors", NAMES["reflection_errors"]),
    "null in an object is no key": ("return state.gone == nil", True),
    "null in an array": ("return #state.tags == 3 and state.tags[2] == null", True),
    "null": ("return null", None),
    "null in a result": ("return {a = null, b = {null, 1}}", {"a": None, "b": [None, 1]}),
    "empty array as it came": ("return reflection_output.empty", []),
    "empty object as it came": ("return reflection_output.none", {}),
    "empty table": ("return {}", []),
    "empty object": ("return object {}", {}),
    "empty array": ("return array {}", []),
    "keys that are numbers": ("return {[1] = 'a', [3] = 'c'}", {"1": "a", "3": "c"}),
    "array as an object": ("return object {'a'}", {"1": "a"}),
    "the same table twice": ("local t = {1} return {t, t}", [[1], [1]]),
    "iteration": ("local n = 0 for i, item in ipairs(state.tags) do n = n + i end return n", 6),
    "patterns": ("return (output:match('@(%w+)'))", "example"),
    "methods of text": ("return ('ab'):rep(2):upper()", "ABAB"),
    "coroutine": (
        "local c = coroutine.wrap(function() coroutine.yield(1) coroutine.yield(2) end) c() return c()",
        2,
    ),
    "caught error": ("local ok, said = pcall(error, 'x') return {ok, said}", [False, "x"]),
    "metatable": (
        "local t = setmetatable({}, {__index = function(_, k) return k .. '!' end}) return t.a",
        "a!",
    ),
    "closed variable": (
        "do local x <close> = setmetatable({}, {__close = function() result = 1 end}) end",
        1,
    ),
    "time": ("return type(os.time()) == 'number' and os.date('%Y') ~= nil", True),
    "printing": ("print('hello', nil, {}) return 1", 1),
}


@pytest.mark.parametrize(("source", "value"), VALUES.values(), ids=VALUES)
def test_scripts_return_their_value(source, value):
    assert value_of("lua", source) == value


def test_keys_keep_their_order_and_new_keys_are_sorted():
    """A table of Lua has no order, so that a prompt with such a value would differ from process to process."""
    names = {"state": dict.fromkeys("qzhgamb", 1) | {"n": None, "k": 2}}
    value = value_of(
        "lua", "state.y = 3 state.c = 3 return {state, {w = 1, v = 2, q = 3, a = 4}}", names=names
    )
    assert [list(item) for item in value] == [list("qzhgambnkcy"), list("qavw")]


UNCHANGED = {
    "nulls": {"a": None, "b": [None, {"c": None}], "d": {"e": {"f": None}}},
    "only nulls": {"a": None, "b": None},
    "empty": {"a": {}, "b": [], "c": [[], {}], "": ""},
    "integers": [0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**400],
    "floats": [1.0, 1e22, 1.5e300, 5e-324, -2.0],
    "texts": ["ü😀\u2028", "a\0b", "null", "1", ""],
    "keys": {"1": "a", "2": "b", "a\0b": 1, "nil": None},
    "nothing": None,
}


@pytest.mark.parametrize("value", UNCHANGED.values(), ids=UNCHANGED)
@pytest.mark.parametrize("place", ["output", "state.inner", "state.list[1]"])
def test_values_pass_through_unchanged(value, place):
    names = {"output": value, "state": {"inner": value, "list": [value]}}
    assert repr(value_of("lua", f"return {place}", names=names)) == repr(value) or (
        isinstance(value, dict) and value_of("lua", f"return {place}", names=names) == value
    )


def test_integers_beyond_64_bits_are_compared_and_computed_as_floats():
    source = (
        "return {output > 5, output == state.same, output < 1e30, output + 1 == 2^70 + 1, -output < 0, "
        "tostring(output), 'n' .. output, output / 2^69}"
    )
    value = value_of("lua", source, names={"output": 2**70, "state": {"same": 2**70}})
    assert value == [True, True, True, True, True, str(2**70), f"n{2**70}", 2.0]


LATE, BIG, WRONG = SandboxTimeoutError, SandboxMemoryError, ScriptError

ATTEMPTS = {
    "endless loop": ("while true do end", LATE),
    "endless repeat": ("repeat until false", LATE),
    "endless goto": ("::a:: goto a", LATE),
    "endless recursion by tail calls": ("local function f() return f() end f()", LATE),
    "endless loop that catches all": ("while true do pcall(function() while true do end end) end", LATE),
    "endless handler": ("xpcall(error, function() while true do end end)", LATE),
    "endless loop in a coroutine": ("coroutine.wrap(function() while true do end end)()", LATE),
    "endless coroutines": (
        "while true do coroutine.wrap(function() pcall(function() while true do end end) end)() end",
        LATE,
    ),
    "endless iterator": ("for _ in function() return 1 end do end", LATE),
    "endless pairs": (
        "for _ in pairs(setmetatable({}, {__pairs = function() return function() return 1 end end})) do end",
        LATE,
    ),
    "endless index": (
        "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
        LATE,
    ),
    "endless length": ("return #setmetatable({}, {__len = function() while true do end end})", LATE),
    "endless text of an error": (
        "error(setmetatable({}, {__tostring = function() while true do end end}))",
        WRONG,
    ),
    "endless text": (
        "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
        LATE,
    ),
    "endless close": (
        "local x <close> = setmetatable({}, {__close = function() while true do end end})",
        LATE,
    ),
    "endless finalizer": ("setmetatable({}, {__gc = function() while true do end end})", WRONG),
    "endless sort": ("table.sort({3, 1, 2}, function() while true do end end)", LATE),
    "endless replacement": ("return ('a'):gsub('a', function() while true do end end)", LATE),
    "pattern bomb": ("return ('a'):rep(40):find(('a*'):rep(20) .. 'b')", LATE),
    "pattern bomb of many": ("return ('a'):rep(100000):find('.-.-.-.-b')", LATE),
    "replacement bomb": ("return ('a'):rep(1000000):gsub('a', ('b'):rep(1000000))", BIG),
    "3 GB of text": ("return ('a'):rep(3000000000)", BIG),
    "rep with separators": ("return ('a'):rep(1000000, ('b'):rep(1000000))", BIG),
    "growing text": ("local s = 'x' while true do s = s .. s end", BIG),
    "growing table": ("local t = {} while true do t[#t + 1] = {} end", (BIG, LATE)),
    "growing table that catches all": (
        "local t = {} while true do pcall(function() for i = 1, 1e7 do t[#t + 1] = {i} end end) end",
        (BIG, LATE),
    ),
    "concat": (
        "local t = {} for i = 1, 1000 do t[i] = ('x'):rep(1000000) end return table.concat(t)",
        (BIG, LATE),  # which of the two is a matter of the machine
    ),
    "unpack": ("return table.unpack({}, 1, 100000000)", WRONG),
    "unpack of the largest numbers": ("return table.unpack({}, math.mininteger, math.maxinteger)", WRONG),
    "move": ("table.move({}, 1, math.maxinteger - 1, 2)", (LATE, WRONG)),
    "recursion": ("local function f() return 1 + f() end f()", (WRONG, BIG)),
    "recursion through text": ("local function f() return (('a'):gsub('a', f)) end f()", WRONG),
    "recursion through pcall": ("local function f() return pcall(f) end f() while true do end", LATE),
    "recursion through metatables": ("local t = {} setmetatable(t, {__index = t}) return t.x", WRONG),
    "nested coroutines": ("local function f() coroutine.wrap(f)() end f()", (WRONG, BIG)),
    "packing": ("return string.pack('z', ('x'):rep(100000000))", (BIG, WRONG)),
    "format": ("return string.format('%99999d', 1)", WRONG),
    "program": ("os.execute('id')", WRONG),
    "pipe": ("io.popen('id')", WRONG),
    "file": ("io.open('/etc/passwd')", WRONG),
    "lines of a file": ("for l in io.lines('/etc/passwd') do end", WRONG),
    "remove": ("os.remove('/tmp/x')", WRONG),
    "rename": ("os.rename('/tmp/x', '/tmp/y')", WRONG),
    "temporary name": ("os.tmpname()", WRONG),
    "environment": ("os.getenv('PATH')", WRONG),
    "exit": ("os.exit(0)", WRONG),
    "locale": ("os.setlocale('C')", WRONG),
    "load": ("load('return 1')()", WRONG),
    "load of bytes": ("load(string.dump(function() end))", WRONG),
    "dump": ("string.dump(function() end)", WRONG),
    "dump by a method": ("(''):dump()", WRONG),
    "dofile": ("dofile('/etc/passwd')", WRONG),
    "loadfile": ("loadfile('/etc/passwd')()", WRONG),
    "require": ("require('os')", WRONG),
    "package": ("package.loadlib('libc.so.6', '*')", WRONG),
    "debug": ("debug.getregistry()", WRONG),
    "debug by a hook": ("debug.sethook()", WRONG),
    "upvalues": ("debug.getupvalue(print, 1)", WRONG),
    "garbage": ("collectgarbage('stop')", WRONG),
    "python": ("python.eval('1')", WRONG),
    "python by the globals": ("_G.python.builtins.open('/etc/passwd')", WRONG),
    "strings' metatable": ("getmetatable('').__index = nil", WRONG),
    "strings' metatable set": ("setmetatable('', {})", WRONG),
    "metatable of what came in": ("setmetatable(state, {})", WRONG),
    "cyclic table": ("local t = {} t.t = t return t", WRONG),
    "deep table": ("local t = {} for i = 1, 500 do t = {t} end return t", WRONG),
    "very deep table": ("local t = {} for i = 1, 100000 do t = {t} end return t", WRONG),
    "doubling table": ("local t = {} for i = 1, 60 do t = {t, t} end return t", (WRONG, LATE)),
    "nan": ("return 0 / 0", WRONG),
    "infinity": ("return {score = math.huge}", WRONG),
    "two keys of the same text": ("return {[1] = 1, ['1'] = 2}", WRONG),
    "function": ("return print", WRONG),
    "coroutine as a result": ("return coroutine.create(print)", WRONG),
    "globals": ("return _G", WRONG),
    "key that is a table": ("return {[{}] = 1}", WRONG),
    "key that is a float": ("return {[1.5] = 1}", WRONG),
    "key that is a boolean": ("return {[true] = 1}", WRONG),
    "array with a hole": ("return array {[2] = 1}", WRONG),
    "bytes": (r"return '\xff\xfe'", WRONG),
    "large result": ("return ('x'):rep(60000)", WRONG),
    "many items": ("local t = {} for i = 1, 60000 do t[i] = 0 end return t", WRONG),
    "many references to one text": (
        "local s, t = ('x'):rep(10000000), {} for i = 1, 380 do t[i] = s end return t",
        WRONG,
    ),
    "many references to one table": (
        "local s, t = {('x'):rep(10000)}, {} for i = 1, 60000 do t[i] = s end return t",
        WRONG,
    ),
    "long keys": (
        "local t = {} for i = 1, 100 do t[i] = {[('x'):rep(100000)] = 1} end return t",
        WRONG,
    ),
    "endless output": ("while true do print(('x'):rep(1000)) end", SandboxError),
    "endless output that catches all": ("while true do pcall(print, ('x'):rep(1000)) end", SandboxError),
    "much output": ("print(('x'):rep(30000))", SandboxError),
    "no Lua": ("x = = 1", WRONG),
    "bytes of a program": ("\x1bLua", WRONG),
    "brackets": ("return " + "(" * 5000 + "1" + ")" * 5000, WRONG),
    "error": ("error('bad')", WRONG),
    "error that is nothing": ("error()", WRONG),
    "error that is a table": ("error({code = 1})", WRONG),
    "arithmetic on nothing": ("return state.missing + 1", WRONG),
    "yield outside": ("coroutine.yield(1)", WRONG),
}


@pytest.mark.parametrize(("source", "errors"), ATTEMPTS.values(), ids=ATTEMPTS)
def test_attacks_end_in_a_named_error_in_time(source, errors):
    assert alive("lua")
    ended, beyond = attempt("lua", source, errors)
    assert isinstance(ended, errors), repr(ended)
    assert "The Lua script" in str(ended)
    assert beyond < GRACE


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("name", ["many references to one text", "many references to one table", "long keys"])
def test_reading_a_result_takes_bounded_memory(name):
    idle = scripts._pool("lua")._idle
    while idle:  # the memory of earlier scripts must not count
        idle.pop().end()
    attempt("lua", *ATTEMPTS[name])
    status = Path(f"/proc/{idle[-1]._process.pid}/status").read_text("ascii")
    highest = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1])
    assert highest < 150 * 1024, f"{highest} kB"


def test_a_long_error_is_cut_between_characters():
    ended, _ = attempt("lua", "error('x' .. ('é'):rep(5000000))", WRONG)
    assert isinstance(ended, ScriptError)
    assert "raised an error: xéé" in str(ended)
    assert len(str(ended)) < 3000


def test_no_state_leaks_between_scripts():
    value_of("lua", "left = 1 string.left = 1 math.left = 1 coroutine.left = 1")
    assert (
        value_of("lua", "return {left == nil, string.left == nil, math.left == nil, coroutine.left == nil}")
        == [True] * 4
    )
