"""Kept workflows: keep, list and read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from redraft._codec import from_json, from_record, to_json, to_record
from redraft.errors import ChangedRunError, ConfigError
from redraft.loop.record import RUN, Process, RunRecord, Status
from redraft.loop.runs import LAST, PAGE, UNENDED, KeptStep, Runs, row_document
from redraft.stores.base import Record, intact
from redraft.types import NOTHING_USED, TokenUsage
from redraft.workflow.run import NodeResult, WorkflowResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.stores.base import Scalar, Store

WORKFLOW = "workflow"
"""The kind of the records of workflows."""


@dataclass(slots=True)
class WorkflowRecord:
    """One run of a workflow: its file, the values it was given, and how it ended.

    The steps of its nodes are in its journal; the runs of its loops have it as their parent.
    """

    noun: ClassVar[str] = "workflow"

    run_id: str
    name: str
    file: str
    given: Mapping[str, Any]
    started_at: datetime
    status: Status = "running"
    finished_at: datetime | None = None
    state: dict[str, Any] | None = None
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    error: str = ""

    def stored(self) -> Record:
        """Return the record as a store has it; the fields that workflows are searched by are always there."""
        asked = {"status": self.status, "name": self.name}
        return Record(WORKFLOW, self.run_id, to_record(self) | asked)

    def check_same(self, _stored: Record, before: WorkflowRecord, /) -> None:
        """Raise `ChangedRunError` if the stored one is of another workflow, or was given other values."""
        if (before.name, before.given) != (self.name, to_json(self.given)):
            raise ChangedRunError(
                f"Under the id {self.run_id!r} the workflow {before.name!r} ran with other values. "
                "Give a new one a new run_id."
            )

    def end(self, result: WorkflowResult) -> None:
        """Fill in how the workflow ended."""
        self.status, self.state, self.nodes = "finished", result.state, result.nodes
        self.usage, self.execution_time = result.usage, result.execution_time

    def result(self) -> WorkflowResult:
        """Return the result of a workflow that has finished."""
        return WorkflowResult(self.state or {}, self.run_id, self.nodes, self.usage, self.execution_time)


BEGAN = "workflow command"
"""The kind of the records that say which command began a workflow."""


@dataclass(frozen=True, slots=True)
class Began:
    """Say which command began a workflow, in which folder, and which process is at work on it."""

    arguments: tuple[str, ...]
    folder: str
    process: Process


@dataclass(frozen=True, slots=True)
class KeptWorkflow:
    """Hold a kept workflow; `began` is None where a program began it.

    `created_at` is when the store first had it, by which the newest first are read.
    """

    record: WorkflowRecord
    began: Began | None
    created_at: datetime

    @property
    def state(self) -> str:
        """How it stands now: its status, or for a running one what is known of its process."""
        if self.record.status != "running" or self.began is None:
            return self.record.status
        return self.began.process.state_of_run


async def found_workflow(store: Store, run: str, *, or_of_loop: bool = False) -> KeptWorkflow | None:
    """Find the workflow that an id means, with `or_of_loop` also by the id of a loop in it.

    That is its own id, how it begins, or `last`; None where it means none: it may be a run. Raises
    `ConfigError` for the beginning of several.
    """
    found = await (_last(store) if run == LAST else _named(store, run, or_of_loop=or_of_loop))
    return None if found is None else await _read(store, found)


async def kept_workflows(
    store: Store, status: str | None, name: str | None, limit: int, *, after: Record | None = None
) -> list[KeptWorkflow]:
    """Return the newest workflows first, of a status (`killed` and `unknown` are some), of a name.

    They are those that began before `after`, the record of a workflow or run. One whose record is damaged is
    among them, with the status `damaged`.
    """
    where: dict[str, Scalar] = {} if name is None else {"name": name}
    if status is not None:
        where["status"] = "running" if status in UNENDED else status
    # Which of those that have not ended were killed shows only when one looks for their processes.
    most = None if where.get("status") == "running" else limit
    found = await store.find(WORKFLOW, where=where, newest_first=True, after=after, limit=most)
    kept = [_damaged(record) if record.damage else await _read(store, record) for record in found]
    return [one for one in kept if status in (None, one.state) or one.record.status == "damaged"][:limit]


def _damaged(found: Record) -> KeptWorkflow:
    record = WorkflowRecord(found.key, "", "", {}, _age(found), "damaged", error=found.damage)
    return KeptWorkflow(record, None, _age(found))


async def _read(store: Store, found: Record) -> KeptWorkflow:
    record = from_record(WorkflowRecord, found.data)
    began = await store.get(BEGAN, found.key)
    return KeptWorkflow(record, None if began is None else from_record(Began, began.data), _age(found))


async def _last(store: Store) -> Record | None:
    """Return the workflow that began last, unless a run outside of it began later."""
    workflows = intact(await store.find(WORKFLOW, newest_first=True, limit=PAGE))[:1]
    runs = intact(await store.find(RUN, where={"inner": False}, newest_first=True, limit=PAGE))[:1]
    if not workflows or not runs or _is_inside(runs[0], workflows[0]):
        return workflows[0] if workflows else None
    return max((*workflows, *runs), key=_age) if _age(workflows[0]) > _age(runs[0]) else None


async def _named(store: Store, run: str, *, or_of_loop: bool) -> Record | None:
    if record := await store.get(WORKFLOW, run):
        return record
    if (inner := await store.get(RUN, run)) is not None:
        return await store.get(WORKFLOW, str(inner.data.get("parent") or "")) if or_of_loop else None
    if not run:
        return None
    workflows = await store.find(WORKFLOW, prefix=run, limit=3)
    runs = [one for one in await store.find(RUN, prefix=run) if not _is_in_any(one, workflows)]
    if len(workflows) > 1 or (workflows and runs):
        names = ", ".join(record.key for record in (*workflows, *runs[:3]))
        raise ConfigError(f"Several runs begin with {run!r}: {names}; give more of the one you mean.")
    return workflows[0] if workflows else None


def _is_inside(run: Record, workflow: Record) -> bool:
    return run.key.startswith(f"{workflow.key}.")


def _is_in_any(run: Record, workflows: Sequence[Record]) -> bool:
    return any(_is_inside(run, workflow) for workflow in workflows)


def _age(record: Record) -> datetime:
    return record.created_at or datetime.now(UTC)


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
