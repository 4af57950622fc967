"""What the nodes of a workflow run with: the scope that they read, and the resources that they share."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from redraft._calls import awaited, parameters_by_name
from redraft._codec import plain_data
from redraft._validation import nearest
from redraft.errors import ConfigError, WorkflowError
from redraft.events import Listener, TokenEvent
from redraft.execution import Script, ScriptRunner
from redraft.loop.journal import enclosing_step
from redraft.models.names import label_of_model, model_of, resolve_model
from redraft.protocols import ChatModel, ModelChoice
from redraft.sandbox.scripts import script_runner
from redraft.settings import load_settings
from redraft.stores.base import Store
from redraft.text.schema import Schema, compiled_schema
from redraft.text.spec_file import mistakes
from redraft.text.templates import holds, render, template
from redraft.types import NOT_REPORTED, NOTHING_USED, TokenUsage
from redraft.workflow.spec import RENDERED, Code, Limits, WorkflowSpec, plain_name
from redraft.workflow.tools import Tools

if TYPE_CHECKING:
    from redraft.workflow.spec import Call
    from redraft.workflow.workflow import Workflow

IDEMPOTENCY_KEY = "idempotency_key"
"""The parameter of an action that gets a key for its call."""
TRY = "try"
"""The name of the step of a try, within that of a node or an item."""
SCOPES = ("state", "variables", "env")
"""What templates read from."""
ITEM, INDEX = "item", "index"
"""What the templates and the code of a node with a `map` read as well; the first item has the index 0."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The state, the variables and the environment that a node reads, all of them plain JSON data."""

    state: dict[str, Any]
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What code inside a loop also sees: `output`, `reflection_errors` and the like."""
    each: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a node with a `map` also reads: the `item` at hand, and its `index`."""

    def inside_loop(self, additions: Mapping[str, Any]) -> Scope:
        """Return a scope with additions to the state, whose output and errors are variables for code, too."""
        state = {**self.state, **additions}
        output = state.get("reflection_output")
        names = {
            "output": output,
            "reflection_output": output,
            "reflection_errors": state.get("reflection_errors", []),
            "reflection_iteration": state.get("reflection_iteration", 1),
        }
        return Scope(state, self.variables, self.env, names, self.each)

    def for_item(self, item: Any, index: int) -> Scope:
        """Return the scope of an item of a `map`."""
        each = {ITEM: item, INDEX: index}
        return Scope(self.state, self.variables, self.env, self.names, each)

    def render(self, value: Any) -> Any:
        """Render all texts in a value; raises `TemplateError`."""
        return render(value, self._scopes())

    def text(self, source: str) -> str:
        """Render a template as text; any other value becomes JSON."""
        return as_template_text(self.render(source))

    def holds(self, condition: str | bool) -> bool:
        """Return whether a condition is true; the braces around it are optional."""
        return holds(condition, self._scopes())

    def names_for_code(self) -> dict[str, Any]:
        """Return the variables that code sees."""
        return {**self._scopes(), **self.names}

    def _scopes(self) -> dict[str, Any]:
        return {"state": self.state, "variables": self.variables, "env": self.env, **self.each}


def as_template_text(value: Any) -> str:
    """Render a value as it appears inside a text: anything but a text becomes JSON."""
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})


