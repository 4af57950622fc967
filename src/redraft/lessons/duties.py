"""Runs that must be reflected on before the agent moves on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from redraft._codec import from_record, to_record
from redraft.errors import ConfigError, ReflectionDueError
from redraft.lessons.lesson import LessonKind
from redraft.lessons.outcome import Outcome
from redraft.lessons.trust import Cleaner
from redraft.lessons.writer import MOST_SHOWN, MOST_TRANSCRIPT
from redraft.stores.base import Record, intact
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from redraft.stores.base import Store

DUTY, SETTLED = "lesson_duty", "lesson_duty_settled"
"""The kinds of the records: what is due, and what no longer is. The first are few, and looked at often."""
HELD = 300.0
"""Seconds for which who reflects on a run keeps others from doing so, too; then it counts as dead."""
_SHOWN = 60

State = Literal["due", "done", "waived"]


@dataclass(frozen=True, slots=True)
class Duty:
    """Hold what a run owes: a reflection of a kind on how it ended.

    `state` is `due` until there is one, or until a person waived it with a `why`. `lesson` is the id of the
    lesson that came of it. While `held_until` (seconds since 1970) lies ahead, somebody is at it.
    """

    run_id: str
    agent: str
    kind: LessonKind
    state: State = "due"
    outcome: Outcome | None = None
    lesson: str = ""
    why: str = ""
    held_until: float = 0.0


class Duties:
    """Keep what the runs of one agent owe, in a store: other processes see it.

    What is kept of how a run ended has its secrets withheld. `now` tells the time. Reflexion Protocol,
    section 2.
    """

    def __init__(self, store: Store, agent: str, now: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._now = now

    async def begin(self, outcome: Outcome, kind: LessonKind) -> None:
        """Write down that a run has to be reflected on, unless that was done or waived before."""
        if await self._store.get(SETTLED, self._key(outcome.run_id, kind)) is None:
            shown = await asyncio.to_thread(_shown, outcome)
            await self._store.put_if_absent(
                self._record(DUTY, Duty(outcome.run_id, self._agent, kind, outcome=shown))
            )

    async def due(self) -> list[Duty]:
        """Return what is due, but for that which somebody is at."""
        found = await self._store.find(DUTY, prefix=f"{self._agent}/")
        duties = [from_record(Duty, record.data) for record in intact(found)]
        now = self._now().timestamp()
        return [duty for duty in duties if duty.held_until <= now]

    async def hold(self, run_id: str, kind: LessonKind) -> bool:
        """Keep others from what is due while this process does it; say if nobody else was quicker."""
        found = await self._store.get(DUTY, self._key(run_id, kind))
        duty = None if found is None else from_record(Duty, found.data)
        now = self._now().timestamp()
        if found is None or duty is None or duty.held_until > now:
            return False
        held = replace(duty, held_until=now + HELD)
        return await self._store.replace(replace(found, data=to_record(held))) is not None

    async def release(self, run_id: str, kind: LessonKind) -> None:
        """Let others do what could not be done here."""
        found = await self._store.get(DUTY, self._key(run_id, kind))
        if found is not None:
            free = replace(from_record(Duty, found.data), held_until=0.0)
            await self._store.replace(replace(found, data=to_record(free)))

    async def lesson_of(self, run_id: str, kind: LessonKind) -> str:
        """Return the id of the lesson of this kind that came of a run; empty where there is none."""
        found = await self._store.get(SETTLED, self._key(run_id, kind))
        return "" if found is None else from_record(Duty, found.data).lesson

    async def fulfil(self, run_id: str, kind: LessonKind, lesson: str) -> None:
        """Write down which lesson came of a run."""
        await self._settle(Duty(run_id, self._agent, kind, "done", lesson=lesson))

    async def waive(self, run_id: str, why: str) -> int:
        """Write down that nobody has to reflect on a run, and why; return how many duties that ends."""
        found = await self._store.find(DUTY, prefix=f"{self._key(run_id)}/")
        for record in found:
            duty = from_record(Duty, record.data)
            await self._settle(replace(duty, state="waived", why=why, outcome=None, held_until=0.0))
        return len(found)

    async def _settle(self, duty: Duty) -> None:
        record = self._record(SETTLED, duty)
        await self._store.put(record)
        await self._store.delete(DUTY, record.key)

    async def waive_by_hand(self, run_id: str, why: str) -> None:
        """Do what `waive` does for a person; raises `ConfigError` where there is no reason or nothing due."""
        if not why.strip():
            raise ConfigError(f"To waive the reflection on the run {run_id!r}, say why.")
        if not await self.waive(run_id, why):
            raise ConfigError(f"Nothing is due of the run {run_id!r}.")

    def _record(self, kind: str, duty: Duty) -> Record:
        return Record(kind, self._key(duty.run_id, duty.kind), to_record(duty))

    def _key(self, run_id: str, *kind: str) -> str:
        # An id of a program's own may hold the slash that sets the parts apart.
        return "/".join((self._agent, quote(run_id, safe="", errors="surrogatepass"), *kind))


async def all_due(store: Store) -> list[Duty]:
    """Return what is due of all agents, the oldest first, and what somebody is at, too."""
    found = await store.find(DUTY, newest_first=True)
    return [from_record(Duty, record.data) for record in reversed(intact(found))]


def due_error(duties: list[Duty]) -> ReflectionDueError:
    """Return the error that says which runs have to be reflected on, and how."""
    first = duties[0]
    task = "" if first.outcome is None else first.outcome.task.description
    short = task if len(task) <= _SHOWN else f"{task[:_SHOWN]} ..."
    more = f" (and {len(duties) - 1} more)" if len(duties) > 1 else ""
    how = "was done in part" if first.kind == "partial" else "failed"
    return ReflectionDueError(
        f"The run {first.run_id!r}{more} {how}, and nobody has reflected on it: {short!r}. Give the lessons "
        "a model, or call `await lessons.reflect_on(duty.outcome, content=...)` for each duty of "
        f"`await lessons.due()`, or `await lessons.waive({first.run_id!r}, why)`; `redraft lessons due` "
        "lists them.",
        runs=[duty.run_id for duty in duties],
    )


def _shown(outcome: Outcome) -> Outcome:
    """Return an outcome as a model is shown it: bounded, its secrets withheld."""
    bounded = replace(
        outcome,
        output=without_middle(outcome.output, MOST_SHOWN),
        error=without_middle(outcome.error, MOST_SHOWN),
        transcript=without_middle(outcome.transcript, MOST_TRANSCRIPT),
    )
    return replace(Cleaner().redactor.redact_object(bounded), run_id=outcome.run_id)
