"""Stored workflows: their records, lists of them, and the history of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, cast

from redraft._codec import from_json, from_record, to_json, to_record
from redraft._texts import counted
from redraft._validation import only
from redraft.approvals import Approval, Approvals
from redraft.errors import ChangedRunError, ConfigError, DamagedRecordError
from redraft.loop.record import RUN, Process, RunRecord, Status
from redraft.loop.runs import LAST, PAGE, STATE_HEADLINES, UNFINISHED, Runs, StoredStep, Why, check_status
from redraft.stores.base import Record, intact
from redraft.stores.location import required_project_store
from redraft.stores.run_index import RunQuery, run_index
from redraft.types import NOTHING_USED, REASONS, ConvergenceReason, Stop, TokenUsage, render_score
from redraft.workflow.graph import WorkflowGraph
from redraft.workflow.run import ITEM_STEP, NODE, WorkflowResult
from redraft.workflow.runtime import ActionResult
from redraft.workflow.spec import UNNAMED

if TYPE_CHECKING:
    from redraft.stores.base import Scalar, Store

WORKFLOW = "workflow"
"""The kind of the records of workflows."""
INNER_WORKFLOW = "workflow inside"
"""The kind of the records of workflows that are nodes of others: they are read by id, and not listed."""


@dataclass(slots=True)
class WorkflowRecord:
    """One run of a workflow: its file, its inputs, its graph at the time, and how it ended.

    The steps of its nodes are in its journal; the runs of its loops have it as their parent.
    """

    noun: ClassVar[str] = "workflow"

    run_id: str
    name: str
    file: str
    inputs: Mapping[str, Any]
    started_at: datetime
    status: Status = "running"
    finished_at: datetime | None = None
    state: dict[str, Any] | None = None
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    error: str = ""
    reason: str = ""
    """The budget that was spent, as the reason of a run (`token_budget`); empty if none was."""
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    parent: str = ""
    """The id of the outer workflow, if this one is a node of it."""
    graph: WorkflowGraph | None = None
    process: Process | None = None
    """The process that worked on the run last; None in old records."""
    options: tuple[str, ...] = ()
    """The names of the `Workflow` options that the program set; their values can't be stored."""

    def stored(self) -> Record:
        """The record for the store. Searched fields are always present, even with their default values."""
        searched = {"status": self.status, "name": self.name}
        return Record(INNER_WORKFLOW if self.parent else WORKFLOW, self.run_id, to_record(self) | searched)

    def check_same(self, _stored: Record, before: WorkflowRecord, /) -> None:
        """Raise `ChangedRunError` if the stored run is of another workflow or has other inputs."""
        if (before.name, before.inputs) != (self.name, to_json(self.inputs)):
            other = " with other inputs" if before.name == self.name else ""
            raise ChangedRunError(
                f"The run_id {self.run_id!r} belongs to a run of the workflow {before.name!r}{other}. "
                "Give a new run a new run_id."
            )

    @property
    def is_final(self) -> bool:
        """Whether it has finished, and its result comes back instead of another attempt."""
        return self.status == "finished"

    def end(self, result: WorkflowResult) -> None:
        """Copy the result of the workflow into the record."""
        self.status, self.state, self.nodes = "finished", result.state, result.nodes
        self.reason = ""
        self.outputs = result.outputs
        if result.waiting:
            self.status = "waiting"
        elif result.stop is not None:  # resumable, with a larger budget
            self.status, self.error = "failed", result.stop.detail
            self.reason = result.stop.reason.value
        self.usage, self.execution_time = result.usage, result.execution_time

    def wait(self, why: str, /) -> None:
        """Note that the workflow goes on later, and why."""
        self.status, self.error = "waiting", why

    def result(self) -> WorkflowResult:
        """The result of a workflow that has finished, or that a spent budget has stopped."""
        return WorkflowResult(
            self.state or {},
            self.run_id,
            self.nodes,
            self.usage,
            self.execution_time,
            stop=Stop(ConvergenceReason(self.reason), self.error) if self.reason else None,
            outputs=self.outputs,
        )

    def resuming_call(self) -> str:
        """The Python call that resumes a workflow that a program started."""
        inputs = f"{dict(self.inputs)!r}, " if self.inputs else ""
        source = "..." if self.file == UNNAMED else repr(self.file)
        constructor = "from_text" if self.file == UNNAMED else "from_file"
        arguments = ", ".join((source, *(f"{name}=..." for name in self.options)))
        comment = "# In place of each ..., what the program gave before\n" if "..." in arguments else ""
        return (
            f"from redraft.workflow import Workflow\n\n{comment}"
            f"await Workflow.{constructor}({arguments}).run({inputs}run_id={self.run_id!r})  # or run_sync"
        )


