# ruff: noqa: E501 (a table of drafts: one a line reads better than folded)

from __future__ import annotations

import asyncio
import math
import re
import time

import pytest

from redraft.errors import ConfigError, SandboxError, SandboxForbiddenError
from redraft.evaluate import command as command_module
from redraft.evaluate.command import command
from redraft.execution import CommandOutcome
from redraft.sandbox import jail
from redraft.sandbox.jail import ProcessJail
from support.evaluation import RUN, criterion, evaluate

F = "```"


def judge(output, **config):
    return evaluate(command(criterion("command", **config), ProcessJail()), output)


def messages(evaluation):
    return [issue.message for issue in evaluation.issues]


DOUBLE = "def f(x):\n    return x * 2\n"


PYTHON_DRAFTS = [
        (DOUBLE, {"calls": [{"call": "f(3)", "expect": 6}]}, 1.0, []),
        (DOUBLE, {"calls": [["f(3)", 6], ("f(4)", 9)]}, 0.5, ["f(4) returned 8, expected 9"]),
        (
            DOUBLE,
            {"calls": [("f(None)", 1)]},
            0.0,
            ["f(None) raised TypeError: unsupported operand type(s) for *: 'NoneType' and 'int'; expected 1"],
        ),
        (DOUBLE, {"calls": [("g(1)", 1), ("f(1)", 2)]}, 0.5, ["g(1) raised NameError: name 'g' is not defined; expected 1"]),
        ("def f(x): return 'a' * 500 + x", {"calls": [("f('b')", "a" * 500 + "c")]}, 0.0, [f"f('b') returned ...{'a' * 100}b', expected ...{'a' * 100}c'"]),
        (DOUBLE, {"calls": [("y", 4)], "setup": "y = f(2)"}, 1.0, []),
        (DOUBLE, {"calls": [("f(1)", 2)], "setup": "g()"}, 0.0, ["The setup after the draft raised NameError: name 'g' is not defined"]),
        (f"Sure:\n{F}python\n{DOUBLE}{F}\n", {"calls": [("f(1)", 2)]}, 1.0, []),
        ("def f(:", {"calls": [("f(1)", 2)]}, 0.0, ["The draft does not parse: invalid syntax"]),
        ("import nothing_such", {"calls": [("1", 1)]}, 0.0, ["The draft raised ModuleNotFoundError: No module named 'nothing_such'"]),
        ("print('6')\nprint('passed')", {"calls": [("f(3)", 6)]}, 0.0, ["f(3) raised NameError: name 'f' is not defined; expected 6"]),
        ("if __name__ == '__main__': input()", {"calls": [("1", 1)]}, 1.0, []),
        ("def f(x): raise SystemExit(0)", {"calls": [("f(3)", 6)]}, 0.0, ["f(3) raised SystemExit: 0; expected 6"]),
        ("exit(0)", {"calls": [("f(3)", 6)]}, 0.0, ["The draft raised SystemExit: 0"]),
        ("import os; os._exit(0)", {"calls": [("1", 1)]}, 0.0, ["The draft exited with 0 before its checks were through"]),
        ("import os; os.abort()", {"calls": [("1", 1)]}, 0.0, ["The draft was ended by SIGABRT before its checks were through"]),
        ("import os; os.kill(os.getpid(), 40)", {"calls": [("1", 1)]}, 0.0, ["The draft was ended by signal 40 before its checks were through"]),
        ("while True: pass", {"calls": [("1", 1)], "timeout": 0.3}, 0.0, ["The draft ran longer than its limit of 0.3 s (timeout)"]),
        ("def f(x):\n    while x: pass", {"calls": [("f(0)", None), ("f(1)", None)], "timeout": 0.5}, 0.0, ["The draft ran longer than its limit of 0.5 s (timeout); in f(1)"]),
        ("import os\ndef f(x): os._exit(3)", {"tests": "def test_f():\n    f(1)"}, 0.0, ["The draft exited with 3 before its checks were through; in test_f()"]),
        ("import os\nos.write(2, b'\\nredraft-step:99\\n')\nos._exit(3)", {"tests": "assert 1"}, 0.0, ["The draft exited with 3 before its checks were through"]),
        ("while True: print('x' * 99)", {"calls": [("1", 1)], "output_limit": 10_000}, 0.0, ["The draft printed more than its limit of 10,000 bytes (output_limit)"]),
        (f"print('x' * 1_000_000)\n{DOUBLE}", {"calls": [("f(1)", 2)]}, 1.0, []),
        (DOUBLE, {"tests": "def test_f():\n    print('x' * 1_000_000)\n    assert f(1) == 2"}, 1.0, []),
        ("import os\nos.kill(os.getpid(), 9)", {"calls": [("1", 1)]}, None, ["Not judged: the draft was killed from outside, most likely because the machine ran out of memory"]),
        # A byte order mark and carriage returns.
        (f"\ufeff{DOUBLE}", {"calls": [("f(1)", 2)]}, 1.0, []),
        (f"\ufeff{DOUBLE}", {"calls": [("f(1)", 2)], "raw": True}, 1.0, []),
        (f"\ufeff{F}python\r\n{DOUBLE}{F}\r\n", {"tests": "assert f(1) == 2"}, 1.0, []),
        # Nothing that differs from run to run.
        ("async def f(x): pass", {"calls": [("f(1)", 1)]}, 0.0, ["f(1) returned <coroutine object f>, expected 1"]),
        ("def f(x): return [object()]", {"tests": "assert f(1) == 2"}, 0.0, ["f(1) returned [<object object>], expected 2"]),
        ("def f(x): raise ValueError(object())", {"calls": [("f(1)", 1)]}, 0.0, ["f(1) raised ValueError: <object object>; expected 1"]),
        ("def f(x): return set('dbcaefgh')", {"calls": [("f(1)", 1)]}, 0.0, ["f(1) returned {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'}, expected 1"]),
        ("while True: print('x' * 9999)", {"calls": [("1", 1)]}, 0.0, ["The draft printed more than its limit of 67,108,864 bytes (output_limit)"]),
        (
            "def f(): return open('/etc/passwd').read()",
            {"calls": [("f()", "")]},
            0.0,
            ["f() raised PermissionError: [Errno 13] Permission denied: '/etc/passwd'; expected ''"],
        ),
        # A draft that goes through the process of its checks gains nothing: what is expected is not there.
        (
            "import sys\nmain = sys.modules['__main__']\nmain.plain = lambda value: 6",
            {"calls": [("1", 7)]},
            0.0,
            ["1 is 1, expected 7"],
        ),
        ("import sys\nsys.modules['__main__'].run_steps = lambda inputs: 1", {"calls": [("1", 1)]}, 1.0, []),
        (
            "import sys\nmain = sys.modules['__main__']\nmain._take = lambda *given: {'value': 6}",
            {"calls": [("1", 7)]},
            0.0,
            ["1 is None, expected 7"],
        ),
        (
            "import sys\nsys.modules['__main__']._take = lambda *given: 'passed'",
            {"calls": [("1", 7)]},
            0.0,
            ["The draft interfered with its checks"],
        ),
        (
            "import sys\nsys.modules['__main__']._take = lambda *g: {'raised': 'x' * 10**5, 'message': [1], 'line': 'a'}",
            {"calls": [("1", 7)]},
            0.0,
            None,
        ),
        (DOUBLE, {"tests": "assert f(3) == 6\nassert 8 == f(4)"}, 1.0, []),
        (DOUBLE, {"tests": "assert f(3) == 7\nassert f(1) > 1"}, 0.5, ["f(3) returned 6, expected 7"]),
        (DOUBLE, {"tests": "assert f(1) > 5, 'too small'"}, 0.0, ["f(1) > 5 is false: f(1) returned 2; too small"]),
        (DOUBLE, {"tests": "import math\nx = f(2)\nassert math.isclose(x, 4)\nassert x"}, 1.0, []),
        (DOUBLE, {"tests": "for n in range(3):\n    assert f(n) == n"}, 0.0, ["for n in range(3): assert f(n) == n failed: f(n) returned 2, expected 1 (with n = 1)"]),
        (DOUBLE, {"tests": "def test_f():\n    assert f(1) == 2\ndef test_g():\n    assert f(1) == 3"}, 0.5, ["test_g() failed: f(1) returned 2, expected 3"]),
        (DOUBLE, {"tests": "def check(c):\n    assert c(1) == 2\n    assert 7 == c(3)\ncheck(f)"}, 0.0, ["check(f) failed: c(3) returned 6, expected 7"]),
        (DOUBLE, {"setup": "def near(a, b):\n    assert abs(a - b) < 1", "tests": "near(f(1), 5)"}, 0.0, ["near(f(1), 5) failed: abs(a - b) < 1 is false: abs(a - b) returned 3 (with a = 2, b = 5)"]),
        (DOUBLE, {"tests": "def test_f():\n    assert isinstance(f(1), str) and undefined"}, 0.0, ["test_f() failed: isinstance(f(1), str) returned False, expected True (with f(1) = 2)"]),
        (DOUBLE, {"tests": "def test_f():\n    assert f('a' * 500) == 1"}, 0.0, [f"test_f() failed: f('a' * 500) returned '{'a' * 96}..., expected 1"]),
        ("class C:\n    def __str__(self): 1 / 0\n    __repr__ = __format__ = __ne__ = __str__\ndef f(x): return C()", {"tests": "def test_f():\n    x = f(1)\n    assert x == 3, x"}, 0.0, ["test_f() failed: x is a C whose repr raises ZeroDivisionError, expected 3; its message can't be shown"]),
        (DOUBLE, {"tests": "def test_f():\n    assert [7] == [f(3)]"}, 0.0, ["test_f() failed: [f(3)] is [6], expected [7] (with f(3) = 6)"]),
        ("def f(x):\n    assert x > 5\n    return x", {"tests": "def test_f():\n    assert f(1) == 1"}, 0.0, ["test_f() raised AssertionError; in assert f(1) == 1"]),
        (DOUBLE, {"tests": "def check(c):\n    assert c(1) == 2\ncheck(f)"}, 1.0, []),
        (DOUBLE, {"tests": "from nowhere import x\nassert f(1) == 2"}, None, ["Not judged: the tests can't import 'nowhere'; without pytest, they have the standard library and 'files' only"]),
        (DOUBLE, {"tests": "try:\n    f(None)\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError"}, 1.0, []),
]  # fmt: skip


