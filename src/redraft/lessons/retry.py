"""Retry with lessons: each attempt at a task gets the lessons of the earlier attempts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from math import hypot
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from redraft._calls import awaited
from redraft._critique import render_critique
from redraft._hints import keyword_hints
from redraft._prompts import mistake_text
from redraft._texts import as_text
from redraft._validation import check_count, named_error
from redraft._verdicts import evaluation_of
from redraft.errors import ConfigError, EscalationError, ModelError
from redraft.evaluate.requirements import missed_requirements
from redraft.lessons.lesson import Content, Lesson, headings_of, is_empty
from redraft.lessons.outcome import Outcome, issue_lines, outcome_of, score_of
from redraft.memory.safety import restorer
from redraft.protocols import FRESH_TEMPERATURE, Mistake, MistakeAdvisor
from redraft.redact.log import logger
from redraft.text.characters import without_middle
from redraft.text.replies import fenced
from redraft.types import Issue, PlainTask, ReflectionEvaluation, ReflectionResult, in_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_RETRIES = 3
"""Default number of attempts after the first."""

T = TypeVar("T")


@runtime_checkable
class Reflects(Protocol):
    """Learns from failed attempts; implemented by `Lessons`."""

    async def reflect_on(self, outcome: Outcome, /) -> Lesson | None:
        """The lesson that an outcome teaches; None if there is none."""
        ...

    async def release(self, lesson_id: str, why: str, /) -> object:
        """Start using a quarantined lesson that has helped."""
        ...


@keyword_hints()
async def retry_with_lessons(
    fn: Callable[..., Awaitable[T] | T],
    task: str | PlainTask,
    *,
    lessons: Reflects,
    max_retries: int = MAX_RETRIES,
    succeeded: Callable[[Any], Any] | None = None,
    on_escalate: Callable[[EscalationError], Any] | None = None,
) -> T | Any:
    """Call `fn` with a task until it succeeds, reflecting on each failure.

    An attempt fails if `fn` raises an error, or if `succeeded`, called with its value, says so in any form
    that an evaluator may return; by default, a `ReflectionResult` fails if it is not a success. A retry gets
    feedback on the failures and the lessons, but not the failed output, which models tend to repeat. The
    feedback is passed to the parameter `feedback` or `lessons` of `fn`, or else added to the task. A
    parameter `attempt` gets the number of the attempt, from 1; `temperature` gets None for the first attempt
    and 0.7 for retries, or None if the model refuses a temperature. `Agent.run` has such a parameter. All
    functions may be async or not.

    An attempt gets all lessons of the chain, including quarantined ones; a lesson with which an attempt does
    better is released. It also gets earlier lessons on the same failure (see `Lessons.advise_on`). If a
    reflection fails, this is logged, and the next attempt gets the error alone. After `max_retries` retries,
    an `EscalationError` is raised, or passed to `on_escalate`, whose value is returned. A `ConfigError` is
    raised immediately, since no lesson can help.
    """
    check_count("max_retries", max_retries, 0)
    if not isinstance(lessons, Reflects):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise ConfigError(f"lessons must be Lessons, or have reflect_on and release; got {lessons!r}.")
    call = _Call.of(fn, task)
    chain = _Chain(task if isinstance(task, PlainTask) else PlainTask(task), lessons)
    for number in range(1, max_retries + 2):
        attempt = await _attempt(call, number, await chain.feedback() if number > 1 else "", succeeded)
        await chain.release_helpful(attempt)
        if attempt.succeeded:
            return attempt.value
        await chain.add(attempt)
    error = chain.escalation()
    if on_escalate is not None:
        return await awaited(on_escalate)(error)
    raise error from chain.attempts[-1].error


@keyword_hints()
def retried_with_lessons(
    *,
    lessons: Reflects,
    max_retries: int = MAX_RETRIES,
    succeeded: Callable[[Any], Any] | None = None,
    on_escalate: Callable[[EscalationError], Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[[str | PlainTask], Awaitable[Any]]]:
    """Decorate a function of a task so that it is retried with lessons (see `retry_with_lessons`)."""
    check_count("max_retries", max_retries, 0)

    def decorate(fn: Callable[..., Any]) -> Callable[[str | PlainTask], Awaitable[Any]]:
        async def retried(task: str | PlainTask) -> Any:
            return await retry_with_lessons(
                fn,
                task,
                lessons=lessons,
                max_retries=max_retries,
                succeeded=succeeded,
                on_escalate=on_escalate,
            )

        # Without the signature: callers only pass the task.
        update_wrapper(retried, fn, ("__module__", "__name__", "__qualname__", "__doc__"))
        vars(retried).pop("__wrapped__")
        return retried

    return decorate


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The value of an attempt and the verdict on it, or its error."""

    value: Any = None
    verdict: ReflectionEvaluation | None = None
    error: Exception | None = None
    lesson: Lesson | None = None
    """The lesson of a failed attempt."""

    @property
    def succeeded(self) -> bool:
        return self.verdict is not None and self.verdict.satisfactory

    @property
    def problem(self) -> str:
        """Why it failed, in the words of the program."""
        if self.error is not None:
            return named_error(self.error)
        return "" if self.verdict is None else render_critique(self.verdict)

    def is_better_than(self, earlier: _Attempt) -> bool:
        """Whether it succeeded, or scored higher than an earlier attempt by more than the noise."""
        if self.succeeded or self.verdict is None or earlier.verdict is None:
            return self.succeeded
        score, before = self.verdict.overall_score, earlier.verdict.overall_score
        noise = hypot(self.verdict.spread, earlier.verdict.spread)
        return score is not None and before is not None and score - before > noise

    @property
    def result(self) -> ReflectionResult | None:
        """Its value, if that is the result of a run."""
        return _result_in(self.value)

    def mistake(self, feedback: str) -> Mistake:
        """The failure, for finding lessons about it; `feedback` states it already."""
        result = self.result
        error = self.error or (result and result.error)
        if self.verdict is None or error is not None:
            return Mistake((named_error(error),) if error else (), stated=(feedback,))
        evaluation = self.verdict.for_writer()
        named = (
            *(evaluation.unmet or ()),
            *(issue.criterion for issue in evaluation.issues if issue.criterion),
        )
        required = () if result is None else missed_requirements(result.criteria, evaluation.issues)
        return Mistake(
            tuple(map(str, evaluation.issues)),
            tuple(dict.fromkeys(named)),
            tuple(required),
            stated=(feedback,),
        )

    def outcome(self, task: PlainTask) -> Outcome:
        ended = outcome_of(self.result) if self.result is not None else None
        if ended is not None:
            # The caller's verdict overrules a run that is a success by its own criteria.
            status = "failed" if ended.status == "success" else ended.status
            return replace(ended, status=status, error=ended.error or self.problem)
        value = self.value if self.result is None else self.result.best_output
        output = "" if value is None else as_text(value)
        issues = () if self.verdict is None else issue_lines(self.verdict.for_writer())
        return Outcome(task, "failed", output=output, error=self.problem, tools=task.tools, issues=issues)


