"""Encode dataclasses and exceptions as JSON, and decode them by their types."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache, partial
from math import isfinite
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redraft import errors
from redraft.errors import ModelError, RedraftError, StoreError, UnfinishedError
from redraft.types import ISSUE_FIELDS, ConvergenceReason, Conversation, Issue, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter

T = TypeVar("T")

TAG = "$is"
"""The key under which a record names the class of a value; data of its own that has this key is wrapped."""


def to_json(value: Any) -> Any:
    """Return `value` as plain JSON data: dataclasses and models as objects, times in ISO 8601.

    An exception becomes its type and message; anything else without a JSON form becomes its `repr`.
    """
    kind = value.__class__
    return value if kind in _ITSELF else _form(kind, to_json)(value)


def to_record(value: Any) -> Any:
    """Return `value` as `to_json` does, for `from_record`: with the names of the models in it.

    Fields that have their defaults are left out, for a record is written at every step of a run. A default
    of Redraft's own classes says that there is nothing, and must not change its meaning.
    """
    kind = value.__class__
    return value if kind in _ITSELF else _form(kind, to_record)(value)


_ITSELF = frozenset({str, int, bool, NoneType})


@lru_cache
def _form(kind: type[Any], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what makes plain data of the values of a class; `plain` does so with what is in them.

    What is in them is given to its own form at once: to go there through `plain` is a call more for each.
    """
    tagged = plain is to_record
    if is_dataclass(kind) and kind.__module__.startswith("redraft."):
        defaults = [(field.name, field.default) for field in fields(kind)]
        return _form_of_own(defaults, plain)
    if issubclass(kind, Issue):  # a text, and more
        return _form_of_own([(name, None) for name in ISSUE_FIELDS], plain)
    if issubclass(kind, Enum):
        return lambda value: plain(value.value)
    if issubclass(kind, float):
        return _finite if tagged else _same
    if issubclass(kind, str | int):
        return _same
    if issubclass(kind, Mapping):
        return partial(_items, plain)
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda value: [
            item if item.__class__ in _ITSELF else _form(item.__class__, plain)(item) for item in value
        ]
    if issubclass(kind, datetime):
        return datetime.isoformat
    if issubclass(kind, type):
        return repr
    if issubclass(kind, BaseException):
        return lambda value: {"type": kind.__name__, "message": str(value)}
    if hasattr(kind, "model_dump"):  # a pydantic model, recognised without importing pydantic
        made = _dumped_model
    elif is_dataclass(kind):
        made = partial(_dumped_dataclass, kind)
    else:
        return repr
    name = f"{kind.__module__}:{kind.__qualname__}"
    return (lambda value: {TAG: name, "value": made(value)}) if tagged else made


def _form_of_own(defaults: list[tuple[str, Any]], plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    left_out = plain is to_record
    own = [(name, default if left_out else _NEVER) for name, default in defaults]

    def form(value: Any) -> dict[str, Any]:
        return {
            name: item if item.__class__ in _ITSELF else _form(item.__class__, plain)(item)
            for name, default in own
            if (item := getattr(value, name)) is not default
        }

    return form


_NEVER = object()


def _same(value: T) -> T:
    return value


def _finite(value: float) -> Any:
    return value if isfinite(value) else {TAG: "float", "value": str(value)}


def _items(plain: Callable[[Any], Any], mapping: Mapping[Any, Any]) -> Any:
    items = {
        str(key): item if item.__class__ in _ITSELF else _form(item.__class__, plain)(item)
        for key, item in mapping.items()
    }
    return {TAG: "object", "value": items} if TAG in items and plain is to_record else items


def _dumped_model(value: Any) -> Any:
    return value.model_dump(mode="json")


def _dumped_dataclass(kind: type[Any], value: Any) -> Any:
    return _adapter(kind).dump_python(value, mode="json")


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


MISTAKES = (TypeError, AttributeError, NameError)
"""What code with a mistake in it raises, whatever it is given: trying again never helps."""

OF_A_FUNCTION = "The function of the criterion "
"""How a note on an exception begins which a criterion's function raised."""


def is_of_a_function(error: BaseException) -> bool:
    """Say whether a criterion's function raised an error."""
    return any(note.startswith(OF_A_FUNCTION) for note in getattr(error, "__notes__", ()))


class RecordedError(RedraftError):
    """Stand in for an exception whose class can't be made again; its own class is named as that one was."""


def said_of(error: BaseException) -> str:
    """Return what an error says, after the name of its class where that is not Redraft's own.

    The message of another's may be a single word, as that of a `KeyError` is.
    """
    if isinstance(error, RedraftError) and not isinstance(error, RecordedError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def failure_to_json(error: Exception) -> dict[str, Any]:
    """Return an exception as JSON: type and message, what was paid on the way, and what a retry needs."""
    data = to_json(error)
    if isinstance(error, RedraftError) and error.usage is not None:
        data["usage"] = to_json(error.usage)
    if isinstance(error, ModelError):
        data |= {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    if isinstance(error, UnfinishedError):
        data |= {"reason": to_json(error.reason), "conversation": to_json(error.conversation)}
    return data


def failure_from_json(data: dict[str, Any]) -> Exception:
    """Return the exception that was written down: of the same class if that is Python's or Redraft's own.

    Any other becomes a `RecordedError`, which has its name and message.
    """
    name, message = data["type"], data["message"]
    if name == ModelError.__name__:
        failure: Exception = ModelError(
            message,
            status=data["status"],
            retryable=data["retryable"],
            retry_after=data["retry_after"],
        )
    elif name == UnfinishedError.__name__:
        reason, said = data["reason"], data["conversation"]
        failure = UnfinishedError(
            message,
            conversation=None if said is None else from_json(Conversation, said),
            reason=None if reason is None else ConvergenceReason(reason),
        )
    else:
        failure = _made_of(name, message)
    if isinstance(failure, RedraftError) and data.get("usage") is not None:
        failure.usage = from_json(TokenUsage, data["usage"])
    return failure


def _made_of(name: str, message: str) -> Exception:
    for place in (errors, builtins):
        kind: Any = vars(place).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # one that wants more than a message
                break
    return type(name, (RecordedError,), {})(message)
