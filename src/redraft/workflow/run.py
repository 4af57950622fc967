"""Run a workflow node by node: time limits, retries, the items of a `map`, and error handling."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from time import monotonic
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from redraft._codec import describe_error, to_json
from redraft._steps import step_context
from redraft._tasks import end_tasks
from redraft._telemetry import traced
from redraft._texts import counted, short_repr
from redraft.approvals import Approval
from redraft.errors import (
    ChangedRunError,
    ConfigError,
    ModelError,
    RedraftError,
    SandboxError,
    StoreError,
    UnfinishedError,
    WorkflowError,
    over_budget,
)
from redraft.events import Event
from redraft.loop.budget import NO_BUDGET, OPTIONS, Budget, StepBudget, Tally, enclosing_budget
from redraft.loop.journal import TRY
from redraft.loop.steps import Steps, counting_replay
from redraft.protocols import Step
from redraft.redact.log import logger
from redraft.text.templates import TemplateError, braced, templates_in
from redraft.types import NOTHING_USED, ConvergenceReason, Stop, TokenUsage, usage_before
from redraft.workflow.approval import WaitingForAnswer
from redraft.workflow.loop import RESULT, RESULT_KEYS
from redraft.workflow.runtime import (
    MODEL,
    NO_TEMPLATES,
    ActionResult,
    Resources,
    Scope,
    copy_of,
    run_code,
)
from redraft.workflow.spec import (
    APPROVE,
    CONTINUE,
    END,
    LOOP,
    PARAMS,
    RAISE,
    Node,
    WorkflowFile,
    WorkflowSpec,
)

if TYPE_CHECKING:
    from redraft.loop.journal import Journalled  # noqa: TC004 (no field is looked up)
    from redraft.text.yaml import KeyPath

BUDGET = {"tokens": "budget.tokens", "usd": "budget.usd", "seconds": "budget.seconds"}
"""Names of the budget's limits in a workflow file, for messages."""
NODE = "node "
"""The prefix of a node's name in the journal."""
ITEM_STEP = "item "
"""The prefix of an item's name in the journal, within its node."""
DEFAULT_TIMEOUT = 3_600.0
"""Seconds for a try of a built-in action without a `timeout`, in case its provider never answers."""


