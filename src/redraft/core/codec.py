"""Values to JSON and back, by their types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def to_json(value: Any) -> Any:  # noqa: PLR0911 (a case a line)
    """Return `value` as plain JSON data: dataclasses and models as objects, times in ISO 8601.

    An exception becomes its type and message; anything else without a JSON form becomes its `repr`.
    """
    if value is None or isinstance(value, str | int | float | bool):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in cast("list[Any]", value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return to_json(value.value)
    if hasattr(value, "model_dump"):  # a pydantic model, recognised without importing pydantic
        return value.model_dump(mode="json")
    if isinstance(value, BaseException):
        return {"type": type(value).__name__, "message": str(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    return repr(value)


def from_json(kind: type[T], data: object) -> T:
    """Return `data` as a `kind`; raises `pydantic.ValidationError` where it does not fit."""
    return _adapter(kind).validate_python(data)


@lru_cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (a run that decodes nothing does not pay for it)

    return TypeAdapter(kind)
