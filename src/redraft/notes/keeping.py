"""Keeping: the ids under which an ensemble's runs are kept, and what is done but once under one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.core.codec import from_record, to_record
from redraft.core.errors import StoreError
from redraft.core.steps import direct
from redraft.core.task import Task as Asked
from redraft.loop.journal import Journalled, journal_in
from redraft.loop.keep import kept_step, new_run_id
from redraft.redact.log import logger
from redraft.stores.base import Record, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.core.protocols import Step

R = TypeVar("R")

DONE = "ensemble_step"
"""The kind of the records of what was done around the runs of an ensemble's tasks."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Keep one run of an ensemble, or one task of it, under a run id; without a `store`, nowhere.

    `resumes` says that the id was given, so that something may be there already.
    """

    run_id: str
    store: Store | None = None
    resumes: bool = False

    def part(self, number: int) -> Keeping:
        """Return the keeping of the task with a number, from 1: its id follows from the ensemble's."""
        return Keeping(f"{self.run_id}.{number}", self.store, self.resumes)

    def again(self, attempt: int) -> Keeping:
        """Return the keeping of another attempt at a task, from 2."""
        return Keeping(f"{self.run_id}-{attempt}", self.store, self.resumes)

    def step(self) -> Step:
        """Return the step of the run that has this id."""
        return direct if self.store is None else Journalled(self.store, self.run_id, resumes=self.resumes)

    async def once(self, name: str, returns: type[R], fn: Callable[[], Awaitable[R]]) -> R:
        """Return what `fn` came to under this id before, or call it and write that down.

        What raises is not written down. Raises `StoreError` where an id was given and nothing can be read;
        what can't be written costs nobody an answer.
        """
        if (done := await self.done(name, returns)) is not None:
            return done
        value = await fn()
        await self.write(name, value)
        return value

    async def done(self, name: str, returns: type[R]) -> R | None:
        """Return what was written down under this id before, None where nothing was."""
        if self.store is None or not self.resumes:
            return None
        record = await self.store.get(DONE, f"{self.run_id}/{name}")
        return None if record is None else from_record(returns, record.data["value"])

    async def write(self, name: str, value: Any) -> None:
        """Write down what something came to; where that can't be, a warning says so.

        Under an id that nobody gave nobody asks for it, and the run's own record warns of the store.
        """
        if self.store is None:
            return
        record = Record(DONE, f"{self.run_id}/{name}", {"value": to_record(value)})
        try:
            await self.store.put_if_absent(record)
        except StoreError as error:
            level = logging.WARNING if self.resumes else logging.INFO
            logger.log(level, "What was done for the run %s is not kept (%s): %s", self.run_id, name, error)


def keeping_of(keep: bool | Store, run_id: str | None, name: str) -> Keeping:
    """Say how a run of an ensemble is kept, by the rules for every run.

    Raises `ConfigError` for an id that can't be one, or without a store.
    """
    journal = journal_in(kept_step(keep, run_id, Asked(f"the ensemble {name}")))
    if journal is None:
        return Keeping(new_run_id())
    return Keeping(journal.run_id, journal.store, journal.resumes)
