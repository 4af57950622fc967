"""Scripts in Python: their values, errors, limits and attacks."""
# ruff: noqa: E501 (a table of snippets: one a line reads better than folded)

import ast
import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from redraft.errors import (
    ConfigError,
    SandboxError,
    SandboxForbiddenError,
    SandboxMemoryError,
    SandboxTimeoutError,
    ScriptError,
)
from redraft.execution import Script, ScriptLimits
from redraft.sandbox import scripts, walls
from redraft.sandbox.python import _capture_value, unsupported_features
from redraft.sandbox.scripts import run_script
from support.scripts import GRACE, LIMITS, alive, attempt, children_of, value_of, wait_until_ended

BOTH = ("inline", "process")

VALUES = {
    "last expression": ("1 + 1", 2),
    "result": ("result = json.loads(output)", {"name": "Ada", "email": "ada@example.com"}),
    "result wins over the last expression": ("result = 1\n2", 1),
    "a returned value wins over result": ("result = [1, 2]\nreturn {'n': len(result)}", {"n": 2}),
    "a returned False wins over result": ("result = 1\nif result:\n    return False", False),
    "result, if return has no value": ("result = 1\nif result:\n    return", 1),
    "result wins over the value of a call": ("result = [1]\ndef f():\n    return 2\nf()", [1]),
    "result in a branch": ("if state['age'] > 30:\n    result = 'old'", "old"),
    "results is not result": ("results = [1, 2]\nlen(results)", 2),
    "result unpacked from a tuple": ("result, other = 1, 2", 1),
    "returned": ("if state['name']:\n    return {'valid': True}\nreturn 0", {"valid": True}),
    "returned by a function": ("def f(x):\n    return x * 2\nresult = f(4)", 8),
    "variables of a script that returns": (
        "output = json.loads(output)\ndef f():\n    return output['name']\nreturn f()",
        "Ada",
    ),
    "annotated and returned": ("x: int = 3\ny: str\nreturn x", 3),
    "nothing": ("x = 1", None),
    "nothing at all": ("", None),
    "regular expressions": ("bool(re.search('A.a', state['name']))", True),
    "all names": (
        "[reflection_iteration, reflection_errors[0]['message'], reflection_output['nested']['deep']]",
        [2, 'it\'s "bad"\n\\ or é😀', [1, 2.5, True]],
    ),
    "a tuple": ("(1, 2)", [1, 2]),
    "the same list twice": ("a = [1]\n[a, a]", [[1], [1]]),
    "numbers as keys": ("result = {1: 2}", {"1": 2}),
    "null": ("state['gone']", None),
    "text across lines": ('x = """a\n  b\nreturn"""\nresult = x', "a\n  b\nreturn"),
    "the documented evaluator": (
        "import json\ntry:\n    data = json.loads(output)\n    result = {'valid': '@' in data.get('email', ''), 'score': 1.0, 'errors': []}\nexcept:\n    result = {'valid': False}",
        {"valid": True, "score": 1.0, "errors": []},
    ),
    "printing": ("print('hello')\nresult = 1", 1),
    "results, and a result that is never assigned": ("results = 2\nif results == 3:\n    result = 1", None),
    "modules under other names": ("json = 1\nresult = json", 1),
    "100 levels deep": ("a = []\nfor _ in range(99): a = [a]\nresult = a[0][0] == a[0][0]", True),
}


@pytest.mark.parametrize("sandbox", BOTH)
@pytest.mark.parametrize(("source", "value"), VALUES.values(), ids=VALUES)
def test_scripts_return_their_value(source, value, sandbox):
    assert value_of("python", source, sandbox) == value


LATE, BIG, SHUT, WRONG = SandboxTimeoutError, SandboxMemoryError, SandboxForbiddenError, ScriptError

