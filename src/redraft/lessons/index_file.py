"""IndexFile: the database of an index, made anew whenever it can't be used."""

from __future__ import annotations

import sqlite3
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from redraft.lessons.fulltext import SCHEMA as WORDS
from redraft.stores.lock import FileLock
from redraft.stores.private import make_file, make_folder
from redraft.stores.sqlite_faults import name_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from redraft.stores.worker import Job

VERSION = 2
"""Raise it with each change of what is kept: an older index is left alone, and another one made."""
WAIT = 300.0
"""Seconds to wait for another process, which may be making the whole index."""

_SCHEMA = f"""
CREATE TABLE agents (
    place INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE, seen INTEGER NOT NULL, revision INTEGER NOT NULL,
    active INTEGER NOT NULL
);
CREATE TABLE lessons (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, changed_ns INTEGER NOT NULL, size INTEGER NOT NULL,
    archived INTEGER NOT NULL, file_hash BLOB NOT NULL, problem TEXT NOT NULL, kind TEXT NOT NULL,
    status TEXT NOT NULL, day INTEGER NOT NULL, task_type TEXT NOT NULL, tools TEXT NOT NULL,
    length INTEGER NOT NULL, digest BLOB NOT NULL
);
CREATE INDEX lessons_by_digest ON lessons (digest);
CREATE INDEX lessons_with_problems ON lessons (id) WHERE problem != '';
CREATE TABLE texts (
    number INTEGER PRIMARY KEY, said TEXT NOT NULL, searched TEXT NOT NULL, meaning TEXT NOT NULL
);
{WORDS}
CREATE TABLE vectors (
    number INTEGER PRIMARY KEY, embedder TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL,
    signs BLOB NOT NULL, UNIQUE (embedder, digest)
);
CREATE TABLE shelves (
    place INTEGER NOT NULL, embedder TEXT NOT NULL, revision INTEGER NOT NULL, numbers BLOB NOT NULL,
    rows BLOB NOT NULL, ranked BLOB NOT NULL, signs BLOB NOT NULL, vectors BLOB NOT NULL,
    PRIMARY KEY (place, embedder)
);
"""
# It is derived from the files: what a crash of the machine takes is found to be missing, and read again.
_SETTINGS = (
    "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; "
    "PRAGMA cache_size = -16000; PRAGMA mmap_size = 268435456;"
)
_DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_UNUSABLE = (*_DAMAGED, "SQLITE_ERROR", "")
"""Likewise without our tables, or of another version."""


class IndexFile:
    """Hold one thread's connection to the newest database of an index: the session of a `Worker`.

    The databases are `lessons-<version>-<n>.db` in a folder of their own, of mode 0700, that ignores itself
    in git. One that is damaged gives way to the next `n`: a process that still has the old one open can't do
    any harm to the new one by closing it, as it could if they had one name.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._connection: sqlite3.Connection | None = None
        self._path: Path | None = None
        self._inode = 0
        self._damaged: Path | None = None

    def turn(self) -> AbstractContextManager[None]:
        """Wait for nobody: who writes takes the lock itself."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run each job, once more with a new database where the one there was is damaged or gone."""
        for job in jobs:
            job.run(self._current())
            if isinstance(job.error, sqlite3.Error) and name_of(job.error) in _DAMAGED:
                self._give_up()
                job.run(self._current())
            elif isinstance(job.error, sqlite3.Error):
                self.close()

    def close(self) -> None:
        """Let go of the connection; the next job opens another one."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # what was committed is safe, and the rest can be made again
                self._connection.close()
            self._connection = None

    def _current(self) -> sqlite3.Connection:
        if self._connection is not None and self._path is not None and _inode(self._path) != self._inode:
            self.close()
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        make_folder(self._folder)
        lock = lock_of(self._folder)
        with lock.held():
            try:
                found = sorted(self._databases().items())
                number, newest = found[-1] if found else (0, None)
                if newest is not None and newest != self._damaged:
                    try:
                        return self._connected(newest)
                    except sqlite3.DatabaseError as error:
                        if name_of(error) not in _UNUSABLE:
                            raise
                number += 1
                connection = self._connected(self._folder / f"lessons-{VERSION}-{number}.db")
                for _, old in found:
                    _remove(old)
                return connection
            finally:
                lock.close()

    def _connected(self, path: Path) -> sqlite3.Connection:
        """Return a connection to a database with our tables; raises `sqlite3.DatabaseError`."""
        make_file(path)
        connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", timeout=WAIT, isolation_level=None, uri=True)
        try:
            connection.executescript(_SETTINGS)
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version == 0:
                connection.execute("PRAGMA journal_mode = WAL").fetchone()
                connection.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;"
                )
            elif version != VERSION:
                raise sqlite3.DatabaseError(f"{path} has version {version}.")  # noqa: TRY301 (it has to be closed)
            connection.execute("SELECT count(*) FROM agents").fetchone()
        except BaseException:
            connection.close()
            raise
        self._path, self._inode = path, _inode(path)
        return connection

    def _databases(self) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for path in self._folder.glob(f"lessons-{VERSION}-*.db"):
            number = path.stem.rpartition("-")[2]
            if number.isdecimal():
                found[int(number)] = path
        return found

    def _give_up(self) -> None:
        self.close()
        self._damaged = self._path


def lock_of(folder: Path) -> FileLock:
    """Return the lock that one process at a time holds while it brings an index up to date."""
    return FileLock(folder / "lock", WAIT)


def _remove(path: Path) -> None:
    for side in ("", "-wal", "-shm"):
        path.with_name(f"{path.name}{side}").unlink(missing_ok=True)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
