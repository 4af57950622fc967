"""The dashboard's page of a workflow: its nodes in their order, their outcomes, and the runs of its loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import AT_WORK, Runs, state_of
from redraft.stores.run_index import RunQuery, run_index
from redraft.web.page import NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import clipped
from redraft.workflow.history import (
    NodeOutcome,
    NodeRun,
    StoredWorkflow,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One visit of a node; `value` is its output as text."""

    run: NodeRun
    outcome: NodeOutcome
    value: str


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """What the page of a workflow shows; `state` is its final one."""

    row: WorkflowRow
    inputs: str
    nodes: tuple[NodeView, ...]
    state: str


async def workflow(request: PageRequest) -> WorkflowHistory:
    """Read a workflow with its nodes, and the runs of its loops without their texts."""
    history = await Workflows(request.project.store).history(await _kept(request))
    nodes = tuple(replace(node, runs=tuple(map(_without_texts, node.runs))) for node in history.nodes)
    return await request.project.redacted(replace(history, nodes=nodes), full=request.full, spared=(Process,))


def _without_texts(run: RunRecord) -> RunRecord:
    """Remove the texts of a run's versions: searching megabytes for secrets would take long."""
    versions = tuple(replace(version, output="", conversation=None, choice=None) for version in run.versions)
    return replace(run, versions=versions, draft=None)


async def _kept(request: PageRequest) -> StoredWorkflow:
    run_id = request.path["run_id"]
    try:
        kept = await Workflows(request.project.store).get(run_id)
    except ConfigError as error:
        raise NotFoundError(str(error)) from error
    if kept is None:
        raise NotFoundError(f"There is no workflow {run_id!r} here; the page of runs lists all.")
    return kept


def workflow_page(history: WorkflowHistory) -> WorkflowView:
    """Prepare the page of a workflow."""
    record = history.kept.record
    nodes = tuple(NodeView(run, NodeOutcome.of(run.value), _text(run.value)) for run in history.nodes)
    return WorkflowView(history.row, _text(record.inputs), nodes, _text(record.state))


def _text(value: Any) -> str:
    return "" if value is None or value == {} else clipped(as_text(value))


async def _fingerprint(request: PageRequest) -> str:
    """Return a text that changes as nodes end and loops go on; empty once the workflow has ended."""
    kept, project = await _kept(request), request.project
    run_id = kept.record.run_id
    if kept.state not in AT_WORK:
        return ""
    loops = await run_index(project.store).find(RunQuery(prefixes=(f"{run_id}.",)))
    at_work = [row.run_id for row in reversed(loops) if state_of(row) in AT_WORK]
    runs = Runs(project.store)
    progress = [await runs.latest_step(one) for one in (run_id, *at_work)]
    return "; ".join([*progress, f"{len(loops)} loops"])


SLICE = Slice(
    pages=(
        Page(
            "/workflows/{run_id}",
            "workflow/templates/workflow.html",
            workflow,
            WorkflowHistory.document,
            section="/runs",
            fingerprint=_fingerprint,
            present=workflow_page,
        ),
    )
)
