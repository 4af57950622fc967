"""Workers: the warm processes of one language, no more than this machine has processors."""

from __future__ import annotations

import asyncio
import atexit
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redraft.errors import SandboxError
from redraft.sandbox.worker import DeadError, LateError, LongError, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.sandbox.dialect import Answer, Conversation, Dialect

START_SECONDS = 120.0
"""A first start may have to compile an interpreter on a busy machine."""


class Workers:
    """Talk with warm processes of one language; started on demand, kept, replaced when they had to be ended.

    A worker serves any event loop, one task at a time; who finds all of them busy waits without its time
    running. They belong to the process that made them: a fork starts with none.
    """

    def __init__(
        self, language: str, dialect: Dialect, options: Mapping[str, Any], libraries: Sequence[str]
    ) -> None:
        self._language = language
        self._dialect = dialect
        self._options = options
        self._libraries = libraries
        self._idle: list[Worker] = []
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._starter = self._lasting_thread()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._disown)

    async def talk(self, conversation: Conversation[Answer], seconds: float) -> Answer:
        """Return what comes of a conversation with one; raises `SandboxError` if none starts.

        Raises `LateError`, `LongError`, `DeadError`, and what the conversation raises.
        """
        async with self._slot():
            worker = self._waiting() or await self._start()
            try:
                answer = await worker.talk(conversation, seconds)
            except BaseException:  # a worker that was left in the middle is of no use
                worker.end()
                raise
            worker.owe(self._dialect.farewell)
            self._idle.append(worker)
            if self._dialect.farewell:  # who has the next script at once says it in one breath with that
                asyncio.get_running_loop().call_soon(self._leave, worker)
            return answer

    def _leave(self, worker: Worker) -> None:
        """Take leave of a worker, unless someone talks with it by now."""
        try:
            self._idle.remove(worker)
        except ValueError:
            return
        if worker.leave():
            self._idle.append(worker)
        else:
            worker.end()

    def _waiting(self) -> Worker | None:
        """Take a worker that waits, and bury those that something else has ended."""
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:  # another thread may have been quicker
                return None
            if worker.lives():
                return worker
            worker.end()

    async def _start(self) -> Worker:
        loop = asyncio.get_running_loop()
        order = {"language": self._language, "options": self._options}
        worker = await loop.run_in_executor(
            self._starter, Worker, self._dialect.entry, order, self._libraries
        )
        try:
            refused = await worker.talk(self._dialect.greet(), START_SECONDS)
        except (LateError, LongError, DeadError, ValueError) as error:
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
        if (slot := self._slots.get(loop)) is None:
            slot = self._slots[loop] = asyncio.Semaphore(os.cpu_count() or 1)
        return slot

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
