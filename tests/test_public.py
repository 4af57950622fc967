"""The public names, pinned: those at the front door, and those of each feature."""

import ast
import dataclasses
import re
from importlib import import_module
from pathlib import Path

import pytest

import redraft

NAMES = {
    "redraft": """
        Agent ConfigError ConvergenceReason CycleAgent Draft Ensemble EvalCase Evaluation Issue
        Lessons MemoryStore ModelError QualityCriterion RedraftError ReflectionEvaluation
        ReflectionHistory ReflectionPattern ReflectionResult ReflectionVersion Runs ScriptedModel
        SqliteStore Task TokenUsage Workflow reflect reflect_sync reflected retry_with_lessons watch
    """,
    "redraft.cycles": """
        AgentHandle AgentHost AgentMessage AgentSpec AgentSummary Agents CycleAgent CycleEvent
        CycleFinished CycleMetrics CycleRecord CycleResult CycleStarted CycleWaiting Feedback
        LongTermStorage Memory MemoryChange SubstageFinished
    """,
    "redraft.errors": """
        AgentFileError ChangedRunError ClaimLostError ConfigError DamagedRecordError EnsembleError
        EscalationError InvalidSchemaError JobError LeaseError LessonFileError MissingExtraError
        ModelError OutputError RedraftError ReflectionDueError ReflectionFailedError
        RejectedOutputError SandboxError SandboxForbiddenError SandboxMemoryError
        SandboxTimeoutError ScriptError StoreError StoreSettingsError UnfinishedError WorkflowError
    """,
    "redraft.evals": """
        EvalCase Evaluation EvaluationReport Evaluations SuccessCriteria
        cases_of_rows eval_case read_cases success_criteria
    """,
    "redraft.events": """
        Event Listener Reflected RunFinished RunStarted StepFailed StepFinished StepStarted
        TokenEvent VersionEvaluated
    """,
    "redraft.fleet": "Fleet FleetJob FleetWorker JobHandle Limit Queue Schedule StoreQueue",
    "redraft.lessons": """
        CorrectedAnswer Decision Fact Failure Lesson LessonLibrary Lessons Outcome Partial Procedure
        retried_with_lessons retry_with_lessons
    """,
    "redraft.loop": """
        Agent EventLog Journalled ReflectionPattern Retry RunRecord RunStream Runs StoredRun
        VersionDiff Why direct read_criteria reflected watch
    """,
    "redraft.models": "FallbackModel ProviderModel",
    "redraft.notes": """
        CheckReflectionStrategy Ensemble EnsembleEvent EnsembleFinished EnsembleResult
        EnsembleStream InMemoryReflectionStore LlmReflectionStrategy Notes PostgresReflectionStore
        ReflectionConfig ReflectionInput ReflectionStore ReflectionStrategy SqliteReflectionStore
        Task TaskContext TaskFailed TaskFinished TaskIdentity TaskReflectedEvent TaskReflection
        TaskResult TaskStarted Trial
    """,
    "redraft.protocols": """
        Advisor AgentLike AgentPattern Attempt ChatModel ChatReply ChatRequest CriteriaAdvisor
        Embedder Evaluator FailureObserver Generator LearningAdvisor Mistake MistakeAdvisor Preference
        ReflectionCallbacks ReflectionDecision Reviser RunContext Step Stopper StreamingModel TextListener
    """,
    "redraft.redact": "Category Kind Redacted Redactor redact redactor_of_environment",
    "redraft.retention": "Backup Forgotten ProjectData Pruned back_up restore",
    "redraft.stores": "MemoryStore PostgresStore Record SqliteStore Store",
    "redraft.testing": "Cassette ScriptedEmbedder ScriptedModel",
    "redraft.types": """
        Advice Choice ConvergenceReason Conversation Draft Image ImageMessage Issue Message
        PlainTask QualityCriterion Reflection ReflectionEvaluation ReflectionHistory
        ReflectionResult ReflectionVersion Stop TokenUsage
    """,
    "redraft.workflow": """
        Approval Approvals HumanAnswer ItemFinished NodeFinished NodeStarted Workflow WorkflowEvent
        WorkflowFinished WorkflowResult WorkflowStream Workflows action run_action workflow_schema
    """,
}
SPECIFIED = [
    "AgentPattern",
    "InMemoryReflectionStore",
    "LlmReflectionStrategy",
    "ReflectionCallbacks",
    "ReflectionConfig",
    "ReflectionDecision",
    "ReflectionFailedError",
    "ReflectionStore",
    "ReflectionStrategy",
    "TaskIdentity",
    "TaskReflectedEvent",
    "TaskReflection",
]
"""Names of the specifications' examples, which don't say where they are imported from."""

