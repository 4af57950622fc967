"""Backlog: what is learnt is embedded beside what an agent does, and nothing of it is lost."""

import asyncio
import logging
import subprocess
import sys
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path

import pytest

from redraft.models.embed import ScriptedEmbedder, unit_rows
from support.learning_agents import TASK, learning, run, writer
from support.lessons import FAILURE, PARTIAL

of_a_run = ContextVar("of_a_run", default="nothing")


class Gated(ScriptedEmbedder):
    """Embeds lessons when it is let; knows what it saw of a run's context."""

    def __init__(self):
        super().__init__()
        self.gate, self.began, self.saw = asyncio.Event(), asyncio.Event(), set()

    async def __call__(self, texts, /):
        if texts == [TASK.description]:  # a question
            return unit_rows(self.name, [[1.0] * 256], 1)
        self.saw.add(of_a_run.get())
        self.began.set()
        await self.gate.wait()
        return await super().__call__(texts)


async def recorded(path):
    """File a lesson that nobody embeds."""
    async with learning(path, embedder="none") as lessons:
        await lessons.record(FAILURE, TASK)


def test_a_run_does_not_wait_for_the_embedder(tmp_path):
    async def main():
        embedder = Gated()
        async with learning(tmp_path, embedder=embedder, model=writer(), trusted=True) as lessons:
            of_a_run.set("something")
            await asyncio.wait_for(run(lessons, 0.1), 20)
            assert len(await lessons.find()) == 1
            await asyncio.wait_for(embedder.began.wait(), 20)
            assert embedder.texts == []
            embedder.gate.set()
        assert embedder.saw == {"nothing"}
        assert len(embedder.texts) == 1  # what was begun is done before the lessons are closed

    asyncio.run(main())


def test_what_the_end_of_a_loop_cuts_off_is_embedded_before_the_next_question(tmp_path, caplog):
    embedder = Gated()

    async def cut_off(lessons):
        await run(lessons, 0.1)
        await embedder.began.wait()

    async def asked(lessons):
        return await lessons.search(TASK)

    async def with_lessons(use, embedder):
        lessons = learning(tmp_path, embedder=embedder, model=writer(), trusted=True)
        entered = await lessons.__aenter__()
        try:
            return await use(entered)
        finally:
            if use is asked:
                await lessons.__aexit__(None, None, None)

    asyncio.run(with_lessons(cut_off, embedder))
    assert embedder.texts == []
    later = ScriptedEmbedder()
    [found] = asyncio.run(with_lessons(asked, later))
    assert "similarity" in found.reason
    assert len(later.texts) == 2  # the lesson and the question
    assert caplog.records == []


def test_people_wait_until_what_they_wrote_is_found_by_meaning(tmp_path):
    async def main():
        await recorded(tmp_path)
        async with learning(tmp_path, embedder=ScriptedEmbedder()) as lessons:
            baking = await lessons.record(PARTIAL, "Bake bread")
            for content in (PARTIAL, replace(PARTIAL, what_happened="The bread was black.")):
                await lessons.edit(baking.id, content)
                found = await lessons.search(replace(TASK, description="Bake bread"), 9)
                assert len(found) == 2
                assert all("similarity" in one.reason for one in found)

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("no such model"), OSError("away")])
def test_an_embedder_that_fails_is_told_of_once_and_asked_again_when_something_is_learnt(
    tmp_path, caplog, error
):
    calls = []

    def failing(texts):
        calls.append(len(texts))
        raise error

    async def main():
        await recorded(tmp_path)
        async with learning(tmp_path, embedder=failing) as lessons:
            with suppress(ValueError, OSError):
                await lessons.search(TASK)
            with suppress(ValueError, OSError):
                await lessons.search(TASK)
            assert len(calls) == 3  # a lesson, a question and a question
            await lessons.record(FAILURE, "Bake bread")
            assert len(calls) == 4

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    told = [record.getMessage() for record in caplog.records]
    assert told == [f"New lessons are found by full text only for now: {error}"] * 2


ENDING = """
import sys, time
sys.path.insert(0, sys.argv[2])
from support.learning_agents import REPLY
from redraft import Agent, Lessons, QualityCriterion, ReflectionPattern, ScriptedModel

def slow(texts):
    time.sleep(0.2)
    return [[1.0, float(len(text))] for text in texts]

digits = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": "[0-9]"})
once = ReflectionPattern(max_iterations=0, quality_criteria=[digits])
lessons = Lessons(sys.argv[1], agent="clerk", embedder=slow, trusted=True, store=False)
model = ScriptedModel(lambda request: REPLY if request.role == "reflection" else "no number")
for _ in range(2):
    print(Agent(model, pattern=once, lessons=lessons, keep=False).run_sync("Write down the order").success)
"""


def test_a_program_ends_without_a_word(tmp_path):
    here = str(Path(__file__).parent.parent)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", ENDING, str(tmp_path), here],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["False", "False"], "")
