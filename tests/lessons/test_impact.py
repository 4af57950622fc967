"""The impact of lessons: counters, and how reliably harm is detected."""

import asyncio
from datetime import timedelta
from random import Random

import pytest

from redraft import MemoryStore
from redraft.lessons.impact import Counters, Impact, ScoredRun, gain_of
from support.learning_agents import OTHER, START, TASK, learning, run
from support.lessons import FAILURE

LESSON = "agent/2026-03-01-a-lesson"


def scored(number, score, *lessons, task_type="web"):
    at = START + timedelta(minutes=number)
    return ScoredRun(f"r{number}", "agent", at, score, task_type, lessons)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([(0.9, True)], (1, 0, 0), id="nothing to compare with"),
        pytest.param([(0.4, False), (0.6, False), (0.6, True)], (1, 1, 0), id="above the average"),
        pytest.param([(0.4, False), (0.6, False), (0.4, True)], (1, 0, 1), id="below the average"),
        pytest.param([(0.4, False), (0.6, False), (0.5, True)], (1, 0, 0), id="exactly the average"),
        pytest.param([(0.5, False), (None, True)], (1, 0, 0), id="no score"),
        pytest.param([(None, False), (0.5, True)], (1, 0, 0), id="no earlier score"),
        pytest.param([(0.5, False), (0.9, True), (0.6, True)], (2, 2, 0), id="runs with it do not count"),
    ],
)
def test_uses_are_counted_as_helped_or_hurt(runs, expected):
    async def main():
        counting = Impact(MemoryStore(), "agent")
        await counting.count(scored(99, 0.99, task_type="other"))  # runs of another type are no measure
        for number, (score, has_it) in enumerate(runs):
            await counting.count(scored(number, score, *[LESSON] * has_it))
            await counting.count(scored(number, score, *[LESSON] * has_it))  # resumed: counts once
        assert await counting.counters(LESSON) == Counters(*expected)
        assert await counting.all_counters() == {LESSON: Counters(*expected)}
        assert await counting.counters(f"{LESSON}-2") == Counters()
        assert await counting.score("r0") == runs[0][0]
        assert await counting.score("nothing") is None

    asyncio.run(main())


async def harm_after(effect, runs, seed):
    """Simulate runs, every second one with a lesson of an effect; return whether harm was detected."""
    counting, chance = Impact(MemoryStore(), "agent"), Random(seed)  # noqa: S311 (no secret)
    history = []
    for number in range(runs):
        has_it = number % 2 == 1
        score = min(1.0, max(0.0, chance.gauss(0.6 + effect * has_it, 0.2)))
        history.append(scored(number, score, *[LESSON] * has_it))
        if has_it and await counting.harm(LESSON, history):
            return True
    return False


@pytest.mark.parametrize(
    ("effect", "least", "most"),
    [
        pytest.param(-0.2, 0.9, 1, id="harmful"),
        pytest.param(0.0, 0, 0.05, id="no effect"),
        pytest.param(0.2, 0, 0, id="helpful"),
    ],
)
def test_harm_is_detected_at_the_expected_rate(effect, least, most):
    async def main():
        found = [await harm_after(effect, 84, seed) for seed in range(100)]
        assert least <= sum(found) / 100 <= most

    asyncio.run(main())


def test_only_runs_since_the_last_verdict_count():
    async def main():
        counting = Impact(MemoryStore(), "agent")
        runs = [scored(number, 0.8 + number / 100) for number in range(10)]
        runs += [scored(number, 0.2 + number / 100, LESSON) for number in range(10, 20)]
        harm = await counting.harm(LESSON, runs)
        assert (harm.verdict, harm.with_runs, harm.without_runs) == ("hurts", 10, 10)
        assert await counting.harm(LESSON, runs) == harm  # the process that was to retire it was killed
        await counting.judged(LESSON, runs[-1].at)
        assert await counting.harm(LESSON, runs) is None

    asyncio.run(main())


def test_a_lesson_that_hurts_is_retired_and_listed(tmp_path):
    async def main():
        async with learning(tmp_path) as lessons:
            for number in range(10):
                await run(lessons, 0.95 + number / 1000)
            lesson = await lessons.record(FAILURE, TASK)
            for number in range(4):
                result = await run(lessons, 0.85 + number / 1000, OTHER)
                assert [advice.source for advice in result.advice] == [lesson.id, "agent/rules.md"]
                lesson = await lessons.get(lesson.id)
                assert lesson.status == ("active" if number < 3 else "retired")
            assert lesson.why.startswith("It hurt: runs with it scored 0.10 less than runs without")
            assert await lessons.counters(lesson.id) == Counters(4, 0, 4)
            assert (await run(lessons, 0.95, OTHER)).advice == ()
            assert [one.why for one in await lessons.problems() if one.id == lesson.id] == [
                f"retired: {lesson.why}"
            ]

    asyncio.run(main())


def test_at_most_one_run_of_four_is_given_a_lesson_on_trial():
    async def main():
        counting = Impact(MemoryStore(), "agent")
        given = [await counting.takes_trial("web") for _ in range(40)]
        assert sum(given) == 10
        assert all(sum(given[start : start + 4]) == 1 for start in range(0, 40, 4))
        assert {place % 4 for place, one in enumerate(given) if one} == {0, 1, 2, 3}
        assert not await counting.takes_trial("another type")  # which is counted by itself
        at_once = await asyncio.gather(*(Impact(MemoryStore(), "agent").takes_trial("web") for _ in range(9)))
        assert not any(at_once)
        shared = Impact(MemoryStore(), "agent")
        at_once = await asyncio.gather(*(shared.takes_trial("web") for _ in range(40)))
        assert sum(at_once) <= 10

    asyncio.run(main())


@pytest.mark.parametrize(
    ("scores", "gain"),
    [
        pytest.param([(0.2, False), (0.4, False), (0.9, True)], 0.6, id="more than the average"),
        pytest.param([(0.5, False), (0.4, True), (0.3, True)], -0.3, id="less, in two runs"),
        pytest.param([(0.9, True)], None, id="nothing to compare with"),
        pytest.param([(0.9, False), (None, True)], None, id="no score"),
    ],
)
def test_the_gain_of_a_lesson(scores, gain):
    runs = [scored(number, score, *[LESSON] * has_it) for number, (score, has_it) in enumerate(scores)]
    assert gain_of(LESSON, runs) == (None if gain is None else pytest.approx(gain))


def test_runs_with_lessons_are_compared_with_those_without_by_task_type():
    async def main():
        counting = Impact(MemoryStore(), "agent")
        for number in range(4):
            await counting.count(scored(number, 0.5 + number / 10, *[LESSON] * (number % 2)))
        await counting.count(scored(8, 0.1, task_type="other"))
        await counting.count(scored(9, None, LESSON))
        assert await counting.groups() == [
            [(False, 0.5), (True, 0.6), (False, 0.7), (True, 0.8)],
            [(False, 0.1)],
        ]

    asyncio.run(main())
