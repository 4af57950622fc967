"""Check a workflow before anything is spent: its file, the values it reads, its models and its code."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from redraft._validation import nearest
from redraft.errors import ConfigError, SandboxError, ScriptError
from redraft.execution import Script
from redraft.models.provider import EXTRAS
from redraft.sandbox.scripts import LANGUAGES, run_script
from redraft.text.templates import TemplateError, braced, template
from redraft.text.yaml import KeyPath
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.loop import FEEDBACK, RESULT_KEYS
from redraft.workflow.runtime import MODEL, SCHEMA, SCOPES, Scope, templates_in
from redraft.workflow.spec import (
    CONTINUE,
    CORRECT,
    END,
    EVALUATE,
    LLM_CALL,
    LOOP,
    RAISE,
    VARIABLE,
    Call,
    Code,
    CorrectParams,
    EvaluateParams,
    EvaluatorSpec,
    LlmParams,
    LoopParams,
    WorkflowSpec,
    plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from redraft.workflow.runtime import Resources
    from redraft.workflow.spec import Node, WorkflowFile

CODE_KEYS = ("language", "run", "sandbox")


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a workflow uses: actions by name, models with their first place in the file, and all its code.

    The model None is the default one, of the state, the file or the settings. Models that templates choose
    are known only when it runs. `model_names` are the full names of the models, as far as they are known.
    """

    actions: list[str] = field(default_factory=list[str])
    models: dict[str | None, KeyPath] = field(default_factory=dict[str | None, KeyPath])
    code: list[tuple[Code, KeyPath]] = field(default_factory=list[tuple[Code, KeyPath]])
    model_names: frozenset[str] = frozenset()

    @property
    def own_actions(self) -> list[str]:
        """The names of the actions that are not built in."""
        return [name for name in self.actions if name not in BUILT_IN]

    @property
    def extras(self) -> list[str]:
        """The optional parts of Redraft that it needs, by the names that pip knows."""
        providers = {name.partition(":")[0] for name in self.model_names} & {*EXTRAS, "local"}
        return sorted(providers | {LANGUAGES[code.language].extra for code, _ in self.code})


def check_file(spec: WorkflowSpec, source: WorkflowFile, resources: Resources) -> Requirements:
    """Check a workflow file; return what it uses.

    Raises `WorkflowError`, with file, line, node and key, for the first thing that could not work.
    """
    check = _FileCheck(spec, source, resources)
    check.all()
    return check.uses


