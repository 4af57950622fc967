"""The dashboard's page of a workflow: its nodes in their order, their outcomes, and the runs of its loops."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft._texts import as_text
from redraft.errors import ConfigError
from redraft.loop.record import Process, RunRecord
from redraft.loop.runs import AT_WORK, Runs, state_of
from redraft.stores.run_index import RunQuery, run_index
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.people import who_decides
from redraft.web.rendering import clipped
from redraft.workflow.approval import Approval, Approvals
from redraft.workflow.history import (
    NodeOutcome,
    NodeRun,
    StoredWorkflow,
    WorkflowHistory,
    WorkflowRow,
    Workflows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.workflow.graph import GraphEdge, WorkflowGraph


@dataclass(frozen=True, slots=True)
class NodeView:
    """One visit of a node; `value` is its output as text."""

    run: NodeRun
    outcome: NodeOutcome
    value: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a person; `data` is what it is about, as text."""

    approval: Approval
    data: str


@dataclass(frozen=True, slots=True)
class WorkflowView:
    """What the page of a workflow shows; `state` is its final one, `graph` that of older runs None.

    `continuation` says what goes on with it after an answer; `resuming_call` is the Python call that resumes
    it, if a program started it.
    """

    row: WorkflowRow
    inputs: str
    nodes: tuple[NodeView, ...]
    state: str
    graph: GraphDrawing | None
    waiting: tuple[Question, ...]
    continuation: str
    resuming_call: str


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
    waiting = tuple(Question(approval, _text(approval.data)) for approval in history.waiting)
    graph = None if record.graph is None else graph_drawing(record.graph, history.nodes)
    return WorkflowView(
        history.row,
        _text(record.inputs),
        nodes,
        _text(record.state),
        graph,
        waiting,
        history.kept.continuation,
        history.kept.resuming_call,
    )


async def answer(form: Form) -> str:
    """Answer a question of a workflow."""
    approvals = Approvals(form.project.store)
    name, verdict, value = form.path["approval"], form.text("verdict"), form.text("value", "").strip()
    approval = await approvals.get(name)
    if approval is None or approval.id != name:
        raise NotFoundError(f"There is no open question {name!r}.")
    if verdict not in ("approve", "reject"):
        raise ConfigError(f"The verdict must be 'approve' or 'reject', got {verdict!r}.")
    try:
        changed = json.loads(value) if value else ...
    except ValueError as error:
        raise ConfigError(f"The value is not JSON: {error}") from error
    approved = verdict == "approve"
    comment, by = form.text("comment", ""), await who_decides(form) or "dashboard"
    await approvals.answer(approval, approved=approved, value=changed, comment=comment, by=by)
    kept = await Workflows(form.project.store).get(approval.run_id)
    return f"{'Approved' if approved else 'Rejected'}. {'' if kept is None else kept.continuation}".rstrip()


# --- the graph: nodes beneath each other, gotos as arcs on the right, errors as arcs on the left ---

BOX_WIDTH, BOX_HEIGHT, BOX_GAP, MARGIN = 230, 42, 26, 6
LANE = 22
"""The distance of two arcs beside each other."""
MOST_DRAWN = 60
"""The most nodes in a drawing that a person still reads."""


@dataclass(frozen=True, slots=True)
class GraphBox:
    """A node in the drawing; `outcome` is `done`, `failed`, or empty if it did not run."""

    y: int
    name: str
    does: str
    outcome: str


@dataclass(frozen=True, slots=True)
class GraphArc:
    """An edge in the drawing: an SVG path, its kind, and a label with its place."""

    path: str
    kind: str
    label: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """A graph laid out for SVG; the end is a box without a name."""

    width: int
    height: int
    left: int
    boxes: tuple[GraphBox, ...]
    arcs: tuple[GraphArc, ...]
    box_width: int = BOX_WIDTH
    box_height: int = BOX_HEIGHT


def graph_drawing(graph: WorkflowGraph, visits: Sequence[NodeRun]) -> GraphDrawing | None:
    """Lay out the graph of a run, with what became of its nodes; None if there are too many to read."""
    if len(graph.nodes) > MOST_DRAWN:
        return None
    ended = [visit for visit in visits if visit.seconds is not None]
    outcomes = {visit.node: "failed" if visit.error else "done" for visit in ended}
    lanes = {side: _lanes([edge for edge in graph.edges if edge.kind == side]) for side in ("goto", "error")}
    left = MARGIN + LANE * (1 + max(lanes["error"].values(), default=-1))
    right = left + BOX_WIDTH
    boxes = [
        GraphBox(_top(at), node.name, ", ".join((node.does, *node.bounds)), outcomes.get(node.name, ""))
        for at, node in enumerate(graph.nodes)
    ]
    boxes.append(GraphBox(_top(len(graph.nodes)), "", "end", ""))
    beyond = right + LANE * (1 + max(lanes["goto"].values(), default=-1)) + MARGIN
    arcs = [_arc(edge, lanes, left, right, beyond) for edge in graph.edges]
    labels = max((arc.x + 7 * len(arc.label) for arc in arcs), default=0)
    return GraphDrawing(max(right, labels) + MARGIN, _top(len(boxes)), left, tuple(boxes), tuple(arcs))


def _top(at: int) -> int:
    return MARGIN + at * (BOX_HEIGHT + BOX_GAP)


def _lanes(edges: Sequence[GraphEdge]) -> dict[GraphEdge, int]:
    """Return how far out each arc runs, so that no two of them cross more than they have to."""
    lanes: dict[GraphEdge, int] = {}
    for edge in sorted(edges, key=lambda edge: abs(edge.to - edge.start)):
        low, high = sorted((edge.start, edge.to))
        taken = {
            lane
            for other, lane in lanes.items()
            if min(other.start, other.to) <= high and low <= max(other.start, other.to)
        }
        lanes[edge] = next(lane for lane in range(len(edges)) if lane not in taken)
    return lanes


def _arc(
    edge: GraphEdge, lanes: Mapping[str, Mapping[GraphEdge, int]], left: int, right: int, beyond: int
) -> GraphArc:
    """Return the arc of an edge; labels stand beyond all arcs, level with where theirs begins."""
    middle = left + BOX_WIDTH // 2
    if edge.kind == "next":
        path = f"M {middle} {_top(edge.start) + BOX_HEIGHT} V {_top(edge.to)}"
        return GraphArc(path, edge.kind, "", middle, 0)
    start, to = _top(edge.start) + BOX_HEIGHT * 2 // 3, _top(edge.to) + BOX_HEIGHT // 3
    out = LANE * (1 + lanes[edge.kind][edge])
    side, far = (right, right + out) if edge.kind == "goto" else (left, left - out)
    label = edge.label if edge.kind == "goto" else ""
    return GraphArc(f"M {side} {start} H {far} V {to} H {side}", edge.kind, label, beyond, start + 4)


def _text(value: Any) -> str:
    return "" if value is None or value == {} else clipped(as_text(value))


async def _fingerprint(request: PageRequest) -> str:
    """Return a text that changes as nodes end and loops go on; empty once the workflow has ended."""
    kept, project = await _kept(request), request.project
    run_id = kept.record.run_id
    if kept.state == "waiting":
        return f"{len(await Approvals(project.store).waiting(run_id))} waiting"
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
    ),
    changes=(Change("/approvals/{approval}", answer),),
)
