"""Events of a workflow, beside those of the loops in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from redraft.core.events import Event
from redraft.workflow.result import WorkflowResult


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node begins; `visit` counts how often it has, from 1."""

    run_id: str
    node: str
    visit: int = 1
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node gave `result`, was skipped by its `when`, or failed where `on_error` lets the workflow go on."""

    run_id: str
    node: str
    result: Any = None
    skipped: bool = False
    error: str = ""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """A workflow came to its end."""

    run_id: str
    result: WorkflowResult
    schema_version: int = 1


WorkflowEvent: TypeAlias = NodeStarted | NodeFinished | WorkflowFinished | Event
