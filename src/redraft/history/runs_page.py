"""The runs page: runs and workflows, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.evals.success import SuccessCriteria, success_criteria
from redraft.loop.record import RUN
from redraft.loop.runs import ACTIVE, STATES, Runs, state_of
from redraft.stores.base import listed
from redraft.stores.run_index import RunRow
from redraft.types import ConvergenceReason
from redraft.web.charts import sparkline
from redraft.web.page import NotFoundError, Page, PageRequest
from redraft.workflow.history import WORKFLOW, StoredWorkflow, Workflows

if TYPE_CHECKING:
    from redraft.stores.base import Record


REASONS = tuple(reason.value for reason in ConvergenceReason)
MOST = 50
WATCHED = 10
"""The newest workflows that are checked for changes; active ones are among them."""


async def runs(request: PageRequest) -> dict[str, Any]:
    """The runs and workflows that match the query, a page at a time, with their success criteria on request.

    `older` is the id of the last row if there is another page.
    """
    run_filter, project = RunFilter.of(request), request.project
    project_runs = Runs(project.store)
    last = await run_filter.last(request)
    loops = await run_filter.runs(project_runs, MOST + 1, last)
    rows = [*loops, *await run_filter.workflows(request, MOST + 1, last)]
    # In the order of a store's records.
    rows.sort(
        key=lambda row: (row.created_at, row.run_id if isinstance(row, RunRow) else row.record.run_id),
        reverse=True,
    )
    by_id: dict[str, dict[str, Any]] = {}
    for record in await project_runs.read_rows([row for row in rows[:MOST] if isinstance(row, RunRow)]):
        task, origin, error = await project.redacted((record.task, record.origin, record.error))
        by_id[record.run_id] = replace(record, task=task, origin=origin, error=error).summary()
    table: list[dict[str, Any]] = []
    for row in rows[:MOST]:
        if isinstance(row, StoredWorkflow):
            table.append((await project.redacted(await Workflows(project.store).row(row))).document())
        elif row.run_id in by_id:
            table.append(by_id[row.run_id])
    older = table[-1]["run_id"] if table and len(rows) > MOST else None
    page = {"filter": run_filter, "runs": table, "older": older}
    measured = await run_filter.measured(request)
    return page if measured is None else {**page, "criteria": measured}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """The query of the page."""

    status: str
    """A state, empty for any, as with `reason` and `name`."""
    reason: str
    name: str
    inner: bool
    """Whether to include inner runs."""
    criteria: bool
    """Whether to show the success criteria, too."""
    before: str
    """The id of the last run or workflow on the previous page; empty for the first page."""

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
    def _arguments(self) -> dict[str, Any]:
        """The arguments of a search for runs; None for any."""
        return {"status": self.status or None, "name": self.name or None, "reason": self.reason or None}

    @property
    def is_filtered(self) -> bool:
        """Whether the filter excludes any runs."""
        return bool(self.status or self.reason or self.name)

    async def last(self, request: PageRequest) -> Record | None:
        """The record of `before`; None for the first page. Raises `NotFoundError` if it does not exist."""
        store = request.project.store
        if not self.before:
            return None
        last = await listed(store, RUN, self.before) or await listed(store, WORKFLOW, self.before)
        if last is None:
            raise NotFoundError(f"Can't page from the run {self.before!r}: it is not stored here.")
        return last

    async def runs(self, runs: Runs, limit: int, last: Record | None = None) -> list[RunRow]:
        """The newest runs that match."""
        return await runs.rows(**self._arguments, inner=self.inner, after=last, limit=limit)

    async def measured(self, request: PageRequest) -> SuccessCriteria | None:
        """The success criteria of the newest runs that match; None unless requested."""
        if not self.criteria:
            return None
        return await success_criteria(request.project.store, **self._arguments, inner=self.inner)

    async def workflows(
        self, request: PageRequest, limit: int, last: Record | None = None
    ) -> list[StoredWorkflow]:
        """The newest workflows that match; none if a reason is set, since only loops have one."""
        if self.reason:
            return []
        workflows, status, name = Workflows(request.project.store), self.status or None, self.name or None
        return await workflows.find(status=status, name=name, limit=limit, after=last)


def _document(page: dict[str, Any]) -> dict[str, Any]:
    measured: SuccessCriteria | None = page.get("criteria")
    return page if measured is None else {**page, "criteria": measured.document()}


async def _fingerprint(request: PageRequest) -> str:
    """A value that changes with the table: the newest run, the progress of active runs, workflow states.

    A page of older runs does not change.
    """
    run_filter, project = RunFilter.of(request), request.project
    if run_filter.before:
        return ""
    project_runs = Runs(project.store)
    rows = await run_filter.runs(project_runs, MOST)
    active = [row.run_id for row in rows if state_of(row) in ACTIVE]
    workflows = await run_filter.workflows(request, WATCHED)
    active += [workflow.record.run_id for workflow in workflows if workflow.state in ACTIVE]
    progress = [await project_runs.latest_step(run_id) for run_id in active]
    states = [f"{workflow.record.run_id} {workflow.state}" for workflow in workflows]
    return "; ".join([rows[0].run_id if rows else "", *progress, *states])


PAGE = Page(
    "/runs",
    "history/templates/runs.html",
    runs,
    _document,
    functions={"REASONS": REASONS, "STATES": STATES, "sparkline": sparkline},
    fingerprint=_fingerprint,
)
