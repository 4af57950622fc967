"""The runs page: runs and workflows, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from redraft.evals.success import SuccessCriteria, success_criteria
from redraft.loop.record import RUN, RunRecord
from redraft.loop.runs import AT_WORK, STATES, Runs, state_of
from redraft.stores.base import listed
from redraft.stores.run_index import RunRow
from redraft.types import ConvergenceReason
from redraft.web.charts import Sparkline, sparkline
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.workflow.history import WORKFLOW, StoredWorkflow, WorkflowRow, Workflows

if TYPE_CHECKING:
    from datetime import datetime

    from redraft.stores.base import Record


REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50
WATCHED = 10
"""How many of the newest workflows are checked for changes: active ones are among them."""


async def runs(request: PageRequest) -> RunsView:
    """Read a page of the runs and workflows that match the query."""
    wanted, project = RunFilter.of(request), request.project
    project_runs = Runs(project.store)
    last = await wanted.last(request)
    rows = await wanted.runs(project_runs, MOST + 1, last)
    found = sorted([*rows, *await wanted.workflows(request, MOST + 1, last)], key=_age, reverse=True)
    shown = found[:MOST]
    records = await project_runs.read_rows([one for one in shown if isinstance(one, RunRow)])
    by_id = {record.run_id: _row(await _shown(request, record)) for record in records}
    table: list[ListedRun | WorkflowRow] = []
    for one in shown:
        if isinstance(one, StoredWorkflow):
            table.append(await project.redacted(await Workflows(project.store).row(one)))
        elif one.run_id in by_id:
            table.append(by_id[one.run_id])
    older = table[-1].run_id if table and len(found) > MOST else ""
    return RunsView(tuple(table), wanted, older, await wanted.measured(request))


@dataclass(frozen=True, slots=True)
class RunsView:
    """The page and its filter; `older` is the id of its last row if there is another page, else empty.

    `measured` are the success criteria of the runs that match, if they are asked for.
    """

    rows: tuple[ListedRun | WorkflowRow, ...]
    wanted: RunFilter
    older: str
    measured: SuccessCriteria | None
    states: tuple[str, ...] = STATES
    reasons: tuple[str, ...] = REASONS


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run in the table."""

    record: RunRecord
    curve: Sparkline
    budget_usd: float | None
    kind: ClassVar[str] = "run"

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.record.run_id

    def document(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {"kind": self.kind, **self.record.summary(), "budget_usd": self.budget_usd}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The filter of the page: state, reason and name (each empty for any), and whether to include inner runs.

    With `criteria`, the success criteria are shown, too. `before` is the id of the last run or workflow on
    the previous page.
    """

    status: str
    reason: str
    name: str
    inner: bool
    criteria: bool
    before: str

    @classmethod
    def of(cls, request: PageRequest) -> RunFilter:
        """Parse the query; raises `ConfigError` for an unknown state or reason."""
        query = request.query
        return cls(
            request.one_of("status", STATES),
            request.one_of("reason", REASONS),
            query.get("name", "").strip(),
            query.get("inner") == "1",
            query.get("criteria") == "1",
            query.get("before", ""),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether the filter excludes any runs."""
        return bool(self.status or self.reason or self.name)

    async def last(self, request: PageRequest) -> Record | None:
        """Return the record of `before`, if set; raises `NotFoundError` if it does not exist."""
        store = request.project.store
        if not self.before:
            return None
        last = await listed(store, RUN, self.before) or await listed(store, WORKFLOW, self.before)
        if last is None:
            raise NotFoundError(f"Can't page from the run {self.before!r}: it is not stored here.")
        return last

    async def runs(self, runs: Runs, limit: int, last: Record | None = None) -> list[RunRow]:
        """Return the newest runs that match."""
        status, name, reason = self.status or None, self.name or None, self.reason or None
        return await runs.rows(
            status=status, name=name, reason=reason, inner=self.inner, after=last, limit=limit
        )

    async def measured(self, request: PageRequest) -> SuccessCriteria | None:
        """Return the success criteria of the newest runs that match, if they are asked for."""
        if not self.criteria:
            return None
        status, name, reason = self.status or None, self.name or None, self.reason or None
        store = request.project.store
        return await success_criteria(store, status=status, name=name, reason=reason, inner=self.inner)

    async def workflows(
        self, request: PageRequest, limit: int, last: Record | None = None
    ) -> list[StoredWorkflow]:
        """Return the newest workflows that match: none if a reason is set, since only loops have one."""
        if self.reason:
            return []
        workflows, status, name = Workflows(request.project.store), self.status or None, self.name or None
        return await workflows.find(status=status, name=name, limit=limit, after=last)


def _age(one: RunRow | StoredWorkflow) -> tuple[datetime, str]:
    """Sort key of runs and workflows, in the order of a store's records."""
    return one.created_at, one.run_id if isinstance(one, RunRow) else one.record.run_id


async def _shown(request: PageRequest, record: RunRecord) -> RunRecord:
    task, origin, error = await request.project.redacted((record.task, record.origin, record.error))
    return replace(record, task=task, origin=origin, error=error)


def _row(record: RunRecord) -> ListedRun:
    curve = sparkline([version.evaluation.overall_score for version in record.versions])
    return ListedRun(record, curve, record.options.get("budget_usd"))


def _document(view: RunsView) -> dict[str, Any]:
    document = {"runs": [row.document() for row in view.rows], "older": view.older or None}
    return document if view.measured is None else {**document, "criteria": view.measured.document()}


async def _fingerprint(request: PageRequest) -> str:
    """Return a value that changes with the table: the newest run, progress of active runs, workflow states.

    A page of older runs does not change.
    """
    wanted, project = RunFilter.of(request), request.project
    if wanted.before:
        return ""
    project_runs = Runs(project.store)
    found = await wanted.runs(project_runs, MOST)
    at_work = [row.run_id for row in found if state_of(row) in AT_WORK]
    workflows = await wanted.workflows(request, WATCHED)
    at_work += [one.record.run_id for one in workflows if one.state in AT_WORK]
    progress = [await project_runs.latest_step(run_id) for run_id in at_work]
    ended = [f"{one.record.run_id} {one.state}" for one in workflows]
    return "; ".join([found[0].run_id if found else "", *progress, *ended])


PAGE = Page("/runs", "history/templates/runs.html", runs, _document, fingerprint=_fingerprint)