LAUNCH = "workflow command"
"""The kind of the records of commands that started a workflow."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that started a workflow, its folder, and the process that works on it."""

    arguments: tuple[str, ...]
    folder: str
    process: Process


@dataclass(frozen=True, slots=True)
class StoredWorkflow:
    """A stored workflow, and how it was started."""

    record: WorkflowRecord
    launch: Launch | None
    """The command that started it; None if a program did."""
    created_at: datetime
    """When it was first stored."""

    @property
    def process(self) -> Process | None:
        """The process that worked on it last; None if unknown (old records)."""
        return self.record.process or (self.launch and self.launch.process)

    @property
    def state(self) -> str:
        """Its status; a `running` workflow may really be `killed`, or `unknown` if that can't be checked."""
        if self.record.status != "running" or self.process is None:
            return self.record.status
        return self.process.state_of_run

    @property
    def resuming_call(self) -> str:
        """The Python call that resumes it; empty if a command started it: `redraft resume` resumes it."""
        return "" if self.launch is not None else self.record.resuming_call()

    @property
    def is_awaited(self) -> bool:
        """Whether a process (`redraft run --wait`) is waiting for the answers and will continue by itself."""
        launch = self.launch
        return launch is not None and "--wait" in launch.arguments and launch.process.has_exited() is False

    @property
    def continuation(self) -> str:
        """How the workflow continues once its questions are answered, for people."""
        run_id = self.record.run_id
        if self.is_awaited:
            return "The process that is waiting for the answer continues the workflow by itself."
        if self.launch is None:
            call = f"workflow.resume({run_id!r})"
            return f"The program that started the workflow continues if it is waiting; if not, use {call}."
        return f"No process is waiting. Once all is answered, redraft resume {run_id} continues the workflow."

    def check_resumable(self, *, force: bool = False) -> None:
        """Raise `ConfigError` if a process is or may be working on it; `force` as in `check_exited`."""
        if self.process is not None and self.record.status == "running":
            self.process.check_exited(self.record.run_id, force=force)


