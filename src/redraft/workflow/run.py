"""Run a workflow from node to node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from redraft._codec import describe_error
from redraft._telemetry import traced
from redraft.approvals import Approval
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    SandboxError,
    StoreError,
    UnfinishedError,
)
from redraft.events import Event
from redraft.loop.budget import NO_BUDGET, Budget, Tally, enclosing_budget
from redraft.loop.steps import Steps
from redraft.protocols import Step
from redraft.redact.log import logger
from redraft.text.templates import TemplateError, braced, templates_in
from redraft.types import NOTHING_USED, Stop, TokenUsage
from redraft.workflow.approval import WaitingForAnswer
from redraft.workflow.loop import RESULT, RESULT_KEYS
from redraft.workflow.node import NODE, NodeRunner, usage_of
from redraft.workflow.runtime import MODEL, NO_TEMPLATES, ActionResult, Resources, Scope
from redraft.workflow.spec import CONTINUE, END, LOOP, RAISE, WorkflowFile, WorkflowSpec

if TYPE_CHECKING:
    from redraft.loop.journal import Journalled  # noqa: TC004 (no field is looked up)
    from redraft.text.yaml import KeyPath
    from redraft.workflow.spec import Node

BUDGET = {"tokens": "budget.tokens", "usd": "budget.usd", "seconds": "budget.seconds"}
"""The keys of a file that bound all model calls of a run."""


@dataclass(slots=True)
class WorkflowRun:
    """One run of a workflow, from the first node of the file to the end.

    Each node reads the state and runs as one step, and its result is merged into the state. The target of the
    first `goto` that applies comes next, else the node below. A node is skipped if its `when` is false; if it
    fails, its `on_error` decides what comes next.

    Only results and handled errors change the state. A resumed run takes the results of its finished steps
    from the journal, and so reaches the node at which it stopped.

    The run ends early, with the state that it has reached, if its budget is spent, and if a person has to
    answer first.
    """

    spec: WorkflowSpec
    source: WorkflowFile
    resources: Resources
    scope: Scope
    step: Step
    emit: Callable[[WorkflowEvent], None]
    run_id: str = ""
    journal: Journalled | None = None
    """The journal in the step."""
    _tally: Tally = field(init=False)
    _steps: Steps = field(init=False)
    _visits: Counter[str] = field(init=False, default_factory=Counter[str])
    _nodes: list[str] = field(init=False, default_factory=list[str])
    _of_loops: dict[str, dict[str, Any]] = field(init=False, default_factory=dict[str, "dict[str, Any]"])
    """What the last result of each loop put into the state, by the name of its node."""

    def __post_init__(self) -> None:
        seconds = monotonic if self.journal is None else self.journal.elapsed
        self._tally = Tally(budget_of(self.spec), clock=seconds, outer=enclosing_budget(), options=BUDGET)
        self._steps = Steps(self.step, self._tally, journal=self.journal)

    async def run(self) -> WorkflowResult:
        """Run the nodes and return the result; raises the error of a node, with its place in the file."""
        return await traced("workflow", self.spec.name, self.run_id, self._run)

    async def _run(self) -> WorkflowResult:
        tally, at = self._tally, 0
        waiting: tuple[Approval, ...] = ()
        try:
            while at < len(self.spec.nodes):
                at = await self._visit(at)
        except WaitingForAnswer as unanswered:
            waiting = unanswered.approvals
        except UnfinishedError as error:
            if tally.exhausted is None:
                raise
            tally.add("nodes", usage_of(error))
        return WorkflowResult(
            self.scope.state,
            self.run_id,
            tuple(self._nodes),
            tally.total(),
            tally.seconds(),
            stop=None if tally.exhausted is None else tally.stop(tally.exhausted),
            waiting=waiting,
        )

    async def _visit(self, at: int) -> int:
        """Run or skip the node at an index; return the index of the next one."""
        node = self.spec.nodes[at]
        self._visits[node.name] += 1  # even if it is skipped: a cycle of skipped nodes must end
        try:
            if node.when is not None and not self.scope.holds(node.when):
                self.emit(NodeFinished(self.run_id, node.name, skipped=True))
                return at + 1
            self.emit(NodeStarted(self.run_id, node.name, self._visits[node.name]))
            run = NodeRunner(node, self.resources, partial(self._tell_item, node))
            result = await self._steps.attempt(f"{NODE}{node.name}", ActionResult, run, self._scope_of(node))
        except (ChangedRunError, StoreError):  # the journal's errors are not the node's
            raise
        except Exception as error:  # noqa: BLE001 (`on_error` decides, whatever a node raises)
            return self._after_failure(at, error)
        self._nodes.append(node.name)
        self._tally.add("nodes", result.usage)
        self._merge(node, result)
        self.emit(NodeFinished(self.run_id, node.name, result.value))
        try:
            return self._next(at)
        except ConfigError as error:
            raise self._located(error, at) from error

    def _tell_item(self, node: Node, index: int, count: int, error: str) -> None:
        self.emit(ItemFinished(self.run_id, node.name, index, count, error))

    def _merge(self, node: Node, result: ActionResult) -> None:
        """Put a node's result into the state.

        It goes under the node's `output`. The keys of a loop's result, and of an object without `output`,
        become keys of the state; any other value without `output` goes under the node's name. A built-in
        action never sets `model`: a model would choose its successor.
        """
        state, value = self.scope.state, result.value
        if isinstance(value, Mapping) and (node.action == LOOP or node.output is None):
            self._forget_verdict(node)
            is_built_in = node.uses is not None and self.resources.own_action(node.uses) is None
            keys = cast("Mapping[str, Any]", value).items()
            merged = {key: item for key, item in keys if not (is_built_in and key == MODEL)}
            if node.action == LOOP:
                self._forget_output(node)
                self._of_loops[node.name] = merged
            state.update(merged)
        elif node.output is None and value is not None:
            state[node.name] = value
        if result.failures:
            first = result.failures[0]
            place = {"node": node.name, "type": first["type"], "message": first["message"]}
            state["error"] = {**place, "items": list(result.failures)}
        if node.output is not None:  # last, because it wins over a key of the same name
            state[node.output] = value

    def _next(self, at: int) -> int:
        """Return the index of the node after a finished one."""
        for jump in self.spec.nodes[at].jumps:
            if jump.if_ is None or self.scope.holds(jump.if_):
                target = self._target(jump.to)
                if target is not None:
                    return target
        return at + 1

    def _target(self, name: str) -> int | None:
        """Return the index of the node to go to; None if it has reached its `max_visits`."""
        if name == END:
            return len(self.spec.nodes)
        target = next(at for at, node in enumerate(self.spec.nodes) if node.name == name)
        limit = self.spec.nodes[target].max_visits
        return target if limit is None or self._visits[name] < limit else None

    def _after_failure(self, at: int, error: Exception) -> int:
        """Handle a node's error as its `on_error` says: return the index of the next node, or raise."""
        node = self.spec.nodes[at]
        if self._tally.exhausted is not None and isinstance(error, UnfinishedError):
            if error.partial is not None:  # some items of its list are finished, and paid for
                self._merge(node, ActionResult(error.partial))
            raise error
        if node.on_error == RAISE:
            target = None
        elif node.on_error == CONTINUE:
            target = at + 1
        else:
            target = self._target(node.on_error)
        if target is None:
            raise self._located(error, at)
        logger.warning("The node %r failed; the workflow continues: %s", node.name, describe_error(error))
        self._nodes.append(node.name)
        self._tally.add("nodes", usage_of(error))
        self._forget_verdict(node)
        self.scope.state["error"] = {"node": node.name, "type": type(error).__name__, "message": str(error)}
        self.emit(NodeFinished(self.run_id, node.name, error=str(error)))
        return target

    def _scope_of(self, node: Node) -> Scope:
        """Return the scope in which a node runs: a loop does not see the verdict of an earlier one."""
        if node.action != LOOP:
            return self.scope
        hidden = {key for merged in self._of_loops.values() for key in merged if key in RESULT_KEYS}
        state = {key: item for key, item in self.scope.state.items() if key not in hidden}
        return replace(self.scope, state=state)

    def _forget_verdict(self, node: Node) -> None:
        """Remove an earlier loop's verdict from the state: that of this one follows, or it failed."""
        if node.action == LOOP:
            for key in RESULT_KEYS:
                self.scope.state.pop(key, None)

    def _forget_output(self, node: Node) -> None:
        """Remove what a loop's output would mix with: that of an earlier visit, and a lone `result`."""
        state = self.scope.state
        for name, merged in self._of_loops.items():
            for key, item in merged.items():
                if (name == node.name or key == RESULT) and state.get(key) is item:
                    del state[key]

    def _located(self, error: Exception, at: int) -> Exception:
        """Place an error in the file: a mistake there becomes a `WorkflowError`, others get a note."""
        node = self.spec.nodes[at]
        path, within = ("nodes", at), None
        if isinstance(error, SandboxError) and node.run is not None:
            path, within = (*path, "run"), error.line
        elif isinstance(error, TemplateError):
            path, within = _path_of_template(error.source, node, path), error.line
        placed = self.source.error(path, str(error), within=within)
        if isinstance(error, ConfigError | SandboxError):
            placed.__cause__ = error
            placed.retryable = isinstance(error, TemplateError | SandboxError)
            return placed
        error.add_note(f"{placed.file}, line {placed.line}, node {placed.node!r}")
        return error