@dataclass(slots=True)
class WorkflowRun:
    """One run of a workflow, from the first node of the file to the end.

    Each node reads the state and runs as one step, and its result is merged into the state. The first `goto`
    that applies leads to the next node; without one, it is the node below. A node is skipped if its `when` is
    false. If it fails, its `on_error` decides which node comes next.

    Only results and handled errors change the state. A resumed run takes the results of its finished steps
    from the journal, and so reaches the node at which it stopped.

    The run ends early, with its current state, if its budget is spent or if it needs a person's answer.
    """

    spec: WorkflowSpec
    source: WorkflowFile
    resources: Resources
    scope: Scope
    step: Step
    emit: Callable[[WorkflowEvent], None]
    run_id: str = ""
    journal: Journalled | None = None
    """The journal of `step`; None if the run is not stored."""
    _tally: Tally = field(init=False)
    _steps: Steps = field(init=False)
    _visits: Counter[str] = field(init=False, default_factory=Counter[str])
    _nodes: list[str] = field(init=False, default_factory=list[str])
    _loops: set[str] = field(init=False, default_factory=set[str])
    """The names of the loops that have put their results into the state."""
    _written: dict[str, str] = field(init=False, default_factory=dict[str, str])
    """The keys of the state that nodes have set, each with the last one; empty for a handled error."""

    def __post_init__(self) -> None:
        clock = monotonic if self.journal is None else self.journal.elapsed
        self._tally = Tally(budget_of(self.spec), clock=clock, outer=enclosing_budget(), options=BUDGET)
        self._steps = Steps(self.step, self._tally, journal=self.journal)

    async def run(self) -> WorkflowResult:
        """Run the nodes; raises the error of a node, with its place in the file."""
        return await traced("workflow", self.spec.name, self.run_id, self._run)

    async def _run(self) -> WorkflowResult:
        tally, at = self._tally, 0
        if self.journal is not None:
            tally.add("nodes", sum(self.journal.void_usage.values(), NOTHING_USED))
        waiting: tuple[Approval, ...] = ()
        try:
            while at < len(self.spec.nodes):
                at = await self._visit(at)
        except WaitingForAnswer as unanswered:
            waiting = unanswered.approvals
        except UnfinishedError as error:
            if tally.exhausted is None:
                raise
            tally.add("nodes", usage_before(error))
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
        """Run or skip the node at an index; return the index of the next node."""
        node = self.spec.nodes[at]
        self._visits[node.name] += 1  # even if it is skipped: a cycle of skipped nodes must end
        try:
            if node.when is not None and not self.scope.holds(node.when):
                self.emit(NodeFinished(self.run_id, node.name, skipped=True))
                return at + 1
            self.emit(NodeStarted(self.run_id, node.name, self._visits[node.name]))

            def on_item(index: int, count: int, error: str) -> None:
                self.emit(ItemFinished(self.run_id, node.name, index, count, error))

            run = NodeRunner(node, self.resources, on_item)
            result = await self._steps.attempt(f"{NODE}{node.name}", ActionResult, run, self._scope_of(node))
        except (ChangedRunError, StoreError):  # the journal's errors are not the node's
            raise
        except Exception as error:  # noqa: BLE001 (`on_error` applies to any error)
            return self._after_failure(at, error)
        self._nodes.append(node.name)
        self._tally.add("nodes", result.usage)
        self._merge(node, result)
        self.emit(NodeFinished(self.run_id, node.name, copy_of(result.value)))
        try:
            return self._next(at)
        except ConfigError as error:
            raise self._located(error, at) from error

    def _merge(self, node: Node, result: ActionResult) -> None:
        """Put a node's result into the state.

        The result is stored under the node's `output`. The keys of a loop's result, and of an object without
        `output`, become keys of the state; any other value without `output` is stored under the node's name.
        A built-in action never sets `model`: otherwise a model could choose the model of later nodes.
        """
        value = result.value
        if isinstance(value, Mapping) and (node.action == LOOP or node.output is None):
            self._clear_verdict(node)
            is_built_in = node.uses is not None and self.resources.own_action(node.uses) is None
            items = cast("Mapping[str, Any]", value).items()
            merged = {key: item for key, item in items if not (is_built_in and key == MODEL)}
            if node.action == LOOP:
                self._clear_output(node)
                self._loops.add(node.name)
            self._write(merged, node.name)
        elif node.output is None and value is not None:
            self._write({node.name: value}, node.name)
        if result.failures:
            first = result.failures[0]
            error = {"node": node.name, "type": first["type"], "message": first["message"]}
            self._write({"error": {**error, "items": list(result.failures)}})
        if node.output is not None:  # last, because it overrides a key of the same name
            self._write({node.output: value}, node.name)

    def _write(self, values: Mapping[str, Any], node: str = "") -> None:
        self.scope.state.update(values)
        self._written |= dict.fromkeys(values, node)

    def written(self) -> dict[str, Any]:
        """The part of the state that the nodes have set."""
        return {key: value for key, value in self.scope.state.items() if key in self._written}

    def _next(self, at: int) -> int:
        """The index of the node that follows a finished node."""
        for jump in self.spec.nodes[at].jumps:
            if jump.if_ is None or self.scope.holds(jump.if_):
                target = self._target(jump.to)
                if target is not None:
                    return target
        return at + 1

    def _target(self, name: str) -> int | None:
        """The index of the node to go to; None if it has reached its `max_visits`."""
        if name == END:
            return len(self.spec.nodes)
        target = next(at for at, node in enumerate(self.spec.nodes) if node.name == name)
        limit = self.spec.nodes[target].max_visits
        return target if limit is None or self._visits[name] < limit else None

    def _after_failure(self, at: int, error: Exception) -> int:
        """Apply a node's `on_error` to its error: return the index of the next node, or raise."""
        node = self.spec.nodes[at]
        if self._tally.exhausted is not None and isinstance(error, UnfinishedError):
            # The attempts of a loop and the finished items of a `map` were paid for, so they are kept.
            if error.partial is not None:
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
        self._tally.add("nodes", usage_before(error))
        self._clear_verdict(node)
        self._write({"error": {"node": node.name, "type": type(error).__name__, "message": str(error)}})
        self.emit(NodeFinished(self.run_id, node.name, error=str(error)))
        return target

    def _scope_of(self, node: Node) -> Scope:
        """The scope in which a node runs: a loop does not see the verdict of an earlier loop."""
        if node.action != LOOP:
            return self.scope
        hidden = {key for key in RESULT_KEYS if self._written.get(key) in self._loops}
        state = {key: item for key, item in self.scope.state.items() if key not in hidden}
        return replace(self.scope, state=state)

    def _clear_verdict(self, node: Node) -> None:
        """For a loop: remove an earlier loop's verdict, before the new verdict or after a failure."""
        if node.action == LOOP:
            for key in RESULT_KEYS:
                self.scope.state.pop(key, None)

    def _clear_output(self, node: Node) -> None:
        """Remove values that would mix with a loop's output: of an earlier visit, and any loop's `result`."""
        for key, name in self._written.items():
            if name == node.name or (key == RESULT and name in self._loops):
                self.scope.state.pop(key, None)

    def _located(self, error: Exception, at: int) -> Exception:
        """Add the place in the file: mistakes become a `WorkflowError`, other errors get a note."""
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