class Workflows:
    """The workflows in a store, by default the project's.

    Raises `ConfigError` if storage is turned off (an empty `home`), `StoreError` if the store can't be read.
    """

    def __init__(self, store: Store | None = None) -> None:
        self._store = store or required_project_store("runs")
        self._runs = Runs(self._store)

    async def find(
        self,
        *,
        status: str | None = None,
        name: str | None = None,
        limit: int = PAGE,
        after: Record | None = None,
    ) -> list[StoredWorkflow]:
        """Workflows by state (including `killed` and `unknown`) and name, newest first.

        `after` is the record of a workflow or run: only older workflows are listed. A workflow whose record
        can't be read is listed with the status `damaged`. Raises `ConfigError` for an invalid status.
        """
        check_status(status)
        where: dict[str, Scalar] = {} if name is None else {"name": name}
        if status is not None:
            where["status"] = "running" if status in UNFINISHED else status
        # Only their processes tell which `running` workflows were killed, so the limit applies after that.
        most = None if where.get("status") == "running" else limit
        records = await self._store.find(WORKFLOW, where=where, newest_first=True, after=after, limit=most)
        listed = [await self._listed(record) for record in records]
        matching = [
            stored for stored in listed if status in (None, stored.state) or stored.record.status == "damaged"
        ]
        return matching[:limit]

    async def get(self, run_id: str = LAST, *, or_of_loop: bool = False) -> StoredWorkflow | None:
        """The workflow with this id or id prefix, or the `last` workflow; None if it is a run, or missing.

        With `or_of_loop`, the id of a loop's run means its workflow. Raises `ConfigError` for an ambiguous
        prefix.
        """
        if run_id == LAST:
            record, _ = await self._newest()
        else:
            record = await self._find_record(run_id, or_of_loop=or_of_loop)
        return None if record is None else await self._read(record)

    async def history(self, stored: StoredWorkflow) -> WorkflowHistory:
        """Read the nodes of a workflow, with the runs of the loops in them."""
        run_id = stored.record.run_id
        recorded = [step for step in await self._runs.steps(run_id) if not step.void]
        steps = [step for step in recorded if not step.is_inner]
        ended = {step.place for step in steps}
        unended = (step for step in recorded if step.place.partition("/")[0] not in ended)
        items = [item for item in map(ItemRun.of, unended) if item is not None]
        records = await self._store.find(RUN, prefix=f"{run_id}.")
        loops = [await self._runs.listed(record) for record in records]
        loops.sort(key=lambda run: run.started_at)
        nodes: list[NodeRun] = []
        for step in steps:
            own = tuple(run for run in loops if run.started_at <= step.at)
            loops = loops[len(own) :]
            nodes.append(NodeRun.of(step, own))
        if loops or items:  # of the node that had not ended, now or when the workflow ended
            name = WorkflowHistory(stored, tuple(nodes)).under_way or ""
            items.sort(key=lambda item: item.index)
            nodes.append(NodeRun(name, runs=tuple(loops), items=tuple(items)))
        waiting = await Approvals(self._store).waiting(run_id) if stored.state == "waiting" else []
        return WorkflowHistory(stored, tuple(nodes), tuple(waiting))

    async def last_value(self, run_id: str) -> Any:
        """The value of the last node that did not fail; None if there is none."""
        nodes = [step for step in await self._runs.steps(run_id) if not step.is_inner and not step.void]
        results = [step.result for step in nodes if step.error is None]
        return results[-1].get("value") if results else None

    async def run_of(self, reference: str) -> str:
        """Resolve a person's reference to the id of a run.

        A workflow stands for the run of its loop, and `last` for the run of the last loop. Any other
        reference is returned as it is, except that `last` becomes an id if anything is stored. Raises
        `ConfigError` for a workflow without a loop, or with several.
        """
        workflow = await self.get(reference)
        if workflow is None:
            return (await self.last_id() if reference == LAST else None) or reference
        run_id = workflow.record.run_id
        loops = [loop.key for loop in intact(await self._store.find(RUN, where={"parent": run_id}))]
        if not loops:
            raise ConfigError(
                f"No loop of the workflow {run_id!r} has run; `redraft show {run_id}` shows what has."
            )
        if len(loops) > 1 and reference != LAST:
            raise ConfigError(
                f"The workflow {run_id!r} has {len(loops)} loops; give the id of one: {', '.join(loops)}."
            )
        return loops[-1]

    async def why(self, run_id: str) -> WorkflowHistory | None:
        """The history of a workflow if the workflow, rather than one of its loops, explains its state."""
        stored = await self.get(run_id)
        if stored is None:
            return None
        history = await self.history(stored)
        return history if history.explains_itself else None

    async def row(self, stored: StoredWorkflow) -> WorkflowRow:
        """Summarise a workflow; its nodes are read only if it has not finished."""
        if stored.record.status in ("finished", "damaged"):
            return WorkflowHistory(stored, ()).row
        return (await self.history(stored)).row

    async def _listed(self, record: Record) -> StoredWorkflow:
        """Read a workflow for a list; if its record can't be read, its status is `damaged`."""
        try:
            return await self._read(record)
        except DamagedRecordError as error:
            began = record.created_at or datetime.now(UTC)
            damaged = WorkflowRecord(record.key, "", "", {}, began, "damaged", error=str(error))
            return StoredWorkflow(damaged, None, began)

    async def _read(self, record: Record) -> StoredWorkflow:
        launch = await self._store.get(LAUNCH, record.key)
        return StoredWorkflow(
            from_record(WorkflowRecord, record.data),
            None if launch is None else from_record(Launch, launch.data),
            record.created_at or datetime.now(UTC),
        )

    async def last_id(self) -> str | None:
        """The id that `last` means: of the newest workflow or run that is not part of another.

        None if nothing is stored.
        """
        workflow, run_id = await self._newest()
        return run_id if workflow is None else workflow.key

    async def _newest(self) -> tuple[Record | None, str | None]:
        """The newest workflow, or the id of the newest run if that began later."""
        store = self._store
        workflow = next(iter(intact(await store.find(WORKFLOW, newest_first=True, limit=PAGE))), None)
        outermost = RunQuery({"is_inner": False, "parent": ""})
        run = next(iter(await run_index(store).find(outermost, limit=1)), None)
        if run is None or (workflow and workflow.created_at and workflow.created_at > run.created_at):
            return workflow, None
        return None, run.run_id

    async def _find_record(self, run_id: str, *, or_of_loop: bool) -> Record | None:
        store = self._store
        if record := await store.get(WORKFLOW, run_id) or await store.get(INNER_WORKFLOW, run_id):
            return record
        if (run := await store.get(RUN, run_id)) is not None:
            return await store.get(WORKFLOW, str(run.data.get("parent") or "")) if or_of_loop else None
        if not run_id:
            return None
        workflows = await store.find(WORKFLOW, prefix=run_id, limit=3)
        prefixes_of_loops = tuple(f"{workflow.key}." for workflow in workflows)
        runs = [
            run for run in await store.find(RUN, prefix=run_id) if not run.key.startswith(prefixes_of_loops)
        ]
        candidates = (*workflows, *runs) if workflows else ()  # `Runs` finds a run that is alone
        return only(candidates, run_id, "runs", lambda record: record.key)


