"""The public names, pinned."""

import ast
from pathlib import Path

import pytest

import redraft

NAMES = [
    "Advice",
    "Agent",
    "AgentFileError",
    "AgentPattern",
    "AgentSpec",
    "Attempt",
    "Cassette",
    "ChangedRunError",
    "ChatReply",
    "ChatRequest",
    "CheckReflectionStrategy",
    "ClaimLostError",
    "ConfigError",
    "Choice",
    "ConvergenceReason",
    "CycleAgent",
    "CycleResult",
    "DamagedRecordError",
    "Decision",
    "Draft",
    "Ensemble",
    "EnsembleError",
    "EnsembleEvent",
    "EnsembleFinished",
    "EnsembleResult",
    "EnsembleStream",
    "EscalationError",
    "EvalCase",
    "Evaluation",
    "EvaluationReport",
    "Evaluations",
    "Event",
    "EventLog",
    "Failure",
    "Feedback",
    "InMemoryReflectionStore",
    "Issue",
    "Journalled",
    "JobError",
    "LeaseError",
    "Lesson",
    "LessonFileError",
    "LessonLibrary",
    "Lessons",
    "LlmReflectionStrategy",
    "LongTermStorage",
    "MemoryStore",
    "Message",
    "MissingExtraError",
    "ModelError",
    "Notes",
    "Optimization",
    "OptimizationReport",
    "Outcome",
    "OutputError",
    "Partial",
    "PostgresReflectionStore",
    "PostgresStore",
    "Procedure",
    "QualityCriterion",
    "Record",
    "RedraftError",
    "Reflected",
    "Reflection",
    "ReflectionCallbacks",
    "ReflectionConfig",
    "ReflectionDecision",
    "ReflectionDueError",
    "ReflectionEvaluation",
    "ReflectionFailedError",
    "ReflectionHistory",
    "ReflectionInput",
    "ReflectionPattern",
    "ReflectionResult",
    "ReflectionStore",
    "ReflectionStrategy",
    "ReflectionVersion",
    "RejectedOutputError",
    "Retry",
    "RunContext",
    "RunFinished",
    "RunStarted",
    "RunStream",
    "Runs",
    "SandboxError",
    "ScriptedEmbedder",
    "ScriptedModel",
    "SqliteReflectionStore",
    "SqliteStore",
    "StepFailed",
    "StepFinished",
    "StepStarted",
    "Stop",
    "Store",
    "StoreError",
    "Task",
    "TaskContext",
    "TaskFailed",
    "TaskFinished",
    "TaskIdentity",
    "TaskReflectedEvent",
    "TaskReflection",
    "TaskResult",
    "TaskStarted",
    "TokenEvent",
    "TokenUsage",
    "Trial",
    "UnfinishedError",
    "VersionEvaluated",
    "Workflow",
    "WorkflowError",
    "cases_of_rows",
    "direct",
    "eval_case",
    "observed",
    "read_cases",
    "reflect",
    "reflect_sync",
    "reflected",
    "retried",
    "retried_with_lessons",
    "retry_with_lessons",
    "watch",
]


def test_public_names():
    assert dir(redraft) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_can_be_imported(name):
    assert getattr(redraft, name) is not None


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(redraft.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname for node in imports for alias in node.names if alias.asname}
    assert seen == set(NAMES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        redraft.nothing_like_it  # noqa: B018


def test_the_public_names_of_the_fleet():
    from redraft import fleet

    tree = ast.parse(Path(fleet.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert sorted(alias.asname for node in imports for alias in node.names if alias.asname) == dir(fleet)
    assert dir(fleet) == [
        "Fleet",
        "FleetJob",
        "FleetWorker",
        "JobHandle",
        "Limit",
        "Queue",
        "Schedule",
        "StoreQueue",
    ]
    assert all(getattr(fleet, name) is not None for name in dir(fleet))
