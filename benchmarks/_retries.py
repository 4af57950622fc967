"""Two ways to spend the same calls on a task: retry with lessons, and retry without."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from redraft import ChatRequest, Message, ReflectionPattern
from redraft.lessons.folder import LessonFolder
from redraft.lessons.lesson import Lesson
from redraft.lessons.retry import retry_with_lessons
from redraft.lessons.writer import write_content
from redraft.protocols import ChatModel

if TYPE_CHECKING:
    from _task import BenchTask

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
        written = await write_content(outcome, self)
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
