"""The process of each feature is killed at one point of each kind; at all of them in tests/soak."""

import pytest

from support.killed import FEATURES
from support.killing import report_of

RUN = [["finished", 3]]
NODES = ["begin", "profile", "again", "count", "again", "count"]
STORED = [["finished", 3, "killed"]], ["finished"]
TASKS = [["better outline", 2, "killed.1"], ["The sum is 4.", 1, "killed.2"]]
RESULTS = {
    "run": lambda found: (found[1], found[2]["requests"], found[3]) == ("max_iterations", 5, RUN),
    "workflow": lambda found: found[1:] == [NODES, 5, *STORED],
    "items of a workflow": lambda found: (found[0], found[2]) == ("finished", 18 * 5),
    "workflows inside": lambda found: found == ["finished", [{"sent": "said", "by": "Ada"}] * 4, 8 * 5, 4],
    "cycle": lambda found: found == [2, "finished", ["first", "second"] * 2, 1, [1] * 4, 4],
    "question of a cycle": lambda found: (
        found == [{"two": "modify", "no more": "reject"}, ["rejected", "modified"], ["2"]]
    ),
    "deliveries of a cycle": lambda found: found == [["cycle 1", "cycle 2"], 0],
    "evaluation": lambda found: found == [3, 1.0, 12],
    "reflection": lambda found: found == [0, True, 1, 0, 1, 1],
    "reflection in a later run": lambda found: found == [0, True, 1, 0, 1, 1],
    "ensemble": lambda found: found[:3] == [TASKS, 1, 1] and found[3]["requests"] == 4,
}
"""What comes of each feature. Workers of a fleet are killed in `tests/fleet`."""


def check(report, name):
    assert report["wrong"] == []
    assert RESULTS[name](report["expected"])
    assert report.get("shared", [True, True]) == [True, True]


@pytest.mark.parametrize("name", FEATURES)
def test_a_killed_process_repeats_nothing_and_loses_nothing(name, tmp_path):
    report = report_of(name, tmp_path, "kinds")
    check(report, name)
    assert report["killed"] == len(report["points"])


@pytest.mark.parametrize("name", ["run", "cycle"])
def test_a_killed_process_repeats_nothing_that_is_in_postgresql(name, tmp_path, postgres):
    report = report_of(name, tmp_path, "kinds", postgres.url)
    check(report, name)
    assert report["killed"] == len(report["points"])
