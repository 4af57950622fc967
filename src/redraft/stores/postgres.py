"""PostgresStore: records in a PostgreSQL database."""

from __future__ import annotations

from copy import copy
from functools import partial
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from redraft.errors import ConfigError, MissingExtraError, StoreError
from redraft.stores import postgres_sql as sql
from redraft.stores.base import NewRow, check_name, microseconds, question
from redraft.stores.postgres_sql import entries
from redraft.stores.run_index import SqlRunIndex
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg import AsyncConnection

    from redraft.stores.base import Record, Where
    from redraft.stores.postgres_sql import Connection, Steps
    from redraft.stores.run_index import RunIndex

T = TypeVar("T")

LONGEST_SPACE = 500
"""Bytes of a space: PostgreSQL indexes 2,700 bytes, of which a kind and a key may take 2,000."""


class PostgresStore:
    """Keep records in a PostgreSQL database, durable when a write returns: a `Store`.

    `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with what else libpq takes in it. The tables
    `redraft_*` are made at first use, in the schema that comes first in the `search_path`. `space` sets a
    project's records apart from those of others in the same database. `wait` is how many seconds a write
    waits for locks of other sessions. Messages name the database and its host, never the password.

    All stores of a process for one URL share two connections, one that reads and one that writes, each in a
    thread of its own; so a store serves all event loops and threads, and what many tasks ask for at once
    goes out together. Connections are opened anew after `aclose`, in a forked child, and when the server is
    back. Needs `redraft[postgres]`.

    `isolated` keeps the records in another table, whose policies (row-level security) show a session one
    space alone, whatever it asks; such stores share two connections of their own.
    """

    def __init__(self, url: str, space: str = "", *, wait: float = 30.0, isolated: bool = False) -> None:
        check_name("space", space, LONGEST_SPACE)
        self._space = sql.Space(space, sql.ISOLATED if isolated else sql.PREFIX)
        self._server = _server(url, wait, isolated=isolated)
        self._writer = self._server.writer

    def __repr__(self) -> str:
        return f"PostgresStore({self._server.name}, space {self._space.name!r})"

    async def put(self, record: Record, /) -> Record:
        """Store a record in place of the one with its key, if there is one; return it as it is stored."""
        new, fields = _new(record)
        stored = await self._write(new.row.kind, new.row.key, partial(sql.put, self._space, new, fields))
        return stored.record()

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all of them or none; return them as they are stored."""
        now = time_ns() // 1000
        new = [_new(record, now) for record in records]
        if not new:
            return []
        writes = [
            sql.Write(
                (self._space.name, one.row.kind, one.row.key), partial(sql.put, self._space, one, fields)
            )
            for one, fields in new
        ]
        stored: list[NewRow] = await self._do(self._writer, sql.WriteAll(writes))
        return [one.record() for one in stored]

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if another record has these fields; else return None."""
        check_name("key", key)
        held = question(kind, where=where)
        now, turn = time_ns() // 1000, uuid4().hex
        new = [_new(record, now) for record in records]
        if not new:
            return []
        places = [(self._space.name, one.row.kind, one.row.key) for one, _ in new]
        first = places.index(min(places))  # which is written before the others
        writes = [
            sql.Write(
                place,
                partial(sql.put_if, self._space, held if number == first else None, key, turn, one, fields),
            )
            for number, (place, (one, fields)) in enumerate(zip(places, new, strict=True))
        ]
        stored: list[NewRow | None] = await self._do(self._writer, sql.WriteAll(writes))
        return [one.record() for one in stored if one is not None] or None

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the one that is stored, and whether it is this."""
        new, fields = _new(record)
        steps = partial(sql.put_if_absent, self._space, new, fields)
        return await self._write(new.row.kind, new.row.key, steps)

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        new, fields = _new(record)
        created_at = 0 if record.created_at is None else microseconds(record.created_at)
        steps = partial(sql.replace, self._space, new, fields, record.revision, created_at)
        stored = await self._write(new.row.kind, new.row.key, steps)
        return None if stored is None else stored.record()

    async def get(self, kind: str, key: str, /) -> Record | None:
        """Return the record with a key."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._read(partial(sql.get, self._space, kind, key))

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
        return await self._read(partial(sql.find, self._space, asked))

    async def delete(self, kind: str, key: str, /) -> bool:
        """Remove a record; say if there was one."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._write(kind, key, partial(sql.delete, self._space, kind, key))

    async def near(
        self, kind: str, vector: Sequence[float], /, *, where: Where | None = None, limit: int = 3
    ) -> list[tuple[Record, float]]:
        """Return the records whose vectors are nearest, with the cosine similarity (-1..1), nearest first."""
        asked = question(kind, where=where, limit=limit)
        work = partial(sql.near, self._space, asked, tuple(vector), limit)
        return await self._read(work)

    def run_index(self) -> RunIndex:
        """Return the index of the runs that are kept here."""

        async def ask(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return await self._read(partial(sql.select, self._space, statement, values))

        return SqlRunIndex(self._space.name, ask)

    async def session(self) -> AsyncConnection[tuple[Any, ...]]:
        """Return a connection of one's own, in autocommit mode, to look at an isolated space with SQL.

        Of the table `redraft_agent_records` it sees the rows of this space alone, as long as its setting
        `redraft.space` is not changed. Raises `ConfigError` for a store that is not isolated.
        """
        if self._server.isolated is None:
            raise ConfigError("Only a store that is made with isolated=True has sessions of its own.")
        from psycopg import Error  # noqa: PLC0415 (it needs the extra, which is there by now)

        from redraft.stores.postgres_session import explained  # noqa: PLC0415 (likewise)

        try:
            return await self._server.isolated.session(self._space.name)
        except Error as error:
            raise explained(error, self._server.name) from error

    def hasty(self) -> PostgresStore:
        """Return a store of the same records whose writes don't wait for the server's disk.

        What is written outlives this process, however that ends, and may be lost if the server or its machine
        breaks down within the next second. Its writes go out beside those of the other.
        """
        store = copy(self)
        store._writer = self._server.hasty_writer  # noqa: SLF001 (of its own class)
        return store

    async def aclose(self) -> None:
        """Write what is still to be written, and let go of the connections."""
        await self._server.writer.stop()
        await self._server.hasty_writer.stop()
        await self._server.reader.stop()

    async def _read(self, steps: Callable[[Connection], Steps[T]]) -> T:
        return await self._do(self._server.reader, steps)

    async def _write(self, kind: str, key: str, steps: Callable[[Connection], Steps[T]]) -> T:
        return await self._do(self._writer, sql.Write((self._space.name, kind, key), steps))

    async def _do(self, worker: Worker, work: Any) -> Any:
        try:
            # The thread goes through the steps, and it is their result that comes back.
            return await worker.do(work)
        except StoreError as error:  # which others may have got, too
            raise type(error)(*error.args) from error


def _new(record: Record, now: int | None = None) -> tuple[NewRow, list[str]]:
    """Return a record as it is stored now, and the fields by which it is found."""
    now = now or time_ns() // 1000
    new = NewRow.of(record).stored(0, now, now)
    return new, entries(new.data)


class _Server:
    """The threads for one database, and its name."""

    def __init__(self, url: str, wait: float, *, isolated: bool) -> None:
        try:
            from redraft.stores.postgres_session import (  # noqa: PLC0415 (likewise)
                Database,
                IsolatedDatabase,
                Reader,
                Writer,
            )
        except ImportError as error:
            raise MissingExtraError("A PostgreSQL database", "postgres") from error
        self.isolated = IsolatedDatabase(url, wait) if isolated else None
        database = self.isolated or Database(url, wait)
        self.name = database.name
        self.reader = Worker("redraft-postgres-reader", partial(Reader, database))
        self.writer = Worker("redraft-postgres-writer", partial(Writer, database, wait))
        hasty = copy(database)
        hasty.is_hasty = True
        self.hasty_writer = Worker("redraft-postgres-hasty-writer", partial(Writer, hasty, wait))


_servers: WeakValueDictionary[tuple[str, float, bool], _Server] = WeakValueDictionary()
_finding = Lock()


def _server(url: str, wait: float, *, isolated: bool) -> _Server:
    with _finding:
        if (server := _servers.get((url, wait, isolated))) is None:
            _servers[url, wait, isolated] = server = _Server(url, wait, isolated=isolated)
        return server
