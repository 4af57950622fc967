"""Due reflections: an agent must reflect on its failures before it runs again."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from redraft._codec import from_record, to_record
from redraft._texts import shortened
from redraft._validation import only
from redraft.errors import ConfigError, ReflectionDueError, StoreError
from redraft.lessons.guidance import digest_of
from redraft.lessons.lesson import LessonKind
from redraft.lessons.outcome import Outcome
from redraft.lessons.writer import (
    MOST_ISSUE,
    MOST_READ,
    MOST_SHOWN,
    MOST_TRANSCRIPT,
    LessonReflection,
    shortened_transcript,
    write_reflection,
)
from redraft.loop.journal import OUTSIDE, STEP, Journalled, check_run_id
from redraft.loop.record import Process
from redraft.memory.safety import memory_redactor
from redraft.redact.log import logger
from redraft.stores.base import Record, values_of
from redraft.stores.run_index import RUN
from redraft.text.characters import without_middle

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from redraft.protocols import ChatModel
    from redraft.stores.base import Store

DUE, SETTLED = "lesson_due", "lesson_settled"
"""Kinds of records. Due reflections are few and read before every run; settled ones are never deleted."""
RENEW_INTERVAL = 10.0
"""Seconds between two signs of life of a process that writes a reflection."""
WRITER_TIMEOUT = 3 * RENEW_INTERVAL
"""Seconds without a sign of life after which a process on another machine counts as dead."""

_tokens_in_use: set[str] = set()
"""The tokens of the reflections that this process is writing."""


@dataclass(frozen=True, slots=True)
class ReflectionWriter:
    """The process that is writing a reflection."""

    process: Process
    token: str
    """Identifies this attempt."""
    until: float
    """The time, in seconds since 1970, at which a process on another machine counts as dead."""

    @property
    def is_at_work(self) -> bool:
        """Whether it is still writing. A killed process on this machine is noticed immediately."""
        if self.process == Process.this():
            return self.token in _tokens_in_use
        now = time()
        # A time further ahead comes from a clock that was ahead.
        return now < self.until <= now + 2 * WRITER_TIMEOUT and not self.process.has_exited()


@dataclass(frozen=True, slots=True)
class DueReflection:
    """A reflection that a run requires, and the run's outcome to reflect on."""

    run_id: str
    agent: str
    kind: LessonKind
    outcome: Outcome | None = None
    lesson: str = ""
    """The id of the lesson, once it is written."""
    why: str = ""
    """The reason for waiving it."""
    writer: ReflectionWriter | None = None
    """The last process that began to write it; it may have died since."""
    task: str = ""
    """The digest of the original task; in the outcome, secrets are withheld."""

    @property
    def is_being_written(self) -> bool:
        """Whether a living process is writing it."""
        return self.writer is not None and self.writer.is_at_work


class DueReflections:
    """The due reflections of one agent, in a store that other processes share.

    Secrets in outcomes are withheld. The finished calls of a process that died are in the journal of the run,
    and the next process to write the reflection replays them.
    """

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent

    async def add(self, outcome: Outcome) -> None:
        """Require a reflection on a run, unless it has been written or waived already."""
        kind = outcome.content_type.kind
        new = DueReflection(outcome.run_id, self._agent, kind, task=digest_of(outcome.task))
        if await self._store.get(SETTLED, self._key(new.run_id, new.kind)) is None:
            bounded = await asyncio.to_thread(_bounded, outcome)
            await self._store.put_if_absent(self._record(DUE, replace(new, outcome=bounded)))

    async def list(self) -> list[DueReflection]:
        """The due reflections, including those that a process is writing."""
        records = await self._store.find(DUE, prefix=f"{self._agent}/")
        return values_of(records, DueReflection)

    @asynccontextmanager
    async def writing(self, run_id: str, kind: LessonKind) -> AsyncGenerator[DueReflection | None]:
        """Keep other processes from writing a due reflection.

        The value is None if the reflection is not due, or if a living process is writing it.
        """
        token = os.urandom(8).hex()
        _tokens_in_use.add(token)
        renewing: asyncio.Task[None] | None = None
        try:
            due = await self._claim(run_id, kind, token)
            if due is not None:
                renewing = asyncio.create_task(self._renew(run_id, kind, token))
            yield due
        except BaseException:
            await self._release(run_id, kind, token)
            raise
        finally:
            _tokens_in_use.discard(token)
            if renewing is not None:
                renewing.cancel()

    async def reflection(self, outcome: Outcome, model: ChatModel) -> LessonReflection:
        """Reflect on an outcome as a step of its run, which replays the calls that have finished."""
        journal = Journalled(self._store, _journal_of(outcome.run_id))
        name = f"lesson {outcome.content_type.kind}"
        return await journal.outside(name, LessonReflection, lambda: write_reflection(outcome, model))

    async def _claim(
        self, run_id: str, kind: LessonKind, token: str, *, release: bool = False
    ) -> DueReflection | None:
        """Claim or release a due reflection; None if it is not due, or if another process claimed it."""
        record = await self._store.get(DUE, self._key(run_id, kind))
        if record is None:
            return None
        due = from_record(DueReflection, record.data)
        if due.writer is not None and due.writer.token != token and due.writer.is_at_work:
            return None
        writer = None if release else ReflectionWriter(Process.this(), token, time() + WRITER_TIMEOUT)
        due = replace(due, writer=writer)
        is_stored = await self._store.replace(replace(record, data=to_record(due))) is not None
        return due if is_stored else None

    async def _release(self, run_id: str, kind: LessonKind, token: str) -> None:
        """Let other processes write a reflection that this process could not write."""
        try:
            await self._claim(run_id, kind, token, release=True)
        except StoreError as error:
            logger.warning(
                "Others can write the reflection on the run %r in %g s: %s", run_id, WRITER_TIMEOUT, error
            )

    async def _renew(self, run_id: str, kind: LessonKind, token: str) -> None:
        while True:
            await asyncio.sleep(RENEW_INTERVAL)
            try:
                await self._claim(run_id, kind, token)
            except StoreError as error:  # the reflection is written all the same
                logger.info("The reflection on the run %r is being written: %s", run_id, error)

    async def lesson_of(self, run_id: str, kind: LessonKind) -> str:
        """The id of the lesson of a kind that a run left; empty if there is none."""
        record = await self._store.get(SETTLED, self._key(run_id, kind))
        return "" if record is None else from_record(DueReflection, record.data).lesson

    async def runs_of(self, lesson: str, kind: LessonKind) -> list[str]:
        """The ids of the runs that left a lesson, oldest first: one run wrote it, the others repeated it."""
        settled = await self._store.find(SETTLED, where={"lesson": lesson, "kind": kind}, newest_first=True)
        return [due.run_id for due in values_of(settled[::-1], DueReflection)]

    async def complete(self, run_id: str, kind: LessonKind, lesson: str) -> None:
        """Record which lesson a run left."""
        await self._settle(DueReflection(run_id, self._agent, kind, lesson=lesson))

    async def waive(self, run_id: str, why: str) -> int:
        """Waive the due reflections on a run: their number."""
        records = await self._store.find(DUE, prefix=f"{self._key(run_id)}/")
        for record in records:
            due = from_record(DueReflection, record.data)
            await self._settle(replace(due, why=why, outcome=None, writer=None))
        return len(records)

    async def _settle(self, reflection: DueReflection) -> None:
        record = self._record(SETTLED, reflection)
        await self._store.put(record)
        await self._store.delete(DUE, record.key)
        journal = _journal_of(reflection.run_id)
        if await self._store.get(RUN, journal) is None:  # its steps would be on no page
            for step in await self._store.find(STEP, prefix=f"{journal}/{OUTSIDE}lesson "):
                await self._store.delete(STEP, step.key)

    def _record(self, kind: str, reflection: DueReflection) -> Record:
        return Record(kind, self._key(reflection.run_id, reflection.kind), to_record(reflection))

    def _key(self, run_id: str, *kind: str) -> str:
        # Quoted, because a program's own run id may contain a slash, which separates the parts.
        return "/".join((self._agent, quote(run_id, safe="", errors="surrogatepass"), *kind))


