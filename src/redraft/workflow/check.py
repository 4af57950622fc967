"""Check a workflow before anything is spent: its file, its values, its models and its code."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from redraft._texts import short_repr
from redraft._validation import nearest
from redraft.errors import ConfigError, InvalidSchemaError, MissingExtraError, SandboxError, WorkflowError
from redraft.execution import Script
from redraft.http import require_http
from redraft.loop.budget import check_prices
from redraft.models.names import resolve_model
from redraft.models.provider import EXTRAS
from redraft.sandbox.python import unsupported_features
from redraft.sandbox.scripts import LANGUAGES, InlineRunner, ProcessPython, run_script
from redraft.settings import names_in
from redraft.text.spec_file import unmet_conditions
from redraft.text.templates import TemplateError, braced, template, templates_in, valid_template
from redraft.text.yaml import KeyPath
from redraft.workflow import ported
from redraft.workflow.actions import BUILT_IN, check_host
from redraft.workflow.loop import FEEDBACK, REQUIREMENTS, RESULT, RESULT_KEYS
from redraft.workflow.runtime import (
    IDEMPOTENCY_KEY,
    INDEX,
    ITEM,
    MODEL,
    NO_TEMPLATES,
    OUTPUT,
    SCHEMA,
    SCOPES,
    Scope,
)
from redraft.workflow.signature import DEFAULT, VALUE, describe_problems, schema_of
from redraft.workflow.spec import (
    APPROVE,
    CONTINUE,
    CORRECT,
    END,
    EVALUATE,
    HTTP,
    LLM_CALL,
    LOOP,
    PARAMS,
    RAISE,
    Call,
    Code,
    CorrectParams,
    EvaluateParams,
    EvaluatorSpec,
    HttpParams,
    LlmParams,
    LoopParams,
    Node,
    WorkflowSpec,
    is_template,
    plain_name,
)
from redraft.workflow.tools import can_call_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping

    from pydantic import BaseModel

    from redraft.text.schema import Schema
    from redraft.text.spec_file import Mistake
    from redraft.workflow.runtime import Resources
    from redraft.workflow.spec import ToolServer, WorkflowFile
    from redraft.workflow.workflow import Workflow

LOOP_NAMES = ("output", "reflection_output", "reflection_errors", "reflection_iteration")
"""The variables of code in a loop, in addition to the scopes."""
PRELOADED = ("json", "re")
"""The modules that inline Python does not have to import."""

REPLACED_INLINE = (
    "inline Python runs as with 'sandbox: process' here, since 'redraft[python]' is not installed; where it "
    "is, code can use only a subset of Python"
)

HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_.-]+(?::\d{1,5})?|\[[0-9a-fA-F:]+\](?::\d{1,5})?")
SECRET_HEADER = re.compile(r"(?i)authorization|cookie|token|secret|password|api-?key|x-key")
"""The names of headers that carry secrets."""


@dataclass(frozen=True, slots=True, repr=False)
class Requirements:
    """The actions, models and code that a workflow uses, without models that templates choose."""

    actions: list[str] = field(default_factory=list[str])
    models: dict[str | None, KeyPath] = field(default_factory=dict[str | None, KeyPath])
    """Models with their first place in the file; None is the default model of the state, the file or the
    settings."""
    code: list[tuple[Code, KeyPath]] = field(default_factory=list[tuple[Code, KeyPath]])
    """Code with its place in the file."""
    model_names: frozenset[str] = frozenset()
    """The full names of the models, as far as the file and the settings have them."""
    with_tools: dict[str | None, KeyPath] = field(default_factory=dict[str | None, KeyPath])
    """Models that call tools, with their first place in the file."""
    servers: list[str] = field(default_factory=list[str])
    """The MCP servers that the file names."""
    notes: list[WorkflowError] = field(default_factory=list[WorkflowError])
    """Keys and code that are ignored, have no effect, or work differently than in the original engine."""

    def __repr__(self) -> str:
        parts = {
            "actions": self.actions,
            "models": sorted(self.model_names) or [name for name in self.models if name is not None],
            "code": [".".join(map(str, path)) for _, path in self.code],
            "notes": [str(note) for note in self.notes],
        }
        fields = (f"{name}={short_repr(value)}" for name, value in parts.items() if value)
        return f"{type(self).__name__}({', '.join(fields)})"

    def including(self, inner: Requirements) -> Requirements:
        """Merge with the requirements of a workflow that a node runs."""
        return replace(
            self,
            actions=list(dict.fromkeys((*self.actions, *inner.actions))),
            code=[*self.code, *inner.code],
            model_names=self.model_names | inner.model_names,
            servers=list(dict.fromkeys((*self.servers, *inner.servers))),
            notes=[*self.notes, *inner.notes],
        )

    @property
    def own_actions(self) -> list[str]:
        """The names of the actions that are not built in."""
        return [name for name in self.actions if name not in BUILT_IN]

    @property
    def extras(self) -> list[str]:
        """The extras of Redraft that it needs, by their names for pip."""
        names = [part for name in self.model_names for part in names_in(name)]
        providers = {re.split("[:-]", name)[0] for name in names}  # also of openai-chat:NAME
        extras = providers & {*EXTRAS, "local"}
        extras |= {LANGUAGES[code.language].extra for code, _ in self.code}
        extras |= {"mcp"} if self.servers else set()
        return sorted(extras | ({"http"} if HTTP in self.actions else set()))


def check_file(
    spec: WorkflowSpec, notes: Iterable[Mistake], source: WorkflowFile, resources: Resources
) -> tuple[Requirements, list[WorkflowError]]:
    """Check a workflow file; returns its requirements, and an error for everything that could not work.

    `notes` on how the file was read are added to the notes of the check.
    """
    check = _FileCheck(spec, source, resources)
    check.uses.notes.extend(source.error(path, what) for path, what in notes)
    check.all()
    return check.uses, check.problems


class _FileCheck:
    """Checks every node of a file, and collects their requirements and the errors in them."""

    def __init__(self, spec: WorkflowSpec, source: WorkflowFile, resources: Resources) -> None:
        self.spec = spec
        self.source = source
        self.resources = resources
        self.problems = list[WorkflowError]()
        self.uses = Requirements()
        self.is_ported = ported.is_ported(source.document())
        self.has_replaced_inline = False
        self.scopes = SCOPES
        self.names = [node.name for node in spec.nodes]
        self.first = {node.name: index for index, node in reversed(list(enumerate(spec.nodes)))}
        """The first node of each name."""
        self.unclear = set[int]()
        """Nodes whose successors are unclear, since they have a goto to a node that does not exist."""
        self.unbounded = {
            node.name: index for index, node in enumerate(spec.nodes) if node.max_visits is None
        }
        self.texts = {
            node.output or node.name
            for node in spec.nodes
            if node.action != LOOP and node.map is None and _gives_text(node, resources.actions)
        }
        """Keys of the state with the text of a model."""

    def all(self) -> None:
        self.conditions(self.spec)
        for key, declared in (("inputs", self.spec.inputs), ("outputs", self.spec.outputs)):
            self.signature(key, declared)
        for at, host in enumerate(self.spec.hosts):
            if not HOST.fullmatch(host):
                self.fail(("hosts", at), f"expected 'HOST', 'HOST:PORT' or '*.DOMAIN', got {host!r}")
        for name, server in self.spec.mcp.items():
            self.uses.servers.append(name)
            self.server(server, ("mcp", name))
        for at, node in enumerate(self.spec.nodes):
            self.node(node, ("nodes", at))
        self.cycles()

    def signature(self, key: str, declared: Mapping[str, str | Mapping[str, Any]]) -> None:
        for name, kind in declared.items():
            try:
                schema = self.schema(schema_of(kind), (key, name))
            except ConfigError as error:  # an unknown short type
                self.fail((key, name), str(error))
                continue
            if isinstance(kind, str):
                continue
            if VALUE in kind:
                if key == "inputs":
                    self.fail((key, name, VALUE), "'value' is for outputs; an input has a 'default'")
                for text, path in templates_in(kind[VALUE], (key, name, VALUE), NO_TEMPLATES):
                    self.template(text, path)
            if key == "inputs" and DEFAULT in kind and schema is not None:
                checked = schema.check(kind[DEFAULT])
                if not checked.valid:
                    what = describe_problems(kind, kind[DEFAULT], checked)
                    self.fail((key, name, DEFAULT), f"invalid default: {what}")

    def server(self, server: ToolServer, path: KeyPath) -> None:
        if server.url is not None and not server.url.startswith(("http://", "https://")):
            self.fail((*path, "url"), f"expected 'http://' or 'https://' and a host, got {server.url!r}")
        for at, name in enumerate(server.env):
            if name not in self.spec.env:
                self.fail((*path, "env", at), f"the variable {name!r} is not listed under 'env' of the file")
        self.headers(server.headers, (*path, "headers"))
        for name, text in server.headers.items():
            self.template(text, (*path, "headers", name))
            if any(scope != "env" for scope in valid_template(text).scopes):
                self.fail((*path, "headers", name), "the headers of a server can read only 'env'")

    def headers(self, headers: Mapping[str, Any], path: KeyPath) -> None:
        """Reject secrets that do not come from the environment."""
        for name, value in headers.items():
            if SECRET_HEADER.search(name) and "env" not in valid_template(str(value)).scopes:
                self.fail(
                    (*path, name),
                    f"a secret such as {name!r} comes from the environment only; list its variable under "
                    "'env', and write {{ env.NAME }}",
                )

    def fail(self, path: KeyPath, what: str, *, within: int | None = None) -> None:
        self.problems.append(self.source.error(path, what, within=within))

    def conditions(self, part: BaseModel, path: KeyPath = ()) -> bool:
        """Check the conditions of a part and of its inner parts; returns whether all are met."""
        unmet = list(unmet_conditions(part, path))
        for place, what in unmet:
            self.fail(place, what)
        return not unmet

    def note(self, path: KeyPath, what: str, *, within: int | None = None) -> None:
        self.uses.notes.append(self.source.error(path, what, within=within))

    def node(self, node: Node, path: KeyPath) -> None:
        if self.first[node.name] != path[1]:
            self.fail(
                (*path, "name"), f"there are two nodes named {node.name!r}; give each a name of its own"
            )
        if node.action == LOOP and node.map is None and node.output in RESULT_KEYS:
            self.fail(
                (*path, "output"),
                f"{node.output!r} would replace the state's key of this name, which a loop sets; "
                "choose another name",
            )
        is_built_in = node.action in BUILT_IN and node.action not in self.resources.actions
        if is_built_in and (node.output or node.name) == MODEL:
            self.fail(
                (*path, "name" if node.output is None else "output"),
                f"state.{MODEL} is the model of later nodes, which only code and actions of your own can "
                "choose; choose another name",
            )
        if isinstance(node.when, str):
            self.template(braced(node.when), (*path, "when"))
        self.jumps(node, path)
        self.map(node, path)
        if node.map is not None:
            self.scopes = (*SCOPES, ITEM, INDEX)
        self.code(node, path)
        if node.uses is not None:
            self.action(node.uses, node.with_, path)
        self.scopes = SCOPES

    def map(self, node: Node, path: KeyPath) -> None:
        """Check the list of a node."""
        if isinstance(node.map, str):
            self.template(braced(node.map), (*path, "map"))
        else:
            for text, place in templates_in(node.map, (*path, "map"), NO_TEMPLATES):
                self.template(text, place)

    def code(self, code: Code, path: KeyPath, names: Iterable[str] = ()) -> bool:
        """Check that the sandbox works on this machine, that Python code parses, and that its names exist.

        `names` are variables in addition to the scopes. Returns whether the code is Python that parses.
        """
        if code.run is None or (code.sandbox == "process" and code.language != "python"):
            return False
        place = (*path, "run")
        try:
            runner = self.resources.code(code)
        except ConfigError as error:
            self.fail((*path, "sandbox" if code.sandbox != "inline" else "language"), str(error))
            runner, runnable = None, list[tuple[Code, KeyPath]]()
        else:
            runnable = [(code, place)]
            is_replaced = isinstance(runner, ProcessPython) and runner.replaces_inline
            if is_replaced and not self.has_replaced_inline:
                self.has_replaced_inline = True
                self.note(place, REPLACED_INLINE)
        if code.language != "python":
            self.uses.code.extend(runnable)
            return False
        try:
            tree = ast.parse(code.run)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = error.lineno if isinstance(error, SyntaxError) else None
            at = f" on line {line}" if line else ""
            why = error.msg if isinstance(error, SyntaxError) else str(error) or "it is nested too deeply"
            beginning = code.run.lstrip("-% ")
            language = next((name for name in ("lua", "prolog") if beginning.startswith(name)), None)
            hint = f"; for {language.title()}, write 'language: {language}'" if language else ""
            self.fail(place, f"the code does not parse{at}: {why}{hint}", within=line)
            return False
        unsupported = unsupported_features(tree) if isinstance(runner, InlineRunner) else []
        for feature, line in unsupported:
            self.fail(place, f"inline Python has no {feature}: use `sandbox: process`", within=line)
        if not unsupported:  # otherwise the sandbox would report them again
            self.uses.code.extend(runnable)
        for name, line, hint in undefined_names(tree, (*self.scopes, *names, *PRELOADED)):
            self.fail(place, f"the name {name!r} is not defined; {hint}", within=line)
        if line := ported.reads_content(code.run, self.texts):
            self.note(place, ported.CONTENT, within=line)
        return True

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
        if name not in (END, ported.STOP) and name not in self.first:
            targets = dict.fromkeys([*others, *self.names, END])
            self.fail(path, f"there is no node {name!r} to go to; {nearest(name, targets)}")
            if path[2] == "goto":
                self.unclear.add(int(path[1]))

    def action(self, name: str, params: Mapping[str, Any], path: KeyPath) -> None:
        if (file := self.resources.files.get(name)) is not None:
            self.file(file, params, path)
            return
        canonical = plain_name(name)
        own = self.own_action(name, (*path, "uses"))
        exists = own is not None or canonical in BUILT_IN
        if not exists:
            hint = ported.ACTION_ADVICE.get(name) or nearest(name, [*BUILT_IN, *self.resources.actions])
            self.fail((*path, "uses"), f"there is no action {name!r}; {hint}")
        inside = (*path, "with")
        for text, place in templates_in(params, inside, NO_TEMPLATES):
            self.template(text, place)
        if not exists:
            return
        self.add_action(canonical)
        if own is not None:
            self.own_call(own, name, params, inside)
            return
        call = PARAMS[canonical].model_validate(params)
        is_whole = self.conditions(call, inside)
        match call:
            case LoopParams():
                self.loop(call, inside)
            case EvaluateParams():
                self.evaluator(call.evaluator(), inside)
            case CorrectParams() if is_whole:
                self.call(call.call(), inside, "corrector_action")
            case CorrectParams():
                self.code(call, inside, LOOP_NAMES)
                if call.model is not None:
                    self.model(call.model, inside)
            case LlmParams():
                self.llm(call, inside)
            case HttpParams():
                self.http(call, inside)
            case _:
                self.approve(inside)

    def http(self, call: HttpParams, path: KeyPath) -> None:
        if not is_template(call.headers):
            self.headers(call.headers, (*path, "headers"))
        try:
            require_http(HTTP)
        except MissingExtraError as error:
            self.fail(path, str(error))
            return  # the host can't be compared without it
        beginning = "/".join(call.url.split("/")[:3])  # the scheme and the host
        if "{{" not in beginning:
            try:
                check_host(beginning, self.spec.hosts)
            except ConfigError as error:
                self.fail((*path, "url"), str(error))
        elif not self.spec.hosts:
            self.fail((*path, "url"), f"{HTTP} sends requests only to hosts listed under 'hosts'; list some")

    def tools(self, call: LlmParams, path: KeyPath) -> None:
        if find_spec("pydantic_ai") is None:
            self.fail((*path, "tools"), str(MissingExtraError("A model with tools", "providers")))
        for at, name in enumerate(() if is_template(call.tools) else call.tools or ()):
            try:
                self.resources.tools.check(name)
            except ConfigError as error:
                self.fail((*path, "tools", at), str(error))
        self.uses.with_tools.setdefault(call.model, path)

    def approve(self, path: KeyPath) -> None:
        node = self.spec.nodes[int(path[1])]
        for key, why in (("timeout", "set 'deadline' under 'with' instead"), ("retries", "it asks once")):
            if key in node.model_fields_set:
                self.fail((*path[:2], key), f"{key!r} can't be used with {APPROVE!r}: {why}")

    def file(self, file: Workflow | WorkflowError, params: Mapping[str, Any], path: KeyPath) -> None:
        """Check the parameters of a node that runs another file against the inputs of that file."""
        inside, unknown = (*path, "with"), set[str]()
        for text, place in templates_in(params, inside):
            self.template(text, place)
            if "{{" in text or "{%" in text:
                unknown.add(str(place[len(inside)]))
        if isinstance(file, WorkflowError):  # it can't be read
            if file.line is None:
                self.fail((*path, "uses"), str(file))
            else:
                self.problems += file.problems
            return
        for (_inputs, *name), what in file.validate_inputs(params, unknown):
            self.fail((*inside, *name) if name and name[0] in params else inside, what)

    def add_action(self, name: str) -> None:
        if name not in self.uses.actions:
            self.uses.actions.append(name)

    def own_action(self, name: str, path: KeyPath) -> Callable[..., Any] | None:
        """The user's own action of this name, if there is one; an action of a package is imported now."""
        try:
            return self.resources.own_action(name)
        except ConfigError as error:
            self.fail(path, str(error))

    def own_call(self, own: Callable[..., Any], name: str, params: Mapping[str, Any], path: KeyPath) -> None:
        for text, place in templates_in(params, path):  # all parameters of own actions are rendered
            self.template(text, place)
        for place, what in _wrong_arguments(own, name, params):
            self.fail((*path, *place), what)

    def loop(self, loop: LoopParams, path: KeyPath) -> None:
        self.call(loop.generator, (*path, "generator"))
        self.evaluator(loop.evaluator, (*path, "evaluator"))
        if loop.corrector is not None:
            self.call(loop.corrector, (*path, "corrector"))
            is_ambiguous = self.is_ported and "apply" not in loop.corrector.model_fields_set
            if is_ambiguous and loop.corrector.action and not _may_return_object(loop.corrector):
                self.note((*path, "corrector"), ported.CORRECTOR)
        if loop.accept == "pairwise":
            self.model(loop.evaluator.model, (*path, "evaluator"))

    def call(self, call: Call, path: KeyPath, key: str = "action") -> None:
        if self.code(call, path, LOOP_NAMES) and (line := ported.only_assigns_output(str(call.run))):
            self.note((*path, "run"), ported.OUTPUT, within=line)
        if call.action is None:
            return
        name = plain_name(call.action)
        self.add_action(name)
        if (own := self.own_action(call.action, (*path, key))) is not None:
            self.own_call(own, call.action, call.params, path)
        elif name == LLM_CALL:
            params = LlmParams.model_validate(call.params)
            self.conditions(params, path)
            self.llm(params, path)
        elif name in BUILT_IN:
            self.fail((*path, key), f"{call.action!r} can't be called by another action; use a node")
        else:
            hint = nearest(call.action, [LLM_CALL, *self.resources.actions])
            self.fail((*path, key), f"there is no action {call.action!r}; {hint}")

    def llm(self, call: LlmParams, path: KeyPath) -> None:
        self.model(call.model, path)
        if call.schema_ is not None:
            self.schema(call.schema_, (*path, SCHEMA))
        if call.tools is not None:
            self.tools(call, path)

    def evaluator(self, evaluator: EvaluatorSpec, path: KeyPath) -> None:
        if self.code(evaluator, path, LOOP_NAMES):
            self.judging_code(evaluator, (*path, "run"))
        if evaluator.schema_ is not None:
            self.schema(evaluator.schema_, (*path, SCHEMA))
        if evaluator.type == "llm":
            self.model(evaluator.model, path)

    def judging_code(self, evaluator: EvaluatorSpec, path: KeyPath) -> None:
        """Note where the code of an evaluator may not do what its author expects."""
        code = str(evaluator.run)
        if self.is_ported and "threshold" not in evaluator.model_fields_set and ported.returns_number(code):
            self.note(path, ported.NUMBER)
        if line := ported.only_assigns_output(code):
            self.note(path, ported.OUTPUT, within=line)

    def schema(self, schema: Any, place: KeyPath) -> Schema | None:
        """Check a schema; returns its compiled form, or None if it can't be used."""
        try:
            compiled = self.resources.schema(schema)
        except InvalidSchemaError as error:
            for inside, what in error.problems:
                self.fail((*place, *inside), what)
            return None
        except ConfigError as error:
            self.fail(place, str(error))
            return None
        for inside, what in compiled.ineffective_keywords():
            self.note((*place, *inside), what)
        return compiled

    def model(self, name: str | None, path: KeyPath) -> None:
        """Check the model that a node names; a model from the state or the settings is checked later."""
        if is_template(name):
            return
        try:
            if name is not None:
                self.resources.model_for(name, Scope({}))
        except ConfigError as error:
            if hint := ported.model_advice(str(resolve_model(name, self.resources.models))):
                self.fail((*path, "model"), hint)
            else:
                self.fail((*path, "model"), f"{error} Short names of models are defined under 'models'")
        else:
            self.uses.models.setdefault(name, path)

    def template(self, text: str, path: KeyPath) -> None:
        try:
            compiled = template(text)
        except TemplateError as error:
            self.fail(path, f"invalid template: {error}", within=error.line)
            return
        for read in sorted(compiled.paths, key=str):
            if read[0] == "env" and read[1:] and read[1] not in self.spec.env:
                self.fail(path, f"the variable {read[1]!r} is not listed under 'env'")
        for name in sorted({str(read[0]) for read in compiled.required}):
            if name == "secrets":
                self.fail(path, f"there is no 'secrets'; {ported.FILE_ADVICE['secrets']}")
            elif name in (ITEM, INDEX) and name not in self.scopes:
                self.fail(
                    path, f"{name!r} is available only in the parameters and code of a node with a 'map'"
                )
            elif name not in self.scopes:
                hint = nearest(name, self.scopes)
                self.fail(path, f"there is no {name!r}; values are read as in 'state.{name}'; {hint}")
        if ported.reads_content(text, self.texts):
            self.note(path, ported.CONTENT)

    def cycles(self) -> None:
        """Reject cycles of gotos without a `max_visits`."""
        successors = {index: self.successors(index) for index in range(len(self.names))}
        while True:
            try:
                TopologicalSorter(successors).prepare()
            except CycleError as error:
                cycle: list[int] = error.args[1]  # each node is a successor of the next
            else:
                return
            to, jumping = next((to, index) for to, index in pairwise(cycle) if to <= index)
            successors[jumping].remove(to)
            self.fail(
                ("nodes", jumping),
                f"the cycle from {self.names[jumping]!r} back to {self.names[to]!r} is unbounded; "
                f"give {self.names[to]!r} a 'max_visits'",
            )

    def successors(self, index: int) -> list[int]:
        """The nodes that may follow a node any number of times: targets with a `max_visits` may not."""
        node = self.spec.nodes[index]
        has_next = index + 1 < len(self.names)
        if index in self.unclear:
            return [index + 1] if node.when is not None and has_next else []
        jumps = node.jumps
        names = (*(jump.to for jump in jumps), node.on_error)
        targets = [self.unbounded[name] for name in names if name in self.unbounded]
        always = any(jump.if_ is None and (jump.to in self.unbounded or jump.to == END) for jump in jumps)
        passes = node.when is not None or node.on_error == CONTINUE or not always
        return [*targets, index + 1] if passes and has_next else targets


