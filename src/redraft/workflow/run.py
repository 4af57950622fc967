"""Run a workflow from node to node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._codec import describe_error, to_json
from redraft._steps import find_in_step
from redraft.errors import ChangedRunError, ConfigError, RedraftError, SandboxError, ScriptError, StoreError
from redraft.events import Event
from redraft.protocols import Step, TimedStep
from redraft.redact.log import logger
from redraft.text.templates import TemplateError, braced
from redraft.types import NOTHING_USED, TokenUsage
from redraft.workflow.loop import RESULT_KEYS
from redraft.workflow.runtime import MODEL, ActionResult, Resources, Scope, run_code, templates_in
from redraft.workflow.spec import CONTINUE, END, LOOP, RAISE, Source, WorkflowSpec

if TYPE_CHECKING:
    from redraft.text.yaml import KeyPath
    from redraft.workflow.spec import Node

NODE = "node "
"""The prefix of a node's name in the journal."""


@dataclass(slots=True)
class WorkflowResult:
    """The final state, the nodes that ran, in order, and the cost.

    `usage` is what models used in all nodes; an action of your own does not report it, which makes the cost
    unknown. `execution_time` is in seconds of work, over all processes that worked on it.
    """

    state: dict[str, Any]
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0


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
class WorkflowFinished:
    """A workflow has finished."""

    run_id: str
    result: WorkflowResult
    schema_version: int = 1


WorkflowEvent: TypeAlias = NodeStarted | NodeFinished | WorkflowFinished | Event


@dataclass(slots=True)
class WorkflowRun:
    """One run of a workflow. Only the results of nodes change its state, so a replay ends the same way."""

    spec: WorkflowSpec
    source: Source
    resources: Resources
    scope: Scope
    step: Step
    emit: Callable[[WorkflowEvent], None]
    run_id: str = ""
    visits: Counter[str] = field(default_factory=Counter[str])
    visited: list[str] = field(default_factory=list[str])
    usage: TokenUsage = NOTHING_USED

    async def run(self) -> WorkflowResult:
        """Run nodes until the end; raises what a node raises, with its place in the file."""
        started = monotonic()
        at = 0
        while at < len(self.spec.nodes):
            at = await self._visit(at)
        clock = find_in_step(self.step, TimedStep)
        seconds = monotonic() - started if clock is None else clock.elapsed()
        return WorkflowResult(self.scope.state, self.run_id, tuple(self.visited), self.usage, seconds)

    async def _visit(self, at: int) -> int:
        """Run a node and return the index of the next one."""
        node = self.spec.nodes[at]
        self.visits[node.name] += 1  # even if it is skipped: a cycle of skipped nodes must end
        try:
            if node.when is not None and not self.scope.holds(node.when):
                self.emit(NodeFinished(self.run_id, node.name, skipped=True))
                return at + 1
            self.emit(NodeStarted(self.run_id, node.name, self.visits[node.name]))
            result = await self.step(f"{NODE}{node.name}", ActionResult, self._execute, node)
        except (ChangedRunError, StoreError):  # the journal's errors are not the node's
            raise
        except Exception as error:  # noqa: BLE001 (`on_error` decides, whatever a node raises)
            return self._after_failure(at, error)
        self.visited.append(node.name)
        self.usage += result.usage
        self._merge(node, result.value)
        self.emit(NodeFinished(self.run_id, node.name, result.value))
        try:
            return self._next(at)
        except ConfigError as error:
            raise located(error, node, at, self.source) from error

    async def _execute(self, node: Node) -> ActionResult:
        if node.run is not None:
            return await run_code(node, self.scope, self.resources)
        result = await self.resources.run_action(str(node.uses), node.with_, self.scope)
        return ActionResult(to_json(result.value), result.usage)

    def _merge(self, node: Node, value: Any) -> None:
        """Put a node's result into the state.

        It goes under the node's `output`. The keys of a loop's result, and of an object without `output`,
        become keys of the state; any other value without `output` goes under the node's name. A built-in
        action never sets `model`: a model would choose its successor.
        """
        state = self.scope.state
        if isinstance(value, Mapping) and (node.action == LOOP or node.output is None):
            self._forget_last_loop(node)
            is_built_in = node.uses is not None and self.resources.own_action(node.uses) is None
            keys = cast("Mapping[str, Any]", value).items()
            state.update({key: item for key, item in keys if not (is_built_in and key == MODEL)})
        elif node.output is None and value is not None:
            state[node.name] = value
        if node.output is not None:  # last, because it wins over a key of the same name
            state[node.output] = value

    def _next(self, at: int) -> int:
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
        return target if limit is None or self.visits[name] < limit else None

    def _after_failure(self, at: int, error: Exception) -> int:
        """Return the index of the node that `on_error` names; raises the error if it names none."""
        node = self.spec.nodes[at]
        if node.on_error == RAISE:
            target = None
        elif node.on_error == CONTINUE:
            target = at + 1
        else:
            target = self._target(node.on_error)
        if target is None:
            raise located(error, node, at, self.source)
        logger.warning("The node %r failed, and the workflow goes on: %s", node.name, describe_error(error))
        self.visited.append(node.name)
        self.usage += (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED
        self._forget_last_loop(node)
        self.scope.state["error"] = {"node": node.name, "type": type(error).__name__, "message": str(error)}
        self.emit(NodeFinished(self.run_id, node.name, error=str(error)))
        return target

    def _forget_last_loop(self, node: Node) -> None:
        """Remove an earlier loop's keys from the state, where a new result would mix with them."""
        if node.action == LOOP:
            for key in RESULT_KEYS:
                self.scope.state.pop(key, None)


def located(error: Exception, node: Node, at: int, source: Source) -> Exception:
    """Add its place in the file to an error: a mistake in the file becomes a `WorkflowError`, else a note."""
    path, within = ("nodes", at), None
    if isinstance(error, ScriptError) and node.run is not None:
        path, within = (*path, "run"), error.line
    elif isinstance(error, TemplateError):
        path, within = _path_of_template(error.source, node, path), error.line
    placed = source.error(path, str(error), within=within)
    if isinstance(error, ConfigError | SandboxError):
        placed.__cause__ = error
        return placed
    error.add_note(f"{placed.file}, line {placed.line}, node {placed.node!r}")
    return error


def _path_of_template(text: str, node: Node, path: KeyPath) -> KeyPath:
    """Find the template in its node, even if text was appended to it; the path to the node if unknown."""
    conditions = [(node.when, (*path, "when"))]
    if not isinstance(node.goto, str):
        conditions += [(jump.if_, (*path, "goto", at, "if")) for at, jump in enumerate(node.jumps)]
    for condition, place in conditions:
        if isinstance(condition, str) and braced(condition) == text:
            return place
    begins = [
        (len(template), place)
        for template, place in templates_in(node.with_, (*path, "with"))
        if text.startswith(template) and "{" in template
    ]
    return max(begins)[1] if begins else path
