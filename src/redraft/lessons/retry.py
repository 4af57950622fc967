"""Retry with lessons: tell each attempt what went wrong before."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from redraft._calls import awaited, evaluation_of, render_critique
from redraft._texts import as_text
from redraft._validation import check_count
from redraft.errors import ConfigError, EscalationError
from redraft.lessons.lesson import Content, Lesson, headings_of, is_empty
from redraft.lessons.outcome import Outcome, outcome_of, score_of
from redraft.redact.log import logger
from redraft.text.characters import without_middle
from redraft.text.replies import fenced
from redraft.types import Issue, ReflectionEvaluation, ReflectionResult, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_MOST_FIELD = 800
_MOST_SHOWN = 400
"""Characters of what is said of an attempt besides its lesson: its error, its output."""
_OF_THE_RUN = "what_happened"
_BEFORE = (
    "This task was tried {times} before, and failed. Do not do again what failed, and make use of what was "
    "learnt from it."
)


@dataclass(frozen=True, slots=True)
class Tried:
    """Tell how one attempt at a task ended: with a value and what is said of it, or with an exception.

    `lesson` is what was learnt from one that failed, None where nothing could be.
    """

    value: Any = None
    verdict: ReflectionEvaluation | None = None
    error: Exception | None = None
    lesson: Lesson | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it was good enough."""
        return self.verdict is not None and self.verdict.satisfactory

    def is_better_than(self, earlier: Tried) -> bool:
        """Say whether it did better than one before: it succeeded, or scores more, beyond the noise."""
        if self.succeeded or self.verdict is None or earlier.verdict is None:
            return self.succeeded
        score, before = self.verdict.overall_score, earlier.verdict.overall_score
        noise = max(self.verdict.spread, earlier.verdict.spread)
        return score is not None and before is not None and score - before > noise

    def outcome(self, task: Task) -> Outcome:
        """Return how it ended, to be reflected on."""
        ended = outcome_of(self.value) if isinstance(self.value, ReflectionResult) else None
        if ended is not None:
            status = "failed" if ended.status == "success" else ended.status  # as `succeeded` says
            return replace(ended, status=status, error=ended.error or self.why)
        output = "" if self.value is None else as_text(self.value)
        return Outcome(task, "failed", output=output, error=self.why, tools=task.tools)

    @property
    def why(self) -> str:
        """What made it a failure, in the words of the program."""
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "" if self.verdict is None else render_critique(self.verdict)


def verdict_of(value: Any) -> ReflectionEvaluation:
    """Say whether what a function returned is good enough where nobody else says it.

    A run of the loop knows; any other value is, since nothing was raised.
    """
    if not isinstance(value, ReflectionResult):
        return ReflectionEvaluation(1.0, satisfactory=True)
    issues = value.history.best_version.evaluation.issues
    if value.error is not None:
        issues = (*issues, Issue(f"{type(value.error).__name__}: {value.error}"))
    return ReflectionEvaluation(score_of(value), satisfactory=value.success, issues=issues)


def told(attempts: Sequence[Tried]) -> str:
    """Render what was tried and learnt, for the next attempt; empty for the first.

    What was learnt more than once is told once.
    """
    if not attempts:
        return ""
    said = "\n\n".join(_told(attempts, at) for at in range(len(attempts)))
    times = "once" if len(attempts) == 1 else f"{len(attempts)} times"
    return f"{_BEFORE.format(times=times)}\n{fenced(said, 'record of earlier attempts')}"


def _told(attempts: Sequence[Tried], at: int) -> str:
    attempt = attempts[at]
    lines = [f"Attempt {at + 1} failed. {_short(attempt.why)}".rstrip()]
    if attempt.value is not None:
        output = attempt.value.best_output if isinstance(attempt.value, ReflectionResult) else attempt.value
        lines.append(f"It gave: {_short(as_text(output))}")
    if attempt.lesson is not None:
        contents = [one.lesson.content if one.lesson else None for one in attempts]
        first = contents.index(attempt.lesson.content)
        again = f"It taught the same as attempt {first + 1}."
        lines += _learnt(attempt.lesson.content) if first == at else [again]
    return "\n".join(lines)


