"""Worker: one warm process that runs scripts one at a time, and is ended when it does not answer in time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path[:0] = sys.argv[2:]; from redraft.sandbox.inside.serve import main; main()"
_HEAD = struct.Struct(">Q")
_CHUNK = 1 << 14
"""Bytes read at once: more than most answers have, and little enough to cost nothing where they are few."""
_MOST_ANSWERED = 64 << 20


class LateError(Exception):
    """Say that a worker did not answer in time."""


class DeadError(Exception):
    """Say that a worker ended while it was asked; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class Worker:
    """Start a process for one language; ask it from one task at a time, in any event loop.

    It gets an empty environment, no descriptor but its two pipes, and a session of its own. It ends when
    its pipe does, and, on Linux, with the thread that started it. `libraries` are the folders of the
    packages that it imports from.
    """

    def __init__(self, language: str, options: Mapping[str, Any], libraries: Sequence[str]) -> None:
        order = json.dumps({"language": language, "parent": os.getpid(), "options": options})
        interpreter = (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8")
        inward, outward = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (this interpreter, and words of ours)
                [*interpreter, "-c", _START, order, _PACKAGES, *libraries],
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

    async def ask(self, order: bytes, seconds: float) -> bytes:
        """Return the answer to one order; raises `LateError` or `DeadError`.

        After that, and after a cancellation, it must be ended.
        """
        return await self._exchange(_HEAD.pack(len(order)) + order, seconds)

    async def greet(self, seconds: float) -> bytes:
        """Return what it says when it is ready; raises like `ask`."""
        return await self._exchange(b"", seconds)

    def end(self) -> None:
        """Kill the process and all that it started, bury it, and let go of its pipes."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def disown(self) -> None:
        """Let go of the pipes in a process that was forked off the one that the worker belongs to."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        os.close(self._to)
        os.close(self._from)

    async def _exchange(self, said: bytes, seconds: float) -> bytes:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        talk = _Talk(self._to, self._from, said, answered)
        late = loop.call_later(seconds, talk.fail, LateError(f"no answer in {seconds:g} s"))
        loop.add_reader(self._from, talk.listen)
        if waits := not talk.speak():
            loop.add_writer(self._to, talk.speak_on)
        try:
            return await answered
        except (BrokenPipeError, EOFError):
            raise DeadError(self._process.wait()) from None
        finally:
            late.cancel()
            loop.remove_reader(self._from)
            if waits:
                loop.remove_writer(self._to)


class _Talk:
    """One order on its way out and its answer on its way in."""

    def __init__(self, to: int, source: int, said: bytes, answered: asyncio.Future[bytes]) -> None:
        self._to, self._from = to, source
        self._left = memoryview(said)
        self._heard = bytearray()
        self._answered = answered

    def speak(self) -> bool:
        """Write what the pipe takes; True when all of it is out."""
        try:
            while self._left:
                self._left = self._left[os.write(self._to, self._left) :]
        except BlockingIOError:
            return False
        except BrokenPipeError as error:
            self.fail(error)
        return True

    def speak_on(self) -> None:
        """Write what the pipe takes now that it takes more; then there is nothing more to wait for."""
        if self.speak():
            asyncio.get_running_loop().remove_writer(self._to)

    def listen(self) -> None:
        """Read what the pipe has."""
        try:
            data = os.read(self._from, _CHUNK)
        except BlockingIOError:
            return
        self._heard += data
        if not data:
            self.fail(EOFError())
        elif len(self._heard) >= _HEAD.size:
            (length,) = _HEAD.unpack_from(self._heard)
            if length > _MOST_ANSWERED:
                self.fail(LateError(f"an answer of {length} bytes"))
            elif len(self._heard) == _HEAD.size + length and not self._answered.done():
                self._answered.set_result(bytes(self._heard[_HEAD.size :]))

    def fail(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)
