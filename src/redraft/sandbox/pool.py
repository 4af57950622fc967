"""Pool: the warm worker processes of one language, at most one per processor."""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redraft.errors import SandboxError
from redraft.sandbox.answers import HEAD
from redraft.sandbox.jail import PACKAGES, bare_interpreter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.sandbox.answers import Answer

_START_SECONDS = 120.0
"""Seconds to start a worker: the first worker may have to compile an interpreter on a busy machine."""

_MAX_ANSWER_BYTES = 64 << 20


class LateError(Exception):
    """A worker did not answer in time."""


class GarbledError(Exception):
    """A worker's answer can't be read: it is too long, or not JSON."""


class DeadError(Exception):
    """A worker ended without an answer; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class Pool:
    """A pool of warm workers for one language, started on demand and reused.

    A worker serves any event loop, one order at a time. A worker that is cancelled, late or broken is killed,
    and replaced on demand. `options` are passed to the language's `start`; `libraries` are the folders from
    which a worker imports. Workers belong to the process that started them: a forked process starts its own.
    """

    def __init__(self, language: str, options: Mapping[str, Any], libraries: Sequence[str]) -> None:
        self._language = language
        self._options = options
        self._libraries = libraries
        self._idle: list[_Worker] = []
        self._slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
        self._starter = self._new_starter()
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._disown)

    async def ask(self, order: bytes, seconds: float) -> Answer:
        """Send an order (JSON) to a free worker, and return its answer within `seconds`.

        Waiting for a free worker does not count. Raises `LateError`, `GarbledError` or `DeadError`, and
        `SandboxError` if no worker starts.
        """
        async with self._slot():
            while True:
                idle = self._idle_worker()
                worker = idle or await self._start()
                try:
                    answer = await worker.ask(order, seconds)
                except BaseException:  # a late answer must not become the answer to the next order
                    worker.end()
                    raise
                if "not_run" not in answer:
                    self._idle.append(worker)
                    return answer
                worker.end()
                if idle is None:
                    raise SandboxError(
                        f"The worker for {self._language} scripts does not work: {answer['not_run']}."
                    )

    def _slot(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        if (slot := self._slots.get(loop)) is None:
            slot = self._slots[loop] = asyncio.Semaphore(os.cpu_count() or 1)
        return slot

    def _idle_worker(self) -> _Worker | None:
        """Take an idle worker, if there is one; reap workers that were killed from outside."""
        while True:
            try:
                worker = self._idle.pop()
            except IndexError:  # a check beforehand would race with other threads
                return None
            if worker.is_alive():
                return worker
            worker.end()

    async def _start(self) -> _Worker:
        loop = asyncio.get_running_loop()
        worker = await loop.run_in_executor(self._starter, _Worker, self._libraries)
        start = {"language": self._language, "options": self._options, "parent": os.getpid()}
        try:
            refused = (await worker.ask(json.dumps(start).encode(), _START_SECONDS)).get("refused")
        except (LateError, GarbledError, DeadError) as error:
            refused = str(error)
        except BaseException:  # cancelled
            worker.end()
            raise
        if refused is not None:
            worker.end()
            raise SandboxError(f"The worker for {self._language} scripts did not start: {refused}")
        return worker

    def _new_starter(self) -> ThreadPoolExecutor:
        """A thread that starts workers; it must stay alive, since on Linux they end with it."""
        return ThreadPoolExecutor(1, thread_name_prefix=f"redraft-{self._language}")

    def _end(self) -> None:
        while self._idle:
            self._idle.pop().end()

    def _disown(self) -> None:
        """Start over in a forked child, which owns neither the thread nor the pipes."""
        for worker in self._idle:
            worker.disown()
        self._idle = []
        self._starter = self._new_starter()


_START = "import sys; sys.path[:0] = sys.argv[1:]; from redraft.sandbox.worker import main; main()"


class _Worker:
    """A worker process, which serves one task at a time, in any event loop.

    It has an empty environment, a session of its own, and no descriptors except its two pipes. It ends when
    its pipe closes and, on Linux, with the thread that started it.
    """

    def __init__(self, libraries: Sequence[str]) -> None:
        inward, outward = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our interpreter, our arguments)
                [*bare_interpreter(), "-c", _START, PACKAGES, *libraries],
                stdin=inward[0],
                stdout=outward[1],
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(inward[1])
            os.close(outward[0])
            raise
        finally:
            os.close(inward[0])
            os.close(outward[1])
        self._to, self._from = inward[1], outward[0]
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)

    async def ask(self, order: bytes, seconds: float) -> Answer:
        """Send an order and wait for the answer; after an error or a cancellation, `end` the worker."""
        try:
            async with asyncio.timeout(seconds):
                await self._send(HEAD.pack(len(order)) + order)
                (length,) = HEAD.unpack(await self._receive(HEAD.size))
                if length > _MAX_ANSWER_BYTES:
                    raise GarbledError(f"an answer of {length:,} bytes")
                return json.loads(await self._receive(length))
        except TimeoutError:
            raise LateError(f"no answer in {seconds:g} s") from None
        except (BrokenPipeError, EOFError):
            raise DeadError(self._process.wait()) from None
        except (ValueError, RecursionError) as error:
            raise GarbledError(str(error)) from error

    async def _send(self, data: bytes) -> None:
        loop, unsent = asyncio.get_running_loop(), memoryview(data)
        while unsent:
            try:
                unsent = unsent[os.write(self._to, unsent) :]
            except BlockingIOError:
                await _until_ready(self._to, loop.add_writer, loop.remove_writer)

    async def _receive(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        while len(data) < size:
            try:
                more = os.read(self._from, size - len(data))
            except BlockingIOError:
                await _until_ready(self._from, loop.add_reader, loop.remove_reader)
                continue
            if not more:
                raise EOFError
            data += more
        return bytes(data)

    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process, reap it, and close its pipes."""
        self._process.kill()  # no effect after reaping, when another process may have its number
        self._process.wait()
        self._close()

    def disown(self) -> None:
        """Close the pipes in a forked child, and leave the process to its owner."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        os.close(self._to)
        os.close(self._from)


async def _until_ready(descriptor: int, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
    """Wait until a descriptor is ready; `add` and `remove` start and stop watching it for reads or writes."""
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
