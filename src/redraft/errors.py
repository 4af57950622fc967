"""The exceptions of Redraft.

- RedraftError
  - ConfigError
    - MissingExtraError
    - InvalidSchemaError
  - ModelError
  - OutputError
    - UnfinishedError
    - RejectedOutputError
  - EnsembleError
  - EscalationError
  - ReflectionFailedError
  - ReflectionDueError
  - StoreError
    - StoreSettingsError (also a ConfigError)
    - DamagedRecordError
    - LeaseError
    - ChangedRunError
      - ClaimLostError
    - LessonFileError
  - SandboxError
    - SandboxTimeoutError
    - SandboxMemoryError
    - SandboxForbiddenError
    - ScriptError
  - SpecFileError
    - WorkflowError
    - AgentFileError
  - JobError
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    # Types only: these errors carry data classes, whose constructors raise these errors.
    from redraft.types import ConvergenceReason, Conversation, ReflectionHistory, TokenUsage

__all__ = [
    "AgentFileError",
    "ChangedRunError",
    "ClaimLostError",
    "ConfigError",
    "DamagedRecordError",
    "EnsembleError",
    "EscalationError",
    "InvalidSchemaError",
    "JobError",
    "LeaseError",
    "LessonFileError",
    "MissingExtraError",
    "ModelError",
    "OutputError",
    "RedraftError",
    "ReflectionDueError",
    "ReflectionFailedError",
    "RejectedOutputError",
    "SandboxError",
    "SandboxForbiddenError",
    "SandboxMemoryError",
    "SandboxTimeoutError",
    "ScriptError",
    "StoreError",
    "StoreSettingsError",
    "UnfinishedError",
    "WorkflowError",
]


class RedraftError(Exception):
    """The base class of all exceptions that Redraft raises."""

    usage: TokenUsage | None = None
    """The usage before the failure, if reported."""


class ConfigError(RedraftError):
    """An argument, file or setting is wrong; raised before anything is spent."""


class MissingExtraError(ConfigError):
    """An optional dependency is missing; the message contains the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        command = f"pip install 'redraft[{extra}]' (in a clone: pip install '.[{extra}]')"
        super().__init__(f"{what} needs an optional part: {command}")
        self.extra = extra


