"""A task with notes for tests of the dashboard: versions, runs with and without, a trial."""

import asyncio
from datetime import UTC, datetime, timedelta

from redraft.notes.note import NoteUse, TaskReflection
from redraft.notes.store import NoteStore
from redraft.notes.task import TaskIdentity
from redraft.types import PlainTask

START = datetime(2026, 11, 20, tzinfo=UTC)
TASK = PlainTask("Summarise {report} for the board.", expected_output="Five sentences.")
IDENTITY = TaskIdentity.of(TASK)


def reflection(version, text=None):
    """What a run taught: instructions that grow with each version."""
    says = " ".join(f"Keep rule {number} in mind." for number in range(1, version + 1))
    return TaskReflection(
        text or f"Summarise the report for the board. {says}",
        f"Five sentences, {version} of them with a figure.",
        (f"Version {version} was too long.",),
        ("Name the sources.",),
    )


def noted_task(store, versions=3, *, runs=4, control=0, task=TASK, name="board summary", text=None):
    """Keep a task of which `runs` runs had no note, then as many each version, `control` of them none."""

    async def main():
        notes, identity = NoteStore(store), TaskIdentity.of(task)
        number = 0
        for version in range(versions + 1):
            for at in range(runs):
                score = min(0.95, 0.3 + 0.15 * version + 0.03 * at)
                went_without = version and at < control
                use = NoteUse(
                    f"run-{number:03}",
                    None if went_without or not version else version,
                    "control" if went_without else "note" if version else "none",
                    0.35 + 0.01 * at if went_without else score,
                    START + timedelta(minutes=10 * number),
                )
                await notes.record_use(identity, use)
                number += 1
            if version < versions:
                await notes.append(
                    task,
                    reflection(version + 1, text),
                    run_id=f"run-{number - 1:03}",
                    based_on=version or None,
                    name=name,
                )

    asyncio.run(main())
    return TaskIdentity.of(task)
