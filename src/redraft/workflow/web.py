"""Workflow: the nodes of one workflow in their order, what each came to, and the runs of its loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.progress import Progress
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import AT_WORK, state_of
from redraft.stores.run_index import run_index
from redraft.web.page import NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import clipped
from redraft.workflow.history import (
    KeptWorkflow,
    NodeOutcome,
    NodeRun,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
)


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


async def workflow(request: PageRequest) -> WorkflowHistory:
    """Read a workflow with its nodes; of its loops' runs no more than a row of each says."""
    history = await Workflows(request.project.store).history(await _kept(request))
    nodes = tuple(replace(node, runs=tuple(map(_without_texts, node.runs))) for node in history.nodes)
    return await request.project.redacted(replace(history, nodes=nodes), full=request.full, spared=(Process,))


def _without_texts(run: RunRecord) -> RunRecord:
    """Return a run without what its versions say: to search megabytes for secrets would take long."""
    versions = tuple(replace(version, output="", conversation=None) for version in run.versions)
    return replace(run, versions=versions, draft=None)


async def _kept(request: PageRequest) -> KeptWorkflow:
    run_id = request.path["run_id"]
    try:
        kept = await Workflows(request.project.store).get(run_id)
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


async def _fingerprint(request: PageRequest) -> str:
    """Return what tells one state of a workflow from another: its last node, and how far its loops are."""
    kept, project = await _kept(request), request.project
    run_id = kept.record.run_id
    if kept.state not in AT_WORK:
        return ""
    loops = await run_index(project.store).find(prefixes=(f"{run_id}.",))
    at_work = [row.run_id for row in reversed(loops) if state_of(row) in AT_WORK]
    told = [f"{one} {await project.shared(Progress.of).how_far(one)}" for one in (run_id, *at_work)]
    return "; ".join([*told, f"{len(loops)} loops"])


SLICE = Slice(
    (
        Page(
            "/workflows/{run_id}",
            "workflow/templates/workflow.html",
            workflow,
            WorkflowHistory.document,
            section="/runs",
            fingerprint=_fingerprint,
            present=_view,
        ),
    )
)
