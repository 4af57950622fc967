"""Retrying with lessons: each attempt is told what went wrong before, and what to do differently."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from redraft.core.adapt import evaluation_of
from redraft.core.calls import awaited
from redraft.core.check import check_count
from redraft.core.errors import ConfigError, EscalationError
from redraft.core.task import Task
from redraft.lessons.calling import Calling
from redraft.lessons.outcome import Outcome
from redraft.lessons.tried import Tried, told, verdict_of
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.lessons.lesson import Lesson

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
