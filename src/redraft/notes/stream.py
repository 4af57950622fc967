"""EnsembleStream: a run of an ensemble to watch while it lasts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from redraft.notes.ensemble_events import EnsembleFinished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine
    from types import TracebackType
    from typing import Any

    from redraft.notes.ensemble_events import EnsembleEvent
    from redraft.notes.result import EnsembleResult


class EnsembleStream:
    """Iterate over the events of an ensemble's run as they happen; the last is `EnsembleFinished`.

    The run begins with the iteration, or on entering `async with`. Leaving the iteration early cancels it,
    and so does leaving the `async with`. What the run raises comes out of the iteration, after its last
    event.
    """

    def __init__(
        self, start: Callable[[Callable[[EnsembleEvent], None]], Coroutine[Any, Any, EnsembleResult]]
    ) -> None:
        self._start = start
        self._events: asyncio.Queue[EnsembleEvent | None] = asyncio.Queue()
        self._run: asyncio.Task[EnsembleResult] | None = None
        self._result: EnsembleResult | None = None

    @property
    def result(self) -> EnsembleResult:
        """What the run came to, as soon as it has; raises `LookupError` before."""
        if self._result is None:
            raise LookupError("The ensemble has no result (yet): iterate over its events to the end.")
        return self._result

    async def __aiter__(self) -> AsyncGenerator[EnsembleEvent]:
        run = self._begun()
        try:
            while (event := await self._events.get()) is not None:
                yield event
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

    def _begun(self) -> asyncio.Task[EnsembleResult]:
        if self._run is None:
            self._run = asyncio.ensure_future(self._start(self._listen))
            self._run.add_done_callback(self._ended)
        return self._run

    def _listen(self, event: EnsembleEvent) -> None:
        if isinstance(event, EnsembleFinished):
            self._result = event.result
        self._events.put_nowait(event)

    def _ended(self, run: asyncio.Task[EnsembleResult]) -> None:
        self._events.put_nowait(None)
        if not run.cancelled():
            run.exception()  # looked at here, since whoever leaves early never awaits the run
