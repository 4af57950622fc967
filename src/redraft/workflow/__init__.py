"""Workflows: agents with self-correction as YAML files."""

from __future__ import annotations

from importlib import import_module

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
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = sorted(_PLACE_OF)  # noqa: PLE0605 # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)


def __getattr__(name: str) -> object:
    # Loaded on first use: whoever needs one module of this folder does not pay for all.
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'redraft.workflow' has no attribute {name!r}")
    value = getattr(import_module(f"redraft.workflow.{_PLACE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_PLACE_OF)
