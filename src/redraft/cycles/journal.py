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

PREFIX = "cycle-"
REPEATABLE = frozenset({"sense"})
"""The steps that only look at the world."""
SOON = 0.02
"""Seconds within which those are written."""
AT_ONCE = 1_000
"""How many records of ended cycles are looked for at once."""


def journal_id(number: int) -> str:
    """Return the id under which a cycle has its journal; later ones sort behind."""
    return f"{PREFIX}{number:010d}"


class CycleJournal(Journalled):
    """Record the steps of one cycle, and replay those that are there already.

    What cost money or changed the world, a model call or an action, is written before the next step begins,
    with all before it. To look at the world is written within 20 ms, with what comes next or alone: a cycle
    that was killed before then looks again. Where the store is out of reach (`is_away`, or nothing comes of a
    write within `patience` seconds) the cycle goes on without a journal; who keeps the memory says so.
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
        super().__init__(steps, journal_id(number), resumes=resumes)
        self._is_away = is_away
        self._patience = patience
        self._is_broken = False
        self._waiting: list[Record] = []
        self._soon: asyncio.TimerHandle | None = None
        self._keys: set[str] = set()
        self._writing: set[asyncio.Task[Any]] = set()

    async def _written(self, place: str, data: dict[str, Any]) -> tuple[Record, bool]:
        record = Record(STEP, f"{self.run_id}/{place}", data)
        if self._is_broken or self._is_away():
            return record, True
        self._waiting.append(record)
        if data["name"] not in REPEATABLE:
            await self.written()
        elif self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write)
        return record, True

    async def written(self) -> None:
        """Write all steps that have ended, and wait until they are, or no longer than that may take."""
        self._write()
        if self._writing:
            _, late = await asyncio.wait(self._writing, timeout=self._patience)
            self._is_broken = self._is_broken or bool(late)

    def _write(self) -> None:
        self._stop_waiting()
        if self._waiting and not self._is_broken and not self._is_away():
            self._keys.update(record.key for record in self._waiting)
            writing = asyncio.ensure_future(self.store.put_all(self._waiting))
            self._writing.add(writing)
            writing.add_done_callback(self._ended)
        self._waiting = []

    def _ended(self, writing: asyncio.Task[Any]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and isinstance(error := writing.exception(), StoreError):
            self._is_broken, self.trouble = True, str(error)

    def _stop_waiting(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    def close(self) -> list[str]:
        """Write no more, since what the steps came to is kept elsewhere; return the keys of their records."""
        self._stop_waiting()
        self._waiting = []
        return [*self._keys, *(f"{self.run_id}/{place}" for place in self._records or {})]


async def forget_before(store: Store, number: int) -> int:
    """Delete the steps of cycles before one, which have ended; return how many there were."""
    count = 0
    while True:
        found = await store.find(STEP, prefix=PREFIX, limit=AT_ONCE)
        ended = [record.key for record in found if record.key < f"{journal_id(number)}/"]
        await asyncio.gather(*(store.delete(STEP, key) for key in ended))
        count += len(ended)
        if len(ended) < AT_ONCE:
            return count
