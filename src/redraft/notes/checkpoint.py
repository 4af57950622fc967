"""Checkpoints: what an ensemble has done beside its tasks' runs, so that resuming it does not repeat it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._codec import from_record, to_record
from redraft.errors import StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record

if TYPE_CHECKING:
    from redraft.loop.keeper import RunKey

T = TypeVar("T")

CHECKPOINT = "ensemble_step"
"""The kind of the records; their keys are the run's id, a slash and the checkpoint's name."""


async def load(key: RunKey, name: str, returns: type[T]) -> T | None:
    """Return the value saved under a name, if the run is resumed and has one.

    Raises `StoreError` if the store can't be read.
    """
    if key.store is None or not key.resumes:
        return None
    record = await key.store.get(CHECKPOINT, f"{key.run_id}/{name}")
    return None if record is None else from_record(returns, record.data["value"])


async def save(key: RunKey, name: str, value: Any) -> None:
    """Save a value for when the run is resumed, unless one is saved; a failure is only logged."""
    if key.store is None:
        return
    record = Record(CHECKPOINT, f"{key.run_id}/{name}", {"value": to_record(value)})
    try:
        await key.store.put_if_absent(record)
    except StoreError as error:
        # A run without a given id is not resumed, and its own record warns of the store.
        level = logging.WARNING if key.resumes else logging.INFO
        logger.log(level, "The checkpoint %r of the run %s is not stored: %s", name, key.run_id, error)