@dataclass(slots=True)
class WorkflowResult:
    """The final state, the nodes that ran, in order, and the cost.

    `usage` is that of all models; actions of your own don't report theirs, which makes the cost unknown.
    `execution_time` is in seconds of work, over all processes that worked on it.

    `outputs` are those that the file declares. If its budget kept the run from finishing all its work, `stop`
    says which one and what was used of it. If the run waits for a person, `waiting` has what it asks: the
    same call with its run_id goes on with the answer.
    """

    state: dict[str, Any]
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    stop: Stop | None = None
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    waiting: tuple[Approval, ...] = ()

    @property
    def status(self) -> Literal["finished", "stopped", "waiting"]:
        """How the run ended: at its end, with a spent budget, or before a question to a person."""
        return "waiting" if self.waiting else "finished" if self.stop is None else "stopped"


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node starts, for the `visit`-th time (from 1)."""

    run_id: str
    node: str
    visit: int = 1
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node returned `result`, was skipped by its `when`, or failed and `on_error` handled the `error`."""

    run_id: str
    node: str
    result: Any = None
    skipped: bool = False
    error: str = ""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class ItemFinished:
    """An item of a node's `map` has ended; `index` counts from 0 among `count`, `error` says if it failed."""

    run_id: str
    node: str
    index: int
    count: int
    error: str = ""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """A workflow has ended, as the result's `status` says."""

    run_id: str
    result: WorkflowResult
    schema_version: int = 1


