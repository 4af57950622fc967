"""Lessons beside none: similar tasks in which one mistake repeats, one after the other.

With `lessons`, a run makes one draft, so that only a lesson can tell it what an earlier run did wrong. With
`loop`, it revises, and is told what fails; with `loop+lessons`, lessons come at the start and when it fails.
Every failure is reflected on, by the same model, and nobody approves a lesson. A notice or a caption that is
not in the style of the house is corrected by a person, and the correction is a lesson. Resampling may ask as
often as a run with lessons may call the model in all: a draft, a reflection, and a second one if the first
can't be used. Seeds decide the order of the tasks.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from _arms import SYSTEM, Replies, Samples, opening_of
from _memory import (
    Benchmark,
    MemoryRun,
    Metered,
    Series,
    arms_table,
    in_order_of,
    pairs_table,
    sampled,
    solves,
)
from _rows import code_version
from environment_families import CORRECTED, ENVIRONMENTS
from families import FAMILIES

from redraft import Agent, Lessons, MemoryStore, ReflectionPattern, Runs
from redraft.loop.ways import forget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from _tasks import BenchTask

VERSION = 4
"""To be raised when an arm, a task or a check changes what it does."""
CALLS = 3
ALL_FAMILIES = FAMILIES | ENVIRONMENTS
START = datetime(2026, 3, 1, 9, tzinfo=UTC)


async def without_lessons(
    family: str, arm: str, seed: int, tasks: Sequence[BenchTask], calls: int, replies: Replies
) -> AsyncIterator[MemoryRun]:
    """Answer each task for itself, with so many calls at most."""
    for place, task in enumerate(tasks, 1):
        model = Metered(Samples(replies, seed))
        output, verdicts = await sampled(task, await opening_of(task, model.samples), model, calls)
        solved = await solves(task, output, met=verdicts[-1].satisfactory)
        yield model.run(task.name, arm, family, place, score=verdicts[0].overall_score, solved=solved)


async def by_agent(
    family: str,
    arm: str,
    seed: int,
    tasks: Sequence[BenchTask],
    corrections: Mapping[str, str],
    replies: Replies,
) -> AsyncIterator[MemoryRun]:
    """Answer the tasks as one agent that learns from its failures, or revises, or both.

    `corrections` are the outputs that a person puts in place of wrong answers, by the names of the tasks.
    """
    forget()
    revisions = CALLS - 1 if "loop" in arm else 0
    with TemporaryDirectory() as folder:
        lessons, store = Lessons(folder, agent=family, store=False, clock=lambda: START), MemoryStore()
        try:
            for place, task in enumerate(tasks, 1):
                model = Metered(Samples(replies, seed))
                pattern = ReflectionPattern(max_iterations=revisions, quality_criteria=task.criteria)
                agent = Agent(
                    model,
                    pattern=pattern,
                    system_prompt=SYSTEM,
                    lessons=lessons if "lessons" in arm else None,
                    keep=store,
                )
                result = await agent.run(task.prompt)
                if result.error is not None:
                    raise result.error
                solved = await solves(task, result.best_output, met=result.success)
                if "lessons" in arm and not solved and task.name in corrections:
                    await Runs(store).correct(result.run_id, corrections[task.name], lessons=lessons)
                await lessons.aclose()  # the new lesson has its vector then, also if the replies are recorded
                yield model.run(
                    task.name,
                    arm,
                    family,
                    place,
                    score=result.history.versions[0].evaluation.overall_score,
                    solved=solved,
                    given=sum(advice.tokens for advice in result.advice),
                    memory="\n\n".join(advice.text for advice in result.advice),
                )
        finally:
            await lessons.aclose()
            await store.aclose()


def series(family: str, arm: str, seed: int) -> list[Series]:
    """Return the tasks of a family in the order of a seed, as one series."""
    chosen = in_order_of(seed, ALL_FAMILIES[family])
    tasks = [each.task for each in chosen]
    if arm in ("lessons", "loop", "loop+lessons"):
        corrections = {each.task.name: each.solution for each in chosen} if family in CORRECTED else {}
        start = partial(by_agent, family, arm, seed, tasks, corrections)
    else:
        start = partial(without_lessons, family, arm, seed, tasks, 1 if arm == "without" else CALLS)
    return [Series(tuple(task.name for task in tasks), arm, seed, start)]


def report(runs: Sequence[MemoryRun]) -> str:
    together = [replace(run, family="all") for run in runs]
    return f"{arms_table(runs)}\n\n{pairs_table(together, 'lessons')}"


BENCHMARK = Benchmark(
    __doc__,
    "transfer",
    tuple(ALL_FAMILIES),
    ("without", "resampling", "lessons", "loop", "loop+lessons"),
    lambda: code_version(VERSION, also=["lessons"]),
    series,
    report,
)

if __name__ == "__main__":
    BENCHMARK.main()