class _FileCheck:
    """Checks every node of a file, and collects what the nodes use."""

    def __init__(self, spec: WorkflowSpec, source: WorkflowFile, resources: Resources) -> None:
        self.spec = spec
        self.source = source
        self.resources = resources
        self.uses = Requirements()
        self.names = [node.name for node in spec.nodes]
        self.first = {node.name: at for at, node in reversed(list(enumerate(spec.nodes)))}
        self.unbounded = {node.name: at for at, node in enumerate(spec.nodes) if node.max_visits is None}

    def all(self) -> None:
        for at, name in enumerate(self.spec.env):
            if not VARIABLE.fullmatch(name):
                self.fail(("env", at), f"{name!r} is not a valid name of an environment variable")
        for at, node in enumerate(self.spec.nodes):
            self.node(node, ("nodes", at))
        self.cycles()

    def fail(self, path: KeyPath, what: str, *, within: int | None = None) -> NoReturn:
        self.source.fail(path, what, within=within)

    def node(self, node: Node, path: KeyPath) -> None:
        if self.first[node.name] != path[1]:
            self.fail(
                (*path, "name"), f"there are two nodes named {node.name!r}; give each a name of its own"
            )
        if node.name == END:
            self.fail((*path, "name"), f"{END!r} is what ends a workflow; give the node another name")
        if (node.uses is None) == (node.run is None):
            self.fail(path, "a node has either 'uses' (an action) or 'run' (code)")
        if node.run is not None and node.with_:
            self.fail((*path, "with"), "'with' holds the parameters of 'uses'; code sees the state")
        if isinstance(node.when, str):
            self.template(braced(node.when), (*path, "when"))
        self.code(node, path)
        self.jumps(node, path)
        if node.uses is not None:
            self.action(node.uses, node.with_, path)

    def code(self, code: Code, path: KeyPath) -> None:
        """Check that the sandbox for the language works here, and that Python parses."""
        if code.run is None:
            return
        self.uses.code.append((code, (*path, "run")))
        try:
            self.resources.code(code)
        except ConfigError as error:
            self.fail((*path, "sandbox" if code.sandbox != "inline" else "language"), str(error))
        if code.language == "python":
            try:
                ast.parse(code.run)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
                line = error.lineno if isinstance(error, SyntaxError) else None
                at = f" in line {line}" if line else ""
                why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deep"
                self.fail((*path, "run"), f"the code does not parse{at}: {why}", within=line)

    def jumps(self, node: Node, path: KeyPath) -> None:
        if isinstance(node.goto, str):
            self.target(node.goto, (*path, "goto"))
        for at, jump in enumerate(node.goto if isinstance(node.goto, list) else ()):
            self.target(jump.to, (*path, "goto", at, "to"))
            if isinstance(jump.if_, str):
                self.template(braced(jump.if_), (*path, "goto", at, "if"))
        if node.on_error not in (RAISE, CONTINUE):
            self.target(node.on_error, (*path, "on_error"), (RAISE, CONTINUE))

    def target(self, name: str, path: KeyPath, others: tuple[str, ...] = ()) -> None:
        if name != END and name not in self.first:
            known = [*others, *self.names, END]
            self.fail(path, f"there is no node {name!r} to go to; {nearest(name, known)}")

    def action(self, name: str, params: Mapping[str, Any], path: KeyPath) -> None:
        known = plain_name(name)
        own = self.own_action(name, (*path, "uses"))
        if own is None and known not in BUILT_IN:
            self.fail(
                (*path, "uses"),
                f"there is no action {name!r}; {nearest(name, [*BUILT_IN, *self.resources.actions])}",
            )
        self.note_action(known)
        inside = (*path, "with")
        for text, place in templates_in(params, inside):
            self.template(text, place)
        if own is not None:
            self.own_call(own, name, params, inside)
        elif known == LOOP:
            self.loop(self.source.parse(LoopParams, dict(params), inside), inside)
        elif known == EVALUATE:
            evaluate = self.source.parse(EvaluateParams, dict(params), inside)
            self.evaluator(evaluate.evaluator(), inside)
        elif known == CORRECT:
            correct = self.source.parse(CorrectParams, dict(params), inside)
            try:
                self.call(correct.call(), inside, "corrector_action")
            except ConfigError as error:
                self.fail(inside, str(error))
        elif known == LLM_CALL:
            self.llm(params, inside)

    def note_action(self, name: str) -> None:
        if name not in self.uses.actions:
            self.uses.actions.append(name)

    def own_action(self, name: str, path: KeyPath) -> Callable[..., Any] | None:
        """Return the user's own action of a name, if there is one; from a package it is imported now."""
        try:
            return self.resources.own_action(name)
        except ConfigError as error:
            self.fail(path, str(error))

    def own_call(self, own: Callable[..., Any], name: str, params: Mapping[str, Any], path: KeyPath) -> None:
        for text, place in templates_in(params, path, without=()):  # it gets all of them rendered
            self.template(text, place)
        try:
            _check_signature(own, name, params)
        except ConfigError as error:
            self.fail(path, str(error))

    def loop(self, loop: LoopParams, path: KeyPath) -> None:
        if isinstance(loop.max_iterations, str) and not _is_template(loop.max_iterations):
            self.fail(
                (*path, "max_iterations"),
                f"expected a whole number of at least 1, or a template, got {loop.max_iterations!r}",
            )
        self.call(loop.generator, (*path, "generator"))
        self.evaluator(loop.evaluator, (*path, "evaluator"))
        if loop.corrector is not None:
            self.call(loop.corrector, (*path, "corrector"))
        if loop.choose == "pairwise" and loop.candidates == 1:
            self.fail(
                (*path, "choose"), "'pairwise' chooses among several outputs; add 'candidates: 2' or more"
            )
        if loop.compares:
            self.model(loop.evaluator.model, (*path, "evaluator"))

    def call(self, call: Call, path: KeyPath, key: str = "action") -> None:
        if call.action is None and "uses" in call.params:
            self.fail((*path, "uses"), "inside an action, another one goes under 'action'")
        if (call.action is None) == (call.run is None):
            self.fail(path, "give either 'action' or 'run'")
        if call.run is not None and call.params:
            unknown = next(iter(call.params))
            self.fail((*path, unknown), f"unknown key {unknown!r}; {nearest(unknown, CODE_KEYS)}")
        self.code(call, path)
        if call.action is None:
            return
        name = plain_name(call.action)
        self.note_action(name)
        if (own := self.own_action(call.action, (*path, key))) is not None:
            self.own_call(own, call.action, call.params, path)
        elif name == LLM_CALL:
            self.llm(call.params, path)
        elif name in BUILT_IN:
            self.fail((*path, key), f"{call.action!r} can't be called by another action; use a node")
        else:
            known = nearest(call.action, [LLM_CALL, *self.resources.actions])
            self.fail((*path, key), f"there is no action {call.action!r}; {known}")

    def llm(self, params: Mapping[str, Any], path: KeyPath) -> None:
        # A template may render to a value of any type, so only the others are validated here.
        plain = {key: value for key, value in params.items() if key == SCHEMA or not _is_template(value)}
        call = self.source.parse(LlmParams, plain, path)
        if (params.get("prompt") is None) == (params.get("messages") is None):
            self.fail(path, "llm.call: give either 'prompt' or 'messages'")
        if isinstance(call.messages, str):
            self.fail(
                (*path, "messages"), f"expected a list of messages, or a template, got {call.messages!r}"
            )
        if call.schema_ is not None:
            self.schema(call.schema_, path)
        self.model(params.get("model"), path)

    def evaluator(self, evaluator: EvaluatorSpec, path: KeyPath) -> None:
        try:
            evaluator.check()
        except ConfigError as error:
            self.fail(path, str(error))
        self.code(evaluator, path)
        if evaluator.type == "schema":
            self.schema(evaluator.schema_, path)
        if evaluator.type == "llm":
            self.model(evaluator.model, path)

    def schema(self, schema: Any, path: KeyPath) -> None:
        try:
            self.resources.schema(schema)
        except ConfigError as error:
            self.fail((*path, "schema"), str(error))

    def model(self, name: str | None, path: KeyPath) -> None:
        """Check the model that a node names; one from the state or the settings is checked later."""
        if _is_template(name):
            return
        self.uses.models.setdefault(name, path)
        if name is None:
            return
        try:
            self.resources.model_for(name, Scope({}))
        except ConfigError as error:
            self.fail((*path, "model"), f"{error} Short names of models are defined under 'models'")

    def template(self, text: str, path: KeyPath) -> None:
        try:
            found = template(text)
        except TemplateError as error:
            self.fail(path, f"the template is wrong: {error}", within=error.line)
        for read in found.paths:
            if read[0] == "env" and len(read) > 1 and read[1] not in self.spec.env:
                self.fail(path, f"the variable {read[1]!r} is not listed under 'env'")
        for name in sorted(str(read[0]) for read in found.required):
            if name not in SCOPES:
                known = nearest(name, SCOPES)
                self.fail(path, f"there is no {name!r}; values are read as in 'state.{name}'; {known}")

    def cycles(self) -> None:
        """Reject a cycle of gotos without a `max_visits`."""
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
                    visited = [one for one, _ in stack]
                    self.endless([*visited[visited.index(to) :], to])

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