def _learnt(content: Content) -> list[str]:
    lines: list[str] = []
    for name, heading in headings_of(type(content)).items():
        said = getattr(content, name)
        if name != _OF_THE_RUN and not is_empty(said):
            asked = heading if heading.endswith("?") else f"{heading}:"
            lines.append(f"{asked} {without_middle(said, _MOST_FIELD)}")
    return lines


def _short(text: str) -> str:
    return without_middle(text, _MOST_SHOWN)


_TOLD = ("feedback", "lessons")
_NUMBER = "attempt"


@dataclass(frozen=True, slots=True)
class Calling:
    """Call a function with a task, and with what it asks for by name."""

    call: Callable[..., Awaitable[Any]]
    task: str | Task
    names: tuple[str, ...]

    @classmethod
    def of(cls, fn: Callable[..., Any], task: Any) -> Calling:
        """Look at what a function takes; raises `ConfigError` for one that can't be called so."""
        if not isinstance(task, str | Task):
            raise ConfigError(f"The task must be a text or a Task, got {task!r}.")
        if not callable(fn):
            raise ConfigError(f"fn must be a function of a task, got {fn!r}.")
        try:
            parameters = list(inspect.signature(fn).parameters.values())
        except (TypeError, ValueError):  # a builtin without a signature takes what it is given
            return cls(awaited(fn), task, ())
        if not parameters:
            raise ConfigError(f"fn is called with a task; {fn!r} takes nothing.")
        return cls(awaited(fn), task, tuple(_names(fn, parameters[1:])))

    async def __call__(self, said: str, number: int) -> Any:
        """Call for an attempt by its number (from 1), with what is `said` of those before it."""
        values: dict[str, Any] = {name: number if name == _NUMBER else said for name in self.names}
        takes_it = any(name in _TOLD for name in self.names)
        task = self.task if takes_it or not said else _with(self.task, said)
        return await self.call(task, **values)


def _with(task: str | Task, said: str) -> str | Task:
    """Return a task behind what is said of earlier attempts at it."""
    if isinstance(task, str):
        return f"{said}\n\n{task}"
    asked = task.asked()
    return replace(asked, context=f"{asked.context}\n\n{said}".strip())


def _names(fn: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> Iterator[str]:
    for one in parameters:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            continue
        if one.name in (*_TOLD, _NUMBER) and one.kind is not one.POSITIONAL_ONLY:
            yield one.name
        elif one.default is one.empty:
            raise ConfigError(
                f"Nothing fills the parameter {one.name!r} of {fn!r}: behind the task, 'feedback', 'lessons' "
                "and 'attempt' are filled, by name."
            )


MAX_RETRIES = 3
"""Reflexion Protocol, section 7."""
_SHOWN = 80

T = TypeVar("T")


@runtime_checkable
class Reflects(Protocol):
    """Learn from how a task ended: what `Lessons` is to a chain of attempts."""

    async def reflect_on(self, outcome: Outcome, /) -> Lesson | None:
        """Make a lesson of how a task ended; None where there is nothing to learn."""
        ...

    async def approve(self, lesson_id: str, why: str, /) -> object:
        """Let a lesson out of quarantine, and keep why."""
        ...


async def retry_with_lessons(
    fn: Callable[..., Awaitable[T] | T],
    task: str | Task,
    *,
    lessons: Reflects,
    max_retries: int = MAX_RETRIES,
    succeeded: Callable[[Any], Any] | None = None,
    on_escalate: Callable[[EscalationError], Any] | None = None,
) -> T | Any:
    """Call `fn` with a task until it succeeds; reflect on each failure, and tell the next attempt.

    An attempt fails when `fn` raises, or when `succeeded` says so of what it returned, with any verdict that
    an evaluator may give; without it, when a `ReflectionResult` is no success. What was tried and learnt goes
    to a parameter of `fn` named `feedback` or `lessons`, as a text; if it has none, it is added to the task.
    `attempt` is filled with the attempt's number, from 1. Any function may be async or not.

    All lessons of the chain are told, those in quarantine as well; one of these with which an attempt did
    better is approved. A reflection that fails is logged, and the next attempt is told the error alone. After
    `max_retries` retries, `on_escalate` gets the `EscalationError`, and what it returns is returned; without
    it, that is raised. `ConfigError` passes at once: no lesson mends it. Reflexion Protocol, section 7.
    """
    check_count("max_retries", max_retries, 0)
    if not isinstance(lessons, Reflects):  # pyright: ignore[reportUnnecessaryIsInstance] (whatever is given)
        raise ConfigError(f"lessons must be Lessons, or have reflect_on and approve; got {lessons!r}.")
    calling = Calling.of(fn, task)
    chain = _Chain(task if isinstance(task, Task) else Task(task), lessons)
    for number in range(1, max_retries + 2):
        attempt = await _attempted(calling, chain, number, succeeded)
        await chain.release(attempt)
        if attempt.succeeded:
            return attempt.value
        await chain.learn(attempt)
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
) -> Callable[[Callable[..., Any]], Callable[[str | Task], Awaitable[Any]]]:
    """Make a function of a task into one that is retried with lessons, as `retry_with_lessons` does."""
    check_count("max_retries", max_retries, 0)

    def decorate(fn: Callable[..., Any]) -> Callable[[str | Task], Awaitable[Any]]:
        async def retried(task: str | Task) -> Any:
            return await retry_with_lessons(
                fn,
                task,
                lessons=lessons,
                max_retries=max_retries,
                succeeded=succeeded,
                on_escalate=on_escalate,
            )

        # Not its signature: what the chain fills is no parameter of the whole.
        update_wrapper(retried, fn, ("__module__", "__name__", "__qualname__", "__doc__"))
        vars(retried).pop("__wrapped__")
        return retried

    return decorate


