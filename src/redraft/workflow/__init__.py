"""Workflows: agents with self-correction as YAML files."""

from __future__ import annotations

from redraft.core.lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.workflow.actions import action as action
    from redraft.workflow.events import NodeFinished as NodeFinished
    from redraft.workflow.events import NodeStarted as NodeStarted
    from redraft.workflow.events import WorkflowEvent as WorkflowEvent
    from redraft.workflow.events import WorkflowFinished as WorkflowFinished
    from redraft.workflow.result import WorkflowResult as WorkflowResult
    from redraft.workflow.schema import workflow_schema as workflow_schema
    from redraft.workflow.workflow import Workflow as Workflow
    from redraft.workflow.workflow import run_action as run_action

_PLACES = {
    "actions": ("action",),
    "events": ("NodeFinished", "NodeStarted", "WorkflowEvent", "WorkflowFinished"),
    "result": ("WorkflowResult",),
    "schema": ("workflow_schema",),
    "workflow": ("Workflow", "run_action"),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
