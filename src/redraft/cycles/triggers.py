"""Triggers: when the next cycle of an agent begins, and why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from redraft.cycles.bell import EVERY, heard, rung
from redraft.cycles.spec import IntervalTrigger, MessageTrigger, Trigger

NewestMessage = Callable[[str | None], Awaitable[str | None]]

AGAIN = 60.0
"""Seconds after which a message begins another cycle where the one before, which failed, did not take it."""


@dataclass(slots=True)
class Triggers:
    """Say when a cycle of an agent begins.

    An interval begins one at once, and goes on at fixed times from there; those that pass while a cycle runs
    count as one, which begins when that has ended. A message begins one when it is there: `newest_message`
    gives the id of the newest one of a topic. Where a cycle is only begun by hand, each begins at once.
    """

    agent: str
    triggers: Sequence[Trigger]
    newest_message: NewestMessage
    clock: Callable[[], float] = monotonic
    _due: dict[int, float] = field(default_factory=dict[int, float])
    _begun: dict[str | None, tuple[str, float]] = field(default_factory=dict[str | None, tuple[str, float]])

    async def next(self) -> str:
        """Wait until a cycle is to begin; return why: `interval`, `message` or `manual`."""
        intervals = [one for one in self.triggers if isinstance(one, IntervalTrigger)]
        if not intervals and not self._listens:
            return "manual"
        if not self._due:
            self._due = {id(one): self.clock() for one in intervals}
        while True:
            seen = rung(self.agent)
            if self._is_due(intervals):
                return "interval"
            if await self._message_is_there():
                return "message"
            waits = [due - self.clock() for due in self._due.values()]
            await heard(self.agent, seen, max(0.0, min([*waits, EVERY] if self._listens else waits)))

    @property
    def _listens(self) -> bool:
        return any(isinstance(one, MessageTrigger) for one in self.triggers)

    def _is_due(self, intervals: Sequence[IntervalTrigger]) -> bool:
        now, is_due = self.clock(), False
        for one in intervals:
            due, every = self._due[id(one)], one.interval_ms / 1000
            if due <= now:
                is_due = True
                self._due[id(one)] = due + every * ((now - due) // every + 1)
        return is_due

    async def _message_is_there(self) -> bool:
        for one in self.triggers:
            if isinstance(one, MessageTrigger):
                newest = await self.newest_message(one.topic)
                if newest is not None and self._is_news(one.topic, newest):
                    return True
        return False

    def _is_news(self, topic: str | None, newest: str) -> bool:
        before, when = self._begun.get(topic, ("", 0.0))
        now = self.clock()
        if newest == before and now - when < AGAIN:
            return False
        self._begun[topic] = newest, now
        return True
