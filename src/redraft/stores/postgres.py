"""PostgresStore: records in a PostgreSQL database."""

from __future__ import annotations

from copy import copy
from functools import partial
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from redraft._hints import keyword_hints
from redraft.errors import ConfigError, MissingExtraError, StoreError
from redraft.stores import postgres_sql as sql
from redraft.stores.base import NewRow, Query, check_name, microseconds
from redraft.stores.postgres_sql import entries
from redraft.stores.run_index import RunIndex
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from psycopg import AsyncConnection

    from redraft.stores.base import KindSize, Record, RecordVersion, Where
    from redraft.stores.postgres_sql import Connection, Steps

T = TypeVar("T")

REWRITTEN = ("records", "runs", "run_shares", "uses", "expenses")
"""The tables, without their prefix."""
LONGEST_SPACE = 500
"""Maximum bytes of a space: PostgreSQL indexes 2,700 bytes, of which kind and key may take 2,000."""


@keyword_hints()
class PostgresStore:
    """A `Store` in a PostgreSQL database; writes are durable when they return. Needs `redraft[postgres]`.

    `url` is `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, with any other libpq parameters. The tables
    `redraft_*` are created on first use, in the first schema of the `search_path`. `space` separates the
    records of a project from others in the same database. `wait` is how many seconds a write waits for locks
    of other sessions. Messages name the database and its host, never the password.

    All stores of a process for one URL share two connections, one for reads and one for writes, each in its
    own thread; so a store serves all event loops and threads, and requests of many tasks are sent together.
    Connections are reopened after `aclose`, in a forked child, and when the server is back.

    `isolated` keeps the records in separate tables whose policies (row-level security) show a session only
    one space, whatever it asks for; such stores share two connections of their own.
    """

    def __init__(self, url: str, space: str = "", *, wait: float = 30.0, isolated: bool = False) -> None:
        check_name("space", space, LONGEST_SPACE)
        self._space = sql.Space(space, sql.ISOLATED if isolated else sql.PREFIX)
        self._server = _server(url, wait, isolated=isolated)
        self._writer = self._server.writer

    def __repr__(self) -> str:
        isolated = ", isolated" if self._server.isolated is not None else ""
        return f"PostgresStore({self._server.name}, space {self._space.name!r}{isolated})"

    def __str__(self) -> str:
        return f"the PostgreSQL database {self._server.name} (project {self._space.name!r})"

    async def put(self, record: Record, /) -> Record:
        """Store a record, replacing any with its key; return it as stored."""
        new, fields = _new(record)
        stored = await self._write(new.row.kind, new.row.key, partial(sql.put, self._space, new, fields))
        return stored.record()

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all or none; return them as stored."""
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
        """Store records as `put_all` does if another record has these fields, else return None."""
        check_name("key", key)
        held = Query.of(kind, where=where)
        now, turn = time_ns() // 1000, uuid4().hex
        new = [_new(record, now) for record in records]
        if not new:
            return []
        keys = [(self._space.name, one.row.kind, one.row.key) for one, _ in new]
        first = keys.index(min(keys))  # writes are sorted by key, so this one comes first
        writes = [
            sql.Write(
                full_key,
                partial(sql.put_if, self._space, held if number == first else None, key, turn, one, fields),
            )
            for number, (full_key, (one, fields)) in enumerate(zip(keys, new, strict=True))
        ]
        stored: list[NewRow | None] = await self._do(self._writer, sql.WriteAll(writes))
        return [one.record() for one in stored if one is not None] or None

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the stored one, and whether it is the new one."""
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
        """Return the record with a key, None if there is none."""
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
        """Return the records of a kind, ordered by key or newest first."""
        query = Query.of(
            kind, prefix=prefix, where=where, newest_first=newest_first, after=after, limit=limit
        )
        return await self._read(partial(sql.find, self._space, query))

    async def versions(
        self, kind: str, /, *, prefix: str = "", where: Where | None = None
    ) -> list[RecordVersion]:
        """Return the version of each record of a kind, ordered by key; `where` only sets `matches`."""
        return await self._read(
            partial(sql.versions, self._space, Query.of(kind, prefix=prefix, where=where))
        )

    async def delete(self, kind: str, key: str, /) -> bool:
        """Delete a record; return whether there was one."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._write(kind, key, partial(sql.delete, self._space, kind, key))

    def run_index(self) -> RunIndex:
        """Return the index of the runs in this store."""

        async def ask(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return await self._read(partial(sql.select, self._space, statement, values))

        return RunIndex(self._space.name, ask)

    async def kinds(self) -> dict[str, KindSize]:
        """Return how much there is of each kind of records, sorted by kind."""
        return await self._read(partial(sql.kinds, self._space))

    async def size(self) -> int:
        """Return the bytes of the records of this space."""
        return sum(kind.bytes for kind in (await self.kinds()).values())

    async def problems(self) -> list[str]:
        """Return what is wrong with the index of runs."""
        return await self.run_index().problems()

    async def scrub(self) -> str:
        """Return what an administrator can do: only PostgreSQL itself can rewrite a table."""
        tables = ", ".join(f"{self._space.prefix}{name}" for name in REWRITTEN)
        return (
            f"The rows are deleted in {self._server.name}, and the server overwrites their bytes over time. "
            f"To do that now: VACUUM (FULL) {tables};"
        )

    async def session(self) -> AsyncConnection[tuple[Any, ...]]:
        """Open a new connection, in autocommit mode, to query an isolated space with SQL.

        In `redraft_agent_records` it sees only the rows of this space, unless its setting `redraft.space` is
        changed. Raises `ConfigError` for a store that is not isolated.
        """
        if self._server.isolated is None:
            raise ConfigError("Only a store that is created with isolated=True has sessions of its own.")
        from psycopg import Error  # noqa: PLC0415 (the extra is installed by now)

        from redraft.stores.postgres_session import explained  # noqa: PLC0415 (likewise)

        try:
            return await self._server.isolated.session(self._space.name)
        except Error as error:
            raise explained(error, self._server.name) from error

    def hasty(self) -> PostgresStore:
        """Return a store of the same records whose writes don't wait for the server's disk.

        Its writes survive any end of this process, but may be lost if the server or its machine crashes
        within the next second. They are sent independently of the writes of this store.
        """
        store = copy(self)
        store._writer = self._server.hasty_writer  # noqa: SLF001 (of its own class)
        return store

    async def aclose(self) -> None:
        """Finish pending writes and close the connections; the next use reopens them."""
        await self._server.writer.stop()
        await self._server.hasty_writer.stop()
        await self._server.reader.stop()

    async def _read(self, steps: Callable[[Connection], Steps[T]]) -> T:
        return await self._do(self._server.reader, steps)

    async def _write(self, kind: str, key: str, steps: Callable[[Connection], Steps[T]]) -> T:
        return await self._do(self._writer, sql.Write((self._space.name, kind, key), steps))

    async def _do(self, worker: Worker, work: Any) -> Any:
        try:
            # The thread runs the steps; this returns their result.
            return await worker.do(work)
        except StoreError as error:  # copied, since other tasks may get the same one
            raise type(error)(*error.args) from error


def _new(record: Record, now: int | None = None) -> tuple[NewRow, list[str]]:
    """Return a record as stored now, and the index entries of its fields."""
    now = now or time_ns() // 1000
    new = NewRow.of(record).stored(0, now, now)
    return new, entries(new.data)


class _Server:
    """The worker threads for one database, and its name."""

    def __init__(self, url: str, wait: float, *, isolated: bool) -> None:
        try:
            from redraft.stores.postgres_session import (  # noqa: PLC0415 (likewise)
                Database,
                IsolatedDatabase,
                PostgresReader,
                PostgresWriter,
            )
        except ImportError as error:
            raise MissingExtraError("A PostgreSQL database", "postgres") from error
        self.isolated = IsolatedDatabase(url, wait) if isolated else None
        database = self.isolated or Database(url, wait)
        self.name = database.name
        self.reader = Worker("redraft-postgres-reader", partial(PostgresReader, database))
        self.writer = Worker("redraft-postgres-writer", partial(PostgresWriter, database, wait))
        hasty = copy(database)
        hasty.is_hasty = True
        self.hasty_writer = Worker("redraft-postgres-hasty-writer", partial(PostgresWriter, hasty, wait))


_servers: WeakValueDictionary[tuple[str, float, bool], _Server] = WeakValueDictionary()
_finding = Lock()


def _server(url: str, wait: float, *, isolated: bool) -> _Server:
    with _finding:
        if (server := _servers.get((url, wait, isolated))) is None:
            _servers[url, wait, isolated] = server = _Server(url, wait, isolated=isolated)
        return server
