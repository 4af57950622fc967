"""The environment of a workflow's nodes: the scope that they read, and the resources that they share."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from redraft._calls import awaited, parameters_by_name
from redraft._codec import plain_data
from redraft._steps import user_call
from redraft._validation import named_error
from redraft.errors import ConfigError, WorkflowError
from redraft.events import Listener, TokenEvent
from redraft.execution import Script, ScriptRunner
from redraft.loop.journal import enclosing_step
from redraft.models.names import label_of_model, model_of, resolve_model
from redraft.protocols import ChatModel, ModelChoice
from redraft.sandbox.scripts import script_runner
from redraft.settings import load_settings
from redraft.stores.base import Store
from redraft.text.schema import Schema
from redraft.text.spec_file import mistakes
from redraft.text.templates import holds, render, template
from redraft.types import NOT_REPORTED, NOTHING_USED, TokenUsage
from redraft.workflow.spec import RENDERED, Code, WorkflowSpec, plain_name
from redraft.workflow.tools import Tools

if TYPE_CHECKING:
    from redraft.workflow.spec import Call
    from redraft.workflow.workflow import Workflow

IDEMPOTENCY_KEY = "idempotency_key"
"""The parameter in which an action of the user's own gets an idempotency key."""
SCOPES = ("state", "variables", "env")
"""The top-level names in templates and code."""
ITEM, INDEX = "item", "index"
"""More top-level names, for a node with a `map`; the first item has the index 0."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The state, the variables and the environment that a node reads, as plain JSON data."""

    state: dict[str, Any]
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """More variables for code inside a loop: `output`, `reflection_errors` and the like."""
    each: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For a node with a `map`: the current `item` and its `index`."""

    def inside_loop(self, additions: Mapping[str, Any]) -> Scope:
        """The scope with additions to the state; code can also read its output and errors as variables."""
        state = {**self.state, **additions}
        output = state.get(OUTPUT)
        names = {
            "output": output,
            OUTPUT: output,
            "reflection_errors": state.get("reflection_errors", []),
            "reflection_iteration": state.get("reflection_iteration", 1),
        }
        return Scope(state, self.variables, self.env, names, self.each)

    def for_item(self, item: Any, index: int) -> Scope:
        """The scope of an item of a `map`."""
        each = {ITEM: item, INDEX: index}
        return Scope(self.state, self.variables, self.env, self.names, each)

    def render(self, value: Any) -> Any:
        """Render all texts in a value; raises `TemplateError`."""
        return render(value, self._scopes())

    def text(self, source: str) -> str:
        """Render a template as text; any other value becomes JSON."""
        return as_template_text(self.render(source))

    def holds(self, condition: str | bool) -> bool:
        """Whether a condition is true; the braces around it are optional."""
        return holds(condition, self._scopes())

    def names_for_code(self) -> dict[str, Any]:
        """The variables that code can read."""
        return {**self._scopes(), **self.names}

    def _scopes(self) -> dict[str, Any]:
        return {"state": self.state, "variables": self.variables, "env": self.env, **self.each}


def as_template_text(value: Any) -> str:
    """Render a value for use inside a text: strings stay as they are, other values become JSON."""
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})


def copy_of(data: Any) -> Any:
    """A deep copy of plain JSON data."""
    return to_jsonable_python(data)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The result of an action or of code."""

    value: Any = None
    """Plain JSON data."""
    usage: TokenUsage = NOTHING_USED
    """The usage of its models."""
    failures: tuple[dict[str, Any], ...] = ()
    """The failed items of a `map`, each with `index`, `type` and `message`."""


OUTPUT = "reflection_output"
"""The key of the state with the output of a loop, which `reflection.evaluate` and `.correct` read."""
MODEL = "model"
"""The key of the state with the model of nodes that do not name a model."""


