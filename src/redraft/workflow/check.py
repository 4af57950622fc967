"""Check a workflow before anything is spent, and its JSON Schema."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from redraft._validation import nearest
from redraft.errors import ConfigError
from redraft.text.spec_file import DRAFT, parts_of
from redraft.text.templates import TemplateError, braced, template
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.loop import check_evaluator, maker_of
from redraft.workflow.scope import SCHEMA, SCOPES, Scope, check_call, templates_in
from redraft.workflow.spec import (
    CONTINUE,
    CORRECT,
    END,
    EVALUATE,
    LLM_CALL,
    LOOP,
    RAISE,
    Corrector,
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
    from collections.abc import Callable, Iterable, Mapping

    from redraft.text.yaml import Way
    from redraft.workflow.scope import Bench
    from redraft.workflow.spec import Code, Node, Source

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
        self.first = {node.name: at for at, node in reversed(list(enumerate(spec.nodes)))}
        self.unbounded = {node.name: at for at, node in enumerate(spec.nodes) if node.max_visits is None}

    def all(self) -> None:
        for at, name in enumerate(self.spec.env):
            if not VARIABLE.fullmatch(name):
                self.fail(("env", at), f"{name!r} is no name of an environment variable")
        for at, node in enumerate(self.spec.nodes):
            self.node(node, ("nodes", at))
        self.cycles()

    def fail(self, way: Way, what: str, *, within: int | None = None) -> NoReturn:
        self.source.fail(way, what, within=within)

    def node(self, node: Node, way: Way) -> None:
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

    def code(self, code: Code, way: Way) -> None:
        """Check that the sandbox of a language is there, and that Python parses."""
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

    def jumps(self, node: Node, way: Way) -> None:
        if isinstance(node.goto, str):
            self.target(node.goto, (*way, "goto"))
        for at, jump in enumerate(node.goto if isinstance(node.goto, list) else ()):
            self.target(jump.to, (*way, "goto", at, "to"))
            if isinstance(jump.if_, str):
                self.template(braced(jump.if_), (*way, "goto", at, "if"))
        if node.on_error not in (RAISE, CONTINUE):
            self.target(node.on_error, (*way, "on_error"), (RAISE, CONTINUE))

    def target(self, name: str, way: Way, others: tuple[str, ...] = ()) -> None:
        if name != END and name not in self.first:
            known = [*others, *self.names, END]
            self.fail(way, f"there is no node {name!r} to go to; {nearest(name, known)}")

    def action(self, name: str, params: Mapping[str, Any], way: Way) -> None:
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
                self.maker(maker_of(given), inside, "corrector_action")
            except ConfigError as error:
                self.fail(inside, str(error))
        elif known == LLM_CALL:
            self.llm(params, inside)

    def own(self, name: str, way: Way) -> Callable[..., Any] | None:
        """Return the action of one's own with a name; that of a package is imported now."""
        try:
            return self.bench.own(name)
        except ConfigError as error:
            self.fail(way, str(error))

    def call(self, own: Callable[..., Any], name: str, params: Mapping[str, Any], way: Way) -> None:
        for text, place in templates_in(params, way, without=()):  # it gets all of them rendered
            self.template(text, place)
        try:
            check_call(own, name, params)
        except ConfigError as error:
            self.fail(way, str(error))

    def loop(self, given: LoopParams, way: Way) -> None:
        if isinstance(given.max_iterations, str) and not _is_template(given.max_iterations):
            self.fail(
                (*way, "max_iterations"),
                f"expected a whole number of at least 1, or a template, got {given.max_iterations!r}",
            )
        self.maker(given.generator, (*way, "generator"))
        self.evaluator(given.evaluator, (*way, "evaluator"))
        if given.corrector is not None:
            self.maker(given.corrector, (*way, "corrector"))

    def maker(self, maker: Maker, way: Way, key: str = "action") -> None:
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

    def llm(self, params: Mapping[str, Any], way: Way) -> None:
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

    def evaluator(self, evaluator: Evaluator, way: Way) -> None:
        try:
            check_evaluator(evaluator)
        except ConfigError as error:
            self.fail(way, str(error))
        self.code(evaluator, way)
        if evaluator.type == "schema":
            self.schema(evaluator.schema_, way)
        if evaluator.type == "llm" and not _is_template(evaluator.model):
            self.model(evaluator.model, way)

    def schema(self, given: Any, way: Way) -> None:
        try:
            self.bench.schema(given)
        except ConfigError as error:
            self.fail((*way, "schema"), str(error))

    def model(self, name: str | None, way: Way) -> None:
        """Check the model that a node names; one that only the state or the settings know is found later."""
        if name is None or _is_template(name):
            return
        try:
            self.bench.model_for(name, Scope({}))
        except ConfigError as error:
            self.fail((*way, "model"), f"{error} What a name stands for is said under 'models'")

    def template(self, text: str, way: Way) -> None:
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
        """Refuse a cycle in which every goto leads to a node that may be visited without end."""
        follows = [self.follows(at) for at in range(len(self.names))]
        seen: dict[int, bool] = {}  # whether it is on the way from `start`, or was left behind
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
        """Return the nodes that may come after a node, again and again: a bound ends the gotos to a node."""
        node = self.spec.nodes[at]
        jumps = node.jumps
        named = (*(jump.to for jump in jumps), node.on_error)
        targets = [self.unbounded[name] for name in named if name in self.unbounded]
        always = any(jump.if_ is None and (jump.to in self.unbounded or jump.to == END) for jump in jumps)
        passes = node.when is not None or node.on_error == CONTINUE or not always
        return [*targets, at + 1] if passes and at + 1 < len(self.names) else targets


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