@pytest.fixture(scope="module")
def verdicts():
    """Judge them concurrently: one after the other would take long."""

    async def main():
        jail = ProcessJail()
        judges = [command(criterion("command", **config), jail) for _, config, _, _ in PYTHON_DRAFTS]
        drafts = [draft for draft, *_ in PYTHON_DRAFTS]
        return await asyncio.gather(*(judge(draft, RUN) for judge, draft in zip(judges, drafts, strict=True)))

    return asyncio.run(main())


@pytest.mark.parametrize("row", range(len(PYTHON_DRAFTS)), ids=lambda row: str(PYTHON_DRAFTS[row][:2]))
def test_python_drafts(row, verdicts):
    _, _, score, complaints = PYTHON_DRAFTS[row]
    evaluation = verdicts[row]
    assert evaluation.overall_score == score
    assert evaluation.satisfactory is (score is not None and score >= 0.7)
    if complaints is not None:
        assert messages(evaluation) == complaints
    assert all(issue.criterion == "it" for issue in evaluation.issues)
    assert all(len(message) < 1000 for message in messages(evaluation))


VALUES = [
    ("1", 1, True), ("1", 1.0, True), ("1", 2, False), ("1", True, True), ("True", 1, True), ("'1'", 1, False),
    ("0.1 + 0.2", 0.3, True), ("0.1 + 0.2 - 0.3", 0, True), ("0.3001", 0.3, False), ("1e300 * 1e10", math.inf, True),
    ("float('nan')", math.nan, True), ("float('nan')", 1.0, False), ("10**4000", 10**4000, True),
    ("10**4000", 10**4000 + 1, False), ("2**60 + 1", 2**60, False),
    ("None", None, True), ("None", 0, False), ("''", None, False), ("'ü'", "ü", True),
    ("(1, 2)", (1, 2), True), ("(1, 2)", [1, 2], True), ("[1, 2]", (1, 2), True), ("[2, 1]", [1, 2], False),
    ("[]", (), True), ("[]", {}, False), ("[[0.1 + 0.2]]", [(0.3,)], True),
    ("{3, 1, 2}", {1, 2, 3}, True), ("frozenset([1])", {1}, True), ("{1}", [1], False), ("set()", set(), True),
    ("set()", {}, False), ("{(1, 2), (3,)}", {(3,), (1, 2)}, True),
    ("{'b': 1, 'a': 2}", {"a": 2, "b": 1}, True), ("{1: 'a'}", {1: "a"}, True), ("{1: 'a'}", {"1": "a"}, False),
    ("{'a': {1}}", {"a": {1}}, True), ("{'__set__': [1]}", {1}, False), ("{'__set__': [1]}", {"__set__": [1]}, True),
    ("{'a': 1}", {"a": 1, "b": 2}, False), ("b'a'", b"a", True), ("b'a'", "a", False), ("1j", 1j, True),
    ("__import__('collections').Counter('aab')", {"a": 2, "b": 1}, True),
    ("__import__('collections').namedtuple('P', 'x y')(1, 2)", (1, 2), True),
    ("__import__('enum').IntEnum('E', 'a').a", 1, True),
    ("object()", None, False), ("range(3)", [0, 1, 2], False), ("(x for x in [1])", [1], False),
    ("type('L', (), {'__eq__': lambda s, o: True})()", 1, False),
    ("type('L', (int,), {'__eq__': lambda s, o: True})(5)", 6, False),
    ("type('L', (str,), {'__eq__': lambda s, o: True})('5')", "6", False),
    ("type('L', (), {'__repr__': lambda s: 1/0})()", 1, False),
]  # fmt: skip


