"""Outcome: how a task ended, to be reflected on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

from redraft._texts import as_text
from redraft._validation import check_choice
from redraft.errors import ConfigError, ReflectionDueError, UnfinishedError
from redraft.lessons.lesson import Content, Decision, Failure, Partial, Procedure
from redraft.types import ConvergenceReason, Task, render_score

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.types import Conversation, ReflectionResult, ReflectionVersion

Ended = Literal["failed", "partial", "success", "decision"]

CONTENT_TYPES: dict[Ended, type[Content]] = {
    "failed": Failure,
    "partial": Partial,
    "success": Procedure,
    "decision": Decision,
}
"""What is written about a task that ended so."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Tell how a task ended.

    `status`: `failed` and `partial` must be reflected on, `success` may be. `decision` is a choice worth
    keeping, whatever came of it. `output` is what was made, `error` what went wrong in the words of the
    program, `transcript` what was done, step by step. `trusted` says that nothing in it comes from outside
    (web pages, tool results, users): a lesson drawn from anything else waits in quarantine. `run_id` names
    the run. Raises `ConfigError` for a task or a status that is none. Reflexion Protocol, section 2.
    """

    task: Task
    status: Ended
    output: str = ""
    error: str = ""
    transcript: str = ""
    tools: tuple[str, ...] = ()
    run_id: str = ""
    trusted: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (whatever is given)
            raise ConfigError(f"The task of an Outcome must be a Task, got {self.task!r}.")
        check_choice("status", self.status, get_args(Ended))

    @property
    def content_type(self) -> type[Content]:
        """The kind of reflection that it takes."""
        return CONTENT_TYPES[self.status]

    @property
    def is_mandatory(self) -> bool:
        """Whether it must be reflected on. Reflexion Protocol, section 2."""
        return self.status in ("failed", "partial")


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


_REMEMBERED = 64


class _Run(NamedTuple):
    run_id: str
    task: str
    error: str


class Raised:
    """Remember in which run an error was raised: who catches it knows the error alone.

    Serves many tasks and threads at once.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque(maxlen=_REMEMBERED)

    def add(self, outcome: Outcome) -> None:
        """Remember how a run ended that raised."""
        self._runs.append(_Run(outcome.run_id, outcome.task.description, outcome.error))

    def run_of(self, outcome: Outcome) -> str:
        """Return the id of the run that ended so: the one that the outcome names, else the last; or nothing.

        The run may have been told more than the task, such as what was tried before.
        """
        if outcome.run_id or not outcome.error:
            return outcome.run_id
        said, told = outcome.error, outcome.task.description
        last_first = reversed(tuple(self._runs))
        return next((one.run_id for one in last_first if one.error == said and told in one.task), "")