ID = "urn:redraft:workflow:1"

PARAMS = {
    "llm.call": LlmParams,
    "reflection.loop": LoopParams,
    "reflection.evaluate": EvaluateParams,
    "reflection.correct": CorrectParams,
}
"""The parameters of each action that is built in."""


def _spellings(names: Iterable[str]) -> list[str]:
    """Return names of actions in both spellings."""
    plain = [plain_name(name) for name in names]
    return [*plain, *(name.replace(".", "_") for name in plain)]


NOT_INSIDE = {"not": {"enum": _spellings(name for name in BUILT_IN if name != "llm.call")}}
"""Actions that can't stand inside of another."""

NEEDED = {"schema": "schema", "llm": "prompt", "custom": "run"}
"""What an evaluator of each type can't do without."""

LONE = {"type": "string", "pattern": r"\{\{"}
"""A template that gives a value which is no text."""

JAILED = {
    "properties": {"language": {"enum": ["lua", "prolog"]}, "sandbox": {"const": "process"}},
    "required": ["language", "sandbox"],
}
"""What is not allowed: the other languages in the sandbox of whole Python."""

SAYS = {
    "action": "`llm.call`, or an action of your own; its parameters stand beside it.",
    "apply": "Whether what the corrector gives is the next candidate, or feedback for the generator.",
    "content": "What is said.",
    "corrector": "What mends an output that is not valid; without it the generator runs again.",
    "corrector_action": "The action that corrects; it gets `prompt` and `model`.",
    "description": "For readers.",
    "evaluator": "What says whether an output is valid, and how good it is.",
    "evaluator_type": "What judges the data.",
    "examples": "Judgements that are shown to the judge before it judges.",
    "generator": "What makes an output.",
    "if": "The condition, such as `state.score < 0.5`.",
    "input": "What was judged.",
    "language": "The language of `run`.",
    "limits": "Bounds on the code of this file.",
    "max_iterations": "How many attempts at most.",
    "max_tokens": "Of the reply, at most.",
    "messages": "A conversation, each message with a `role` and a `content`.",
    "model": "`provider:model`, `local:NAME`, or a name of `models`.",
    "name": "Its name.",
    "nodes": "The steps, in the order in which they run.",
    "on_failure": "What a loop without a valid output gives; `raise` ends the workflow.",
    "output": "The judgement.",
    "prompt": "What the model is asked.",
    "role": "Who says it.",
    "run": "Code; its value is what it returns, or `result`. It sees `state`.",
    "sandbox": "`inline`: quick, a subset of Python; `process`: whole Python in a jailed child.",
    "schema": "JSON Schema that the output has to follow.",
    "system": "What the model is told before everything else.",
    "temperature": "0: the most likely words; more: more surprise.",
    "threshold": "From which a score alone counts as valid.",
    "score_max": "The best score, where numbers do not go up to 1.",
    "to": "The node to go to, or `end`.",
    "type": "What judges the output: a JSON Schema, a model, or code.",
    "uses": "The action.",
    "variables": "Values for templates and code; what a run is given goes before them.",
    "with": "The parameters of the action.",
}
"""What a key says, wherever it stands, unless the spec says more of it there."""


