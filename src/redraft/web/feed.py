"""Feed: each stored record of a kind, handed over once, however many there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING

from redraft.errors import StoreError
from redraft.stores.base import Record, Store, intact

if TYPE_CHECKING:
    from collections.abc import Iterable

PATIENCE = 0.05
"""Seconds that a request waits for records that have not been read yet."""
PAUSE = 0.1
"""Seconds between two portions that are read ahead, in which requests are answered."""
FIRST, MOST = 25, 200
"""Records read at once: few at first, since usually few are new."""
OVERLAP = timedelta(seconds=10)
"""How far back is read again: what was begun earlier may have been written later."""


@dataclass(slots=True)
class Feed:
    """Hand each record of a kind to `receive` once, and read only what is new.

    What was there before the first reading comes in portions, from the newest record back: until
    `is_complete`, the older ones are missing. A record that is changed or deleted later is not noticed.
    """

    store: Store
    kind: str
    receive: Callable[[Record], None]
    is_complete: bool = False
    _oldest: Record | None = None
    _newest_at: datetime | None = None
    _since: datetime | None = None
    _recent: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self, patience: float = PATIENCE) -> None:
        """Read what is new, then at least one portion of older records, for `patience` seconds.

        Raises `StoreError` if the store can't be read.
        """
        async with self._lock:
            await self._read_new()
            until = monotonic() + patience
            while not self.is_complete:
                page = await self._page(self._oldest, MOST)
                self._receive(page)
                self._oldest = page[-1] if page else self._oldest
                self.is_complete = len(page) < MOST
                if monotonic() >= until:
                    break

    async def read_all(self) -> None:
        """Read everything, with pauses in which requests are answered."""
        while not self.is_complete:
            await self.read()
            await asyncio.sleep(PAUSE)

    async def _read_new(self) -> None:
        began, since = datetime.now(UTC), self._since
        after, limit = None, FIRST
        while True:
            page = await self._page(after, limit)
            if self._oldest is None and page:
                self._receive(page)
                self._oldest = page[-1]
            else:
                self._receive(one for one in page if self._may_be_new(one))
            if len(page) < limit or since is None or _age(page[-1])[0] <= since:
                break
            after, limit = page[-1], MOST
        if self._newest_at is not None:
            self._since = min(self._newest_at, began - OVERLAP)
            self._recent = {key: at for key, at in self._recent.items() if at >= self._since}

    async def _page(self, after: Record | None, limit: int) -> list[Record]:
        return await self.store.find(self.kind, newest_first=True, after=after, limit=limit)

    def _may_be_new(self, record: Record) -> bool:
        """Say whether a record was not received yet, and will not be when older ones are read."""
        if record.key in self._recent or (self._since is not None and _age(record)[0] < self._since):
            return False
        return self.is_complete or self._oldest is None or _age(record) > _age(self._oldest)

    def _receive(self, page: Iterable[Record]) -> None:
        for record in page:
            at, _ = _age(record)
            self._newest_at = at if self._newest_at is None else max(self._newest_at, at)
            if self._since is None or at >= self._since:
                self._recent[record.key] = at
            if intact([record]):
                self.receive(record)


def _age(record: Record) -> tuple[datetime, str]:
    """Return what orders records from the oldest to the newest."""
    if record.created_at is None:
        raise StoreError(f"The store does not say when the record {record.key!r} was created.")
    return record.created_at, record.key
