"""Events of an ensemble, beside those of the runs of its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from redraft.core.events import Event
from redraft.notes.events import TaskReflectedEvent
from redraft.notes.result import EnsembleResult, TaskResult
from redraft.notes.task import Task


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task begins."""

    run_id: str
    task: Task
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task's output was accepted; its reflection, if there is to be one, comes later."""

    run_id: str
    result: TaskResult
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task failed for good."""

    run_id: str
    task: Task
    error: Exception
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class EnsembleFinished:
    """An ensemble came to its end; also one of which tasks failed."""

    run_id: str
    result: EnsembleResult
    schema_version: int = 1


EnsembleEvent: TypeAlias = (
    TaskStarted | TaskFinished | TaskFailed | TaskReflectedEvent | EnsembleFinished | Event
)
