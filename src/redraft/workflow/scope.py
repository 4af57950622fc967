"""What templates, code and actions of a workflow see, and what they share."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from redraft._calls import awaited
from redraft._validation import nearest
from redraft.errors import ConfigError, WorkflowError
from redraft.events import Listener
from redraft.execution import Script, ScriptRunner
from redraft.models.names import meant, model_of
from redraft.protocols import ChatModel
from redraft.sandbox.scripts import script_runner
from redraft.settings import load_settings
from redraft.stores.base import Store
from redraft.text.schema import Schema
from redraft.text.spec_file import first_mistake
from redraft.text.templates import holds, template
from redraft.types import NOT_REPORTED, NOTHING_USED, TokenUsage
from redraft.workflow.spec import Code, Limits, WorkflowSpec, plain_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from redraft.text.yaml import KeyPath
    from redraft.workflow.spec import Maker

SCOPES = ("state", "variables", "env")
"""What templates read from."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The state, the variables and the environment that a node sees, all of them plain JSON data.

    `names` are more names for code: `output`, `reflection_errors` and the like.
    """

    state: dict[str, Any]
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def adding(self, state: Mapping[str, Any], **names: Any) -> Scope:
        """Return this scope with more in its state, and more names."""
        return Scope({**self.state, **state}, self.variables, self.env, {**self.names, **names})

    def render(self, value: Any) -> Any:
        """Return a value with all texts in it rendered; raises `TemplateError`."""
        if isinstance(value, str):
            return template(value).render(self._scopes())
        if isinstance(value, Mapping):
            items = cast("Mapping[str, Any]", value)
            return {key: self.render(item) for key, item in items.items()}
        if isinstance(value, list):
            return [self.render(item) for item in cast("list[Any]", value)]
        return value

    def text(self, source: str) -> str:
        """Render a template as text; any other value becomes JSON."""
        return as_template_text(self.render(source))

    def holds(self, condition: str | bool) -> bool:
        """Return whether a condition is true; the braces around it are optional."""
        return holds(condition, self._scopes())

    def variables_of_code(self) -> dict[str, Any]:
        """Return the names that code sees."""
        return {**self._scopes(), **self.names}

    def _scopes(self) -> dict[str, Any]:
        return dict(zip(SCOPES, (self.state, self.variables, self.env), strict=True))


def as_template_text(value: Any) -> str:
    """Return a value as a template renders it inside a text: anything but a text becomes JSON."""
    return value if isinstance(value, str) else template("{{ value | tojson }}").render({"value": value})


_encoded = json.JSONEncoder(allow_nan=False).encode


def plain_data(value: Any, what: str) -> Any:
    """Return a copy of `value` as plain JSON data: models and dataclasses as objects, times in ISO 8601.

    Raises `ConfigError`, whose message begins with `what`, for anything else, NaN and infinities included.
    """
    try:
        data = to_jsonable_python(value)
        _encoded(data)
    except ValueError as error:  # pydantic's own is one
        raise ConfigError(f"{what} is no JSON data: {error}") from error
    return data


def copy_of(data: Any) -> Any:
    """Return a copy of plain JSON data."""
    return to_jsonable_python(data)


@dataclass(frozen=True, slots=True)
class Made:
    """The value of an action or of code; `is_reply` if it is the reply of a model."""

    value: Any
    usage: TokenUsage = NOTHING_USED
    is_reply: bool = False


class FailedAttempt(BaseModel):
    """Stands for the output of an attempt whose generator or corrector failed."""

    message: str


MODEL = "model"
"""The key of the state that names the model for nodes that name none."""

BuiltIn = Callable[[Mapping[str, Any], Scope, "Bench"], Awaitable[Made]]
"""A built-in action; it renders its parameters itself, each when it is needed."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What the nodes of one run share.

    `actions` are the user's own, which take precedence over `built_in`. `models` maps names in the file to
    models or to their names. `keep` says where the runs of loops are kept. `folder` is the file's: files that
    it refers to are read from there and nowhere else.
    """

    built_in: Mapping[str, BuiltIn] = field(default_factory=dict[str, "BuiltIn"])
    actions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    models: Mapping[str, str | ChatModel] = field(default_factory=dict[str, "str | ChatModel"])
    model: str | ChatModel | None = None
    limits: Limits = WorkflowSpec.model_fields["limits"].default
    keep: bool | Store = True
    folder: str = "."
    on_event: Listener | None = None
    allow_unsandboxed: bool = False
    name: str = "workflow"

    def model_for(self, name: str | ChatModel | None, scope: Scope) -> ChatModel:
        """Return the model that a node names, or else that of the state, the file or the settings.

        Raises `ConfigError` if there is none, or it can't be used.
        """
        return model_of(self._chosen_model(name, scope))

    def full_name(self, name: str | None, scope: Scope) -> str | None:
        """Return the full name of the model that a node names, or would get; None if it has none yet."""
        chosen = meant(self._chosen_model(name, scope), load_settings().models)
        return chosen if isinstance(chosen, str | None) else type(chosen).__name__

    def _chosen_model(self, name: str | ChatModel | None, scope: Scope) -> str | ChatModel | None:
        chosen: str | ChatModel | None = name or scope.state.get(MODEL) or self.model
        return meant(chosen or load_settings().model, self.models)

    def schema(self, given: Any) -> Schema:
        """Return a JSON Schema, compiled once; raises `ConfigError` if it can't be used."""
        return _compiled(json.dumps(given), self.folder)

    def code(self, code: Code) -> ScriptRunner:
        """Return the runner of a piece of code; raises `ConfigError` if there is none."""
        return script_runner(code.language, code.sandbox, allow_unsandboxed=self.allow_unsandboxed)

    def own(self, action: str) -> Callable[..., Any] | None:
        """Return the user's own action of a name, if there is one."""
        return self.actions.get(plain_name(action))

    async def do(self, action: str, params: Mapping[str, Any], scope: Scope) -> Made:
        """Carry out an action by name; raises what it raises, and `WorkflowError` if it is unknown."""
        if (own := self.own(action)) is not None:
            # Only what it returns changes the state, not what it does to this copy.
            state = copy_of(scope.state)
            value = await awaited(own)(state=state, **scope.render(params))
            return Made(plain_data(value, f"What the action {action!r} returned"), NOT_REPORTED)
        if (ours := self.built_in.get(plain_name(action))) is not None:
            return await ours(params, scope, self)
        known = [*self.built_in, *self.actions]
        raise WorkflowError(f"There is no action {action!r}; {nearest(action, known)}")


