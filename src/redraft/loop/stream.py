"""Streams of events of what is under way."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from redraft.events import RunFinished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import TracebackType
    from typing import Any

    from redraft.events import Event, Listener
    from redraft.loop.run import RunOptions
    from redraft.loop.triggers import LiveRun
    from redraft.types import ReflectionResult

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


class RunStream(EventStream["Event", "ReflectionResult"]):
    """Iterate over the events of a run as they happen; the last is `RunFinished`.

    The run begins with the iteration, or on entering `async with`. Leaving the iteration early cancels it,
    and so does leaving the `async with`. What the run raises comes out of the iteration.
    """

    def __init__(
        self,
        start: Callable[[Listener], Coroutine[Any, Any, ReflectionResult]],
        live: LiveRun,
        options: RunOptions,
    ) -> None:
        super().__init__(start)
        self._live = live
        self._listener = options.on_event
        self._last_run = options.last_run

    @property
    def result(self) -> ReflectionResult:
        """What the run came to, as soon as it has; raises `LookupError` before, and where it made nothing."""
        if self._result is None:
            raise LookupError("The run has no result (yet): iterate over its events to the end.")
        return self._result

    def reflect_now(self) -> bool:
        """Ask for a look back, at the next step of the agent or before the next revision.

        Returns whether there will be one, if the run gets that far: not where one is asked for already, or
        `max_reflections` were made. Raises `ConfigError` where `manual` is not among the pattern's
        `reflection_triggers`, and `RuntimeError` when the run has finished.
        """
        if self._result is not None or (self._run is not None and self._run.done()):
            raise RuntimeError("reflect_now(): the run has finished, so there is nothing left to reflect on.")
        return self._live.request_reflection()

    def _yielding(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._last_run.set(monotonic(), event.result)  # the run is a task, whose context is its own

    def _listen(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._result = event.result
        super()._listen(event)
        if self._listener is not None:
            self._listener(event)