def _may_return_object(call: Call) -> bool:
    return plain_name(str(call.action)) != LLM_CALL or SCHEMA in call.params


def undefined_names(tree: ast.Module, predefined: Iterable[str]) -> list[tuple[str, int, str]]:
    """The undefined names that Python code reads, each with its first line and a hint.

    A name counts as defined no matter where the code defines it.
    """
    read, defined = _names_in(tree)
    if "*" in defined:
        return []
    names = [*predefined, *sorted(defined)]
    undefined = {name: line for name, line in read.items() if name not in {*names, *dir(builtins)}}
    return [(name, line, nearest(name, names)) for name, line in undefined.items()]


def _names_in(tree: ast.Module) -> tuple[dict[str, int], set[str]]:
    """The names that Python code reads, each with its first line, and the names that it defines.

    A wildcard import defines `*`.
    """
    defined, read = set[str](), dict[str, int]()
    augmented = {node.target for node in ast.walk(tree) if isinstance(node, ast.AugAssign)}  # as in n += 1
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=context) if isinstance(context, ast.Load) or node in augmented:
                read[name] = min(node.lineno, read.get(name, node.lineno))
            case ast.Name(id=name) | ast.arg(arg=name):
                defined.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                defined.add(name)
            case (
                ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
            ):
                defined.add(name)
            case ast.MatchMapping(rest=str(name)):
                defined.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                defined.update(names)
            case ast.alias(name=name, asname=alias):
                defined.add(alias or name.partition(".")[0])
            case _:
                pass
    return read, defined