EVERYWHERE = {
    "endless loop": ("while True: pass", LATE),
    "endless loop that catches all": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        LATE,
    ),
    "endless finally": ("try:\n    1 / 0\nfinally:\n    while True: pass", LATE),
    "endless sum": ("sum(range(10**12))", LATE),
    "factorial": ("import math\nmath.factorial(10**7)", (LATE, BIG)),
    "3 GB of text": ("'a' * 3_000_000_000", BIG),
    "tower of powers": ("9**9**9", (BIG, LATE)),
    "power": ("pow(7, 10**9)", (BIG, LATE)),
    "shift": ("1 << 10**12", (BIG, WRONG)),
    "list": ("[0] * 10**9", BIG),
    "list of a range": ("list(range(10**9))", (BIG, LATE)),
    "growing list": ("a = [0]\nwhile True: a += a", (BIG, LATE)),
    "growing text": ("a = 'x'\nwhile True: a += a", (BIG, LATE)),
    "nested lists": ("a = []\nwhile True: a = [a, [0] * 1000]", (BIG, LATE)),
    "format width": ("f'{1:>10000000000}'", (BIG, WRONG, LATE)),
    "percent width": ("'%10000000000d' % 1", (BIG, WRONG)),
    "center": ("'a'.center(10**10)", BIG),
    "replace": ("('a' * 10**6).replace('a', 'b' * 10**6)", BIG),
    "join": ("'x'.join(['y' * 10**6] * 10**4)", BIG),
    "regex replacement": ("re.sub('a', 'b' * 10**6, 'a' * 10**6)", (BIG, LATE)),
    "recursion": ("def f(): return f()\nf()", WRONG),
    "password file": ("open('/etc/passwd').read()", SHUT),
    "write a file": ("open('/tmp/redraft-attack', 'w').write('x')", (SHUT, WRONG)),
    "path": ("import pathlib\npathlib.Path('/etc/passwd').read_text()", SHUT),
    "own memory": ("open('/proc/self/mem', 'rb')", SHUT),
    "environment of the parent": ("open('/proc/1/environ').read()", SHUT),
    "listing": ("import os\nos.listdir('/')", SHUT),
    "socket": ("import socket\nsocket.create_connection(('127.0.0.1', 80))", SHUT),
    "subprocess": ("import subprocess\nsubprocess.run(['id'])", SHUT),
    "shell": ("import os\nif os.system('id'): raise PermissionError", SHUT),
    "fork": ("import os\nos.fork()", SHUT),
    "exec": ("import os\nos.execv('/bin/true', ['true'])", SHUT),
    "kill the parent": ("import os\nos.kill(os.getppid(), 9)", SHUT),
    "leave at once": ("import os\nos._exit(0)", (SHUT, WRONG)),
    "SystemExit": ("raise SystemExit", WRONG),
    "SystemExit 0": ("raise SystemExit(0)", WRONG),
    "exit": ("exit()", WRONG),
    "sys.exit": ("import sys\nsys.exit(0)", (WRONG, SHUT)),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", WRONG),
    "input": ("input()", WRONG),
    "cyclic list": ("a = []\na.append(a)\nresult = a", WRONG),
    "cyclic dict": ("a = {}\na['a'] = [a]\nresult = a", WRONG),
    "cyclic last expression": ("a = []\na.append(a)\na", WRONG),
    "deep list": ("a = []\nfor i in range(500): a = [a]\nresult = a", WRONG),
    "very deep list": ("a = []\nfor i in range(100000): a = [a]\nresult = a", (WRONG, BIG, LATE)),
    "doubling list": ("a = []\nfor i in range(60): a = [a, a]\nresult = a", (WRONG, BIG, LATE)),
    "doubling list returned": ("a = []\nfor i in range(60): a = [a, a]\nreturn a", (WRONG, BIG, LATE)),
    "doubling dict": ("a = {}\nfor i in range(60): a = {'a': a, 'b': a}\na", (WRONG, BIG, LATE)),
    "number and text as key": ("result = {1: 1, '1': 2}", WRONG),
    "bool and text as key": ("result = [{True: 1, 'true': 2}]", WRONG),
    "null and text as key": ("result = {'a': {None: 1, 'null': 2}}", WRONG),
    "large result": ("result = 'x' * 60_000", WRONG),
    "many items": ("result = [0] * 60_000", WRONG),
    "nan": ("float('nan')", WRONG),
    "infinity": ("result = {'score': float('inf')}", WRONG),
    "5,000 digits": ("10**5000", WRONG),
    "set": ("{1, 2}", WRONG),
    "bytes": ("b'x'", WRONG),
    "function": ("def f(): pass\nresult = [f]", WRONG),
    "function returned": ("def f(): pass\nreturn [f]", WRONG),
    "object": ("class A: pass\nA()", WRONG),
    "module": ("json", WRONG),
    "tuple as key": ("{(1, 2): 2}", WRONG),
    "keys of a dict": ("state.keys()", WRONG),
    "keys of a dict as the result": ("result = state.keys()", WRONG),
    "endless output": ("while True: print('x' * 1000)", (SandboxError,)),
    "much output": ("print('x' * 30_000)", (SandboxError,)),
    "10 GB of output": ("for _ in range(10**7): print('x' * 1000)", (SandboxError,)),
    "no Python": ("x = = 1", WRONG),
    "brackets": ("(" * 5000 + ")" * 5000, (WRONG, BIG)),
    "minuses": ("-" * 100_000 + "1", (WRONG, BIG)),
    "indices": ("[]" + "[0]" * 50_000, (WRONG, BIG)),
    "NUL": ("x = 1\0", WRONG),
    "division": ("1 / 0", WRONG),
    "message that raises": ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E()", WRONG),
}


