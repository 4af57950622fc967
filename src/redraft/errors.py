"""The error tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    # A circle of types alone: nouns raise these errors when they are made, and the errors carry nouns.
    from redraft.types import ConvergenceReason, Conversation, ReflectionHistory, TokenUsage


class RedraftError(Exception):
    """The base of everything that Redraft raises on purpose."""

    usage: TokenUsage | None = None
    """What was spent before the failure, where that is known."""


class ConfigError(RedraftError):
    """An argument, file or setting is wrong; raised before anything is spent."""


class MissingExtraError(ConfigError):
    """An optional dependency is missing; the message has the command that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional part: pip install 'redraft[{extra}]'")
        self.extra = extra


class ModelError(RedraftError):
    """A model call failed.

    `retryable` says whether the same call may succeed later (429, 5xx, timeouts); `retry_after` is how many
    seconds the provider asked to wait, if it did.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        usage: TokenUsage | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.usage = usage


class OutputError(RedraftError):
    """A reply, a draft or a verdict came back that could not be used."""

    def __init__(self, message: str, *, usage: TokenUsage | None = None) -> None:
        super().__init__(message)
        self.usage = usage


class UnfinishedError(OutputError):
    """An agent came to no answer, or a call was not finished; `conversation` is what was said until then.

    `reason` names the budget of the run that was spent, where that is what stopped it.
    """

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
    """Say whether a budget of the run kept something from being done, or from being finished."""
    return isinstance(error, UnfinishedError) and error.reason is not None


class RejectedOutputError(OutputError):
    """Guardrails or a review refused the last `output`; `why` is their reason."""

    def __init__(
        self, message: str, *, output: Any = None, why: str = "", usage: TokenUsage | None = None
    ) -> None:
        super().__init__(message, usage=usage)
        self.output = output
        self.why = why


class EnsembleError(RedraftError):
    """Carry what an ensemble made although tasks of it failed.

    `result` is its `EnsembleResult`; `errors` says what each task that failed raised.
    """

    def __init__(
        self, message: str, *, result: Any = None, errors: Mapping[Any, Exception] | None = None
    ) -> None:
        super().__init__(message)
        self.result = result
        self.errors = errors or {}


class EscalationError(RedraftError):
    """Carry what was tried before a task was given up: for whoever it is handed to.

    `outcomes` tell how each attempt ended, and `lessons` are what was learnt from each, None where nothing
    could be. The last attempt's exception, if it raised one, is the cause.
    """

    def __init__(self, message: str, *, outcomes: Sequence[Any] = (), lessons: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.outcomes = tuple(outcomes)
        self.lessons = tuple(lessons)


class ReflectionFailedError(RedraftError):
    """Carry the history of a run that ended in an error, when `on_failure="raise"` asked for it.

    That of a `reflection.loop` in a workflow is a list: iteration, output, score, valid, errors and
    suggestions of each attempt.
    """

    def __init__(self, message: str, history: ReflectionHistory | list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.history = history


class ReflectionDueError(RedraftError):
    """Name the runs that failed, wholly or in part, and left no reflection; nothing of the next was done."""

    def __init__(self, message: str, *, runs: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.runs = tuple(runs)


class StoreError(RedraftError):
    """A record could not be written or read."""


class StoreSettingsError(StoreError, ConfigError):
    """The URL of a database or the rights of its user are wrong; waiting does not help."""


class DamagedRecordError(StoreError):
    """A record is not as it was written; the message says what to do. No other record is affected."""


class LeaseError(StoreError):
    """Another process runs the same agent; the message names it and says what to do."""


class ChangedRunError(StoreError):
    """What was asked differs from the run that was recorded under this id; nothing was done."""


class LessonFileError(StoreError):
    """Say what is wrong with the file of a lesson, and on which line (from 1) if that is known."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}, line {line}"
        super().__init__(f"{place}: {message}")
        self.file = file
        self.line = line


class SandboxError(RedraftError):
    """Say why untrusted code was stopped or refused."""


class SandboxTimeoutError(SandboxError):
    """Sandboxed code ran longer than its limit."""


class SandboxMemoryError(SandboxError):
    """Sandboxed code asked for more memory than its limit."""


class SandboxForbiddenError(SandboxError):
    """Sandboxed code did something forbidden, or no jail works on this machine."""


class ScriptError(SandboxError):
    """Say what is wrong with a script or with what it gave, and on which `line` (from 1) if that is known."""

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class WorkflowError(RedraftError):
    """A workflow has a mistake, at this file, line, node and key."""

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        node: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.line = line
        self.node = node
        self.key = key


class AgentFileError(RedraftError):
    """Point at the file, line, stage, substage and key of a mistake in an agent that runs in cycles.

    An agent that was made in Python has no file and no line.
    """

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
        super().__init__(message)
        self.file = file
        self.line = line
        self.stage = stage
        self.substage = substage
        self.key = key
