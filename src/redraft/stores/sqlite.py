"""SqliteStore: records in a file that tasks, threads and processes share, or in the memory of a process."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sqlite3
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from stat import S_IMODE
from threading import RLock
from time import time_ns
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from redraft._hints import keyword_hints
from redraft._locks import FileLock, check_regular, make_file, make_folder, remedy
from redraft._validation import checked_path
from redraft.errors import StoreError
from redraft.stores.base import (
    KindSize,
    NewRow,
    Query,
    Row,
    after_all_with,
    check_name,
    is_whole,
    microseconds,
)
from redraft.stores.run_index import INDEXED, RunIndex, columns_of, removals, writes
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from sqlite3 import Connection

    from redraft.stores.base import Record, Where
    from redraft.stores.worker import Job


T = TypeVar("T")

MEMORY: Final = ":memory:"
"""The path of a database in the memory of the process."""


@keyword_hints()
class SqliteStore:
    """A `Store` in a SQLite database; writes are durable when they return.

    `path` is usually `.redraft/redraft.db`; the first write creates the file and its folder, readable by
    their owner only. With the path `:memory:`, the records live as long as the object. `space` separates the
    records of a project from others in the same file. `wait` is the seconds that a write waits for other
    processes. One store serves all tasks and threads of a process; it reopens itself after `aclose`, in a
    forked child, and once a failure is over.
    """

    def __init__(self, path: str | Path, space: str = "", *, wait: float = 30.0) -> None:
        check_name("space", space)
        self._space = space
        self._database = _Memory() if path == MEMORY else _File(checked_path("path", path).absolute(), wait)

    async def put(self, record: Record, /) -> Record:
        """Store a record, replacing any with its key; return it as stored."""
        return (await self.put_all([record]))[0]

    async def put_all(self, records: Sequence[Record], /) -> list[Record]:
        """Store records as `put` does, all or none; return them as stored."""
        if not (rows := [NewRow.of(record) for record in records]):
            return []
        return [row.record() for row in await self._write(lambda tables: tables.put_all(rows))]

    async def put_all_if(
        self, kind: str, key: str, where: Where, records: Sequence[Record], /
    ) -> list[Record] | None:
        """Store records as `put_all` does if another record has these fields, else return None."""
        check_name("key", key)
        query = Query.of(kind, where=where)
        rows = [NewRow.of(record) for record in records]
        stored = await self._write(lambda tables: tables.put_all_if(query, key, rows))
        return None if stored is None else [row.record() for row in stored]

    async def put_if_absent(self, record: Record, /) -> tuple[Record, bool]:
        """Store a record unless its key is taken; return the stored one, and whether it is the new one."""
        new = NewRow.of(record)
        return await self._write(lambda tables: tables.put_if_absent(new))

    async def replace(self, record: Record, /) -> Record | None:
        """Store a record if the stored one still has its `revision`; None if it was changed or deleted."""
        new, revision = NewRow.of(record), record.revision
        created_at = 0 if record.created_at is None else microseconds(record.created_at)
        stored = await self._write(lambda tables: tables.replace(new, revision, created_at))
        return None if stored is None else stored.record()

    async def get(self, kind: str, key: str, /) -> Record | None:
        """The record with a key; None if there is none."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._read(lambda tables: tables.get(kind, key))

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
        return await self._read(lambda tables: tables.find(query))

    async def delete(self, kind: str, key: str, /) -> bool:
        """Delete a record; return whether it existed."""
        check_name("kind", kind)
        check_name("key", key)
        return await self._write(lambda tables: tables.delete(kind, key))

    def run_index(self) -> RunIndex:
        """The index of the runs in this store."""

        async def ask(sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
            return await self._read(lambda tables: tables.connection.execute(sql, values).fetchall())

        return RunIndex(self._space, ask)

    async def kinds(self) -> dict[str, KindSize]:
        """Number and size of the records of each kind, sorted by kind."""
        return await self._read(lambda tables: tables.kinds())

    async def size(self) -> int:
        """Bytes in use in the database, which other projects may share."""
        return await self._database.size()

    async def problems(self) -> list[str]:
        """Check the whole database and the index of runs; one sentence per problem."""
        damage = await self._read(lambda tables: tables.problems())
        return damage or await self.run_index().problems()

    async def scrub(self) -> str:
        """Rewrite the database without deleted records, and empty its write-ahead log."""
        await self._database.scrub()
        return ""

    async def aclose(self) -> None:
        """Finish pending writes and close the file; the next use reopens it. Records in memory stay."""
        await self._database.aclose()

    async def _read(self, work: Callable[[Tables], T]) -> T:
        return await self._database.read(lambda connection: work(Tables(self._space, connection)))

    async def _write(self, work: Callable[[Tables], T]) -> T:
        return await self._database.write(lambda connection: work(Tables(self._space, connection)))


class MemoryStore(SqliteStore):
    """A `SqliteStore` in the memory of the process, for as long as the object lives."""

    def __init__(self) -> None:
        super().__init__(MEMORY)


class _File:
    """A database file, which one thread reads and another writes."""

    def __init__(self, path: Path, wait: float) -> None:
        self._path = path
        self._wait = wait
        self._reader = Worker("redraft-reader", partial(SqliteReader, path, wait))
        self._writer = Worker("redraft-writer", partial(SqliteWriter, path, wait))

    async def read(self, work: Callable[[Connection], T]) -> T:
        with _explaining(self._path, self._wait):
            return await self._reader.do(work)

    async def write(self, work: Callable[[Connection], T]) -> T:
        with _explaining(self._path, self._wait):
            return await self._writer.do(work)

    async def size(self) -> int:
        with _explaining(self._path, self._wait):
            if not check_regular(self._path):
                return 0
        return await self.read(used_bytes)

    async def scrub(self) -> None:
        with _explaining(self._path, self._wait):
            await asyncio.to_thread(_scrub, self._path, self._wait)

    async def aclose(self) -> None:
        await self._writer.stop()
        await self._reader.stop()


class _Memory:
    """A database in memory, whose connection serves one call at a time, from any thread."""

    _PATH: ClassVar[Path] = Path(MEMORY)

    def __init__(self) -> None:
        self._lock = RLock()
        self._connection: Connection | None = None

    def __del__(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def connect(self) -> Connection:
        if self._connection is None:
            self._connection = _in_memory()
        return self._connection

    async def read(self, work: Callable[[Connection], T]) -> T:
        with self._lock, _explaining(self._PATH, 0.0):
            return work(self.connect())

    write = read

    async def size(self) -> int:
        sizes = "SELECT coalesce(sum(length(CAST(data AS BLOB))), 0) FROM records"
        return await self.read(lambda connection: connection.execute(sizes).fetchone()[0])

    async def scrub(self) -> None:
        await self.read(lambda connection: connection.execute("VACUUM"))

    async def aclose(self) -> None:
        pass


_COLUMNS = ", ".join(Row._fields)
_ONE = "space = ? AND kind = ? AND key = ?"
_STORED = "RETURNING revision, created_at"
# Positional parameters: looking up named ones takes as long as writing the row.
_INSERT = f"""
INSERT INTO records (space, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, 1, ?, ?)
ON CONFLICT (space, kind, key) DO"""  # noqa: S608 (made of constants)
_PUT = f"""{_INSERT} UPDATE
SET data = excluded.data, schema_version = excluded.schema_version,
    checksum = excluded.checksum, revision = revision + 1, updated_at = excluded.updated_at {_STORED}"""
_PUT_IF_ABSENT = f"{_INSERT} NOTHING"
_REPLACE = f"""
UPDATE records
SET data = ?, schema_version = ?, checksum = ?, revision = revision + 1, updated_at = ?
WHERE {_ONE} AND revision = ? AND ? IN (0, created_at) {_STORED}"""  # noqa: S608 (made of constants)
_GET = f"SELECT {_COLUMNS} FROM records WHERE {_ONE}"  # noqa: S608 (made of constants)
_DELETE = f"DELETE FROM records WHERE {_ONE} RETURNING 1"  # noqa: S608 (made of constants)
# As BLOBs: text that is not UTF-8 would fail the whole statement.
_IS_DAMAGED = """NOT redraft_is_whole(
    checksum, CAST(kind AS BLOB), CAST(key AS BLOB), CAST(data AS BLOB), schema_version)"""


class Tables:
    """The records of one space on a connection, in the thread of a worker."""

    def __init__(self, space: str, connection: Connection) -> None:
        self.connection = connection
        self._space = space

    def put_all(self, rows: Sequence[NewRow]) -> list[NewRow]:
        """Insert or replace rows, all or none; return them as stored."""
        with self._with_index(rows[0].row.kind) if len(rows) == 1 else self._atomic():
            now = _now()
            return [self._upsert(row, now) for row in rows]

    def put_all_if(self, query: Query, key: str, rows: Sequence[NewRow]) -> list[NewRow] | None:
        """Insert or replace rows if the record with a key matches the query."""
        condition, values = self._condition(query)
        sql = f"SELECT 1 FROM records WHERE {condition} AND key = ?"  # noqa: S608 (made of constants)
        return self.put_all(rows) if self.connection.execute(sql, (*values, key)).fetchone() else None

    def put_if_absent(self, new: NewRow) -> tuple[Record, bool]:
        """Insert a row unless its key is taken; return the stored record, and whether it is the new one."""
        with self._with_index(new.row.kind):
            now = _now()
            values = (self._space, *new.row[:5], now, now)
            while not self.connection.execute(_PUT_IF_ABSENT, values).rowcount:
                if rows := self._rows(_GET, (self._space, new.row.kind, new.row.key)):
                    return rows[0].intact(), False  # otherwise, another process has deleted it in between
            stored = new.stored(1, now, now)
            self._index(stored)
        return stored.record(), True

    def replace(self, new: NewRow, revision: int, created_at: int) -> NewRow | None:
        """Store a row if the stored one has this revision and, unless it is 0, this creation time."""
        kind, key, *others = new.row[:5]
        now = _now()
        with self._with_index(kind):
            values = (*others, now, self._space, kind, key, revision, created_at)
            rows = self.connection.execute(_REPLACE, values).fetchall()
            if not rows:
                return None
            stored = new.stored(*rows[0], updated_at=now)
            self._index(stored)
        return stored

    def get(self, kind: str, key: str) -> Record | None:
        """The record with a key; None if there is none."""
        rows = self._rows(_GET, (self._space, kind, key))
        return rows[0].intact() if rows else None

    def delete(self, kind: str, key: str) -> bool:
        """Delete a row; return whether it existed."""
        with self._with_index(kind):
            if kind in INDEXED:
                for sql, values in removals(self._space, kind, key):
                    self.connection.execute(sql, values)
            return bool(self.connection.execute(_DELETE, (self._space, kind, key)).fetchall())

    def find(self, query: Query) -> list[Record]:
        """List the records that match a query."""
        condition, values = self._condition(query)
        if query.after is not None:
            # As bytes: a damaged key may not be UTF-8. A BLOB sorts after all texts, so on every page.
            at, key = query.after[0], query.after[1].encode("utf-8", "surrogateescape")
            newest = " AND (created_at, key) < (?, CAST(? AS TEXT))"
            condition += (
                newest if query.newest_first else " AND typeof(key) = 'text' AND key > CAST(? AS TEXT)"
            )
            values += (at, key) if query.newest_first else (key,)
        order = "created_at DESC, key DESC" if query.newest_first else "key"
        limit = -1 if query.limit is None else query.limit
        sql = f"SELECT {_COLUMNS} FROM records WHERE {condition} ORDER BY {order} LIMIT ?"  # noqa: S608 (made of constants)
        return [row.record() for row in self._rows(sql, (*values, limit))]

    def kinds(self) -> dict[str, KindSize]:
        """Number and size of the records of each kind."""
        rows = self.connection.execute(
            "SELECT kind, count(*), sum(length(CAST(data AS BLOB))) "
            "FROM records WHERE space = ? GROUP BY kind ORDER BY kind",
            (self._space,),
        )
        return {kind: KindSize(records, size) for kind, records, size in rows.fetchall()}

    def problems(self) -> list[str]:
        """Problems of the file that SQLite detects."""
        rows = self.connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [f"The file is damaged: {text}." for (text,) in rows if text != "ok"]

    def _upsert(self, new: NewRow, now: int) -> NewRow:
        values = (self._space, *new.row[:5], now, now)
        ((revision, created_at),) = self.connection.execute(_PUT, values).fetchall()
        stored = new.stored(revision, created_at, now)
        self._index(stored)
        return stored

    def _index(self, stored: NewRow) -> None:
        """Write the columns of an indexed record."""
        if stored.row.kind in INDEXED:
            for sql, values in writes(self._space, stored.row, stored.data):
                self.connection.execute(sql, values)

    def _with_index(self, kind: str) -> AbstractContextManager[None]:
        """Write an indexed record and its columns together; a single statement is a transaction by itself."""
        return self._atomic() if kind in INDEXED else nullcontext()

    @contextmanager
    def _atomic(self) -> Generator[None]:
        """Execute all statements or none, even in a transaction shared with others."""
        self.connection.execute("SAVEPOINT together")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # otherwise, SQLite has rolled back everything
                self.connection.execute("ROLLBACK TO together")
                self.connection.execute("RELEASE together")
            raise
        self.connection.execute("RELEASE together")

    def _rows(self, sql: str, values: Sequence[Any]) -> list[Row]:
        return [Row(*row) for row in self.connection.execute(sql, values).fetchall()]

    def _condition(self, query: Query) -> tuple[str, tuple[Any, ...]]:
        """The SQL condition of a query, without paging, and its parameters.

        Damaged records meet any condition on fields: they may have had these values.
        """
        parts, values = ["space = ? AND kind = ?"], [self._space, query.kind]
        if query.prefix:
            parts.append("key >= ? AND key < ?")
            values += [query.prefix, after_all_with(query.prefix)]
        fields: list[str] = []
        for field, texts in query.fields.items():
            # Given two paths, SQLite returns a JSON array of any values, with null for absent ones.
            fields.append(f"json_extract(data, ?, ?) IN ({', '.join('?' * len(texts))})")
            path = f'$."{field}"'
            values += [path, path, *(f"[{text},{text}]" for text in texts)]
        if fields:
            is_match = f"json_valid(data) AND {' AND '.join(fields)}"
            parts.append(f"CASE WHEN {is_match} THEN 1 ELSE {_IS_DAMAGED} END")
        return " AND ".join(parts), tuple(values)


def _now() -> int:
    return time_ns() // 1000


class SqliteReader:
    """Answers queries in turn. A missing database counts as empty, and is not created."""

    def __init__(self, path: Path, wait: float) -> None:
        self._file = SqliteFile(path, wait)

    def turn(self) -> AbstractContextManager[None]:
        """Never wait: a reader sees the last commit."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run each job; after a database error, the next job reopens the file."""
        if not self._file.exists():
            with closing(_in_memory()) as nothing:
                for job in jobs:
                    job.run(nothing)
            return
        for job in jobs:
            job.run(self._file.connection())
            if isinstance(job.error, sqlite3.Error):
                self._file.drop()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class SqliteWriter(SqliteReader):
    """Writes the jobs of many tasks in one transaction, so that they share the wait for the disk."""

    def turn(self) -> AbstractContextManager[None]:
        """Hold the lock that lets one process write at a time."""
        return self._file.locked()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Commit the jobs together; if that fails, one by one, so that none fails because of another."""
        try:
            self._commit(jobs)
        except sqlite3.Error as error:
            if len(jobs) == 1 or primary_name(error) == "SQLITE_BUSY":
                raise
        else:
            return
        for job in jobs:
            try:
                self._commit([job])
            except (sqlite3.Error, OSError, StoreError) as error:
                job.error = error

    def _commit(self, jobs: Sequence[Job[Any]]) -> None:
        connection = self._file.connection()
        try:
            if len(jobs) == 1:  # it is a transaction by itself, which saves two statements
                jobs[0].run(connection)
            else:
                connection.execute("BEGIN IMMEDIATE")
                _run_in_transaction(connection, jobs)
                connection.execute("COMMIT")
        except BaseException:
            self._file.drop()
            raise
        if any(isinstance(job.error, sqlite3.Error) for job in jobs):
            self._file.drop()


def _run_in_transaction(connection: sqlite3.Connection, jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.run(connection)
        if job.error is not None and not connection.in_transaction:
            raise job.error  # a full disk, say: SQLite has rolled back the whole transaction


APPLICATION_ID = 0x52445246
"""Marks a database file as ours ("RDRF")."""
OLDEST = (3, 35)
"""The first SQLite version with RETURNING."""


# Times are microseconds since 1970 in UTC, data JSON text. The checksum is CRC-32 of kind, key,
# schema_version and data. The other tables hold the columns of `stores.run_index`, texts escaped as in JSON.
_SUMMED = """is_inner, status, requests, failed_requests, input_tokens, output_tokens, known_usd, unpriced,
    later_tokens, later_usd, later_unpriced"""
"""Part of the indices by which runs are summed, so that SQLite reads them in order and reads nothing else."""
_TYPES = {
    "key": "TEXT",
    "str": "TEXT",
    "bool": "INTEGER",
    "int": "INTEGER",
    "time": "INTEGER",
    "float": "REAL",
}
MIGRATIONS = (
    "",
    f"""
CREATE TABLE records (
    space          TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    key            TEXT    NOT NULL,
    data           TEXT    NOT NULL,
    schema_version INTEGER NOT NULL,
    checksum       INTEGER NOT NULL,
    revision       INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    PRIMARY KEY (space, kind, key)
);
CREATE INDEX records_newest ON records (space, kind, created_at, key);

CREATE TABLE runs (
    {columns_of("runs", _TYPES)},
    day INTEGER NOT NULL GENERATED ALWAYS AS (created_at / 86400000000) VIRTUAL,
    PRIMARY KEY (space, run_id)
);
CREATE INDEX runs_newest ON runs (space, created_at, run_id);
CREATE INDEX runs_by_status ON runs (space, status, created_at, run_id);
CREATE INDEX runs_of_agents ON runs (space, agent, created_at, run_id, {_SUMMED});
CREATE INDEX runs_of_tasks ON runs (space, task, created_at, run_id, {_SUMMED});
CREATE INDEX runs_by_day ON runs (space, day, created_at, run_id, {_SUMMED});

CREATE TABLE run_shares (
    {columns_of("run_shares", _TYPES)},
    PRIMARY KEY (space, facet, value, run_id)
) WITHOUT ROWID;
CREATE INDEX run_shares_of_runs ON run_shares (space, run_id);

CREATE TABLE uses (
    {columns_of("uses", _TYPES)},
    PRIMARY KEY (space, kind, subject, at, run_id, key)
) WITHOUT ROWID;
CREATE INDEX uses_by_key ON uses (space, kind, key);

CREATE TABLE expenses (
    {columns_of("expenses", _TYPES)},
    PRIMARY KEY (space, kind, key)
) WITHOUT ROWID;
""",
)
"""The schema, one script per version; version 1 was never released."""


# The cache grows only as pages are read; sums over 100,000 runs read 50 MB.
_SETTINGS = (
    "PRAGMA synchronous = FULL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; "
    "PRAGMA cache_size = -65536;"
)
_TEXT = partial(str, encoding="utf-8", errors="surrogateescape")


class SqliteFile:
    """One thread's connection to a database file, and the lock file next to it.

    A missing or empty file becomes a database, readable by its owner only. A missing folder is created, with
    a `.gitignore` for itself. A file of another program or of a newer Redraft is rejected. Failing to open or
    lock the file raises `sqlite3.Error`, `OSError` or `StoreError`.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path = path
        self._wait = wait
        self._lock = FileLock(path.with_name(f"{path.name}.lock"), wait)
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)

    def locked(self) -> AbstractContextManager[None]:
        """Hold the write lock; create the folder if it is missing."""
        if self._connection is None:
            check_regular(self._path)  # before a lock file is made in the same folder
            make_folder(self._path.parent)
        return self._lock

    def connection(self) -> sqlite3.Connection:
        """The connection; opens the database and migrates its schema if necessary."""
        if self._connection is None:
            self._connection = self._open()
        elif self._inode != _inode(self._path):
            self.close()
            raise StoreError(
                f"{self._path} was deleted or replaced while it was in use, and what it held is gone; "
                "the next write starts a new one."
            )
        return self._connection

    def exists(self) -> bool:
        """Whether there is a database to read, without creating one."""
        return self._connection is not None or check_regular(self._path)

    def drop(self) -> None:
        """Close the connection and discard uncommitted changes; the next use opens a new connection."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # commits are safe
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close the file and release the lock."""
        self.drop()
        self._lock.close()

    def _open(self) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < OLDEST:
            raise StoreError(
                f"{self._path} needs SQLite {OLDEST[0]}.{OLDEST[1]}, and this Python has "
                f"{sqlite3.sqlite_version}: use a Python that is built with a newer one."
            )
        if not check_regular(self._path):
            with self.locked():
                make_file(self._path)  # SQLite would create it with the mode that the umask leaves
        for side in ("-wal", "-shm"):
            # They keep the mode of the database at their creation, even if it was read-only then.
            file = self._path.with_name(f"{self._path.name}{side}")
            if check_regular(file):
                with suppress(OSError):
                    file.chmod(S_IMODE(self._path.stat().st_mode))
        connection = _connect(self._path, self._wait)
        try:
            self._inode = _inode(self._path)
            connection.executescript(_SETTINGS)
            _tolerate_damage(connection)
            if not self.is_current(connection):
                with self.locked():
                    self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def overwrite(self, source: sqlite3.Connection) -> None:
        """Copy another database over this one, whose write lock is held; a missing file is created.

        Raises `StoreError` for a database of another program.
        """
        if not check_regular(self._path):
            make_file(self._path)
        with closing(_connect(self._path, self._wait)) as connection:
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            if application != APPLICATION_ID:
                self._version(connection)
            source.backup(connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()

    def is_current(self, connection: sqlite3.Connection) -> bool:
        """Whether the schema is current; raises `StoreError` if it is not ours, or newer."""
        version, newest = self._version(connection), len(MIGRATIONS)
        if version > newest:
            raise StoreError(
                f"{self._path} has version {version} of the schema, and this Redraft knows {newest}: it was "
                "written by a newer one, so upgrade redraft."
            )
        return version == newest

    def _version(self, connection: sqlite3.Connection) -> int:
        # In one statement, since another process may make the database meanwhile.
        sql = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) FROM "
        pragmas = "pragma_application_id, pragma_user_version"
        application, version, objects = connection.execute(sql + pragmas).fetchone()
        if application == APPLICATION_ID or (application, version, objects) == (0, 0, 0):
            return version
        raise StoreError(
            f"{self._path} is a database of another program (application_id {application}, {objects} tables "
            "and indexes), and was left as it is: give the store another path."
        )

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if self.is_current(connection):
            return  # another process was faster
        version = self._version(connection)
        if version == 0:
            self._path.chmod(0o600)
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.executescript(
            f"BEGIN IMMEDIATE; {''.join(MIGRATIONS[version:])} PRAGMA application_id = {APPLICATION_ID}; "
            f"PRAGMA user_version = {len(MIGRATIONS)}; COMMIT;"
        )


def _in_memory() -> Connection:
    """Connect to a new database in memory, which any thread may use."""
    connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
    _tolerate_damage(connection)
    connection.executescript("".join(MIGRATIONS))
    return connection


def index_of(records: Iterable[Record]) -> Connection:
    """Create a database in memory with only the columns of these records, in the space with an empty name."""
    connection = _in_memory()
    for record in records:
        at = 0 if record.created_at is None else microseconds(record.created_at)
        row = Row(record.kind, record.key, "", record.schema_version, created_at=at)
        for sql, values in writes("", row, {} if record.damage else record.data):
            connection.execute(sql, values)
    return connection


def used_bytes(connection: Connection) -> int:
    """Bytes of the pages in use in a database."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return (pages - free) * size


def _scrub(path: Path, wait: float) -> None:
    """Rewrite a database without its deleted records; raises what `SqliteFile` raises, and `StoreError`."""
    file = SqliteFile(path, wait)
    if not file.exists():
        return
    try:
        with file.locked():
            connection = file.connection()
            connection.execute("VACUUM")
            # Until this checkpoint, deleted records are still in the file and in the log.
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if is_busy:
                raise TimeoutError
    finally:
        file.close()


PATIENCE = 30.0
"""Seconds for which a backup or a restored database waits for other programs."""


def copy_database(path: Path, target: Path) -> None:
    """Write a consistent copy of a database to one file, without deleted records.

    Other processes may continue to read and write. Raises `StoreError` if it can't be read or written, and
    for a database that `check_database` refuses.
    """
    check_database(path, wait=PATIENCE)
    with _explaining(path, PATIENCE), closing(_connection_to(path, PATIENCE)) as source:
        make_file(target)
        source.execute("VACUUM INTO ?", (str(target),))


def schema_version(path: Path) -> tuple[int, int]:
    """Version of a database's schema, and the newest one; raises `StoreError` if the database is not ours."""
    with _explaining(path, 0.0), closing(_connection_to(path)) as connection:
        return connection.execute("PRAGMA user_version").fetchone()[0], len(MIGRATIONS)


def check_database(path: Path, *, wait: float = 0.0) -> None:
    """Raise `StoreError` for a file that is damaged, of another program, or from a newer Redraft."""
    with _explaining(path, wait), closing(_connection_to(path, wait)) as connection:
        for (problem,) in connection.execute("PRAGMA quick_check(1)").fetchall():
            if problem != "ok":
                raise StoreError(f"{path} is damaged: {problem}.")


def restore_database(path: Path, copy: Path) -> Path | None:
    """Replace a database by a copy, in one transaction; programs that have it open see the copy next.

    The database may be damaged, or from a newer Redraft. A file that SQLite can't even overwrite is renamed,
    and its new path returned. Raises `StoreError`, and changes nothing, if `check_database` refuses the copy,
    if there is a database of another program, or if there is no room for the copy.
    """
    check_database(copy)
    file = SqliteFile(path, PATIENCE)
    with _explaining(path, PATIENCE):
        try:
            with file.locked(), closing(sqlite3.connect(copy)) as source:
                try:
                    file.overwrite(source)
                except sqlite3.DatabaseError as error:
                    if primary_name(error) not in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
                        raise
                    aside = _set_aside(path)
                    try:
                        file.overwrite(source)
                    except BaseException:  # the disk is full, say
                        for side in _SIDES:
                            path.with_name(f"{path.name}{side}").unlink(missing_ok=True)
                        _rename(aside, path)
                        raise
                    return aside
        finally:
            file.close()
    return None


_SHARED_LOCK = (510, 0x40000002)
"""The length and the start of the bytes that each connection locks: part of SQLite's file format."""


def _set_aside(path: Path) -> Path:
    """Rename a damaged database and its side files; raises `StoreError` while a program has it open.

    That program would delete the log of the next database of this name when it ends.
    """
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, *_SHARED_LOCK)
        except (BlockingIOError, PermissionError) as error:
            raise StoreError(
                f"{path} is damaged, and another program has it open: end that program, then restore again."
            ) from error
    names = (f"{path.name}.damaged{number or ''}" for number in count())
    aside = next(candidate for candidate in map(path.with_name, names) if not candidate.exists())
    _rename(path, aside)
    return aside


