"""Retrying with lessons beside retrying without: the same small tasks, the same number of calls.

Both arms begin with the same first answer. With lessons, the model reflects on each failure and the next
attempt is told what was learned; without, the same prompt is sent again at a temperature. A reflection counts
as a call.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from _measure import options, publish, table
from _model import model_given, model_options
from small_tasks import EXTRACTIONS, FUNCTIONS, WRITINGS

from redraft import ChatRequest, Message, ReflectionPattern
from redraft.lessons.folder import LessonFolder
from redraft.lessons.lesson import Lesson
from redraft.lessons.retry import retry_with_lessons
from redraft.lessons.writer import write_reflection
from redraft.protocols import ChatModel

if TYPE_CHECKING:
    from _tasks import BenchTask

    from redraft import ChatReply
    from redraft.lessons.outcome import Outcome


RETRIES = 2
TEMPERATURE = 0.7
SYSTEM = (
    "Reply with exactly what is asked for and nothing else: no introduction, no explanation. "
    "Put Python code into one ```python fence, complete with its imports."
)


@dataclass(slots=True)
class Filing:
    """Write lessons to a folder, and count what is asked of the model."""

    model: ChatModel
    folder: LessonFolder
    day: date
    calls: int = 0
    plain: int = 0

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Give the model's reply."""
        self.calls += 1
        return await self.model(request)

    async def reflect_on(self, outcome: Outcome, /) -> Lesson:
        """File what the model says of an outcome."""
        written = await write_reflection(outcome, self)
        self.plain += bool(written.problem)
        summary = " ".join(outcome.task.description.split()[:5])
        lesson = Lesson(
            written.content,
            self.folder.agent,
            self.day,
            summary,
            outcome.task.description,
            status="quarantined",
            confidence=written.confidence,
            source=outcome.run_id,
        )
        return self.folder.add(lesson)

    async def approve(self, lesson_id: str, why: str, /) -> None:
        """Leave it: nothing is recalled here."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What both ways made of one task: outputs in their order, and which (from 0) each returns.

    `calls` is how many each made; of those with lessons, `reflections` were no attempts, and `plain` of the
    lessons could not be taken from the model's reply.
    """

    task: str
    calls: int
    reflections: int
    plain: int
    first_met: bool
    with_met: bool
    without_met: bool
    with_solved: bool = False
    without_solved: bool = False
    with_outputs: list[str] = field(default_factory=list[str])
    without_outputs: list[str] = field(default_factory=list[str])


async def pair_of(task: BenchTask, model: ChatModel, day: date) -> Pair:
    """Try a task with lessons, and then without, with as many calls."""
    pattern = ReflectionPattern(quality_criteria=task.criteria)
    outputs: list[str] = []
    with TemporaryDirectory() as folder:
        filing = Filing(model, LessonFolder(Path(folder), "benchmark"), day)

        async def attempt(prompt: str) -> str:
            reply = await filing(_request(prompt))
            outputs.append(reply.text)
            return reply.text

        def give_up(_error: object) -> str:
            return outputs[-1]

        output = await retry_with_lessons(
            attempt,
            task.prompt,
            lessons=filing,
            max_retries=RETRIES,
            succeeded=pattern.reflect,
            on_escalate=give_up,
        )
    samples = await _samples(task, model, pattern, filing.calls)
    return Pair(
        task.name,
        filing.calls,
        filing.calls - len(outputs),
        filing.plain,
        (await pattern.reflect(outputs[0])).satisfactory,
        (await pattern.reflect(output)).satisfactory,
        (await pattern.reflect(samples[-1])).satisfactory,
        await _solves(task, pattern, output),
        await _solves(task, pattern, samples[-1]),
        outputs,
        samples,
    )


async def _samples(task: BenchTask, model: ChatModel, pattern: ReflectionPattern, calls: int) -> list[str]:
    """Ask the same again until an answer passes the visible checks, the first time without a temperature."""
    outputs: list[str] = []
    for number in range(calls):
        reply = await model(_request(task.prompt, TEMPERATURE if number else None))
        outputs.append(reply.text)
        if (await pattern.reflect(reply.text)).satisfactory:
            break
    return outputs


async def _solves(task: BenchTask, pattern: ReflectionPattern, output: str) -> bool:
    if task.hidden is None:
        return (await pattern.reflect(output)).satisfactory
    return await task.hidden(output)


def _request(prompt: str, temperature: float | None = None) -> ChatRequest:
    return ChatRequest((Message("system", SYSTEM), Message("user", prompt)), temperature=temperature)


DAY = date(2026, 3, 1)
TASKS = tuple(chain.from_iterable(zip(FUNCTIONS, EXTRACTIONS, WRITINGS, strict=True)))
"""Kind after kind by turns, so that the first few are of all kinds."""


async def pairs_of(model: ChatModel, limit: int) -> list[Pair]:
    """Try the first tasks both ways."""
    pairs: list[Pair] = []
    for task in TASKS[:limit]:
        pairs.append(await pair_of(task, model, DAY))
        print(told(pairs[-1]), file=sys.stderr, flush=True)
    return pairs


def told(pair: Pair) -> str:
    """Render a line of progress."""
    marks = "".join("-+"[met] for met in (pair.first_met, pair.with_met, pair.without_met))
    return (
        f"{pair.task:24} {pair.calls} calls, first/with/without {marks}, lessons without model {pair.plain}"
    )


def pairs_table(pairs: list[Pair]) -> str:
    """Render what retrying made of the tasks whose first answer fails."""
    retried = [pair for pair in pairs if not pair.first_met]
    reflections = sum(pair.reflections for pair in retried)
    attempts = sum(len(pair.with_outputs) for pair in retried)
    samples = sum(len(pair.without_outputs) for pair in retried)
    rows = [
        (
            "passes the visible checks in the end",
            sum(pair.with_met for pair in retried),
            sum(pair.without_met for pair in retried),
        ),
        (
            "solved (hidden checks, too)",
            sum(pair.with_solved for pair in retried),
            sum(pair.without_solved for pair in retried),
        ),
        ("calls allowed", *[sum(pair.calls for pair in retried)] * 2),
        ("calls made", attempts + reflections, samples),
        ("... of these reflections", reflections, 0),
        ("lessons that had to be made without the model", sum(pair.plain for pair in retried), 0),
    ]
    head = (f"{len(retried)} of {len(pairs)} tasks, whose first answer fails", "with lessons", "without")
    return f"{table(head, rows)}\n\nAt most {RETRIES} retries with lessons. {_only(retried)}"


def _only(pairs: list[Pair]) -> str:
    ours = [pair.task for pair in pairs if pair.with_solved and not pair.without_solved]
    theirs = [pair.task for pair in pairs if pair.without_solved and not pair.with_solved]
    return (
        f"Solved only with lessons: {', '.join(ours) or 'none'}; only without: {', '.join(theirs) or 'none'}."
    )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--limit", type=int, default=len(TASKS), help="how many tasks, of all kinds")
    model_options(parser)
    given = parser.parse_args()
    model = model_given(given)
    publish("lessons_retries", pairs_table(asyncio.run(pairs_of(model, given.limit))), write=given.write)


if __name__ == "__main__":
    main()
