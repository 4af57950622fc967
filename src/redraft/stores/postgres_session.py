"""Reader and Writer: what the two threads of a PostgreSQL database work with."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from operator import itemgetter
from select import POLLIN, POLLOUT, poll
from typing import TYPE_CHECKING, Any, cast

import psycopg

from redraft.core.errors import StoreError
from redraft.stores.postgres_database import Database, SpaceConnection, milliseconds
from redraft.stores.postgres_faults import explained, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from redraft.stores.postgres_records import Steps, Write, WriteAll
    from redraft.stores.worker import Job

_STALE = frozenset({"25006", "3F000", "42P01", "42703"})
"""States in which another connection may do better: the server is read-only now, or the tables are gone."""


class Reader:
    """Answer what many tasks ask in one exchange with the server.

    A connection that was lost since it was last used is opened anew, once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: SpaceConnection | None = None
        self._is_lost = False

    def turn(self) -> AbstractContextManager[None]:
        """Wait for nobody: the server gives each its turn."""
        return nullcontext()

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Do the jobs together; if that fails, each alone, so that none fails for its neighbour."""
        try:
            self._do_again_if_lost(jobs)
        except psycopg.Error as error:
            if len(jobs) == 1 or self._connection is None:
                raise explained(error, self._database.name) from error
        else:
            return
        for job in jobs:
            try:
                self._do_again_if_lost([job])
            except psycopg.Error as error:
                job.error = explained(error, self._database.name)
            except StoreError as error:
                job.error = error

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            with suppress(psycopg.Error):  # what was committed is safe, and there is nothing else to lose
                self._connection.close()
            self._connection = None

    def _do_again_if_lost(self, jobs: Sequence[Job[Any]]) -> None:
        before = self._connection
        try:
            self._do(jobs)
        except psycopg.Error:
            if before is None or not self._is_lost:
                raise
            self._do(jobs)

    def _do(self, jobs: Sequence[Job[Any]]) -> None:
        self._is_lost = False
        if self._connection is None:
            self._connection = self._database.connect()
        self._connection.space = None
        try:
            self._exchange(self._connection, jobs)
        except BaseException as error:
            self._is_lost = self._connection.closed
            if self._is_lost or not isinstance(error, psycopg.Error) or error.sqlstate in _STALE:
                self.close()
            raise

    def _exchange(self, connection: SpaceConnection, jobs: Sequence[Job[Any]]) -> None:
        # What is to be seen in a space alone needs to enter it in the same transaction, which a pipeline is.
        is_alone = len(jobs) == 1 and not self._database.is_isolated
        with nullcontext() if is_alone else _pipeline(connection):
            run_together([(job, job.do(connection)) for job in jobs])


class Writer(Reader):
    """Write what many tasks ask for in one transaction: they share the wait for the disk."""

    def __init__(self, database: Database, wait: float) -> None:
        super().__init__(database)
        self._wait = f"SET LOCAL lock_timeout = '{milliseconds(wait)}'".encode()

    def _exchange(self, connection: SpaceConnection, jobs: Sequence[Job[Any]]) -> None:
        is_committing = False
        try:
            with _pipeline(connection) as pipeline:
                connection.execute("BEGIN")
                connection.execute(self._wait)
                # In one order in all processes: then none waits for one that waits for it.
                parts = [
                    (place, job, steps) for job in jobs for place, steps in _writes(job).parts(connection)
                ]
                run_together(
                    [(job, steps) for _, job, steps in sorted(parts, key=itemgetter(0))],
                    partial(_sync, connection, pipeline),
                )
                is_committing = True
                connection.execute("COMMIT")
        except psycopg.Error as error:
            if is_committing and connection.closed:
                # What may have been done is not to be tried again.
                raise unknown(error, self._database.name) from error
            with suppress(psycopg.Error):  # a connection that is lost has nothing to take back
                connection.execute("ROLLBACK")
            raise


@contextmanager
def _pipeline(connection: psycopg.Connection) -> Generator[psycopg.Pipeline]:
    """Send each statement without waiting for the answer to the one before."""
    failed: psycopg.Error | None = None
    try:
        with connection.pipeline() as pipeline:
            try:
                yield pipeline
            except psycopg.Error as error:  # raised in there, psycopg would log what follows from it
                failed = error
    except psycopg.Error as error:
        failed = failed or error
    if failed is not None:
        raise failed


def _sync(connection: SpaceConnection, pipeline: psycopg.Pipeline) -> None:
    """Let the server know that it waits for us now: it ends who stands still with locks in hand."""
    pgconn = connection.pgconn
    # psycopg waits for answers only, also where there is more to send than the socket takes at once.
    while pgconn.flush():
        socket = poll()
        socket.register(pgconn.socket, POLLIN | POLLOUT)
        if any(event & POLLIN for _, event in socket.poll()):
            pgconn.consume_input()
    pipeline.sync()


def run_together(
    waiting: Sequence[tuple[Job[Any], Steps[Any]]], sent: Callable[[], None] = lambda: None
) -> None:
    """Let each job send what it asks, then each read what it got, until all have what they need.

    `sent` is called when all is sent, before anything is read. An error of the database is that of them all;
    any other is the error of its job.
    """
    for job, _ in waiting:
        job.error = None
    while waiting:
        waiting = [(job, steps) for job, steps in waiting if _goes_on(job, steps)]
        if waiting:
            sent()


def _writes(job: Job[Any]) -> Write[Any] | WriteAll[Any]:
    return cast("Write[Any] | WriteAll[Any]", job.do)


def _goes_on(job: Job[Any], steps: Steps[Any]) -> bool:
    try:
        next(steps)
    except StopIteration as end:
        job.result = end.value
        return False
    except psycopg.Error:
        raise
    except Exception as error:  # noqa: BLE001 (whoever asked for it is told)
        job.error = error
        return False
    return True
