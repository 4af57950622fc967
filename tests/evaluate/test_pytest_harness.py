# ruff: noqa: E501 (a table of tests: one a line reads better than folded)

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from redraft.evaluate.command import command, runs_program
from redraft.execution import CommandOutcome
from redraft.sandbox.jail import ProcessJail
from support.evaluation import RUN, criterion, evaluate

PACKAGES = [Path(pytest.__file__).parents[1]]
MEDIAN = "def median(xs):\n    xs = sorted(xs)\n    return xs[len(xs) // 2]\n"
HEAD = "import pytest\nfrom draft import median\n"
RUN_PYTEST = ["pytest", "-q", "--disable-plugin-autoload", "-p", "no:cacheprovider"]

ROWS = [
    (MEDIAN, "def test_a():\n    assert median([1]) == 1\ndef test_b():\n    pytest.skip('later')\ndef test_c():\n    print('x' * 1_000_000)\n@pytest.mark.parametrize('n', range(2000))\ndef test_d_with_a_name_that_is_so_long_that_all_of_them_fill_the_pipe(n): pass", 1.0, []),
    (MEDIAN, "@pytest.mark.parametrize('xs, y', [([1], 1), ([1, 4], 2.5), ([], 0)])\ndef test_a(xs, y):\n    assert median(xs) == y\ndef test_b():\n    with pytest.raises(ValueError):\n        median([1])\n@pytest.mark.xfail(strict=True)\ndef test_c():\n    assert median([1]) == 1", 0.0, ["test_it.py::test_a[xs1-2.5] failed: assert 4 == 2.5, where 4 = median([1, 4])", "test_it.py::test_a[xs2-0] raised IndexError: list index out of range; in assert median(xs) == y (with xs = [], y = 0) (line 3)", "test_it.py::test_b failed: DID NOT RAISE ValueError; in with pytest.raises(ValueError):", "test_it.py::test_c failed: [XPASS(strict)]"]),
    (MEDIAN, "@pytest.mark.parametrize('n', range(9))\ndef test_a(n):\n    assert median([n]) == -1", 0.0, [*(f"test_it.py::test_a[{n}] failed: assert {n} == -1, where {n} = median([{n}])" for n in range(5)), "4 more tests failed"]),
    (MEDIAN, "@pytest.fixture\ndef one():\n    return median(None)\ndef test_a(one): pass", 0.0, ["The draft raised TypeError: 'NoneType' object is not iterable (line 2)"]),
    ("def median(:", "def test_a(): pass", 0.0, ["The draft does not parse: invalid syntax (line 1)"]),
    ("import nowhere", "def test_a(): pass", 0.0, ["The draft raised ModuleNotFoundError: No module named 'nowhere' (line 1)"]),
    ("x = 1", "def test_a(): pass", 0.0, ["test_it.py raised ImportError: cannot import name 'median' from 'draft' (draft.py); in from draft import median"]),
    ("exit(0)", "def test_a(): pass", 0.0, ["The draft raised SystemExit: 0 (line 1)"]),
    ("async def median(xs): pass", "def test_a():\n    assert median([1]) == 1", 0.0, ["test_it.py::test_a failed: assert <coroutine object median> == 1, where <coroutine object median> = median([1])"]),
    ("def median(xs): return object()", "def test_a():\n    x = median([1])\n    raise ValueError(x)", 0.0, ["test_it.py::test_a raised ValueError: <object object>; in raise ValueError(x) (with x = <object object>)"]),
    ("import os; os._exit(0)", "def test_a(): pass", 0.0, ["The draft ended pytest -q --disable-plugin-autoload -p no:cacheprovider before its tests were through"]),
    ("import os\ndef median(xs): os._exit(0)", "def test_a(): pass\ndef test_b(): median([1])\ndef test_c(): pass", 0.0, ["The draft ended pytest -q --disable-plugin-autoload -p no:cacheprovider before its tests were through; in test_it.py::test_b"]),
    # Tests that cannot run are unknown, whatever else failed.
    (MEDIAN, "import nowhere\ndef test_a(): pass", None, ["Not judged: tests could not run: test_it.py raised ModuleNotFoundError: No module named 'nowhere'; in import nowhere"]),
    (MEDIAN, "def test_a(: pass", None, ["Not judged: tests could not run: test_it.py does not parse: invalid syntax"]),
    (MEDIAN, "def test_a(nothing): pass\ndef test_b():\n    assert median([1]) == 2", None, ["Not judged: tests could not run: test_it.py::test_a raised FixtureLookupError: the fixture 'nothing' does not exist", "test_it.py::test_b failed: assert 1 == 2, where 1 = median([1])"]),
    # What pytest itself finds wrong.
    (MEDIAN, {"test_it.py": f"{HEAD}def test_a():\n    assert median([1]) == 1", "conftest.py": "def pytest_sessionfinish(session):\n    session.exitstatus = 1"}, 0.0, ["pytest -q --disable-plugin-autoload -p no:cacheprovider exited with 1: "]),
    (MEDIAN, {"test_it.py": HEAD, "conftest.py": "import nowhere"}, None, ["Not judged: pytest -q --disable-plugin-autoload -p no:cacheprovider ran no test: ImportError while loading conftest"]),
    (MEDIAN, "def a(): pass", None, ["Not judged: pytest -q --disable-plugin-autoload -p no:cacheprovider ran no test: "]),
]  # fmt: skip


