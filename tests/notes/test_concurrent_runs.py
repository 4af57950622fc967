"""Many concurrent runs of one task, and a store that fails between them."""

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from redraft import Ensemble, ScriptedModel, Task
from redraft.notes import InMemoryReflectionStore, ReflectionConfig, TaskIdentity, TaskReflection
from redraft.notes.store import PostgresReflectionStore, SqliteReflectionStore
from support.ensembles import is_reflection, warnings

SAY = "Say it."


class Own:
    """A custom store, with one async method and one that is not."""

    def __init__(self):
        self._reflections = {}

    async def store(self, identity, reflection):
        await asyncio.sleep(0)
        self._reflections[identity] = reflection

    def retrieve(self, identity):
        return self._reflections.get(identity)


def new_store(name, request):
    if name == "memory":
        return InMemoryReflectionStore()
    if name == "sqlite":
        return SqliteReflectionStore(request.getfixturevalue("tmp_path") / "notes.db")
    return Own() if name == "own" else PostgresReflectionStore(request.getfixturevalue("postgres").url)


@asynccontextmanager
async def opened(name, request):
    store = new_store(name, request)
    yield store
    if name != "own":
        await store.aclose()


@pytest.mark.parametrize("name", ["memory", "sqlite", "postgres", "own"])
def test_64_concurrent_runs_add_64_notes(name, request):
    async def main():
        async with opened(name, request) as store:
            model = ScriptedModel(lambda asked: "OBSERVATIONS:\n- seen" if is_reflection(asked) else "x")
            task, events = Task(SAY, reflect=True), []
            ensemble = Ensemble(model, [task], store, events.append, keep=False)
            await ensemble.run()
            await asyncio.gather(*(ensemble.run() for _ in range(64)))
            retrieved = store.retrieve(TaskIdentity.of(task))
            assert (retrieved if name == "own" else await retrieved).run_count == 65
            assert sorted(event.reflection.run_count for event in events) == list(range(1, 66))
            assert [event.is_first_reflection for event in events].count(True) == 1

    asyncio.run(main())


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
        results = await asyncio.gather(*(ensemble.run() for _ in range(32)))
        print(*(result[task].run_id for result in results))

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("name", ["SqliteReflectionStore", "PostgresReflectionStore"])
def test_64_runs_in_2_processes_add_64_notes(name, tmp_path, request):
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
    assert len(runs) == 64

    async def main():
        async with open_store(place) as notes:
            noted, revisions = await notes.noted(identity), await notes.revisions(identity)
            assert (noted.run_count, noted.in_force) == (65, 65)
            assert [note.version for note in revisions] == list(range(1, 66))
            assert [note.reflection.run_count for note in revisions] == list(range(1, 66))
            assert {note.run_id for note in revisions[1:]} == runs

    asyncio.run(main())


def test_a_failing_server_costs_one_warning_a_run(postgres, caplog):
    now = SimpleNamespace(breaks=False)

    def handler(ctx):
        if now.breaks:
            postgres.ask("ALTER TABLE redraft_records RENAME TO away")
        return f"said, {'with' if 'Improvement Notes' in ctx.prompt else 'without'} a note"

    def better(given):
        return TaskReflection.of_first_run(f"{given.task.description} Well.", "")

    async def main():
        async with PostgresReflectionStore(postgres.url) as notes:
            task = Task(SAY, handler=handler, reflect=ReflectionConfig(strategy=better))
            ensemble = Ensemble(tasks=[task], reflection_store=notes, keep=False)
            await ensemble.run()
            found = []
            for number in range(3):  # in the middle of a run, during all of one, and when it is back
                now.breaks = number == 0
                caplog.clear()
                result = await ensemble.run()
                found.append((result.output, result[task].reflection is not None, len(warnings(caplog))))
                if number == 1:
                    postgres.ask("ALTER TABLE away RENAME TO redraft_records")
                    prior = await notes.current(TaskIdentity.of(SAY))
                    assert (prior.version, prior.reflection.run_count) == (1, 1)
            assert found == [
                ("said, with a note", False, 1),
                ("said, without a note", False, 1),
                ("said, with a note", True, 0),
            ]

    asyncio.run(main())
