"""Plain JSON data with its texts redacted and its shape kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from redraft.redact.kinds import mark
from redraft.redact.labels import Strength, kind_of, strength_of
from redraft.redact.values import is_placeholder

if TYPE_CHECKING:
    from collections.abc import Callable

    Redact = Callable[[str], str]

_SCHEMA = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum"})
_NAMES = ("name", "key", "Name", "Key")
_VALUES = ("value", "Value", "val")


def walk(value: Any, redact: Redact) -> Any:
    """Return data of the same shape with every text redacted; each different text is looked at once."""
    seen: dict[str, str] = {}

    def text(plain: str) -> str:
        if plain not in seen:
            seen[plain] = redact(plain)
        return seen[plain]

    return _walk(value, text)


def _walk(value: Any, redact: Redact) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {redact(key): _field(key, below, fields, redact) for key, below in fields.items()}
    if isinstance(value, list | tuple):
        return [_walk(below, redact) for below in cast("list[Any]", value)]
    return value


def _field(key: str, value: Any, fields: dict[str, Any], redact: Redact) -> Any:
    name = key
    if key in _VALUES:  # {"name": "API_KEY", "value": "..."}
        name = next((fields[name] for name in _NAMES if isinstance(fields.get(name), str)), key)
    if strength_of(name) > Strength.WEAK and not _is_schema(value):
        return _withheld(value, name)
    return _walk(value, redact)


def _withheld(value: Any, name: str) -> Any:
    """Return the shape of a value without its content; what is no secret stays: true, null, a count."""
    if isinstance(value, dict):
        return {key: _withheld(below, name) for key, below in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_withheld(below, name) for below in cast("list[Any]", value)]
    if isinstance(value, str):
        return value if is_placeholder(value) else mark(kind_of(name))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return mark(kind_of(name)) if is_number and strength_of(name) is not Strength.TOKEN else value


def _is_schema(value: Any) -> bool:
    return isinstance(value, dict) and bool(_SCHEMA.intersection(cast("dict[str, Any]", value)))
