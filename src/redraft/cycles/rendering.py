"""Rendering: what the templates and conditions of an agent file see, but for its prompts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.core.texts import as_text
from redraft.text.condition import template

if TYPE_CHECKING:
    from redraft.cycles.cycle import Cycle


def scopes_of(cycle: Cycle, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the names that a condition or a message sees; with those of a planned `action`."""
    agent = {"name": cycle.spec.name, "description": cycle.spec.description}
    scopes = cycle.state.scopes(agent=agent, cycle=cycle.number)
    return scopes if action is None else {**scopes, "action": action, "params": action["params"]}


def outward_scopes(cycle: Cycle, action: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the names that a request, a path or a call sees: `env`, too, which no prompt shows."""
    env = {name: value for name in cycle.spec.env if (value := os.environ.get(name)) is not None}
    return {**scopes_of(cycle, action), "env": env}


def render(value: Any, scopes: Mapping[str, Any]) -> Any:
    """Return `value` with every text in it rendered, once: what comes of it is data."""
    if isinstance(value, str):
        return template(value).render(scopes)
    if isinstance(value, Mapping):
        return {key: render(item, scopes) for key, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [render(item, scopes) for item in cast("list[Any]", value)]
    return value


def render_text(source: str, scopes: Mapping[str, Any]) -> str:
    """Return a template rendered as text; what is no text becomes JSON. Raises `TemplateError`."""
    return as_text(template(source).render(scopes))
