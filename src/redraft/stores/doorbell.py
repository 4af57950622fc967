"""Doorbell: what a thread rings when it has something for the tasks of an event loop."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


class Doorbell:
    """Have functions called in an event loop, from any thread: `call_soon_threadsafe` at a lower price.

    That one has the loop read from a socket until an error says that there is no more, each time. Linux has a
    counter for this purpose (`eventfd`), which is read once. Where there is none, or the loop can't watch
    files, it is `call_soon_threadsafe`. The functions must not raise.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._counter = self._watched_counter(loop)

    def __del__(self) -> None:
        # Not when the loop is closed: a thread that still rings would write to what has the number next.
        if self._counter is not None:
            os.close(self._counter)

    def ring(self, call: Callable[[], None]) -> None:
        """Have a function called soon; never, if the loop is closed."""
        if self._counter is not None:
            self._calls.append(call)
            os.eventfd_write(self._counter, 1)
        elif (loop := self._loop()) is not None:
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(call)

    def _watched_counter(self, loop: AbstractEventLoop) -> int | None:
        if not hasattr(os, "eventfd"):
            return None
        try:
            counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except OSError:  # too many files are open
            return None
        try:
            loop.add_reader(counter, self._answer, counter)
        except NotImplementedError:  # it can't watch files
            os.close(counter)
            return None
        return counter

    def _answer(self, counter: int) -> None:
        os.eventfd_read(counter)
        while self._calls:
            self._calls.popleft()()


def doorbell_of(loop: AbstractEventLoop) -> Doorbell:
    """Return the doorbell of a loop, from within that loop; all who ask while it is in use get the same."""
    known = _doorbells.get(loop)
    if (bell := None if known is None else known()) is None:
        bell = Doorbell(loop)
        _doorbells[loop] = ref(bell)
    return bell


# A loop holds its doorbell by watching it. What was rung for when it closed holds the loop, so that nothing
# else must hold the doorbell: all of them would stay, each with an open file.
_doorbells: WeakKeyDictionary[AbstractEventLoop, ref[Doorbell]] = WeakKeyDictionary()

# A forked child would ring at its parent's door.
os.register_at_fork(after_in_child=_doorbells.clear)
