"""What can be known of a workflow before anything is spent, beside what its file says by itself."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.cli.run_missing import first_missing
from redraft.cli.run_uses import Uses, model_names
from redraft.cli.run_values import read_text
from redraft.core.errors import ConfigError
from redraft.core.settings import load_settings
from redraft.models.names import model_of
from redraft.workflow.actions import BUILT_IN
from redraft.workflow.bench import MODEL
from redraft.workflow.names import plain_name
from redraft.workflow.reading import Source, read
from redraft.workflow.workflow import Workflow

if TYPE_CHECKING:
    from redraft.text.yaml import Way
    from redraft.workflow.spec import Node, WorkflowSpec

OF_AGENTS = ("stages", "triggers", "sense", "reason", "actuate", "reflect")
"""Keys at the top of the file of an agent that runs in cycles; the stages stand there by mistake."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Hold a workflow that is checked, with what it is given and all that it uses.

    `models` maps names of the file to those that answer in their place, as `--model` wants it.
    """

    workflow: Workflow
    given: Mapping[str, Any]
    uses: Uses
    models: Mapping[str, str]

    @property
    def file(self) -> str:
        """The file, as it was named."""
        return self.workflow.source.file

    def full_name(self, model: str | None) -> str | None:
        """Return the name of the model that answers to a name of the file, None where none is known."""
        settings = load_settings()
        name = model or self.given.get("model") or self.workflow.spec.model or settings.model
        aliases = {**settings.models, **self.workflow.spec.models, **self.models}
        seen: set[str] = set()
        while name in aliases and name not in seen:
            seen.add(name)
            name = aliases[name]
        return name

    def own_actions(self) -> list[str]:
        """Return the names of actions that are not built in."""
        return [name for name in self.uses.actions if name not in BUILT_IN]


def ready(
    file: str, given: Mapping[str, Any], *, model: str | None, keep: bool, allow_unsandboxed: bool
) -> Ready:
    """Read a workflow file and check it with what it is given, down to its models and languages.

    A `model` answers in place of every one that the file names. Raises `WorkflowError`, with file, line, node
    and key, for whatever can be known to go wrong.
    """
    source = Source(read_text(file, "The workflow"), file)
    document = source.document()
    if "nodes" not in document and (of_agent := next((key for key in OF_AGENTS if key in document), None)):
        raise source.error(
            (of_agent,), f"this is an agent that runs in cycles; redraft cycle run {file} runs it"
        )
    models: dict[str, str] = {}
    if model is not None:
        spec = read(source)
        named = {spec.model, *model_names([node.with_ for node in spec.nodes])} - {None, model}
        models = {str(name): model for name in named}
        given = {**given, "model": model}
    workflow = Workflow(source, models=models, keep=keep, allow_unsandboxed=allow_unsandboxed)
    found = Ready(workflow, given, Uses.of(workflow.spec), models)
    if (missing := first_missing(workflow.spec, given)) is not None:
        way, name = missing
        short = name.partition(".")[2]
        raise source.error(way, f"{name} is read here, and nothing gives it: add -v {short}=TEXT")
    _check_models(found)
    return found


def _check_models(found: Ready) -> None:
    for name, way in found.uses.models.items():
        full = found.full_name(name)
        if full is None and _may_be_set(found.workflow.spec, way):
            continue
        try:
            model_of(full, load_settings())
        except ConfigError as error:
            named = way if name is None else (*way, "model")
            raise found.workflow.source.error(named, str(error)) from error


def _may_be_set(spec: WorkflowSpec, way: Way) -> bool:
    """Say whether a node may put a model's name into the state before the place `way`: it is known then."""
    at = int(way[1])
    order = {node.name: number for number, node in enumerate(spec.nodes)}

    def goes_back(node: Node) -> bool:
        jumps = node.goto if isinstance(node.goto, list) else []
        named = (node.goto, node.on_error, *(jump.to for jump in jumps))
        return any(order.get(str(name), len(order)) <= at for name in named)

    before = spec.nodes if any(map(goes_back, spec.nodes[at:])) else spec.nodes[:at]
    return any(map(_may_set_model, before))


def _may_set_model(node: Node) -> bool:
    """Say whether a node may put a model's name into the state; an action that is built in never does."""
    if node.output is not None:
        return node.output == MODEL
    if node.run is None:
        return plain_name(str(node.uses)) not in BUILT_IN
    return node.language != "python" or _may_return_model(node.run)


def _may_return_model(code: str) -> bool:
    """Say whether Python code may give an object with the key `model`; not where all it gives is literal."""
    given: list[ast.expr | None] = []
    named = 0
    for one in ast.walk(ast.parse(code)):
        if isinstance(one, ast.Return):
            given.append(one.value)
        elif isinstance(one, ast.Assign) and all(_is_result(target) for target in one.targets):
            given.append(one.value)
            named -= len(one.targets)
        named += _is_result(one)
    # A `result` that is named elsewhere, too, may have been changed there.
    return named > 0 or not all(map(_is_literal, given))


def _is_result(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "result"


def _is_literal(value: ast.expr | None) -> bool:
    """Say whether an expression is no object, or one whose keys are literal, and other than `model`."""
    if isinstance(value, ast.Dict):
        return all(isinstance(key, ast.Constant) and key.value != MODEL for key in value.keys)
    return value is None or isinstance(value, LITERAL)


LITERAL = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Compare)
"""Expressions whose value is no object."""
