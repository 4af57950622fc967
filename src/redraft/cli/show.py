"""A run as a person reads it: rows of versions, what changed, how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.withheld import withheld
from redraft.core.failures import said_of
from redraft.core.summary import REASONS, render_score, render_usage
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from redraft.core.evaluation import Issue, ReflectionEvaluation
    from redraft.core.result import ReflectionResult
    from redraft.core.version import ReflectionVersion

SHOWN_ISSUES = 4
GOOD, BAD, QUIET = "green", "red", "dim"


def version_row(
    version: ReflectionVersion, *, best: int | None = None, label: str = "", indent: int = 0
) -> RenderableType:
    """Render a version as a row: number, score, how it was made, what failed. `best` marks that iteration."""
    evaluation = withheld(version.evaluation)
    row = Table.grid(padding=(0, 2, 0, 0))
    cells: list[str | Text] = []
    if label:
        row.add_column(no_wrap=True)
        cells.append(label)
    row.add_column(width=9 if best is None else 3, no_wrap=True)
    row.add_column(width=4)
    row.add_column(width=13, no_wrap=True)
    row.add_column()
    mark = "*" if version.iteration == best else " "
    number = f"version {version.iteration}" if best is None else f"{mark} {version.iteration}"
    cells += [
        number,
        score_text(evaluation),
        version.strategy.replace("_", " "),
        _verdict(version, evaluation),
    ]
    row.add_row(*cells)
    return Padding(row, (0, 0, 0, indent))


def score_text(evaluation: ReflectionEvaluation) -> Text:
    """Render the overall score, coloured by the verdict."""
    style = GOOD if evaluation.satisfactory else "" if evaluation.overall_score is None else BAD
    return Text(render_score(evaluation.overall_score), style)


def _verdict(version: ReflectionVersion, evaluation: ReflectionEvaluation) -> Text:
    if version.repeats is not None:
        return Text(f"the same as version {version.repeats}", QUIET)
    if evaluation.satisfactory:
        return Text("all criteria met", GOOD)
    return issue_lines(evaluation.issues) if evaluation.issues else Text("not good enough")


def issue_lines(issues: Sequence[Issue], limit: int = SHOWN_ISSUES) -> Text:
    """Render issues, a line each, with the place where each was found."""
    lines = [issue_line(issue) for issue in issues[:limit]]
    if len(issues) > limit:
        lines.append(Text(f"and {len(issues) - limit} more", QUIET))
    return Text("\n").join(lines)


def issue_line(issue: Issue) -> Text:
    """Render an issue in one line, with the place where it was found."""
    message = " ".join(issue.message.split())
    place = issue.path or (f"line {issue.line}" if issue.line is not None else "")
    if place and not message.startswith(f"{place}: "):
        return Text.assemble((f"{visible(place)}: ", QUIET), visible(message))
    return Text(visible(message))


def ending(result: ReflectionResult) -> Text:
    """Render why a run stopped, what it returns, what it used, and what one should know about it."""
    best = result.history.best_version
    reason = result.convergence_reason.value
    met = "meets the criteria" if result.success else "does not meet the criteria"
    lines = [
        f"Stopped: {REASONS[reason]}.",
        f"Returned: version {best.iteration}, which {met}.",
        f"Used: {render_usage(result.token_usage)}, {result.execution_time:.1f} s.",
        *(f"Note: {visible(withheld(text))}" for text in result.diagnostics.values()),
    ]
    return Text("\n".join(lines)).append_text(error_line(result))


def error_line(result: ReflectionResult) -> Text:
    """Render the error that ended a run, in a line of its own; nothing for a run that was cancelled."""
    if not isinstance(result.error, Exception):
        return Text()
    return Text(f"\nError: {visible(withheld(said_of(result.error)))}", BAD)