EVENTS = {
    "Reflected": "run_id trigger text step",
    "RunFinished": "run_id result",
    "RunStarted": "run_id task",
    "StepFailed": "run_id name error retry_in",
    "StepFinished": "run_id name result seconds",
    "StepStarted": "run_id name",
    "TokenEvent": "run_id text version role attempt",
    "VersionEvaluated": "run_id version is_best",
}
"""The fields of version 1: an event may get more, but to lose one takes a higher `schema_version`."""


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_keeps_its_fields(event):
    from redraft import events

    fields = {field.name: field for field in dataclasses.fields(getattr(events, event))}
    assert {*EVENTS[event].split(), "schema_version"} <= fields.keys()
    assert fields["schema_version"].default == 1


def test_each_event_has_its_fields_pinned():
    from redraft import events

    assert {name for name in events.__all__ if name not in ("Event", "Listener")} == EVENTS.keys()


def test_the_documentation_lists_every_module_with_public_names():
    page = Path(__file__).parent.parent / "docs/versions.md"
    table = page.read_text("utf-8").split("## Versions")[0]
    assert {module for module in NAMES if f"`{module}`" not in table} == set()


@pytest.mark.parametrize("module", NAMES)
def test_the_public_names_of_a_feature(module):
    feature = import_module(module)
    assert sorted(feature.__all__) == sorted(NAMES[module].split())
    assert all(getattr(feature, name) is not None for name in feature.__all__)
    assert set(feature.__all__) <= set(dir(feature))


@pytest.mark.parametrize("name", SPECIFIED)
def test_the_names_of_the_specifications_are_importable_though_not_listed(name):
    assert getattr(redraft, name) is not None
    assert name not in redraft.__all__
    assert name not in dir(redraft)


@pytest.mark.parametrize("module", NAMES)
def test_type_checkers_see_the_same_names(module):
    feature = import_module(module)
    tree = ast.parse(Path(feature.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname for node in imports for alias in node.names if alias.asname}
    if not hasattr(feature, "__getattr__"):  # its names are its own
        assert seen == set()
    else:
        assert seen == set(feature.__all__) | set(SPECIFIED if module == "redraft" else ())


def test_the_front_door_says_where_another_name_is():
    offered = {*NAMES["redraft"].split(), *SPECIFIED, "redact"}  # the last is the module of that name
    for home, names in NAMES.items():
        for name in set(names.split()) - offered:
            assert name not in dir(redraft)
            says = f"{name!r} is not in 'redraft'; write: from {home} import {name}"
            with pytest.raises(ImportError, match=f"{re.escape(says)}$"):
                exec(f"from redraft import {name}", {})  # noqa: S102 (our own names)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_it"):
        redraft.nothing_like_it  # noqa: B018
    assert not hasattr(redraft, "_nothing_like_it")


def test_a_module_can_be_imported_from_the_package():
    from redraft import doctor, errors

    assert (doctor.__name__, errors.__name__) == ("redraft.doctor", "redraft.errors")


def test_a_module_of_the_package_has_no_name_of_its_front_door():
    """Importing a module binds it in its package, which would replace the name."""
    for name, text in NAMES.items():
        folder = Path(import_module(name).__file__).parent
        if Path(import_module(name).__file__).name == "__init__.py":
            assert {path.stem for path in folder.iterdir()}.isdisjoint(text.split())
