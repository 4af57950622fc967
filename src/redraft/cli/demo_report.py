"""What `redraft demo` prints: each task with its versions and changes, and a table of them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.changes import changes
from redraft.cli.demo_run import REVISIONS, SECONDS
from redraft.cli.documents import run_document
from redraft.cli.show import BAD, GOOD, QUIET, error_line, version_row
from redraft.core.summary import REASONS, render_score, render_usage
from redraft.core.texts import as_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.cli.demo_run import Outcome
    from redraft.core.result import ReflectionResult

INDENT = (0, 0, 0, 2)
DEEPER = (0, 0, 0, 4)


def opening(model: str, tasks: int) -> Text:
    """Say what is going to be shown."""
    return Text(
        f"{tasks} small tasks for {model},\n"
        "chosen to show what redrafting can do for a small model, and what it can't.\n"
        f"Checks decide, no model judges; at most {REVISIONS + 1} versions and {SECONDS:.0f} seconds a task."
    )


def task_report(number: int, outcome: Outcome, *, coloured: bool) -> RenderableType:
    """Render a task: what was asked, the versions, what changed from the first to the best, the end."""
    history = outcome.result.history
    best = history.best_version
    rows = [version_row(version, best=best.iteration, indent=2) for version in history.versions]
    return Group(
        Text(),
        Text(f"{number}. {outcome.task.title}", "bold"),
        Padding(Text(outcome.task.task.description, QUIET), INDENT, expand=False),
        Text(),
        *rows,
        *_changes(outcome, coloured=coloured),
        Text(),
        Padding(_ending(outcome.result), INDENT, expand=False),
    )


def _changes(outcome: Outcome, *, coloured: bool) -> tuple[RenderableType, ...]:
    if not outcome.improved:
        return ()
    history = outcome.result.history
    before, after = as_text(history.versions[0].output), as_text(history.best_version.output)
    title = Text(f"From version 1 to version {history.best_version.iteration}:")
    return (
        Text(),
        Padding(title, INDENT, expand=False),
        Padding(changes(before, after, coloured=coloured), DEEPER, expand=False),
    )


def _ending(result: ReflectionResult) -> Text:
    returned = result.history.best_version.iteration
    text = Text(
        f"Stopped: {REASONS[result.convergence_reason.value]}. Returned: version {returned}.\n"
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s."
    )
    return text.append_text(error_line(result))


def summary(outcomes: Sequence[Outcome]) -> RenderableType:
    """Render all tasks as a table, with a sentence on how many got better."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=QUIET)
    table.add_column("task")
    for column in ("first", "best", "versions"):
        table.add_column(column, justify="right")
    table.add_column("stopped because of")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        result = outcome.result
        table.add_row(
            outcome.task.title,
            render_score(outcome.first_score),
            Text(render_score(outcome.best_score), GOOD if result.success else BAD),
            str(len(result.history.versions)),
            result.convergence_reason.value,
            f"{result.execution_time:.1f}",
        )
    return Group(Text(), table, Text(), Text(_sentence(outcomes)))


def _sentence(outcomes: Sequence[Outcome]) -> str:
    total = len(outcomes)
    improved = sum(outcome.improved for outcome in outcomes)
    met = sum(outcome.result.success for outcome in outcomes)
    at_once = sum(outcome.result.success and not outcome.improved for outcome in outcomes)
    drafts = f" ({at_once} at the first draft)" if at_once else ""
    return (
        f"Better than the first draft: {improved} of {total}. All criteria met: {met} of {total}{drafts}. "
        "Worse than the first draft: none, since the best version is kept, not the last."
    )


def demo_document(model: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Describe the demo as plain data."""
    return {
        "model": model,
        "improved": sum(outcome.improved for outcome in outcomes),
        "met": sum(outcome.result.success for outcome in outcomes),
        "tasks": [
            {
                "name": outcome.task.name,
                "title": outcome.task.title,
                "task": outcome.task.task.description,
                "first_score": outcome.first_score,
                "best_score": outcome.best_score,
                **run_document(outcome.result),
            }
            for outcome in outcomes
        ],
    }
