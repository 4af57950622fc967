"""WorkflowHistory: what is kept of a workflow: its nodes in order, with the runs of their loops."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from redraft.core.codec import from_json
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.record import RUN, RunRecord
from redraft.loop.run_document import row_document
from redraft.loop.runs import KeptStep, Runs
from redraft.workflow.keep import WORKFLOW
from redraft.workflow.kept_workflow import KeptWorkflow
from redraft.workflow.running import NodeResult

if TYPE_CHECKING:
    from redraft.stores.base import Store

NODE = "node "
"""What the name of a node's step begins with."""


@dataclass(frozen=True, slots=True)
class NodeRun:
    """Hold one visit of a node: what it gave or what it failed with, and the runs of the loops in it.

    `seconds` is None for one that has not ended.
    """

    node: str
    seconds: float | None = None
    value: Any = None
    used: TokenUsage = NOTHING_USED
    error: str = ""
    runs: tuple[RunRecord, ...] = ()

    @property
    def usage(self) -> TokenUsage:
        """What it used; of one that gave nothing, what its loops did."""
        if self.seconds is not None and not self.error:
            return self.used
        return sum((run.usage for run in self.runs), NOTHING_USED)


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """Say of a workflow in a few fields how it went; `nodes` counts those that ran."""

    run_id: str
    name: str
    file: str
    status: str
    error: str
    started_at: datetime
    finished_at: datetime | None
    nodes: int
    usage: TokenUsage
    execution_time: float
    kind: ClassVar[str] = WORKFLOW

    def document(self) -> dict[str, Any]:
        """Describe it as plain data."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class WorkflowHistory:
    """Hold a kept workflow with the visits of its nodes, in their order."""

    kept: KeptWorkflow
    nodes: tuple[NodeRun, ...]

    @property
    def row(self) -> WorkflowRow:
        """How it went; what it used is known as a whole only when it has finished."""
        record, used = self.kept.record, (node.usage for node in self.nodes)
        if record.status == "finished":
            return _finished(self.kept)
        seconds = record.execution_time or sum(node.seconds or 0.0 for node in self.nodes)
        return _row(self.kept, len(self.nodes), sum(used, NOTHING_USED), seconds)

    def document(self) -> dict[str, Any]:
        """Describe all of it as plain data."""
        nodes = [
            {
                "node": node.node,
                "ended": node.seconds is not None,
                "value": node.value,
                "error": node.error,
                "usage": node.usage,
                "seconds": node.seconds,
                "runs": [row_document(run) for run in node.runs],
            }
            for node in self.nodes
        ]
        record = self.kept.record
        return self.row.document() | {"given": dict(record.given), "nodes": nodes, "state": record.state}


async def workflow_history(store: Store, kept: KeptWorkflow) -> WorkflowHistory:
    """Read the nodes of a kept workflow."""
    runs, run_id = Runs(store), kept.record.run_id
    steps = [step for step in await runs.steps(run_id) if not step.is_inner and not step.void]
    inside = [await runs.listed(record) for record in await store.find(RUN, prefix=f"{run_id}.")]
    left = sorted(inside, key=lambda run: run.started_at)
    nodes: list[NodeRun] = []
    for step in steps:
        own = tuple(run for run in left if run.started_at <= step.at)
        left = left[len(own) :]
        nodes.append(_node_run(step, own))
    if left:  # the node that is at work, or was when it ended
        nodes.append(NodeRun("", runs=tuple(left)))
    return WorkflowHistory(kept, tuple(nodes))


async def workflow_row(store: Store, kept: KeptWorkflow) -> WorkflowRow:
    """Say how a workflow went; the nodes of one that finished need not be read for that."""
    if kept.record.status in ("finished", "damaged"):
        return _finished(kept)
    return (await workflow_history(store, kept)).row


def _finished(kept: KeptWorkflow) -> WorkflowRow:
    record = kept.record
    return _row(kept, len(record.nodes), record.usage, record.execution_time)


def _row(kept: KeptWorkflow, nodes: int, usage: TokenUsage, seconds: float) -> WorkflowRow:
    record = kept.record
    return WorkflowRow(
        record.run_id,
        record.name,
        record.file,
        kept.state,
        record.error,
        record.started_at,
        record.finished_at,
        nodes,
        usage,
        seconds,
    )


def _node_run(step: KeptStep, runs: tuple[RunRecord, ...]) -> NodeRun:
    node = step.name.removeprefix(NODE)
    if step.error is not None:
        error = f"{step.error['type']}: {step.error['message']}"
        return NodeRun(node, step.seconds, error=error, runs=runs)
    gave = from_json(NodeResult, step.result)
    return NodeRun(node, step.seconds, gave.value, gave.usage, runs=runs)
