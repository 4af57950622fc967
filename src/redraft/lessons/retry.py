"""Retry with lessons: each attempt at a task gets what the earlier ones taught."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from math import hypot
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from redraft._calls import awaited
from redraft._critique import render_critique
from redraft._texts import as_text
from redraft._validation import check_count
from redraft._verdicts import evaluation_of
from redraft.errors import ConfigError, EscalationError
from redraft.lessons.lesson import Content, Lesson, headings_of, is_empty
from redraft.lessons.outcome import Outcome, outcome_of, score_of
from redraft.redact.log import logger
from redraft.text.characters import without_middle
from redraft.text.replies import fenced
from redraft.types import Issue, PlainTask, ReflectionEvaluation, ReflectionResult

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_RETRIES = 3
"""Reflexion Protocol, section 7."""

T = TypeVar("T")


@runtime_checkable
class Reflects(Protocol):
    """What a chain of attempts needs of its lessons; implemented by `Lessons`."""

    async def reflect_on(self, outcome: Outcome, /) -> Lesson | None:
        """Return the lesson that an outcome teaches; None if there is none."""
        ...

    async def approve(self, lesson_id: str, why: str, /) -> object:
        """Start using a quarantined lesson."""
        ...


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
    that an evaluator may return; by default, a `ReflectionResult` fails if it is not a success. What was
    tried and learned is passed as text to the parameter `feedback` or `lessons` of `fn`, or else added to the
    task. A parameter `attempt` gets the number of the attempt, from 1. All functions may be async or not.

    An attempt gets all lessons of the chain, quarantined ones included; a lesson with which an attempt does
    better is approved. If a reflection fails, this is logged, and the next attempt gets the error alone.
    After `max_retries` retries, an `EscalationError` is raised, or passed to `on_escalate`, whose value is
    returned. A `ConfigError` is raised at once, since no lesson can help. Reflexion Protocol, section 7.
    """
    check_count("max_retries", max_retries, 0)
    if not isinstance(lessons, Reflects):  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise ConfigError(f"lessons must be Lessons, or have reflect_on and approve; got {lessons!r}.")
    call = _Call.of(fn, task)
    chain = _Chain(task if isinstance(task, PlainTask) else PlainTask(task), lessons)
    for number in range(1, max_retries + 2):
        attempt = await _attempt(call, chain, number, succeeded)
        await chain.approve_what_helped(attempt)
        if attempt.succeeded:
            return attempt.value
        await chain.learn_from(attempt)
    error = chain.escalation()
    if on_escalate is not None:
        return await awaited(on_escalate)(error)
    raise error from chain.attempts[-1].error


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

        # Without the signature: callers give the task alone.
        update_wrapper(retried, fn, ("__module__", "__name__", "__qualname__", "__doc__"))
        vars(retried).pop("__wrapped__")
        return retried

    return decorate


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The value of an attempt and the verdict on it, or its error.

    `lesson` is what a failed attempt taught, None if nothing.
    """

    value: Any = None
    verdict: ReflectionEvaluation | None = None
    error: Exception | None = None
    lesson: Lesson | None = None

    @property
    def succeeded(self) -> bool:
        return self.verdict is not None and self.verdict.satisfactory

    @property
    def problem(self) -> str:
        """Why it failed, in the words of the program."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "" if self.verdict is None else render_critique(self.verdict)

    def is_better_than(self, earlier: _Attempt) -> bool:
        """Return whether it succeeded, or scored more than an earlier one, beyond the noise."""
        if self.succeeded or self.verdict is None or earlier.verdict is None:
            return self.succeeded
        score, before = self.verdict.overall_score, earlier.verdict.overall_score
        noise = hypot(self.verdict.spread, earlier.verdict.spread)
        return score is not None and before is not None and score - before > noise

    @property
    def result(self) -> ReflectionResult | None:
        """What it returned, if that is the result of a run."""
        return _result_in(self.value)

    def outcome(self, task: PlainTask) -> Outcome:
        ended = outcome_of(self.result) if self.result is not None else None
        if ended is not None:
            # The caller's verdict overrules a run that is a success by its own criteria.
            status = "failed" if ended.status == "success" else ended.status
            return replace(ended, status=status, error=ended.error or self.problem)
        output = "" if self.value is None else as_text(self.value)
        return Outcome(task, "failed", output=output, error=self.problem, tools=task.tools)


async def _attempt(
    call: _Call, chain: _Chain, number: int, succeeded: Callable[[Any], Any] | None
) -> _Attempt:
    try:
        value = await call(feedback_on(chain.attempts), number)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 (any error can teach something)
        return _Attempt(error=error)
    if succeeded is None:
        return _Attempt(value, _own_verdict(value))
    return _Attempt(value, evaluation_of(await awaited(succeeded)(value)))


def _result_in(value: Any) -> ReflectionResult | None:
    return cast("ReflectionResult", value) if isinstance(value, ReflectionResult) else None


def _own_verdict(value: Any) -> ReflectionEvaluation:
    """Return the verdict of a run on itself; any other value is a success, since nothing was raised."""
    result = _result_in(value)
    if result is None:
        return ReflectionEvaluation(1.0, satisfactory=True)
    issues = result.history.best_version.evaluation.for_writer().issues
    if result.error is not None:
        issues = (*issues, Issue(f"{type(result.error).__name__}: {result.error}"))
    return ReflectionEvaluation(score_of(result), satisfactory=result.success, issues=issues)