async def _attempt(
    call: _Call, number: int, feedback: str, succeeded: Callable[[Any], Any] | None
) -> _Attempt:
    try:
        value = await call(feedback, number)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 (any error can teach something)
        return _Attempt(error=error)
    verdict = _own_verdict(value) if succeeded is None else evaluation_of(await awaited(succeeded)(value))
    return _Attempt(value, verdict)


def _result_in(value: Any) -> ReflectionResult | None:
    return cast("ReflectionResult", value) if isinstance(value, ReflectionResult) else None


def _own_verdict(value: Any) -> ReflectionEvaluation:
    """The verdict of a run on itself; any other value is a success, since no error was raised."""
    result = _result_in(value)
    if result is None:
        return ReflectionEvaluation(1.0, satisfactory=True)
    best = result.history.best_version.evaluation
    issues = best.for_writer().issues
    if result.error is not None:
        issues = (*issues, Issue(named_error(result.error)))
    score = score_of(result)
    return ReflectionEvaluation(score, satisfactory=result.success, issues=issues)


@dataclass(slots=True)
class _Chain:
    """The failed attempts at a task, with their outcomes and lessons."""

    task: PlainTask
    lessons: Reflects
    attempts: list[_Attempt] = field(default_factory=list[_Attempt])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    released: set[str] = field(default_factory=set[str])

    async def add(self, attempt: _Attempt) -> None:
        """Add a failed attempt, and reflect on it."""
        self.outcomes.append(attempt.outcome(self.task.plain()))
        try:
            lesson = await self.lessons.reflect_on(self.outcomes[-1])
        except Exception as error:  # noqa: BLE001 (the next attempt gets the error alone)
            lesson = None
            logger.warning(
                "Nothing was learned from attempt %d at %r: %s: %s",
                len(self.outcomes),
                self.task.description[:80],
                type(error).__name__,
                error,
            )
        self.attempts.append(replace(attempt, lesson=lesson))

    async def release_helpful(self, attempt: _Attempt) -> None:
        """Release the quarantined lessons of earlier attempts that did worse than this attempt."""
        for number, earlier in enumerate(self.attempts, 1):
            lesson = earlier.lesson
            if lesson is None or lesson.status != "quarantined" or lesson.id in self.released:
                continue
            if attempt.is_better_than(earlier):
                self.released.add(lesson.id)
                why = f"attempt {len(self.attempts) + 1} did better with it than attempt {number}"
                try:
                    await self.lessons.release(lesson.id, why)
                except Exception as error:  # noqa: BLE001 (the value of the attempt must not be lost)
                    logger.warning(
                        "The lesson %r stays in quarantine: %s: %s", lesson.id, type(error).__name__, error
                    )

    async def feedback(self) -> str:
        """The failures and lessons of this chain, and earlier lessons on the same failure."""
        task, last = self.task.plain(), self.attempts[-1]
        said = (task.description, task.expected_output, *(attempt.problem for attempt in self.attempts))
        feedback = await asyncio.to_thread(lambda: restorer(*said)(feedback_on(self.attempts)))
        if not isinstance(self.lessons, MistakeAdvisor):
            return feedback
        # The chain's lessons are in the feedback, and a run receives the same advice at its start as before.
        known_ids = {attempt.lesson.id for attempt in self.attempts if attempt.lesson is not None}
        known_ids.update(
            piece.source for piece in (last.result.advice if last.result else ()) if not piece.after
        )
        try:
            advice = await self.lessons.advise_on(task, last.mistake(feedback))
        except Exception as error:  # noqa: BLE001 (the next attempt gets the feedback alone)
            logger.warning("No lesson on what failed was found: %s: %s", type(error).__name__, error)
            return feedback
        advice = [piece for piece in advice if piece.source not in known_ids]
        return f"{feedback}\n\n{mistake_text(advice)}" if advice else feedback

    def escalation(self) -> EscalationError:
        """The error for an abandoned task, with all attempts."""
        times = "once" if len(self.attempts) == 1 else f"{len(self.attempts)} times"
        problem = in_one_line(self.attempts[-1].problem)[:240]
        return EscalationError(
            f"The task {self.task.description[:80]!r} failed {times}; in the end: {problem}",
            outcomes=self.outcomes,
            lessons=[attempt.lesson for attempt in self.attempts],
        )


