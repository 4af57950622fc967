"""Ledger: of every run of the project a few words, so that questions about all of them are quick."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from sys import intern
from time import monotonic
from typing import Any

from redraft.core.errors import StoreError
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.record import RUN, Process
from redraft.loop.runs import KILLED
from redraft.stores.base import Record, Store

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
LONGEST_TASK = 200


@dataclass(frozen=True, slots=True)
class Entry:
    """Say of one run what lists and sums need; `task` is the beginning of its description, not yet redacted.

    `usage` is by role. `after_best` is what the versions after the best one used. `process` is there while
    the run has not ended.
    """

    run_id: str
    created_at: datetime
    status: str
    reason: str
    name: str
    model: str
    task: str
    is_inner: bool
    process: Process | None
    versions: int
    first_score: float | None
    best_score: float | None
    usage: Mapping[str, TokenUsage]
    after_best: TokenUsage

    @property
    def state(self) -> str:
        """How it stands now: its status, or `killed` for a running one whose process is gone."""
        return KILLED if self.process is not None and self.process.is_gone() else self.status


@dataclass(slots=True)
class Ledger:
    """Keep an entry for each run of a store, and read only what is new.

    The first reading takes about a tenth of a millisecond a run, and is done in portions, from the newest
    run back: until `is_whole`, the older ones are missing. A run that had ended and was resumed later counts
    as it was before.
    """

    store: Store
    is_whole: bool = False
    _entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    _newest_first: tuple[Entry, ...] = ()
    _oldest: Record | None = None
    _read_at: float = float("-inf")
    _unended_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

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
                age = attrgetter("created_at", "run_id")
                self._newest_first = tuple(sorted(self._entries.values(), key=age, reverse=True))
            return self._newest_first

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
        for entry in [one for one in self._entries.values() if one.process is not None]:
            if also_killed or entry.state != KILLED:
                record = await self.store.get(RUN, entry.run_id)
                if record is None:
                    del self._entries[entry.run_id]
                changed |= record is None or self._note(record)
        return changed

    def _note(self, record: Record) -> bool:
        entry = entry_of(record)
        if self._entries.get(entry.run_id) == entry:
            return False
        self._entries[entry.run_id] = entry
        return True


def entry_of(record: Record) -> Entry:
    """Make an entry of the record of a run, as it is stored; raises `StoreError` where that is damaged."""
    try:
        return _entry(record.key, record.created_at or datetime.now(UTC), record.data)
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"The record of the run {record.key!r} is damaged: {error!r}.") from error


def _entry(run_id: str, created_at: datetime, data: Mapping[str, Any]) -> Entry:
    origin, status = data.get("origin", {}), data.get("status", "running")
    versions: list[Any] = data.get("versions", [])
    scores = {one["iteration"]: one["evaluation"].get("overall_score") for one in versions}
    best = data.get("best")
    later = (_usage(one) for one in versions if best is not None and one["iteration"] > best)
    return Entry(
        run_id,
        created_at,
        intern(status),
        intern(data.get("reason") or ""),
        intern(origin.get("name", "")),
        intern(origin.get("model", "")),
        intern(data["task"]["description"][:LONGEST_TASK]),
        bool(data.get("inner")),
        Process(**data["process"]) if status == "running" else None,
        data.get("revisions", 0) + 1 if versions else 0,
        next(iter(scores.values()), None),
        scores.get(best),
        {intern(role): TokenUsage(**used) for role, used in data.get("usage_by_role", {}).items()},
        sum(later, NOTHING_USED),
    )


def _usage(version: Mapping[str, Any]) -> TokenUsage:
    used = version.get("token_usage")
    return NOTHING_USED if used is None else TokenUsage(**used)
