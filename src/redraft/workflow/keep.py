"""Keeping workflows: what one began with and came to, so that it can be looked at and taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from redraft.core.codec import from_record, to_json, to_record
from redraft.core.errors import ChangedRunError, StoreError
from redraft.core.steps import direct
from redraft.core.task import Task
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.journal import Journal, journal_in
from redraft.loop.keep import kept_step
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.workflow.result import WorkflowResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.protocols import Step
    from redraft.stores.base import Store

WORKFLOW = "workflow"
"""The kind of the records of workflows."""


@dataclass(slots=True)
class WorkflowRecord:
    """Hold one carrying out of a workflow: its file and what it was given, and what it came to.

    The steps of its nodes are in its journal, the runs of its loops have it as their parent.
    """

    run_id: str
    name: str
    file: str
    given: Mapping[str, Any]
    started_at: datetime
    status: Literal["running", "finished", "failed", "cancelled", "damaged"] = "running"
    finished_at: datetime | None = None
    state: dict[str, Any] | None = None
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    error: str = ""


async def keep_workflow(
    name: str,
    file: str,
    given: Mapping[str, Any],
    keep: bool | Store,
    run_id: str | None,
    carry_out: Callable[[Step], Awaitable[WorkflowResult]],
) -> WorkflowResult:
    """Carry out a workflow and keep it; one that was interrupted goes on after its last finished node.

    One that has finished gives its result again. Raises `ChangedRunError` for an id under which something
    else was carried out; one that can't be kept is carried out all the same, with a warning, unless an id was
    given.
    """
    step = kept_step(keep, run_id, Task(f"{name} {to_json(given)}"))
    if (journal := journal_in(step)) is None:
        return await carry_out(step)
    journal.begin()
    record = WorkflowRecord(journal.run_id, name, file, given, datetime.now(UTC))
    try:
        stored, is_new = await journal.store.put_if_absent(_stored(record))
        if not is_new:
            before = from_record(WorkflowRecord, stored.data)
            if (before.name, before.given) != (name, to_json(given)):
                raise ChangedRunError(
                    f"Under the id {journal.run_id!r} the workflow {before.name!r} ran with other values. "
                    "Give a new one a new run_id."
                )
            if before.status == "finished" and before.state is not None:
                return WorkflowResult(
                    before.state, before.run_id, before.nodes, before.usage, before.execution_time
                )
            record.started_at = before.started_at
            await journal.reopen()
            await journal.store.put(_stored(record))
    except StoreError as error:
        if journal.resumes:
            raise
        logger.warning("The workflow is not kept: %s", error)
        return await carry_out(direct)
    try:
        result = await carry_out(step)
    except BaseException as error:
        record.status = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
        record.error = f"{type(error).__name__}: {error}"
        await _ended(record, journal)
        raise
    record.status, record.state, record.nodes = "finished", result.state, result.nodes
    record.usage, record.execution_time = result.usage, result.execution_time
    await _ended(record, journal)
    return result


async def _ended(record: WorkflowRecord, journal: Journal) -> None:
    record.finished_at = datetime.now(UTC)
    try:
        await journal.store.put(_stored(record))
    except StoreError as error:
        logger.warning("The end of the workflow %s is not kept: %s", record.run_id, error)


def _stored(record: WorkflowRecord) -> Record:
    asked = {"status": record.status, "name": record.name}
    return Record(WORKFLOW, record.run_id, to_record(record) | asked)
