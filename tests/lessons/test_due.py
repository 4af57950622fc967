"""Due reflections: one per run, even if processes are killed or share the store."""

import asyncio
import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from redraft import ConfigError, MemoryStore, ScriptedModel, SqliteStore
from redraft import _files as files
from redraft.errors import ReflectionDueError, StoreError
from redraft.lessons import due
from redraft.lessons.due import WRITER_TIMEOUT, DueReflection, ReflectionWriter, resolve_due
from redraft.lessons.folder import LessonFolder
from redraft.loop.record import Process
from support.learning_agents import REPLY, TASK, learning, run, writer
from support.lessons import FAILURE

TESTS = str(Path(__file__).parents[1])
FAIL_AND_DIE = """
import asyncio, os, signal, sys
sys.path.insert(0, {tests!r})
from redraft.lessons.due import DueReflection, resolve_due
from support.learning_agents import learning, run, writer, REPLY
from redraft import SqliteStore, ScriptedModel

def die(request):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(path, where):
    model = ScriptedModel(die) if where == "writing" else writer()
    async with learning(path, store=SqliteStore(path + "/store.db"), model=model) as lessons:
        if where == "filed":
            lessons._due.__class__.complete = lambda *given: die(None)
        await run(lessons, 0.1)

asyncio.run(main(*sys.argv[1:]))
"""


def started(script, *arguments, **values):
    source = script.format(tests=TESTS, **values)
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    )


@pytest.mark.parametrize("where", ["writing", "filed"])
def test_a_reflection_interrupted_by_a_kill_stays_due_and_is_written_once(tmp_path, where):
    process = started(FAIL_AND_DIE, str(tmp_path), where)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL

    async def main():
        store, model = SqliteStore(tmp_path / "store.db"), writer()
        async with learning(tmp_path, store=store, auto=False) as lessons:
            with pytest.raises(ReflectionDueError):
                await run(lessons, 1.0)
        async with learning(tmp_path, store=store, model=model) as lessons:
            [due] = await lessons.due()
            assert not due.is_being_written
            prompts = []
            await run(lessons, 1.0, prompts=prompts)
            assert "next_cursor" in prompts[0]
            assert await lessons.due() == []
            [lesson] = await lessons.find()
            assert lesson.source == due.run_id
            assert len(model.requests) == {"writing": 1, "filed": 0}[where]  # a reply is in the journal
            assert await store.find("step") == []  # this store does not have the run
        await store.aclose()

    asyncio.run(main())


def test_due_reflections_are_shared_between_processes(tmp_path):
    async def main():
        path = tmp_path / "store.db"
        store, other = SqliteStore(path), SqliteStore(path)
        async with learning(tmp_path, store=store) as lessons, learning(tmp_path, store=other) as others:
            result = await run(lessons, 0.1)
            with pytest.raises(ReflectionDueError) as raised:
                await others.recall(TASK)
            assert raised.value.runs == (result.run_id,)
            await others.waive(result.run_id, "The shop was closed.")
            assert await lessons.recall(TASK) == []
        await store.aclose()
        await other.aclose()

    asyncio.run(main())


def test_concurrent_recalls_write_a_due_reflection_once(tmp_path):
    async def main():
        store = MemoryStore()
        async with learning(tmp_path, store=store) as lessons:
            await run(lessons, 0.1)
        begun, go_on, asked = asyncio.Event(), asyncio.Event(), []

        async def slow(request):
            asked.append(request)
            begun.set()
            await go_on.wait()
            return REPLY

        async with learning(tmp_path, store=store, model=ScriptedModel(slow)) as lessons:
            first = asyncio.create_task(lessons.recall(TASK))
            await begun.wait()
            assert await lessons.recall(TASK) == []  # the other recall is writing it
            go_on.set()
            assert len(await first) == 1
            assert len(asked) == 1

    asyncio.run(main())


ELSEWHERE = Process("another machine", 1, "")


