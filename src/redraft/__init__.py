"""Reflection for AI agents: redraft the answer, the brief and the playbook.

from redraft import reflect, reflected, Agent, ReflectionPattern, QualityCriterion
"""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft._steps import Retry as Retry
    from redraft._steps import direct as direct
    from redraft._steps import observed as observed
    from redraft._steps import retried as retried
    from redraft.cycles.agent import CycleAgent as CycleAgent
    from redraft.cycles.cycle import CycleResult as CycleResult
    from redraft.cycles.mail import Feedback as Feedback
    from redraft.cycles.spec import AgentSpec as AgentSpec
    from redraft.cycles.storage import LongTermStorage as LongTermStorage
    from redraft.errors import AgentFileError as AgentFileError
    from redraft.errors import ChangedRunError as ChangedRunError
    from redraft.errors import ClaimLostError as ClaimLostError
    from redraft.errors import ConfigError as ConfigError
    from redraft.errors import DamagedRecordError as DamagedRecordError
    from redraft.errors import EnsembleError as EnsembleError
    from redraft.errors import EscalationError as EscalationError
    from redraft.errors import JobError as JobError
    from redraft.errors import LeaseError as LeaseError
    from redraft.errors import LessonFileError as LessonFileError
    from redraft.errors import MissingExtraError as MissingExtraError
    from redraft.errors import ModelError as ModelError
    from redraft.errors import OutputError as OutputError
    from redraft.errors import RedraftError as RedraftError
    from redraft.errors import ReflectionDueError as ReflectionDueError
    from redraft.errors import ReflectionFailedError as ReflectionFailedError
    from redraft.errors import RejectedOutputError as RejectedOutputError
    from redraft.errors import SandboxError as SandboxError
    from redraft.errors import StoreError as StoreError
    from redraft.errors import UnfinishedError as UnfinishedError
    from redraft.errors import WorkflowError as WorkflowError
    from redraft.evals.case_file import read_cases as read_cases
    from redraft.evals.cases import EvalCase as EvalCase
    from redraft.evals.datasets import cases_of_rows as cases_of_rows
    from redraft.evals.evaluation import Evaluation as Evaluation
    from redraft.evals.optimize import Optimization as Optimization
    from redraft.evals.optimize import OptimizationReport as OptimizationReport
    from redraft.evals.pytest_case import eval_case as eval_case
    from redraft.evals.report import EvaluationReport as EvaluationReport
    from redraft.evals.report import Evaluations as Evaluations
    from redraft.events import Event as Event
    from redraft.events import Reflected as Reflected
    from redraft.events import RunFinished as RunFinished
    from redraft.events import RunStarted as RunStarted
    from redraft.events import StepFailed as StepFailed
    from redraft.events import StepFinished as StepFinished
    from redraft.events import StepStarted as StepStarted
    from redraft.events import TokenEvent as TokenEvent
    from redraft.events import VersionEvaluated as VersionEvaluated
    from redraft.lessons.lesson import Decision as Decision
    from redraft.lessons.lesson import Failure as Failure
    from redraft.lessons.lesson import Lesson as Lesson
    from redraft.lessons.lesson import Partial as Partial
    from redraft.lessons.lesson import Procedure as Procedure
    from redraft.lessons.lessons import Lessons as Lessons
    from redraft.lessons.library import LessonLibrary as LessonLibrary
    from redraft.lessons.outcome import Outcome as Outcome
    from redraft.lessons.retry import retried_with_lessons as retried_with_lessons
    from redraft.lessons.retry import retry_with_lessons as retry_with_lessons
    from redraft.loop.agent import Agent as Agent
    from redraft.loop.display import watch as watch
    from redraft.loop.event_log import EventLog as EventLog
    from redraft.loop.functions import reflected as reflected
    from redraft.loop.journal import Journalled as Journalled
    from redraft.loop.pattern import ReflectionPattern as ReflectionPattern
    from redraft.loop.reflect import reflect as reflect
    from redraft.loop.reflect import reflect_sync as reflect_sync
    from redraft.loop.runs import Runs as Runs
    from redraft.loop.stream import RunStream as RunStream
    from redraft.models.embed import ScriptedEmbedder as ScriptedEmbedder
    from redraft.models.testing import Cassette as Cassette
    from redraft.models.testing import ScriptedModel as ScriptedModel
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
    from redraft.protocols import AgentPattern as AgentPattern
    from redraft.protocols import Attempt as Attempt
    from redraft.protocols import ChatReply as ChatReply
    from redraft.protocols import ChatRequest as ChatRequest
    from redraft.protocols import Message as Message
    from redraft.protocols import ReflectionCallbacks as ReflectionCallbacks
    from redraft.protocols import ReflectionDecision as ReflectionDecision
    from redraft.protocols import RunContext as RunContext
    from redraft.stores.base import Record as Record
    from redraft.stores.base import Store as Store
    from redraft.stores.memory import MemoryStore as MemoryStore
    from redraft.stores.postgres import PostgresStore as PostgresStore
    from redraft.stores.sqlite import SqliteStore as SqliteStore
    from redraft.types import Advice as Advice
    from redraft.types import Choice as Choice
    from redraft.types import ConvergenceReason as ConvergenceReason
    from redraft.types import Draft as Draft
    from redraft.types import Issue as Issue
    from redraft.types import QualityCriterion as QualityCriterion
    from redraft.types import Reflection as Reflection
    from redraft.types import ReflectionEvaluation as ReflectionEvaluation
    from redraft.types import ReflectionHistory as ReflectionHistory
    from redraft.types import ReflectionResult as ReflectionResult
    from redraft.types import ReflectionVersion as ReflectionVersion
    from redraft.types import Stop as Stop
    from redraft.types import TokenUsage as TokenUsage
    from redraft.workflow.workflow import Workflow as Workflow

