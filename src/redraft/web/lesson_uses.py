"""LessonUses: how often each lesson was used, helped and hurt, and in which runs of late."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING

from redraft._codec import from_record
from redraft.lessons.impact import USE, Counters, Use
from redraft.web.chronicle import Chronicle

if TYPE_CHECKING:
    from redraft.stores.base import Record, Store

LATEST = 20
"""How many uses of a lesson are shown one by one."""


@dataclass(slots=True)
class _Counted:
    uses: int = 0
    helped: int = 0
    hurt: int = 0
    latest: list[Use] = field(default_factory=list[Use])

    def add(self, use: Use) -> None:
        self.uses += not use.rated
        self.helped += use.helped is True
        self.hurt += use.helped is False
        if len(self.latest) < LATEST or use.at > self.latest[0].at:
            insort(self.latest, use, key=attrgetter("at"))
            del self.latest[:-LATEST]


class LessonUses:
    """Add up what lessons did in runs and what people said of them; a store would read all uses each time."""

    def __init__(self, store: Store) -> None:
        self._lessons: dict[str, _Counted] = {}
        self.chronicle = Chronicle(store, USE, self._note)

    def counters(self, lesson: str) -> Counters:
        """Return the counters of a lesson, by its id."""
        found = self._of(lesson)
        return Counters(found.uses, found.helped, found.hurt)

    def latest(self, lesson: str) -> list[Use]:
        """Return the latest uses of a lesson, the last one first."""
        return self._of(lesson).latest[::-1]

    def _of(self, lesson: str) -> _Counted:
        return self._lessons.get(lesson) or _Counted()

    def _note(self, record: Record) -> None:
        use = from_record(Use, record.data)
        self._lessons.setdefault(use.lesson, _Counted()).add(use)
