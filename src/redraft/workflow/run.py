"""Run a workflow from node to node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._codec import said_of, to_json
from redraft._steps import offered
from redraft.errors import ChangedRunError, ConfigError, RedraftError, SandboxError, ScriptError, StoreError
from redraft.events import Event
from redraft.protocols import Step, TimedStep
from redraft.redact.log import logger
from redraft.text.templates import TemplateError, braced
from redraft.types import NOTHING_USED, TokenUsage, render_score
from redraft.workflow.loop import DOCUMENTED
from redraft.workflow.scope import MODEL, Bench, Scope, run_code, templates_in
from redraft.workflow.spec import LOOP, Jump, Source, WorkflowSpec, plain_name

if TYPE_CHECKING:
    from redraft.text.yaml import Way
    from redraft.workflow.spec import Node


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """Say how a node ended; `valid` is whether a loop or a judgement was satisfied, None for other nodes."""

    valid: bool | None = None
    attempts: int | None = None
    best_score: float | None = None

    @classmethod
    def of(cls, result: Any) -> NodeOutcome:
        """Read what a node gave."""
        if not isinstance(result, dict) or "valid" not in result:
            return cls()
        values = cast("Mapping[str, Any]", result)
        attempts = values.get("reflection_iteration")
        if not isinstance(attempts, int):
            return cls(values["valid"] is True)
        return cls(values["valid"] is True, attempts, values.get("reflection_best_score"))

    @property
    def verdict(self) -> str:
        """A word or two."""
        return "done" if self.valid is None else "valid" if self.valid else "not valid"

    @property
    def detail(self) -> str:
        """What else is known of it; empty for what is no loop."""
        if self.attempts is None:
            return ""
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"after {times}, best score {render_score(self.best_score).strip()}"


@dataclass(slots=True)
class WorkflowResult:
    """Hold the state at the end, which nodes ran in which order, and what it cost.

    `usage` is what models used in all nodes; a node whose function does not say makes its cost unknown.
    `execution_time` is in seconds of work, over all processes that worked on it.
    """

    state: dict[str, Any]
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeStarted:
    """A node begins; `visit` counts how often it has, from 1."""

    run_id: str
    node: str
    visit: int = 1
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class NodeFinished:
    """A node gave `result`, was skipped by its `when`, or failed where `on_error` lets the workflow go on."""

    run_id: str
    node: str
    result: Any = None
    skipped: bool = False
    error: str = ""
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """A workflow came to its end."""

    run_id: str
    result: WorkflowResult
    schema_version: int = 1


WorkflowEvent: TypeAlias = NodeStarted | NodeFinished | WorkflowFinished | Event


PASSED_ON = (ChangedRunError, StoreError)
"""What `on_error` is no answer to."""


@dataclass(frozen=True, slots=True)
class NodeResult:
    """Hold what a node gave, as its journal keeps it."""

    value: Any = None
    usage: TokenUsage = NOTHING_USED


@dataclass(slots=True)
class Running:
    """Carry out one workflow once. Only the results of nodes change the state, so a replay ends alike."""

    spec: WorkflowSpec
    source: Source
    bench: Bench
    step: Step
    run_id: str
    state: dict[str, Any]
    variables: Mapping[str, Any]
    env: Mapping[str, str]
    emit: Callable[[WorkflowEvent], None]
    visited: list[str] = field(default_factory=list[str])
    usage: TokenUsage = NOTHING_USED
    visits: Counter[str] = field(default_factory=Counter[str])

    async def run(self) -> WorkflowResult:
        """Go from node to node to the end; raises what a node raises, with its place in a note."""
        started = monotonic()
        at = 0
        while at < len(self.spec.nodes):
            at = await self._visit(at)
        timed = offered(self.step, TimedStep)
        seconds = monotonic() - started if timed is None else timed.elapsed()
        return WorkflowResult(self.state, self.run_id, tuple(self.visited), self.usage, seconds)

    async def _visit(self, at: int) -> int:
        """Carry out a node; return the index of the next one."""
        node = self.spec.nodes[at]
        scope = Scope(self.state, self.variables, self.env)
        self.visits[node.name] += 1  # one that is skipped, too: a cycle of them must end
        try:
            if node.when is not None and not scope.holds(node.when):
                self.emit(NodeFinished(self.run_id, node.name, skipped=True))
                return at + 1
            self.emit(NodeStarted(self.run_id, node.name, self.visits[node.name]))
            result = await self.step(f"node {node.name}", NodeResult, self._carry_out, node, scope)
        except PASSED_ON:
            raise
        except Exception as error:  # noqa: BLE001 (what a node raises is for the file to answer)
            return self._failed(at, error)
        self.visited.append(node.name)
        self.usage += result.usage
        self._take(node, result.value)
        self.emit(NodeFinished(self.run_id, node.name, result.value))
        try:
            return self._next(at, Scope(self.state, self.variables, self.env))
        except ConfigError as error:
            raise self._placed(at, error) from error

    async def _carry_out(self, node: Node, scope: Scope) -> NodeResult:
        if node.run is not None:
            made = await run_code(node, scope, self.bench)
        else:
            made = await self.bench.do(str(node.uses), node.with_, scope)
        return NodeResult(to_json(made.value), made.usage)

    def _take(self, node: Node, value: Any) -> None:
        """Put a node's result into the state.

        It goes under the node's `output`; the keys of a loop, and of an object without `output`, go into the
        state, too. Without either, what is no object goes under the node's name. What a model may have
        written does not choose the next one: that is what `state.model` does.
        """
        if isinstance(value, Mapping) and (_is_loop(node) or node.output is None):
            self._forget_loops_before(node)
            ours = node.uses is not None and self.bench.own(node.uses) is None
            keys = cast("Mapping[str, Any]", value).items()
            self.state |= {key: item for key, item in keys if not (ours and key == MODEL)}
        elif node.output is None and value is not None:
            self.state[node.name] = value
        if node.output is not None:  # which goes before a key of the same name
            self.state[node.output] = value

    def _forget_loops_before(self, node: Node) -> None:
        """Take out of the state what an earlier loop left: it would be taken for this one's."""
        if _is_loop(node):
            for key in DOCUMENTED:
                self.state.pop(key, None)

    def _next(self, at: int, scope: Scope) -> int:
        goto = self.spec.nodes[at].goto
        if goto is None:
            return at + 1
        for jump in [Jump.model_validate({"to": goto})] if isinstance(goto, str) else goto:
            if jump.if_ is not None and not scope.holds(jump.if_):
                continue
            if (target := self._target(jump.to)) is not None:
                return target
        return at + 1

    def _target(self, name: str) -> int | None:
        """Return the index of the node that a goto names; None where it has been visited often enough."""
        if name == END:
            return len(self.spec.nodes)
        target = next(at for at, node in enumerate(self.spec.nodes) if node.name == name)
        bound = self.spec.nodes[target].max_visits
        return target if bound is None or self.visits[name] < bound else None

    def _failed(self, at: int, error: Exception) -> int:
        node = self.spec.nodes[at]
        target = at + 1 if node.on_error == "continue" else None
        if node.on_error not in ON_ERROR:
            target = self._target(node.on_error)
        if target is None:
            raise self._placed(at, error)
        logger.warning("The node %r failed, and the workflow goes on: %s", node.name, said_of(error))
        self.visited.append(node.name)
        self.usage += (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED
        self._forget_loops_before(node)
        said = {"node": node.name, "type": type(error).__name__, "message": str(error)}
        self.state["error"] = said
        self.emit(NodeFinished(self.run_id, node.name, error=str(error)))
        return target

    def _placed(self, at: int, error: Exception) -> Exception:
        """Say where in the file an error comes from: in a note, or itself where it is the file's mistake."""
        node, way = self.spec.nodes[at], ("nodes", at)
        if isinstance(error, ScriptError) and node.run is not None:
            placed = self.source.error((*way, "run"), str(error), within=error.line)
        elif isinstance(error, TemplateError):
            placed = self.source.error(_way_of(error.source, node, way), str(error), within=error.line)
        else:
            placed = self.source.error(way, str(error))
        if isinstance(error, ConfigError | SandboxError):
            placed.__cause__ = error
            return placed
        error.add_note(f"{placed.file}, line {placed.line}, node {placed.node!r}")
        return error


def _is_loop(node: Node) -> bool:
    return node.uses is not None and plain_name(node.uses) == LOOP


def _way_of(source: str, node: Node, way: Way) -> Way:
    """Return where a template stands in a node, whatever was put after it; the node's way for none in it."""
    gotos = node.goto if isinstance(node.goto, list) else []
    conditions = [
        (node.when, (*way, "when")),
        *((jump.if_, (*way, "goto", at, "if")) for at, jump in enumerate(gotos)),
    ]
    for condition, place in conditions:
        if isinstance(condition, str) and braced(condition) == source:
            return place
    begun = [
        (len(text), place)
        for text, place in templates_in(node.with_, (*way, "with"))
        if source.startswith(text) and "{" in text
    ]
    return max(begun)[1] if begun else way


ON_ERROR = ("raise", "continue")
"""What `on_error` says besides the names of nodes."""
END = "end"
"""What a goto names to end the workflow."""
