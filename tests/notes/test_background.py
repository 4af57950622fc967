"""Background reflections, in child processes that end in every possible way."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from redraft import Ensemble, Task
from redraft.notes import (
    InMemoryReflectionStore,
    ReflectionConfig,
    SqliteReflectionStore,
    TaskIdentity,
    TaskReflection,
)
from support.ensembles import better, thinking

TESTS = Path(__file__).parents[1]
BEGIN = """
import asyncio, sys, time, threading
from redraft import *
from redraft.notes import *
path, seconds = sys.argv[1], float(sys.argv[2])
async def slow(given):
    await asyncio.sleep(seconds)
    await asyncio.to_thread(time.sleep, 0.01)  # the executor must still accept work, as name look-ups do
    return TaskReflection.of_first_run("Better.", "")
def sluggish(given):
    time.sleep(seconds)
    return TaskReflection.of_first_run("Better.", "")
def ensemble(*strategies):
    tasks = [
        Task("Say it.", handler=lambda ctx: "said", reflect=ReflectionConfig(strategy=strategy))
        for strategy in strategies
    ]
    return Ensemble(tasks=tasks, reflection_store=SqliteReflectionStore(path), keep=False)
"""


def notes_in(path):
    """Return how many notes are in a database."""
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        return connection.execute("select count(*) from records where kind = 'note'").fetchone()[0]


def run(script, path, seconds=0.3):
    argv = [sys.executable, "-W", "error", "-c", BEGIN + script, str(path), str(seconds)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, env=_environment(), check=False)


def _environment():
    return {**os.environ, "REDRAFT_HOME": ""}


@pytest.mark.parametrize(
    "script",
    [
        "print(asyncio.run(ensemble(slow, sluggish).run(wait_for_reflections=False)).output)",
        """
async def main():
    runs = [ensemble(slow, sluggish).run(wait_for_reflections=False) for _ in range(1)]
    print((await asyncio.gather(*runs))[0].output)
thread = threading.Thread(target=asyncio.run, args=(main(),))
thread.start(); thread.join()""",
    ],
    ids=["asyncio", "thread"],
)
def test_a_normal_exit_waits_for_background_reflections(script, tmp_path):
    path = tmp_path / "notes.db"
    done = run(script, path)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "said\n")
    assert notes_in(path) == 2


def test_an_exit_with_an_error_waits_for_background_reflections(tmp_path):
    path = tmp_path / "notes.db"
    done = run("ensemble(slow).run_sync(wait_for_reflections=False); raise SystemExit('bad end')", path)
    assert (done.returncode, done.stderr) == (1, "bad end\n")
    assert notes_in(path) == 1


def test_a_reflection_that_exits_ends_no_other_and_does_not_hold_up_the_exit(tmp_path):
    path = tmp_path / "notes.db"
    script = """
def leave(given): sys.exit(3)
async def main():
    await ensemble(leave).run(wait_for_reflections=False)
    await asyncio.sleep(0.3)
    print((await ensemble(slow).run(wait_for_reflections=False)).output)
asyncio.run(main())"""
    done = run(script, path)
    assert (done.returncode, done.stdout) == (0, "said\n")
    assert notes_in(path) == 1


@pytest.mark.parametrize("strategy", ["slow", "sluggish"])
def test_an_interrupt_ends_the_wait_and_leaves_the_store_intact(strategy, tmp_path):
    path = tmp_path / "notes.db"

    async def before():
        async with SqliteReflectionStore(path) as notes:
            await notes.store(TaskIdentity.of("Say it."), TaskReflection.of_first_run("Before.", ""))

    asyncio.run(before())
    script = f"ensemble({strategy}).run_sync(wait_for_reflections=False); print('answered', flush=True)"
    argv = [sys.executable, "-c", BEGIN + script, str(path), "60"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=_environment()) as process:  # fmt: skip
        try:
            assert process.stdout.readline() == "answered\n"
            time.sleep(0.3)  # by then it waits at its end; an earlier interrupt would have the same effect
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=20)
        finally:
            process.kill()
    assert time.monotonic() - began < 60
    assert "KeyboardInterrupt" in stderr
    assert notes_in(path) == 1


def test_a_forked_child_does_not_wait_for_its_parents_reflections(tmp_path):
    script = """
import os
ensemble(slow).run_sync(wait_for_reflections=False)
import multiprocessing
child = multiprocessing.get_context("fork").Process(target=print, args=("child",))
child.start(); child.join(10); print(child.exitcode)"""
    path = tmp_path / "notes.db"
    done = run(script, path, 0.5)
    assert done.stdout == "child\n0\n"
    assert notes_in(path) == 1


def test_run_returns_before_the_reflection_and_drain_waits_for_it():
    gate, events = threading.Event(), []

    def waits(given):
        assert gate.wait(10)
        return better(given)

    async def main():
        store = InMemoryReflectionStore()
        task = Task("Say it.", reflect=ReflectionConfig(strategy=waits))
        ensemble = Ensemble(thinking("said"), [task], store, events.append)
        results = [await ensemble.run(wait_for_reflections=False) for _ in range(2)]
        assert [result.output for result in results] == ["said", "said"]
        assert results[0][task].reflection is None
        assert "background" in results[0][task].no_reflection
        with pytest.raises(TimeoutError):  # a cancelled wait does not cancel the reflections
            await asyncio.wait_for(ensemble.drain(), 0.05)
        assert events == []
        gate.set()
        await ensemble.drain()
        await ensemble.drain()
        assert sorted(event.reflection.run_count for event in events) == [1, 2]
        assert (await store.retrieve(TaskIdentity.of(task))).run_count == 2

    asyncio.run(main())
