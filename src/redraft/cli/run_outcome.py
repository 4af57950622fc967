"""What a workflow came to, as it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redraft.cli.console import emit_json, emit_made
from redraft.core.summary import render_usage
from redraft.core.texts import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.workflow.result import WorkflowResult

OUTPUT = "reflection_output"


def deliver_workflow(result: WorkflowResult, last: Any, *, as_json: bool) -> None:
    """Print what the last node gave, or the JSON document with the state at the end."""
    if as_json:
        emit_json(
            {
                "run_id": result.run_id,
                "state": result.state,
                "nodes": result.nodes,
                "token_usage": result.usage,
                "execution_time": result.execution_time,
            }
        )
    elif last is not None:
        emit_made(readable(last))


def readable(value: Any) -> str:
    """Render what a node gave: of a loop its output, an object with one text as that text, else as JSON."""
    if isinstance(value, dict):
        items = cast("Mapping[str, Any]", value)
        if OUTPUT in items and "reflection_history" in items:
            return as_text(items[OUTPUT])
        if len(items) == 1 and isinstance(only := next(iter(items.values())), str):
            return only
    return as_text(value)


def workflow_ending(result: WorkflowResult) -> str:
    """Say how many nodes ran, and what it used."""
    nodes = "1 node" if len(result.nodes) == 1 else f"{len(result.nodes)} nodes"
    return f"Finished: {nodes}. Used: {render_usage(result.usage)}, {result.execution_time:.1f} s."
