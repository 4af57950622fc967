"""Values to JSON and back, by their types."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redraft.core.errors import StoreError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")

TAG = "$is"
"""The key under which a record names the class of a value; data of its own that has this key is wrapped."""


def to_json(value: Any) -> Any:
    """Return `value` as plain JSON data: dataclasses and models as objects, times in ISO 8601.

    An exception becomes its type and message; anything else without a JSON form becomes its `repr`.
    """
    return _plain(value, tagged=False)


def to_record(value: Any) -> Any:
    """Return `value` as `to_json` does, for `from_record`: with the names of the models in it.

    Fields that have their defaults are left out, for a record is written at every step of a run. A default
    of Redraft's own classes says that there is nothing, and must not change its meaning.
    """
    return _plain(value, tagged=True)


def _plain(value: Any, *, tagged: bool) -> Any:  # noqa: C901, PLR0911, PLR0912 (a case a line)
    kind = value.__class__
    if kind in _ITSELF:
        return value
    if kind is dict:  # what data is mostly made of goes first
        return _items(cast("dict[Any, Any]", value), tagged=tagged)
    if kind is list:
        return [_plain(item, tagged=tagged) for item in cast("list[Any]", value)]
    if (own := _own_fields(kind)) is not None:
        return {
            name: _plain(item, tagged=tagged)
            for name, default in own
            if not ((item := getattr(value, name)) is default and tagged)
        }
    if isinstance(value, Enum):
        return _plain(value.value, tagged=tagged)
    if isinstance(value, float) and tagged and not isfinite(value):
        return {TAG: "float", "value": str(value)}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return _items(cast("Mapping[Any, Any]", value), tagged=tagged)
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, tagged=tagged) for item in cast("list[Any]", value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, type):
        return repr(cast("object", value))
    if hasattr(value, "model_dump"):  # a pydantic model, recognised without importing pydantic
        return _named(value, value.model_dump(mode="json"), tagged=tagged)
    if isinstance(value, BaseException):
        return {"type": kind.__name__, "message": str(value)}
    if is_dataclass(value):
        return _named(value, _adapter(kind).dump_python(value, mode="json"), tagged=tagged)
    return repr(value)


def _items(mapping: Mapping[Any, Any], *, tagged: bool) -> Any:
    items = {str(key): _plain(item, tagged=tagged) for key, item in mapping.items()}
    return {TAG: "object", "value": items} if tagged and TAG in items else items


_ITSELF = frozenset({str, int, bool, NoneType})


@lru_cache
def _own_fields(kind: type) -> tuple[tuple[str, object], ...] | None:
    """Return the fields of a dataclass of Redraft's, each with its default; None for any other class."""
    if not is_dataclass(kind) or not kind.__module__.startswith("redraft."):
        return None
    return tuple((field.name, field.default) for field in fields(kind))


def _named(value: Any, data: Any, *, tagged: bool) -> Any:
    kind: type = value.__class__
    return {TAG: f"{kind.__module__}:{kind.__qualname__}", "value": data} if tagged else data


def from_json(kind: type[T], data: object) -> T:
    """Return `data` as a `kind`; raises `pydantic.ValidationError` where it does not fit."""
    return _adapter(kind).validate_python(data)


def from_record(kind: type[T], data: object) -> T:
    """Return what `to_record` made of a `kind`, its models and dataclasses included.

    Raises `StoreError` where the program does not have one of these classes (any more), or the data does not
    fit. Nothing is imported for it: what a record names is only looked up.
    """
    try:
        return from_json(kind, _restored(data))
    except ValueError as error:  # pydantic's own is one
        raise StoreError(f"A record does not fit {kind.__name__} any more: {error}") from error


def untagged(data: Any) -> Any:
    """Return what `to_record` made as `to_json` would have made it: to be read, with no class looked up."""
    if isinstance(data, list):
        return [untagged(item) for item in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, Any]", data)
    if TAG in items:
        return untagged(items["value"])
    return {key: untagged(item) for key, item in items.items()}


def _restored(data: object) -> object:
    if isinstance(data, list):
        return [_restored(item) for item in cast("list[object]", data)]
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, object]", data)
    if TAG not in items:
        return {key: _restored(item) for key, item in items.items()}
    name, value = str(items[TAG]), items["value"]
    if name == "float":
        return float(str(value))
    if name == "object":
        return {key: _restored(item) for key, item in cast("dict[str, object]", value).items()}
    return from_json(_class_named(name), value)


def _class_named(name: str) -> type[Any]:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not (hasattr(found, "model_validate") or is_dataclass(found)):
        raise StoreError(f"A record holds a {name!r}, which this program does not have.")
    return found


@lru_cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (a run that decodes nothing does not pay for it)

    return TypeAdapter(kind)
