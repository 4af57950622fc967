"""A lock that asyncio tasks of any event loop and thread take in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from types import TracebackType


class FairLock:
    """An async lock for tasks of several event loops, granted in the order of requests.

    Waiting blocks no thread, so the holder always finds a free thread in the executor.
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
            if not self._withdrawn(waiter):  # granted in the meantime: pass it on
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
                except RuntimeError:  # its loop was closed, so no task waits there
                    continue
                return
            self._taken = False


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


_locks: WeakValueDictionary[str, FairLock] = WeakValueDictionary()
_registry_lock = Lock()


def fair_lock(name: str) -> FairLock:
    """The process-wide lock with a name, which exists as long as it is referenced."""
    with _registry_lock:
        if (lock := _locks.get(name)) is None:
            _locks[name] = lock = FairLock()
        return lock
