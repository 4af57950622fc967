"""RunList: which runs and workflows are wanted, and the newest of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from redraft.history.ledger import Ledger
from redraft.loop.record import RUN
from redraft.stores.base import Record, listed
from redraft.types import ConvergenceReason
from redraft.web.page import NotFoundError, PageRequest
from redraft.workflow.history import WORKFLOW, KeptWorkflow, Workflows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from redraft.history.entry import Entry
    from redraft.web.project import Project

STATES = ("running", "killed", "unknown", "finished", "failed", "cancelled")
REASONS = tuple(reason.value for reason in ConvergenceReason)


@dataclass(frozen=True, slots=True)
class RunList:
    """Say what is wanted: of a state, a reason, a name (each empty for any), inner runs, too.

    `before` is the last run or workflow of the page before.
    """

    status: str
    reason: str
    name: str
    inner: bool
    before: str

    @classmethod
    def of(cls, request: PageRequest) -> RunList:
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

    async def newest(self, project: Project, limit: int) -> list[Record | KeptWorkflow]:
        """Return what is wanted, the newest first; raises `NotFoundError` where `before` is not there."""
        last = await self._last(project)
        runs: list[Record | KeptWorkflow] = [*await self._runs(project, last, limit)]
        return sorted([*runs, *await self.workflows(project, limit, last)], key=_age, reverse=True)[:limit]

    def chosen(self, entries: Iterable[Entry], last: Record | None = None) -> Iterator[Entry]:
        """Return the entries that are wanted, those of the page before left out."""
        beyond = None if last is None else _age(last)
        return (
            entry for entry in entries if self._admits(entry) and (beyond is None or _age(entry) < beyond)
        )

    async def workflows(self, project: Project, limit: int, last: Record | None = None) -> list[KeptWorkflow]:
        """Return the newest workflows that are wanted: none where a reason is, since that stops a loop."""
        if self.reason:
            return []
        workflows = Workflows(project.store)
        return await workflows.find(
            status=self.status or None, name=self.name or None, limit=limit, after=last
        )

    async def _last(self, project: Project) -> Record | None:
        if not self.before:
            return None
        store = project.store
        last = await listed(store, RUN, self.before) or await listed(store, WORKFLOW, self.before)
        if last is None:
            raise NotFoundError(f"There is no run {self.before!r} here, before which others could be.")
        return last

    async def _runs(self, project: Project, last: Record | None, limit: int) -> list[Record]:
        """Return the records of runs; where they are chosen, the ledger knows which these are."""
        if not self.is_filtered:
            where = {} if self.inner else {"inner": False}
            return await project.store.find(RUN, where=where, newest_first=True, after=last, limit=limit)
        entries = islice(self.chosen(await project.shared(Ledger.of).entries(), last), limit)
        found = [await listed(project.store, RUN, entry.run_id) for entry in entries]
        return [record for record in found if record is not None]

    def _admits(self, entry: Entry) -> bool:
        return (
            (self.inner or not entry.is_inner)
            and self.reason in ("", entry.reason)
            and self.name in ("", entry.name)
            and (not self.status or self.status == entry.state)
        )


def _age(one: Record | KeptWorkflow | Entry) -> tuple[datetime | None, str]:
    """Return by what runs and workflows are ordered, as a store orders its records."""
    match one:
        case Record():
            return one.created_at, one.key
        case KeptWorkflow():
            return one.created_at, one.record.run_id
        case _:
            return one.created_at, one.run_id
