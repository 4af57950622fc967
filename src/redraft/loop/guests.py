"""The guests of a run: callbacks and advisors. One that fails is logged, and costs the run nothing."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from redraft.core.callbacks import ReflectionDecision
from redraft.core.calls import awaited
from redraft.core.check import check_list
from redraft.core.errors import ChangedRunError, ConfigError, ReflectionDueError
from redraft.core.protocols import FailureObserver
from redraft.core.task import Advice
from redraft.redact.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from redraft.core.callbacks import ReflectionCallbacks
    from redraft.core.protocols import Advisor, Step
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task


CALLBACKS = ("on_generation", "on_reflection", "on_revision")


def check_guests(callbacks: Any, advisors: Any) -> None:
    """Refuse callbacks that would never be called, and advisors that can't advise; raises `ConfigError`.

    Callbacks may be few, and need not be a `ReflectionCallbacks`.
    """
    if callbacks is not None and (
        isinstance(callbacks, type) or not any(hasattr(callbacks, name) for name in CALLBACKS)
    ):
        raise ConfigError(f"callbacks must be an object with {' or '.join(CALLBACKS)}, got {callbacks!r}.")
    check_list("advisors", advisors)
    for advisor in advisors:
        check_advisor("advisors", advisor)


def check_advisor(name: str, value: Any) -> None:
    """Require an object with `recall` and `observe`; raises `ConfigError`."""
    if not isinstance(value, type) and hasattr(value, "recall") and hasattr(value, "observe"):
        return
    meant = f" Did you mean Lessons({value!r})?" if isinstance(value, str | PurePath) else ""
    raise ConfigError(f"{name}: an advisor has recall(task) and observe(result), got {value!r}.{meant}")


async def call_back(
    callbacks: ReflectionCallbacks | None, name: str, step: Step, notes: dict[str, str], *args: object
) -> object:
    """Call a callback, if there is one of that name, and return its answer; None where it raised."""
    callback: Callable[..., object] | None = getattr(callbacks, name, None)
    if callback is None:
        return None
    try:
        return await step(name, object, awaited(callback), *args)
    except Exception as error:  # noqa: BLE001 (a person's code must not cost the run what it has made)
        _ignored(notes, "callback", name, f"{type(error).__name__}: {error}")
        return None


def decision_of(answer: object, notes: dict[str, str]) -> ReflectionDecision:
    """Read what `on_reflection` answered; None, and what is no decision, leaves it to the rules."""
    if answer is None:
        return ReflectionDecision.AUTO
    try:
        return ReflectionDecision(answer)
    except ValueError:
        _ignored(notes, "callback", "on_reflection", f"it returned {answer!r}, not a ReflectionDecision")
        return ReflectionDecision.AUTO


async def recalled(
    advisors: Sequence[Advisor], task: Task, step: Step, notes: dict[str, str]
) -> tuple[Advice, ...]:
    """Return what all advisors have to say about a task.

    Raises the one error that is meant for the run: the `ReflectionDueError` of an earlier one.
    """
    advice: list[Advice] = []
    for advisor in advisors:
        try:
            advice += await step("recall", list[Advice], advisor.recall, task)
        except ReflectionDueError:
            raise
        except Exception as error:  # noqa: BLE001 (a run without advice is better than none)
            _ignored(notes, "advisor", type(advisor).__name__, f"{type(error).__name__}: {error}")
    return tuple(advice)


async def observe(advisors: Sequence[Advisor], result: ReflectionResult, step: Step) -> None:
    """Let those who gave advice learn from how the run went."""
    for advisor in advisors:
        try:
            await step("observe", type(None), advisor.observe, result)
        except Exception:
            logger.exception("The advisor %s failed and was ignored.", type(advisor).__name__)


async def observe_failure(advisors: Sequence[Advisor], task: Task, run_id: str, error: BaseException) -> None:
    """Let those who gave advice learn from a run that made nothing; one that was cancelled did not fail.

    That is no step: a kept run which goes on has to find its steps as they were before it failed.
    """
    if not isinstance(error, Exception) or isinstance(error, ChangedRunError):
        return
    for advisor in advisors:
        if isinstance(advisor, FailureObserver):
            try:
                await advisor.observe_failure(task, run_id, error)
            except Exception:
                logger.exception("The advisor %s failed and was ignored.", type(advisor).__name__)


def note(notes: dict[str, str], name: str, text: str) -> None:
    """Add a sentence to what a person should know about the run."""
    notes[name] = f"{notes[name]} {text}" if name in notes else text


def _ignored(notes: dict[str, str], kind: str, name: str, why: str) -> None:
    logger.warning("The %s %s failed and was ignored: %s", kind, name, why)
    note(notes, f"{kind}_failed", f"The {kind} {name} failed and was ignored: {why}.")
