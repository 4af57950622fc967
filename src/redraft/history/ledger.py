"""Ledger: of every run of the project a few words, so that questions about all of them are quick."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from datetime import timedelta
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING

from redraft.history.entry import Entry, entry_of
from redraft.history.spending import Spending
from redraft.loop.record import RUN
from redraft.loop.runs import KILLED
from redraft.stores.base import Record, Store, listed

if TYPE_CHECKING:
    from redraft.web.project import Project

EACH = 1.0
"""Seconds for which what was read is new enough."""
PATIENCE = 0.1
"""Seconds that one question waits for what was not read yet."""
FIRST, MOST = 25, 200
"""Runs that are read at once: few at first, since mostly few are new."""
OVERLAP = timedelta(minutes=1)
"""How far back is read again: what was begun a little earlier may have been written a little later."""
SOMETIMES = 30.0
"""Seconds after which runs whose process is gone are read again: one may have been resumed."""
_age = attrgetter("created_at", "run_id")


@dataclass(slots=True)
class Ledger:
    """Keep an entry for each run of a store with what all spent, and read only what is new.

    The first reading takes about a tenth of a millisecond a run, and is done in portions, from the newest
    run back: until `is_whole`, the older ones are missing. A run that had ended and was resumed later counts
    as it was before.
    """

    store: Store
    is_whole: bool = False
    spending: Spending = field(default_factory=Spending)
    _entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    _oldest_first: list[Entry] = field(default_factory=list[Entry])
    _newest_first: tuple[Entry, ...] = ()
    _oldest: Record | None = None
    _read_at: float = float("-inf")
    _unended_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def of(cls, project: Project) -> Ledger:
        """Return one for a project."""
        return cls(project.store)

    async def entries(self, patience: float = PATIENCE) -> tuple[Entry, ...]:
        """Return the entries, the newest first, after no more than `patience` seconds of the first reading.

        Raises `StoreError` where they can't be read.
        """
        async with self._lock:
            changed = False
            if monotonic() - self._read_at >= EACH:
                changed |= await self._read_new()
                changed |= await self._read_unended()
                self._read_at = monotonic()
            until = monotonic() + patience
            while not self.is_whole and monotonic() < until:
                changed |= await self._read_older()
            if changed:
                self._newest_first = tuple(reversed(self._oldest_first))
            return self._newest_first

    def entry(self, run_id: str) -> Entry | None:
        """Return the entry of a run, None where none was read yet."""
        return self._entries.get(run_id)

    async def _read_new(self) -> bool:
        """Read what was begun since the last time; say if anything differs."""
        known = self._newest_first[0].created_at - OVERLAP if self._newest_first else None
        after, changed, limit = None, False, FIRST
        while True:
            page = await self.store.find(RUN, newest_first=True, after=after, limit=limit)
            for record in page:
                changed |= self._note(record)
            if self._oldest is None and page:
                self._oldest = page[-1]
            if len(page) < limit or known is None or page[-1].created_at < known:  # pyright: ignore[reportOptionalOperand] (the store has filled it in)
                return changed
            after, limit = page[-1], MOST

    async def _read_older(self) -> bool:
        """Read one portion more of those that were there before; say if there was any."""
        page = await self.store.find(RUN, newest_first=True, after=self._oldest, limit=MOST)
        for record in page:
            self._note(record)
        self._oldest = page[-1] if page else self._oldest
        self.is_whole = len(page) < MOST
        return bool(page)

    async def _read_unended(self) -> bool:
        """Read again those that had not ended; say if anything differs."""
        also_killed = monotonic() - self._unended_at >= SOMETIMES
        if also_killed:
            self._unended_at = monotonic()
        changed = False
        for entry in list(self.spending.unended.values()):
            if also_killed or entry.state != KILLED:
                record = await listed(self.store, RUN, entry.run_id)
                if record is None:
                    self._forget(entry)
                changed |= record is None or self._note(record)
        return changed

    def _note(self, record: Record) -> bool:
        entry = entry_of(record)
        known = self._entries.get(entry.run_id)
        if known == entry:
            return False
        if known is not None:
            self._forget(known)
        self._entries[entry.run_id] = entry
        insort(self._oldest_first, entry, key=_age)  # to sort all takes a tenth of a second
        self.spending.add(entry)
        return True

    def _forget(self, known: Entry) -> None:
        del self._entries[known.run_id]
        del self._oldest_first[bisect_left(self._oldest_first, _age(known), key=_age)]
        self.spending.remove(known)