def test_values_are_compared_as_in_python(monkeypatch):
    monkeypatch.setattr(command_module, "MAX_FAILURES", len(VALUES))
    evaluation = judge("", calls=[(call, expected) for call, expected, _ in VALUES])
    failing = [re.split(" (?:returned|is) ", message)[0] for message in messages(evaluation)]
    wanted = [call for call, _, equal in VALUES if not equal]
    assert evaluation.overall_score == 1 - len(wanted) / len(VALUES)
    assert failing == wanted


@pytest.mark.parametrize("setup", ["a = []; a.append(a)", "a = []\nfor _ in range(10**5): a = [a]"])
def test_recursive_values_equal_nothing(setup):
    evaluation = judge("", calls=[("a", [[]]), ("1", 1)], setup=setup)
    assert evaluation.overall_score == 0.5


def test_line_numbers_are_those_of_the_draft():
    fenced = f"Here:\n\n{F}python\ndef f(x):\n    return 1 / x\n{F}\n"
    assert [issue.line for issue in judge(fenced, calls=[("f(0)", 1)]).issues] == [5]
    assert [issue.line for issue in judge("x = 1\ny = (", calls=[("1", 1)]).issues] == [2]
    ruff = judge(
        f"{F}python\nimport os\n{F}", command=["ruff", "check", "--output-format", "concise", "{file}"]
    )
    assert [(issue.line, "F401" in issue.message) for issue in ruff.issues] == [(2, True)]