WorkflowEvent: TypeAlias = NodeStarted | NodeFinished | ItemFinished | WorkflowFinished | Event
"""What a workflow's stream yields: its own events, and those of the runs in its nodes."""


def budget_of(spec: WorkflowSpec) -> Budget:
    """Return the budget of a run; `timeout` is a short form of the seconds."""
    limits = spec.budget
    seconds = limits.seconds or spec.timeout
    if limits.tokens is None and limits.usd is None and seconds is None:
        return NO_BUDGET
    return Budget(limits.tokens, limits.usd, seconds)


def _path_of_template(text: str, node: Node, path: KeyPath) -> KeyPath:
    """Find the template in its node, even if text was appended to it; the path to the node if unknown."""
    conditions = [(node.when, (*path, "when"))]
    if not isinstance(node.goto, str):
        conditions += [(jump.if_, (*path, "goto", at, "if")) for at, jump in enumerate(node.jumps)]
    for condition, place in conditions:
        if isinstance(condition, str) and braced(condition) == text:
            return place
    listed = [braced(node.map)] if isinstance(node.map, str) else node.map or []
    begins = [
        (len(template), place)
        for template, place in (
            *templates_in(node.with_, (*path, "with"), NO_TEMPLATES),
            *((template, (*path, "map")) for template, _ in templates_in(listed, (), NO_TEMPLATES)),
        )
        if text.startswith(template) and "{" in template
    ]
    return max(begins)[1] if begins else path
