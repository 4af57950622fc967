"""Due reflections: an agent does not run again until it has reflected on its failures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from redraft._codec import from_record, to_record
from redraft._texts import shortened
from redraft._validation import only
from redraft.errors import ConfigError, ReflectionDueError
from redraft.lessons.lesson import LessonKind
from redraft.lessons.outcome import Outcome
from redraft.lessons.safety import Cleaner
from redraft.lessons.writer import MOST_ISSUE, MOST_SHOWN, MOST_TRANSCRIPT
from redraft.stores.base import Record, intact
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from redraft.stores.base import Store

DUE, SETTLED = "lesson_due", "lesson_settled"
"""Kinds of records. Due reflections are few and read before every run; settled ones are kept for good."""
CLAIM_SECONDS = 300.0
"""How long a process that writes a reflection keeps others from writing it; after that it counts as dead."""


@dataclass(frozen=True, slots=True)
class DueReflection:
    """A reflection that a run must leave, and the run's outcome to reflect on.

    `state` is `due` until the reflection is written (`lesson` is its id) or waived (`why` is the reason). A
    process is writing it until `claimed_until`, in seconds since 1970.
    """

    run_id: str
    agent: str
    kind: LessonKind
    state: Literal["due", "done", "waived"] = "due"
    outcome: Outcome | None = None
    lesson: str = ""
    why: str = ""
    claimed_until: float = 0.0


class DueReflections:
    """The due reflections of one agent, in a store that other processes share.

    Secrets in outcomes are withheld. `now` returns the time.
    """

    def __init__(self, store: Store, agent: str, now: Callable[[], datetime]) -> None:
        self._store = store
        self._agent = agent
        self._now = now

    async def add(self, outcome: Outcome) -> None:
        """Require a reflection on a run, unless it has been written or waived already."""
        new = DueReflection(outcome.run_id, self._agent, outcome.content_type.kind)
        if await self._store.get(SETTLED, self._key(new.run_id, new.kind)) is None:
            bounded = await asyncio.to_thread(_bounded, outcome)
            await self._store.put_if_absent(self._record(DUE, replace(new, outcome=bounded)))

    async def list(self) -> list[DueReflection]:
        """Return the due reflections that no process is writing."""
        found = await self._store.find(DUE, prefix=f"{self._agent}/")
        reflections = [from_record(DueReflection, record.data) for record in intact(found)]
        now = self._now().timestamp()
        return [one for one in reflections if one.claimed_until <= now]

    async def claim(self, outcome: Outcome) -> bool:
        """Keep others from writing the reflection on a run; return False if it is not due, or is claimed."""
        found = await self._store.get(DUE, self._key(outcome.run_id, outcome.content_type.kind))
        now = self._now().timestamp()
        if found is None or (due := from_record(DueReflection, found.data)).claimed_until > now:
            return False
        claimed = replace(due, claimed_until=now + CLAIM_SECONDS)
        return await self._store.replace(replace(found, data=to_record(claimed))) is not None

    async def release(self, outcome: Outcome) -> None:
        """Give a claim back, so that others can write the reflection."""
        found = await self._store.get(DUE, self._key(outcome.run_id, outcome.content_type.kind))
        if found is not None:
            released = replace(from_record(DueReflection, found.data), claimed_until=0.0)
            await self._store.replace(replace(found, data=to_record(released)))

    async def lesson_of(self, run_id: str, kind: LessonKind) -> str:
        """Return the id of the lesson of a kind that a run left, or an empty string."""
        found = await self._store.get(SETTLED, self._key(run_id, kind))
        return "" if found is None else from_record(DueReflection, found.data).lesson

    async def complete(self, run_id: str, kind: LessonKind, lesson: str) -> None:
        """Record which lesson a run left."""
        await self._settle(DueReflection(run_id, self._agent, kind, "done", lesson=lesson))

    async def waive(self, run_id: str, why: str) -> int:
        """Waive the due reflections on a run, and return how many there were."""
        found = await self._store.find(DUE, prefix=f"{self._key(run_id)}/")
        for record in found:
            due = from_record(DueReflection, record.data)
            await self._settle(replace(due, state="waived", why=why, outcome=None, claimed_until=0.0))
        return len(found)

    async def _settle(self, reflection: DueReflection) -> None:
        record = self._record(SETTLED, reflection)
        await self._store.put(record)
        await self._store.delete(DUE, record.key)

    def _record(self, kind: str, reflection: DueReflection) -> Record:
        return Record(kind, self._key(reflection.run_id, reflection.kind), to_record(reflection))

    def _key(self, run_id: str, *kind: str) -> str:
        # Quoted, because a program's own run id may contain a slash, which separates the parts.
        return "/".join((self._agent, quote(run_id, safe="", errors="surrogatepass"), *kind))


async def all_due(store: Store) -> list[DueReflection]:
    """Return the due reflections of all agents, oldest first, claimed ones included."""
    found = await store.find(DUE, newest_first=True)
    return [from_record(DueReflection, record.data) for record in reversed(intact(found))]


def resolve_due(reference: str, due: Sequence[DueReflection]) -> DueReflection:
    """Return the due reflection on a run, given by its id, the id's beginning or end, or `last`.

    Raises `ConfigError` if no run or more than one matches.
    """
    if not due:
        raise ConfigError("No reflection is due.")
    if reference == "last":
        return due[-1]
    found = [one for one in due if one.run_id == reference] or [
        one for one in due if one.run_id.startswith(reference) or one.run_id.endswith(reference)
    ]
    # A run may be due twice, if two processes saw it end differently.
    runs = {(one.agent, one.run_id): one for one in found}
    match = only(list(runs.values()), reference, "runs", lambda one: one.run_id)
    if match is None:
        raise ConfigError(
            f"No reflection is due for a run {reference!r}; `redraft lessons due` lists those that need one."
        )
    return match


def due_error(due: Sequence[DueReflection]) -> ReflectionDueError:
    """Return the error that says which runs must be reflected on, and how."""
    first = due[0]
    task = "" if first.outcome is None else shortened(first.outcome.task.description, 64)
    more = f" (and {len(due) - 1} more)" if len(due) > 1 else ""
    how = "was done in part" if first.kind == "partial" else "failed"
    return ReflectionDueError(
        f"The run {first.run_id!r}{more} {how}, and nobody has reflected on it: {task!r}. Give the lessons "
        "a model, or call `await lessons.reflect_on(due.outcome, content=...)` for each `due` in "
        f"`await lessons.due()`, or `await lessons.waive({first.run_id!r}, why)`; `redraft lessons due` "
        "lists them.",
        runs=[one.run_id for one in due],
    )


def _bounded(outcome: Outcome) -> Outcome:
    """Return an outcome as a model is shown it: cut to size, with its secrets withheld."""
    bounded = replace(
        outcome,
        output=without_middle(outcome.output, MOST_SHOWN),
        error=without_middle(outcome.error, MOST_SHOWN),
        transcript=without_middle(outcome.transcript, MOST_TRANSCRIPT),
        issues=tuple(without_middle(issue, MOST_ISSUE) for issue in outcome.issues),
        failed_output=without_middle(outcome.failed_output, MOST_SHOWN),
    )
    return replace(Cleaner().redactor.redact_object(bounded), run_id=outcome.run_id)
