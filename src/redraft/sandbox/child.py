"""One child process as the host sees it: started, listened to, and ended in time whatever it does."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from io import FileIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio.subprocess import Process

_LAST_WORDS = 0.2
"""Seconds in which the pipes of a child that has ended may still bring what it wrote."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """Say how a child ended: what its three pipes brought, and what stopped it, if anything did.

    `exit_code` is negative for a signal. `stopped` is `timeout` or `output`.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    reports: bytes
    stopped: str | None


@dataclass(frozen=True, slots=True)
class Child:
    """Describe a child process: program, environment, working folder, and its bounds.

    `timeout` is wall time in seconds, the limits are bytes; a pipe that brings more ends the child.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    timeout: float
    output_limit: int
    report_limit: int

    async def run(self, words: Callable[[int], bytes]) -> ChildEnd:
        """Start the child, say `words` to it on stdin, and come back when it has ended.

        `words` gets the descriptor on which the child reports. Cancelling ends the child, too.
        """
        with ExitStack() as stack:
            pipes = [os.pipe() for _ in range(3)]
            readers = [stack.enter_context(FileIO(read)) for read, _ in pipes]
            writers = [write for _, write in pipes]
            with ExitStack() as until_started:
                for write in writers:
                    until_started.callback(os.close, write)
                words_file = until_started.enter_context(tempfile.TemporaryFile())
                words_file.write(words(writers[2]))
                words_file.seek(0)
                process = await asyncio.create_subprocess_exec(
                    *self.argv,
                    stdin=words_file,
                    stdout=writers[0],
                    stderr=writers[1],
                    pass_fds=(writers[2],),
                    cwd=self.folder,
                    env=dict(self.environment),
                    start_new_session=True,
                )
            return await self._listen(process, readers)

    async def _listen(self, process: Process, files: Sequence[FileIO]) -> ChildEnd:
        loop = asyncio.get_running_loop()
        limits = (self.output_limit, self.output_limit, self.report_limit)
        pipes = [_Pipe(loop, limit, lambda: _end(process)) for limit in limits]
        transports: list[asyncio.ReadTransport] = []
        timed_out = False
        try:
            for pipe, file in zip(pipes, files, strict=True):
                transports.append((await loop.connect_read_pipe(lambda pipe=pipe: pipe, file))[0])
            async with asyncio.timeout(self.timeout):
                await process.wait()
        except TimeoutError:
            timed_out = True
        finally:
            _end(process)
            exit_code = await process.wait()
            await asyncio.wait([pipe.closed for pipe in pipes], timeout=_LAST_WORDS)
            for transport in transports:
                transport.close()
        stopped = "timeout" if timed_out else "output" if any(pipe.flooded for pipe in pipes) else None
        stdout, stderr, reports = (bytes(pipe.kept) for pipe in pipes)
        return ChildEnd(exit_code, stdout, stderr, reports, stopped)


class _Pipe(asyncio.Protocol):
    """Keep what a pipe brings up to a limit; call `stop` when it brings more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit: int, stop: Callable[[], None]) -> None:
        self.kept = bytearray()
        self.flooded = False
        self.closed: asyncio.Future[None] = loop.create_future()
        self._limit = limit
        self._stop = stop

    def data_received(self, data: bytes) -> None:
        room = self._limit - len(self.kept)
        self.kept += data[:room]
        if len(data) > room:
            self.flooded = True
            self._stop()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        if not self.closed.done():
            self.closed.set_result(None)


def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
