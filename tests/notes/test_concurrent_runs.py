"""Runs of one task in two processes."""

import asyncio
import subprocess
import sys

import pytest

from redraft.notes import TaskIdentity, TaskReflection
from redraft.notes.store import PostgresReflectionStore, SqliteReflectionStore

SAY = "Say it."


RUNS = """
import asyncio, sys
from redraft import Ensemble, Task
from redraft.notes import ReflectionConfig, TaskReflection, {name}

def better(given):
    return TaskReflection.of_first_run("So.", "")

async def main(place):
    async with {name}(place) as notes:
        task = Task("Say it.", handler=lambda ctx: "said", reflect=ReflectionConfig(strategy=better))
        ensemble = Ensemble(tasks=[task], reflection_store=notes, keep=False)
        print("ready", flush=True)
        sys.stdin.readline()
        results = await asyncio.gather(*(ensemble.run() for _ in range(16)))
        print(*(result[task].run_id for result in results))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("name", ["SqliteReflectionStore", "PostgresReflectionStore"])
def test_runs_in_two_processes_add_a_note_each(name, tmp_path, request):
    sqlite = name.startswith("Sqlite")
    place = str(tmp_path / "redraft.db") if sqlite else request.getfixturevalue("postgres").url
    script = RUNS.format(name=name)
    argv, pipe, identity = (
        [sys.executable, "-W", "error", "-c", script, place],
        subprocess.PIPE,
        TaskIdentity.of(SAY),
    )
    open_store = SqliteReflectionStore if sqlite else PostgresReflectionStore

    async def before():
        async with open_store(place) as notes:
            await notes.store(identity, TaskReflection.of_first_run("Before.", ""))

    asyncio.run(before())
    children = [subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
    for child in children:
        assert child.stdout.readline() == "ready\n"
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    runs = {run_id for child in children for run_id in child.communicate(timeout=60)[0].split()}
    assert [child.returncode for child in children] == [0] * 2
    assert len(runs) == 32

    async def main():
        async with open_store(place) as notes:
            noted, revisions = await notes.noted(identity), await notes.revisions(identity)
            assert (noted.run_count, noted.in_force) == (33, 33)
            assert [note.version for note in revisions] == list(range(1, 34))
            assert [note.reflection.run_count for note in revisions] == list(range(1, 34))
            assert {note.run_id for note in revisions[1:]} == runs

    asyncio.run(main())
