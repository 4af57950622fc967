"""A few loops of our own, recorded in the form that the benchmark reads, go through the same code."""

import gzip
import json
import sys
from collections import Counter

import generated_tests
import pytest
from generated_tests import TASKS, TRAJECTORIES, best_by_visible, failures, replay_of

PROMPTS = {
    "double": "def double(n):\n    '''Return twice n: double(5) -> 10.'''\n",
    "last": "def last(items):\n    '''Return the last item, or None if there is none.'''\n",
}
TWICE, SQUARE, TWO = (
    f"def double(n):\n    return {value}" for value in ("2 * n", "n * n", "4 if n == 2 else 0")
)
LAST = "def last(items):\n    return items[-1] if items else None"
RAISES = "def last(items):\n    return items[-1]"
FIRST = "def last(items):\n    return items[0] if items else None"
LISTS = "def last(items):\n    return items[-1:]"


def attempt(code, visible, right):
    return {"code": code, "v_visible": visible, "v_hidden_pass": right}


def row(run, task, tests, *attempts):
    return {"run": run, "task_id": task, "visible_tests": tests, "preamble": "", "attempts": list(attempts)}


ROWS = [
    # The draft fails, the revision passes.
    row("one", "double", ["assert double(3) == 6"], attempt(SQUARE, 0.0, False), attempt(TWICE, 1.0, True)),
    # One of two is wrong: half is enough.
    row(
        "two",
        "last",
        ["assert last([1, 2]) == 2", "assert last([]) == []"],
        attempt(LAST, 0.5, True),
        attempt(LISTS, 0.5, False),
    ),
    # Most fail, and the second passes all.
    row(
        "two",
        "last",
        ["assert last([]) is None", "assert last([1, 2]) == 2", "assert last([3, 1]) == 1"],
        attempt(FIRST, 1 / 3, False),
        attempt(RAISES, 2 / 3, False),
        attempt(LAST, 1.0, True),
    ),
    row("two", "last", ["assert last([1]) == 1"], attempt(LAST, 1.0, True)),
    row(
        "three",
        "unknown",
        ["assert double(2) == 4"],
        attempt(SQUARE + "\n1 / 0", 0.0, False),
        attempt(TWO, 1.0, True),
    ),
]


@pytest.fixture
def recordings(tmp_path):
    tasks = [{"task_id": name, "prompt": prompt} for name, prompt in PROMPTS.items()]
    for name, rows in ((TRAJECTORIES, ROWS), (TASKS, tasks)):
        with gzip.open(tmp_path / name, "wt") as file:
            file.writelines(f"{json.dumps(one)}\n" for one in rows)
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["generated_tests.py", *map(str, arguments)])
    generated_tests.main()


def test_a_replay_reports_every_way_to_choose(monkeypatch, capsys, recordings):
    run(monkeypatch, "--data", recordings)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[1:] for line in lines if line.startswith(("| one", "| two", "| three"))] == [
        ["1", "0.000", "1.000", "1.000", "1.000", "1.000 |"],
        ["3", "0.667", "0.667", "1.000", "1.000", "1.000 |"],
        ["1", "0.000", "1.000", "1.000", "1.000", "1.000 |"],
        ["2.00", "2.00", "2.00 |"],
        ["2.00", "1.67", "1.67 |"],
        ["2.00", "2.00", "2.00 |"],
    ]


def test_a_choice_that_is_worse_fails():
    found = {
        "good": Counter(tasks=4, first=2, best=3, chosen=3),
        "bad": Counter(tasks=4, first=3, best=2, chosen=2),
    }
    assert failures(found) == ["bad: the choice solves 2 tasks, the first attempt solves 3."]


def test_without_recordings_it_is_skipped_by_name(monkeypatch, capsys, tmp_path):
    run(monkeypatch, "--data", tmp_path)
    assert f"SKIPPED generated_tests: no {TRAJECTORIES}" in capsys.readouterr().out


def test_the_best_by_visible_is_the_earliest_of_equals():
    attempts = [attempt("a", None, False), attempt("b", 0.5, False), attempt("c", 0.5, True)]
    assert best_by_visible(attempts)["code"] == "b"


def test_a_task_whose_text_is_not_recorded_goes_by_the_names_in_its_tests():
    assert replay_of(ROWS[-1], {}).prompt == "assert double 2 4"
