"""The runs page: runs and workflows, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.evals.success import SuccessCriteria, success_criteria
from redraft.loop.record import RUN, RunRecord
from redraft.loop.runs import AT_WORK, STATES, Runs, state_of
from redraft.stores.base import listed
from redraft.stores.run_index import RunRow
from redraft.types import ConvergenceReason
from redraft.web.charts import sparkline
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.workflow.history import WORKFLOW, StoredWorkflow, Workflows

if TYPE_CHECKING:
    from datetime import datetime

    from redraft.stores.base import Record


REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50
WATCHED = 10
"""How many of the newest workflows are checked for changes: active ones are among them."""


async def runs(request: PageRequest) -> dict[str, Any]:
    """A page of the runs and workflows that match the query, and their success criteria if it asks for them.

    `older` is the id of the last row if there is another page.
    """
    wanted, project = RunFilter.of(request), request.project
    project_runs = Runs(project.store)
    last = await wanted.last(request)
    rows = await wanted.runs(project_runs, MOST + 1, last)
    found = sorted([*rows, *await wanted.workflows(request, MOST + 1, last)], key=_age, reverse=True)
    shown = found[:MOST]
    records = await project_runs.read_rows([row for row in shown if isinstance(row, RunRow)])
    by_id = {record.run_id: (await _redacted(request, record)).summary() for record in records}
    table: list[dict[str, Any]] = []
    for row in shown:
        if isinstance(row, StoredWorkflow):
            table.append((await project.redacted(await Workflows(project.store).row(row))).document())
        elif row.run_id in by_id:
            table.append(by_id[row.run_id])
    older = table[-1]["run_id"] if table and len(found) > MOST else None
    page = {"filter": wanted, "runs": table, "older": older}
    measured = await wanted.measured(request)
    return page if measured is None else {**page, "criteria": measured}


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
    def _wanted(self) -> dict[str, Any]:
        """The arguments of a search of runs; None for any."""
        return {"status": self.status or None, "name": self.name or None, "reason": self.reason or None}

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
        return await runs.rows(**self._wanted, inner=self.inner, after=last, limit=limit)

    async def measured(self, request: PageRequest) -> SuccessCriteria | None:
        """Return the success criteria of the newest runs that match, if they are asked for."""
        if not self.criteria:
            return None
        return await success_criteria(request.project.store, **self._wanted, inner=self.inner)

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


async def _redacted(request: PageRequest, record: RunRecord) -> RunRecord:
    task, origin, error = await request.project.redacted((record.task, record.origin, record.error))
    return replace(record, task=task, origin=origin, error=error)


def _document(page: dict[str, Any]) -> dict[str, Any]:
    measured: SuccessCriteria | None = page.get("criteria")
    return page if measured is None else {**page, "criteria": measured.document()}


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


PAGE = Page(
    "/runs",
    "history/templates/runs.html",
    runs,
    _document,
    functions={"REASONS": REASONS, "STATES": STATES, "sparkline": sparkline},
    fingerprint=_fingerprint,
)
