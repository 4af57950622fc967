"""Background: what goes on after the answer was given, in a thread with an event loop of its own."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future


class Background:
    """Carry out coroutines beside the program, also when the event loop that asked for them has ended.

    The thread begins with the first one and ends with the last. The interpreter waits for it before it ends;
    an interrupt (Ctrl-C) then gives up what is still under way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _Thread | None = None

    def start(self, job: Coroutine[Any, Any, None]) -> Future[None]:
        """Begin a job, which must not raise; return what says when it is done. Callable from any thread."""
        with self._lock:
            if self._thread is None:
                self._thread = _Thread()
                self._thread.start()
            thread = self._thread
            thread.jobs += 1
            future = asyncio.run_coroutine_threadsafe(job, thread.loop)
        future.add_done_callback(lambda _: self._ended(thread))
        return future

    def _ended(self, thread: _Thread) -> None:
        with self._lock:
            thread.jobs -= 1
            if thread.jobs:
                return
            if self._thread is thread:
                self._thread = None
        thread.loop.call_soon_threadsafe(thread.loop.stop)

    def finish(self) -> None:
        """Wait until everything is done; raises `KeyboardInterrupt` where that interrupts it."""
        # A job that ends may have begun another.
        while (thread := self._thread) is not None and thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                logger.warning("%d reflections were given up: the program was interrupted.", thread.jobs)
                raise

    def forget(self) -> None:
        """Know of nothing any more: what a forked child has to do, whose threads are its parent's."""
        self._lock = threading.Lock()
        self._thread = None


class _Thread(threading.Thread):
    """The thread of a background: its loop takes jobs from the moment it is made."""

    def __init__(self) -> None:
        # Not as a daemon: should nobody wait for it before, the interpreter does.
        super().__init__(name="redraft-background", daemon=False)
        self.loop = asyncio.new_event_loop()
        self.jobs = 0

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


background = Background()


def _before_the_end(finish: Callable[[], None]) -> None:
    """Have something done before the interpreter refuses new work to its executors.

    What `atexit` calls comes too late: by then no thread pool takes a job, and name look-ups, files and
    whatever else an event loop gives to its pool fail. `concurrent.futures` has a hook for its own end, and
    whoever came later in it is called earlier.
    """
    import_module("concurrent.futures.thread")  # so that its own end is in the hook before ours
    hook: Any = getattr(threading, "_register_atexit", None)  # private, and there since Python 3.9
    (atexit.register if hook is None else hook)(finish)


_before_the_end(background.finish)
os.register_at_fork(after_in_child=background.forget)
