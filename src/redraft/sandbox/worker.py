"""Worker: one warm process that runs scripts one at a time, and is ended when it does not answer in time."""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

START_SECONDS = 120.0
"""A first start may have to compile an interpreter on a busy machine."""

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path[:0] = sys.argv[2:]; from redraft.sandbox.inside.serve import main; main()"
_HEAD = struct.Struct(">Q")
_CHUNK = 1 << 16
_ANSWER_BYTES = 64 << 20


class LateError(Exception):
    """Say that a worker did not answer in time."""


class DeadError(Exception):
    """Say that a worker ended while it was asked; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class Worker:
    """Start a process for one language and ask it, from one thread at a time.

    It gets an empty environment, no descriptor but its two pipes, and a session of its own. It ends when
    its pipe does, and, on Linux, with the thread that started it. `libraries` are the folders of the
    packages that it imports from. Raises `SandboxError` when it could not be started.
    """

    def __init__(self, language: str, options: Mapping[str, Any], libraries: Sequence[str]) -> None:
        order = json.dumps({"language": language, "parent": os.getpid(), "options": options})
        interpreter = (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8")
        self._process = subprocess.Popen(  # noqa: S603 (this interpreter, and words of ours)
            [*interpreter, "-c", _START, order, _PACKAGES, *libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env={},
            cwd="/",
            start_new_session=True,
        )
        if self._process.stdin is None or self._process.stdout is None:
            raise SandboxError("A worker was started without pipes.")
        self._to, self._from = self._process.stdin, self._process.stdout
        for pipe in (self._to, self._from):
            os.set_blocking(pipe.fileno(), False)
        try:
            refused = json.loads(self._read(time.monotonic() + START_SECONDS)).get("refused")
        except (LateError, DeadError) as error:
            self.end()
            raise SandboxError(f"The worker for {language} scripts did not start ({error}).") from error
        if refused is not None:
            self.end()
            raise SandboxError(f"The worker for {language} scripts did not start: {refused}")

    def ask(self, order: bytes, seconds: float) -> bytes:
        """Return the answer to one order; raises `LateError` or `DeadError`, after which it must be ended."""
        until = time.monotonic() + seconds
        self._write(_HEAD.pack(len(order)) + order, until)
        return self._read(until)

    def kill(self) -> None:
        """Kill the process and all that it started; who waits for it hears that it is dead."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill the process, bury it, and let go of its pipes."""
        self.kill()
        self._process.wait()
        self._to.close()
        self._from.close()

    def disown(self) -> None:
        """Let go of the pipes in a process that was forked off the one that the worker belongs to."""
        self._process.returncode = 0
        self._to.close()
        self._from.close()

    def _write(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._to.fileno(), view) :]
            except BlockingIOError:
                self._wait(self._to.fileno(), select.POLLOUT, until)
            except BrokenPipeError:
                raise DeadError(self._process.wait()) from None

    def _read(self, until: float) -> bytes:
        (length,) = _HEAD.unpack(self._take(_HEAD.size, until))
        if length > _ANSWER_BYTES:
            raise LateError(f"an answer of {length} bytes")
        return self._take(length, until)

    def _take(self, size: int, until: float) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            self._wait(self._from.fileno(), select.POLLIN, until)
            try:
                data = os.read(self._from.fileno(), min(size - len(taken), _CHUNK))
            except BlockingIOError:
                continue
            if not data:
                raise DeadError(self._process.wait())
            taken += data
        return bytes(taken)

    def _wait(self, pipe: int, event: int, until: float) -> None:
        poll = select.poll()
        poll.register(pipe, event)
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise LateError(f"no answer from process {self._process.pid}")
