"""Reflection for AI agents: redraft the answer, the brief and the playbook.

    from redraft import reflect, reflected, Agent, ReflectionPattern, QualityCriterion

This is the front door. The rest is imported from its feature: `redraft.lessons`, `redraft.notes`,
`redraft.cycles`, `redraft.workflow`, `redraft.fleet`, `redraft.evals`, `redraft.loop`, `redraft.models`,
`redraft.stores`, `redraft.redact` and `redraft.testing`; and from `redraft.errors`, `redraft.events`,
`redraft.types` and `redraft.protocols`.
"""

from __future__ import annotations

import os
import sys

from redraft._lazy import lazily

if not hasattr(os, "register_at_fork"):  # asked like this, type checkers on Windows still read the rest
    raise ImportError(
        f"Redraft runs on Linux and macOS, not on {sys.platform!r}. On Windows, install it in WSL: "
        "wsl --install, then in its shell: pip install redraft"
    )

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.cycles.agent import CycleAgent as CycleAgent
    from redraft.errors import ConfigError as ConfigError
    from redraft.errors import ModelError as ModelError
    from redraft.errors import RedraftError as RedraftError
    from redraft.errors import ReflectionFailedError as ReflectionFailedError
    from redraft.evals.cases import EvalCase as EvalCase
    from redraft.evals.evaluation import Evaluation as Evaluation
    from redraft.lessons.lessons import Lessons as Lessons
    from redraft.lessons.retry import retry_with_lessons as retry_with_lessons
    from redraft.loop.agent import Agent as Agent
    from redraft.loop.decorator import reflected as reflected
    from redraft.loop.display import watch as watch
    from redraft.loop.pattern import ReflectionPattern as ReflectionPattern
    from redraft.loop.reflect import reflect as reflect
    from redraft.loop.reflect import reflect_sync as reflect_sync
    from redraft.loop.runs import Runs as Runs
    from redraft.models.testing import ScriptedModel as ScriptedModel
    from redraft.notes.ensemble import Ensemble as Ensemble
    from redraft.notes.note import TaskReflectedEvent as TaskReflectedEvent
    from redraft.notes.note import TaskReflection as TaskReflection
    from redraft.notes.store import InMemoryReflectionStore as InMemoryReflectionStore
    from redraft.notes.store import ReflectionStore as ReflectionStore
    from redraft.notes.strategy import LlmReflectionStrategy as LlmReflectionStrategy
    from redraft.notes.task import ReflectionConfig as ReflectionConfig
    from redraft.notes.task import ReflectionStrategy as ReflectionStrategy
    from redraft.notes.task import Task as Task
    from redraft.notes.task import TaskIdentity as TaskIdentity
    from redraft.protocols import AgentPattern as AgentPattern
    from redraft.protocols import ReflectionCallbacks as ReflectionCallbacks
    from redraft.protocols import ReflectionDecision as ReflectionDecision
    from redraft.stores.sqlite import MemoryStore as MemoryStore
    from redraft.stores.sqlite import SqliteStore as SqliteStore
    from redraft.types import ConvergenceReason as ConvergenceReason
    from redraft.types import Draft as Draft
    from redraft.types import Issue as Issue
    from redraft.types import QualityCriterion as QualityCriterion
    from redraft.types import ReflectionEvaluation as ReflectionEvaluation
    from redraft.types import ReflectionHistory as ReflectionHistory
    from redraft.types import ReflectionResult as ReflectionResult
    from redraft.types import ReflectionVersion as ReflectionVersion
    from redraft.types import TokenUsage as TokenUsage
    from redraft.workflow.workflow import Workflow as Workflow

_PLACES = {
    "cycles.agent": ("CycleAgent",),
    "errors": ("ConfigError", "ModelError", "RedraftError"),
    "evals.cases": ("EvalCase",),
    "evals.evaluation": ("Evaluation",),
    "lessons.lessons": ("Lessons",),
    "lessons.retry": ("retry_with_lessons",),
    "loop.agent": ("Agent",),
    "loop.display": ("watch",),
    "loop.decorator": ("reflected",),
    "loop.pattern": ("ReflectionPattern",),
    "loop.reflect": ("reflect", "reflect_sync"),
    "loop.runs": ("Runs",),
    "models.testing": ("ScriptedModel",),
    "notes.ensemble": ("Ensemble",),
    "notes.task": ("Task",),
    "stores.sqlite": ("MemoryStore", "SqliteStore"),
    "types": (
        "ConvergenceReason",
        "Draft",
        "Issue",
        "QualityCriterion",
        "ReflectionEvaluation",
        "ReflectionHistory",
        "ReflectionResult",
        "ReflectionVersion",
        "TokenUsage",
    ),
    "workflow.workflow": ("Workflow",),
}
# The examples of the specifications use these without saying where they are from.
_SPECIFIED = {
    "errors": ("ReflectionFailedError",),
    "notes.note": ("TaskReflectedEvent", "TaskReflection"),
    "notes.store": ("InMemoryReflectionStore", "ReflectionStore"),
    "notes.strategy": ("LlmReflectionStrategy",),
    "notes.task": ("ReflectionConfig", "ReflectionStrategy", "TaskIdentity"),
    "protocols": ("AgentPattern", "ReflectionCallbacks", "ReflectionDecision"),
}

_FEATURES = (
    "errors",
    "lessons",
    "notes",
    "cycles",
    "workflow",
    "fleet",
    "evals",
    "testing",
    "stores",
    "models",
    "redact",
    "retention",
    "loop",
    "types",
    "protocols",
    "events",
)

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES, unlisted=_SPECIFIED, features=_FEATURES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
