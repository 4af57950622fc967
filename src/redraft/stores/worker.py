"""A thread that runs jobs for any event loop, many in one transaction."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from threading import RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakSet

from redraft._calls import in_daemon_thread
from redraft.errors import StoreError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager


T = TypeVar("T")

LARGEST_BATCH = 1000
"""Maximum jobs per transaction, which bounds how long other processes wait."""
LAST_WAIT = 10.0
"""Seconds that closing, interpreter exit, or a fork waits for pending jobs."""


class Job(Generic[T]):
    """Work for a connection, its result or error, and the future that waits for it."""

    __slots__ = ("do", "error", "loop", "result", "waiter")

    def __init__(self, do: Callable[[Any], T]) -> None:
        self.do = do
        self.loop = asyncio.get_running_loop()
        self.waiter: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self, connection: Any) -> None:
        """Do the work, and store its result or error."""
        self.result = self.error = None
        try:
            self.result = self.do(connection)
        except Exception as error:  # noqa: BLE001 (raised in the task that waits for it)
            self.error = error


class DatabaseSession(Protocol):
    """The database session of a worker's thread, which opens, uses and closes it."""

    def turn(self) -> AbstractContextManager[None]:
        """Wait for permission to work; jobs that arrive meanwhile join the batch."""
        ...

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run the jobs. If this raises, all of them fail with that error."""
        ...

    def close(self) -> None:
        """Release all files and connections."""
        ...


class Worker:
    """Runs jobs in its own thread, which starts with the first job and ends with `stop`.

    Tasks of several event loops and threads may submit jobs concurrently. Cancelling a waiting task does not
    cancel its job. Before the interpreter exits, and before it forks, all jobs are finished and all threads
    close their sessions; the next job starts a new thread, also in a forked child.
    """

    def __init__(self, name: str, session: Callable[[], DatabaseSession]) -> None:
        self._name = name
        self._session = session
        self._thread: _Thread | None = None
        _workers.add(self)

    def __del__(self) -> None:
        if self._thread is not None:
            self._thread.end()

    async def do(self, work: Callable[[Any], T]) -> T:
        """Do work in the thread; return its result or raise its error."""
        if _inherited:
            raise StoreError(
                "This process was forked while a store could not be closed, and must not open one: its locks "
                "would be mistaken for the parent's. Start processes with 'spawn'."
            )
        job = Job(work)
        with _handing_over:
            if self._thread is None:
                self._thread = self._start()
            self._thread.take(job)
        return await job.waiter

    def _start(self) -> _Thread:
        try:
            return _Thread(self._name, self._session)
        except RuntimeError as error:  # Python 3.12 starts no threads at exit
            raise StoreError(f"Could not start the store's thread: {error}.") from error

    async def stop(self) -> None:
        """Finish all jobs and close the session; another job starts a new thread.

        Waits for at most `LAST_WAIT` seconds: a database that is silent must not hold up the exit.
        """
        if (thread := self.dismiss()) is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WAIT):
                    await in_daemon_thread(thread.join)

    def dismiss(self) -> Thread | None:
        """Tell the thread to end once all jobs are done; return it, if there is one."""
        with _handing_over:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.end()
        return thread


class _Thread(Thread):
    """The thread of a worker. It holds no reference to the worker, so that a dropped worker can end it."""

    def __init__(self, name: str, session: Callable[[], DatabaseSession]) -> None:
        super().__init__(name=name, daemon=True)
        self._make = session
        self._inbox: deque[Job[Any]] = deque()
        self._bell: SimpleQueue[Literal["work", "end"]] = SimpleQueue()
        self._about_to_ring: AbstractEventLoop | None = None
        self.start()
        _threads.add(self)

    def take(self, job: Job[Any]) -> None:
        """Queue a job; the thread wakes up once the job's event loop has run its current callbacks.

        So jobs of one loop iteration share a transaction. Waking up for the first job would separate it from
        the others, and compete with them for the interpreter's lock.
        """
        self._inbox.append(job)
        if self._about_to_ring is not job.loop:
            self._about_to_ring = job.loop
            job.loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._about_to_ring = None
        self._bell.put("work")

    def end(self) -> None:
        """End once all jobs are done."""
        self._bell.put("end")

    def run(self) -> None:
        session = self._make()
        # Each loop rings after its callbacks; until then, it may submit more jobs.
        while self._bell.get() == "work":
            if self._inbox:
                self._serve(session)
        while self._inbox:
            self._serve(session)
        session.close()
        _threads.discard(self)

    def _serve(self, session: DatabaseSession) -> None:
        """Run the waiting jobs, and hold no reference to them afterwards."""
        jobs: list[Job[Any]] = []
        try:
            with session.turn():
                jobs = self._next_batch()
                session.work(jobs)
        except Exception as error:  # noqa: BLE001 (raised in the task that waits for it)
            jobs = jobs or self._next_batch()  # they waited for the same turn, which failed
            for job in jobs:
                job.error = error
        _resolve(jobs)

    def _next_batch(self) -> list[Job[Any]]:
        jobs = [self._inbox.popleft() for _ in range(min(len(self._inbox), LARGEST_BATCH))]
        if len(jobs) == LARGEST_BATCH:
            self._bell.put("work")  # for the rest
        return jobs


def _resolve(jobs: Iterable[Job[Any]]) -> None:
    """Resolve the futures of jobs, once per event loop."""
    by_loop: dict[AbstractEventLoop, list[Job[Any]]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, own_jobs in by_loop.items():
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(_answer, own_jobs)


def _answer(jobs: Iterable[Job[Any]]) -> None:
    for job in jobs:
        if job.waiter.done():  # its task was cancelled
            continue
        if job.error is None:
            job.waiter.set_result(job.result)
        else:
            job.waiter.set_exception(job.error)


_handing_over = RLock()
"""Held while a job is handed to a thread, and during a fork, when no thread may run."""
_workers: WeakSet[Worker] = WeakSet()
_threads: set[_Thread] = set()
_inherited: set[Thread] = set()
"""Threads of the parent that did not end before the fork: this process cannot release their locks."""


def _stop_all() -> None:
    """End all threads, also those of dropped workers, and wait for them up to `LAST_WAIT`."""
    for worker in tuple(_workers):
        worker.dismiss()
    deadline = monotonic() + LAST_WAIT
    for thread in tuple(_threads):
        thread.join(max(0.0, deadline - monotonic()))


def _before_fork() -> None:
    # A child must not inherit connections: SQLite would take its parent's locks for its own.
    _handing_over.acquire()
    _stop_all()


def _after_fork_in_child() -> None:
    _inherited.update(_threads)
    _threads.clear()
    _handing_over.release()


atexit.register(_stop_all)
os.register_at_fork(
    before=_before_fork, after_in_parent=_handing_over.release, after_in_child=_after_fork_in_child
)