def copy_of(data: Any) -> Any:
    """Return a copy of plain JSON data."""
    return to_jsonable_python(data)


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The value of an action or of code, as plain JSON data, and the usage of its models.

    `failures` are the items of a `map` that failed, with their `index`, `type` and `message`.
    """

    value: Any = None
    usage: TokenUsage = NOTHING_USED
    failures: tuple[dict[str, Any], ...] = ()


MODEL = "model"
"""The key of the state with the model of nodes that name none themselves."""


BuiltIn = Callable[[Mapping[str, Any], Scope, "Resources"], Awaitable[ActionResult]]
"""A built-in action; it renders its parameters itself, each when it is needed."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What the nodes of one run share."""

    built_in: Mapping[str, BuiltIn] = field(default_factory=dict[str, "BuiltIn"])
    actions: Mapping[str, Callable[..., Any] | EntryPoint] = field(
        default_factory=dict[str, "Callable[..., Any] | EntryPoint"]
    )
    """The user's own actions, which take precedence; an entry point is imported only if a file names it."""
    files: Mapping[str, "Workflow | WorkflowError"] = field(
        default_factory=dict[str, "Workflow | WorkflowError"]
    )
    """The workflows that nodes run, or why one can't be read."""
    models: Mapping[str, ModelChoice] = field(default_factory=dict[str, "ModelChoice"])
    """Models, or their names, by the names that the file uses."""
    only_model: ModelChoice | None = None
    """A model in place of every model that the file names."""
    model: ModelChoice | None = None
    """The model of nodes that name none."""
    limits: Limits = WorkflowSpec.model_fields["limits"].default
    keep: bool | Store = True
    """Where the runs of loops are stored."""
    folder: str = "."
    """The folder of the file: the schemas that it refers to are read from there and nowhere else."""
    on_event: Listener | None = None
    on_token: Callable[[TokenEvent], None] | None = None
    allow_unsandboxed: bool = False
    name: str = "workflow"
    tools: Tools = field(default_factory=Tools)
    hosts: Sequence[str] = ()
    """The hosts to which requests may be sent."""
    approver: Callable[..., Any] | None = None
    """Answers what `human.approve` asks, if it can."""
    run_id: str = ""
    """The id of the outermost run."""
    node: str = ""
    """The node that asks a person."""

    def model_for(self, name: ModelChoice | None, scope: Scope) -> ChatModel:
        """Return the model that a node names, or else the one of the state, the file or the settings.

        Raises `ConfigError` if no model was named, if it can't be used, or if a case has no replies for it.
        """
        chosen = self._chosen_model(name, scope)
        if self.tools.results is not None:
            parts = chosen if isinstance(chosen, list | tuple) else [chosen]
            for part in parts:
                if isinstance(part, str | None):
                    raise ConfigError(f"replies: none are given for the model {part or 'of the settings'!r}.")
        return model_of(chosen)

    def full_name(self, name: str | None, scope: Scope) -> str | None:
        """Return the full name of the model that a node would use; None if that is not known yet."""
        chosen = resolve_model(self._chosen_model(name, scope), load_settings().models)
        return None if chosen is None else label_of_model(chosen)

    def _chosen_model(self, name: ModelChoice | None, scope: Scope) -> ModelChoice | None:
        if self.only_model is not None:
            return self.only_model
        chosen: ModelChoice | None = name or scope.state.get(MODEL) or self.model
        return resolve_model(chosen or load_settings().model, self.models)

    def schema(self, schema: Any) -> Schema:
        """Compile a JSON Schema, once; raises `ConfigError` if it can't be used."""
        return compiled_schema(json.dumps(schema), self.folder)

    def code(self, code: Code) -> ScriptRunner:
        """Return the runner for a piece of code; raises `ConfigError` if it can't run here."""
        return script_runner(code.language, code.sandbox, allow_unsandboxed=self.allow_unsandboxed)

    def own_action(self, action: str) -> Callable[..., Any] | None:
        """Return the user's own action of this name, if any; raises `ConfigError` if it can't be imported."""
        own = self.actions.get(plain_name(action))
        return _load(own) if isinstance(own, EntryPoint) else own

    async def run_action(self, action: str, params: Mapping[str, Any], scope: Scope) -> ActionResult:
        """Run an action or a workflow file; raises its errors, and `WorkflowError` for an unknown name."""
        if (inner := self.files.get(action)) is not None:
            if isinstance(inner, WorkflowError):
                raise inner
            return await inner.run_inside(scope.render(params), scope, self)
        if (own := self.own_action(action)) is not None:
            given = scope.render(params)
            if IDEMPOTENCY_KEY not in given and IDEMPOTENCY_KEY in parameters_by_name(own):
                given[IDEMPOTENCY_KEY] = _idempotency_key(action)
            # It gets a copy: only what it returns changes the state.
            value = await awaited(own)(state=copy_of(scope.state), **given)
            return ActionResult(plain_data(value, f"What the action {action!r} returned"), NOT_REPORTED)
        if (built_in := self.built_in.get(plain_name(action))) is not None:
            return await built_in(params, scope, self)
        known = [*self.built_in, *self.actions]
        raise WorkflowError(f"Unknown action {action!r}; {nearest(action, known)}")


def _idempotency_key(action: str) -> str:
    """Return a key for a call of an action, the same one if a resumed run or another try repeats the call."""
    inside = enclosing_step()
    if inside is None:  # the run is not stored, so it can't be resumed
        return uuid4().hex
    around = inside.place.partition(f"/{TRY}#")[0]
    place = f"{around}/{inside.number(f'action {action}')}"
    return f"{inside.outer.run_id}.{sha256(place.encode()).hexdigest()[:16]}"


def _load(point: EntryPoint) -> Callable[..., Any]:
    package = f" of the package {point.dist.name!r}" if point.dist is not None else ""
    what = f"the action {point.name!r}{package} can't be used: its entry point {point.value!r}"
    try:
        fn = point.load()
    except Exception as error:  # importing a package runs its code, which may raise anything
        raise ConfigError(f"{what} failed with {type(error).__name__}: {error}") from error
    if not callable(fn):
        raise ConfigError(f"{what} must be a function, got {fn!r:.60}")
    return fn


async def run_call(call: Call, scope: Scope, resources: Resources) -> ActionResult:
    """Run the action or the code of a call, and raise its errors."""
    if call.run is not None:
        return await run_code(call, scope, resources)
    return await resources.run_action(str(call.action), call.params, scope)


async def run_code(code: Code, scope: Scope, resources: Resources) -> ActionResult:
    """Run code and return its value; raises `SandboxError`."""
    limits = resources.limits.of_scripts
    script = Script(code.language, str(code.run), scope.names_for_code(), limits, code.sandbox)
    return ActionResult((await resources.code(code)(script)).value)


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
