"""HumanEval: every fourth task is reported, the others are for tuning.

The arms see the docstring's examples, or else the first assertion; or they see the check that scores.
"""

from __future__ import annotations

import ast
import doctest
import gzip
import json
from typing import TYPE_CHECKING, Any, Literal

from _tasks import BenchTask, passes, tests_criterion

if TYPE_CHECKING:
    from pathlib import Path

FILE = "code_tasks.jsonl.gz"
TASKS = 40
EVERY = 4
Shown = Literal["examples", "scoring"]


def humaneval_tasks(data: Path, *, shown: Shown = "examples", tuning: bool = False) -> list[BenchTask]:
    """Read the tasks from the folder of the recordings.

    The tasks to report have an index that is divisible by four, those for `tuning` have another.
    """
    with gzip.open(data / FILE, "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row["dataset"] == "humaneval"]
    if tuning:
        return [_task(row, shown) for index, row in enumerate(rows) if index % EVERY]
    return [_task(row, shown) for row in rows[::EVERY][:TASKS]]


def _task(row: dict[str, Any], shown: Shown) -> BenchTask:
    prompt, name = row["prompt"], row["entry_point"]
    helpers = prompt[: prompt.rindex(f"def {name}(")]
    question = f"Complete this function:\n\n```python\n{prompt.strip()}\n```"
    # Some checks draw their inputs: with a seed, a failure reads the same in every run, and can be replayed.
    seeded = f"{helpers}\nimport random\nrandom.seed(0)\n"
    scoring = tests_criterion(f"{row['hidden_check']}\ncheck({name})\n", seeded)
    if shown == "scoring":
        return BenchTask(f"{row['task_id']} scoring", question, (scoring,))
    visible = _examples(_docstring(prompt, name)) or _first_assertion(row["hidden_check"], name)
    return BenchTask(row["task_id"], question, (tests_criterion(visible, seeded),), passes(scoring))


def _docstring(prompt: str, name: str) -> str:
    functions = [node for node in ast.parse(prompt).body if isinstance(node, ast.FunctionDef)]
    return next(ast.get_docstring(node) or "" for node in functions if node.name == name)


def _examples(docstring: str) -> str:
    """Make assertions of the examples in a docstring that say what should come of them."""
    assertions: list[str] = []
    for example in doctest.DocTestParser().get_examples(docstring):
        call, want = example.source.strip(), example.want.strip()
        if not want or example.exc_msg:
            continue
        try:
            ast.literal_eval(want)
            assertions.append(f"assert {call} == {want}")
        except (ValueError, SyntaxError):
            assertions.append(f"assert repr({call}) == {want!r}")
    return "\n".join(assertions)


def _first_assertion(check: str, name: str) -> str:
    """Return the first statement of a check that asserts something of the candidate, and what it needs."""
    function = next(
        node for node in ast.parse(check).body if isinstance(node, ast.FunctionDef) and node.name == "check"
    )
    needed: list[str] = []
    for statement in function.body:
        source = ast.unparse(_Renamed("candidate", name).visit(statement))
        asserts = any(isinstance(node, ast.Assert) for node in ast.walk(statement))
        if asserts and f"{name}(" in source:
            return "\n".join([*needed, source])
        if not asserts:
            needed.append(source)
    raise ValueError(f"The check of {name} asserts nothing of it.")


class _Renamed(ast.NodeTransformer):
    """Call one name by another."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new, node.ctx) if node.id == self.old else node
