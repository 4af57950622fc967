"""What a workflow needs before it can run: values, models, code and the sandboxes for it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from redraft.errors import ConfigError, SandboxError, ScriptError
from redraft.execution import Script
from redraft.models.provider import EXTRAS
from redraft.sandbox.scripts import LANGUAGES, run_script
from redraft.text.templates import braced, template
from redraft.text.yaml import KeyPath
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.loop import DOCUMENTED, FEEDBACK
from redraft.workflow.scope import MODEL, Scope, templates_in
from redraft.workflow.spec import (
    CORRECT,
    EVALUATE,
    LLM_CALL,
    LOOP,
    RAISE,
    Code,
    CorrectParams,
    EvaluateParams,
    LoopParams,
    plain_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redraft.workflow.scope import Bench
    from redraft.workflow.spec import Evaluator, Maker, Node, Source, WorkflowSpec


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a checked workflow uses: actions and models with their first place in the file, and all its code.

    The model None is the default one, of the state, the file or the settings. Models that are chosen by
    templates are known only when it runs. `model_names` are the full names that these stand for, as far as
    they are known.
    """

    actions: dict[str, KeyPath] = field(default_factory=dict[str, KeyPath])
    models: dict[str | None, KeyPath] = field(default_factory=dict[str | None, KeyPath])
    code: list[tuple[Code, KeyPath]] = field(default_factory=list[tuple[Code, KeyPath]])
    model_names: set[str] = field(default_factory=set[str])

    @classmethod
    def of(cls, spec: WorkflowSpec) -> Requirements:
        """Collect what a workflow uses."""
        found = cls()
        for at, node in enumerate(spec.nodes):
            way = ("nodes", at)
            if node.run is not None:
                found._add_code(node, way)
            else:
                found._add_action(str(node.uses), node.with_, (*way, "with"))
        return found

    @property
    def own_actions(self) -> list[str]:
        """The names of the actions that are not built in."""
        return [name for name in self.actions if name not in BUILT_IN]

    @property
    def extras(self) -> list[str]:
        """The optional parts of Redraft that it needs, by the names that pip knows."""
        providers = {name.partition(":")[0] for name in self.model_names} & {*EXTRAS, "local"}
        return sorted(providers | {LANGUAGES[code.language].extra for code, _ in self.code})

    def _add_action(self, name: str, params: Mapping[str, Any], way: KeyPath) -> None:
        action = plain_name(name)
        self.actions.setdefault(action, way)
        if action == LOOP:
            loop = LoopParams.model_validate(dict(params))
            self._add_maker(loop.generator, (*way, "generator"))
            self._add_evaluator(loop.evaluator, (*way, "evaluator"))
            if loop.corrector is not None:
                self._add_maker(loop.corrector, (*way, "corrector"))
        elif action == EVALUATE:
            self._add_evaluator(EvaluateParams.model_validate(dict(params)).evaluator(), way)
        elif action == CORRECT:
            self._add_maker(CorrectParams.model_validate(dict(params)).maker(), way)
        elif action == LLM_CALL:
            self._add_model(params.get("model"), way)

    def _add_maker(self, maker: Maker, way: KeyPath) -> None:
        if maker.run is not None:
            self._add_code(maker, way)
        else:
            self._add_action(str(maker.action), maker.params, way)

    def _add_evaluator(self, evaluator: Evaluator, way: KeyPath) -> None:
        if evaluator.type == "llm":
            self._add_model(evaluator.model, way)
        elif evaluator.type == "custom":
            self._add_code(evaluator, way)

    def _add_code(self, code: Code, way: KeyPath) -> None:
        self.code.append((code, (*way, "run")))

    def _add_model(self, name: str | None, way: KeyPath) -> None:
        if name is None or "{{" not in name:
            self.models.setdefault(name, way)


