"""Worker: one warm process that runs scripts one at a time, and is ended when it does not answer in time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redraft.sandbox.inside.frames import HEAD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.sandbox.dialect import Conversation

_Outcome = TypeVar("_Outcome")

_PACKAGES = str(Path(__file__).resolve().parents[2])
_START = "import sys; sys.path[:0] = sys.argv[2:]; from redraft.sandbox.inside.{} import main; main()"
_CHUNK = 1 << 14
"""Bytes read at once: more than most answers have, and little enough to cost nothing where they are few."""
_MOST_ANSWERED = 64 << 20


class LateError(Exception):
    """Say that a worker did not answer in time."""


class LongError(Exception):
    """Say that a worker began an answer of more bytes than anyone could have asked for."""


class DeadError(Exception):
    """Say that a worker ended while it was asked; `exit_code` is negative for a signal."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"exit code {exit_code}")
        self.exit_code = exit_code


class Worker:
    """Start a process for one language; talk with it from one task at a time, in any event loop.

    It gets an empty environment, no descriptor but its two pipes, and a session of its own. It ends when
    its pipe does, and, on Linux, with the thread that started it. `entry` is the module of
    `redraft.sandbox.inside` whose `main` it runs, `libraries` are the folders of the packages that it
    imports from.
    """

    def __init__(self, entry: str, order: Mapping[str, Any], libraries: Sequence[str]) -> None:
        given = json.dumps({**order, "parent": os.getpid()})
        interpreter = (os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8")
        inward, outward = os.pipe(), os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (this interpreter, and words of ours)
                [*interpreter, "-c", _START.format(entry), given, _PACKAGES, *libraries],
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
        self._owed = b""

    async def talk(self, conversation: Conversation[_Outcome], seconds: float) -> _Outcome:
        """Return what comes of a conversation; raises what it raises, `LateError`, `LongError`, `DeadError`.

        After an error, and after a cancellation, the worker must be ended.
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_Outcome] = loop.create_future()
        talk = _Talk(self._to, self._from, conversation, outcome)
        talk.begin(self._owed)
        self._owed = b""
        late = loop.call_later(seconds, talk.fail, LateError(f"no answer in {seconds:g} s"))
        loop.add_reader(self._from, talk.listen)
        try:
            return await outcome
        except (BrokenPipeError, EOFError):
            raise DeadError(self._process.wait()) from None
        finally:
            late.cancel()
            loop.remove_reader(self._from)
            talk.be_silent()

    def owe(self, words: bytes) -> None:
        """Say a few words to a worker that has answered when `leave` is called, or before the next talk."""
        self._owed = words

    def leave(self) -> bool:
        """Say what is owed; False when the worker does not take it."""
        owed, self._owed = self._owed, b""
        try:
            return os.write(self._to, owed) == len(owed) if owed else True
        except OSError:
            return False

    def lives(self) -> bool:
        """Say whether the process is there."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill the process, bury it, and let go of its pipes."""
        self._process.kill()  # does nothing to one that is buried: its number may be another's by now
        self._process.wait()
        self._close()

    def disown(self) -> None:
        """Let go of the pipes in a process that was forked off the one that the worker belongs to."""
        self._process.returncode = 0
        self._close()

    def _close(self) -> None:
        os.close(self._to)
        os.close(self._from)


class _Talk(Generic[_Outcome]):
    """A conversation with a worker, as its pipes let it go on."""

    def __init__(
        self, to: int, source: int, conversation: Conversation[_Outcome], outcome: asyncio.Future[_Outcome]
    ) -> None:
        self._to, self._from = to, source
        self._conversation = conversation
        self._outcome = outcome
        self._unsaid = memoryview(b"")
        self._heard = bytearray()
        self._waits = False

    def begin(self, owed: bytes) -> None:
        """Say the first words, and before them what is owed."""
        self._say(owed + next(self._conversation))

    def be_silent(self) -> None:
        """Say nothing more, even if it is not all out."""
        if self._waits:
            asyncio.get_running_loop().remove_writer(self._to)
        self._waits = False

    def listen(self) -> None:
        """Read what the pipe has, and go on with each message that is whole."""
        try:
            data = os.read(self._from, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self.fail(EOFError())
        self._heard += data
        start = 0
        while len(self._heard) >= start + HEAD.size and not self._outcome.done():
            (length,) = HEAD.unpack_from(self._heard, start)
            if length > _MOST_ANSWERED:
                self.fail(LongError(f"an answer of {length:,} bytes"))
            elif len(self._heard) < start + HEAD.size + length:
                break
            else:
                start += HEAD.size + length
                with memoryview(self._heard) as heard:  # a slice of the buffer itself would be one more copy
                    message = bytes(heard[start - length : start])
                self._go_on(message)
        del self._heard[:start]

    def fail(self, error: Exception) -> None:
        """End it with an error, unless it has ended."""
        if not self._outcome.done():
            self._outcome.set_exception(error)

    def _go_on(self, message: bytes) -> None:
        try:
            words = self._conversation.send(message)
        except StopIteration as end:
            self._outcome.set_result(end.value)
        except Exception as error:  # noqa: BLE001 (whoever waits for the outcome gets it)
            self.fail(error)
        else:
            self._say(words)

    def _say(self, words: bytes) -> None:
        if words:
            self._unsaid = memoryview(bytes(self._unsaid) + words)
            self._speak()

    def _speak(self) -> None:
        """Write what the pipe takes; wait for it to take more only while there is more."""
        try:
            written = os.write(self._to, self._unsaid)
        except BlockingIOError:
            written = 0
        except BrokenPipeError as error:
            self.fail(error)
            written = len(self._unsaid)
        self._unsaid = self._unsaid[written:]
        if self._unsaid and not self._waits:
            asyncio.get_running_loop().add_writer(self._to, self._speak)
            self._waits = True
        elif self._waits and not self._unsaid:
            self.be_silent()