UNTIL_ITS_TIME_IS_OVER = ("endless output", "10 GB of output")
"""What monty runs on, discarding what is printed beyond the limit."""


@pytest.mark.parametrize("name", EVERYWHERE)
def test_inline_attacks_end_in_a_named_error_in_time(name):
    source, errors = EVERYWHERE[name]
    limits = LIMITS if name in UNTIL_ITS_TIME_IS_OVER else None
    assert alive("python")
    ended, beyond = attempt("python", source, errors, limits=limits)
    assert isinstance(ended, errors), repr(ended)
    assert "The Python script" in str(ended)
    assert beyond < GRACE


@pytest.mark.parametrize("many", ["['x' * 1_000_000] * 380", "[{'x' * 1_000_000: 1}] * 380"])
def test_each_reference_to_a_text_counts_in_the_size_of_a_result(many):
    with pytest.raises(ScriptError, match="returned a value that is too large"):
        value_of("python", f"result = {many}", "process")


SLOW_IN_A_CHILD = ("indices",)
"""Attacks that keep a full interpreter busy for longer than a test should wait."""


@pytest.mark.parametrize("name", EVERYWHERE)
def test_process_attacks_end_in_a_named_error_in_time(name):
    source, errors = EVERYWHERE[name]
    if name in SLOW_IN_A_CHILD:
        errors = (*errors, LATE)
    ended, beyond = attempt("python", source, errors, "process")
    assert isinstance(ended, errors), repr(ended)
    assert beyond < GRACE


WAYS_OUT = {
    "environment": "import os\nos.environ",
    "variable": "import os\nos.getenv('PATH')",
    "ctypes": "import ctypes\nctypes.CDLL(None)",
    "builtins": "__import__('os').system('id')",
    "subclasses": "().__class__.__bases__[0].__subclasses__()",
    "globals of a function": "(lambda: 0).__globals__",
    "frames": "import sys\nsys._getframe()",
    "modules": "import sys\nsys.modules",
    "import machinery": "import importlib\nimportlib.import_module('os')",
    "garbage": "import gc\ngc.get_objects()",
    "threads": "import threading\nthreading.Thread(target=print).start()",
    "pickle": "import pickle\npickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
    "url": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
    "breakpoint": "breakpoint()",
    "database": "import sqlite3\nsqlite3.connect('/tmp/x')",
    "temporary file": "import tempfile\ntempfile.mkstemp()",
    "evaluated": "eval('open(\"/etc/passwd\").read()')",
    "executed": "exec('import socket')",
}