@dataclass(frozen=True, slots=True)
class ItemRun:
    """An item of a `map` that has ended: its value or its error."""

    index: int
    """Its position in the list, from 0."""
    value: Any = None
    error: str = ""

    @classmethod
    def of(cls, step: StoredStep) -> ItemRun | None:
        """Read an item from its step in the journal; None if the step is something else."""
        if not step.name.startswith(ITEM_STEP) or step.place.count("/") != 1:
            return None
        index = int(step.name.removeprefix(ITEM_STEP).partition(" ")[0])
        if step.error is not None:
            return cls(index, error=f"{step.error['type']}: {step.error['message']}")
        return cls(index, from_json(ActionResult, step.result).value)


@dataclass(frozen=True, slots=True)
class NodeRun:
    """One visit of a node."""

    node: str
    """Its name; empty if it has not ended and could be any of several."""
    seconds: float | None = None
    """Seconds that it took; None if it has not ended."""
    value: Any = None
    used: TokenUsage = NOTHING_USED
    error: str = ""
    runs: tuple[RunRecord, ...] = ()
    """The runs of its loops."""
    items: tuple[ItemRun, ...] = ()
    """The failed items of its `map`; if the node has not ended, all items that have."""

    @classmethod
    def of(cls, step: StoredStep, runs: tuple[RunRecord, ...]) -> NodeRun:
        """Read a node from its step in the journal."""
        node = step.name.removeprefix(NODE)
        if step.error is not None:
            error = f"{step.error['type']}: {step.error['message']}"
            used = step.error.get("usage")
            used = NOTHING_USED if used is None else from_json(TokenUsage, used)
            return cls(node, step.seconds, used=used, error=error, runs=runs)
        result = from_json(ActionResult, step.result)
        failed = tuple(
            ItemRun(failure["index"], error=f"{failure['type']}: {failure['message']}")
            for failure in result.failures
        )
        return cls(node, step.seconds, result.value, result.usage, runs=runs, items=failed)

    @property
    def usage(self) -> TokenUsage:
        """Its usage; if neither a result nor an error reports it, the sum of its loops."""
        if self.used.requests or (self.seconds is not None and not self.error):
            return self.used
        return sum((run.usage for run in self.runs), NOTHING_USED)


