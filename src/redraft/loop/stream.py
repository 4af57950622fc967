"""Streams of the events of a run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from io import StringIO
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from redraft._steps import uncancelled
from redraft._tasks import end_tasks
from redraft.events import Event, RunFinished, TokenEvent
from redraft.types import OutputT

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import TracebackType

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.triggers import RunState
    from redraft.types import ReflectionResult

E = TypeVar("E")
R = TypeVar("R")


class EventStream(Generic[E, R]):
    """A run as an async iterator of its events.

    The run starts with the iteration, or on entering `async with`. Leaving either early cancels it. After the
    last event, the iteration raises what the run raised.

    The run never waits for the iteration. Text that a model writes between two steps of the iteration comes
    as a single `TokenEvent`, so a slow iteration gets fewer and longer events, and all of the text.
    """

    def __init__(self, start: Callable[[Callable[[E], None]], Coroutine[Any, Any, R]]) -> None:
        self._start = start
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._pending: dict[tuple[str, int, int], PendingText] = {}
        self._run: asyncio.Task[R] | None = None
        self._result: R | None = None

    @property
    def result(self) -> R:
        """The result of the run; raises `LookupError` before its end, and if it raised without a result."""
        if self._result is None:
            raise LookupError("The run has no result (yet): iterate over its events to the end.")
        return self._result

    async def __aiter__(self) -> AsyncGenerator[E]:
        run = self._start_run()
        try:
            while (event := await self._events.get()) is not None:
                yield self._taken(event)
            self._events.put_nowait(None)  # otherwise a second iteration would wait forever
            # A consumer that nobody has cancelled must not look cancelled.
            await uncancelled(run, "The run", "the iteration over its stream")
        finally:
            run.cancel()

    async def aclose(self) -> None:
        """Cancel the run if it is still going, and wait until it has ended."""
        await end_tasks([self._run])

    async def __aenter__(self) -> Self:
        self._start_run()
        return self

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _taken(self, event: Any) -> E:
        """The event to yield for a queued event; called in the context of the iteration."""
        if not isinstance(event, PendingText):
            return event
        self._pending.pop(event.key, None)
        whole: Any = event.whole()
        return whole

    def _on_event(self, event: E) -> None:
        """Called by the run with each event, as it happens."""
        if not isinstance(event, TokenEvent):
            self._pending.clear()  # later text comes after this event
            self._events.put_nowait(event)
            return
        key = event.run_id, event.version, event.attempt
        if (pending := self._pending.get(key)) is None:
            pending = self._pending[key] = PendingText(key, event)
            self._events.put_nowait(pending)
        pending.text.write(event.text)

    def _start_run(self) -> asyncio.Task[R]:
        if self._run is None:
            self._run = asyncio.ensure_future(self._start(self._on_event))
            self._run.add_done_callback(self._on_end)
        return self._run

    def _on_end(self, run: asyncio.Task[R]) -> None:
        self._events.put_nowait(None)
        if not run.cancelled():
            run.exception()  # marks it as retrieved: an iteration that was left early never awaits the run


StreamEvent: TypeAlias = Event | TokenEvent


class RunStream(EventStream[StreamEvent, "ReflectionResult[OutputT]"], Generic[OutputT]):
    """A run of an agent as an async iterator of its events; the last event is `RunFinished`.

    The run starts with the iteration, or on entering `async with`. Leaving either early cancels it. The
    iteration raises what the run raises.
    """

    def __init__(
        self,
        start: Callable[[Callable[[StreamEvent], None]], Coroutine[Any, Any, ReflectionResult[OutputT]]],
        state: RunState,
        pattern: ReflectionPattern,
    ) -> None:
        super().__init__(start)
        self._state = state
        self._listener = pattern.on_event
        self._last_run = pattern.last_run

    def reflect_now(self) -> bool:
        """Request a reflection at the next step of the agent, or before the next revision.

        Returns whether there will be one, if the run gets that far: False if one is already requested, or
        `max_reflections` have been made. Raises `ConfigError` unless `manual` is among the pattern's
        `reflection_triggers`, and `RuntimeError` if the run has finished.
        """
        if self._result is not None or (self._run is not None and self._run.done()):
            raise RuntimeError("reflect_now(): the run has finished, so there is nothing left to reflect on.")
        return self._state.request_reflection()

    def _taken(self, event: Any) -> StreamEvent:
        taken = super()._taken(event)
        if isinstance(taken, RunFinished):
            # The run recorded it in the context of its own task, which the caller does not see.
            self._last_run.set(monotonic(), taken.result)
        return taken

    def _on_event(self, event: StreamEvent) -> None:
        if isinstance(event, RunFinished):
            self._result = event.result
        super()._on_event(event)
        if self._listener is not None and not isinstance(event, TokenEvent):
            self._listener(event)


class PendingText:
    """Text of an attempt that the iteration has not taken yet: it becomes a single `TokenEvent`."""

    def __init__(self, key: tuple[str, int, int], first: TokenEvent) -> None:
        self.key = key
        self.text = StringIO()
        self._first = first

    def whole(self) -> TokenEvent:
        """The event with all of the text."""
        return replace(self._first, text=self.text.getvalue())
