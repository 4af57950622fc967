# ruff: noqa: E501 (a table of tests: one a line reads better than folded)

from __future__ import annotations

import asyncio
from math import isclose

import pytest

from redraft.errors import ConfigError
from redraft.evaluate.command import command, runs_program
from redraft.sandbox.jail import ProcessJail
from support.evaluation import RUN, criterion, evaluate

MEDIAN = "def median(xs):\n    xs = sorted(xs)\n    return xs[len(xs) // 2]\n"
"""Wrong for an even number of values, and for none."""


def judge(output, **config):
    return evaluate(command(criterion("command", **config), ProcessJail()), output)


def messages(evaluation):
    return [issue.message for issue in evaluation.issues]


# --- assertions ---

ASSERTIONS = [
    ("assert 0 < median([1]) < 1", ["median([1]) < 1 is false: median([1]) returned 1"]),
    ("assert 2 < median([1]) < 1 / 0", ["2 < median([1]) is false: median([1]) returned 1"]),
    ("n = []\ndef tick():\n    n.append(0)\n    return len(n)\nfor m in [5]:\n    assert 0 < tick() < 1\nassert len(n) == 1", ["for m in [5]: assert 0 < tick() < 1 failed: tick() < 1 is false: tick() returned 1"]),
    ("assert not median([1])", ["median([1]) returned 1, expected something false"]),
    ("assert not median([1]) == 1", ["median([1]) == 1 is True, expected False (with median([1]) = 1)"]),
    ("assert median([0])", ["median([0]) returned 0, expected something true"]),
    ("assert median([1]) and median([0])", ["median([0]) returned 0, expected something true"]),
    ("assert median([1]) is None", ["median([1]) returned 1, expected None"]),
    ("assert 3 in [median([1])]", ["3 in [median([1])] is false: [median([1])] is [1] (with median([1]) = 1)"]),
    ("x = 3\nassert x == 4", ["x is 3, expected 4"]),
    ("x = 'a  ' + str(median([1]))\nassert x == 'a 1'", ["x is 'a  1', expected 'a 1'"]),
    ("if median:\n    raise ValueError('a:\\n  b')", ["if median: raise ValueError('a:\\n  b') raised ValueError: a:\\n  b; in raise ValueError('a:\\n  b')"]),
    ("x = 3\nassert x == x + 1", ["x is 3, expected 4"]),
    ("x, y = 3, 4\nassert x == y", ["x is 3, expected 4"]),
    ("x, y = [1, 2], 1\nassert median(x) == y", ["median(x) returned 2, expected 1 (with x = [1, 2])"]),
    ("assert [median([n]) for n in range(99)] == [*range(98), 99]", ["[median([n]) for n in range(99)] is ... 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98], expected ... 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 99]"]),
    ("assert 'a' * 500 + str(median([1])) == 'a' * 500 + '2'", ["'a' * 500 + str(median([1])) is ..." + "a" * 50 + "1', expected ..." + "a" * 50 + "2' (with median([1]) = 1)"]),
    ("x = 0\nassert x", ["x is 0, expected something true"]),
    ("assert sorted([median([2])]) == [median([1])]", ["sorted([median([2])]) returned [2], expected [1] (with median([2]) = 2, median([1]) = 1)"]),
    ("assert (0 if True else median([])) == 1", ["0 if True else median([]) is 0, expected 1"]),
    ("assert any(median([n]) for n in [0]) == 1, 'none'", ["any((median([n]) for n in [0])) returned False, expected 1"]),
    ("def check(c):\n    for x in [[1], []]:\n        assert c(x) == x[0]\ncheck(median)", ["check(median) raised IndexError: list index out of range; in assert c(x) == x[0] (with x = [])"]),
    ("def near(a, b):\n    assert abs(a - b) < 1, 'far'\ndef test_it():\n    near(median([1, 9]), 5)", ["test_it() failed: abs(a - b) < 1 is false: abs(a - b) returned 4 (with a = 9, b = 5); far; in near(median([1, 9]), 5)"]),
    ("def test_it():\n    if median([1]) != 2:\n        raise AssertionError('no 2')", ["test_it() failed: no 2"]),
    ("async def test_it():\n    async def later(): return median([1])\n    assert await later() == 2", ["test_it() failed: await later() returned 1, expected 2"]),
    ("class TestIt:\n    def test_a(self):\n        assert median([1]) == 2", ["TestIt.test_a() failed: median([1]) returned 1, expected 2"]),
    ("import unittest\nclass It(unittest.TestCase):\n    def setUp(self): self.x = [1]\n    def test_a(self):\n        self.assertEqual(median(self.x), 2)", ["It.test_a() failed: 1 != 2; in self.assertEqual(median(self.x), 2)"]),
    ("import unittest\nclass It(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n        self.assertEqual(median([1]), 2)", ["It.test_a() failed: 1 != 2; in self.assertEqual(median([1]), 2)"]),
    ("class TestIt:\n    async def test_a(self):\n        assert median([1]) == 2", ["TestIt.test_a() failed: median([1]) returned 1, expected 2"]),
    ("from draft import mean\nassert mean([1]) == 1", ["from draft import mean raised ImportError: cannot import name 'mean' from 'draft' (draft.py)", "mean([1]) raised NameError: name 'mean' is not defined; expected 1"]),
    ("for n in range(9):\n    assert len(str(median([n]))) == 2, n", ["for n in range(9): assert len(str(median([n]))) == 2, n failed: len(str(median([n]))) returned 1, expected 2 (with n = 0, median([n]) = 0); 0"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def verdicts():
    """Judge them concurrently: one after the other would take long."""

    async def main():
        judges = [command(criterion("command", tests=tests), ProcessJail()) for tests, _ in ASSERTIONS]
        return await asyncio.gather(*(judge(MEDIAN, RUN) for judge in judges))

    return asyncio.run(main())


@pytest.mark.parametrize("row", range(len(ASSERTIONS)), ids=lambda row: ASSERTIONS[row][0])
def test_a_failure_names_the_assertion_and_its_values(row, verdicts):
    assert messages(verdicts[row]) == ASSERTIONS[row][1]
    assert verdicts[row].overall_score < 0.7


def test_the_first_few_failures_are_shown():
    evaluation = judge(MEDIAN, tests="\n".join(f"assert median([{n}]) == -1" for n in range(8)))
    assert messages(evaluation)[4:] == ["median([4]) returned 4, expected -1", "3 more checks failed"]
    evaluation = judge(MEDIAN, tests="\n".join(f"assert median([{n}]) == -1" for n in range(6)))
    assert messages(evaluation)[5:] == ["1 more check failed"]


SKIPPED = "class It(unittest.TestCase):\n    @unittest.skip('later')\n    def test_a(self): pass\n"


def test_what_cannot_fail_is_no_test():
    tests = "'''Tests.'''\nassert median([1]) == 2\nif __name__ == '__main__':\n    print()\n"
    assert judge(MEDIAN, tests=tests).overall_score == 0.0
    tests = (
        f"import unittest\n{SKIPPED}    def test_b(self): self.assertEqual(median([1]), 1)\nunittest.main()"
    )
    assert judge(MEDIAN, tests=tests).issues == ()


def test_a_skipped_test_does_not_count():
    judged = judge(
        MEDIAN, tests=f"import unittest\n{SKIPPED}    def test_b(self): self.assertEqual(median([1]), 2)"
    )
    assert (judged.overall_score, messages(judged)) == (
        0.0,
        ["It.test_b() failed: 1 != 2; in self.assertEqual(median([1]), 2)"],
    )
    judged = judge(MEDIAN, tests=f"import unittest\n{SKIPPED}")
    assert (judged.overall_score, messages(judged)) == (None, ["Not judged: every test was skipped"])
    skips = "import unittest\ndef median(xs):\n    raise unittest.SkipTest"
    assert judge(skips, tests="def test_it():\n    assert median([1]) == 1").overall_score == 0.0


# --- functions ---

CASES = [([3, 1, 2], 2), ([4, 1], 2.5)]


def near(a, b):
    assert isclose(a, b), "not near"


def test_cases(median):
    for values, expected in CASES:
        assert median(values) == expected


def test_near(median, off: float = 0.5):  # noqa: PT028 (as a test of a draft, it may have one)
    near(median([1, 2]), 1 + off)


async def test_later(median):
    await asyncio.sleep(0)
    assert median([7]) == 7


test_cases.__test__ = test_near.__test__ = test_later.__test__ = (
    False  # tests of a draft, not of this project
)


def test_functions():
    evaluation = judge(MEDIAN, tests=[test_cases, test_near, test_later])
    assert evaluation.overall_score == 1 / 3
    assert messages(evaluation) == [
        "test_cases(median) failed: median(values) returned 4, expected 2.5 (with values = [4, 1])",
        "test_near(median) failed: isclose(a, b) returned False, expected True (with a = 2, b = 1.5); not near; in near(median([1, 2]), 1 + off) (with off = 0.5)",
    ]
    assert judge("x = 1", tests=test_near).issues == (
        "test_near(median) raised NameError: name 'median' is not defined",
    )


def test_a_function_may_use_what_is_around_it():
    wanted = 7

    def test_seven(median):
        assert median([wanted]) == wanted + 1

    assert messages(judge(MEDIAN, tests=test_seven)) == [
        "test_seven(median) failed: median([wanted]) returned 7, expected 8 (with wanted = 7)"
    ]


unknown_to_a_jail = object()


def takes_what_no_jail_knows():
    assert unknown_to_a_jail


@pytest.fixture
def decorated():
    assert decorated


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            takes_what_no_jail_knows,
            "'takes_what_no_jail_knows' uses 'unknown_to_a_jail', which can't be taken",
        ),
        (lambda median: median, "must be a function defined by def"),
        (eval("lambda: 0"), "can't be read"),  # noqa: S307 (a function without source)
        (len, "tests must be Python source"),
        ([], "tests is empty"),
        ("def test_it(median):\n    assert median([1]) == 1", "nothing calls 'test_it' as pytest would"),
        (
            "class TestIt:\n    def setup_method(self): pass\n    def test_it(self): pass",
            "nothing calls 'setup_method'",
        ),
        ("class TestIt(Base):\n    def test_it(self): pass", "nothing calls 'TestIt' as pytest would"),
    ],
)
def test_functions_that_cannot_be_tests(test, message):
    with pytest.raises(ConfigError, match=message):
        command(criterion("command", tests=test), ProcessJail())