def workflow_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of workflow files.

    What `with` holds depends on `uses`. It refuses less than `Workflow` does, which also compiles schemas and
    templates and follows gotos, and one thing more: a key that holds nothing, which can be left out.
    """
    kinds = (WorkflowSpec, *PARAMS.values())
    parts = parts_of(kinds, SAYS)
    _depend(parts)
    return {"$schema": DRAFT, "$id": ID, **parts.pop("WorkflowSpec"), "title": "Workflow", "$defs": parts}


def _depend(parts: dict[str, Any]) -> None:
    """Say which keys go with which values of others."""
    for name in ("Evaluator", "EvaluateParams", "LlmParams"):
        parts[name]["properties"]["schema"]["type"] = ["object", "boolean"]
    for name in ("Evaluator", "EvaluateParams"):
        key = "type" if name == "Evaluator" else "evaluator_type"
        default = parts[name]["properties"][key].get("default")
        parts[name]["allOf"] = [_judging(key, kind, kind == default) for kind in NEEDED]
    parts["LlmParams"]["properties"]["messages"]["anyOf"][1] |= LONE
    parts["LlmParams"]["properties"] |= _or_templates(parts["LlmParams"]["properties"])
    parts["LlmParams"]["oneOf"] = [{"required": ["prompt"]}, {"required": ["messages"]}]
    parts["CorrectParams"] |= {
        "anyOf": [{"required": [way]} for way in ("prompt", "corrector_action", "run")],
        "dependentSchemas": {"run": {"properties": {"prompt": False, "corrector_action": False}}},
    }
    for kind in (Maker, Corrector):
        own = frozenset(field.alias or name for name, field in kind.model_fields.items())
        parts[kind.__name__] |= _making(own, parts["LlmParams"])
    parts["CorrectParams"]["properties"]["corrector_action"] |= NOT_INSIDE
    parts["LoopParams"]["properties"]["max_iterations"]["anyOf"][1] |= LONE
    parts["WorkflowSpec"]["properties"]["env"]["items"] |= {"pattern": f"^{VARIABLE.pattern}$"}
    for part in parts.values():
        if {"language", "sandbox"} <= set(part["properties"]):
            part["not"] = JAILED
    node = parts["Node"]
    node["properties"]["name"] |= {"not": {"const": END}}
    node["properties"]["uses"] |= {"anyOf": [{"enum": _spellings(BUILT_IN)}, {"type": "string"}]}
    node["oneOf"] = [
        {"required": ["uses"], "properties": {"run": False}},
        {"required": ["run"], "properties": {"uses": False, "with": False}},
    ]
    node["allOf"] = [_using(name) for name in PARAMS]


def _judging(key: str, kind: str, is_default: bool) -> dict[str, Any]:
    others: dict[str, Any] = {other: False for one, other in NEEDED.items() if one != kind}
    return {
        "if": {"properties": {key: {"const": kind}}} | ({} if is_default else {"required": [key]}),
        "then": {"required": [NEEDED[kind]], "properties": others},
    }


def _making(own: frozenset[str], llm: Mapping[str, Any]) -> dict[str, Any]:
    """Say what stands beside an action or code: with a model's call its parameters, with code nothing."""
    params = {key: {"$ref": f"#/$defs/LlmParams/properties/{key}"} for key in llm["properties"]}
    only_llm = {
        "properties": params,
        "propertyNames": {"enum": sorted({*own, *params})},
        "oneOf": llm["oneOf"],
    }
    return {
        "oneOf": [
            {"required": ["action"], "properties": {"action": NOT_INSIDE, "run": False}},
            {"required": ["run"], "propertyNames": {"enum": sorted(own - {"action"})}},
        ],
        "if": {"required": ["action"], "properties": {"action": {"enum": _spellings(["llm.call"])}}},
        "then": only_llm,
    }


def _using(name: str) -> dict[str, Any]:
    params = {"$ref": f"#/$defs/{PARAMS[name].__name__}"}
    return {
        "if": {"required": ["uses"], "properties": {"uses": {"enum": _spellings([name])}}},
        "then": {"required": ["with"], "properties": {"with": params}},
    }


def _or_templates(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Let each value be a template, too."""
    return {
        key: value if key == "schema" or _takes_text(value) else _with_branch(value)
        for key, value in properties.items()
    }


def _takes_text(value: Mapping[str, Any]) -> bool:
    return any(one.get("type") == "string" for one in (value, *value.get("anyOf", ())))


def _with_branch(value: Mapping[str, Any]) -> dict[str, Any]:
    said = {key: value[key] for key in ("description", "default") if key in value}
    rest = {key: item for key, item in value.items() if key not in said}
    return {**said, "anyOf": [rest, dict(LONE)]}
