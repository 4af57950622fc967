"""Stored workflows: their records, and how to list and read them."""

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
from redraft.loop.runs import LAST, PAGE, STATE_HEADLINES, UNENDED, Runs, StoredStep, Why, check_status
from redraft.stores.base import Record, intact
from redraft.stores.location import required_project_store
from redraft.stores.run_index import RunQuery, run_index
from redraft.types import NOTHING_USED, REASONS, TokenUsage, render_score
from redraft.workflow.graph import WorkflowGraph
from redraft.workflow.run import ITEM_STEP, NODE, WorkflowResult
from redraft.workflow.runtime import ActionResult
from redraft.workflow.spec import UNNAMED

if TYPE_CHECKING:
    from redraft.stores.base import Scalar, Store

WORKFLOW = "workflow"
"""The kind of the records of workflows."""
INNER_WORKFLOW = "workflow inside"
"""The kind of the records of workflows that are nodes of others: they are found by id, and not listed."""


@dataclass(slots=True)
class WorkflowRecord:
    """One run of a workflow: its file, its inputs, its graph as it was then, and how it ended.

    The steps of its nodes are in its journal; the runs of its loops have it as their parent. A workflow that
    is a node of another one has that one as its `parent`. Old records lack the `process`.
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
    graph: WorkflowGraph | None = None
    process: Process | None = None
    options: tuple[str, ...] = ()
    """The names of the options of `Workflow` that the program gave: what they are can't be stored."""

    def stored(self) -> Record:
        """Return the record for the store, always with the fields that workflows are searched by."""
        searched = {"status": self.status, "name": self.name}
        return Record(INNER_WORKFLOW if self.parent else WORKFLOW, self.run_id, to_record(self) | searched)

    def check_same(self, _stored: Record, before: WorkflowRecord, /) -> None:
        """Raise `ChangedRunError` if the stored run is of another workflow, or had other inputs."""
        if (before.name, before.inputs) != (self.name, to_json(self.inputs)):
            other = " with other inputs" if before.name == self.name else ""
            raise ChangedRunError(
                f"The run_id {self.run_id!r} belongs to a run of the workflow {before.name!r}{other}. "
                "Give a new run a new run_id."
            )

    def end(self, result: WorkflowResult) -> None:
        """Record the result of the workflow."""
        self.status, self.state, self.nodes = "finished", result.state, result.nodes
        self.reason = ""
        self.outputs = result.outputs
        if result.waiting:
            self.status = "waiting"
        elif result.stop is not None:  # resumable, with a larger budget
            self.status, self.error = "failed", result.stop.detail
            self.reason = result.stop.reason.value
        self.usage, self.execution_time = result.usage, result.execution_time

    def result(self) -> WorkflowResult:
        """Return the result of a workflow that has finished."""
        return WorkflowResult(
            self.state or {},
            self.run_id,
            self.nodes,
            self.usage,
            self.execution_time,
            outputs=self.outputs,
        )

    def resuming_call(self) -> str:
        """Return the Python call that resumes a workflow that a program started."""
        inputs = f"{dict(self.inputs)!r}, " if self.inputs else ""
        source = "..." if self.file == UNNAMED else repr(self.file)
        made = "from_text" if self.file == UNNAMED else "from_file"
        arguments = ", ".join((source, *(f"{name}=..." for name in self.options)))
        made = f"{made}({arguments})"
        what = "# In place of each ..., what the program gave before\n" if "..." in arguments else ""
        return (
            f"from redraft.workflow import Workflow\n\n{what}"
            f"await Workflow.{made}.run({inputs}run_id={self.run_id!r})"
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
    """A stored workflow; `launch` is None if a program started it, `created_at` is when it was stored."""

    record: WorkflowRecord
    launch: Launch | None
    created_at: datetime

    @property
    def process(self) -> Process | None:
        """The process that worked on it last; None if an old record does not say."""
        return self.record.process or (self.launch and self.launch.process)

    @property
    def state(self) -> str:
        """Its status; `killed` or `unknown` if its record says running, and its process does not."""
        if self.record.status != "running" or self.process is None:
            return self.record.status
        return self.process.state_of_run

    @property
    def resuming_call(self) -> str:
        """The Python call that resumes it; empty if a command started it: `redraft resume` does."""
        return "" if self.launch is not None else self.record.resuming_call()

    @property
    def is_awaited(self) -> bool:
        """Whether a process waits for its answers (`redraft run --wait`), and goes on with them by itself."""
        launch = self.launch
        return launch is not None and "--wait" in launch.arguments and launch.process.is_gone() is False

    @property
    def continuation(self) -> str:
        """Say how the workflow continues once its questions are answered."""
        run_id = self.record.run_id
        if self.is_awaited:
            return "The process that is waiting for the answer continues the workflow by itself."
        if self.launch is None:
            call = f"workflow.resume({run_id!r})"
            return f"The program that started the workflow continues if it is waiting; if not, use {call}."
        return f"No process is waiting. Once all is answered, redraft resume {run_id} continues the workflow."

    def check_resumable(self, *, force: bool = False) -> None:
        """Raise `ConfigError` if a process is or may be at work on it; `force` as in `Process.check_gone`."""
        if self.process is not None and self.record.status == "running":
            self.process.check_gone(self.record.run_id, force=force)


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
        """Return workflows of a state (also `killed` or `unknown`) and of a name, the newest first.

        `after` is the record of a workflow or run: all began before it. A workflow whose record is damaged is
        listed with the status `damaged`. Raises `ConfigError` for a status that no workflow can have.
        """
        check_status(status)
        where: dict[str, Scalar] = {} if name is None else {"name": name}
        if status is not None:
            where["status"] = "running" if status in UNENDED else status
        # Which of the running ones were killed is known only after looking up their processes.
        wanted = None if where.get("status") == "running" else limit
        found = await self._store.find(WORKFLOW, where=where, newest_first=True, after=after, limit=wanted)
        kept = [await self._listed(record) for record in found]
        return [one for one in kept if status in (None, one.state) or one.record.status == "damaged"][:limit]

    async def get(self, run_id: str = LAST, *, or_of_loop: bool = False) -> StoredWorkflow | None:
        """Return the workflow with this id or id prefix, or the `last` one; None if a run has it.

        With `or_of_loop`, the id of a loop's run stands for its workflow. Raises `ConfigError` for an
        ambiguous prefix.
        """
        found = await (self._last() if run_id == LAST else self._named(run_id, or_of_loop=or_of_loop))
        return None if found is None else await self._read(found)

    async def history(self, kept: StoredWorkflow) -> WorkflowHistory:
        """Read the nodes of a workflow, with the runs of the loops in them."""
        run_id = kept.record.run_id
        recorded = [step for step in await self._runs.steps(run_id) if not step.void]
        steps = [step for step in recorded if not step.is_inner]
        ended = {step.place for step in steps}
        left_open = (step for step in recorded if step.place.partition("/")[0] not in ended)
        items = [item for item in map(ItemRun.of, left_open) if item is not None]
        inside = await self._store.find(RUN, prefix=f"{run_id}.")
        left = sorted([await self._runs.listed(run) for run in inside], key=lambda run: run.started_at)
        nodes: list[NodeRun] = []
        for step in steps:
            own = tuple(run for run in left if run.started_at <= step.at)
            left = left[len(own) :]
            nodes.append(NodeRun.of(step, own))
        if left or items:  # of the node under way, now or when the workflow ended
            name = WorkflowHistory(kept, tuple(nodes)).under_way or ""
            items.sort(key=lambda item: item.index)
            nodes.append(NodeRun(name, runs=tuple(left), items=tuple(items)))
        waiting = await Approvals(self._store).waiting(run_id) if kept.state == "waiting" else []
        return WorkflowHistory(kept, tuple(nodes), tuple(waiting))

    async def last_value(self, run_id: str) -> Any:
        """Return the value of the last node that did not fail; None if there is none."""
        nodes = [step for step in await self._runs.steps(run_id) if not step.is_inner and not step.void]
        results = [step.result for step in nodes if step.error is None]
        return results[-1].get("value") if results else None

    async def run_of(self, reference: str) -> str:
        """Id of the run that a person means: of a workflow, the run of its loop, for `last` of its last loop.

        A reference to anything else stays as it is, but `last` becomes an id, if there is one. Raises
        `ConfigError` if no loop ran, or if there are several to choose from.
        """
        workflow = await self.get(reference)
        if workflow is None:
            return (await self.last_id() if reference == LAST else None) or reference
        found = workflow.record.run_id
        loops = [loop.key for loop in await self._store.find(RUN, where={"parent": found})]
        if not loops:
            raise ConfigError(
                f"No loop of the workflow {found!r} has run; `redraft show {found}` shows what has."
            )
        if len(loops) > 1 and reference != LAST:
            raise ConfigError(
                f"The workflow {found!r} has {len(loops)} loops; give the id of one: {', '.join(loops)}."
            )
        return loops[-1]

    async def why(self, run_id: str) -> WorkflowHistory | None:
        """Return a workflow if it is what explains its state, and not one of its loops; else None."""
        kept = await self.get(run_id)
        if kept is None:
            return None
        history = await self.history(kept)
        return history if history.explains_itself else None

    async def row(self, kept: StoredWorkflow) -> WorkflowRow:
        """Sum up a workflow; the nodes are read only if it has not finished."""
        if kept.record.status in ("finished", "damaged"):
            return WorkflowHistory(kept, ()).row
        return (await self.history(kept)).row

    async def _listed(self, found: Record) -> StoredWorkflow:
        """Read a workflow for a list; one that can't be read has the status `damaged`."""
        try:
            return await self._read(found)
        except DamagedRecordError as error:
            began = found.created_at or datetime.now(UTC)
            damaged = WorkflowRecord(found.key, "", "", {}, began, "damaged", error=str(error))
            return StoredWorkflow(damaged, None, began)

    async def _read(self, found: Record) -> StoredWorkflow:
        launch = await self._store.get(LAUNCH, found.key)
        return StoredWorkflow(
            from_record(WorkflowRecord, found.data),
            None if launch is None else from_record(Launch, launch.data),
            found.created_at or datetime.now(UTC),
        )

    async def last_id(self) -> str | None:
        """Return what `last` means: the id of the workflow or run that began last, outside of any other.

        None if nothing is stored.
        """
        workflow, run_id = await self._newest()
        return run_id if workflow is None else workflow.key

    async def _last(self) -> Record | None:
        """Return the workflow that `last` means; None if it means a run."""
        return (await self._newest())[0]

    async def _newest(self) -> tuple[Record | None, str | None]:
        """Return the workflow that began last, or else the id of the run that began later."""
        store = self._store
        workflow = next(iter(intact(await store.find(WORKFLOW, newest_first=True, limit=PAGE))), None)
        outermost = RunQuery({"is_inner": False, "parent": ""})
        run = next(iter(await run_index(store).find(outermost, limit=1)), None)
        if run is None or (workflow and workflow.created_at and workflow.created_at > run.created_at):
            return workflow, None
        return None, run.run_id

    async def _named(self, run_id: str, *, or_of_loop: bool) -> Record | None:
        store = self._store
        if record := await store.get(WORKFLOW, run_id) or await store.get(INNER_WORKFLOW, run_id):
            return record
        if (run := await store.get(RUN, run_id)) is not None:
            return await store.get(WORKFLOW, str(run.data.get("parent") or "")) if or_of_loop else None
        if not run_id:
            return None
        workflows = await store.find(WORKFLOW, prefix=run_id, limit=3)
        within = tuple(f"{workflow.key}." for workflow in workflows)
        runs = [run for run in await store.find(RUN, prefix=run_id) if not run.key.startswith(within)]
        candidates = (*workflows, *runs) if workflows else ()  # a run alone is for `Runs` to find
        return only(candidates, run_id, "runs", lambda record: record.key)


@dataclass(frozen=True, slots=True)
class ItemRun:
    """An item of a `map` that has ended: its position from 0, and its value or error."""

    index: int
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
    """Its name; may be empty if it has not ended."""
    seconds: float | None = None
    """None if it has not ended."""
    value: Any = None
    used: TokenUsage = NOTHING_USED
    error: str = ""
    runs: tuple[RunRecord, ...] = ()
    """The runs of its loops."""
    items: tuple[ItemRun, ...] = ()
    """The items of its `map` that failed, or all that have ended if the node has not."""

    @classmethod
    def of(cls, step: StoredStep, runs: tuple[RunRecord, ...]) -> NodeRun:
        """Read a node from its step in the journal."""
        node = step.name.removeprefix(NODE)
        if step.error is not None:
            error = f"{step.error['type']}: {step.error['message']}"
            return cls(node, step.seconds, error=error, runs=runs)
        result = from_json(ActionResult, step.result)
        failed = (ItemRun(one["index"], error=f"{one['type']}: {one['message']}") for one in result.failures)
        return cls(node, step.seconds, result.value, result.usage, runs=runs, items=tuple(failed))

    @property
    def usage(self) -> TokenUsage:
        """Its usage; without a result, that of its loops."""
        if self.seconds is not None and not self.error:
            return self.used
        return sum((run.usage for run in self.runs), NOTHING_USED)


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """How a node ended; `valid` says whether a loop or a judgement was satisfied, None for other nodes."""

    valid: bool | None = None
    attempts: int | None = None
    best_score: float | None = None

    @classmethod
    def of(cls, result: Any) -> NodeOutcome:
        """Read a node's result."""
        if not isinstance(result, dict) or "valid" not in result:
            return cls()
        values = cast("Mapping[str, Any]", result)
        attempts = values.get("reflection_iteration")
        if not isinstance(attempts, int):
            return cls(values["valid"] is True)
        return cls(values["valid"] is True, attempts, values.get("reflection_best_score"))

    @property
    def verdict(self) -> str:
        """The outcome in one or two words."""
        return "done" if self.valid is None else "valid" if self.valid else "not valid"

    @property
    def detail(self) -> str:
        """The attempts and the best score; empty unless it was a loop."""
        if self.attempts is None:
            return ""
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"after {times}, best score {render_score(self.best_score).strip()}"


@dataclass(frozen=True, slots=True)
class WorkflowRow:
    """A workflow in a few fields, for lists; `nodes` counts those that have ended."""

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
        """Return it as plain data."""
        return {"kind": self.kind, **{name: getattr(self, name) for name in self.__slots__}}


@dataclass(frozen=True, slots=True)
class WorkflowHistory:
    """A stored workflow with the visits of its nodes, in order, and what it waits to be answered."""

    kept: StoredWorkflow
    nodes: tuple[NodeRun, ...]
    waiting: tuple[Approval, ...] = ()

    @property
    def explains_itself(self) -> bool:
        """Whether the workflow is what explains its state, and not a loop of it."""
        state = self.kept.state
        if state in ("killed", "unknown", "waiting"):
            return True
        runs = any(node.runs for node in self.nodes)
        return not (runs if state == "finished" else runs and self.nodes[-1].runs)

    @property
    def why(self) -> Why:
        """What state it is in: how it ended, or what it is doing or waiting for."""
        kept, record = self.kept, self.kept.record
        finished = [node.node for node in self.nodes if node.seconds is not None and not node.error]
        nodes, state, process = len(finished), kept.state, kept.process
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
        elif state == "waiting":
            headline = "it waits for a person" if self.waiting else "it waits to be resumed"
            asked = [
                f"The node {one.node!r} asks: {one.message}\nTo answer: redraft approve {one.id}"
                for one in self.waiting
            ]
            if not asked:
                asked = ["Each of its questions has its answer, or its deadline has passed."]
            goes_on = kept.launch is not None and not kept.is_awaited  # `redraft approve` resumes it
            detail = "\n".join(asked if self.waiting and goes_on else [*asked, kept.continuation])
            numbers["questions"] = [one.id for one in self.waiting]
        elif state == "finished":
            headline = "it has run to its end"
            ran = (
                f"{counted(nodes, 'node')} ran, the last one {finished[-1]!r}" if finished else "No node ran"
            )
            has_loops = not finished or any(node.runs for node in self.nodes)
            detail = f"{ran}." if has_loops else f"{ran}; none of them was a loop."
        else:  # running, or cancelled
            now = self.under_way
            at = f", at the node {now!r}" if now else ""
            verb = "It was cancelled" if state == "cancelled" else "It is at work"
            detail = f"{verb} {after}{at}."
            numbers["node"] = now
        return Why(state, headline, detail, numbers)

    @property
    def under_way(self) -> str | None:
        """The name of the node after those that have ended; None if a condition or a failure decides."""
        graph, ended = self.kept.record.graph, [node for node in self.nodes if node.seconds is not None]
        if graph is None or (ended and ended[-1].error):
            return None
        number = {node.name: at for at, node in enumerate(graph.nodes)}
        last = number.get(ended[-1].node) if ended else None
        ways = [edge.to for edge in graph.edges if edge.start == last and edge.kind != "error"]
        to = ways if ended else [0]
        if len(to) != 1 or to[0] >= len(graph.nodes):
            return None
        node = graph.nodes[to[0]]
        return None if any(bound.startswith("when ") for bound in node.bounds) else node.name

    @property
    def row(self) -> WorkflowRow:
        """The workflow in a few fields; until it has finished, its usage is added up from its nodes."""
        record = self.kept.record
        nodes, usage, seconds = len(record.nodes), record.usage, record.execution_time
        if record.status not in ("finished", "damaged"):
            nodes = sum(node.seconds is not None for node in self.nodes)
            usage = sum((node.usage for node in self.nodes), NOTHING_USED)
            seconds = seconds or sum(node.seconds or 0.0 for node in self.nodes)
        return WorkflowRow(
            record.run_id,
            record.name,
            record.file,
            self.kept.state,
            record.error,
            record.started_at,
            record.finished_at,
            nodes,
            usage,
            seconds,
        )

    def document(self) -> dict[str, Any]:
        """Return all of it as plain data, with how it goes on if it has not ended."""
        kept, record = self.kept, self.kept.record
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
            "continuation": kept.continuation if kept.state == "waiting" else "",
            "resuming_call": kept.resuming_call if kept.state in UNENDED else "",
            "graph": "" if record.graph is None else record.graph.mermaid(),
        }
