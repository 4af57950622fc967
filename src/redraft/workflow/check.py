"""Check a workflow before anything is spent."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.text.templates import TemplateError, braced, template
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.scope import SCHEMA, SCOPES, Scope, check_call, templates_in
from redraft.workflow.spec import (
    CONTINUE,
    CORRECT,
    END,
    EVALUATE,
    LLM_CALL,
    LOOP,
    RAISE,
    VARIABLE,
    CorrectParams,
    EvaluateParams,
    Evaluator,
    LlmParams,
    LoopParams,
    Maker,
    WorkflowSpec,
    plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.text.yaml import KeyPath
    from redraft.workflow.scope import Bench
    from redraft.workflow.spec import Code, Node, Source

CODE = frozenset({"run", "language", "sandbox"})


def check(spec: WorkflowSpec, source: Source, bench: Bench) -> None:
    """Raise `WorkflowError`, with file, line, node and key, for the first thing that could not work."""
    _Check(spec, source, bench).all()


class _Check:
    def __init__(self, spec: WorkflowSpec, source: Source, bench: Bench) -> None:
        self.spec = spec
        self.source = source
        self.bench = bench
        self.names = [node.name for node in spec.nodes]
        self.first = {node.name: at for at, node in reversed(list(enumerate(spec.nodes)))}
        self.unbounded = {node.name: at for at, node in enumerate(spec.nodes) if node.max_visits is None}

    def all(self) -> None:
        for at, name in enumerate(self.spec.env):
            if not VARIABLE.fullmatch(name):
                self.fail(("env", at), f"{name!r} is no name of an environment variable")
        for at, node in enumerate(self.spec.nodes):
            self.node(node, ("nodes", at))
        self.cycles()

    def fail(self, way: KeyPath, what: str, *, within: int | None = None) -> NoReturn:
        self.source.fail(way, what, within=within)

    def node(self, node: Node, way: KeyPath) -> None:
        if self.first[node.name] != way[1]:
            self.fail((*way, "name"), f"there are two nodes named {node.name!r}; give each a name of its own")
        if node.name == END:
            self.fail((*way, "name"), f"{END!r} is what ends a workflow; give the node another name")
        if (node.uses is None) == (node.run is None):
            self.fail(way, "a node has either 'uses' (an action) or 'run' (code)")
        if node.run is not None and node.with_:
            self.fail((*way, "with"), "'with' holds the parameters of 'uses'; code sees the state")
        if isinstance(node.when, str):
            self.template(braced(node.when), (*way, "when"))
        self.code(node, way)
        self.jumps(node, way)
        if node.uses is not None:
            self.action(node.uses, node.with_, way)

    def code(self, code: Code, way: KeyPath) -> None:
        """Check that the language has a sandbox here, and that Python parses."""
        if code.run is None:
            return
        try:
            self.bench.code(code)
        except ConfigError as error:
            self.fail((*way, "sandbox" if code.sandbox != "inline" else "language"), str(error))
        if code.language == "python":
            try:
                ast.parse(code.run)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = error.lineno if isinstance(error, SyntaxError) else None
                at = f" in line {line}" if line else ""
                said = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
                self.fail((*way, "run"), f"the code does not parse{at}: {said}", within=line)

    def jumps(self, node: Node, way: KeyPath) -> None:
        if isinstance(node.goto, str):
            self.target(node.goto, (*way, "goto"))
        for at, jump in enumerate(node.goto if isinstance(node.goto, list) else ()):
            self.target(jump.to, (*way, "goto", at, "to"))
            if isinstance(jump.if_, str):
                self.template(braced(jump.if_), (*way, "goto", at, "if"))
        if node.on_error not in (RAISE, CONTINUE):
            self.target(node.on_error, (*way, "on_error"), (RAISE, CONTINUE))

    def target(self, name: str, way: KeyPath, others: tuple[str, ...] = ()) -> None:
        if name != END and name not in self.first:
            known = [*others, *self.names, END]
            self.fail(way, f"there is no node {name!r} to go to; {nearest(name, known)}")

    def action(self, name: str, params: Mapping[str, Any], way: KeyPath) -> None:
        known = plain_name(name)
        own = self.own(name, (*way, "uses"))
        if own is None and known not in BUILT_IN:
            self.fail(
                (*way, "uses"),
                f"there is no action {name!r}; {nearest(name, [*BUILT_IN, *self.bench.actions])}",
            )
        inside = (*way, "with")
        for text, place in templates_in(params, inside):
            self.template(text, place)
        if own is not None:
            self.call(own, name, params, inside)
        elif known == LOOP:
            self.loop(self.source.parse(LoopParams, dict(params), inside), inside)
        elif known == EVALUATE:
            given = self.source.parse(EvaluateParams, dict(params), inside)
            self.evaluator(given.evaluator(), inside)
        elif known == CORRECT:
            given = self.source.parse(CorrectParams, dict(params), inside)
            try:
                self.maker(given.maker(), inside, "corrector_action")
            except ConfigError as error:
                self.fail(inside, str(error))
        elif known == LLM_CALL:
            self.llm(params, inside)

    def own(self, name: str, way: KeyPath) -> Callable[..., Any] | None:
        """Return the user's own action of a name, if there is one; from a package it is imported now."""
        try:
            return self.bench.own(name)
        except ConfigError as error:
            self.fail(way, str(error))

    def call(self, own: Callable[..., Any], name: str, params: Mapping[str, Any], way: KeyPath) -> None:
        for text, place in templates_in(params, way, without=()):  # it gets all of them rendered
            self.template(text, place)
        try:
            check_call(own, name, params)
        except ConfigError as error:
            self.fail(way, str(error))

    def loop(self, given: LoopParams, way: KeyPath) -> None:
        if isinstance(given.max_iterations, str) and not _is_template(given.max_iterations):
            self.fail(
                (*way, "max_iterations"),
                f"expected a whole number of at least 1, or a template, got {given.max_iterations!r}",
            )
        self.maker(given.generator, (*way, "generator"))
        self.evaluator(given.evaluator, (*way, "evaluator"))
        if given.corrector is not None:
            self.maker(given.corrector, (*way, "corrector"))

    def maker(self, maker: Maker, way: KeyPath, key: str = "action") -> None:
        if maker.action is None and "uses" in maker.params:
            self.fail((*way, "uses"), "inside of an action, another one stands under 'action'")
        if (maker.action is None) == (maker.run is None):
            self.fail(way, "give either 'action' or 'run'")
        if maker.run is not None and maker.params:
            unknown = next(iter(maker.params))
            self.fail((*way, unknown), f"unknown key {unknown!r}; {nearest(unknown, sorted(CODE))}")
        self.code(maker, way)
        if maker.action is None:
            return
        name = plain_name(maker.action)
        if (own := self.own(maker.action, (*way, key))) is not None:
            self.call(own, maker.action, maker.params, way)
        elif name == LLM_CALL:
            self.llm(maker.params, way)
        elif name in BUILT_IN:
            self.fail((*way, key), f"{maker.action!r} can't stand inside of another; use a node")
        else:
            known = nearest(maker.action, [LLM_CALL, *self.bench.actions])
            self.fail((*way, key), f"there is no action {maker.action!r}; {known}")

    def llm(self, params: Mapping[str, Any], way: KeyPath) -> None:
        # Templates may give other kinds of values, so only what is none is checked by its kind.
        plain = {key: value for key, value in params.items() if key == SCHEMA or not _is_template(value)}
        given = self.source.parse(LlmParams, plain, way)
        if (params.get("prompt") is None) == (params.get("messages") is None):
            self.fail(way, "llm.call: give either 'prompt' or 'messages'")
        if isinstance(given.messages, str):
            self.fail(
                (*way, "messages"), f"expected a list of messages, or a template, got {given.messages!r}"
            )
        if given.schema_ is not None:
            self.schema(given.schema_, way)
        self.model(given.model, way)

    def evaluator(self, evaluator: Evaluator, way: KeyPath) -> None:
        try:
            evaluator.check()
        except ConfigError as error:
            self.fail(way, str(error))
        self.code(evaluator, way)
        if evaluator.type == "schema":
            self.schema(evaluator.schema_, way)
        if evaluator.type == "llm" and not _is_template(evaluator.model):
            self.model(evaluator.model, way)

    def schema(self, given: Any, way: KeyPath) -> None:
        try:
            self.bench.schema(given)
        except ConfigError as error:
            self.fail((*way, "schema"), str(error))

    def model(self, name: str | None, way: KeyPath) -> None:
        """Check the model that a node names; one from the state or the settings is checked later."""
        if name is None or _is_template(name):
            return
        try:
            self.bench.model_for(name, Scope({}))
        except ConfigError as error:
            self.fail((*way, "model"), f"{error} What a name stands for is said under 'models'")

    def template(self, text: str, way: KeyPath) -> None:
        try:
            found = template(text)
        except TemplateError as error:
            self.fail(way, f"the template is wrong: {error}", within=error.line)
        for path in found.paths:
            if path[0] == "env" and len(path) > 1 and path[1] not in self.spec.env:
                self.fail(way, f"the variable {path[1]!r} is not listed under 'env'")
        for name in sorted(str(path[0]) for path in found.required):
            if name not in SCOPES:
                known = nearest(name, SCOPES)
                self.fail(way, f"there is no {name!r}; values are read as in 'state.{name}'; {known}")

    def cycles(self) -> None:
        """Reject a cycle of gotos none of whose targets has a `max_visits`."""
        follows = [self.follows(at) for at in range(len(self.names))]
        seen: dict[int, bool] = {}  # whether it is on the path from `start`, or done
        for start in range(len(follows)):
            stack = [] if start in seen else [(start, iter(follows[start]))]
            seen.setdefault(start, True)
            while stack:
                at, rest = stack[-1]
                to = next(rest, None)
                if to is None:
                    seen[at] = False
                    stack.pop()
                elif to not in seen:
                    seen[to] = True
                    stack.append((to, iter(follows[to])))
                elif seen[to]:
                    way = [one for one, _ in stack]
                    self.endless([*way[way.index(to) :], to])

    def endless(self, cycle: list[int]) -> NoReturn:
        at, to = next((one, after) for one, after in pairwise(cycle) if after <= one)
        self.fail(
            ("nodes", at),
            f"the way from {self.names[at]!r} back to {self.names[to]!r} has no bound; "
            f"give {self.names[to]!r} a 'max_visits'",
        )

    def follows(self, at: int) -> list[int]:
        """Return the nodes that may follow a node any number of times: gotos to a bounded one end."""
        node = self.spec.nodes[at]
        jumps = node.jumps
        named = (*(jump.to for jump in jumps), node.on_error)
        targets = [self.unbounded[name] for name in named if name in self.unbounded]
        always = any(jump.if_ is None and (jump.to in self.unbounded or jump.to == END) for jump in jumps)
        passes = node.when is not None or node.on_error == CONTINUE or not always
        return [*targets, at + 1] if passes and at + 1 < len(self.names) else targets


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value
