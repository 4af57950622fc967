"""Overview: the kept runs and workflows, the newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from redraft.loop.progress import Progress
from redraft.loop.record import RUN, RunRecord
from redraft.loop.runs import AT_WORK, STATES, Runs, row_document, state_of
from redraft.stores.base import listed
from redraft.stores.run_index import RunRow as IndexRow
from redraft.types import ConvergenceReason
from redraft.web.charts import Sparkline, sparkline
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.workflow.history import WORKFLOW, KeptWorkflow, WorkflowRow, Workflows

if TYPE_CHECKING:
    from datetime import datetime

    from redraft.stores.base import Record


REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50
COMPARED = 12
"""Runs that a link to their comparison names at most."""
WATCHED = 10
"""Workflows that are looked at for what moves: those at work are among the newest."""


async def runs(request: PageRequest) -> RunsView:
    """Read the runs and workflows that are wanted."""
    wanted, project, kept = RunFilter.of(request), request.project, Runs(request.project.store)
    last = await wanted.last(request)
    rows = await wanted.runs(kept, MOST + 1, last)
    found = sorted([*rows, *await wanted.workflows(request, MOST + 1, last)], key=_age, reverse=True)
    shown = found[:MOST]
    records = await kept.read_rows([one for one in shown if isinstance(one, IndexRow)])
    made = {record.run_id: _row(await _shown(request, record)) for record in records}
    table: list[RunRow | WorkflowRow] = []
    for one in shown:
        if isinstance(one, KeptWorkflow):
            table.append(await project.redacted(await Workflows(project.store).row(one)))
        elif one.run_id in made:
            table.append(made[one.run_id])
    return RunsView(tuple(table), wanted, table[-1].run_id if table and len(found) > MOST else "")


@dataclass(frozen=True, slots=True)
class RunsView:
    """Hold a page of runs and how they were chosen; `older` is the last one where there is another page."""

    rows: tuple[RunRow | WorkflowRow, ...]
    wanted: RunFilter
    older: str
    states: tuple[str, ...] = STATES
    reasons: tuple[str, ...] = REASONS

    @property
    def comparable(self) -> tuple[str, ...]:
        """The newest runs that have ended, the oldest of them first: with that one the rest is compared."""
        runs = [row.record for row in self.rows if isinstance(row, RunRow)]
        ended = [record.run_id for record in runs if record.status != "running"]
        return tuple(reversed(ended[:COMPARED]))


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
class RunFilter:
    """Say which runs are wanted: of a state, a reason, a name (each empty for any), inner runs, too.

    `before` is the last run or workflow of the page before.
    """

    status: str
    reason: str
    name: str
    inner: bool
    before: str

    @classmethod
    def of(cls, request: PageRequest) -> RunFilter:
        """Return what the query says; raises `ConfigError` for a state or reason that no run can have."""
        query = request.query
        return cls(
            request.one_of("status", STATES),
            request.one_of("reason", REASONS),
            query.get("name", "").strip(),
            query.get("inner") == "1",
            query.get("before", ""),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether not all runs are wanted."""
        return bool(self.status or self.reason or self.name)

    async def last(self, request: PageRequest) -> Record | None:
        """Return the record of `before`; raises `NotFoundError` where there is none."""
        store = request.project.store
        if not self.before:
            return None
        last = await listed(store, RUN, self.before) or await listed(store, WORKFLOW, self.before)
        if last is None:
            raise NotFoundError(f"There is no run {self.before!r} here, before which others could be.")
        return last

    async def runs(self, runs: Runs, limit: int, last: Record | None = None) -> list[IndexRow]:
        """Return the newest runs that are wanted."""
        status, name, reason = self.status or None, self.name or None, self.reason or None
        return await runs.rows(
            status=status, name=name, reason=reason, inner=self.inner, after=last, limit=limit
        )

    async def workflows(
        self, request: PageRequest, limit: int, last: Record | None = None
    ) -> list[KeptWorkflow]:
        """Return the newest workflows that are wanted: none where a reason is, since that stops a loop."""
        if self.reason:
            return []
        workflows, status, name = Workflows(request.project.store), self.status or None, self.name or None
        return await workflows.find(status=status, name=name, limit=limit, after=last)


def _age(one: IndexRow | KeptWorkflow) -> tuple[datetime, str]:
    """Return by what runs and workflows are ordered, as a store orders its records."""
    return one.created_at, one.run_id if isinstance(one, IndexRow) else one.record.run_id


async def _shown(request: PageRequest, record: RunRecord) -> RunRecord:
    task, origin, error = await request.project.redacted((record.task, record.origin, record.error))
    return replace(record, task=task, origin=origin, error=error)


def _row(record: RunRecord) -> RunRow:
    curve = sparkline([version.evaluation.overall_score for version in record.versions])
    return RunRow(record, curve, record.options.get("budget_usd"))


def _document(view: RunsView) -> dict[str, Any]:
    return {"runs": [row.document() for row in view.rows], "older": view.older or None}


async def _fingerprint(request: PageRequest) -> str:
    """Return what differs when the table does: the newest run, how far those at work are, the workflows.

    A page of older runs does not move.
    """
    wanted, project = RunFilter.of(request), request.project
    if wanted.before:
        return ""
    found = await wanted.runs(Runs(project.store), MOST)
    at_work = [row.run_id for row in found if state_of(row) in AT_WORK]
    workflows = await wanted.workflows(request, WATCHED)
    at_work += [one.record.run_id for one in workflows if one.state in AT_WORK]
    progress = [f"{run_id} {await project.shared(Progress.of).how_far(run_id)}" for run_id in at_work]
    ended = [f"{one.record.run_id} {one.state}" for one in workflows]
    return "; ".join([found[0].run_id if found else "", *progress, *ended])


PAGE = Page("/runs", "history/templates/runs.html", runs, _document, fingerprint=_fingerprint)
