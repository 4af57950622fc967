"""Parameters of built-in actions: rendered, then checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.workflow.scope import Scope

M = TypeVar("M", bound=BaseModel)

SCHEMA = "schema"
"""The parameter that is never rendered: braces in a schema's patterns are its own."""
TEXTS = frozenset({"prompt", "system"})
"""Those that are texts, even where a template is a lone expression with another type."""


def parsed(kind: type[M], params: Mapping[str, Any], scope: Scope, action: str) -> M:
    """Return an action's parameters, all of them rendered; raises `ConfigError` for what is wrong."""
    rendered = {
        key: value
        if key == SCHEMA
        else scope.text(value)
        if key in TEXTS and isinstance(value, str)
        else scope.render(value)
        for key, value in params.items()
    }
    return checked(kind, rendered, action)


def checked(kind: type[M], params: Mapping[str, Any], action: str) -> M:
    """Return an action's parameters as they are given; raises `ConfigError` for what is wrong."""
    try:
        return kind.model_validate(dict(params))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{action}: {place}: {first['msg']}, got {first['input']!r}.") from error
