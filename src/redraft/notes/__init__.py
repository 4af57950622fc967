"""Notes: a better brief for each run of a task, learned from the runs before."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.notes.checklist import CheckReflectionStrategy as CheckReflectionStrategy
    from redraft.notes.ensemble import Ensemble as Ensemble
    from redraft.notes.ensemble import EnsembleEvent as EnsembleEvent
    from redraft.notes.ensemble import EnsembleFinished as EnsembleFinished
    from redraft.notes.ensemble import EnsembleResult as EnsembleResult
    from redraft.notes.ensemble import EnsembleStream as EnsembleStream
    from redraft.notes.ensemble import TaskFailed as TaskFailed
    from redraft.notes.ensemble import TaskFinished as TaskFinished
    from redraft.notes.ensemble import TaskStarted as TaskStarted
    from redraft.notes.note import TaskReflectedEvent as TaskReflectedEvent
    from redraft.notes.note import TaskReflection as TaskReflection
    from redraft.notes.notes import Notes as Notes
    from redraft.notes.store import InMemoryReflectionStore as InMemoryReflectionStore
    from redraft.notes.store import PostgresReflectionStore as PostgresReflectionStore
    from redraft.notes.store import ReflectionStore as ReflectionStore
    from redraft.notes.store import SqliteReflectionStore as SqliteReflectionStore
    from redraft.notes.strategy import LlmReflectionStrategy as LlmReflectionStrategy
    from redraft.notes.task import ReflectionConfig as ReflectionConfig
    from redraft.notes.task import ReflectionInput as ReflectionInput
    from redraft.notes.task import ReflectionStrategy as ReflectionStrategy
    from redraft.notes.task import Task as Task
    from redraft.notes.task import TaskContext as TaskContext
    from redraft.notes.task import TaskIdentity as TaskIdentity
    from redraft.notes.task_run import TaskResult as TaskResult
    from redraft.notes.trial import Trial as Trial

_PLACES = {
    "checklist": ("CheckReflectionStrategy",),
    "ensemble": (
        "Ensemble",
        "EnsembleEvent",
        "EnsembleFinished",
        "EnsembleResult",
        "EnsembleStream",
        "TaskFailed",
        "TaskFinished",
        "TaskStarted",
    ),
    "note": ("TaskReflectedEvent", "TaskReflection"),
    "notes": ("Notes",),
    "store": (
        "InMemoryReflectionStore",
        "PostgresReflectionStore",
        "ReflectionStore",
        "SqliteReflectionStore",
    ),
    "strategy": ("LlmReflectionStrategy",),
    "task": (
        "ReflectionConfig",
        "ReflectionInput",
        "ReflectionStrategy",
        "Task",
        "TaskContext",
        "TaskIdentity",
    ),
    "task_run": ("TaskResult",),
    "trial": ("Trial",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
