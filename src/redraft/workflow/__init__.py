"""Workflows: agents with self-correction as YAML files."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.approvals import Approval as Approval
    from redraft.approvals import Approvals as Approvals
    from redraft.approvals import HumanAnswer as HumanAnswer
    from redraft.workflow.actions import action as action
    from redraft.workflow.history import Workflows as Workflows
    from redraft.workflow.run import ItemFinished as ItemFinished
    from redraft.workflow.run import NodeFinished as NodeFinished
    from redraft.workflow.run import NodeStarted as NodeStarted
    from redraft.workflow.run import WorkflowEvent as WorkflowEvent
    from redraft.workflow.run import WorkflowFinished as WorkflowFinished
    from redraft.workflow.run import WorkflowResult as WorkflowResult
    from redraft.workflow.spec import workflow_schema as workflow_schema
    from redraft.workflow.workflow import Workflow as Workflow
    from redraft.workflow.workflow import WorkflowStream as WorkflowStream
    from redraft.workflow.workflow import run_action as run_action

_PLACES = {
    "actions": ("action",),
    "approval": ("HumanAnswer", "Approval", "Approvals"),
    "history": ("Workflows",),
    "run": (
        "ItemFinished",
        "NodeFinished",
        "NodeStarted",
        "WorkflowEvent",
        "WorkflowFinished",
        "WorkflowResult",
    ),
    "spec": ("workflow_schema",),
    "workflow": ("Workflow", "WorkflowStream", "run_action"),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
