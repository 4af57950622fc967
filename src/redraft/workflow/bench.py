"""Bench: what the nodes of one run work with: actions, models, bounds, and where runs are kept."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from redraft.core.calls import awaited
from redraft.core.errors import ConfigError, WorkflowError
from redraft.core.events import Listener
from redraft.core.nearest import nearest
from redraft.core.protocols import ChatModel, ScriptRunner
from redraft.core.settings import load_settings
from redraft.core.usage import NOT_REPORTED
from redraft.models.names import meant, model_of
from redraft.sandbox.scripts import script_runner
from redraft.stores.base import Store
from redraft.text.schema import Schema
from redraft.workflow.made import Made
from redraft.workflow.names import plain_name
from redraft.workflow.plain import copy_of, plain_data
from redraft.workflow.scope import Scope
from redraft.workflow.spec import Code, Limits, WorkflowSpec

MODEL = "model"
"""The key of the state that names the model where a node does not."""

BuiltIn = Callable[[Mapping[str, Any], Scope, "Bench"], Awaitable[Made]]
"""An action of ours: it renders its own parameters, when it is time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Hold what the nodes of one run share.

    `built_in` are the actions of ours, `actions` those of one's own, which go before them. `models` maps
    names of the file to models, or to the names of models. `keep` says where the loops' runs are kept.
    `folder` is where the file lies: what it refers to is looked for there and nowhere else.
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
        """Return the model that a node names, else that of the state, of the file, of the settings.

        Raises `ConfigError` where none can be had.
        """
        chosen: str | ChatModel | None = name or scope.state.get(MODEL) or self.model
        return model_of(meant(chosen or load_settings().model, self.models))

    def schema(self, given: Any) -> Schema:
        """Return a JSON Schema, compiled once; raises `ConfigError` for one that can't be used."""
        return _compiled(json.dumps(given), self.folder)

    def code(self, code: Code) -> ScriptRunner:
        """Return what runs a piece of code; raises `ConfigError` where nothing can."""
        return script_runner(code.language, code.sandbox, allow_unsandboxed=self.allow_unsandboxed)

    def own(self, action: str) -> Callable[..., Any] | None:
        """Return the action of one's own with a name, which goes before one that is built in."""
        return self.actions.get(plain_name(action))

    async def do(self, action: str, params: Mapping[str, Any], scope: Scope) -> Made:
        """Carry out an action by its name; raises what it raises, and `WorkflowError` for one not known."""
        if (own := self.own(action)) is not None:
            # What it returns changes the state, and what it does with a copy does not.
            state = copy_of(scope.state)
            value = await awaited(own)(state=state, **scope.render(params))
            return Made(plain_data(value, f"What the action {action!r} returned"), NOT_REPORTED)
        if (ours := self.built_in.get(plain_name(action))) is not None:
            return await ours(params, scope, self)
        known = [*self.built_in, *self.actions]
        raise WorkflowError(f"There is no action {action!r}; {nearest(action, known)}")


def check_call(fn: Callable[..., Any], name: str, params: Iterable[str]) -> None:
    """Raise `ConfigError` for an action that can't be called with `state` and these parameters."""
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
