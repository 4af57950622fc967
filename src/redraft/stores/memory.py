"""MemoryStore: records in the memory of this process."""

from __future__ import annotations

import json
from operator import attrgetter
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING

from redraft.stores.base import (
    KindSize,
    NewRow,
    Query,
    Row,
    allowed_texts,
    check_name,
    matches,
    microseconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Record, Where


class MemoryStore:
    """A `Store` that keeps records for as long as the object lives.

    It converts them as a database would, so tests get back what they would get there.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._rows: dict[tuple[str, str], Row] = {}

    async def put(self, record: Record, /) -> Record:
        """Store a record, replacing any with its key; return it as stored."""
        new = NewRow.of(record)
        with self._lock:
            return self._write(new).record()

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all or none; return them as stored."""
        rows = [NewRow.of(record) for record in records]
        with self._lock:
            return self._write_all(rows)

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if another record has these fields, else return None."""
        fields = allowed_texts(where)
        rows = [NewRow.of(record) for record in records]
        with self._lock:
            there = self._rows.get((kind, key))
            if there is None or not matches(json.loads(there.data), fields):
                return None
            return self._write_all(rows)

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the stored one, and whether it is the new one."""
        new = NewRow.of(record)
        with self._lock:
            stored = self._rows.get((new.row.kind, new.row.key))
            return (stored.intact(), False) if stored else (self._write(new).record(), True)

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        new = NewRow.of(record)
        with self._lock:
            stored = self._rows.get((new.row.kind, new.row.key))
            if stored is None or stored.revision != record.revision:
                return None
            if record.created_at is not None and stored.created_at != microseconds(record.created_at):
                return None  # deleted, and another one stored with its key
            return self._write(new).record()

    async def get(self, kind: str, key: str, /) -> Record | None:
        """Return the record with a key, None if there is none."""
        check_name("kind", kind)
        check_name("key", key)
        stored = self._rows.get((kind, key))
        return None if stored is None else stored.intact()

    async def find(
        self,
        kind: str,
        /,
        *,
        prefix: str = "",
        where: Where | None = None,
        newest_first: bool = False,
        after: Record | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Return the records of a kind, ordered by key or newest first."""
        query = Query.of(
            kind, prefix=prefix, where=where, newest_first=newest_first, after=after, limit=limit
        )
        rows = self._rows_of(query)
        if newest_first:
            rows.sort(key=attrgetter("created_at", "key"), reverse=True)
        if query.after is not None:
            last = query.after
            rows = [
                row
                for row in rows
                if ((row.created_at, row.key) < last if newest_first else row.key > last[1])
            ]
        return [row.record() for row in rows[: query.limit]]

    async def delete(self, kind: str, key: str, /) -> bool:
        """Delete a record; return whether there was one."""
        check_name("kind", kind)
        check_name("key", key)
        with self._lock:
            return self._rows.pop((kind, key), None) is not None

    async def kinds(self) -> dict[str, KindSize]:
        """Return how much there is of each kind of records, sorted by kind."""
        with self._lock:
            rows = sorted(self._rows.values(), key=attrgetter("kind"))
        found: dict[str, KindSize] = {}
        for row in rows:
            records, size = found.get(row.kind, (0, 0))
            found[row.kind] = KindSize(records + 1, size + len(row.data.encode()))
        return found

    async def size(self) -> int:
        """Return the bytes of the records."""
        return sum(kind.bytes for kind in (await self.kinds()).values())

    async def problems(self) -> list[str]:
        """Return nothing: the memory of a process does not break."""
        return []

    async def scrub(self) -> str:
        """Do nothing: what was deleted is gone."""
        return ""

    async def aclose(self) -> None:
        """Do nothing: there are no files, and the records stay."""

    def _write(self, new: NewRow, now: int | None = None) -> NewRow:
        now = now or _now()
        place = new.row.kind, new.row.key
        before = self._rows.get(place)
        revision, created_at = (1, now) if before is None else (before.revision + 1, before.created_at)
        stored = new.stored(revision, created_at, now)
        self._rows[place] = stored.row
        return stored

    def _write_all(self, rows: Sequence[NewRow]) -> list[Record]:
        now = _now()
        return [self._write(row, now).record() for row in rows]

    def _rows_of(self, query: Query) -> list[Row]:
        """Return the rows with the kind, prefix and fields, ordered by key."""
        with self._lock:
            rows = [row for row in self._rows.values() if row.kind == query.kind]
        rows = [row for row in rows if row.key.startswith(query.prefix)]
        if query.fields:
            rows = [row for row in rows if row.record().damage or matches(json.loads(row.data), query.fields)]
        return sorted(rows, key=attrgetter("key"))


def _now() -> int:
    return time_ns() // 1000
