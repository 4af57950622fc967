"""Bench: what the nodes of one run work with: actions, models, bounds, and where runs are kept."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from redraft.core.calls import awaited
from redraft.core.codec import to_json
from redraft.core.errors import ConfigError, WorkflowError
from redraft.core.events import Listener
from redraft.core.nearest import nearest
from redraft.core.protocols import ChatModel
from redraft.core.settings import load_settings
from redraft.core.usage import NOT_REPORTED
from redraft.models.names import model_of
from redraft.stores.base import Store
from redraft.workflow.made import Made
from redraft.workflow.scope import Scope
from redraft.workflow.spec import Limits, WorkflowSpec

BuiltIn = Callable[[Mapping[str, Any], Scope, "Bench"], Awaitable[Made]]
"""An action of ours: it renders its own parameters, when it is time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Hold what the nodes of one run share.

    `models` maps names of the file to models, or to the names of models. `keep` says where the loops' runs
    are kept. `folder` is where the file lies: what it refers to is looked for there and nowhere else.
    """

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
        chosen = name or scope.state.get("model") or self.model
        seen: set[str] = set()
        while isinstance(chosen, str) and chosen in self.models and chosen not in seen:
            seen.add(chosen)
            chosen = self.models[chosen]
        return model_of(cast("str | ChatModel | None", chosen), load_settings())

    async def do(self, action: str, params: Mapping[str, Any], scope: Scope) -> Made:
        """Carry out an action by its name; raises what it raises, and `WorkflowError` for one not known."""
        from redraft.workflow.actions import BUILT_IN, plain_name  # noqa: PLC0415 (built in ones know the bench)

        name = plain_name(action)
        if (own := self.actions.get(action) or self.actions.get(name)) is not None:
            return await self._own(own, action, params, scope)
        if name in BUILT_IN:
            return await BUILT_IN[name](params, scope, self)
        raise WorkflowError(f"There is no action {action!r}; {nearest(action, [*BUILT_IN, *self.actions])}")

    @staticmethod
    async def _own(fn: Callable[..., Any], name: str, params: Mapping[str, Any], scope: Scope) -> Made:
        given = scope.render(dict(params))
        state = to_json(scope.state)  # a copy: an action changes the state by what it returns
        try:
            inspect.signature(fn).bind(state=state, **given)
        except TypeError as error:
            raise ConfigError(
                f"The action {name!r} can't be called with these parameters: {error}."
            ) from error
        return Made(to_json(await awaited(fn)(state=state, **given)), NOT_REPORTED)