def _wrong_arguments(
    fn: Callable[..., Any], name: str, params: Iterable[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the mistakes, with their paths, in a call of an action with `state` and these parameters."""
    try:
        signature = inspect.signature(fn).parameters
    except ValueError:  # a builtin without a signature
        return
    kinds = inspect.Parameter
    accepted = {
        parameter.name: parameter.default is kinds.empty
        for parameter in signature.values()
        if parameter.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    takes_any = any(parameter.kind is kinds.VAR_KEYWORD for parameter in signature.values())
    if "state" not in accepted and not takes_any:
        yield (), f"the action {name!r} must have a parameter 'state', for the workflow's state"
    missing = {key for key, is_required in accepted.items() if is_required}
    missing -= {"state", IDEMPOTENCY_KEY, *params}
    for key in params:
        if key == "state":
            yield (
                (key,),
                f"the action {name!r} gets the workflow's state as 'state'; rename its parameter",
            )
        elif key not in accepted and not takes_any:
            hint = nearest(key, [other for other in accepted if other != "state"])
            missing = {other for other in missing if f"did you mean {other!r}" not in hint}
            yield (key,), f"the action {name!r} has no parameter {key!r}; {hint}"
    for key in sorted(missing):
        yield (), f"the action {name!r} needs the parameter {key!r}"


def missing_values(
    spec: WorkflowSpec,
    source: WorkflowFile,
    inputs: Iterable[str],
    own: Container[str | None] = (),
) -> Iterator[WorkflowError]:
    """Yield an error for each value that a run is certain to read and that nothing sets.

    A value that an earlier node may set is not missing. `own` are the user's own actions.
    """
    available = {"state": {*inputs}, "variables": {*spec.variables, *inputs}}
    outputs = {node.name: node.output for node in spec.nodes}
    reported = set[KeyPath]()
    for read, path, index in _certain_reads(spec, own):
        scope, key = (*map(str, read[:2]), "")[:2]
        before = spec.nodes[:index]
        if scope not in available or not key or key in available[scope] or read[:2] in reported:
            continue
        if scope == "state" and any(_may_set(key, earlier, own) for earlier in before):
            continue
        is_inside = path[0] == "nodes" and path[2:4] != ("with", "data")
        if scope == "state" and is_inside and key in _set_inside(spec.nodes[index]):
            continue
        reported.add(read[:2])
        hint = f"put it into the initial state (`redraft run -v {key}=TEXT`)"
        if spec.inputs:  # then no other name can be passed
            hint = "declare it under 'inputs', or set it in a node before"
        set_before = {*available[scope], *(earlier.output or earlier.name for earlier in before)}
        if scope == "state" and outputs.get(key):
            hint = f"the result of {key!r} is state.{outputs[key]}"
        elif similar := get_close_matches(key, set_before, 1):
            hint = f"did you mean '{scope}.{similar[0]}'? Or {hint}"
        yield source.error(path, f"{scope}.{key} is read here, but nothing sets it: {hint}")


def _certain_reads(spec: WorkflowSpec, own: Container[str | None]) -> Iterator[tuple[KeyPath, KeyPath, int]]:
    """Yield what every run reads: the path of the value, the place that reads it, and the nodes before it.

    These are reads by nodes that are certain to run, and by outputs.
    """
    reads = list[tuple[str, KeyPath, int]]()
    for index, node in enumerate(spec.nodes):
        reads += ((text, path, index) for text, path in _templates_read(node, ("nodes", index), own))
        if node.goto is not None or node.on_error not in (RAISE, CONTINUE):
            break
    for name, declared in spec.outputs.items():
        if isinstance(declared, str) or VALUE not in declared:
            if not (isinstance(declared, str) and declared.endswith("?")):
                yield ("state", name), ("outputs", name), len(spec.nodes)
            continue
        templates = templates_in(declared[VALUE], ("outputs", name, VALUE), NO_TEMPLATES)
        reads += ((text, path, len(spec.nodes)) for text, path in templates)
    for text, path, index in reads:
        yield from ((read, path, index) for read in sorted(valid_template(text).certain, key=str))


def _may_set(key: str, node: Node, own: Container[str | None]) -> bool:
    """Whether a node may set a key of the state.

    Code, the user's own actions, inner workflows and replies with a schema may set any key.
    """
    if key == (node.output or node.name) or (key == "error" and node.on_error != RAISE):
        return True
    is_loop = bool(get_close_matches(node.action or "", [LOOP], 1, 0.8))  # perhaps misspelled
    if node.map is not None or (node.output is not None and not is_loop):
        return False
    if node.run is None and (node.action in own or node.action not in BUILT_IN):
        return True
    if key == MODEL:  # built-in actions never set it, nor does code that neither names it nor reads values
        return any(word in (node.run or "") for word in (MODEL, "state", "variables", "env"))
    return key in (*_set_inside(node), RESULT) if _gives_text(node, own) else True


def _gives_text(node: Node, own: Container[str | None]) -> bool:
    """Whether the result of a node, or of each item of its `map`, is text that a model writes."""
    call, action = node.with_, node.action
    if action == LOOP:  # a corrector, or an evaluator that parses JSON, may make something else of it
        call, evaluator = ported.mapping(call.get("generator")), ported.mapping(call.get("evaluator"))
        may_change = "corrector" in node.with_ or evaluator.get("type") == SCHEMA
        action = None if may_change else plain_name(str(call.get("action")))
    return action == LLM_CALL and action not in own and SCHEMA not in call


def _set_inside(node: Node) -> Collection[str]:
    """The keys that a reflection action adds to the state for its own templates."""
    if node.action == LOOP:
        return (*RESULT_KEYS, FEEDBACK, REQUIREMENTS)
    keys = {EVALUATE: {OUTPUT}, CORRECT: {OUTPUT, "reflection_errors"}}.get(node.action or "", set[str]())
    return keys if node.with_.get("data") is not None else keys - {OUTPUT}


def _templates_read(node: Node, path: KeyPath, own: Container[str | None]) -> Iterator[tuple[str, KeyPath]]:
    """Yield the templates of a node that are certain to be rendered, and the default of what it judges."""
    if node.when is not None:
        if isinstance(node.when, str):
            yield braced(node.when), (*path, "when")
        return
    if node.map is not None:  # nothing else is read if the list is empty
        source = braced(node.map) if isinstance(node.map, str) else node.map
        yield from templates_in(source, (*path, "map"), NO_TEMPLATES)
        return
    params, inside = node.with_, (*path, "with")
    if node.action == LOOP:
        params, inside = params.get("generator"), (*inside, "generator")
    yield from templates_in(params, inside, NO_TEMPLATES)
    is_judged = (
        node.action == EVALUATE and EVALUATE not in own and node.with_.get("evaluator_type") != "custom"
    )
    if is_judged and node.with_.get("data") is None:
        yield braced(f"state.{OUTPUT}"), inside


def check_models(
    uses: Requirements,
    spec: WorkflowSpec,
    source: WorkflowFile,
    resources: Resources,
    state: Mapping[str, Any],
    *,
    priced: bool,
) -> tuple[Requirements, list[WorkflowError]]:
    """Add the full names of the models to the requirements; returns errors for models that can't be used.

    With `priced`, a model needs a known price.
    """
    scope, model_names, problems = Scope(dict(state)), set[str](), list[WorkflowError]()
    for name, path in uses.models.items():
        full_name = resources.full_name(name, scope)
        if full_name is None:  # an earlier node may put a model into the state
            index = int(path[1])
            later = spec.nodes[index:]
            targets = {name for node in later for name in (node.on_error, *(jump.to for jump in node.jumps))}
            goes_back = any(node.name in targets for node in spec.nodes[: index + 1])
            before = spec.nodes if goes_back else spec.nodes[:index]
            if any(_may_set(MODEL, node, resources.actions) for node in before):
                continue
        try:
            model = resources.model_for(name, scope)
            if priced:
                check_prices(model)
            if name in uses.with_tools and not can_call_tools(model):
                place = (*uses.with_tools[name], "tools")
                what = f"the model {full_name!r} can't call tools; use a provider's model"
                problems.append(source.error(place, what))
        except ConfigError as error:
            is_of_file = resources.only_model is None and not scope.state.get(MODEL) and spec.model
            place = (*path, "model") if name is not None else ("model",) if is_of_file else path
            problems.append(source.error(place, ported.model_advice(full_name or "") or str(error)))
        if full_name is not None:
            model_names.add(full_name)
    return replace(uses, model_names=frozenset(model_names)), problems


async def refused_code(
    uses: Requirements, source: WorkflowFile, *, allow_unsandboxed: bool
) -> list[WorkflowError]:
    """Parse each piece of code in its own sandbox; imports in Python are also executed.

    Returns an error for each piece that can't be parsed or imported, or whose sandbox does not work on this
    machine.
    """
    problems: list[WorkflowError] = []
    for code, path in uses.code:
        prefix, text = _without_effect(code)
        while True:
            source_text = "\n".join([*(line for line, _ in prefix), text])
            script = Script(code.language, source_text, sandbox=code.sandbox)
            try:
                await run_script(script, allow_unsandboxed=allow_unsandboxed)
                break
            except SandboxError as error:
                at, why = error.line, str(error)
                line = at and (prefix[at - 1][1] if at <= len(prefix) else at - len(prefix))
                problems.append(
                    source.error(path, why.replace(f", line {at},", f", line {line},", 1), within=line)
                )
                if at is None or at > len(prefix):
                    break
                del prefix[at - 1]  # later lines may be refused, too
    return problems


_RETURN_IMMEDIATELY = {"lua": "do return true end ", "prolog": "evaluate(true) :- !. "}
"""Code to put before a script, so that the script is parsed and never run."""


def _without_effect(code: Code) -> tuple[list[tuple[str, int]], str]:
    """Code that is parsed and not run, and the lines that run before it, with their original numbers.

    These lines are its imports, and the builtins that it reads: inline Python does not have all of them.
    """
    text = str(code.run)
    if code.language != "python":
        return [], _RETURN_IMMEDIATELY[code.language] + text
    tree = ast.parse(text)
    guarded = {id(node) for outer in ast.walk(tree) if isinstance(outer, ast.Try) for node in ast.walk(outer)}
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and id(node) not in guarded
    ]
    prefix = [(ast.unparse(node), node.lineno) for node in imports]
    if code.sandbox == "process":  # runs in this version of Python, which has just parsed the code
        return prefix, "result = True"
    read, defined = _names_in(tree)
    prefix += [(name, line) for name, line in read.items() if hasattr(builtins, name) and name not in defined]
    return [*prefix, ("return True", 1)], text
