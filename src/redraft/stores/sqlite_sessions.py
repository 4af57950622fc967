"""Reader and Writer: what the two threads of a SQLite store work with."""

from __future__ import annotations

import sqlite3
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

from redraft.core.errors import StoreError
from redraft.stores.migrate import scripts
from redraft.stores.sqlite_faults import name_of
from redraft.stores.sqlite_file import SqliteFile
from redraft.stores.sqlite_records import prepare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from redraft.stores.worker import Job


class Reader:
    """Answer questions one after the other; where there is no database yet, nothing is found or made."""

    def __init__(self, path: Path, wait: float) -> None:
        self._file = SqliteFile(path, wait)

    def turn(self) -> AbstractContextManager[None]:
        """Wait for nobody: a reader sees what was committed last."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run each job; after an error of the database, the next one opens it anew."""
        if not self._file.exists():
            with closing(sqlite3.connect(":memory:")) as nothing:
                nothing.executescript("".join(scripts("sqlite")))
                prepare(nothing)
                for job in jobs:
                    job.run(nothing)
            return
        for job in jobs:
            job.run(self._file.connection())
            if isinstance(job.error, sqlite3.Error):
                self._file.drop()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class Writer:
    """Write what many tasks ask for in one transaction: they share the wait for the disk."""

    def __init__(self, path: Path, wait: float) -> None:
        self._file = SqliteFile(path, wait)

    def turn(self) -> AbstractContextManager[None]:
        """Hold the lock that gives each process its turn."""
        return self._file.locked()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Commit the jobs together; if that fails, each alone, so that none fails for its neighbour."""
        try:
            self._commit(jobs)
        except sqlite3.Error as error:
            if len(jobs) == 1 or name_of(error) == "SQLITE_BUSY":
                raise
        else:
            return
        for job in jobs:
            try:
                self._commit([job])
            except (sqlite3.Error, OSError, StoreError) as error:
                job.error = error

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _commit(self, jobs: Sequence[Job[Any]]) -> None:
        connection = self._file.connection()
        try:
            if len(jobs) == 1:  # what it does is a transaction of its own, without two statements more
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
            raise job.error  # a full disk, say: SQLite has taken back the whole transaction