@pytest.mark.parametrize(
    ("writer", "is_at_work"),
    [
        (ReflectionWriter(ELSEWHERE, "", 1_000.0 + WRITER_TIMEOUT), True),
        (ReflectionWriter(ELSEWHERE, "", 999.0), False),
        (ReflectionWriter(ELSEWHERE, "", 9_999.0), False),
        (ReflectionWriter(replace(Process.this(), started="before"), "", 1_000.0 + WRITER_TIMEOUT), False),
        (ReflectionWriter(Process.this(), "of an attempt that failed", 1_000.0 + WRITER_TIMEOUT), False),
    ],
    ids=[
        "on another machine",
        "on another machine, silent",
        "on another machine, whose clock was ahead",
        "dead",
        "this process, no longer",
    ],
)
def test_a_process_that_writes_a_reflection_counts_for_as_long_as_it_lives(writer, is_at_work, monkeypatch):
    monkeypatch.setattr(due, "time", lambda: 1_000.0)
    assert writer.is_at_work is is_at_work


def test_a_reflection_that_could_not_be_written_is_free_at_once(tmp_path):
    async def main():
        async with learning(tmp_path, model=writer()) as lessons:
            lessons._own_folder.file = refuse
            await run(lessons, 0.1)
            [due] = await lessons.due()
            assert due.writer is None

    def refuse(*_, **__):
        raise StoreError("The disk is full.")

    asyncio.run(main())


def no_folder(memory, monkeypatch):
    (memory / "reflections").mkdir()
    (memory / "reflections" / "agent").write_text("not a folder")


def no_folders(memory, monkeypatch):
    (memory / "reflections").write_text("not a folder")


def no_archive(memory, monkeypatch):
    monkeypatch.setattr("redraft.lessons.folder.MOST_LESSONS", 0)
    monkeypatch.setattr(LessonFolder.archive, "__defaults__", (0,))
    (memory / "reflections" / "agent").mkdir(parents=True)
    (memory / "reflections" / "agent" / "archive").write_text("not a folder")


def failing(number):
    def fault(_memory, monkeypatch):
        def refuse(_path, _data):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(files, "_write", refuse)

    return fault


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (no_folder, "A file is in the place of a folder: move it away"),
        (no_folders, "A file is in the place of a folder: move it away"),
        (no_archive, "A file is in the place of a folder: move it away"),
        (failing(errno.ENOSPC), "No space left on device. Free some space"),
        (failing(errno.EROFS), "Read-only file system. Make it writable"),
        (failing(errno.EACCES), "Permission denied. Check its permissions"),
    ],
    ids=["file for folder", "file for folders", "file for archive", "full disk", "read-only", "permissions"],
)
def test_a_reflection_that_cannot_be_written_stays_due_and_is_not_paid_for_again(
    fault, says, tmp_path, monkeypatch
):
    async def main():
        model, memory = writer(), tmp_path / "memory"
        memory.mkdir()
        fault(memory, monkeypatch)
        async with learning(memory, model=model) as lessons:
            result = await run(lessons, 0.1)
            assert [one.run_id for one in await lessons.due()] == [result.run_id]
            if fault is not no_archive:  # the lesson has been written, so only the archive is missing
                with pytest.raises(ReflectionDueError, match=says):
                    await lessons.recall(TASK)
                with pytest.raises(StoreError, match=says):
                    await lessons.record(FAILURE, TASK)
            assert len(model.requests) == 1

    asyncio.run(main())


DUE = [
    DueReflection("run-1", "porter", "failure"),
    DueReflection("run-2", "clerk", "partial"),
    DueReflection("other-run", "clerk", "failure"),
    DueReflection("other-run", "clerk", "partial"),  # the same run, which ended differently in two processes
]


@pytest.mark.parametrize(
    ("run", "run_id"), [("run-1", "run-1"), ("-2", "run-2"), ("other", "other-run"), ("last", "other-run")]
)
def test_a_due_run_is_found_by_its_id_or_a_part_of_it(run, run_id):
    assert resolve_due(run, DUE).run_id == run_id


@pytest.mark.parametrize(
    ("run", "due", "says"),
    [
        ("run-9", DUE, "No reflection is due for a run 'run-9'"),
        ("run-", DUE, "Several runs match 'run-': run-1, run-2."),
        ("last", [], "No reflection is due."),
    ],
)
def test_unknown_and_ambiguous_runs_are_refused(run, due, says):
    with pytest.raises(ConfigError, match=says):
        resolve_due(run, due)
