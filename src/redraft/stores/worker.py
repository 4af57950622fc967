"""A thread that serves requests from any event loop and groups them into transactions."""

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

from redraft.errors import StoreError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager


T = TypeVar("T")

LARGEST_BATCH = 1000
"""Jobs done in one go: a bound on how long other processes wait."""
LAST_WAIT = 10.0
"""Seconds that the end of the interpreter, or a fork, waits for what is still to be done."""


class Job(Generic[T]):
    """Hold what to do with a connection, what came of it, and who waits for that."""

    __slots__ = ("do", "doorbell", "error", "loop", "result", "waiter")

    def __init__(self, do: Callable[[Any], T]) -> None:
        self.do = do
        self.loop = asyncio.get_running_loop()
        self.doorbell = doorbell_of(self.loop)
        self.waiter: asyncio.Future[T] = self.loop.create_future()
        self.result: T | None = None
        self.error: Exception | None = None

    def run(self, connection: Any) -> None:
        """Do it."""
        self.result = self.error = None
        try:
            self.result = self.do(connection)
        except Exception as error:  # noqa: BLE001 (whoever asked for it is told)
            self.error = error


class Session(Protocol):
    """What a worker's thread works with; made, used and closed in that thread."""

    def turn(self) -> AbstractContextManager[None]:
        """Wait until it may work; what is asked for meanwhile is done in the same go."""
        ...

    def work(self, jobs: Sequence[Job[Any]], /) -> None:
        """Run the jobs. What this raises is the error of them all."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Worker:
    """Do jobs in a thread of its own, which begins with the first one and ends with `stop`.

    Tasks of several event loops and threads may ask at once. A task that is cancelled while it waits takes
    nothing back. Before the interpreter ends, and before it forks, all that was asked for is done and all
    threads let go of what they hold; the next job begins anew, in a forked child, too.
    """

    def __init__(self, name: str, session: Callable[[], Session]) -> None:
        self._name = name
        self._session = session
        self._thread: _Thread | None = None
        _workers.add(self)

    def __del__(self) -> None:
        if self._thread is not None:
            self._thread.end()

    async def do(self, work: Callable[[Any], T]) -> T:
        """Have something done; return or raise what it did."""
        if _inherited:
            raise StoreError(
                "This process was forked while a store could not be closed, and must not open one: its locks "
                "would be mistaken for the parent's. Begin processes with 'spawn'."
            )
        job = Job(work)
        with _handing_over:
            if self._thread is None:
                self._thread = self._begin()
            self._thread.take(job)
        return await job.waiter

    def _begin(self) -> _Thread:
        try:
            return _Thread(self._name, self._session)
        except RuntimeError as error:  # Python 3.12 starts none while it ends
            raise StoreError(f"There can be no thread for a store: {error}.") from error

    async def stop(self) -> None:
        """Wait for all that was asked for, and let go of everything; another job begins anew."""
        if (thread := self.dismiss()) is not None:
            await asyncio.to_thread(thread.join)

    def dismiss(self) -> Thread | None:
        """Let the thread end when all that was asked for is done; return it, if there is one."""
        with _handing_over:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.end()
        return thread


class _Thread(Thread):
    """The thread of a worker. It knows nothing of the worker, so that one that is forgotten can end it."""

    def __init__(self, name: str, session: Callable[[], Session]) -> None:
        super().__init__(name=name, daemon=True)
        self._make = session
        self._inbox: deque[Job[Any]] = deque()
        self._bell: SimpleQueue[Literal["work", "end"]] = SimpleQueue()
        self._about_to_ring: asyncio.AbstractEventLoop | None = None
        self.start()
        _threads.add(self)

    def take(self, job: Job[Any]) -> None:
        """Do a job, together with all that the tasks of its loop ask for before the loop goes round again.

        To wake up for the first of them would be to share no wait with the others, and to take turns with
        them at the interpreter's lock.
        """
        self._inbox.append(job)
        if self._about_to_ring is not job.loop:
            self._about_to_ring = job.loop
            job.loop.call_soon(self._ring)

    def _ring(self) -> None:
        self._about_to_ring = None
        self._bell.put("work")

    def end(self) -> None:
        """End when all that was asked for is done."""
        self._bell.put("end")

    def run(self) -> None:
        session = self._make()
        # What its loop has not rung for yet is not taken: there is more to come.
        while self._bell.get() == "work":
            if self._inbox:
                self._serve(session)
        while self._inbox:
            self._serve(session)
        session.close()
        _threads.discard(self)

    def _serve(self, session: Session) -> None:
        """Do the jobs that there are. In between, none is held on to."""
        jobs: list[Job[Any]] = []
        try:
            with session.turn():
                jobs = self._waiting()
                session.work(jobs)
        except Exception as error:  # noqa: BLE001 (whoever asked for it is told)
            jobs = jobs or self._waiting()  # they had the same wait, which was in vain
            for failed in jobs:
                failed.error = error
        _tell(jobs)

    def _waiting(self) -> list[Job[Any]]:
        jobs = [self._inbox.popleft() for _ in range(min(len(self._inbox), LARGEST_BATCH))]
        if len(jobs) == LARGEST_BATCH:
            self._bell.put("work")  # for the rest
        return jobs


def _tell(jobs: Iterable[Job[Any]]) -> None:
    """Wake who waits for the jobs, those of one event loop together."""
    doors: dict[Doorbell, list[Job[Any]]] = {}
    for job in jobs:
        doors.setdefault(job.doorbell, []).append(job)
    for doorbell, own in doors.items():
        doorbell.ring(partial(_answer, own))


def _answer(jobs: Iterable[Job[Any]]) -> None:
    for job in jobs:
        if job.waiter.done():  # its task was cancelled
            continue
        if job.error is None:
            job.waiter.set_result(job.result)
        else:
            job.waiter.set_exception(job.error)


_handing_over = RLock()
"""Held while a job is given to a thread, and while there must be no thread: over a fork."""
_workers: WeakSet[Worker] = WeakSet()
_threads: set[_Thread] = set()
_inherited: set[Thread] = set()
"""Threads of the parent that did not end before the fork: what they held is held by nobody here."""


def _finish() -> None:
    """End all threads, also those whose workers are forgotten; wait for them within bounds."""
    for worker in tuple(_workers):
        worker.dismiss()
    deadline = monotonic() + LAST_WAIT
    for thread in tuple(_threads):
        thread.join(max(0.0, deadline - monotonic()))


def _before_fork() -> None:
    # A child must inherit no connection: SQLite would take the locks of its parent for its own.
    _handing_over.acquire()
    _finish()


def _after_fork_in_child() -> None:
    _inherited.update(_threads)
    _threads.clear()
    _handing_over.release()


atexit.register(_finish)
os.register_at_fork(
    before=_before_fork, after_in_parent=_handing_over.release, after_in_child=_after_fork_in_child
)


class Doorbell:
    """Have functions called in an event loop, from any thread: `call_soon_threadsafe` at a lower price.

    That one has the loop read from a socket until an error says that there is no more, each time. Linux has a
    counter for this purpose (`eventfd`), which is read once. Where there is none, or the loop can't watch
    files, it is `call_soon_threadsafe`. The functions must not raise.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._counter = self._watched_counter(loop)

    def __del__(self) -> None:
        # Not when the loop is closed: a thread that still rings would write to what has the number next.
        if self._counter is not None:
            os.close(self._counter)

    def ring(self, call: Callable[[], None]) -> None:
        """Have a function called soon; never, if the loop is closed."""
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
        except NotImplementedError:  # it can't watch files
            os.close(counter)
            return None
        return counter

    def _answer(self, counter: int) -> None:
        os.eventfd_read(counter)
        while self._calls:
            self._calls.popleft()()


def doorbell_of(loop: AbstractEventLoop) -> Doorbell:
    """Return the doorbell of a loop, from within that loop; all who ask while it is in use get the same."""
    known = _doorbells.get(loop)
    if (bell := None if known is None else known()) is None:
        bell = Doorbell(loop)
        _doorbells[loop] = ref(bell)
    return bell


# A loop holds its doorbell by watching it. What was rung for when it closed holds the loop, so that nothing
# else must hold the doorbell: all of them would stay, each with an open file.
_doorbells: WeakKeyDictionary[AbstractEventLoop, ref[Doorbell]] = WeakKeyDictionary()

# A forked child would ring at its parent's door.
os.register_at_fork(after_in_child=_doorbells.clear)
