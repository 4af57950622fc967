"""Reflection for AI agents: redraft the answer, the brief and the playbook.

from redraft import reflect, reflected, Agent, ReflectionPattern, QualityCriterion
"""

from __future__ import annotations

from redraft.core.lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.core.callbacks import ReflectionCallbacks as ReflectionCallbacks
    from redraft.core.callbacks import ReflectionDecision as ReflectionDecision
    from redraft.core.chat import ChatReply as ChatReply
    from redraft.core.chat import ChatRequest as ChatRequest
    from redraft.core.chat import Message as Message
    from redraft.core.context import Attempt as Attempt
    from redraft.core.context import RunContext as RunContext
    from redraft.core.criterion import QualityCriterion as QualityCriterion
    from redraft.core.errors import AgentFileError as AgentFileError
    from redraft.core.errors import ChangedRunError as ChangedRunError
    from redraft.core.errors import ConfigError as ConfigError
    from redraft.core.errors import DamagedRecordError as DamagedRecordError
    from redraft.core.errors import EnsembleError as EnsembleError
    from redraft.core.errors import EscalationError as EscalationError
    from redraft.core.errors import LeaseError as LeaseError
    from redraft.core.errors import LessonFileError as LessonFileError
    from redraft.core.errors import MissingExtraError as MissingExtraError
    from redraft.core.errors import ModelError as ModelError
    from redraft.core.errors import OutputError as OutputError
    from redraft.core.errors import RedraftError as RedraftError
    from redraft.core.errors import ReflectionDueError as ReflectionDueError
    from redraft.core.errors import ReflectionFailedError as ReflectionFailedError
    from redraft.core.errors import RejectedOutputError as RejectedOutputError
    from redraft.core.errors import SandboxError as SandboxError
    from redraft.core.errors import StoreError as StoreError
    from redraft.core.errors import UnfinishedError as UnfinishedError
    from redraft.core.errors import WorkflowError as WorkflowError
    from redraft.core.evaluation import Issue as Issue
    from redraft.core.evaluation import ReflectionEvaluation as ReflectionEvaluation
    from redraft.core.events import Event as Event
    from redraft.core.events import Reflected as Reflected
    from redraft.core.events import RunFinished as RunFinished
    from redraft.core.events import RunStarted as RunStarted
    from redraft.core.events import StepFailed as StepFailed
    from redraft.core.events import StepFinished as StepFinished
    from redraft.core.events import StepStarted as StepStarted
    from redraft.core.events import VersionEvaluated as VersionEvaluated
    from redraft.core.protocols import AgentPattern as AgentPattern
    from redraft.core.reflection import Reflection as Reflection
    from redraft.core.result import ConvergenceReason as ConvergenceReason
    from redraft.core.result import ReflectionHistory as ReflectionHistory
    from redraft.core.result import ReflectionResult as ReflectionResult
    from redraft.core.steps import Retry as Retry
    from redraft.core.steps import direct as direct
    from redraft.core.steps import observed as observed
    from redraft.core.steps import retried as retried
    from redraft.core.task import Advice as Advice
    from redraft.core.usage import TokenUsage as TokenUsage
    from redraft.core.version import Draft as Draft
    from redraft.core.version import ReflectionVersion as ReflectionVersion
    from redraft.cycles.agent import CycleAgent as CycleAgent
    from redraft.cycles.feedback import Feedback as Feedback
    from redraft.cycles.long_term import LongTermStorage as LongTermStorage
    from redraft.cycles.result import CycleResult as CycleResult
    from redraft.cycles.spec import AgentSpec as AgentSpec
    from redraft.lessons.content import Decision as Decision
    from redraft.lessons.content import Failure as Failure
    from redraft.lessons.content import Partial as Partial
    from redraft.lessons.content import Procedure as Procedure
    from redraft.lessons.lesson import Lesson as Lesson
    from redraft.lessons.lessons import Lessons as Lessons
    from redraft.lessons.outcome import Outcome as Outcome
    from redraft.lessons.retry import retried_with_lessons as retried_with_lessons
    from redraft.lessons.retry import retry_with_lessons as retry_with_lessons
    from redraft.loop.agent import Agent as Agent
    from redraft.loop.event_log import EventLog as EventLog
    from redraft.loop.journal import Journalled as Journalled
    from redraft.loop.pattern import ReflectionPattern as ReflectionPattern
    from redraft.loop.reflect import reflect as reflect
    from redraft.loop.reflect import reflect_sync as reflect_sync
    from redraft.loop.reflected import reflected as reflected
    from redraft.loop.runs import Runs as Runs
    from redraft.loop.stream import RunStream as RunStream
    from redraft.models.cassette import Cassette as Cassette
    from redraft.models.embed_scripted import ScriptedEmbedder as ScriptedEmbedder
    from redraft.models.scripted import ScriptedModel as ScriptedModel
    from redraft.notes.config import ReflectionConfig as ReflectionConfig
    from redraft.notes.config import Trial as Trial
    from redraft.notes.ensemble import Ensemble as Ensemble
    from redraft.notes.ensemble_events import EnsembleEvent as EnsembleEvent
    from redraft.notes.ensemble_events import EnsembleFinished as EnsembleFinished
    from redraft.notes.ensemble_events import TaskFailed as TaskFailed
    from redraft.notes.ensemble_events import TaskFinished as TaskFinished
    from redraft.notes.ensemble_events import TaskStarted as TaskStarted
    from redraft.notes.events import TaskReflectedEvent as TaskReflectedEvent
    from redraft.notes.identity import TaskIdentity as TaskIdentity
    from redraft.notes.in_memory import InMemoryReflectionStore as InMemoryReflectionStore
    from redraft.notes.llm_strategy import LlmReflectionStrategy as LlmReflectionStrategy
    from redraft.notes.postgres import PostgresReflectionStore as PostgresReflectionStore
    from redraft.notes.reflection import TaskReflection as TaskReflection
    from redraft.notes.result import EnsembleResult as EnsembleResult
    from redraft.notes.result import TaskResult as TaskResult
    from redraft.notes.sqlite import SqliteReflectionStore as SqliteReflectionStore
    from redraft.notes.store import ReflectionStore as ReflectionStore
    from redraft.notes.strategy import ReflectionInput as ReflectionInput
    from redraft.notes.strategy import ReflectionStrategy as ReflectionStrategy
    from redraft.notes.stream import EnsembleStream as EnsembleStream
    from redraft.notes.task import Task as Task
    from redraft.notes.task import TaskContext as TaskContext
    from redraft.stores.base import Record as Record
    from redraft.stores.base import Store as Store
    from redraft.stores.memory import MemoryStore as MemoryStore
    from redraft.stores.postgres import PostgresStore as PostgresStore
    from redraft.stores.sqlite import SqliteStore as SqliteStore
    from redraft.workflow.workflow import Workflow as Workflow

