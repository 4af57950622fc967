"""One kept workflow as a person reads it: its nodes in order, what each came to, its loops' runs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft.cli.run_progress import node_outcome
from redraft.cli.run_rows import first_to_best, outcome, state_text, when
from redraft.cli.show import BAD, QUIET
from redraft.core.errors import ConfigError
from redraft.core.summary import render_usage
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.workflow.history import NodeRun, WorkflowHistory

LONGEST_VALUE = 200
INDENT = (0, 0, 0, 2)


def check_workflow_options(history: WorkflowHistory, *, version: str | None, prompts: bool) -> None:
    """Raise `ConfigError` for an option that is for runs: a workflow has no versions of its own."""
    if version is None and not prompts:
        return
    option = "--prompts" if version is None else "--version"
    runs = [run.run_id for node in history.nodes for run in node.runs]
    instead = f"give one of its loops: {', '.join(runs)}" if runs else "it has no loops"
    raise ConfigError(f"{history.row.run_id!r} is a workflow, and {option} is for runs; {instead}.")


def workflow_view(history: WorkflowHistory) -> RenderableType:
    """Render a workflow."""
    record, row = history.kept.record, history.row
    title = f"  workflow {visible(row.name)} ({visible(row.file)}), {when(row.started_at)}"
    parts: list[RenderableType] = [Text.assemble((row.run_id, "bold"), title)]
    if record.given:
        parts.append(Padding(Text(_short(dict(record.given)), QUIET), INDENT))
    parts += ["", Text.assemble("State: ", state_text(row.status))]
    if row.error:
        parts.append(Text(f"Error: {visible(row.error)}", BAD))
    if history.nodes:
        parts += ["", _nodes(history)]
    parts += ["", Text(f"Used: {render_usage(row.usage)}, {row.execution_time:.1f} s.")]
    if any(node.runs for node in history.nodes):
        parts.append(Text("redraft show RUN shows a loop's attempts.", QUIET))
    return Group(*parts)


def _nodes(history: WorkflowHistory) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", style=QUIET)
    table.add_column()
    for node in history.nodes:
        seconds = "" if node.seconds is None else f"{node.seconds:.1f} s"
        name = visible(node.node) or "not ended"
        table.add_row(name, seconds, _outcome(node))
        for run in node.runs:
            scores = first_to_best(run)
            line = Text.assemble((run.run_id, QUIET), "  ", outcome(run), f"  {scores}" if scores else "")
            table.add_row("", "", line)
    return table


def _outcome(node: NodeRun) -> Text:
    if node.error:
        return Text(visible(node.error), BAD)
    if node.runs and node.seconds is not None:  # what a loop gave is what its run shows
        return node_outcome(node.value)
    return Text("" if node.value is None else _short(node.value), QUIET)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    line = visible(" ".join(text.split()))
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]} ..."
