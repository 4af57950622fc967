"""CycleJournal: the steps of one cycle, so that one which was killed repeats none that was finished."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from redraft.core.errors import StoreError
from redraft.loop.journal import STEP, Journalled
from redraft.stores.base import Record
from redraft.stores.postgres import PostgresStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.stores.base import Store

JOURNAL = "journal"
"""The kind of the record of a journal, and its key: each cycle writes over that of the one before."""
QUICK = 0.02
"""Seconds: within so many a quick look or thought is written."""


class CycleJournal(Journalled):
    """Record the steps of one cycle, and replay those that are there already.

    What cost money, took time or changed the world, a model call or an action, is written before the next
    step begins, with all before it. To look at the world, or to think for less time than a write takes, is
    written within 20 ms, with what comes next or alone: a cycle that was killed before then does it again.
    Where the store is out of reach (`is_away`, or nothing comes of a write within `patience` seconds) the
    cycle goes on without a journal; who keeps the memory says so.
    """

    def __init__(
        self,
        store: Store,
        number: int,
        *,
        resumes: bool,
        is_away: Callable[[], bool],
        patience: float | None = None,
    ) -> None:
        # A journal is there for a process that is killed, and has to wait for no disk but a file's.
        steps = store.hasty() if isinstance(store, PostgresStore) else store
        super().__init__(steps, f"cycle-{number}", resumes=resumes)
        self._number = number
        self._is_away = is_away
        self._patience = patience
        self._is_broken = False
        self._steps: dict[str, dict[str, Any]] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._writing: set[asyncio.Task[Any]] = set()

    async def written(self) -> None:
        """Write all steps that have ended, and wait until they are, or no longer than that may take."""
        self._write()
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=self._patience)
            self._is_broken = self._is_broken or bool(late)

    def close(self) -> None:
        """Write no more: what the steps came to is kept elsewhere."""
        self._is_broken = True
        self._stop_waiting()

    async def _recorded(self, place: str) -> Record | None:
        return (await self._read()).get(place)  # no other process is at work on this agent

    async def _read(self) -> dict[str, Record]:
        if self._records is None:
            found = await self.store.get(JOURNAL, JOURNAL)
            if found is not None and found.data.get("cycle") == self._number:
                self._steps = dict(found.data["steps"])
            self._records = {
                place: Record(STEP, f"{self.run_id}/{place}", data) for place, data in self._steps.items()
            }
            self._worked = max((data["elapsed"] for data in self._steps.values()), default=0.0)
        return self._records

    async def _written(self, place: str, data: dict[str, Any]) -> tuple[Record, bool]:
        record = Record(STEP, f"{self.run_id}/{place}", data)
        if self._is_broken or self._is_away():
            return record, True
        self._steps[place] = data
        if not _is_repeatable(place, data):
            await self.written()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(QUICK, self._write)
        return record, True

    def _write(self) -> None:
        self._stop_waiting()
        if self._steps and not self._is_broken and not self._is_away():
            record = Record(JOURNAL, JOURNAL, {"cycle": self._number, "steps": dict(self._steps)})
            writing = asyncio.ensure_future(self.store.put(record))
            self._writing.add(writing)
            writing.add_done_callback(self._ended)

    def _ended(self, writing: asyncio.Task[Any]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and isinstance(error := writing.exception(), StoreError):
            self._is_broken, self.trouble = True, str(error)

    def _stop_waiting(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None


def _is_repeatable(place: str, data: dict[str, Any]) -> bool:
    """Say of a step whether it may be done again: not a call inside another one, not an action."""
    if data["name"] == "sense":
        return True
    is_call, is_action = "/" in place, data["name"].count("/") > 1
    return not is_call and not is_action and data["elapsed"] - data["began"] < QUICK