_PLACES = {
    "core.callbacks": ("ReflectionCallbacks", "ReflectionDecision"),
    "core.chat": ("ChatReply", "ChatRequest", "Message"),
    "core.context": ("Attempt", "RunContext"),
    "core.criterion": ("QualityCriterion",),
    "core.errors": (
        "AgentFileError",
        "ChangedRunError",
        "ConfigError",
        "DamagedRecordError",
        "EnsembleError",
        "EscalationError",
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
        "StoreError",
        "UnfinishedError",
        "WorkflowError",
    ),
    "core.evaluation": ("Issue", "ReflectionEvaluation"),
    "core.events": (
        "Event",
        "Reflected",
        "RunFinished",
        "RunStarted",
        "StepFailed",
        "StepFinished",
        "StepStarted",
        "VersionEvaluated",
    ),
    "core.protocols": ("AgentPattern",),
    "core.reflection": ("Reflection",),
    "core.result": ("ConvergenceReason", "ReflectionHistory", "ReflectionResult"),
    "core.steps": ("Retry", "direct", "observed", "retried"),
    "core.task": ("Advice",),
    "core.usage": ("TokenUsage",),
    "core.version": ("Draft", "ReflectionVersion"),
    "cycles.agent": ("CycleAgent",),
    "cycles.feedback": ("Feedback",),
    "cycles.long_term": ("LongTermStorage",),
    "cycles.result": ("CycleResult",),
    "cycles.spec": ("AgentSpec",),
    "lessons.content": ("Decision", "Failure", "Partial", "Procedure"),
    "lessons.lesson": ("Lesson",),
    "lessons.lessons": ("Lessons",),
    "lessons.outcome": ("Outcome",),
    "lessons.retry": ("retried_with_lessons", "retry_with_lessons"),
    "loop.agent": ("Agent",),
    "loop.event_log": ("EventLog",),
    "loop.journal": ("Journalled",),
    "loop.pattern": ("ReflectionPattern",),
    "loop.reflect": ("reflect", "reflect_sync"),
    "loop.reflected": ("reflected",),
    "loop.runs": ("Runs",),
    "loop.stream": ("RunStream",),
    "models.cassette": ("Cassette",),
    "models.embed_scripted": ("ScriptedEmbedder",),
    "models.scripted": ("ScriptedModel",),
    "notes.config": ("ReflectionConfig", "Trial"),
    "notes.ensemble": ("Ensemble",),
    "notes.ensemble_events": (
        "EnsembleEvent",
        "EnsembleFinished",
        "TaskFailed",
        "TaskFinished",
        "TaskStarted",
    ),
    "notes.events": ("TaskReflectedEvent",),
    "notes.identity": ("TaskIdentity",),
    "notes.in_memory": ("InMemoryReflectionStore",),
    "notes.llm_strategy": ("LlmReflectionStrategy",),
    "notes.postgres": ("PostgresReflectionStore",),
    "notes.reflection": ("TaskReflection",),
    "notes.result": ("EnsembleResult", "TaskResult"),
    "notes.sqlite": ("SqliteReflectionStore",),
    "notes.store": ("ReflectionStore",),
    "notes.strategy": ("ReflectionInput", "ReflectionStrategy"),
    "notes.stream": ("EnsembleStream",),
    "notes.task": ("Task", "TaskContext"),
    "stores.base": ("Record", "Store"),
    "stores.memory": ("MemoryStore",),
    "stores.postgres": ("PostgresStore",),
    "stores.sqlite": ("SqliteStore",),
    "workflow.workflow": ("Workflow",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
