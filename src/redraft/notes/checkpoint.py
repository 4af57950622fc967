"""Checkpoints: what an ensemble has done beside its tasks' runs, so that resuming it does not repeat it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._codec import from_record, to_record
from redraft.errors import StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.run_index import CHECKPOINT, Expense, spent
from redraft.types import NOTHING_USED

if TYPE_CHECKING:
    from redraft.loop.journal import RunKey
    from redraft.types import TokenUsage

T = TypeVar("T")


# The key of a checkpoint's record is the run's id, a slash and the checkpoint's name.


async def load(key: RunKey, name: str, returns: type[T]) -> T | None:
    """Return the value saved under a name, if the run is resumed and has one.

    Raises `StoreError` if the store can't be read.
    """
    if key.store is None or not key.resumes:
        return None
    record = await key.store.get(CHECKPOINT, f"{key.run_id}/{name}")
    return None if record is None else from_record(returns, record.data["value"])


async def save(key: RunKey, name: str, value: Any, used: TokenUsage = NOTHING_USED) -> None:
    """Save a value, and what it cost, unless one is saved by this name; a failure is only logged."""
    if key.store is None:
        return
    data: dict[str, Any] = {"value": to_record(value)}
    if used != NOTHING_USED:
        data["index"] = Expense(datetime.now(UTC), key.run_id, **spent([used])).to_data()
    try:
        await key.store.put_if_absent(Record(CHECKPOINT, f"{key.run_id}/{name}", data))
    except StoreError as error:
        # A run without a given id is not resumed, and its own record warns of the store.
        level = logging.WARNING if key.resumes else logging.INFO
        logger.log(level, "The checkpoint %r of the run %s could not be stored: %s", name, key.run_id, error)
