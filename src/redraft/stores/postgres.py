"""PostgresStore: records in a PostgreSQL database."""

from __future__ import annotations

import asyncio
from copy import copy
from functools import partial
from threading import Lock
from time import time_ns
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from redraft._hints import keyword_hints
from redraft._validation import check_bound, check_flag, check_text
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
    from redraft.stores.postgres_sql import Connection, FullKey, Steps

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
    records of a project from others in the same database. `wait` is the seconds that a write waits for locks
    of other sessions. Messages name the database and its host, never the password.

    All stores of a process for one URL share two connections, one for reads and one for writes, each in its
    own thread. So a store serves all event loops and threads, and requests of many tasks are sent together.
    Connections are reopened after `aclose`, in a forked child, and when the server is back.

    `isolated` stores the records in separate tables whose policies (row-level security) show a session only
    one space, whatever its queries; such stores share two other connections.
    """

    def __init__(self, url: str, space: str = "", *, wait: float = 30.0, isolated: bool = False) -> None:
        check_name("space", space, LONGEST_SPACE)
        check_bound("wait", wait)
        check_flag("isolated", isolated)
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
        return (await self.put_all([record]))[0]

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all or none; return them as stored."""
        now = time_ns() // 1000
        rows = [_new(record, now) for record in records]
        writes = [(self._full_key(new), partial(sql.put, self._space, new, fields)) for new, fields in rows]
        return [stored.record() for stored in await self._write(writes)]

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if another record has these fields, else return None."""
        check_name("key", key)
        condition = Query.of(kind, where=where)
        now, turn = time_ns() // 1000, uuid4().hex
        rows = [_new(record, now) for record in records]
        if not rows:
            return []
        keys = [self._full_key(new) for new, _ in rows]
        conditions: list[Query | None] = [None] * len(keys)
        conditions[keys.index(min(keys))] = condition  # the first to be written, since writes are sorted
        writes = [
            (full_key, partial(sql.put_if, self._space, held, key, turn, new, fields))
            for full_key, held, (new, fields) in zip(keys, conditions, rows, strict=True)
        ]
        stored = await self._write(writes)
        return [row.record() for row in stored if row is not None] or None

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the stored one, and whether it is the new one."""
        new, fields = _new(record)
        steps = partial(sql.put_if_absent, self._space, new, fields)
        return (await self._write([(self._full_key(new), steps)]))[0]

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        new, fields = _new(record)
        created_at = 0 if record.created_at is None else microseconds(record.created_at)
        steps = partial(sql.replace, self._space, new, fields, record.revision, created_at)
        [stored] = await self._write([(self._full_key(new), steps)])
        return None if stored is None else stored.record()

    async def get(self, kind: str, key: str, /) -> Record | None:
        """The record with a key; None if there is none."""
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
        """List the records of a kind, ordered by key or newest first."""
        query = Query.of(
            kind, prefix=prefix, where=where, newest_first=newest_first, after=after, limit=limit
        )
        return await self._read(partial(sql.find, self._space, query))

    async def versions(
        self, kind: str, /, *, prefix: str = "", where: Where | None = None
    ) -> list[RecordVersion]:
        """Versions of the records of a kind, ordered by key; `where` only sets `matches`."""
        return await self._read(
            partial(sql.versions, self._space, Query.of(kind, prefix=prefix, where=where))
        )

    async def delete(self, kind: str, key: str, /) -> bool:
        """Delete a record; return whether it existed."""
        check_name("kind", kind)
        check_name("key", key)
        steps = partial(sql.delete, self._space, kind, key)
        return (await self._write([((self._space.name, kind, key), steps)]))[0]

    def run_index(self) -> RunIndex:
        """The index of the runs in this store."""

        async def ask(statement: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return await self._read(partial(sql.select, self._space, statement, values))

        return RunIndex(self._space.name, ask)

    async def kinds(self) -> dict[str, KindSize]:
        """Number and size of the records of each kind, sorted by kind."""
        return await self._read(partial(sql.kinds, self._space))

    async def size(self) -> int:
        """Bytes of the records of this space."""
        return sum(kind.bytes for kind in (await self.kinds()).values())

    async def problems(self) -> list[str]:
        """Problems of the index of runs, one sentence each."""
        return await self.run_index().problems()

    async def scrub(self) -> str:
        """The command for an administrator, since only PostgreSQL can rewrite a table."""
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

        from redraft.stores.postgres_session import explained  # noqa: PLC0415 (the extra is installed by now)

        try:
            return await self._server.isolated.session(self._space.name)
        except Error as error:
            raise explained(error, self._server.name) from error

    def hasty(self) -> PostgresStore:
        """A store of the same records whose writes don't wait for the server's disk.

        Its writes survive any end of this process, but may be lost if the server or its machine crashes
        within the next second. They are sent independently of the writes of this store.
        """
        store = copy(self)
        store._writer = self._server.hasty_writer  # noqa: SLF001 (a copy of this store)
        return store

    async def aclose(self) -> None:
        """Finish pending writes and close the connections; the next use reopens them."""
        server = self._server
        await asyncio.gather(server.writer.stop(), server.hasty_writer.stop(), server.reader.stop())

    async def _read(self, steps: Callable[[Connection], Steps[T]]) -> T:
        return await self._do(self._server.reader, steps)

    async def _write(self, writes: Sequence[tuple[FullKey, Callable[[Connection], Steps[T]]]]) -> list[T]:
        return await self._do(self._writer, sql.Writes(writes)) if writes else []

    def _full_key(self, new: NewRow) -> FullKey:
        return self._space.name, new.row.kind, new.row.key

    async def _do(self, worker: Worker, work: Any) -> Any:
        try:
            # The thread runs the steps; this returns their result.
            return await worker.do(work)
        except StoreError as error:  # copied, since other tasks may get the same error
            raise type(error)(*error.args) from error


def _new(record: Record, now: int | None = None) -> tuple[NewRow, list[str]]:
    """Convert a record to a row stored now, and the index entries of its fields."""
    now = now or time_ns() // 1000
    new = NewRow.of(record).stored(0, now, now)
    return new, entries(new.data)


class _Server:
    """The worker threads for one database, and its name."""

    def __init__(self, url: str, wait: float, *, isolated: bool) -> None:
        try:
            from redraft.stores.postgres_session import (  # noqa: PLC0415 (needs the extra)
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
_servers_lock = Lock()


def _server(url: str, wait: float, *, isolated: bool) -> _Server:
    check_text("The URL of a PostgreSQL database", url)
    with _servers_lock:
        if (server := _servers.get((url, wait, isolated))) is None:
            _servers[url, wait, isolated] = server = _Server(url, wait, isolated=isolated)
        return server
