"""SqliteStore: records in a file that many tasks, threads and processes share."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from redraft.core.errors import ConfigError, StoreError
from redraft.stores import sqlite_records as sql
from redraft.stores.question import question
from redraft.stores.row import check_name, microseconds, row_and_copy
from redraft.stores.sqlite_faults import explained
from redraft.stores.sqlite_sessions import Reader, Writer
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection

    from redraft.stores.base import Record, Where

T = TypeVar("T")


class SqliteStore:
    """Keep records in a SQLite database, durable when a write returns: a `Store`.

    `path` is usually `.redraft/redraft.db`; the file and its folder are made by the first write, for their
    owner only. `space` sets a project's records apart from those of others in the same file. `wait` is how
    many seconds a write waits for other processes. One store serves all tasks and threads of a process, and
    opens itself again after `aclose`, in a forked child, and when what kept it from working is over.
    """

    def __init__(self, path: str | Path, space: str = "", *, wait: float = 30.0) -> None:
        check_name("space", space)
        if "\0" in str(path):
            raise ConfigError(f"The path of a database must be without NUL characters, got {str(path)!r}.")
        self._path = Path(path).absolute()
        self._space = space
        self._wait = wait
        self._reader = Worker("redraft-reader", partial(Reader, self._path, wait))
        self._writer = Worker("redraft-writer", partial(Writer, self._path, wait))

    async def put(self, record: Record, /) -> Record:
        """Store a record in place of the one with its key, if there is one; return it as it is stored."""
        row, copy = row_and_copy(record)
        return (await self._do(self._writer, partial(sql.put, self._space, row))).record(copy)

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all of them or none; return them as they are stored."""
        if not (rows := [row_and_copy(record) for record in records]):
            return []
        stored = await self._do(self._writer, partial(sql.put_all, self._space, [row for row, _ in rows]))
        return [row.record(copy) for row, (_, copy) in zip(stored, rows, strict=True)]

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if another record has these fields; else return None."""
        check_name("key", key)
        asked = question(kind, where=where)
        rows = [row_and_copy(record) for record in records]
        steps = partial(sql.put_all_if, self._space, asked, key, [row for row, _ in rows])
        stored = await self._do(self._writer, steps)
        if stored is None:
            return None
        return [row.record(copy) for row, (_, copy) in zip(stored, rows, strict=True)]

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the one that is stored, and whether it is this."""
        row, copy = row_and_copy(record)
        stored, is_new = await self._do(self._writer, partial(sql.put_if_absent, self._space, row))
        return stored.record(copy) if is_new else stored.intact(), is_new

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        created_at = 0 if record.created_at is None else microseconds(record.created_at)
        row, copy = row_and_copy(record)
        row = row._replace(revision=record.revision, created_at=created_at)
        stored = await self._do(self._writer, partial(sql.replace, self._space, row))
        return None if stored is None else stored.record(copy)

    async def get(self, kind: str, key: str, /) -> Record | None:
        """Return the record with a key."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._do(self._reader, partial(sql.get, self._space, kind, key))

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
        """Return the records of a kind, in the order of their keys or the newest first."""
        asked = question(
            kind, prefix=prefix, where=where, newest_first=newest_first, after=after, limit=limit
        )
        return await self._do(self._reader, partial(sql.find, self._space, asked))

    async def delete(self, kind: str, key: str, /) -> bool:
        """Remove a record; say if there was one."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._do(self._writer, partial(sql.delete, self._space, kind, key))

    async def near(
        self, kind: str, vector: Sequence[float], /, *, where: Where | None = None, limit: int = 3
    ) -> list[tuple[Record, float]]:
        """Return the records whose vectors are nearest, with the cosine similarity (-1..1), nearest first."""
        asked = question(kind, where=where, limit=limit)
        return await self._do(self._reader, partial(sql.near, self._space, asked, tuple(vector), limit))

    async def aclose(self) -> None:
        """Write what is still to be written, and let go of files and connections."""
        await self._writer.stop()
        await self._reader.stop()

    async def _do(self, worker: Worker, work: Callable[[Connection], T]) -> T:
        try:
            return await worker.do(work)
        except (StoreError, sqlite3.Error, OSError) as error:
            raise explained(error, self._path, self._wait) from error
