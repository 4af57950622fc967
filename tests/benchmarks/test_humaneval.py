import gzip
import json

import pytest
from humaneval import FILE, humaneval_tasks

DOCTESTS = '''from typing import List


def total(numbers: List[int]) -> int:
    """ Add up.
    >>> total([1, 2])
    3
    >>> total([])
    0
    """
'''
CLAIMS = 'def total(numbers):\n    """Add up.\n    >>> total([1, 2]) == 4\n    """\n'
HELPER = f"def twice(n):\n    return 2 * n\n\n\n{CLAIMS}"
CHECK = (
    "def check(candidate):\n    assert True\n    assert candidate([2]) == 2\n    assert candidate([3]) == 3\n"
)
LOOPED = "def check(candidate):\n    top = 3\n    for n in range(top):\n        assert candidate([n]) == n\n"


@pytest.mark.parametrize(
    ("prompt", "check", "visible", "setup"),
    [
        (DOCTESTS, CHECK, "assert total([1, 2]) == 3\nassert total([]) == 0", "from typing import List"),
        (CLAIMS, CHECK, "assert total([2]) == 2", ""),  # an example without a result is none
        (
            HELPER,
            LOOPED,
            "top = 3\nfor n in range(top):\n    assert total([n]) == n",
            "def twice(n):\n    return 2 * n",
        ),
    ],
)
def test_the_visible_check_comes_from_the_docstring(tmp_path, prompt, check, visible, setup):
    row = {
        "dataset": "humaneval",
        "task_id": "HumanEval/0",
        "prompt": prompt,
        "entry_point": "total",
        "hidden_check": check,
    }
    with gzip.open(tmp_path / FILE, "wt") as file:
        file.write(json.dumps(row))
    (task,) = humaneval_tasks(tmp_path)
    config = task.criteria[0].evaluator_config
    helpers, seed, rest = config["setup"].partition("\nimport random\nrandom.seed(0)\n")
    assert (config["tests"], helpers.strip()) == (visible, setup)
    assert seed
    assert not rest


def test_tasks_to_tune_on_are_not_reported(tmp_path):
    rows = [
        {
            "dataset": "humaneval",
            "task_id": f"HumanEval/{number}",
            "prompt": DOCTESTS,
            "entry_point": "total",
            "hidden_check": CHECK,
        }
        for number in range(9)
    ]
    with gzip.open(tmp_path / FILE, "wt") as file:
        file.write("\n".join(map(json.dumps, rows)))
    reported = [task.name for task in humaneval_tasks(tmp_path)]
    assert reported == ["HumanEval/0", "HumanEval/4", "HumanEval/8"]
    tuned = [task.name for task in humaneval_tasks(tmp_path, tuning=True)]
    assert tuned == [f"HumanEval/{number}" for number in (1, 2, 3, 5, 6, 7)]
    shown = humaneval_tasks(tmp_path, shown="scoring")[0]
    assert (shown.name, shown.hidden) == ("HumanEval/0 scoring", None)
    assert shown.criteria[0].evaluator_config["tests"] == f"{CHECK}\ncheck(total)\n"
