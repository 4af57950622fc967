"""A thread that runs jobs for any event loop, many in one transaction."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import RLock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakSet, ref

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

    __slots__ = ("do", "doorbell", "error", "loop", "result", "waiter")

    def __init__(self, do: Callable[[Any], T]) -> None:
        self.do = do
        self.loop = asyncio.get_running_loop()
        self.doorbell = doorbell_of(self.loop)
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
        self._about_to_ring: asyncio.AbstractEventLoop | None = None
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
    by_doorbell: dict[Doorbell, list[Job[Any]]] = {}
    for job in jobs:
        by_doorbell.setdefault(job.doorbell, []).append(job)
    for doorbell, own_jobs in by_doorbell.items():
        doorbell.ring(partial(_answer, own_jobs))


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


class Doorbell:
    """Calls functions in an event loop from any thread: a cheaper `call_soon_threadsafe`.

    That method makes the loop read from a socket until an error says that it is empty. Linux has `eventfd`, a
    counter that is read once. Without it, or if the loop can't watch files, this is `call_soon_threadsafe`.
    The functions must not raise.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._counter = self._watched_counter(loop)

    def __del__(self) -> None:
        # Not when the loop closes: a thread that rings later would write to a reused descriptor.
        if self._counter is not None:
            os.close(self._counter)

    def ring(self, call: Callable[[], None]) -> None:
        """Call a function soon in the loop, or never if the loop is closed."""
        if self._counter is not None:
            self._calls.append(call)
            os.eventfd_write(self._counter, 1)
        elif (loop := self._loop()) is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(call)

    def _watched_counter(self, loop: AbstractEventLoop) -> int | None:
        if not hasattr(os, "eventfd"):
            return None
        try:
            counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:  # too many files are open
            return None
        try:
            loop.add_reader(counter, self._answer, counter)
        except NotImplementedError:  # the loop can't watch files
            os.close(counter)
            return None
        return counter

    def _answer(self, counter: int) -> None:
        os.eventfd_read(counter)
        while self._calls:
            self._calls.popleft()()


def doorbell_of(loop: AbstractEventLoop) -> Doorbell:
    """The doorbell of the running loop, shared by all its users."""
    reference = _doorbells.get(loop)
    if (bell := None if reference is None else reference()) is None:
        bell = Doorbell(loop)
        _doorbells[loop] = ref(bell)
    return bell


# A loop keeps its doorbell alive by watching it. Calls that were pending when a loop closed keep the loop
# alive, so nothing else may hold a doorbell: it would leak an open file.
_doorbells: WeakKeyDictionary[AbstractEventLoop, ref[Doorbell]] = WeakKeyDictionary()

# A forked child would ring its parent's doorbell.
os.register_at_fork(after_in_child=_doorbells.clear)