# --- calling the function ----------------------------------------------------------------------------------

_FEEDBACK = ("feedback", "lessons")
_NUMBER = "attempt"
_TEMPERATURE = "temperature"


@dataclass(slots=True)
class _Call:
    """A function of a task, with the names of the parameters that are filled."""

    call: Callable[..., Awaitable[Any]]
    task: str | PlainTask
    names: tuple[str, ...]
    temperature: float | None = None
    """The temperature of retries; None if the function takes none, or its model refuses it."""

    @classmethod
    def of(cls, fn: Callable[..., Any], task: Any) -> _Call:
        """Inspect a function; raises `ConfigError` if it can't be called with a task."""
        if not isinstance(task, str | PlainTask):
            raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
        if not callable(fn):
            raise ConfigError(f"fn must be a function of a task, got {fn!r}.")
        try:
            signature = inspect.signature(fn)
        except (TypeError, ValueError):  # a builtin without a signature is called with the task alone
            return cls(awaited(fn), task, ())
        by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        names = [
            name
            for name, parameter in list(signature.parameters.items())[1:]
            if name in (*_FEEDBACK, _NUMBER, _TEMPERATURE) and parameter.kind in by_name
        ]
        try:
            signature.bind(task, **dict.fromkeys(names))
        except TypeError as error:
            raise ConfigError(
                f"{fn!r} can't be called with a task: {error}. Besides the task, only 'feedback', 'lessons', "
                "'attempt' and 'temperature' are passed, by name."
            ) from error
        return cls(awaited(fn), task, tuple(names), FRESH_TEMPERATURE if _TEMPERATURE in names else None)

    async def __call__(self, feedback: str, number: int) -> Any:
        """Call the function for an attempt, with its number and the feedback on earlier attempts.

        If its model refuses a temperature, this call and all later ones go without.
        """
        temperature = self.temperature if number > 1 else None
        try:
            return await self._call(feedback, number, temperature)
        except ModelError as error:
            if temperature is None or not error.refuses_temperature:
                raise
        self.temperature = None
        return await self._call(feedback, number, None)

    async def _call(self, feedback: str, number: int, temperature: float | None) -> Any:
        task = self.task
        if feedback and not any(name in _FEEDBACK for name in self.names):
            if isinstance(task, str):
                task = f"{feedback}\n\n{task}"
            else:
                task = task.plain()
                task = replace(task, context=f"{task.context}\n\n{feedback}".strip())
        filled: dict[str, Any] = {_NUMBER: number, _TEMPERATURE: temperature}
        return await self.call(task, **{name: filled.get(name, feedback) for name in self.names})