@pytest.mark.parametrize("source", WAYS_OUT.values(), ids=WAYS_OUT)
def test_inline_python_has_no_way_out(source):
    errors = (SandboxForbiddenError, ScriptError)
    ended, beyond = attempt("python", source, errors)
    assert isinstance(ended, errors), repr(ended)
    assert beyond < GRACE


LACKING = {
    "yield": ("def f():\n    yield 1\nlist(f())", "yield expressions"),
    "inheritance": ("class A(dict): pass\nlen(A())", "class inheritance"),
    "del": ("x = 1\ndel x", "'del' statement"),
    "module": ("import difflib\n1", "module 'difflib'"),
    "builtin": ("globals()\n1", "globals()"),
    "next": ("return next((x for x in [1, 2] if x > 1), None)", "generators"),
    "next of a name": ("found = filter(None, [0, 1])\nreturn next(found)", "generators"),
    "property": ("class A:\n    @property\n    def x(self): return 1\nA()\n1", "method decorators"),
    "method of a text": ("return 'a'.translate({97: 'b'})", "str.translate()"),
    "attribute of a module": ("return bool(re.VERBOSE)", "re.VERBOSE"),
    "name of a module": ("from collections import ChainMap\n1", "collections.ChainMap"),
    "special method": ("class A:\n    def __len__(self): return 1\nlen(A())", "__len__"),
    "exception with a number": ("return str(ValueError(5))", "other arguments than one text"),
    "assertion with data": (
        "try:\n    assert False, [5]\nexcept AssertionError:\n    pass\n1",
        "other arguments than one text",
    ),
    "function in re.sub": ("return re.sub('a', lambda found: 'b', 'a')", "re.sub()"),
    "io": ("import io\n1", "module 'io'"),
    "wildcard import": ("from math import *\n1", "wildcard imports"),
}


@pytest.mark.parametrize(("source", "lacks"), LACKING.values(), ids=LACKING)
def test_errors_name_what_inline_python_lacks(source, lacks):
    with pytest.raises(ScriptError) as caught:
        value_of("python", source)
    assert lacks in str(caught.value)
    assert "`sandbox: process`" in str(caught.value)
    value_of("python", source, "process")


@pytest.mark.parametrize("source", ["import itertools\nitertools.nosuch", "'a'.nosuch()", "nosuch"])
def test_a_mistake_is_not_taken_for_a_missing_feature(source):
    with pytest.raises(ScriptError, match="nosuch") as caught:
        value_of("python", source)
    assert "process" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "features"),
    [
        ("return next((x for x in [1]), None)", [("next() of a generator", 1)]),
        ("x = map(str, [1])\nreturn next(x)", [("next() of a generator", 2)]),
        ("x = map(str, [1])\nx = iter(x)\nreturn next(x)", []),
        ("x = iter([1])\nreturn next(x), sum(y for y in [1]), list(map(str, [1]))", []),
        ("class A(dict): pass\nclass B:\n    x = 1", [("class inheritance", 1)]),
        ("x = {}\ndel x['a']\ndef f():\n    yield 1", [("'del' statement", 2), ("yield expressions", 4)]),
    ],
)
def test_missing_features_are_found_without_running_the_script(source, features):
    assert unsupported_features(ast.parse(source)) == features


@pytest.mark.parametrize("text", ["[...]", "{...}", "<function 'f'>"])
def test_texts_that_look_like_reprs_are_valid_results(text):
    assert value_of("python", f"result = [{text!r}]") == [text]


def test_no_state_leaks_between_scripts():
    value_of("python", "left = 2")
    with pytest.raises(ScriptError, match="left"):
        value_of("python", "left")


def test_no_state_leaks_with_or_without_a_pause():
    async def main():
        for pause in (None, 0, 0.05):
            assert await run_script(Script("python", "left = 2; left")) == 2
            if pause is not None:
                await asyncio.sleep(pause)
            with pytest.raises(ScriptError, match="left"):
                await run_script(Script("python", "left"))

    asyncio.run(main())