@dataclass(frozen=True, slots=True)
class NodeRunner:
    """One visit of a node.

    With a `map`, each item is a step of its own within the node's step, so that a resumed run repeats no
    finished item.
    """

    node: Node
    resources: Resources
    on_item: Callable[[int, int, str], None]
    """Called whenever an item ends, with its index, the number of items, and the error or an empty string."""

    async def __call__(self, scope: Scope) -> ActionResult:
        """Run the node; raises the error of its last try."""
        node = self.node
        if node.map is None:
            return await self._with_retries(scope)
        return await run_items(self._items(scope), node, self._with_retries, scope, self.on_item)

    def _items(self, scope: Scope) -> list[Any]:
        source = self.node.map
        items = scope.render(braced(source) if isinstance(source, str) else source)
        if not isinstance(items, list):
            raise ConfigError(f"map: expected a list, got {short_repr(items)}.")
        return cast("list[Any]", items)

    async def _with_retries(self, scope: Scope) -> ActionResult:
        """Run the node, and run it again after a failure while it has `retries` left.

        Each try is a step, so that a resumed run continues with the next try.
        """
        retry, used, failures = self.node.retry, NOTHING_USED, 0
        if retry.attempts == 1:
            return await self._in_time(scope)

        def next_wait(error: Exception, _wait: float | None) -> float | None:
            nonlocal used, failures
            used, failures = used + usage_before(error), failures + 1
            if failures == retry.attempts or not _may_retry(error):
                if isinstance(error, RedraftError):
                    error.usage = used
                return None
            wait, why = retry.backoff(failures, error), describe_error(error)
            logger.warning("The node %r failed and will be retried in %.1f s: %s", self.node.name, wait, why)
            return wait

        step = step_context.get().step

        async def wait(seconds: float) -> None:
            await step("wait", NoneType, asyncio.sleep, seconds)

        work = partial(step, TRY, ActionResult)
        result = await retry.run(
            counting_replay, enclosing_budget(), work, self._in_time, scope, on_failure=next_wait, sleep=wait
        )
        return ActionResult(result.value, used + result.usage)

    async def _in_time(self, scope: Scope) -> ActionResult:
        """Run the action or the code once; raises `UnfinishedError` when its time is up."""
        node = self.node
        seconds = node.timeout or (DEFAULT_TIMEOUT if node.action in PARAMS else None)
        if seconds is None:
            return await self._execute(scope)
        # A loop treats this as its own budget, so it ends with its best attempt when the time is up.
        names = {**OPTIONS, "seconds": "timeout"}
        tally = Tally(Budget(seconds=seconds), outer=enclosing_budget(), options=names)
        budget = StepBudget(tally, f"{NODE}{node.name}")
        return await budget.bounding(budget.timed(self._execute, scope))

    async def _execute(self, scope: Scope) -> ActionResult:
        node = self.node
        if node.run is not None:
            return await run_code(node, scope, self.resources)
        resources = self.resources
        if node.action in (APPROVE, LOOP):
            resources = replace(resources, node=node.name)
        result = await resources.run_action(str(node.uses), node.with_, scope)
        return ActionResult(to_json(result.value), result.usage)


