"""Kept runs as rows: what each was for, how it went, what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET
from redraft.cli.sparkline import sparkline
from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.core.result import ConvergenceReason
from redraft.core.summary import render_score, render_usd
from redraft.core.texts import shortened
from redraft.text.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.core.usage import TokenUsage
    from redraft.loop.record import RunRecord
    from redraft.workflow.history import WorkflowRow

WIDE = 110
"""The columns of a terminal from which all that is known of a run fits into a line."""
LONGEST_CURVE = 8
LONGEST_WHO = 18
LEAST_TASK = 10
GAP = 2
NUMBERS = ("n", "cost", "s")
STATES = ("running", "killed", "unknown", "finished", "failed", "cancelled")
MINUTE, HOUR, DAY = 60, 3600, 86400


def check_filters(status: str | None, reason: str | None) -> None:
    """Raise `ConfigError` for a status or reason that no run can have."""
    reasons = [one.value for one in ConvergenceReason]
    for option, given, known in (("--status", status, STATES), ("--reason", reason, reasons)):
        if given is not None and given not in known:
            raise ConfigError(f"{option} {given!r} is none; {nearest(given, known)}")


@dataclass(frozen=True, slots=True)
class Row:
    """Hold the cells of a row; `n` counts versions, of a workflow nodes."""

    run_id: str
    started_at: datetime
    who: str
    task: str
    stopped: Text
    n: int
    score: str
    curve: str
    cost: str
    seconds: float


def row_of(record: RunRecord) -> Row:
    """Return the row of a run."""
    return Row(
        record.run_id,
        record.started_at,
        record.origin.name,
        record.task.description,
        outcome(record),
        record.revisions + 1 if record.versions else 0,
        first_to_best(record),
        curve(record, LONGEST_CURVE),
        cost(record.usage),
        record.execution_time,
    )


def row_of_workflow(row: WorkflowRow) -> Row:
    """Return the row of a workflow."""
    return Row(
        row.run_id,
        row.started_at,
        row.name,
        f"{row.name}, a workflow of {row.nodes} node{'s' * (row.nodes != 1)}",
        state_text(row.status),
        row.nodes,
        "",
        "",
        cost(row.usage),
        row.execution_time,
    )


def run_rows(found: Sequence[Row], width: int, *, is_utf8: bool = True) -> Table:
    """Render runs as a table; a narrow one has no room for who, when, cost and seconds, or for less still."""
    columns = {"run": [row.run_id for row in found]}
    if width >= WIDE:
        columns["when"] = [when(row.started_at) for row in found]
        columns["who"] = [shortened(visible(row.who), LONGEST_WHO) for row in found]
    after: dict[str, Sequence[str | Text]] = {
        "stopped": [row.stopped for row in found],
        "n": [str(row.n) for row in found],
        "score": [row.score for row in found],
    }
    if is_utf8:
        after[""] = [row.curve for row in found]
    if width >= WIDE:
        after |= {"cost": [row.cost for row in found]}
        after |= {"s": [f"{row.seconds:.1f}" for row in found]}
    for least in ("", "n"):
        if _room(width, columns, after) < LEAST_TASK:
            after.pop(least, None)
    room = max(LEAST_TASK, _room(width, columns, after))
    columns["task"] = [shortened(visible(row.task), room) for row in found]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in (*columns, *after):
        table.add_column(name, no_wrap=True, justify="right" if name in NUMBERS else "left")
    for cells in zip(*columns.values(), *after.values(), strict=True):
        table.add_row(*cells)
    return table


def _room(width: int, *columns: Mapping[str, Sequence[str | Text]]) -> int:
    """Return how many characters these columns leave for another one."""
    widths = [max(map(len, (name, *cells))) + GAP for each in columns for name, cells in each.items()]
    return width - sum(widths)


def curve(record: RunRecord, longest: int | None = None) -> str:
    """Draw the scores of a run's versions."""
    return sparkline([version.evaluation.overall_score for version in record.versions], longest)


def no_runs(place: str, *, filtered: bool) -> Text:
    """Say that there is nothing, where it was looked for, and what would change that."""
    if filtered:
        return Text(f"No run that is kept in {place} is like that.")
    return Text(
        f"No run is kept in {place} yet.\n"
        "Every run of an Agent and of check, revise and demo is kept: try `redraft demo`."
    )


def outcome(record: RunRecord) -> Text:
    """Render the reason for which a run stopped, or its state where no rule stopped it."""
    best = record.version(record.best)
    if record.state != "finished" or record.reason is None:
        return state_text(record.state)
    return Text(record.reason.value, GOOD if best is not None and best.evaluation.satisfactory else "")


def state_text(state: str) -> Text:
    """Render how a run or workflow stands."""
    return Text(state, BAD if state in ("failed", "killed", "damaged") else "")


def first_to_best(record: RunRecord) -> str:
    """Render the scores of the first and the best version; one where they are the same."""
    best = record.version(record.best)
    if best is None:
        return ""
    first = render_score(record.versions[0].evaluation.overall_score)
    if best.iteration == record.versions[0].iteration:
        return first
    return f"{first} > {render_score(best.evaluation.overall_score)}"


def cost(usage: TokenUsage) -> str:
    """Render what something cost; `?` where that is not known."""
    known = usage.cost_usd
    return "?" if known is None else render_usd(known)


def when(at: datetime, now: datetime | None = None) -> str:
    """Say how long ago something was; a time that is more than a week away by its date."""
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if seconds < MINUTE:
        return "just now"
    for unit, length, most in (("min", MINUTE, HOUR), ("h", HOUR, DAY), ("d", DAY, 7 * DAY)):
        if seconds < most:
            return f"{int(seconds / length)} {unit} ago"
    return f"{at.astimezone():%Y-%m-%d}"