def _check_signature(fn: Callable[..., Any], name: str, params: Iterable[str]) -> None:
    """Raise `ConfigError` if an action can't be called with `state` and these parameters."""
    names = ("state", *params)
    if len(set(names)) < len(names):
        raise ConfigError(f"the action {name!r} gets the workflow's state as 'state'; rename its parameter")
    try:
        inspect.signature(fn).bind(**dict.fromkeys(names))
    except ValueError:  # a builtin without a signature
        return
    except TypeError as error:
        raise ConfigError(
            f"the action {name!r} is called with state=... and the parameters of the file: {error}"
        ) from error


def _is_template(value: object) -> bool:
    return isinstance(value, str) and "{{" in value


def check_values(spec: WorkflowSpec, source: WorkflowFile, inputs: Mapping[str, Any]) -> None:
    """Raise `WorkflowError` for the first value that is certain to be read and that nothing provides.

    Looks at the nodes that run in any case, until one whose keys in the state are not known beforehand.
    """
    state = {*inputs, *RESULT_KEYS, FEEDBACK}
    known = {"state": state, "variables": {*spec.variables, *inputs}}
    for at, node in enumerate(spec.nodes):
        for text, path in _read_first(node, ("nodes", at)):
            for scope, *rest in template(text).required:
                if scope in known and rest and rest[0] not in known[str(scope)]:
                    source.fail(
                        path,
                        f"{scope}.{rest[0]} is read here, and nothing sets it: pass it to run(), on the "
                        f"command line use -v {rest[0]}=TEXT",
                    )
        may_go_elsewhere = node.when is not None or node.goto is not None or node.on_error != RAISE
        if may_go_elsewhere or _has_unknown_keys(node):
            return
        state.add(node.output or node.name)


