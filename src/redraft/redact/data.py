"""Data: redact the texts in plain JSON, dataclasses and models, and keep their shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, cast

from redraft.redact.assignments import Strength, kind_of, strength_of
from redraft.redact.kinds import mark
from redraft.redact.values import is_placeholder
from redraft.types import Issue

if TYPE_CHECKING:
    from collections.abc import Callable

    Redact = Callable[[str], str]


def redact_object(value: Any, redact: Redact, spared: tuple[type, ...] = ()) -> Any:
    """Redact every text in a value.

    Dataclasses keep their class, mappings become dicts, models plain data. Instances of `spared` classes
    stay as they are.
    """
    once = cached(redact)

    def other(value: Any) -> Any:
        if isinstance(value, spared):
            return value
        if is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in fields(value) if field.init]
            return replace(value, **{name: redact_plain(getattr(value, name), once, other) for name in names})
        dump: Any = getattr(value, "model_dump", None)  # a pydantic model, recognised without importing it
        return (
            value if dump is None or isinstance(value, type) else redact_plain(dump(mode="json"), once, other)
        )

    return redact_plain(value, once, other)


def redact_plain(value: Any, redact: Redact, other: Callable[[Any], Any] = lambda value: value) -> Any:
    """Redact all texts of data, and withhold all values under secret-like keys; the shape stays the same.

    `other` converts values that are no text, number, mapping, list or tuple.
    """
    kind = value.__class__  # comparing classes is faster than isinstance, and most values are plain
    if kind in _NO_TEXT:
        if kind is int and value >= _SMALLEST_NUMBER and (redacted := redact(str(value))) != str(value):
            return redacted
        return other(value)
    if kind is Issue:  # a text with a path and a line
        criterion = None if value.criterion is None else redact(value.criterion)
        path = None if value.path is None else redact(value.path)
        return Issue(redact(value.message), criterion, path, value.line, value.number)
    if kind is str or (isinstance(value, str) and not isinstance(value, Enum)):
        return redact(value)
    if kind is dict or isinstance(value, Mapping):
        fields, redacted_fields = cast("Mapping[Any, Any]", value), dict[Any, Any]()
        for number, key in enumerate(fields, 1):
            name = redact(key) if isinstance(key, str) else key
            while name in redacted_fields:  # two names of persons become the same text
                name = f"{name} ({number})"
            redacted_fields[name] = _field(key, fields, redact, other)
        return redacted_fields
    if isinstance(value, list):
        return [redact_plain(below, redact, other) for below in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(redact_plain(below, redact, other) for below in cast("tuple[Any, ...]", value))
    return other(value)


def cached(redact: Redact) -> Redact:
    """Add a cache to `redact`: texts in data repeat."""
    seen: dict[str, str] = {}

    def once(text: str) -> str:
        if text not in seen:
            seen[text] = redact(text)
        return seen[text]

    return once


_SCHEMA = frozenset({"type", "$ref", "anyOf", "oneOf", "allOf", "enum"})
_NO_TEXT = frozenset({int, float, bool, NoneType})
_NAMES = ("name", "key", "Name", "Key")
_VALUES = ("value", "Value", "val")
_DESCRIPTIVE_KEY = re.compile(
    r"(?i)name|phone|mobile|tel|fax|birth|dob|born|ssn|social|passport|licen[cs]e|insur|patient|customer"
    r"|client"
    r"|employee|member|student|polic|claim|case|acc(?:oun)?t|mrn|record|street|addr|contact|owner|author"
    r"|report"
    r"|assign|manager|request|approve|by$|to$|from|caller|sender|recipient|user|login|host|server|node|pod"
    r"|ip$|forwarded|tax|national|nummer|number|card"
)
"""Keys that say what their value is, as in `{"customerName": "..."}`."""
_LONGEST_FIELD = 200
_SMALLEST_NUMBER = 10**12  # the smallest that can be a card number


def _field(key: Any, fields: Mapping[Any, Any], redact: Redact, other: Callable[[Any], Any]) -> Any:
    name, value = str(key), fields[key]
    if key in _VALUES:  # {"name": "API_KEY", "value": "..."}
        name = next((fields[name] for name in _NAMES if isinstance(fields.get(name), str)), name)
    is_schema = isinstance(value, dict) and bool(_SCHEMA.intersection(cast("dict[str, Any]", value)))
    if strength_of(name) > Strength.WEAK and not is_schema:
        return _withheld(value, name)
    if isinstance(value, str) and len(value) <= _LONGEST_FIELD and _DESCRIPTIVE_KEY.search(name):
        labelled = redact(f"{name}: {value}")
        if labelled.startswith(f"{name}: "):
            return labelled.removeprefix(f"{name}: ")
    return redact_plain(value, redact, other)


def _withheld(value: Any, name: str) -> Any:
    """The shape of a value without its content; true, null, counts and scores stay."""
    if isinstance(value, dict):
        return {key: _withheld(below, name) for key, below in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_withheld(below, name) for below in cast("list[Any]", value)]
    if isinstance(value, str):
        return value if is_placeholder(value) else mark(kind_of(name))
    is_count = isinstance(value, int | float) and strength_of(name) is Strength.TOKEN
    if isinstance(value, float) or value in (0, 1):  # a criterion may be named `password`
        return value
    return value if value is None or isinstance(value, bool) or is_count else mark(kind_of(name))