async def all_due(store: Store) -> list[DueReflection]:
    """The due reflections of all agents, oldest first."""
    records = await store.find(DUE, newest_first=True)
    return values_of(records[::-1], DueReflection)


def resolve_due(reference: str, due: Sequence[DueReflection]) -> DueReflection:
    """The due reflection on a run, referenced by its id, the id's beginning or end, or `last`.

    Raises `ConfigError` if no run or more than one matches.
    """
    if not due:
        raise ConfigError("No reflection is due.")
    if reference == "last":
        return due[-1]
    matches = [reflection for reflection in due if reflection.run_id == reference] or [
        reflection
        for reflection in due
        if reflection.run_id.startswith(reference) or reflection.run_id.endswith(reference)
    ]
    # A run may be due twice, if two processes saw it end differently.
    runs = {(reflection.agent, reflection.run_id): reflection for reflection in matches}
    match = only(list(runs.values()), reference, "runs", lambda reflection: reflection.run_id)
    if match is None:
        raise ConfigError(
            f"No reflection is due for a run {reference!r}; `redraft lessons due` lists those that need one."
        )
    return match


def due_error(due: Sequence[DueReflection], problem: str = "") -> ReflectionDueError:
    """The error that says which runs must be reflected on, and how.

    `problem` says why a reflection could not be written.
    """
    first = due[0]
    task = "" if first.outcome is None else shortened(first.outcome.task.description, 64)
    more = f" (and {len(due) - 1} more)" if len(due) > 1 else ""
    if problem:
        return ReflectionDueError(
            f"The run {first.run_id!r}{more} has to be reflected on first, but its lesson could not be "
            f"written: {problem} The next run tries again; `await lessons.waive({first.run_id!r}, why)` does "
            "without.",
            runs=[reflection.run_id for reflection in due],
        )
    how = "was done in part" if first.kind == "partial" else "failed"
    return ReflectionDueError(
        f"The run {first.run_id!r}{more} {how}, and has no reflection yet: {task!r}. Give the lessons "
        "a model, or call `await lessons.reflect_on(due.outcome, content=...)` for each `due` in "
        f"`await lessons.due()`, or `await lessons.waive({first.run_id!r}, why)`; `redraft lessons due` "
        "lists them.",
        runs=[reflection.run_id for reflection in due],
    )


def _journal_of(run_id: str) -> str:
    """The id of the journal of a run; a hash if a program chose an invalid run id."""
    try:
        check_run_id(run_id)
    except ConfigError:
        return sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return run_id


def _bounded(outcome: Outcome) -> Outcome:
    """An outcome with its secrets withheld, cut to the size of a prompt."""

    def cut(outcome: Outcome, most: int, *names: str) -> dict[str, Any]:
        return {name: without_middle(getattr(outcome, name), most) for name in names}

    texts = ("output", "error", "failed_output")
    read = cut(outcome, MOST_READ, *texts, "transcript", "heard")
    # The facts in the reports are learned before.
    clean = memory_redactor().redact_object(replace(outcome, **read, reports=()))
    return replace(
        clean,
        **cut(clean, MOST_SHOWN, *texts),
        run_id=outcome.run_id,
        transcript=shortened_transcript(clean.transcript, MOST_TRANSCRIPT),
        issues=tuple(without_middle(issue, MOST_ISSUE) for issue in clean.issues),
    )