_SIDES = ("-shm", "-wal", "")
"""Suffixes of the files of a database, the database itself last."""


def _rename(path: Path, new: Path) -> None:
    """Rename a database and its side files."""
    for side in _SIDES:
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{side}").rename(new.with_name(f"{new.name}{side}"))


def _connection_to(path: Path, wait: float = 0.0) -> Connection:
    """Connect to a database without migrating it; raises `StoreError` if it is not ours, or newer."""
    check_regular(path)
    connection = _connect(path, wait)
    try:
        SqliteFile(path, wait).is_current(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, wait: float) -> Connection:
    """Connect to a database file, which must exist."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(uri, timeout=wait, isolation_level=None, uri=True)


@contextmanager
def _explaining(path: Path, wait: float) -> Generator[None]:
    try:
        yield
    except (StoreError, sqlite3.Error, OSError) as error:
        raise explained(error, path, wait) from error


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _tolerate_damage(connection: Connection) -> None:
    """Let a connection read damaged records, and recognize them."""
    # Text that is not UTF-8 would fail the whole query.
    connection.text_factory = _TEXT
    connection.create_function("redraft_is_whole", 5, is_whole, deterministic=True)


_DAMAGED = (
    "is damaged as a file, not in single records, and was left as it is: restore a backup, or save what can "
    "still be read with `sqlite3 FILE .recover`"
)
_CHECK = "Check the permissions of the file and its folder."
_EXPLANATIONS = {
    "SQLITE_NOTADB": "is not a SQLite database, and was left unchanged: give the store another path, or "
    "restore a backup",
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_FULL": "can't grow, because the disk is full: free some space",
    "SQLITE_IOERR": "can't be read or written: check whether the disk is full or a quota is reached",
    "SQLITE_READONLY": "can't be written: check the permissions of the file and its folder",
    "SQLITE_PERM": "can't be used: check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "can't be opened: check the permissions of the file and its folder",
    "SQLITE_TOOBIG": "can't hold so much in one record (SQLite's limit is 1 GB)",
}


def primary_name(error: Exception) -> str:
    """SQLite's primary name for an error; empty for errors from Python."""
    return "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])


def explained(error: Exception, path: Path, wait: float) -> StoreError:
    """Convert an error of the database, the system or the lock to a `StoreError` with an explanation."""
    if isinstance(error, StoreError):
        return type(error)(*error.args)
    if os.path.isdir(path):  # noqa: PTH112 (unlike Path.is_dir, it never raises)
        return StoreError(f"{path} is a folder: give the store the path of a file.")
    if isinstance(error, TimeoutError) or primary_name(error) == "SQLITE_BUSY":
        return StoreError(
            f"{path} has been locked by another program for {wait:g} s: check whether that program "
            "hangs, or try again later."
        )
    if isinstance(error, OSError):
        if error.errno == errno.EINVAL and error.filename:
            return StoreError(
                f"{error.filename} can't be used: {error.strerror}. Give the store another path."
            )
        return StoreError(f"{path} can't be used ({error}). {remedy(error) or _CHECK}")
    says = _EXPLANATIONS.get(primary_name(error), "can't be used")
    return StoreError(f"{path} {says} ({error}).")
