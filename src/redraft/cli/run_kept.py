"""Kept workflows, as a command begins them and takes them up again."""

from __future__ import annotations

import asyncio
import os
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING

from redraft.core.codec import to_record
from redraft.core.errors import StoreError
from redraft.loop.keep import new_run_id
from redraft.loop.record import Process
from redraft.stores.base import Record
from redraft.stores.place import project_store
from redraft.workflow.kept_workflow import BEGAN, Began, KeptWorkflow, found_workflow

if TYPE_CHECKING:
    from redraft.stores.base import Store

taken_up: ContextVar[KeptWorkflow | None] = ContextVar("taken_up", default=None)
"""The workflow that a command carries out again: with the values that it was given then."""


async def begin(store: Store, again: KeptWorkflow | None) -> str | None:
    """Write down which command begins a workflow, or goes on with one; return the id under which it is kept.

    None where that can't be kept: what is resumed later could not be found.
    """
    if again is not None and again.began is not None:
        run_id, began = again.record.run_id, again.began
        began = Began(began.arguments, began.folder, Process.this())
    else:
        run_id = new_run_id()
        began = Began(tuple(sys.argv[1:]), os.getcwd(), Process.this())  # noqa: PTH109 (as a text)
    try:
        await store.put(Record(BEGAN, run_id, to_record(began)))
    except StoreError:
        if again is not None:
            raise
        return None
    return run_id


def kept_workflow(run: str) -> KeptWorkflow | None:
    """Return the workflow that an id means, or that of a loop in it; None where it means none.

    Raises `ConfigError` for the beginning of several.
    """
    store = project_store()
    return None if store is None else asyncio.run(_found(store, run))


async def _found(store: Store, run: str) -> KeptWorkflow | None:
    try:
        return await found_workflow(store, run, or_of_loop=True)
    finally:
        await store.aclose()