LINT = ["ruff", "check", "--output-format", "concise", "{file}"]


@pytest.mark.parametrize(
    ("draft", "config", "score", "message"),
    [
        ("x = 1\n", {"command": LINT, "file": "draft.py"}, 1.0, None),
        ("import os\n", {"command": LINT}, 0.0, "F401"),
        ("a\n", {"command": ["grep", "-q", "a", "{file}"], "file": "notes/a.txt"}, 1.0, None),
        ("b\n", {"command": ["grep", "-q", "a", "{file}"], "file": "a.txt"}, 0.0, "grep -q a a.txt exited with 1"),
        (f"{F}python\nx\n{F}", {"command": ["grep", "-q", "```", "{file}"], "file": "a.md", "raw": True}, 1.0, None),
        (f"{F}python\nx\n{F}", {"command": ["grep", "-q", "```", "{file}"], "file": "a.py", "raw": True}, 1.0, None),
        (f"{F}js\nx\n{F}", {"command": ["sh", "-c", 'test "$(wc -c < a.js)" = 2'], "file": "a.js"}, 1.0, None),
        (f"Here:\n{F}js\nx\n{F}", {"command": ["grep", "-q", "```", "{file}"], "file": "a.js"}, 1.0, None),
        ({"a": 1}, {"command": ["python", "-c", "import json; json.load(open('d.json'))"], "file": "d.json"}, 1.0, None),
        ("x", {"command": ["sh", "-c", "printf '\\033[31mred\\033[0m \\033]8;;u\\007link'; exit 3"]}, 0.0, "sh -c printf '\\033[31mred\\033[0m \\033]8;;u\\007link'; exit 3 exited with 3: red link"),
        ("x", {"command": ["sh", "-c", "yes | head -c 9000; exit 1"]}, 0.0, "y\ny"),
        ("x", {"command": ["sh", "-c", "kill -SEGV $$"]}, 0.0, "sh -c kill -SEGV $$ was ended by SIGSEGV"),
        ("x", {"command": ["sleep", "9"], "timeout": 0.3}, 0.0, "sleep 9 ran longer than its limit of 0.3 s (timeout)"),
        ("x", {"command": ["yes"], "output_limit": 99}, 0.0, "yes printed more than its limit of 99 bytes (output_limit)"),
        ("x", {"command": ["sh", "-c", "yes | head -c 70000000"], "output_limit": 80_000_000}, 1.0, None),
        ("x", {"command": ["sh", "-c", "seq 1 20000; exit 0"]}, 1.0, None),
        ("x", {"command": ["sh", "-c", "seq 1 90000; echo why; exit 1"]}, 0.0, "\n90000\nwhy"),
        ("x", {"command": ["sh", "-c", "echo why; seq 1 90000; exit 1"]}, 0.0, "exited with 1: why\n1\n2\n"),
        ("x", {"command": ["sh", "-c", "echo why; seq 1 90000 >&2; exit 1"]}, 0.0, "exited with 1: why\n1\n2\n"),
        ("x", {"command": ["sh", "-c", "seq 1 90000; echo 'draft.py:1: why'; exit 1"]}, 0.0, "why"),
        ("x", {"command": ["python", "-m", "nothing_such", "{file}"]}, None, "No module named nothing_such"),
        ("x", {"command": ["python", "-m", "nothing_such.here"]}, None, "No module named 'nothing_such'"),
        ("import nothing_such", {"command": ["python", "{file}"]}, 0.0, "No module named 'nothing_such'"),
        ("x", {"command": ["sh", "-c", "kill -KILL $$"]}, None, "was killed from outside"),
        ("print(object())\nf()", {"command": ["python", "-c", "import os, runpy; runpy.run_path(os.path.abspath('draft.py'))"]}, 0.0, ": <object object>\nTraceback"),
        ("raise OSError", {"command": ["python", "-c", "import os, runpy; runpy.run_path(os.path.abspath('draft.py'))"]}, 0.0, 'File "draft.py", line 1'),
        ("\ufefftea\r\n", {"command": ["grep", "-qx", "tea", "{file}"], "file": "a.txt"}, 1.0, None),
        ("tea\r\n", {"command": ["grep", "-qx", "tea", "{file}"], "file": "a.txt", "raw": True}, 0.0, "exited with 1"),
        ("x", {"command": ["sh", "-c", "exit 127"]}, None, "Not judged: sh -c exit 127 could not be run"),
        ("x", {"command": ["cat", "other"], "files": {"other": "y"}}, 1.0, None),
        ("x", {"command": ["cat", "/etc/hostname"]}, 0.0, "Permission denied"),
    ],
)  # fmt: skip
def test_programs(draft, config, score, message):
    evaluation = judge(draft, **config)
    assert evaluation.overall_score == score
    assert evaluation.satisfactory is (score == 1.0)
    if message is None:
        assert evaluation.issues == ()
    else:
        assert message in messages(evaluation)[0]
        assert len(messages(evaluation)[0]) < 2500


