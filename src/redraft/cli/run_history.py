"""The kept workflows, as commands read them: whatever a command shows of them comes through here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from redraft.loop.record import Process
from redraft.redact.environment import redactor_of_environment
from redraft.stores.place import project_store
from redraft.workflow.history import WorkflowHistory, WorkflowRow, workflow_history, workflow_row
from redraft.workflow.kept_workflow import found_workflow, kept_workflows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.stores.base import Store

T = TypeVar("T")


def read_history(run: str) -> WorkflowHistory | None:
    """Read the workflow that an id means: its own, the beginning of one, or `last`; secrets are withheld.

    None where it means none, or a run. Raises `ConfigError` for the beginning of several.
    """

    async def read(store: Store) -> WorkflowHistory | None:
        kept = await found_workflow(store, run)
        return None if kept is None else await workflow_history(store, kept)

    # Whether one was killed is known by its process, which no view shows.
    history = _reading(read)
    return None if history is None else redactor_of_environment().redact_object(history, spared=(Process,))


def read_workflows(*, status: str | None, name: str | None, limit: int) -> list[WorkflowRow]:
    """Read the newest workflows that fit, with their secrets withheld."""

    async def read(store: Store) -> list[WorkflowRow]:
        return [await workflow_row(store, one) for one in await kept_workflows(store, status, name, limit)]

    return [redactor_of_environment().redact_object(row) for row in _reading(read) or ()]


def _reading(read: Callable[[Store], Awaitable[T]]) -> T | None:
    store = project_store()
    if store is None:
        return None

    async def reading() -> T:
        try:
            return await read(store)
        finally:
            await store.aclose()

    return asyncio.run(reading())
