"""Retrying with lessons beside asking again: the same tasks, and at most six calls a task either way.

With lessons, the model reflects on each failure, and the next attempt is told what was learned: three
attempts and as many reflections. `resample` lets the retry try two answers without feedback first, for one
attempt more and one reflection less. Without lessons, the same prompt is sent again at a temperature. A
reflection is a call. All begin with the same first answer.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from itertools import chain
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from _arms import SYSTEM, Replies, Samples
from _memory import Benchmark, MemoryRun, Metered, Series, arms_table, pairs_table, sampled, solves
from _rows import code_version
from retry_tasks import RETRY_TASKS
from small_tasks import EXTRACTIONS, FUNCTIONS, WRITINGS
from tuning_families import TUNING_RETRIES

from redraft import Lessons, ReflectionPattern, retry_with_lessons
from redraft._texts import estimate_tokens
from redraft.protocols import ChatRequest
from redraft.types import Message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from _tasks import BenchTask

    from redraft import ReflectionEvaluation

VERSION = 1
"""To be raised when an arm, a task or a check changes what it does."""
CALLS = 6
POLICIES: dict[str, dict[str, Any]] = {
    "lessons": {"max_retries": 2},
    "resample": {"max_retries": 3, "resample": True},
}
START = datetime(2026, 3, 1, 9, tzinfo=UTC)
RECORDED = 23
"""Tasks that were recorded first: as many as an hour on one thread allowed."""
TASKS: dict[str, tuple[BenchTask, ...]] = {
    # Kind after kind by turns, so that the first few are of all kinds.
    "recorded": tuple(chain.from_iterable(zip(FUNCTIONS, EXTRACTIONS, WRITINGS, strict=True)))[:RECORDED],
    "further": RETRY_TASKS,
}


async def asked_again(family: str, seed: int, task: BenchTask, replies: Replies) -> AsyncIterator[MemoryRun]:
    """Send the same prompt until an answer passes the visible checks."""
    model = Metered(Samples(replies, seed))
    output, verdicts = await sampled(task, _messages(task.prompt), model, CALLS)
    solved = await solves(task, output, met=verdicts[-1].satisfactory)
    yield model.run(task.name, "resampling", family, 1, score=verdicts[0].overall_score, solved=solved)


async def retried(
    family: str, arm: str, seed: int, task: BenchTask, replies: Replies
) -> AsyncIterator[MemoryRun]:
    """Retry with lessons."""
    model = Metered(Samples(replies, seed))
    pattern = ReflectionPattern(quality_criteria=task.criteria)
    verdicts: list[ReflectionEvaluation] = []
    outputs: list[str] = []
    prompts: list[str] = []

    async def attempt(prompt: str, temperature: float | None = None) -> str:
        prompts.append(prompt)
        reply = await model(ChatRequest(_messages(prompt), temperature=temperature))
        outputs.append(reply.text)
        return reply.text

    async def judge(output: str) -> ReflectionEvaluation:
        verdicts.append(await pattern.reflect(output))
        return verdicts[-1]

    with TemporaryDirectory() as folder:
        # Nothing is recalled, so nothing has to be found by meaning.
        lessons = Lessons(folder, agent=arm, model=model, store=False, embedder="none", clock=lambda: START)
        try:
            await retry_with_lessons(
                attempt,
                task.prompt,
                lessons=lessons,
                succeeded=judge,
                on_escalate=lambda _error: None,
                **POLICIES[arm],
            )
        finally:
            await lessons.aclose()
    told = [prompt for prompt in prompts if prompt != task.prompt]
    yield model.run(
        task.name,
        arm,
        family,
        1,
        score=verdicts[0].overall_score,
        solved=await solves(task, outputs[-1], met=verdicts[-1].satisfactory),
        given=sum(estimate_tokens(prompt) - estimate_tokens(task.prompt) for prompt in told),
        memory="\n\n".join(told),
    )


def _messages(prompt: str) -> tuple[Message, ...]:
    return Message("system", SYSTEM), Message("user", prompt)


def series(family: str, arm: str, seed: int) -> list[Series]:
    """Return the tasks, each a series of its own."""
    found: list[Series] = []
    for task in (TASKS | TUNING_RETRIES)[family]:
        resampling = arm == "resampling"
        start = (
            partial(asked_again, family, seed, task)
            if resampling
            else partial(retried, family, arm, seed, task)
        )
        found.append(Series((task.name,), arm, seed, start))
    return found


def report(runs: Sequence[MemoryRun]) -> str:
    """Render all tasks, and those whose first answer fails."""
    failed = [run for run in runs if run.score is not None and run.score < 1]
    return (
        f"{arms_table(runs)}\n\nOf the tasks whose first answer fails the visible checks:\n\n"
        f"{arms_table(failed)}\n\n{pairs_table(failed, 'lessons')}"
    )


BENCHMARK = Benchmark(
    __doc__,
    "lessons_retries",
    tuple(TASKS),
    ("lessons", "resample", "resampling"),
    lambda: code_version(VERSION, also=["lessons"]),
    series,
    report,
    tuning=tuple(TUNING_RETRIES),
)

if __name__ == "__main__":
    BENCHMARK.main()