def test_time_spent_waiting_for_a_processor_does_not_count(monkeypatch):
    monkeypatch.setattr(jail, "_waited", lambda _pid: time.perf_counter())  # as if it did nothing else
    config = {"command": ["sh", "-c", "sleep 0.5; test -s draft.py"], "timeout": 0.1}
    assert judge("x", **config).overall_score == 1.0
    monkeypatch.setattr(command_module, "PATIENCE", 0.2)
    (why,) = messages(judge("x", **config | {"command": ["sleep", "60"]}))
    assert why.startswith("Not judged: The machine is busy: the jailed child waited 0 s for a processor")


def test_a_child_that_does_not_begin_is_not_judged(monkeypatch):
    monkeypatch.setattr(jail, "_START_SECONDS", 1e-6)  # no process begins so soon
    (why,) = messages(judge("x", command=["true"]))
    assert why.startswith("Not judged: The jailed child did not begin its work within 1e-06 s")


def test_draft_too_large_for_a_file():
    evaluation = judge("x" * ((16 << 20) + 1), command=["true"], file="draft.txt")
    assert evaluation.overall_score == 0.0
    assert messages(evaluation) == [
        "The file 'draft.txt' may have at most 16,777,216 bytes, but it has 16,777,217."
    ]


def test_readable_paths(tmp_path):
    (tmp_path / "words").write_text("x")
    config = {"command": ["grep", "-q", "-f", str(tmp_path / "words"), "{file}"]}
    assert judge("x", **config).overall_score == 0.0
    assert judge("x", **config, readable=[tmp_path]).overall_score == 1.0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "needs one of"),
        ({"comand": ["ruff"]}, "did you mean 'command'?"),
        ({"calls": [("1", 1)], "tests": "assert 1"}, r"got 'calls' and 'tests'"),
        ({"calls": [("1", 1)], "timout": 3}, "did you mean 'timeout'?"),
        ({"calls": [("1", 1)], "file": "x.py"}, "has no option 'file'"),
        ({"command": ["ruff"], "setup": "x"}, "has no option 'setup'"),
        ({"calls": []}, "at least one call"),
        ({"calls": "f(3)"}, "at least one call"),
        ({"calls": [{"call": "f(3)"}]}, "a call must be"),
        ({"calls": [{"call": "f(3)", "expected": 6}]}, "did you mean 'expect'?"),
        ({"calls": [("f(3)", 6, 7)]}, "a call must be"),
        ({"calls": [(3, 6)]}, "a call must be"),
        ({"calls": [("f(3", 6)]}, "is not Python"),
        ({"calls": [("x = 3", 6)]}, "is not Python"),
        ({"calls": [("f(3)", object())]}, "can't be compared"),
        ({"calls": [("1", 1)], "setup": "def f(:"}, "is not Python"),
        ({"calls": [("1", 1)], "setup": 3}, "setup must be a string"),
        ({"tests": "def f(:"}, "is not Python"),
        ({"tests": "import os"}, "nothing that could fail"),
        ({"tests": [3]}, "tests must be Python source"),
        ({"command": "ruff check"}, "command must be a list"),
        ({"command": []}, "command must be a list"),
        ({"command": ["ruff", 3]}, "a list of strings"),
        ({"command": ["ruff", "a\0"]}, "a list of strings"),
        ({"command": ["no-such-linter"]}, "'no-such-linter' is not installed"),
        ({"command": ["ruff"], "file": "../x"}, "stay inside"),
        ({"command": ["ruff"], "file": "/x"}, "stay inside"),
        ({"command": ["ruff"], "file": 3}, "stay inside"),
        ({"command": ["ruff"], "files": {"../x": ""}}, "stay inside"),
        ({"command": ["ruff"], "files": {"x": 3}}, "must be text"),
        ({"command": ["ruff"], "files": ["x"]}, "files must map"),
        ({"command": ["ruff"], "files": {"x/": ""}}, "'x/' names a folder"),
        ({"command": ["ruff"], "files": {"n" * 300: ""}}, "is too long"),
        ({"command": ["ruff"], "files": {"draft.py/x": ""}}, "cannot be both a file and the folder"),
        ({"command": ["ruff"], "file": "n" * 300}, "is too long"),
        ({"calls": [("1", 1)], "files": {"a": "", "a/b": ""}}, "cannot be both a file and the folder"),
        ({"command": ["ruff"], "timeout": 0}, "timeout must be"),
        ({"command": ["ruff"], "timeout": "10"}, "timeout must be"),
        ({"command": ["ruff"], "timeout": math.nan}, "timeout must be"),
        ({"command": ["ruff"], "timeout": True}, "timeout must be"),
        ({"command": ["ruff"], "readable": "/x"}, "readable must be"),
        ({"command": ["ruff"], "readable": 3}, "readable must be"),
    ],
)
def test_invalid_configuration(config, message):
    with pytest.raises(ConfigError, match=message):
        command(criterion("command", **config), ProcessJail())


class Scripted:
    """A runner that answers what it was told to, and remembers what it was asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    async def __call__(self, command, /):
        self.asked.append(command)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_expected_values_never_enter_the_jail():
    runner = Scripted(CommandOutcome(0, completed=True, result={"outcomes": [{"value": 1}, {"value": 2}]}))
    calls = criterion("command", calls=[("f(3)", 123456789), ("f(4)", 987654321)])
    tests = criterion("command", tests="assert f(3) == 123456789\nassert 987654321 == f(4)")
    for given in (calls, tests):
        asyncio.run(command(given, runner)("def f(x): return x", RUN))
    for asked in runner.asked:
        assert "f(3)" in str(asked)
        assert "123456789" not in str(asked)
        assert "987654321" not in str(asked)


def test_missing_jail_is_an_error():
    given = criterion("command", calls=[("1", 1)])
    with pytest.raises(SandboxForbiddenError):
        evaluate(command(given, Scripted(SandboxForbiddenError("no Landlock"))), "x = 1")
    evaluation = evaluate(command(given, Scripted(SandboxError("did not start"))), "x = 1")
    assert (evaluation.overall_score, messages(evaluation)) == (None, ["Not judged: did not start"])