def _read_first(node: Node, path: KeyPath) -> Iterator[tuple[str, KeyPath]]:
    """Yield the templates of a node that are rendered in any case."""
    if node.when is not None:
        if isinstance(node.when, str):
            yield braced(node.when), (*path, "when")
        return
    params, inside = node.with_, (*path, "with")
    if node.action == LOOP:
        params, inside = params["generator"], (*inside, "generator")
    yield from templates_in(params, inside)


def _has_unknown_keys(node: Node) -> bool:
    returns_text = node.action == LLM_CALL and "schema" not in node.with_
    return node.action == LOOP or (node.output is None and not returns_text)


def check_models(
    uses: Requirements,
    spec: WorkflowSpec,
    source: WorkflowFile,
    resources: Resources,
    state: Mapping[str, Any],
) -> Requirements:
    """Return the requirements with the full names of the models.

    Raises `WorkflowError` for a model that can't be used here.
    """
    scope, model_names = Scope(dict(state)), set[str]()
    for name, path in uses.models.items():
        full = resources.full_name(name, scope)
        if full is None and _may_set_model_before(spec, path):
            continue
        try:
            resources.model_for(name, scope)
        except ConfigError as error:
            raise source.error(path if name is None else (*path, "model"), str(error)) from error
        if full is not None:
            model_names.add(full)
    return replace(uses, model_names=frozenset(model_names))


def _may_set_model_before(spec: WorkflowSpec, path: KeyPath) -> bool:
    """Return whether a node that runs before the one at `path` may put the name of a model into the state."""
    at = int(path[1])
    order = {node.name: number for number, node in enumerate(spec.nodes)}

    def goes_back(node: Node) -> bool:
        targets = (node.on_error, *(jump.to for jump in node.jumps))
        return any(order.get(name, len(order)) <= at for name in targets)

    before = spec.nodes if any(map(goes_back, spec.nodes[at:])) else spec.nodes[:at]
    return any(map(_may_set_model, before))


def _may_set_model(node: Node) -> bool:
    """Return whether a node may put the name of a model into the state; built-in actions never do."""
    if node.output is not None:
        return node.output == MODEL
    if node.run is None:
        return node.action not in BUILT_IN
    return node.language != "python" or _may_return_model(node.run)


def _may_return_model(code: str) -> bool:
    """Return whether Python code may return an object with the key `model`: not if its values are literal."""
    returned: list[ast.expr | None] = []
    mentions = 0
    for one in ast.walk(ast.parse(code)):
        if isinstance(one, ast.Return):
            returned.append(one.value)
        elif isinstance(one, ast.Assign) and all(_is_result(target) for target in one.targets):
            returned.append(one.value)
            mentions -= len(one.targets)
        mentions += _is_result(one)
    # If `result` is mentioned anywhere else, it may have been changed there.
    return mentions > 0 or not all(map(_is_literal_without_model, returned))


def _is_result(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "result"


def _is_literal_without_model(value: ast.expr | None) -> bool:
    if isinstance(value, ast.Dict):
        return all(isinstance(key, ast.Constant) and key.value != MODEL for key in value.keys)
    no_object = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Compare)
    return value is None or isinstance(value, no_object)


async def check_code(uses: Requirements, source: WorkflowFile, *, allow_unsandboxed: bool) -> None:
    """Parse each piece of code in the sandbox that would run it; imports in Python are also executed.

    Raises `WorkflowError` for code that can't be parsed or imported, or a sandbox that does not work here.
    """
    for code, path in uses.code:
        text, lines = _parsed_only(code)
        script = Script(code.language, text, sandbox=code.sandbox)
        try:
            await run_script(script, allow_unsandboxed=allow_unsandboxed)
        except SandboxError as error:
            why, line = str(error), None
            if isinstance(error, ScriptError) and error.line is not None:
                line = lines[error.line - 1] if error.line <= len(lines) else error.line - len(lines)
                why = why.replace(f", line {error.line},", f", line {line},", 1)
            raise source.error(path, why, within=line) from error


_RETURNS_AT_ONCE = {"lua": "do return true end ", "prolog": "evaluate(true) :- !. "}
"""Code to put first, so that the rest is parsed and never run."""


def _parsed_only(code: Code) -> tuple[str, list[int]]:
    """Return code that is parsed and not run, and the original line of each line put before it."""
    text = str(code.run)
    if code.language != "python":
        return _RETURNS_AT_ONCE[code.language] + text, []
    statements = ast.parse(text).body
    imports = [one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]
    # The process sandbox runs this Python, which has just parsed the code.
    rest = ["return True", text] if code.sandbox == "inline" else ["result = True"]
    return "\n".join([*map(ast.unparse, imports), *rest]), [*(node.lineno for node in imports), 1]
