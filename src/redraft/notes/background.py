"""Background jobs that outlive the event loop that started them."""

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
    """Runs coroutines in a separate thread, so that they outlive the event loop that started them.

    The thread starts with the first job and ends with the last. The interpreter waits for it before it exits;
    an interrupt (Ctrl-C) then abandons the remaining jobs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _Thread | None = None

    def start(self, job: Coroutine[Any, Any, None]) -> Future[None]:
        """Start a job, which must not raise, from any thread; return a future that ends with the job."""
        with self._lock:
            if self._thread is None:
                self._thread = _Thread()
                self._thread.start()
            thread = self._thread
            thread.jobs += 1
            future = asyncio.run_coroutine_threadsafe(job, thread.loop)
        future.add_done_callback(lambda _: self._on_done(thread))
        return future

    def _on_done(self, thread: _Thread) -> None:
        with self._lock:
            thread.jobs -= 1
            if thread.jobs:
                return
            if self._thread is thread:
                self._thread = None
        thread.loop.call_soon_threadsafe(thread.loop.stop)

    def finish(self) -> None:
        """Wait until all jobs are done; raises `KeyboardInterrupt` if interrupted."""
        # The last job may have started another.
        while (thread := self._thread) is not None and thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                logger.warning("%d reflections were abandoned: the program was interrupted.", thread.jobs)
                raise

    def forget(self) -> None:
        """Forget all jobs, in a forked child: the threads are the parent's."""
        self._lock = threading.Lock()
        self._thread = None


class _Thread(threading.Thread):
    """The thread with its event loop, which takes jobs from the moment it is created."""

    def __init__(self) -> None:
        # Not a daemon, so that the interpreter waits for it in any case.
        super().__init__(name="redraft-background", daemon=False)
        self.loop = asyncio.new_event_loop()
        self.jobs = 0

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


def _call_at_exit(finish: Callable[[], None]) -> None:
    """Call `finish` at exit, while thread pools still accept work.

    `atexit` would be too late: by then an event loop can no longer use its pool for files or name look-ups.
    `concurrent.futures` ends its pools in a hook of `threading`, which calls the latest entry first.
    """
    import_module("concurrent.futures.thread")  # registers its own hook before this one
    hook: Any = getattr(threading, "_register_atexit", None)  # private; exists since Python 3.9
    (atexit.register if hook is None else hook)(finish)


background = Background()


_call_at_exit(background.finish)
os.register_at_fork(after_in_child=background.forget)
