"""What notes add to a run before its first call: the lookup, and the longer prompt."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from _measure import options, publish, server, table

from redraft.notes.learner import Learner
from redraft.notes.note import TaskReflection
from redraft.notes.store import (
    InMemoryReflectionStore,
    PostgresReflectionStore,
    SqliteReflectionStore,
)
from redraft.notes.task import MAX_TOKENS, ReflectionConfig, Task
from redraft.types import PlainTask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.notes.store import NoteStore

REVISIONS = 200
"""Notes that the task has already."""
RUNS = 500
TASK = Task("Research AI trends in {year} and write a summary report.", "Three sections.", reflect=True)
CONFIG = ReflectionConfig()


def long_note() -> TaskReflection:
    """Return a note of about as many tokens as one may have."""
    items = [
        f"Say where the figure in section {number} comes from, and of which year it is."
        for number in range(12)
    ]
    refined = "Research AI trends in {year}; give each one a heading and a source. " * 6
    return TaskReflection.of_first_run(refined, "Three sections, 600 words.", items, items)


async def fill(notes: NoteStore) -> None:
    asked = PlainTask(TASK.description, TASK.expected_output)
    for number in range(REVISIONS):
        await notes.append(asked, long_note(), run_id=f"run {number}", based_on=number or None)


async def waits(stores: Mapping[str, NoteStore]) -> dict[str, list[float]]:
    """Return how many milliseconds runs, one after the other, wait for their note; the stores by turns.

    The order turns round each time, so that a machine that gets slower or faster favours none.
    """
    found: dict[str, list[float]] = {name: [] for name in stores}
    for notes in stores.values():
        await fill(notes)
    for number in range(RUNS):
        names = list(stores) if number % 2 else list(reversed(stores))
        for name in names:
            started = perf_counter()
            given = await Learner(TASK, CONFIG, stores[name]).choose_note(f"later {number}", {"year": "2026"})
            found[name].append((perf_counter() - started) * 1e3)
            assert given.version == REVISIONS
            assert given.tokens > MAX_TOKENS / 2
    for notes in stores.values():
        await notes.aclose()
    return found


def row(name: str, found: list[float]) -> tuple[object, ...]:
    return name, f"{min(found):.3f}", f"{median(found):.3f}", f"{quantiles(found, n=20)[-1]:.3f}"


def main() -> None:
    given = options(__doc__).parse_args()
    with TemporaryDirectory() as folder, server() as url:
        stores: dict[str, NoteStore] = {
            "memory": InMemoryReflectionStore(),
            "SQLite": SqliteReflectionStore(Path(folder) / "redraft.db"),
        }
        place = None
        if url is not None:
            from support.postgres_server import Place

            place = Place(url)
            stores["PostgreSQL, this machine"] = PostgresReflectionStore(place.url)
        try:
            rows = [row(name, found) for name, found in asyncio.run(waits(stores)).items()]
        finally:
            if place is not None:
                place.drop()
    head = (f"milliseconds a run, {REVISIONS} revisions", "least", "median", "95 of 100 within")
    publish("notes", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
