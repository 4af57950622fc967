"""EnsembleStream: a run of an ensemble to watch while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.loop.event_stream import EventStream
from redraft.notes.ensemble_events import EnsembleFinished

if TYPE_CHECKING:
    from redraft.notes.ensemble_events import EnsembleEvent
    from redraft.notes.result import EnsembleResult


class EnsembleStream(EventStream["EnsembleEvent", "EnsembleResult"]):
    """Iterate over the events of an ensemble's run as they happen; the last is `EnsembleFinished`.

    The run begins with the iteration, or on entering `async with`. Leaving the iteration early cancels it,
    and so does leaving the `async with`. What the run raises comes out of the iteration, after its last
    event.
    """

    @property
    def result(self) -> EnsembleResult:
        """What the run came to, as soon as it has; raises `LookupError` before."""
        if self._result is None:
            raise LookupError("The ensemble has no result (yet): iterate over its events to the end.")
        return self._result

    def _listen(self, event: EnsembleEvent) -> None:
        if isinstance(event, EnsembleFinished):
            self._result = event.result
        super()._listen(event)