@dataclass(slots=True)
class _Chain:
    """The failed attempts at a task, with their outcomes and lessons."""

    task: PlainTask
    lessons: Reflects
    attempts: list[_Attempt] = field(default_factory=list[_Attempt])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    approved: set[str] = field(default_factory=set[str])

    async def learn_from(self, attempt: _Attempt) -> None:
        """Add a failed attempt, after reflecting on it."""
        outcome = attempt.outcome(self.task.plain())
        lesson: Lesson | None = None
        try:
            lesson = await self.lessons.reflect_on(outcome)
        except Exception as error:  # noqa: BLE001 (the next attempt gets the error alone)
            logger.warning(
                "Nothing was learned from attempt %d at %r: %s: %s",
                len(self.attempts) + 1,
                self.task.description[:80],
                type(error).__name__,
                error,
            )
        self.outcomes.append(outcome)
        self.attempts.append(replace(attempt, lesson=lesson))

    async def approve_what_helped(self, attempt: _Attempt) -> None:
        """Approve the quarantined lessons of earlier attempts that this one did better than."""
        for number, earlier in enumerate(self.attempts, 1):
            lesson = earlier.lesson
            if lesson is None or lesson.status != "quarantined" or lesson.id in self.approved:
                continue
            if attempt.is_better_than(earlier):
                self.approved.add(lesson.id)
                why = f"attempt {len(self.attempts) + 1} did better with it than attempt {number}"
                try:
                    await self.lessons.approve(lesson.id, why)
                except Exception as error:  # noqa: BLE001 (the value of the attempt must not be lost)
                    logger.warning(
                        "The lesson %r stays in quarantine: %s: %s", lesson.id, type(error).__name__, error
                    )

    def escalation(self) -> EscalationError:
        """Return the error for a task that is given up, with all that was tried."""
        times = "once" if len(self.attempts) == 1 else f"{len(self.attempts)} times"
        problem = " ".join(self.attempts[-1].problem.split())[:240]
        return EscalationError(
            f"The task {self.task.description[:80]!r} failed {times}; in the end: {problem}",
            outcomes=self.outcomes,
            lessons=[one.lesson for one in self.attempts],
        )


# --- calling the function ----------------------------------------------------------------------------------

_FEEDBACK = ("feedback", "lessons")
_NUMBER = "attempt"


@dataclass(frozen=True, slots=True)
class _Call:
    """A function of a task, and which of its parameters are filled by name."""

    call: Callable[..., Awaitable[Any]]
    task: str | PlainTask
    names: tuple[str, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], task: Any) -> _Call:
        """Inspect a function; raises `ConfigError` if it can't be called with a task."""
        if not isinstance(task, str | PlainTask):
            raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
        if not callable(fn):
            raise ConfigError(f"fn must be a function of a task, got {fn!r}.")
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # a builtin without a signature is called with the task alone
            return cls(awaited(fn), task, ())
        if not parameters:
            raise ConfigError(f"fn is called with a task, but {fn!r} has no parameters.")
        names: list[str] = []
        for one in parameters[1:]:
            if one.name in (*_FEEDBACK, _NUMBER) and one.kind in (
                one.POSITIONAL_OR_KEYWORD,
                one.KEYWORD_ONLY,
            ):
                names.append(one.name)
            elif one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
                raise ConfigError(
                    f"The parameter {one.name!r} of {fn!r} can't be filled: besides the task, 'feedback', "
                    "'lessons' and 'attempt' are filled, by name."
                )
        return cls(awaited(fn), task, tuple(names))

    async def __call__(self, feedback: str, number: int) -> Any:
        """Call the function for an attempt, with its number and the feedback on earlier attempts."""
        task = self.task
        if feedback and not any(name in _FEEDBACK for name in self.names):
            if isinstance(task, str):
                task = f"{feedback}\n\n{task}"
            else:
                task = task.plain()
                task = replace(task, context=f"{task.context}\n\n{feedback}".strip())
        return await self.call(task, **{name: number if name == _NUMBER else feedback for name in self.names})


# --- feedback ----------------------------------------------------------------------------------------------

_INTRODUCTION = (
    "This task was tried {times} before, and failed. Do not do again what failed, and make use of what was "
    "learnt from it."
)
_MOST_FIELD = 800
_MOST_SHOWN = 400
"""Characters of the error and the output of an attempt."""


def feedback_on(attempts: Sequence[_Attempt]) -> str:
    """Render what was tried and learned, each lesson once, for the next attempt; empty for the first."""
    if not attempts:
        return ""
    parts: list[str] = []
    taught: dict[Content, int] = {}
    for number, attempt in enumerate(attempts, 1):
        lines = [f"Attempt {number} failed. {without_middle(attempt.problem, _MOST_SHOWN)}".rstrip()]
        if attempt.value is not None:
            output = attempt.value if attempt.result is None else attempt.result.best_output
            lines.append(f"It gave: {without_middle(as_text(output), _MOST_SHOWN)}")
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
    for name, heading in headings_of(type(content)).items():
        text = getattr(content, name)
        if name != "what_happened" and not is_empty(text):  # shown as the problem and the output
            label = heading if heading.endswith("?") else f"{heading}:"
            lines.append(f"{label} {without_middle(text, _MOST_FIELD)}")
    return lines