BuiltIn = Callable[[Mapping[str, Any], Scope, "Resources"], Awaitable[ActionResult]]
"""A built-in action; it renders its own parameters, each when it is needed."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Everything that the nodes of a run share."""

    spec: WorkflowSpec
    built_in: Mapping[str, BuiltIn]
    actions: Mapping[str, Callable[..., Any] | EntryPoint]
    """The user's own actions, which take precedence; an entry point is imported only if a file names it."""
    files: Mapping[str, "Workflow | WorkflowError"]
    """The workflows that nodes run, by path; or the error of a file that can't be read."""
    models: Mapping[str, ModelChoice]
    """Models, or their names, by the names that the file uses."""
    only_model: ModelChoice | None
    """Replaces every model that the file names."""
    model: ModelChoice | None
    """The model of nodes that do not name a model."""
    keep: bool | Store
    """Where the runs of loops are stored."""
    folder: Path
    """The folder of the file: referenced schemas are read only from there."""
    tools: Tools
    approver: Callable[..., Any] | None
    """Answers questions of `human.approve`, or returns None to leave them to a person."""
    allow_unsandboxed: bool
    schemas: dict[str, Schema] = field(default_factory=dict[str, Schema])
    """The compiled schemas by their JSON, with the files that they referred to when the workflow was read."""
    on_event: Listener | None = None
    on_token: Callable[[TokenEvent], None] | None = None
    run_id: str = ""
    """The id of the outermost run."""
    node: str = ""
    """The node of a loop, or of a question to a person."""

    def model_for(self, name: ModelChoice | None, scope: Scope) -> ChatModel:
        """The model that a node names, or else the model of the state, the file or the settings.

        Raises `ConfigError` if none of these names a model, if it can't be used, or if a test case has no
        replies for it.
        """
        chosen = self._chosen_model(name, scope)
        if self.tools.results is not None:
            parts = chosen if isinstance(chosen, list | tuple) else [chosen]
            for part in parts:
                if isinstance(part, str | None):
                    raise ConfigError(f"replies: none are given for the model {part or 'of the settings'!r}.")
        return model_of(chosen)

    def full_name(self, name: str | None, scope: Scope) -> str | None:
        """The full name of the model that a node would use; None if no model has been chosen yet."""
        chosen = resolve_model(self._chosen_model(name, scope), load_settings().models)
        return None if chosen is None else label_of_model(chosen)

    def _chosen_model(self, name: ModelChoice | None, scope: Scope) -> ModelChoice | None:
        if self.only_model is not None:
            return self.only_model
        chosen: ModelChoice | None = name or scope.state.get(MODEL) or self.model
        return resolve_model(chosen or load_settings().model, self.models)

    def schema(self, schema: Any) -> Schema:
        """The compiled form of a JSON Schema; raises `ConfigError` if it can't be used."""
        key = json.dumps(schema)
        if key not in self.schemas:
            self.schemas[key] = Schema(schema, self.folder)
        return self.schemas[key]

    def code(self, code: Code) -> ScriptRunner:
        """The runner for a piece of code; raises `ConfigError` if it can't run on this machine."""
        return script_runner(code.language, code.sandbox, allow_unsandboxed=self.allow_unsandboxed)

    def own_action(self, action: str) -> Callable[..., Any] | None:
        """The user's own action of this name, if any; raises `ConfigError` if it can't be imported."""
        own = self.actions.get(plain_name(action))
        return _load(own) if isinstance(own, EntryPoint) else own

    async def run_action(self, action: str, params: Mapping[str, Any], scope: Scope) -> ActionResult:
        """Run an action or a workflow file; raises its errors."""
        if (inner := self.files.get(action)) is not None:
            if isinstance(inner, WorkflowError):
                raise inner
            return await inner.run_as_node(scope.render(params), scope, self)
        if (own := self.own_action(action)) is not None:
            arguments = scope.render(params)
            if IDEMPOTENCY_KEY not in arguments and IDEMPOTENCY_KEY in parameters_by_name(own):
                arguments[IDEMPOTENCY_KEY] = _idempotency_key(action)
            # It gets a copy of the state: only its result may change the state.
            call = awaited(own)(state=copy_of(scope.state), **arguments)
            value = await user_call(call, f"the action {action!r}", "the workflow")
            return ActionResult(plain_data(value, f"What the action {action!r} returned"), NOT_REPORTED)
        return await self.built_in[plain_name(action)](params, scope, self)


def _idempotency_key(action: str) -> str:
    """A key for a call of an action; a resumed run or another try repeats the call with the same key."""
    step = enclosing_step()
    if step is None:  # the run is not stored, so it can't be resumed
        return uuid4().hex
    return step.key(step.number(f"action {action}"))


def _load(point: EntryPoint) -> Callable[..., Any]:
    package = f" of the package {point.dist.name!r}" if point.dist is not None else ""
    what = f"the action {point.name!r}{package} can't be used: its entry point {point.value!r}"
    try:
        fn = point.load()
    except (Exception, SystemExit) as error:  # importing a package runs its code, which may raise anything
        raise ConfigError(f"{what} failed with {named_error(error)}") from error
    if not callable(fn):
        raise ConfigError(f"{what} must be a function, got {fn!r:.60}")
    return fn


async def run_call(call: Call, scope: Scope, resources: Resources) -> ActionResult:
    """Run the action or the code of a call; raises its errors."""
    if call.run is not None:
        return await run_code(call, scope, resources)
    return await resources.run_action(str(call.action), call.params, scope)


async def run_code(code: Code, scope: Scope, resources: Resources) -> ActionResult:
    """Run code in its sandbox; raises `SandboxError`."""
    limits = resources.spec.limits.of_scripts
    script = Script(code.language, str(code.run), scope.names_for_code(), limits, code.sandbox)
    return ActionResult(await resources.code(code)(script))


SCHEMA = "schema"
"""The parameter that is never rendered: a schema's patterns may contain braces."""
NO_TEMPLATES = frozenset({SCHEMA, "run", "language", "sandbox", "examples"})
"""The parameters of built-in actions that hold no templates."""


M = TypeVar("M", bound=BaseModel)


def read_params(kind: type[M], params: Mapping[str, Any], action: str, *, rendered: bool = False) -> M:
    """Validate an action's parameters; raises `ConfigError` for the first mistake."""
    try:
        return kind.model_validate(dict(params), context=RENDERED if rendered else None)
    except ValidationError as error:
        place, why = mistakes(kind, dict(params), error)[0]
        raise ConfigError(f"{action}: {'.'.join(map(str, place))}: {why}.") from error