def check_call(fn: Callable[..., Any], name: str, params: Iterable[str]) -> None:
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


@lru_cache(maxsize=256)
def _compiled(schema: str, folder: str) -> Schema:
    return Schema(json.loads(schema), Path(folder) if folder else None)


async def make(maker: Maker, scope: Scope, bench: Bench) -> Made:
    """Carry out a maker's action or code; raises what that raises."""
    if (maker.action is None) == (maker.run is None):
        raise ConfigError("give either 'action' or 'run'")
    if maker.run is not None:
        return await run_code(maker, scope, bench)
    return await bench.do(str(maker.action), maker.params, scope)


async def run_code(code: Code, scope: Scope, bench: Bench) -> Made:
    """Run code in a scope and return its value, plain JSON data; raises `SandboxError`."""
    limits = bench.limits.of_scripts
    script = Script(code.language, str(code.run), scope.variables_of_code(), limits, code.sandbox)
    return Made((await bench.code(code)(script)).value)


M = TypeVar("M", bound=BaseModel)

SCHEMA = "schema"
"""The parameter that is never rendered: a schema's patterns may contain braces."""
NO_TEMPLATES = frozenset({SCHEMA, "run", "language", "sandbox", "examples"})
"""The parameters of built-in actions that hold no templates."""
TEXTS = frozenset({"prompt", "system", "content"})
"""Parameters that are always rendered as text, even from a lone expression of another type."""
MESSAGES = "messages"
"""The parameter whose items have parameters themselves."""


def templates_in(
    value: object, way: KeyPath, without: Collection[str] = NO_TEMPLATES
) -> Iterator[tuple[str, KeyPath]]:
    """Yield the texts in parameters that may be templates, each with its place."""
    if isinstance(value, str):
        yield value, way
    elif isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            if key not in without:
                yield from templates_in(item, (*way, key), without)
    elif isinstance(value, list):
        for at, item in enumerate(cast("list[Any]", value)):
            yield from templates_in(item, (*way, at), without)


def parsed(kind: type[M], params: Mapping[str, Any], scope: Scope, action: str) -> M:
    """Return an action's parameters, all rendered; raises `ConfigError` for the first mistake."""
    return checked(kind, _rendered(params, scope), action)


def _rendered(params: Mapping[str, Any], scope: Scope) -> dict[str, Any]:
    return {key: _value(key, value, scope) for key, value in params.items()}


def _value(key: str, value: Any, scope: Scope) -> Any:
    if key == SCHEMA:
        return value
    if key in TEXTS and isinstance(value, str):
        return scope.text(value)
    if key == MESSAGES and isinstance(value, list):
        return [_rendered(message, scope) for message in cast("list[Any]", value)]
    return scope.render(value)


def checked(kind: type[M], params: Mapping[str, Any], action: str) -> M:
    """Return an action's parameters as given; raises `ConfigError` for the first mistake."""
    try:
        return kind.model_validate(dict(params))
    except ValidationError as error:
        place, said = first_mistake(kind, dict(params), error)
        raise ConfigError(f"{action}: {'.'.join(map(str, place))}: {said}.") from error
