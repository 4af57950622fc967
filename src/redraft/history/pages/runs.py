"""Runs: the kept runs and workflows, the newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from redraft.history.entry import AT_WORK
from redraft.history.ledger import Ledger
from redraft.history.run_list import REASONS, STATES, RunList
from redraft.loop.progress import Progress
from redraft.loop.record import RunRecord
from redraft.loop.runs import Runs, row_document
from redraft.web.charts import Sparkline, sparkline
from redraft.web.page import Page, PageRequest
from redraft.workflow.history import KeptWorkflow, WorkflowRow, Workflows

if TYPE_CHECKING:
    from redraft.stores.base import Record

MOST = 50
COMPARED = 12
"""Runs that a link to their comparison names at most."""
WATCHED = 10
"""Workflows that are looked at for what moves: those at work are among the newest."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """Hold a run as the table has it."""

    record: RunRecord
    curve: Sparkline
    budget_usd: float | None
    kind: ClassVar[str] = "run"

    @property
    def run_id(self) -> str:
        """What it is kept by."""
        return self.record.run_id

    def document(self) -> dict[str, Any]:
        """Describe it as plain data."""
        return {"kind": self.kind, **row_document(self.record), "budget_usd": self.budget_usd}


@dataclass(frozen=True, slots=True)
class RunsView:
    """Hold a page of runs and how they were chosen; `older` is the last one where there is another page."""

    rows: tuple[RunRow | WorkflowRow, ...]
    wanted: RunList
    older: str
    read: int | None = None
    """How many runs were looked through until now, where not all were yet."""
    states: tuple[str, ...] = STATES
    reasons: tuple[str, ...] = REASONS

    @property
    def comparable(self) -> tuple[str, ...]:
        """The newest runs that have ended, the oldest of them first: with that one the rest is compared."""
        runs = [row.record for row in self.rows if isinstance(row, RunRow)]
        ended = [record.run_id for record in runs if record.status != "running"]
        return tuple(reversed(ended[:COMPARED]))


async def runs(request: PageRequest) -> RunsView:
    """Read the runs and workflows that are wanted."""
    wanted, ledger = RunList.of(request), request.project.shared(Ledger.of)
    found = await wanted.newest(request.project, MOST + 1)
    rows = tuple([await _row(request, one) for one in found[:MOST]])
    read = None if ledger.is_whole or not wanted.is_filtered else len(await ledger.entries(0))
    return RunsView(rows, wanted, rows[-1].run_id if len(found) > MOST else "", read)


async def _row(request: PageRequest, found: Record | KeptWorkflow) -> RunRow | WorkflowRow:
    project = request.project
    if isinstance(found, KeptWorkflow):
        return await project.redacted(await Workflows(project.store).row(found))
    record = await Runs(project.store).listed(found)
    task, origin, error = await project.redacted((record.task, record.origin, record.error))
    curve = sparkline([version.evaluation.overall_score for version in record.versions])
    shown = replace(record, task=task, origin=origin, error=error)
    return RunRow(shown, curve, record.options.get("budget_usd"))


def _document(view: RunsView) -> dict[str, Any]:
    return {"runs": [row.document() for row in view.rows], "older": view.older or None}


async def _fingerprint(request: PageRequest) -> str:
    """Return what differs when the table does: the newest run, how far those at work are, the workflows.

    A page of older runs does not move.
    """
    wanted, project = RunList.of(request), request.project
    if wanted.before:
        return ""
    entries = await project.shared(Ledger.of).entries(0)
    found = list(islice(wanted.chosen(entries), MOST))
    at_work = [entry.run_id for entry in found if entry.state in AT_WORK]
    workflows = await wanted.workflows(project, WATCHED)
    at_work += [one.record.run_id for one in workflows if one.state in AT_WORK]
    told = [f"{run_id} {await project.shared(Progress.of).how_far(run_id)}" for run_id in at_work]
    ended = [f"{one.record.run_id} {one.state}" for one in workflows]
    reading = f"{len(entries)} read" if wanted.is_filtered and not project.shared(Ledger.of).is_whole else ""
    return "; ".join([found[0].run_id if found else "", *told, *ended, reading])


PAGE = Page("/runs", "history/templates/runs.html", runs, _document, fingerprint=_fingerprint)