def processes():
    """The process numbers of the only idle worker, and of the monty that it started."""
    (worker,) = scripts._pool("python")._idle
    (monty,) = children_of(worker._process.pid)
    return worker._process.pid, monty


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines)


@pytest.fixture
def fresh_worker():
    scripts._pool("python")._end()
    assert alive("python")


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@linux_only
def test_worker_and_monty_are_behind_the_walls(fresh_worker):
    try:
        walls.check()
    except walls.MissingWallError:
        pytest.skip("no walls on this machine")
    for pid in processes():
        status = status_of(pid)
        assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
    _, monty = processes()
    assert Path(f"/proc/{monty}/exe").readlink().name == "monty"
    assert Path(f"/proc/{monty}/environ").read_bytes() == b""
    files = [file.readlink() for file in Path(f"/proc/{monty}/fd").iterdir()]
    assert {str(file).partition(":")[0] for file in files} == {"pipe", "/dev/null"}


@linux_only
def test_memory_is_released_after_a_script(fresh_worker):
    def megabytes():
        return sum(int(status_of(pid)["VmRSS"].split()[0]) for pid in processes()) / 1024

    before = megabytes()
    source = "left = 'a' * (40 << 20); len(left)"
    assert value_of("python", source, limits=ScriptLimits(seconds=10)) == 40 << 20
    assert megabytes() < before + 10


@linux_only
@pytest.mark.parametrize("which", [0, 1], ids=["worker", "monty"])
def test_a_killed_process_is_replaced(which, fresh_worker):
    os.kill(processes()[which], signal.SIGKILL)
    time.sleep(0.2)
    assert alive("python")


@linux_only
@pytest.mark.parametrize("source", ["1", "while True: pass"], ids=["idle", "busy"])
def test_monty_ends_with_a_killed_worker(source, fresh_worker):
    worker, monty = processes()

    async def kill_while_it_runs():
        running = asyncio.create_task(run_script(Script("python", source, {}, ScriptLimits(seconds=20))))
        await asyncio.sleep(0.2)
        os.kill(worker, signal.SIGKILL)
        return (await asyncio.gather(running, return_exceptions=True))[0]

    assert isinstance(asyncio.run(kill_while_it_runs()), int | SandboxError)
    wait_until_ended([worker, monty])


@linux_only
@pytest.mark.parametrize(
    "source",
    ["'x'.join(['y' * 10**6] * 10**4)", "a = {}\nfor i in range(60): a = {'a': a, 'b': a}\na"],
    ids=["while it runs", "while its result is written"],
)
def test_a_script_that_ends_monty_does_not_affect_the_next(source, fresh_worker):
    before = processes()
    ended, _ = attempt("python", source, SandboxMemoryError)
    assert isinstance(ended, SandboxMemoryError)
    assert alive("python")
    assert not set(before) & set(processes())


def test_a_huge_result_is_too_large():
    large = ScriptLimits(seconds=30, memory_mb=1024)
    ended, _ = attempt("python", "'x' * (70 << 20)", (ScriptError, SandboxMemoryError), limits=large)
    assert isinstance(ended, ScriptError | SandboxMemoryError)
    assert alive("python")


@pytest.mark.parametrize(
    "raised", ["ValueError('x' * 10**6)", "KeyError('x' * 10**6)", "NameError('é' * 10**6)"]
)
def test_long_messages_are_truncated(raised):
    with pytest.raises(ScriptError, match=f"line 1, raised {raised[:5]}") as caught:
        value_of("python", f"raise {raised}")
    assert len(str(caught.value)) < 2100


@pytest.mark.parametrize("base", ["PermissionError", "ValueError"])
def test_an_exception_whose_message_raises_is_named(base):
    source = f"class Mute({base}):\n    def __str__(self): raise KeyError\nraise Mute"
    with pytest.raises(
        (ScriptError, SandboxForbiddenError), match="raised Mute, whose message can't be read"
    ):
        value_of("python", source, "process")


