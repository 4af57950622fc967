"""Parameters of built-in actions: rendered, then checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from redraft.core.errors import ConfigError
from redraft.text.spec_file import explained

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from redraft.text.yaml import Way
    from redraft.workflow.scope import Scope

M = TypeVar("M", bound=BaseModel)

SCHEMA = "schema"
"""The parameter that is never rendered: braces in a schema's patterns are its own."""
NO_TEMPLATES = frozenset({SCHEMA, "run", "language", "sandbox", "examples"})
"""The parameters of built-in actions in which braces are nobody's."""
TEXTS = frozenset({"prompt", "system", "content"})
"""Those that are texts, even where a template is a lone expression with another type."""
MESSAGES = "messages"
"""The parameter that is a list of parameters."""


def templates_in(
    value: object, way: Way, without: Collection[str] = NO_TEMPLATES
) -> Iterator[tuple[str, Way]]:
    """Yield the texts among parameters that may be templates, each with its way."""
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
    """Return an action's parameters, all of them rendered; raises `ConfigError` for what is wrong."""
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
    """Return an action's parameters as they are given; raises `ConfigError` for what is wrong."""
    try:
        return kind.model_validate(dict(params))
    except ValidationError as error:
        place, said = explained(kind, dict(params), error)
        raise ConfigError(f"{action}: {'.'.join(map(str, place))}: {said}.") from error