# --- feedback ----------------------------------------------------------------------------------------------

_INTRODUCTION = (
    "This task was tried {times} before, and failed. Start anew: your answer must have none of the problems "
    "below. Make use of what was learnt from them."
)
_MOST_FIELD = 800
"""Maximum characters of the problem of an attempt, and of a field of its lesson."""


def feedback_on(attempts: Sequence[_Attempt]) -> str:
    """Render the failures and lessons, each only once, for the next attempt.

    The failed outputs are hidden, since models tend to repeat them.
    """
    parts: list[str] = []
    failed: dict[str, int] = {}
    taught: dict[Content, int] = {}
    for number, attempt in enumerate(attempts, 1):
        problem = without_middle(attempt.problem, _MOST_FIELD)
        first = failed.setdefault(problem, number)
        how = f". {problem}" if first == number else f" in the same way as attempt {first}."
        lines = [f"Attempt {number} failed{how}".rstrip()]
        if attempt.lesson is not None:
            first = taught.setdefault(attempt.lesson.content, number)
            again = f"It taught the same as attempt {first}."
            lines += _lesson_lines(attempt.lesson.content) if first == number else [again]
        parts.append("\n".join(lines))
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    record = fenced("\n\n".join(parts), "record of earlier attempts")
    return f"{_INTRODUCTION.format(times=times)}\n{record}"


def _lesson_lines(content: Content) -> list[str]:
    lines: list[str] = []
    headings = headings_of(type(content))
    for name, text in content.texts.items():
        if name != "what_happened" and not is_empty(text):  # shown as the problem and the output
            label = headings[name] if headings[name].endswith("?") else f"{headings[name]}:"
            lines.append(f"{label} {without_middle(text, _MOST_FIELD)}")
    return lines
