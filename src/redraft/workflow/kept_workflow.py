"""KeptWorkflow: one carrying out of a workflow as it is kept, and how it is found again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from redraft.core.codec import from_record
from redraft.core.errors import ConfigError
from redraft.loop.record import RUN, Process
from redraft.loop.runs import LAST, PAGE, UNENDED
from redraft.stores.base import intact
from redraft.workflow.keep import WORKFLOW, WorkflowRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Record, Scalar, Store

BEGAN = "workflow command"
"""The kind of the records that say which command began a workflow."""


@dataclass(frozen=True, slots=True)
class Began:
    """Say which command began a workflow, in which folder, and which process is at work on it."""

    arguments: tuple[str, ...]
    folder: str
    process: Process


@dataclass(frozen=True, slots=True)
class KeptWorkflow:
    """Hold a kept workflow; `began` is None where a program began it.

    `created_at` is when the store first had it, by which the newest first are read.
    """

    record: WorkflowRecord
    began: Began | None
    created_at: datetime

    @property
    def state(self) -> str:
        """How it stands now: its status, or for a running one what is known of its process."""
        if self.record.status != "running" or self.began is None:
            return self.record.status
        return self.began.process.state_of_run


async def found_workflow(store: Store, run: str, *, or_of_loop: bool = False) -> KeptWorkflow | None:
    """Find the workflow that an id means, with `or_of_loop` also by the id of a loop in it.

    That is its own id, how it begins, or `last`; None where it means none: it may be a run. Raises
    `ConfigError` for the beginning of several.
    """
    found = await (_last(store) if run == LAST else _named(store, run, or_of_loop=or_of_loop))
    return None if found is None else await _read(store, found)


async def kept_workflows(
    store: Store, status: str | None, name: str | None, limit: int, *, after: Record | None = None
) -> list[KeptWorkflow]:
    """Return the newest workflows first, of a status (`killed` and `unknown` are some), of a name.

    They are those that began before `after`, the record of a workflow or run. One whose record is damaged is
    among them, with the status `damaged`.
    """
    where: dict[str, Scalar] = {} if name is None else {"name": name}
    if status is not None:
        where["status"] = "running" if status in UNENDED else status
    # Which of those that have not ended were killed shows only when one looks for their processes.
    most = None if where.get("status") == "running" else limit
    found = await store.find(WORKFLOW, where=where, newest_first=True, after=after, limit=most)
    kept = [_damaged(record) if record.damage else await _read(store, record) for record in found]
    return [one for one in kept if status in (None, one.state) or one.record.status == "damaged"][:limit]


def _damaged(found: Record) -> KeptWorkflow:
    record = WorkflowRecord(found.key, "", "", {}, _age(found), "damaged", error=found.damage)
    return KeptWorkflow(record, None, _age(found))


async def _read(store: Store, found: Record) -> KeptWorkflow:
    record = from_record(WorkflowRecord, found.data)
    began = await store.get(BEGAN, found.key)
    return KeptWorkflow(record, None if began is None else from_record(Began, began.data), _age(found))


async def _last(store: Store) -> Record | None:
    """Return the workflow that began last, unless a run outside of it began later."""
    workflows = intact(await store.find(WORKFLOW, newest_first=True, limit=PAGE))[:1]
    runs = intact(await store.find(RUN, where={"inner": False}, newest_first=True, limit=PAGE))[:1]
    if not workflows or not runs or _is_inside(runs[0], workflows[0]):
        return workflows[0] if workflows else None
    return max((*workflows, *runs), key=_age) if _age(workflows[0]) > _age(runs[0]) else None


async def _named(store: Store, run: str, *, or_of_loop: bool) -> Record | None:
    if record := await store.get(WORKFLOW, run):
        return record
    if (inner := await store.get(RUN, run)) is not None:
        return await store.get(WORKFLOW, str(inner.data.get("parent") or "")) if or_of_loop else None
    if not run:
        return None
    workflows = await store.find(WORKFLOW, prefix=run, limit=3)
    runs = [one for one in await store.find(RUN, prefix=run) if not _is_in_any(one, workflows)]
    if len(workflows) > 1 or (workflows and runs):
        names = ", ".join(record.key for record in (*workflows, *runs[:3]))
        raise ConfigError(f"Several runs begin with {run!r}: {names}; give more of the one you mean.")
    return workflows[0] if workflows else None


def _is_inside(run: Record, workflow: Record) -> bool:
    return run.key.startswith(f"{workflow.key}.")


def _is_in_any(run: Record, workflows: Sequence[Record]) -> bool:
    return any(_is_inside(run, workflow) for workflow in workflows)


def _age(record: Record) -> datetime:
    return record.created_at or datetime.now(UTC)
