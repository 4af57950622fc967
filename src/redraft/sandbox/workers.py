"""Workers: the warm processes of one language, no more than this machine has processors."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redraft.core.errors import SandboxError
from redraft.sandbox.worker import DeadError, LateError, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_SECONDS = 120.0
"""A first start may have to compile an interpreter on a busy machine."""


class Workers:
    """Ask warm processes of one language; started on demand, kept, and replaced when they had to be ended.

    A worker serves any event loop, one task at a time; who finds all of them busy waits without its time
    running. They belong to the process that made them: a fork starts with none.
    """

    def __init__(self, language: str, options: Mapping[str, Any], libraries: Sequence[str]) -> None:
        self._language = language
        self._options = options
        self._libraries = libraries
        self._idle: list[Worker] = []
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._starter = self._lasting_thread()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._disown)

    async def ask(self, order: bytes, seconds: float) -> bytes:
        """Return a worker's answer; raises `LateError`, `DeadError`, and `SandboxError` if none starts."""
        async with self._slot():
            worker = self._idle.pop() if self._idle else await self._start()
            try:
                answer = await worker.ask(order, seconds)
            except BaseException:  # a worker that was left in the middle is of no use
                worker.end()
                raise
            self._idle.append(worker)
            return answer

    async def _start(self) -> Worker:
        loop = asyncio.get_running_loop()
        worker = await loop.run_in_executor(
            self._starter, Worker, self._language, self._options, self._libraries
        )
        try:
            refused = json.loads(await worker.greet(START_SECONDS)).get("refused")
        except (LateError, DeadError) as error:
            refused = str(error)
        except BaseException:  # cancelled
            worker.end()
            raise
        if refused is not None:
            worker.end()
            raise SandboxError(f"The worker for {self._language} scripts did not start: {refused}")
        return worker

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if loop not in self._slots:
            self._slots[loop] = asyncio.Semaphore(os.cpu_count() or 1)
        return self._slots[loop]

    def _lasting_thread(self) -> ThreadPoolExecutor:
        """Make the thread that starts workers: on Linux they end with it, so it must last."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"redraft-{self._language}")

    def _end(self) -> None:
        while self._idle:
            self._idle.pop().end()

    def _disown(self) -> None:
        """Start anew in a forked child: neither the thread nor the pipes are its own."""
        for worker in self._idle:
            worker.disown()
        self._idle = []
        self._starter = self._lasting_thread()
