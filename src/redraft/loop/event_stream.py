"""EventStream: something under way to watch while it lasts, and what it came to."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import TracebackType
    from typing import Any

E = TypeVar("E")
R = TypeVar("R")


class EventStream(Generic[E, R]):
    """Begin something with the iteration over its events, or on entering `async with`.

    Leaving the iteration early cancels it, and so does leaving the `async with`. What it raises comes out of
    the iteration, after its last event.
    """

    def __init__(self, start: Callable[[Callable[[E], None]], Coroutine[Any, Any, R]]) -> None:
        self._start = start
        self._events: asyncio.Queue[E | None] = asyncio.Queue()
        self._run: asyncio.Task[R] | None = None
        self._result: R | None = None

    async def __aiter__(self) -> AsyncGenerator[E]:
        run = self._begun()
        try:
            while (event := await self._events.get()) is not None:
                self._yielding(event)
                yield event
            self._events.put_nowait(None)  # whoever iterates again finds the end, and does not wait for ever
            await run
        finally:
            run.cancel()

    async def aclose(self) -> None:
        """Cancel the run, unless it has finished, and wait until it has ended."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait([self._run])

    async def __aenter__(self) -> Self:
        self._begun()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _yielding(self, event: E) -> None:
        """Do what is to be done in the context of whoever iterates, before it gets an event."""

    def _listen(self, event: E) -> None:
        """Take an event as it happens."""
        self._events.put_nowait(event)

    def _begun(self) -> asyncio.Task[R]:
        if self._run is None:
            self._run = asyncio.ensure_future(self._start(self._listen))
            self._run.add_done_callback(self._ended)
        return self._run

    def _ended(self, run: asyncio.Task[R]) -> None:
        self._events.put_nowait(None)
        if not run.cancelled():
            run.exception()  # looked at here, since whoever leaves early never awaits the run