@pytest.fixture(scope="module")
def verdicts():
    """Judge them concurrently: one after the other would take long."""

    async def main():
        calls = [
            command(
                criterion(
                    "command",
                    command=RUN_PYTEST,
                    files=text if isinstance(text, dict) else {"test_it.py": HEAD + text},
                    readable=PACKAGES,
                    timeout=60,
                ),
                ProcessJail(),
            )(draft, RUN)
            for draft, text, _, _ in ROWS
        ]
        return await asyncio.gather(*calls)

    return asyncio.run(main())


@pytest.mark.parametrize("row", range(len(ROWS)), ids=lambda row: str(ROWS[row][:2]))
def test_rows(row, verdicts):
    _, _, score, expected = ROWS[row]
    found = [
        issue.message + (f" (line {issue.line})" if issue.line else "") for issue in verdicts[row].issues
    ]
    assert [message[: len(wanted)] for message, wanted in zip(found, expected, strict=True)] == expected
    assert verdicts[row].overall_score == score
    assert verdicts[row].satisfactory is (score == 1.0)


def test_the_start_of_pytest_does_not_count():
    slow = "import time\ndef pytest_configure(config): time.sleep(2.5)"
    files = {"test_it.py": f"{HEAD}def test_a(): pass", "conftest.py": slow}
    given = criterion("command", command=RUN_PYTEST, files=files, readable=PACKAGES, timeout=2)
    evaluation = evaluate(command(given, ProcessJail()), "while True: pass")
    assert evaluation.overall_score == 0.0
    assert evaluation.issues[0].endswith("ran longer than its limit of 2 s (timeout); in test_it.py")


def test_a_test_file_is_shared_out(tmp_path):
    path = tmp_path / "test_it.py"
    path.write_text(
        f"{HEAD}@pytest.mark.parametrize('xs', [[1], [1, 2], [3], [4]])\n"
        "def test_a(xs):\n    assert median(xs) == sum(xs) / len(xs)\n"
    )
    given = criterion("command", tests=path, readable=PACKAGES, timeout=60)
    assert runs_program(given)
    evaluation = evaluate(command(given, ProcessJail()), MEDIAN)
    assert (evaluation.overall_score, evaluation.satisfactory) == (0.75, True)
    [failure] = evaluation.issues
    assert failure.endswith(
        "assert 2 == (3 / 2), where 2 = median([1, 2]), and 3 = sum([1, 2]), and 2 = len([1, 2])"
    )


@pytest.mark.parametrize(
    ("is_here", "advice"),
    [
        (True, "List the folder in which it is installed in 'readable'."),
        (False, "Install it: pip install pytest."),
    ],
)
def test_without_pytest_in_the_jail_the_advice_depends_on_where_it_is(monkeypatch, is_here, advice):
    async def run(_command):
        return CommandOutcome(0, completed=True, stdout='\nredraft-report:{"missing": "No module"}')

    monkeypatch.setattr("redraft.evaluate.command.find_spec", lambda _name: is_here or None)
    evaluation = evaluate(command(criterion("command", command=["python", "-m", "pytest"]), run), MEDIAN)
    assert evaluation.issues[0].endswith(advice)


@pytest.mark.parametrize(
    ("stdout", "score", "message"),
    [
        ("", None, "Not judged: python -m pytest exited with 0 before any test began"),
        ("no such option", None, "Not judged: python -m pytest exited with 0 before any test began: no such option"),
        ("\nredraft-test:a\n", 0.0, "The draft ended python -m pytest before its tests were through; in a"),
        ("\nredraft-test:a\n\nredraft-report:[1]", 0.0, "The draft ended python -m pytest before"),
        ("\nredraft-test:a\n\nredraft-report:{", 0.0, "The draft ended python -m pytest before"),
        ("\nredraft-report:{}", None, "Not judged: python -m pytest ran no test: "),
        ('\nredraft-report:{"passed": "9", "failures": [3, {"name": 4}], "failed": -1}', None, "Not judged: python -m pytest ran no test"),
        ('\nredraft-report:{"missing": "No module"}', None, "Not judged: pytest can't be imported in the jail: No module"),
    ],
)  # fmt: skip
def test_a_report_is_not_trusted(stdout, score, message):
    async def run(_command):
        return CommandOutcome(0, completed=True, stdout=stdout)

    evaluation = evaluate(command(criterion("command", command=["python", "-m", "pytest"]), run), MEDIAN)
    assert evaluation.overall_score == score
    assert evaluation.issues[0].startswith(message)


def test_a_timeout_names_the_running_test():
    async def run(_command):
        printed = "\nredraft-test:test_it.py::test_a\n.\nredraft-test:test_it.py::test_b\n"
        return CommandOutcome(None, completed=False, stdout=printed, stopped="timeout")

    evaluation = evaluate(command(criterion("command", command=["pytest"]), run), MEDIAN)
    assert evaluation.issues == ("pytest ran longer than its limit of 10 s (timeout); in test_it.py::test_b",)