def test_a_wrong_monty_program_is_reported():
    options = {**scripts.LANGUAGES["python"].options(), "program": "/bin/false"}
    pool = scripts.Pool("python", options, scripts.LANGUAGES["python"].libraries())
    with pytest.raises(SandboxError, match="The worker for python scripts did not start"):
        asyncio.run(pool.ask(b"{}", 1))


@pytest.mark.parametrize(
    ("source", "captured", "returns"),
    [
        ("", "", False),
        ("x = 1", "x = 1", False),
        ("x", "__value__ = (x)", False),
        ("é = 1; (é +\n 1)  # sum", "é = 1; __value__ = ((é +\n 1))  # sum", False),
        ("*a, b", "__value__ = (*a, b)", False),
        ("if x: return 1\nx", "if x: __value__ = ( 1); return\nx", True),
        ("return", "return", True),
        ("if x:\r\n  return(x)\r\nelse:\r\n  return {\n}", "if x:\r\n  __value__ = ((x)); return\r\nelse:\r\n  __value__ = ( {\n}); return", True),
        ("def f():\n    return 1", "def f():\n    return 1", False),
        ("x = = 1", "x = = 1", False),
    ],
)  # fmt: skip
def test_the_value_is_captured_line_for_line(source, captured, returns):
    assert _capture_value(source) == (captured, returns)
    assert captured.count("\n") == source.count("\n")


def test_code_that_only_monty_parses_has_a_value(monkeypatch):
    def fails(*_):
        raise SyntaxError

    monkeypatch.setattr("ast.parse", fails)
    assert _capture_value("return 1") == ("return 1", False)


def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_is_bounded():
    names = {"output": nested(100)}
    assert value_of("python", "result = output", names=names) == nested(100)
    assert value_of("python", "output", names=names) == nested(100)
    for source in ("result = [output]", "[output]"):
        with pytest.raises(ScriptError, match="too deep: the limit is 100 levels"):
            value_of("python", source, names=names)
    assert value_of("python", "1", names={"output": nested(300)}) == 1
    with pytest.raises(ConfigError, match="must be JSON"):
        value_of("python", "1", names={"output": nested(100_000)})


@pytest.mark.parametrize(
    ("names", "source", "value"),
    [
        ({}, "1", 1),
        ({"json": 1, "x": 2}, "[json.loads('3'), x]", [3, 2]),
        ({"class": 1, "x": 2}, "x", 2),
        ({"result": 7}, "x = 1", 7),
        ({"n": 2**70, "f": -0.0, "e": ""}, "[n, f, e]", [2**70, -0.0, ""]),
        ({"text": "[1]\n\x00\u2028'\"\\"}, "text", "[1]\n\x00\u2028'\"\\"),
    ],
)
def test_names_keep_their_meaning(names, source, value):
    assert value_of("python", source, names=names) == value


def test_result_is_undefined_before_its_assignment():
    with pytest.raises(ScriptError, match="'result' is not defined"):
        value_of("python", "x = result\nresult = x")


@pytest.mark.parametrize("source", ["count += 1", "result += 1", "result += 1\nreturn result"])
@pytest.mark.parametrize("sandbox", BOTH)
def test_an_undefined_name_in_the_first_line_is_an_error_there(source, sandbox):
    with pytest.raises(ScriptError, match=f"line 1, raised NameError: name '{source[: source.index(' ')]}'"):
        value_of("python", source, sandbox)


def test_scripts_can_catch_name_errors():
    source = "try:\n    gone\nexcept NameError:\n    pass\ntry:\n    lost(1, a=[2])\nexcept NameError:\n    result = 'caught'"
    assert value_of("python", source) == "caught"


def test_errors_in_eval_name_the_line_of_the_call():
    ended, _ = attempt("python", "x = 1\nexec('import socket')\nresult = 1", SandboxForbiddenError)
    assert isinstance(ended, SandboxForbiddenError)
    assert "line 2," in str(ended)
