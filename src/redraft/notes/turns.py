"""Turns: a lock for tasks of any event loop and thread, held by one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from types import TracebackType


class Turns:
    """Let one task at a time go on, in the order in which they came: an async context manager.

    No thread is blocked by who waits, so what the holder does in threads finds one.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._taken = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        with self._guard:
            if not self._taken:
                self._taken = True
                return
            self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not self._withdrawn(waiter):  # the turn had come, and nobody takes it
                self._pass_on()
            raise

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._pass_on()

    def _withdrawn(self, waiter: asyncio.Future[None]) -> bool:
        with self._guard:
            if waiter not in self._waiting:
                return False
            self._waiting.remove(waiter)
            return True

    def _pass_on(self) -> None:
        with self._guard:
            while self._waiting:
                waiter = self._waiting.popleft()
                try:
                    waiter.get_loop().call_soon_threadsafe(_wake, waiter)
                except RuntimeError:  # its loop was closed, and nobody waits there any more
                    continue
                return
            self._taken = False


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_turns: WeakValueDictionary[str, Turns] = WeakValueDictionary()
_finding = Lock()


def turns_of(name: str) -> Turns:
    """Return the turns that this process takes at something, the same as long as anybody holds them."""
    with _finding:
        if (found := _turns.get(name)) is None:
            _turns[name] = found = Turns()
        return found
