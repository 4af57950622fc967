"""Workflow: the nodes of one workflow in their order, what each came to, and the runs of its loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.record import RUN
from redraft.web.entry import AT_WORK, entry_of
from redraft.web.excerpt import saying_only
from redraft.web.page import Asked, NotFoundError, Page
from redraft.web.shown import clipped
from redraft.workflow.history import (
    KeptWorkflow,
    NodeRun,
    WorkflowHistory,
    WorkflowRow,
    found_workflow,
    workflow_history,
)
from redraft.workflow.run import NodeOutcome


@dataclass(frozen=True, slots=True)
class NodeView:
    """Hold one visit of a node; `value` is what it gave, as text."""

    run: NodeRun
    outcome: NodeOutcome
    value: str


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """Hold a workflow and its nodes; `given` and `state` are the values it began with and ended with."""

    row: WorkflowRow
    given: str
    nodes: tuple[NodeView, ...]
    state: str


async def workflow(asked: Asked) -> WorkflowHistory:
    """Read a workflow with its nodes; of its loops' runs no more than a row of each says."""
    history = await workflow_history(asked.project.store, await _kept(asked))
    nodes = tuple(
        replace(node, runs=tuple(saying_only(run, ()) for run in node.runs)) for node in history.nodes
    )
    return await asked.project.shown(replace(history, nodes=nodes), whole=asked.whole)


async def _kept(asked: Asked) -> KeptWorkflow:
    run_id = asked.path["run_id"]
    try:
        kept = await found_workflow(asked.project.store, run_id)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    if kept is None:
        raise NotFoundError(f"There is no workflow {run_id!r} here; the page of runs lists those there are.")
    return kept


def _view(history: WorkflowHistory) -> WorkflowView:
    record = history.kept.record
    nodes = tuple(NodeView(run, NodeOutcome.of(run.value), _text(run.value)) for run in history.nodes)
    return WorkflowView(history.row, _text(record.given), nodes, _text(record.state))


def _text(value: Any) -> str:
    return "" if value is None or value == {} else clipped(as_text(value))


async def _mark(asked: Asked) -> str:
    """Return what tells one state of a workflow from another: its last node, and how far its loops are."""
    kept, project = await _kept(asked), asked.project
    run_id = kept.record.run_id
    if kept.state not in AT_WORK:
        return ""
    loops = [entry_of(record) for record in await project.store.find(RUN, prefix=f"{run_id}.")]
    at_work = [entry.run_id for entry in loops if entry.state in AT_WORK]
    told = [f"{one} {await project.moving.how_far(one)}" for one in (run_id, *at_work)]
    return "; ".join([*told, f"{len(loops)} loops"])


PAGE = Page(
    "/workflows/{run_id}",
    "workflow.html",
    workflow,
    WorkflowHistory.document,
    within="/runs",
    mark=_mark,
    arrange=_view,
)
