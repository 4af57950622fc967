"""Runs: the kept runs, the newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.core.result import ConvergenceReason
from redraft.loop.record import RunRecord
from redraft.loop.run_document import row_document
from redraft.loop.runs import Runs
from redraft.web.page import Asked, Page
from redraft.web.sparkline import Sparkline, sparkline

if TYPE_CHECKING:
    from collections.abc import Collection

STATES = ("running", "killed", "finished", "failed", "cancelled")
REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50


@dataclass(frozen=True, slots=True)
class RunRow:
    """Hold a run as the table has it."""

    record: RunRecord
    curve: Sparkline
    budget_usd: float | None


@dataclass(frozen=True, slots=True)
class RunsView:
    """Hold a page of runs and how they were chosen; `older` is the id after which the next page begins."""

    rows: tuple[RunRow, ...]
    status: str
    reason: str
    name: str
    inner: bool
    older: str
    states: tuple[str, ...] = STATES
    reasons: tuple[str, ...] = REASONS

    @property
    def is_filtered(self) -> bool:
        """Whether not all runs are wanted."""
        return bool(self.status or self.reason or self.name)


async def runs(asked: Asked) -> RunsView:
    """Read the runs of a `status`, a `reason`, a `name`, `before` another one; with `inner`, those, too."""
    query = asked.query
    status = _one_of("status", query.get("status", ""), STATES)
    reason = _one_of("reason", query.get("reason", ""), REASONS)
    name, inner = query.get("name", ""), query.get("inner") == "1"
    found = await Runs(asked.project.store).find(
        status=status or None,
        name=name or None,
        reason=reason or None,
        inner=inner,
        before=query.get("before") or None,
        limit=MOST + 1,
    )
    rows = [await _row(asked, record) for record in found[:MOST]]
    older = found[MOST - 1].run_id if len(found) > MOST else ""
    return RunsView(tuple(rows), status, reason, name, inner, older)


async def _row(asked: Asked, record: RunRecord) -> RunRow:
    told = await asked.project.shown((record.task, record.origin))
    curve = sparkline([version.evaluation.overall_score for version in record.versions])
    task, origin = told
    return RunRow(replace(record, task=task, origin=origin), curve, record.options.get("budget_usd"))


def _document(view: RunsView) -> dict[str, Any]:
    return {
        "runs": [{**row_document(row.record), "budget_usd": row.budget_usd} for row in view.rows],
        "older": view.older or None,
    }


def _one_of(name: str, given: str, known: Collection[str]) -> str:
    if given and given not in known:
        raise ConfigError(f"{name} {given!r} is none; {nearest(given, known)}")
    return given


async def _mark(asked: Asked) -> str:
    """Return what tells one state of the list from another: the newest run, and those shown that move."""
    view = await runs(asked)
    return "/".join(f"{row.record.run_id}:{row.record.state}:{row.curve.points}" for row in view.rows)


PAGE = Page("/runs", "runs.html", runs, _document, nav="Runs", mark=_mark)
