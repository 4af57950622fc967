"""Filing by many processes at once, some of which are killed; duties that outlive a process."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from redraft import MemoryStore, ReflectionDueError, ScriptedModel, SqliteStore
from redraft.lessons.folder import Filing, overlap, words_of
from redraft.lessons.index import LessonIndex, Query
from redraft.models.embed import ScriptedEmbedder
from support.learning_agents import REPLY, TASK, learning, run, writer
from support.lessons import PARTIAL

TESTS = str(Path(__file__).parents[1])
FILE_MANY = """
import asyncio, sys
from dataclasses import replace
sys.path.insert(0, {tests!r})
from support.learning_agents import learning, TASK
from support.lessons import FAILURE
from redraft import SqliteStore
from redraft.types import Task

async def main(path, name):
    async with learning(path, store=SqliteStore(path + "/store.db")) as lessons:
        print("ready", flush=True)
        for number in range({count}):
            words = " ".join(f"{{name}}{{letter}}{{number}}" for letter in "abcdefghij")
            content = replace(FAILURE, what_happened=words, why=words, do_differently=words)
            lesson = await lessons.record(content, TASK, run_id=f"{{name}}-{{number}}")
            print(lesson.id, flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""
FAIL_AND_DIE = """
import asyncio, os, signal, sys
sys.path.insert(0, {tests!r})
from support.learning_agents import learning, run, writer, REPLY
from redraft import SqliteStore, ScriptedModel

def die(request):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(path, where):
    model = ScriptedModel(die) if where == "writing" else writer()
    async with learning(path, store=SqliteStore(path + "/store.db"), model=model) as lessons:
        if where == "filed":
            lessons._duties.__class__.fulfil = lambda *given: die(None)
        await run(lessons, 0.1)

asyncio.run(main(*sys.argv[1:]))
"""


def started(script, *arguments, **values):
    source = script.format(tests=TESTS, **values)
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    )


def test_eight_processes_file_at_once_and_one_is_killed(tmp_path):
    processes = [started(FILE_MANY, str(tmp_path), name, count=3) for name in "wabcdxyz"]
    filed = set()
    killed = processes[0]
    for line in killed.stdout:
        if line.startswith("agent/"):
            filed.add(line.strip())
            killed.send_signal(signal.SIGKILL)
            break
    for process in processes:
        rest = process.communicate(timeout=60)[0].split("\n")
        filed |= {line for line in rest if line.startswith("agent/")}
    assert [process.returncode for process in processes] == [-signal.SIGKILL, *[0] * 7]

    filing = Filing(tmp_path, "agent")
    lessons = list(filing.lessons())
    assert filed <= {lesson.id for lesson in lessons}
    sources = [lesson.source for lesson in lessons]
    assert len(sources) == len(set(sources))
    assert len([one for one in sources if not one.startswith("w")]) == 21

    async def main():
        found = []
        for rebuilt in (False, True):
            index = LessonIndex(tmp_path, ScriptedEmbedder())
            if rebuilt:
                await index.rebuild()
            query = Query(TASK.description, TASK.task_type, agent="agent", k=30)
            found.append({one.lesson.id for one in await index.search(query)})
            await index.aclose()
        assert found[0] == found[1]

    asyncio.run(main())


@pytest.mark.parametrize("where", ["writing", "filed"])
def test_a_process_that_is_killed_while_it_reflects_leaves_the_duty_and_no_second_lesson(tmp_path, where):
    process = started(FAIL_AND_DIE, str(tmp_path), where)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL

    async def main():
        store = SqliteStore(tmp_path / "store.db")
        choices = {"store": store, "model": writer()}
        async with learning(tmp_path, **choices) as lessons:
            lessons.clock.pass_time(minutes=4)
            assert await lessons.due() == []  # the other may still be at it
            lessons.clock.pass_time(minutes=2)
            [duty] = await lessons.due()
            await run(lessons, 1.0)
            assert await lessons.due() == []
            [lesson] = await lessons.find()
            assert lesson.source == duty.run_id
        await store.aclose()

    asyncio.run(main())


def test_a_duty_is_seen_by_other_processes(tmp_path):
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


def test_two_agents_that_meet_a_duty_do_it_once(tmp_path):
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
            assert await lessons.recall(TASK) == []  # somebody is at it
            go_on.set()
            assert len(await first) == 1
            assert len(asked) == 1

    asyncio.run(main())


def test_how_alike_two_lessons_are():
    one, other = frozenset({"a", "b", "c"}), frozenset({"b", "c", "d"})
    assert overlap(one, other) == 0.5
    assert overlap(frozenset(), frozenset()) == 1.0
    assert {"two", "named"} & words_of(PARTIAL) == {"two"}