def outcome_of(result: Any) -> tuple[bool | None, str]:
    """Whether the output of a loop or a judgement is valid (None: another result), and a loop's attempts."""
    if not isinstance(result, dict) or "valid" not in result:
        return None, ""
    values = cast("Mapping[str, Any]", result)
    attempts = values.get("reflection_iteration")
    if not isinstance(attempts, int):
        return values["valid"] is True, ""
    score = render_score(values.get("reflection_best_score")).strip()
    return values["valid"] is True, f"after {counted(attempts, 'attempt')}, best score {score}"


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """Summary of a workflow, for lists."""

    run_id: str
    name: str
    file: str
    status: str
    error: str
    started_at: datetime
    finished_at: datetime | None
    nodes: int
    """How many visits of nodes have ended."""
    usage: TokenUsage
    execution_time: float
    """Seconds of work."""
    kind: ClassVar[str] = WORKFLOW

    def document(self) -> dict[str, Any]:
        """The row as plain data."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class WorkflowHistory:
    """A stored workflow with the visits of its nodes, in order, and its open questions."""

    stored: StoredWorkflow
    nodes: tuple[NodeRun, ...]
    waiting: tuple[Approval, ...] = ()
    """Questions that a person has not answered."""

    @property
    def explains_itself(self) -> bool:
        """Whether the workflow, rather than one of its loops, explains its state."""
        state = self.stored.state
        if state in ("killed", "unknown", "waiting"):
            return True
        runs = any(node.runs for node in self.nodes)
        return not (runs if state == "finished" else runs and self.nodes[-1].runs)

    @property
    def why(self) -> Why:
        """Its state, explained: how it ended, or what it is doing or waiting for."""
        stored, record = self.stored, self.stored.record
        finished = [node.node for node in self.nodes if node.seconds is not None and not node.error]
        nodes, state, process = len(finished), stored.state, stored.process
        headline = STATE_HEADLINES.get(state, state).replace("the run", "the workflow")
        after = f"after {counted(nodes, 'finished node')}"
        numbers: dict[str, Any] = {"nodes": nodes}
        if record.reason:
            return Why(record.reason, REASONS[record.reason], f"It stopped {after}: {record.error}", numbers)
        if state in ("killed", "unknown") and process is not None:
            gone = f"The process {process.pid} is gone"
            unsure = f"This machine can't tell whether the process {process.pid} is still working on it"
            detail = (
                f"{gone if state == 'killed' else unsure}; {counted(nodes, 'node')} had finished. "
                "A resumed workflow does not repeat what has finished."
            )
            numbers |= {"host": process.host, "pid": process.pid}
        elif state == "failed":
            failed = self.nodes[-1].node if self.nodes and self.nodes[-1].error else ""
            headline = "a node failed for good" if failed else "it ended with an error"
            what = f"The node {failed!r} failed" if failed else "The error came"
            detail = f"{what} {after}: {record.error}"
            numbers |= {"node": failed or None, "error": record.error}
        elif state == "waiting" and record.error:
            detail = record.error
        elif state == "waiting":
            headline = "it waits for a person" if self.waiting else "it waits to be resumed"
            lines = [
                f"The node {approval.node!r} asks: {approval.message}\n"
                f"To answer: redraft approve {approval.id}"
                for approval in self.waiting
            ]
            if not lines:
                lines = ["Each of its questions has its answer, or its deadline has passed."]
            approve_resumes = stored.launch is not None and not stored.is_awaited
            detail = "\n".join(lines if self.waiting and approve_resumes else [*lines, stored.continuation])
            numbers["questions"] = [approval.id for approval in self.waiting]
        elif state == "finished":
            headline = "it has run to its end"
            ran = (
                f"{counted(nodes, 'node')} ran, the last one {finished[-1]!r}" if finished else "No node ran"
            )
            has_loops = not finished or any(node.runs for node in self.nodes)
            detail = f"{ran}." if has_loops else f"{ran}; none of them was a loop."
        else:  # running, or cancelled
            node = self.under_way
            at = f", at the node {node!r}" if node else ""
            verb = "It was cancelled" if state == "cancelled" else "It is at work"
            detail = f"{verb} {after}{at}."
            numbers["node"] = node
        return Why(state, headline, detail, numbers)

    @property
    def under_way(self) -> str | None:
        """The name of the node that comes next; None if that depends on a condition or a failure."""
        graph, ended = self.stored.record.graph, [node for node in self.nodes if node.seconds is not None]
        if graph is None or (ended and ended[-1].error):
            return None
        indices = {node.name: index for index, node in enumerate(graph.nodes)}
        last = indices.get(ended[-1].node) if ended else None
        successors = [edge.to for edge in graph.edges if edge.start == last and edge.kind != "error"]
        candidates = successors if ended else [0]
        if len(candidates) != 1 or candidates[0] >= len(graph.nodes):
            return None
        node = graph.nodes[candidates[0]]
        return None if any(bound.startswith("when ") for bound in node.bounds) else node.name

    @property
    def row(self) -> WorkflowRow:
        """Summary of the workflow. Until it has finished, its usage is the sum of its nodes."""
        record = self.stored.record
        nodes, usage, seconds = len(record.nodes), record.usage, record.execution_time
        if record.status not in ("finished", "damaged"):
            nodes = sum(node.seconds is not None for node in self.nodes)
            usage = sum((node.usage for node in self.nodes), NOTHING_USED)
            seconds = seconds or sum(node.seconds or 0.0 for node in self.nodes)
        return WorkflowRow(
            record.run_id,
            record.name,
            record.file,
            self.stored.state,
            record.error,
            record.started_at,
            record.finished_at,
            nodes,
            usage,
            seconds,
        )

    def document(self) -> dict[str, Any]:
        """The history as plain data, and how the workflow continues if it has not ended."""
        stored, record = self.stored, self.stored.record
        nodes = [
            {
                "node": node.node,
                "ended": node.seconds is not None,
                "value": node.value,
                "error": node.error,
                "usage": node.usage,
                "seconds": node.seconds,
                "items": node.items,
                "runs": [run.summary() for run in node.runs],
            }
            for node in self.nodes
        ]
        return self.row.document() | {
            "inputs": dict(record.inputs),
            "nodes": nodes,
            "state": record.state,
            "outputs": record.outputs,
            "waiting": self.waiting,
            "continuation": stored.continuation if stored.state == "waiting" else "",
            "resuming_call": stored.resuming_call if stored.state in UNFINISHED else "",
            "graph": "" if record.graph is None else record.graph.mermaid(),
        }
