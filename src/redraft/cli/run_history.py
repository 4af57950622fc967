"""What is kept of a workflow: how it stands, and its nodes in order, with the runs of their loops."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.cli.run_kept import KeptWorkflow, found_workflow, kept_workflows
from redraft.core.codec import from_json
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.loop.record import RUN, Process, RunRecord
from redraft.loop.run_document import row_document
from redraft.loop.runs import KeptStep, Runs
from redraft.redact.environment import redactor_of_environment
from redraft.stores.place import project_store
from redraft.workflow.keep import WORKFLOW
from redraft.workflow.running import NodeResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.stores.base import Store

T = TypeVar("T")

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

    def document(self) -> dict[str, Any]:
        """Describe it as plain data."""
        return {"kind": WORKFLOW, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class WorkflowHistory:
    """Hold a kept workflow with the visits of its nodes, in their order."""

    kept: KeptWorkflow
    nodes: tuple[NodeRun, ...]

    @property
    def row(self) -> WorkflowRow:
        """How it went; what it used is known as a whole only when it has finished."""
        record, used = self.kept.record, (node.usage for node in self.nodes)
        return WorkflowRow(
            record.run_id,
            record.name,
            record.file,
            self.kept.state,
            record.error,
            record.started_at,
            record.finished_at,
            len(self.nodes),
            record.usage if record.status == "finished" else sum(used, NOTHING_USED),
            record.execution_time or sum(node.seconds or 0.0 for node in self.nodes),
        )

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


def read_history(run: str) -> WorkflowHistory | None:
    """Read the workflow that an id means: its own, the beginning of one, or `last`; secrets are withheld.

    None where it means none, or a run. Raises `ConfigError` for the beginning of several.
    """

    async def read(store: Store) -> WorkflowHistory | None:
        kept = await found_workflow(store, run)
        return None if kept is None else await _history(store, kept)

    # Whether one was killed is known by its process, which no view shows.
    history = _reading(read)
    return None if history is None else redactor_of_environment().redact_object(history, spared=(Process,))


def read_workflows(*, status: str | None, name: str | None, limit: int) -> list[WorkflowRow]:
    """Read the newest workflows that fit, with their secrets withheld."""

    async def read(store: Store) -> list[WorkflowRow]:
        return [(await _history(store, one)).row for one in await kept_workflows(store, status, name, limit)]

    return [redactor_of_environment().redact_object(row) for row in _reading(read) or ()]


def _reading(read: Callable[[Store], Awaitable[T]]) -> T | None:
    store = project_store()
    if store is None:
        return None

    async def reading() -> T:
        try:
            return await read(store)
        finally:
            await store.aclose()

    return asyncio.run(reading())


async def _history(store: Store, kept: KeptWorkflow) -> WorkflowHistory:
    runs, run_id = Runs(store), kept.record.run_id
    steps = [step for step in await runs.steps(run_id) if not step.is_inner and not step.void]
    inside = [await runs.get(record.key) for record in await store.find(RUN, prefix=f"{run_id}.")]
    left = sorted(inside, key=lambda run: run.started_at)
    nodes: list[NodeRun] = []
    for step in steps:
        own = tuple(run for run in left if run.started_at <= step.at)
        left = left[len(own) :]
        nodes.append(_node_run(step, own))
    if left:  # the node that is at work, or was when it ended
        nodes.append(NodeRun("", runs=tuple(left)))
    return WorkflowHistory(kept, tuple(nodes))


def _node_run(step: KeptStep, runs: tuple[RunRecord, ...]) -> NodeRun:
    node = step.name.removeprefix(NODE)
    if step.error is not None:
        error = f"{step.error['type']}: {step.error['message']}"
        return NodeRun(node, step.seconds, error=error, runs=runs)
    gave = from_json(NodeResult, step.result)
    return NodeRun(node, step.seconds, gave.value, gave.usage, runs=runs)
