"""RunStream: a run to watch and to reach into while it lasts."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from redraft.core.events import RunFinished
from redraft.loop.event_stream import EventStream

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from redraft.core.events import Event, Listener
    from redraft.core.result import ReflectionResult
    from redraft.loop.live import LiveRun
    from redraft.loop.pattern import ReflectionPattern


class RunStream(EventStream["Event", "ReflectionResult"]):
    """Iterate over the events of a run as they happen; the last is `RunFinished`.

    The run begins with the iteration, or on entering `async with`. Leaving the iteration early cancels it,
    and so does leaving the `async with`. What the run raises comes out of the iteration.
    """

    def __init__(
        self,
        start: Callable[[Listener], Coroutine[Any, Any, ReflectionResult]],
        live: LiveRun,
        pattern: ReflectionPattern,
    ) -> None:
        super().__init__(start)
        self._live = live
        self._listener = pattern.on_event
        self._runs = pattern.runs

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
        return self._live.ask()

    def _yielding(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._runs.end(monotonic(), event.result)  # the run is a task, whose context is its own

    def _listen(self, event: Event) -> None:
        if isinstance(event, RunFinished):
            self._result = event.result
        super()._listen(event)
        if self._listener is not None:
            self._listener(event)