def check_values(spec: WorkflowSpec, source: Source, given: Mapping[str, Any]) -> None:
    """Raise `WorkflowError` for the first value that is certain to be read and that nothing provides.

    Looks at the nodes that run in any case, until one whose keys in the state are not known beforehand.
    """
    state = {*given, *DOCUMENTED, FEEDBACK}
    known = {"state": state, "variables": {*spec.variables, *given}}
    for at, node in enumerate(spec.nodes):
        for text, way in _read_first(node, ("nodes", at)):
            for scope, *rest in template(text).required:
                if scope in known and rest and rest[0] not in known[str(scope)]:
                    source.fail(
                        way,
                        f"{scope}.{rest[0]} is read here, and nothing gives it: pass it to run(), on the "
                        f"command line use -v {rest[0]}=TEXT",
                    )
        may_go_elsewhere = node.when is not None or node.goto is not None or node.on_error != RAISE
        if may_go_elsewhere or _has_unknown_keys(node):
            return
        state.add(node.output or node.name)


def _read_first(node: Node, way: KeyPath) -> Iterator[tuple[str, KeyPath]]:
    """Yield the templates of a node that are rendered in any case."""
    if node.when is not None:
        if isinstance(node.when, str):
            yield braced(node.when), (*way, "when")
        return
    params, inside = node.with_, (*way, "with")
    if node.action == LOOP:
        params, inside = params["generator"], (*inside, "generator")
    yield from templates_in(params, inside)


def _has_unknown_keys(node: Node) -> bool:
    returns_text = node.action == LLM_CALL and "schema" not in node.with_
    return node.action == LOOP or (node.output is None and not returns_text)


def check_models(
    found: Requirements, spec: WorkflowSpec, source: Source, bench: Bench, given: Mapping[str, Any]
) -> None:
    """Add the full names of the models; raises `WorkflowError` for one that can't be used here."""
    scope = Scope(dict(given))
    for name, way in found.models.items():
        full = bench.full_name(name, scope)
        if full is None and _may_set_model_before(spec, way):
            continue
        try:
            bench.model_for(name, scope)
        except ConfigError as error:
            raise source.error(way if name is None else (*way, "model"), str(error)) from error
        if full is not None:
            found.model_names.add(full)


def _may_set_model_before(spec: WorkflowSpec, way: KeyPath) -> bool:
    """Return whether a node may put the name of a model into the state before the node at `way` reads it."""
    at = int(way[1])
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


async def check_code(found: Requirements, source: Source, *, allow_unsandboxed: bool) -> None:
    """Have each piece of code parsed by what would run it; of Python, the imports are carried out, too.

    Raises `WorkflowError` for what can't be parsed or imported, and if the sandbox does not work here.
    """
    for code, way in found.code:
        text, lines = _parsed_only(code)
        script = Script(code.language, text, sandbox=code.sandbox)
        try:
            await run_script(script, allow_unsandboxed=allow_unsandboxed)
        except SandboxError as error:
            said, line = str(error), None
            if isinstance(error, ScriptError) and error.line is not None:
                line = lines[error.line - 1] if error.line <= len(lines) else error.line - len(lines)
                said = said.replace(f", line {error.line},", f", line {line},", 1)
            raise source.error(way, said, within=line) from error


_RETURNS_AT_ONCE = {"lua": "do return true end ", "prolog": "evaluate(true) :- !. "}
"""Code put first so that the rest is parsed and not run."""


def _parsed_only(code: Code) -> tuple[str, list[int]]:
    """Return code that is parsed and not run, and for each line put before it the line that it comes from."""
    text = str(code.run)
    if code.language != "python":
        return _RETURNS_AT_ONCE[code.language] + text, []
    statements = ast.parse(text).body
    imports = [one for one in statements if isinstance(one, ast.Import | ast.ImportFrom)]
    # The whole Python of the process sandbox is the one that has just parsed the code.
    rest = ["return True", text] if code.sandbox == "inline" else ["result = True"]
    return "\n".join([*map(ast.unparse, imports), *rest]), [*(node.lineno for node in imports), 1]
