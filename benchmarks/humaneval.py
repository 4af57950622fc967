"""Every fourth HumanEval task: the loop sees the docstring's examples, or else the first assertion."""

from __future__ import annotations

import ast
import doctest
import gzip
import json
from typing import TYPE_CHECKING, Any

from _tasks import BenchTask, passes, tests_criterion

if TYPE_CHECKING:
    from pathlib import Path

FILE = "code_tasks.jsonl.gz"
TASKS = 40


def humaneval_tasks(data: Path) -> list[BenchTask]:
    """Read the tasks from the folder of the recordings."""
    with gzip.open(data / FILE, "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row["dataset"] == "humaneval"]
    return [_task(row) for row in rows[::4][:TASKS]]


def _task(row: dict[str, Any]) -> BenchTask:
    prompt, name = row["prompt"], row["entry_point"]
    helpers = prompt[: prompt.rindex(f"def {name}(")]
    visible = _examples(_docstring(prompt, name)) or _first_assertion(row["hidden_check"], name)
    hidden = f"{row['hidden_check']}\ncheck({name})\n"
    return BenchTask(
        row["task_id"],
        f"Complete this function:\n\n```python\n{prompt.strip()}\n```",
        (tests_criterion(visible, helpers),),
        passes(tests_criterion(hidden, helpers)),
    )


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
