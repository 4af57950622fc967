"""The impact of lessons: what counts as help and as harm, and what follows from it."""

import asyncio
from datetime import timedelta
from random import Random
from statistics import median

import pytest

from redraft import MemoryStore
from redraft.lessons.impact import Counters, Impact, ScoredRun
from redraft.lessons.obedience import Obedience, changes_after
from support.learning_agents import OTHER, START, TASK, learning, run
from support.lessons import FAILURE
from support.lessons import lesson as made

LESSON = "agent/2026-03-01-a-lesson"


def scored(number, score, *lessons, task_type="web"):
    at = START + timedelta(minutes=number)
    return ScoredRun(f"r{number}", "agent", at, score, task_type, lessons)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        pytest.param([(0.9, True)], (1, 0, 0), id="nothing to compare with"),
        pytest.param([(0.4, False)] * 12 + [(0.9, True)] * 3, (3, 0, 0), id="too few to show anything"),
        pytest.param([(0.4, False)] * 12 + [(0.9, True)] * 5, (5, 2, 0), id="shown to help by the fourth"),
        pytest.param([(0.4, False)] * 12 + [(0.1, True)] * 5, (5, 0, 2), id="shown to hurt by the fourth"),
        pytest.param([(0.4, False)] * 12 + [(0.9, True)] * 4 + [(None, True)], (5, 1, 0), id="no score"),
        pytest.param([(0.5, False), (0.9, True)] * 9, (9, 4, 0), id="shown to help by the sixth of each"),
        pytest.param(
            [(1, False), (1, True)] * 9 + [(0, False), (0, True)], (10, 0, 0), id="nine in ten pass"
        ),
    ],
)
def test_uses_are_counted_as_helped_or_hurt_once_that_is_shown(runs, expected):
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


def test_only_runs_since_the_last_verdict_count():
    async def main():
        counting = Impact(MemoryStore(), "agent")
        for number in range(10):
            assert await counting.count(scored(number, 0.8 + number / 100)) == {}
        for number in range(10, 20):
            found = await counting.count(scored(number, 0.2 + number / 100, LESSON))
        harm = found[LESSON]
        assert (harm.verdict, harm.with_runs, harm.without_runs) == ("hurts", 10, 10)
        again = await counting.count(scored(19, 0.39, LESSON))  # the process that was to retire it was killed
        assert again == found
        await counting.judged(LESSON, scored(19, 0).at)
        assert (await counting.count(scored(20, 0.4, LESSON)))[LESSON].with_runs == 1

    asyncio.run(main())


def test_after_a_verdict_by_a_clock_that_was_ahead_runs_count_from_now_on():
    async def main():
        counting = Impact(MemoryStore(), "agent")
        await counting.judged(LESSON, START + timedelta(days=400))
        numbers = []
        for number in range(3):
            found = await counting.count(scored(number, 0.5, LESSON), {LESSON: False})
            numbers.append(found[LESSON].with_runs)
        assert numbers == [0, 1, 2]
        assert await counting.obedience(LESSON, START) == Obedience.of([False, False])

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
            assert await lessons.counters(lesson.id) == Counters(4, 0, 1, obeyed=4)
            assert (await run(lessons, 0.95, OTHER)).advice == ()
            assert [problem.why for problem in await lessons.problems() if problem.id == lesson.id] == [
                f"retired: {lesson.why}"
            ]

    asyncio.run(main())


def test_at_most_one_run_in_four_gets_a_lesson_on_trial():
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


# --- whether a lesson is obeyed ----------------------------------------------------------------------------


def told(obeyed, runs=200, seed=0):
    """Simulate runs that obey a lesson with a probability; return when it is stressed and retired."""
    chance, history, stressed = Random(seed), [], None  # noqa: S311 (a simulation)
    for number in range(1, runs + 1):
        history.append(chance.random() < (obeyed(number) if callable(obeyed) else obeyed))
        now = Obedience.of(history)
        stressed = stressed or (number if now.is_disobeyed else None)
        if now.is_in_vain:
            return stressed, number
    return stressed, None


@pytest.mark.parametrize(
    ("obeyed", "stressed_by", "retired_by", "share"),
    [
        pytest.param(0, 5, 13, 1, id="never"),
        pytest.param(0.1, 6, 25, 1, id="by one run in ten"),
        pytest.param(0.5, None, None, 0, id="by half of the runs"),
        pytest.param(0.8, None, None, 0, id="by most runs"),
        pytest.param(lambda run: 0.9 * (run < 60), 75, 80, 1, id="by none from run 60"),
    ],
)
def test_a_lesson_is_stressed_and_retired_by_how_often_it_is_obeyed(obeyed, stressed_by, retired_by, share):
    ends = [told(obeyed, seed=seed) for seed in range(100)]
    retired = [run for _, run in ends if run is not None]
    assert len(retired) == share * len(ends)
    if retired:
        assert median(run for run, _ in ends) <= stressed_by
        assert median(retired) <= retired_by


@pytest.mark.parametrize(
    ("runs", "confidence", "disobeyed", "status"),
    [
        pytest.param("+", 0.7, "", "active", id="obeyed"),
        pytest.param("?", 0.7, "", "active", id="unknown"),
        pytest.param("-", 0.59, "", "active", id="failed again"),
        pytest.param("-+", 0.69, "", "active", id="made up for"),
        pytest.param("-++++", 0.69, "", "active", id="no more than it was"),
        pytest.param("-----", 0.31, "told in 5 runs, failed again in 5", "active", id="in vain"),
        pytest.param("--?---", 0.31, "told in 5 runs, failed again in 5", "active", id="unknown counts not"),
        pytest.param("-----+++", 0.5, "told in 5 runs, failed again in 5", "active", id="obeyed again"),
        pytest.param("-----+++++", 0.69, "", "active", id="obeyed as often"),
        pytest.param("-" * 13, 0.14, "told in 13 runs, failed again in 13", "retired", id="still in vain"),
    ],
)
def test_failing_again_lowers_confidence_and_obeying_restores_it(runs, confidence, disobeyed, status):
    async def main():
        impact, filed = Impact(MemoryStore(), "agent"), made(id=LESSON)
        for number, mark in enumerate(runs):
            for _ in range(2):  # resumed: counts once
                before = await impact.obedience(LESSON, START)
                await impact.count(scored(number, None, LESSON), {LESSON: {"+": True, "-": False}.get(mark)})
                changes = changes_after(filed, before, await impact.obedience(LESSON, START))
                filed = made(**({"id": LESSON} | fields_of(filed) | changes))
        assert (round(filed.confidence, 1), filed.disobeyed, filed.status) == (
            round(confidence, 1),
            disobeyed,
            status,
        )
        expected = Counters(len(runs), obeyed=runs.count("+"), failed_again=runs.count("-"))
        assert await impact.counters(LESSON) == expected

    asyncio.run(main())


def fields_of(lesson):
    return {name: getattr(lesson, name) for name in ("confidence", "disobeyed", "status", "why")}


def test_a_use_that_says_nothing_about_obedience_can_fail_later():
    async def main():
        impact = Impact(MemoryStore(), "agent")
        await impact.count(scored(1, 0.5, LESSON))
        assert await impact.obedience(LESSON, START) == Obedience()
        assert await impact.counters(LESSON) == Counters(1)
        await impact.fail(LESSON, "r1", START)
        assert await impact.obedience(LESSON, START) == Obedience(1, 1, 1)

    asyncio.run(main())
