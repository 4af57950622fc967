"""Workers: the warm processes of one language, no more than this machine has processors."""

from __future__ import annotations

import asyncio
import atexit
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any

from redraft.sandbox.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Turn:
    """Know the worker that one asker waits for, so that it can be cancelled from another thread."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._cancelled = False
        self._lock = Lock()

    def begin(self, worker: Worker) -> None:
        with self._lock:
            self._worker = worker
            if self._cancelled:
                worker.kill()

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            if self._worker:
                self._worker.kill()

    def end(self) -> bool:
        """Say whether the worker was left alone."""
        with self._lock:
            self._worker = None
            return not self._cancelled


class Workers:
    """Ask warm processes of one language; started on demand, kept, and replaced when they had to be ended.

    Threads ask, so that a worker serves any event loop; who finds all of them busy waits without its time
    running. They belong to the process that made them: a fork starts with none.
    """

    def __init__(self, language: str, options: Mapping[str, Any], libraries: Sequence[str]) -> None:
        self._language = language
        self._options = options
        self._libraries = libraries
        self._idle: list[Worker] = []
        self._threads = self._askers()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._disown)

    async def ask(self, order: bytes, seconds: float) -> bytes:
        """Return a worker's answer; raises `LateError`, `DeadError`, and `SandboxError` if none starts."""
        turn = _Turn()
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._ask, order, seconds, turn
            )
        except asyncio.CancelledError:
            turn.cancel()
            raise

    def _ask(self, order: bytes, seconds: float, turn: _Turn) -> bytes:
        worker = self._take()
        answered = False
        try:
            turn.begin(worker)
            answer = worker.ask(order, seconds)
            answered = True
            return answer
        finally:
            if turn.end() and answered:
                self._idle.append(worker)
            else:
                worker.end()

    def _take(self) -> Worker:
        try:
            return self._idle.pop()
        except IndexError:
            return Worker(self._language, self._options, self._libraries)

    def _end(self) -> None:
        self._threads.shutdown()
        while self._idle:
            self._idle.pop().end()

    def _disown(self) -> None:
        """Start anew in a forked child: neither threads nor pipes are its own."""
        for worker in self._idle:
            worker.disown()
        self._idle = []
        self._threads = self._askers()

    def _askers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix=f"redraft-{self._language}")
