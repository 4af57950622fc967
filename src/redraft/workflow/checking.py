"""Check a workflow: everything that can be known before anything is spent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast

from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.text.templates import TemplateError
from redraft.workflow.actions import BUILT_IN, plain_name
from redraft.workflow.correct import maker_of
from redraft.workflow.judge import check_evaluator, schema_of
from redraft.workflow.params import SCHEMA
from redraft.workflow.running import END
from redraft.workflow.scope import braced, template
from redraft.workflow.spec import (
    CorrectParams,
    EvaluateParams,
    Evaluator,
    LlmParams,
    LoopParams,
    Maker,
    WorkflowSpec,
)

if TYPE_CHECKING:
    from redraft.text.yaml import Way
    from redraft.workflow.bench import Bench
    from redraft.workflow.reading import Source
    from redraft.workflow.spec import Node

CODE = frozenset({"run", "language", "sandbox"})
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(spec: WorkflowSpec, source: Source, bench: Bench) -> None:
    """Raise `WorkflowError`, with file, line, node and key, for the first thing that could not work."""
    _Check(spec, source, bench).all()


class _Check:
    def __init__(self, spec: WorkflowSpec, source: Source, bench: Bench) -> None:
        self.spec = spec
        self.source = source
        self.bench = bench
        self.names = [node.name for node in spec.nodes]

    def all(self) -> None:
        for at, name in enumerate(self.spec.env):
            if not VARIABLE.fullmatch(name):
                self.fail(("env", at), f"{name!r} is no name of an environment variable")
        for at, node in enumerate(self.spec.nodes):
            self.node(node, ("nodes", at))
        self.cycles()

    def fail(self, way: Way, what: str) -> NoReturn:
        self.source.fail(way, what)

    def node(self, node: Node, way: Way) -> None:
        if self.names.count(node.name) > 1 and self.names.index(node.name) != way[1]:
            self.fail((*way, "name"), f"there are two nodes named {node.name!r}; give each a name of its own")
        if node.name == END:
            self.fail((*way, "name"), f"{END!r} is what ends a workflow; give the node another name")
        if (node.uses is None) == (node.run is None):
            self.fail(way, "a node has either 'uses' (an action) or 'run' (code)")
        if node.run is not None and node.with_:
            self.fail((*way, "with"), "'with' holds the parameters of 'uses'; code sees the state")
        for key, text in (("when", node.when), ("goto", node.goto if isinstance(node.goto, str) else None)):
            if key == "when" and text is not None:
                self.template(braced(text), (*way, key))
        self.jumps(node, way)
        if node.uses is not None:
            self.action(node.uses, node.with_, way)

    def jumps(self, node: Node, way: Way) -> None:
        if isinstance(node.goto, str):
            self.target(node.goto, (*way, "goto"))
        for at, jump in enumerate(node.goto if isinstance(node.goto, list) else ()):
            self.target(jump.to, (*way, "goto", at, "to"))
            if jump.if_ is not None:
                self.template(braced(jump.if_), (*way, "goto", at, "if"))
        if node.on_error not in ("raise", "continue"):
            self.target(node.on_error, (*way, "on_error"), ("raise", "continue"))

    def target(self, name: str, way: Way, others: tuple[str, ...] = ()) -> None:
        if name != END and name not in self.names:
            known = [*others, *self.names, END]
            self.fail(way, f"there is no node {name!r} to go to; {nearest(name, known)}")

    def action(self, name: str, params: Mapping[str, Any], way: Way) -> None:
        known = plain_name(name)
        if name not in self.bench.actions and known not in self.bench.actions and known not in BUILT_IN:
            self.fail(
                (*way, "uses"),
                f"there is no action {name!r}; {nearest(name, [*BUILT_IN, *self.bench.actions])}",
            )
        inside = (*way, "with")
        self.templates(params, inside)
        if known == "reflection.loop":
            self.loop(self.source.parse(LoopParams, dict(params), inside), inside)
        elif known == "reflection.evaluate":
            given = self.source.parse(EvaluateParams, dict(params), inside)
            self.evaluator(given.evaluator(), inside)
        elif known == "reflection.correct":
            given = self.source.parse(CorrectParams, dict(params), inside)
            try:
                self.maker(maker_of(given), inside)
            except ConfigError as error:
                self.fail(inside, str(error))
        elif known == "llm.call":
            self.llm(params, inside)

    def loop(self, given: LoopParams, way: Way) -> None:
        self.maker(given.generator, (*way, "generator"))
        self.evaluator(given.evaluator, (*way, "evaluator"))
        if given.corrector is not None:
            self.maker(given.corrector, (*way, "corrector"))

    def maker(self, maker: Maker, way: Way) -> None:
        if (maker.action is None) == (maker.run is None):
            self.fail(way, "give either 'action' or 'run'")
        if maker.run is not None and maker.params:
            key = next(iter(maker.params))
            self.fail((*way, key), f"unknown key {key!r}; {nearest(key, sorted(CODE))}")
        if maker.action is not None:
            name = plain_name(maker.action)
            if name in ("reflection.loop", "reflection.evaluate", "reflection.correct"):
                self.fail((*way, "action"), f"{maker.action!r} can't stand inside of another; use a node")
            if maker.action not in self.bench.actions and name not in BUILT_IN:
                known = ["llm.call", *self.bench.actions]
                self.fail(
                    (*way, "action"), f"there is no action {maker.action!r}; {nearest(maker.action, known)}"
                )
            if name == "llm.call":
                self.llm(maker.params, way)

    def llm(self, params: Mapping[str, Any], way: Way) -> None:
        # Templates may give other kinds of values, so only what is none is checked by its kind.
        plain = {key: value for key, value in params.items() if not _is_template(value)}
        given = self.source.parse(LlmParams, plain, way)
        if (params.get("prompt") is None) == (params.get("messages") is None):
            self.fail(way, "llm.call: give either 'prompt' or 'messages'")
        self.model(given.model, way)

    def evaluator(self, evaluator: Evaluator, way: Way) -> None:
        try:
            check_evaluator(evaluator)
        except ConfigError as error:
            self.fail(way, str(error))
        if evaluator.type == "schema":
            try:
                schema_of(evaluator, self.bench)
            except ConfigError as error:
                self.fail((*way, "schema"), str(error))
        if evaluator.type == "llm" and not _is_template(evaluator.model):
            self.model(evaluator.model, way)

    def model(self, name: str | None, way: Way) -> None:
        """Check the model that a node names; one that only the state or the settings know is found later."""
        if name is None or _is_template(name):
            return
        from redraft.workflow.scope import Scope  # noqa: PLC0415 (an empty one, to look the model up)

        try:
            self.bench.model_for(name, Scope({}))
        except ConfigError as error:
            self.fail((*way, "model"), str(error))

    def templates(self, value: Any, way: Way) -> None:
        if isinstance(value, str) and (not way or way[-1] not in CODE):
            self.template(value, way)
        elif isinstance(value, Mapping):
            for key, item in cast("Mapping[str, Any]", value).items():
                if key != SCHEMA:
                    self.templates(item, (*way, key))
        elif isinstance(value, list):
            for at, item in enumerate(cast("list[Any]", value)):
                self.templates(item, (*way, at))

    def template(self, text: str, way: Way) -> None:
        try:
            found = template(text)
        except TemplateError as error:
            self.fail(way, f"the template is wrong: {error}")
        for path in found.paths:
            if path[0] == "env" and len(path) > 1 and path[1] not in self.spec.env:
                self.fail(way, f"the variable {path[1]!r} is not listed under 'env'")

    def cycles(self) -> None:
        """Refuse a cycle of gotos in which no node says how often it may be visited."""
        ways = {
            at: self.follows(at) for at in range(len(self.names)) if self.spec.nodes[at].max_visits is None
        }
        seen: dict[int, bool] = {}
        for start, first in ways.items():
            stack = [(start, iter(first))]
            if start in seen:
                continue
            seen[start] = True
            while stack:
                at, rest = stack[-1]
                to = next(rest, None)
                if to is None:
                    seen[at] = False
                    stack.pop()
                elif to in ways and seen.get(to):
                    self.fail(
                        ("nodes", at),
                        f"the way from {self.names[at]!r} back to {self.names[to]!r} has no bound; "
                        "give a node on it 'max_visits'",
                    )
                elif to in ways and to not in seen:
                    seen[to] = True
                    stack.append((to, iter(ways[to])))

    def follows(self, at: int) -> list[int]:
        node = self.spec.nodes[at]
        goto = node.goto
        targets = [goto] if isinstance(goto, str) else [jump.to for jump in goto or ()]
        if node.on_error not in ("raise", "continue"):
            targets.append(node.on_error)
        below = [] if isinstance(goto, str) and node.when is None else [at + 1]
        return [self.names.index(name) for name in targets if name in self.names] + below


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value