_PLACES = {
    "_steps": ("Retry", "direct", "observed", "retried"),
    "cycles.agent": ("CycleAgent",),
    "cycles.mail": ("Feedback",),
    "cycles.spec": ("AgentSpec",),
    "cycles.cycle": ("CycleResult",),
    "cycles.storage": ("LongTermStorage",),
    "errors": (
        "AgentFileError",
        "ChangedRunError",
        "ClaimLostError",
        "ConfigError",
        "DamagedRecordError",
        "EnsembleError",
        "EscalationError",
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
        "StoreError",
        "UnfinishedError",
        "WorkflowError",
    ),
    "evals.case_file": ("read_cases",),
    "evals.cases": ("EvalCase",),
    "evals.datasets": ("cases_of_rows",),
    "evals.evaluation": ("Evaluation",),
    "evals.optimize": ("Optimization", "OptimizationReport"),
    "evals.pytest_case": ("eval_case",),
    "evals.report": ("EvaluationReport", "Evaluations"),
    "events": (
        "Event",
        "Reflected",
        "RunFinished",
        "RunStarted",
        "StepFailed",
        "StepFinished",
        "StepStarted",
        "TokenEvent",
        "VersionEvaluated",
    ),
    "lessons.lesson": ("Decision", "Failure", "Lesson", "Partial", "Procedure"),
    "lessons.lessons": ("Lessons",),
    "lessons.library": ("LessonLibrary",),
    "lessons.outcome": ("Outcome",),
    "lessons.retry": ("retried_with_lessons", "retry_with_lessons"),
    "loop.agent": ("Agent",),
    "loop.event_log": ("EventLog",),
    "loop.functions": ("reflected",),
    "loop.journal": ("Journalled",),
    "loop.pattern": ("ReflectionPattern",),
    "loop.reflect": ("reflect", "reflect_sync"),
    "loop.runs": ("Runs",),
    "loop.display": ("watch",),
    "loop.stream": ("RunStream",),
    "models.embed": ("ScriptedEmbedder",),
    "models.testing": ("Cassette", "ScriptedModel"),
    "notes.ensemble": (
        "Ensemble",
        "EnsembleEvent",
        "EnsembleFinished",
        "EnsembleResult",
        "EnsembleStream",
        "TaskFailed",
        "TaskFinished",
        "TaskStarted",
    ),
    "notes.note": ("TaskReflectedEvent", "TaskReflection"),
    "notes.notes": ("Notes",),
    "notes.store": (
        "InMemoryReflectionStore",
        "PostgresReflectionStore",
        "ReflectionStore",
        "SqliteReflectionStore",
    ),
    "notes.checklist": ("CheckReflectionStrategy",),
    "notes.strategy": ("LlmReflectionStrategy",),
    "notes.task": (
        "ReflectionConfig",
        "ReflectionInput",
        "ReflectionStrategy",
        "Task",
        "TaskContext",
        "TaskIdentity",
    ),
    "notes.trial": ("Trial",),
    "notes.task_run": ("TaskResult",),
    "protocols": (
        "AgentPattern",
        "Attempt",
        "ChatReply",
        "ChatRequest",
        "Message",
        "ReflectionCallbacks",
        "ReflectionDecision",
        "RunContext",
    ),
    "stores.base": ("Record", "Store"),
    "stores.memory": ("MemoryStore",),
    "stores.postgres": ("PostgresStore",),
    "stores.sqlite": ("SqliteStore",),
    "types": (
        "Advice",
        "Choice",
        "ConvergenceReason",
        "Draft",
        "Issue",
        "QualityCriterion",
        "Reflection",
        "ReflectionEvaluation",
        "ReflectionHistory",
        "ReflectionResult",
        "ReflectionVersion",
        "Stop",
        "TokenUsage",
    ),
    "workflow.workflow": ("Workflow",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