async def run_items(
    items: list[Any],
    node: Node,
    effect: Callable[[Scope], Awaitable[ActionResult]],
    scope: Scope,
    on_item: Callable[[int, int, str], None],
) -> ActionResult:
    """Run a node for all items of its `map`, some in parallel; the result is the list of their values.

    With `on_error: continue`, a failed item is None in the list. Otherwise the first error is raised once
    the running items have ended, and no further item begins. Items that wait for a person do not block the
    others.
    """
    results: list[ActionResult | None] = [None] * len(items)
    failures: dict[int, Exception] = {}
    waiting: list[WaitingForAnswer] = []
    fatal: list[Exception] = []  # no further item begins after the first
    step, unstarted = step_context.get().step, iter(enumerate(items))

    async def work() -> None:
        for index, item in unstarted:
            if fatal:
                return
            run = partial(effect, scope.for_item(item, index))
            why = ""
            try:
                work_item = partial(step, _item_step(index, item), ActionResult)
                results[index] = await counting_replay(enclosing_budget(), work_item, run)
            except WaitingForAnswer as unanswered:
                waiting.append(unanswered)
                continue
            except Exception as error:  # noqa: BLE001 (`on_error` applies to any error)
                failures[index], why = error, describe_error(error)
                if not fatal and (node.on_error != CONTINUE or is_final(error)):
                    error.add_note(f"item {index + 1} of {len(items)}")
                    fatal.append(error)
            on_item(index, len(items), why)

    workers = [asyncio.create_task(work()) for _ in range(min(node.concurrency, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        await end_tasks(workers)
    used = sum((result.usage for result in results if result is not None), NOTHING_USED)
    used = sum((usage_before(error) for error in failures.values()), used)
    values = [None if result is None else result.value for result in results]
    for error in fatal:
        if isinstance(error, RedraftError):
            error.usage = used
        for index, failure in failures.items():
            if isinstance(failure, UnfinishedError):
                values[index] = failure.partial
        if isinstance(error, UnfinishedError):
            error.partial = values if any(value is not None for value in values) else None
        raise error
    if waiting:
        raise WaitingForAnswer.merged(waiting)
    failed = tuple(
        {"index": index, "type": type(error).__name__, "message": str(error)}
        for index, error in sorted(failures.items())
    )
    return ActionResult(values, used, failed)


def _item_step(index: int, item: Any) -> str:
    """The name of an item's step; it has a hash, so that a changed item is not replayed from the journal."""
    content = json.dumps(item, sort_keys=True).encode()
    return f"{ITEM_STEP}{index} {sha256(content).hexdigest()[:8]}"


def is_final(error: Exception) -> bool:
    """Whether an error ends the run regardless of `on_error`: an error of the journal, or a spent budget."""
    budget = enclosing_budget()
    is_spent = budget is not None and (budget.tally.exhausted or budget.tally.suspended) is not None
    return isinstance(error, ChangedRunError | StoreError) or (is_spent and over_budget(error))


def _may_retry(error: Exception) -> bool:
    """Whether another try may succeed: not after a mistake in the file or a provider's permanent refusal.

    Nor after an inner file has spent its tokens or US dollars: another try would spend them again.
    """
    is_refused = isinstance(error, ModelError | WorkflowError) and not error.retryable
    is_spent = isinstance(error, UnfinishedError) and error.reason in SPENT
    return not (is_refused or is_spent or is_final(error) or isinstance(error, ConfigError))


SPENT = (ConvergenceReason.TOKEN_BUDGET, ConvergenceReason.COST_BUDGET)


@dataclass(slots=True)
class WorkflowResult:
    """The final state of a workflow, and the cost."""

    state: dict[str, Any]
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    """The nodes that ran, in order."""
    usage: TokenUsage = NOTHING_USED
    """The usage of all models; actions of your own don't report theirs, which makes the cost unknown."""
    execution_time: float = 0.0
    """Seconds of work, over all processes that worked on it."""
    stop: Stop | None = None
    """The spent budget that ended the run early, with its use; None if there is none."""
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])
    """The outputs that the file declares; for a node of another workflow, else what its nodes have set."""
    waiting: tuple[Approval, ...] = ()
    """Open questions to a person; once they are answered, the same call with the run_id continues the run."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status}: {counted(len(self.nodes), 'node')}>"

    @property
    def status(self) -> Literal["finished", "stopped", "waiting"]:
        """How the run ended: after its last node, with a spent budget, or at a question to a person."""
        return "waiting" if self.waiting else "finished" if self.stop is None else "stopped"


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node starts."""

    run_id: str
    node: str
    visit: int = 1
    """How often the node has been visited, this visit included."""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node has ended, or was skipped."""

    run_id: str
    node: str
    result: Any = None
    skipped: bool = False
    """Whether its `when` was false."""
    error: str = ""
    """The error that `on_error` handled; empty if the node did not fail."""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class ItemFinished:
    """An item of a node's `map` has ended."""

    run_id: str
    node: str
    index: int
    """Its position in the list, from 0."""
    count: int
    """The number of items."""
    error: str = ""
    """Why it failed; empty if it did not."""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """A workflow has ended; the `status` of its result says how."""

    run_id: str
    result: WorkflowResult
    schema_version: int = 1


WorkflowEvent: TypeAlias = NodeStarted | NodeFinished | ItemFinished | WorkflowFinished | Event
"""The events of a workflow's stream: its own, and those of the runs in its nodes."""


def budget_of(spec: WorkflowSpec) -> Budget:
    """The budget of a run; `timeout` is a short form of `budget.seconds`."""
    limits = spec.budget
    seconds = limits.seconds or spec.timeout
    if limits.tokens is None and limits.usd is None and seconds is None:
        return NO_BUDGET
    return Budget(limits.tokens, limits.usd, seconds)


def _path_of_template(text: str, node: Node, path: KeyPath) -> KeyPath:
    """The path of a template in its node, even if text was appended to it; else the path of the node."""
    conditions = [(node.when, (*path, "when"))]
    if not isinstance(node.goto, str):
        conditions += [(jump.if_, (*path, "goto", index, "if")) for index, jump in enumerate(node.jumps)]
    for condition, path_of_condition in conditions:
        if isinstance(condition, str) and braced(condition) == text:
            return path_of_condition
    items = [braced(node.map)] if isinstance(node.map, str) else node.map or []
    prefixes = [
        (len(template), path_of_template)
        for template, path_of_template in (
            *templates_in(node.with_, (*path, "with"), NO_TEMPLATES),
            *((template, (*path, "map")) for template, _ in templates_in(items, (), NO_TEMPLATES)),
        )
        if text.startswith(template) and "{" in template
    ]
    return max(prefixes)[1] if prefixes else path