async def _attempted(
    calling: Calling, chain: _Chain, number: int, succeeded: Callable[[Any], Any] | None
) -> Tried:
    try:
        value = await calling(told(chain.attempts), number)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever it is, there is something to learn)
        return Tried(error=error)
    if succeeded is None:
        return Tried(value, verdict_of(value))
    return Tried(value, evaluation_of(await awaited(succeeded)(value)))


@dataclass(slots=True)
class _Chain:
    """Hold the attempts at a task that failed, and what was learnt from each."""

    task: Task
    lessons: Reflects
    attempts: list[Tried] = field(default_factory=list[Tried])
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    released: set[str] = field(default_factory=set[str])

    async def learn(self, attempt: Tried) -> None:
        """Reflect on an attempt that failed."""
        outcome = attempt.outcome(self.task.asked())
        lesson: Lesson | None = None
        try:
            lesson = await self.lessons.reflect_on(outcome)
        except Exception as error:  # noqa: BLE001 (the next attempt is told what is known)
            logger.warning(
                "Nothing was learnt from attempt %d at %r: %s: %s",
                len(self.attempts) + 1,
                self.task.description[:_SHOWN],
                type(error).__name__,
                error,
            )
        self.outcomes.append(outcome)
        self.attempts.append(replace(attempt, lesson=lesson))

    async def release(self, attempt: Tried) -> None:
        """Approve what is in quarantine, and helped an attempt to do better than the one that taught it."""
        for number, earlier in enumerate(self.attempts, 1):
            lesson = earlier.lesson
            if lesson is None or lesson.status != "quarantined" or lesson.id in self.released:
                continue
            if attempt.is_better_than(earlier):
                self.released.add(lesson.id)
                why = f"attempt {len(self.attempts) + 1} did better with it than attempt {number}"
                await self._approve(lesson.id, why)

    async def _approve(self, lesson_id: str, why: str) -> None:
        try:
            await self.lessons.approve(lesson_id, why)
        except Exception as error:  # noqa: BLE001 (what the attempt made must not be lost with it)
            logger.warning(
                "The lesson %r stays in quarantine: %s: %s", lesson_id, type(error).__name__, error
            )

    def escalation(self) -> EscalationError:
        """Say that the task is given up, with all that was tried."""
        last, count = self.attempts[-1], len(self.attempts)
        times = "once" if count == 1 else f"{count} times"
        why = " ".join(last.why.split())[: _SHOWN * 3]
        return EscalationError(
            f"The task {self.task.description[:_SHOWN]!r} failed {times}; in the end: {why}",
            outcomes=self.outcomes,
            lessons=[one.lesson for one in self.attempts],
        )
