"""The events of a run, as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from redraft.types import PlainTask, ReflectionResult, ReflectionVersion

__all__ = [
    "Event",
    "Listener",
    "Reflected",
    "RunFinished",
    "RunStarted",
    "StepFailed",
    "StepFinished",
    "StepStarted",
    "TokenEvent",
    "VersionEvaluated",
]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run started."""

    run_id: str
    task: PlainTask
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step started: `generate`, `evaluate`, `revise`, a callback's name, or a step within another.

    Steps within another are `model 3` (the third request of an agent's run), `tool NAME ID` and `reflect
    TRIGGER STEP`; with candidates `draft 2`, `check 2` and `judge 2` (of the second candidate), and `compare
    1 with 2`.
    """

    run_id: str
    name: str
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step returned `result` (a `Draft`, a `ReflectionEvaluation`, a decision) after `seconds`."""

    run_id: str
    name: str
    result: object
    seconds: float
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step raised `error`; it is retried after `retry_in` seconds, or not at all if that is None."""

    run_id: str
    name: str
    error: BaseException
    retry_in: float | None = None
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class VersionEvaluated:
    """A version was judged and added to the history; `is_best` marks the best version so far."""

    run_id: str
    version: ReflectionVersion
    is_best: bool
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class Reflected:
    """A reflection after `step` steps of the model put `text` into the conversation."""

    run_id: str
    trigger: str
    text: str
    step: int
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A model wrote the next piece of a version's text, a token or more.

    Only a stream has these events; they are neither sent to `on_event` nor stored.
    """

    run_id: str
    text: str
    version: int
    """The 1-based number that the version will have."""
    role: Literal["draft", "revision"]
    attempt: int = 1
    """The 1-based number of the model call for this version.

    After a failure, or an unusable reply, the text begins anew under the next number. The texts of one
    attempt, joined, are the model's raw reply: JSON for a typed output, edits for a revision by edits.
    """
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class RunFinished:
    """A run with at least one version ended, even if it was cancelled and its caller gets no result."""

    run_id: str
    result: ReflectionResult
    schema_version: int = 1


Event: TypeAlias = (
    RunStarted | StepStarted | StepFinished | StepFailed | VersionEvaluated | Reflected | RunFinished
)
"""The events of a run for an `on_event` listener, in this order."""
Listener: TypeAlias = Callable[[Event], None]
"""A function that is called with each event, and returns immediately."""