class InvalidSchemaError(ConfigError):
    """A JSON Schema can't be used; `problems` are its mistakes, each a path into the schema and a message."""

    def __init__(self, message: str, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        super().__init__(message)
        self.problems = problems


class ModelError(RedraftError):
    """A model call failed.

    `retryable` says whether the same call may succeed later (429, 5xx, timeouts); `retry_after` is the
    wait in seconds that the provider asked for, if any. `over_quota` means that the account's quota or credit
    is spent. `unusable_reply` means that the model answered, but the reply is empty or can't be read.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        usage: TokenUsage | None = None,
        over_quota: bool = False,
        unusable_reply: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.over_quota = over_quota
        self.unusable_reply = unusable_reply
        self.retry_after = retry_after
        self.usage = usage

    @property
    def refuses_temperature(self) -> bool:
        """Whether the model takes no temperature, so that the same call may succeed without one."""
        return self.status in (400, 422) and "temperature" in str(self).lower()


class OutputError(RedraftError):
    """A reply, a draft or a verdict cannot be used."""

    def __init__(self, message: str, *, usage: TokenUsage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


class UnfinishedError(OutputError):
    """An agent reached no answer, or a call was not finished.

    `conversation` is the conversation until then. `reason` names the budget of the run, if a spent budget is
    the cause. `partial` holds the results so far: for a `map`, a list.
    """

    partial: Any = None

    def __init__(
        self,
        message: str,
        *,
        conversation: Conversation | None = None,
        reason: ConvergenceReason | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        super().__init__(message, usage=usage)
        self.conversation = conversation
        self.reason = reason


def over_budget(error: BaseException) -> bool:
    """Whether a spent budget of the run is the cause of an error."""
    return isinstance(error, UnfinishedError) and error.reason is not None


def unusable_reply(message: str, used: TokenUsage) -> ModelError:
    """Make the error of a call whose reply can't be used; its usage leaves out the failed request."""
    from dataclasses import replace  # noqa: PLC0415 (only an error needs it)

    spent = replace(used, requests=max(0, used.requests - 1))  # the retry counts the failed request
    return ModelError(message, retryable=True, unusable_reply=True, usage=spent)


def is_unusable_reply(error: BaseException) -> bool:
    """Whether a model answered a call, but with a reply that is empty or can't be read."""
    return isinstance(error, ModelError) and error.unusable_reply


class RejectedOutputError(OutputError):
    """Guardrails or a review rejected the last `output`; `why` is the reason."""

    def __init__(
        self, message: str, *, output: Any = None, why: str = "", usage: TokenUsage | None = None
    ) -> None:
        super().__init__(message, usage=usage)
        self.output = output
        self.why = why


class EnsembleError(RedraftError):
    """Tasks of an ensemble failed.

    `result` is the `EnsembleResult` of the other tasks; `errors` maps each failed task to its exception.
    """

    def __init__(
        self, message: str, *, result: Any = None, errors: Mapping[Any, Exception] | None = None
    ) -> None:
        super().__init__(message)
        self.result = result
        self.errors = errors or {}


class EscalationError(RedraftError):
    """All attempts at a task failed; escalate to a person.

    `outcomes` and `lessons` have an item for each attempt: how it ended, and the lesson learned, or None. The
    cause is the exception of the last attempt, if it raised one.
    """

    def __init__(self, message: str, *, outcomes: Sequence[Any] = (), lessons: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.outcomes = tuple(outcomes)
        self.lessons = tuple(lessons)


class ReflectionFailedError(RedraftError):
    """A run with `on_failure="raise"` ended in an error; `history` has its versions.

    For a `reflection.loop` in a workflow, `history` is a list with the iteration, output, score, valid,
    errors and suggestions of each attempt.
    """

    def __init__(self, message: str, history: ReflectionHistory | list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.history = history


class ReflectionDueError(RedraftError):
    """Earlier `runs` failed, at least in part, and are due for a reflection; the next run was not started."""

    def __init__(self, message: str, *, runs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.runs = tuple(runs)


class StoreError(RedraftError):
    """A record could not be written or read."""


class StoreSettingsError(StoreError, ConfigError):
    """A database's URL or its user's permissions are wrong; retrying does not help."""


class DamagedRecordError(StoreError):
    """A stored record is damaged, or of another schema. Other records are not affected."""


class LeaseError(StoreError):
    """Another process is running the same agent; the message names it and says what to do."""


class ChangedRunError(StoreError):
    """The call differs from the run recorded under the same id; nothing was done."""


class ClaimLostError(ChangedRunError):
    """Another worker has taken over the run, so this worker may no longer write to it."""


class LessonFileError(StoreError):
    """A lesson's file has a mistake, at this `file` and `line` (1-based, or None)."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {message}")
        self.file = file
        self.line = line


class SandboxError(RedraftError):
    """Untrusted code was stopped or refused, at this `line` of it (1-based, or None)."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class SandboxTimeoutError(SandboxError):
    """Sandboxed code ran longer than its limit."""


class SandboxMemoryError(SandboxError):
    """Sandboxed code used more memory than its limit."""


class SandboxForbiddenError(SandboxError):
    """Sandboxed code tried something forbidden, or no jail works on this machine."""


class ScriptError(SandboxError):
    """A script or its result has a mistake."""


class SpecFileError(RedraftError):
    """A workflow or an agent has a mistake, at this `file`, `line` and `key` (each may be None).

    If it has several mistakes, this is the first of `problems`. A workflow or an agent that is defined in
    Python has no file and no line.
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, key: str | None = None
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.key = key
        self._problems: tuple[Self, ...] = ()

    @property
    def problems(self) -> tuple[Self, ...]:
        """This mistake and the others of the same check, by file and line."""
        return self._problems or (self,)

    @classmethod
    def of(cls, problems: Sequence[Self]) -> Self:
        """Combine mistakes into one error, whose message has a line for each."""
        distinct = {str(problem): problem for problem in problems}.values()
        files = list(dict.fromkeys(problem.file for problem in distinct))
        first, *others = ordered = sorted(
            distinct, key=lambda error: (files.index(error.file), error.line or 0)
        )
        if not others:
            return first
        combined = copy(first)  # with its file, line and key
        combined.args = ("\n".join(map(str, ordered)),)
        combined._problems = tuple(ordered)  # noqa: SLF001 (the same class)
        return combined


class WorkflowError(SpecFileError):
    """A workflow has a mistake, at this `file`, `line`, `node` and `key` (each may be None).

    `retryable` means that the file itself is valid: code or a template failed on the values of a run, and may
    work in another.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        node: str | None = None,
        key: str | None = None,
        retryable: bool = False,
    ) -> None:
        super().__init__(message, file=file, line=line, key=key)
        self.node = node
        self.retryable = retryable


class AgentFileError(SpecFileError):
    """An agent that runs in cycles has a mistake, at this `file`, `line`, `stage`, `substage` and `key`."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        stage: str | None = None,
        substage: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message, file=file, line=line, key=key)
        self.stage = stage
        self.substage = substage


class JobError(RedraftError):
    """A job of the fleet ended without a result; `state` is `failed`, `poisoned` or `cancelled`."""

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state
