"""How a run of the loop ended, as an Outcome to be reflected on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from redraft.core.errors import ConfigError, ReflectionDueError, UnfinishedError
from redraft.core.result import ConvergenceReason
from redraft.core.summary import render_score
from redraft.core.texts import as_text
from redraft.lessons.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.core.conversation import Conversation
    from redraft.core.result import ReflectionResult
    from redraft.core.task import Task
    from redraft.core.version import ReflectionVersion

PARTLY = 0.5
"""The least score of a run that was done in part; one with less failed."""
_SHOWN = 600
_ISSUES = 5


def outcome_of(result: ReflectionResult, *, trusted: bool = False) -> Outcome | None:
    """Return how a run ended; None where that is not known: nothing could be judged, or it was cancelled.

    A satisfactory or accepted version is a success. Otherwise a run whose gates were passed and whose best
    version scores at least 0.5 was done in part, and any other failed. `trusted` says that nobody but the
    program had a say in it. A result without a task has no outcome.
    """
    if result.task is None or (status := _status(result)) is None:
        return None
    best = result.history.best_version
    error = "" if result.error is None else f"{type(result.error).__name__}: {result.error}"
    return Outcome(
        result.task.asked(),
        status,
        output=as_text(result.best_output),
        error=error or "; ".join(map(str, best.evaluation.issues[:_ISSUES])),
        transcript="\n".join(_transcript(result)),
        tools=result.task.tools,
        run_id=result.run_id,
        trusted=trusted,
    )


def failure_of(task: Task, run_id: str, error: Exception, *, trusted: bool = False) -> Outcome | None:
    """Return how a run ended that raised before there was any output; None for what no lesson mends.

    That is an error of the configuration, and what is to be done before the run can begin.
    """
    if isinstance(error, ConfigError | ReflectionDueError):
        return None
    talk = error.conversation if isinstance(error, UnfinishedError) else None
    return Outcome(
        task.asked(),
        "failed",
        error=f"{type(error).__name__}: {error}",
        transcript="" if talk is None else "\n".join(_said(talk)),
        tools=task.tools,
        run_id=run_id,
        trusted=trusted,
    )


def score_of(result: ReflectionResult) -> float | None:
    """Return the score (0..1) of the version that a run returned; None if that was not fully judged."""
    return result.history.best_version.evaluation.comparable_score


def _status(result: ReflectionResult) -> Literal["failed", "partial", "success"] | None:
    reason = result.convergence_reason
    if result.success or reason is ConvergenceReason.USER_ACCEPTED:
        return "success"
    score = result.history.best_version.evaluation.overall_score
    if reason is ConvergenceReason.CANCELLED or (score is None and result.error is None):
        return None
    passed = result.history.best_version.evaluation.gates_passed
    return "partial" if score is not None and score >= PARTLY and passed else "failed"


def _transcript(result: ReflectionResult) -> Iterator[str]:
    """Tell what was done, an entry a line: the last conversation that there is, and the verdicts."""
    conversations = [one.conversation for one in result.history.versions if one.conversation is not None]
    if conversations:
        yield from _said(conversations[-1])
    for version in result.history.versions:
        yield _judged(version)
    if result.error is not None:
        yield f"The run ended in an error: {type(result.error).__name__}: {_short(str(result.error))}"


def _said(conversation: Conversation) -> Iterator[str]:
    """Tell a conversation, whose messages are JSON data of the agent's framework."""
    for message in conversation.messages:
        for part in cast("list[dict[str, Any]]", message.get("parts", ())):
            said, tool = part.get("content"), part.get("tool_name")
            match part.get("part_kind"):
                case "tool-call":
                    yield f"called {tool} with {_short(part.get('args'))}"
                case "tool-return":
                    yield f"{tool} {part.get('outcome', 'answered')}: {_short(said)}"
                case "retry-prompt":
                    yield f"{tool or 'the answer'} was refused: {_short(said)}"
                case "text":
                    yield f"said: {_short(said)}"
                case _:  # what was asked stands in the task; what a model thinks is its own
                    continue


def _judged(version: ReflectionVersion) -> str:
    evaluation = version.evaluation
    issues = "; ".join(map(str, evaluation.issues[:_ISSUES]))
    score = render_score(evaluation.overall_score).strip()
    return f"version {version.iteration} ({version.strategy}) scored {score}: {_short(issues or 'no issue')}"


def _short(value: object) -> str:
    text = " ".join(as_text(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
