"""Waiting: what comes with a lesson in quarantine, until that is released."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft.core.codec import from_record, to_record
from redraft.lessons.mars import Replay
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from redraft.core.task import Task
    from redraft.stores.base import Store

WAITING = "lesson_waiting"
"""The kind of the records."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Hold the rule and the steps that came with a lesson in quarantine."""

    lesson: str
    principle: str = ""
    replay: Replay | None = None


class WaitingRoom:
    """Keep what waits with the lessons of one agent, in a store."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent

    async def enter(self, lesson: str, task: Task, principle: str, replay: Replay | None) -> None:
        """Let a lesson wait."""
        waiting = Waiting(lesson, principle, replay)
        data = to_record(waiting) | {"lesson": lesson}  # what it is searched by is there whatever it is
        await self._store.put(Record(WAITING, f"{self._prefix(task)}{lesson.rpartition('/')[2]}", data))

    async def of_task(self, task: Task) -> list[str]:
        """Return the ids of the lessons that this very task taught and that still wait, the newest first."""
        found = await self._store.find(WAITING, prefix=self._prefix(task), newest_first=True)
        return [from_record(Waiting, one.data).lesson for one in intact(found)]

    async def leave(self, lesson: str) -> Waiting | None:
        """Return what waited with a lesson, for the last time; to one caller only."""
        found = intact(await self._store.find(WAITING, where={"lesson": lesson}))
        if not found or not await self._store.delete(WAITING, found[0].key):
            return None
        return from_record(Waiting, found[0].data)

    def _prefix(self, task: Task) -> str:
        # Found by the task, which happens at the beginning of each run.
        return f"{self._agent}/{_identity(task)}/"


def _identity(task: Task) -> str:
    # What a task says may be secret; that two are the same shows in their hashes.
    return sha256(" ".join(task.description.split()).encode("utf-8", "surrogatepass")).hexdigest()
