"""Reflections that are due: an agent does not run again before its failures were reflected on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from redraft._codec import from_record, to_record
from redraft._texts import shortened
from redraft.errors import ConfigError, ReflectionDueError
from redraft.lessons.lesson import LessonKind
from redraft.lessons.outcome import Outcome
from redraft.lessons.safety import Cleaner
from redraft.lessons.writer import MOST_SHOWN, MOST_TRANSCRIPT
from redraft.stores.base import Record, intact
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from redraft.stores.base import Store

DUE, SETTLED = "lesson_duty", "lesson_duty_settled"
"""The kinds of the records. The first are few and read before every run, the second are kept for good."""
CLAIM_SECONDS = 300.0
"""How long a process that writes a reflection keeps others from it; after that it counts as dead."""


@dataclass(frozen=True, slots=True)
class Duty:
    """The reflection that a run owes, and how the run ended.

    `state` is `due` until the reflection is written (`lesson` is its id) or waived (`why` says why). Until
    `claimed_until` (seconds since 1970) a process is writing it.
    """

    run_id: str
    agent: str
    kind: LessonKind
    state: Literal["due", "done", "waived"] = "due"
    outcome: Outcome | None = None
    lesson: str = ""
    why: str = ""
    claimed_until: float = 0.0


class Duties:
    """The reflections that the runs of one agent owe, in a store that other processes see, too.

    What is kept of how a run ended has its secrets withheld. `now` returns the time. Reflexion Protocol,
    section 2.
    """

    def __init__(self, store: Store, agent: str, now: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._now = now

    async def begin(self, outcome: Outcome) -> None:
        """Note that a run must be reflected on, unless its reflection was written or waived before."""
        duty = Duty(outcome.run_id, self._agent, outcome.content_type.kind)
        if await self._store.get(SETTLED, self._key(duty.run_id, duty.kind)) is None:
            clean = await asyncio.to_thread(_cleaned, outcome)
            await self._store.put_if_absent(self._record(DUE, replace(duty, outcome=clean)))

    async def due(self) -> list[Duty]:
        """Return what is due, except what another process is writing."""
        found = await self._store.find(DUE, prefix=f"{self._agent}/")
        duties = [from_record(Duty, record.data) for record in intact(found)]
        now = self._now().timestamp()
        return [duty for duty in duties if duty.claimed_until <= now]

    async def claim(self, outcome: Outcome) -> bool:
        """Keep others from writing the reflection on a run; False if it is not due, or claimed already."""
        found = await self._store.get(DUE, self._key(outcome.run_id, outcome.content_type.kind))
        now = self._now().timestamp()
        if found is None or (duty := from_record(Duty, found.data)).claimed_until > now:
            return False
        claimed = replace(duty, claimed_until=now + CLAIM_SECONDS)
        return await self._store.replace(replace(found, data=to_record(claimed))) is not None

    async def release(self, outcome: Outcome) -> None:
        """Let others write a reflection that could not be written here."""
        found = await self._store.get(DUE, self._key(outcome.run_id, outcome.content_type.kind))
        if found is not None:
            free = replace(from_record(Duty, found.data), claimed_until=0.0)
            await self._store.replace(replace(found, data=to_record(free)))

    async def lesson_of(self, run_id: str, kind: LessonKind) -> str:
        """Return the id of the lesson of this kind that a run left; empty if there is none."""
        found = await self._store.get(SETTLED, self._key(run_id, kind))
        return "" if found is None else from_record(Duty, found.data).lesson

    async def fulfil(self, run_id: str, kind: LessonKind, lesson: str) -> None:
        """Note which lesson a run left."""
        await self._settle(Duty(run_id, self._agent, kind, "done", lesson=lesson))

    async def waive(self, run_id: str, why: str) -> int:
        """Let a run go without a reflection; return how many were due."""
        found = await self._store.find(DUE, prefix=f"{self._key(run_id)}/")
        for record in found:
            duty = from_record(Duty, record.data)
            await self._settle(replace(duty, state="waived", why=why, outcome=None, claimed_until=0.0))
        return len(found)

    async def _settle(self, duty: Duty) -> None:
        record = self._record(SETTLED, duty)
        await self._store.put(record)
        await self._store.delete(DUE, record.key)

    def _record(self, kind: str, duty: Duty) -> Record:
        return Record(kind, self._key(duty.run_id, duty.kind), to_record(duty))

    def _key(self, run_id: str, *kind: str) -> str:
        # Quoted, because a program's own run id may contain the slash that separates the parts.
        return "/".join((self._agent, quote(run_id, safe="", errors="surrogatepass"), *kind))


async def all_due(store: Store) -> list[Duty]:
    """Return what is due of all agents, oldest first, including what a process is writing."""
    found = await store.find(DUE, newest_first=True)
    return [from_record(Duty, record.data) for record in reversed(intact(found))]


def resolve_duty(run: str, due: Sequence[Duty]) -> Duty:
    """Return the duty of a run, named by its id, the id's beginning or end, or `last`.

    Raises `ConfigError` if none of them is meant, or more than one.
    """
    if not due:
        raise ConfigError("No reflection is due.")
    if run == "last":
        return due[-1]
    found = [duty for duty in due if duty.run_id == run] or [
        duty for duty in due if duty.run_id.startswith(run) or duty.run_id.endswith(run)
    ]
    ids = sorted({duty.run_id for duty in found})
    if len({(duty.agent, duty.run_id) for duty in found}) == 1:
        return found[0]
    if found:
        raise ConfigError(f"{run!r} could be any of the runs {', '.join(ids)}.")
    raise ConfigError(f"No reflection is due for a run {run!r}; `redraft lessons due` lists those that are.")


def due_error(duties: Sequence[Duty]) -> ReflectionDueError:
    """Return the error that says which runs must be reflected on, and how."""
    first = duties[0]
    task = "" if first.outcome is None else shortened(first.outcome.task.description, 64)
    more = f" (and {len(duties) - 1} more)" if len(duties) > 1 else ""
    how = "was done in part" if first.kind == "partial" else "failed"
    return ReflectionDueError(
        f"The run {first.run_id!r}{more} {how}, and nobody has reflected on it: {task!r}. Give the lessons "
        "a model, or call `await lessons.reflect_on(duty.outcome, content=...)` for each duty of "
        f"`await lessons.due()`, or `await lessons.waive({first.run_id!r}, why)`; `redraft lessons due` "
        "lists them.",
        runs=[duty.run_id for duty in duties],
    )


def _cleaned(outcome: Outcome) -> Outcome:
    """Return an outcome as a model would be shown it: bounded, its secrets withheld."""
    bounded = replace(
        outcome,
        output=without_middle(outcome.output, MOST_SHOWN),
        error=without_middle(outcome.error, MOST_SHOWN),
        transcript=without_middle(outcome.transcript, MOST_TRANSCRIPT),
    )
    return replace(Cleaner().redactor.redact_object(bounded), run_id=outcome.run_id)