def test_a_function_may_not_use_what_has_no_value_yet():
    def test_it(median):
        assert median([1]) == later

    with pytest.raises(ConfigError, match="uses 'later', which can't be taken into the jail"):
        command(criterion("command", tests=test_it), ProcessJail())
    later = 1


# --- files ---


def test_files(tmp_path):
    (tmp_path / "helpers.py").write_text("def close(a, b):\n    assert abs(a - b) < 1e-9, 'too far'\n")
    path = tmp_path / "test_median.py"
    path.write_text(
        "from median import median\nfrom helpers import close\n\n"
        "def test_odd():\n    assert median([3, 1, 2]) == 2\n\n"
        "def test_even():\n    close(median([4, 1]), 2.5)\n"
    )
    for given in (path, str(path), [path], (str(path),)):
        config = {"tests": given, "file": "median.py"}
        assert not runs_program(criterion("command", **config))
    evaluation = judge(MEDIAN, **config)
    assert evaluation.overall_score == 0.5
    assert messages(evaluation) == [
        "test_even() failed: abs(a - b) < 1e-09 is false: abs(a - b) returned 1.5 (with a = 4, b = 2.5); too far; in close(median([4, 1]), 2.5)"
    ]


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        (None, {}, "can't be read"),
        ("assert 1", {}, "doesn't import 'draft', the module of the draft"),
        ("from median import median", {}, "doesn't import 'draft'"),
        ("from draft import median", {}, "nothing that could fail"),
        ("from draft import (", {}, "is not Python"),
        ("from draft import median", {"file": "draft.txt"}, "must be the name of a module"),
        ("import draft, pytest", {"setup": "x = 1"}, "give no other tests with them, and no setup"),
    ],
)
def test_files_that_cannot_be_tests(text, config, message, tmp_path):
    path = tmp_path / "test_it.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        command(criterion("command", tests=path, **config), ProcessJail())


def test_two_files_of_one_name(tmp_path):
    paths = [tmp_path / folder / "test_it.py" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("from draft import f\nassert f() == 1")
    with pytest.raises(ConfigError, match=r"two test files have the name 'test_it\.py'"):
        command(criterion("command", tests=paths), ProcessJail())


@pytest.mark.parametrize(
    "text",
    [
        "import pytest",
        "def test_it(tmp_path): pass",
        "class TestIt:\n    def setup_method(self): pass",
        "def setup_module(): pass",
        "import unittest\nclass It(unittest.TestCase):\n    def setUpClass(cls): pass",
        "class Base: pass\nclass TestIt(Base): pass",
        "import nothing_of_the_standard_library",
    ],
)
def test_files_that_need_pytest(text, tmp_path, monkeypatch):
    path = tmp_path / "test_it.py"
    path.write_text(f"from draft import median\n{text}\n")
    given = criterion("command", tests=path)
    assert runs_program(given)
    monkeypatch.setattr("redraft.evaluate.command.find_program", lambda name: None)
    with pytest.raises(ConfigError, match="needs pytest, which is not installed: pip install pytest"):
        command(given, ProcessJail())
