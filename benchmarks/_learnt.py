"""What 100,000 runs would have taught: notes and lessons, with what each run did with them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from redraft.stores.base import Record, Store
    from redraft.types import Task

START = datetime(2026, 1, 1, tzinfo=UTC)
TASKS = 60
"""Tasks with notes; the first has half of all runs."""
LESSONS = 90
"""Lessons of the one agent: as many as learning leaves out of the archive."""
LATEST = 100
"""Revisions that are kept of each note: no page reads more, and none by their number."""
EACH = 3
"""Lessons that each run had."""
AT_ONCE = 1_000


def task(number: int) -> Task:
    """Return one of the tasks."""
    from redraft.types import Task

    return Task(f"Write report number {number} of the month.", expected_output="Five sentences.")


def learn_lessons(memory: Path, agent: str = "writer") -> list[str]:
    """File an agent's lessons, a third of them active, a third in quarantine; return their ids."""
    from redraft.lessons.folder import LessonFolder
    from redraft.lessons.lesson import STATUSES, Failure, Lesson

    rng, folder, ids = random.Random(5), LessonFolder(memory, agent), list[str]()
    for number in range(LESSONS):
        texts = [" ".join(f"word{rng.randrange(300)}" for _ in range(25)) for _ in range(5)]
        day = date(2026, 10, 1) + timedelta(days=number % 40)
        lesson = Lesson(Failure(*texts), agent, day, f"Lesson {number}", status=STATUSES[number % 3])
        ids.append(folder.add(lesson).id)
    return ids


async def fill(store: Store, runs: int, lessons: list[str]) -> str:
    """Keep what so many runs were given and scored; return the identity of the task that has half of them."""
    from redraft.notes.store import NoteStore
    from redraft.notes.task import TaskIdentity, TaskReflection

    rng, notes = random.Random(6), NoteStore(store)
    identities = [TaskIdentity.of(task(number)) for number in range(TASKS)]
    for number in range(TASKS):
        for version in range(LATEST if number == 0 else 5):
            text = " ".join(f"word{rng.randrange(300)}" for _ in range(80))
            reflection = TaskReflection.of_first_run(f"{text} {version}", text[:200], ["Too long."])
            await notes.append(task(number), reflection, run_id=f"run-{version:06}", based_on=version or None)
    for start in range(0, runs, AT_ONCE):
        records: list[Record] = []
        for number in range(start, min(runs, start + AT_ONCE)):
            identity = identities[0 if number % 2 else 1 + (number // 2) % (TASKS - 1)]
            records += uses_of(number, runs, identity, lessons, rng)
        await store.put_all(records)
    return identities[0]


def uses_of(number: int, runs: int, identity: str, lessons: list[str], rng: random.Random) -> list[Record]:
    """Return what one run was given, a fifth of them by a trial nothing, and what its lessons did."""
    from redraft._codec import to_record
    from redraft.lessons.impact import USE, Use
    from redraft.notes.note import NoteUse
    from redraft.notes.store import NOTE_USE
    from redraft.stores.base import Record

    at, run_id = START + timedelta(minutes=number), f"run-{number:06}"
    version = 1 + number * (LATEST - 1) // runs
    given = (None, "control") if number % 5 == 0 else (version, "note")
    use = NoteUse(run_id, given[0], given[1], rng.random(), at)
    having = [lessons[(number * EACH + one) % len(lessons)] for one in range(EACH)]
    return [
        Record(NOTE_USE, f"{identity}/{run_id}", to_record(use)),
        *(Record(USE, f"{id_}/{run_id}", to_record(Use(id_, run_id, at, number % 3 > 0))) for id_ in having),
    ]
