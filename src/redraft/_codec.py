"""Encode values as JSON and decode them by type: data classes, models and exceptions."""

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
from redraft.errors import (
    DamagedRecordError,
    ModelError,
    RedraftError,
    ReflectionFailedError,
    RejectedOutputError,
    SandboxError,
    StoreError,
    UnfinishedError,
    WorkflowError,
)
from redraft.types import (
    ISSUE_FIELDS,
    ConvergenceReason,
    Conversation,
    Issue,
    ReflectionHistory,
    TokenUsage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import TypeAdapter

T = TypeVar("T")

TAG = "$is"
"""The key under which a record names the class of a value; a mapping that has this key itself is wrapped."""


def to_json(value: Any) -> Any:
    """Return `value` as JSON data to be read: data classes and models as objects, times in ISO 8601.

    An exception becomes its type and message, and anything else without a JSON form its `repr`.
    """
    kind = value.__class__
    return value if kind in _PLAIN else _encoder(kind, to_json)(value)


def to_record(value: Any) -> Any:
    """Return `value` as JSON data from which `from_record` restores it, with the classes of users' models.

    Fields that have their defaults are left out, since a record is written at every step of a run. So the
    meaning of a default in Redraft's own classes must never change.
    """
    kind = value.__class__
    return value if kind in _PLAIN else _encoder(kind, to_record)(value)


_PLAIN = frozenset({str, int, bool, NoneType})


@lru_cache
def _encoder(kind: type[Any], encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the encoder of a class, for `encode`: `to_json` or `to_record`.

    Encoders look up those of nested values themselves: `encode` would be one more call for each.
    """
    tagged = encode is to_record
    if is_dataclass(kind) and kind.__module__.startswith("redraft."):
        return _object_encoder(
            [(field.name, field.default) for field in fields(kind) if field.metadata.get("recorded", True)],
            encode,
        )
    if issubclass(kind, Issue):  # before `str`, which it is a subclass of
        return _object_encoder([(name, None) for name in ISSUE_FIELDS], encode)
    if issubclass(kind, Enum):
        return lambda value: encode(value.value)
    if issubclass(kind, float):
        return _encode_float if tagged else _unchanged
    if issubclass(kind, str | int):
        return _unchanged
    if issubclass(kind, Mapping):
        return partial(_encode_mapping, encode)
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda value: [
            item if item.__class__ in _PLAIN else _encoder(item.__class__, encode)(item) for item in value
        ]
    if issubclass(kind, datetime):
        return datetime.isoformat
    if issubclass(kind, type):
        return repr
    if issubclass(kind, BaseException):
        return lambda value: {"type": kind.__name__, "message": str(value)}
    if hasattr(kind, "model_dump"):  # a pydantic model, recognised without importing pydantic
        dump = _dump_model
    elif is_dataclass(kind):
        dump = partial(_dump_dataclass, kind)
    else:
        return repr
    name = f"{kind.__module__}:{kind.__qualname__}"
    return (lambda value: {TAG: name, "value": dump(value)}) if tagged else dump


def _object_encoder(defaults: list[tuple[str, Any]], encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    omitted = [(name, default if encode is to_record else _NEVER) for name, default in defaults]

    def encode_object(value: Any) -> dict[str, Any]:
        return {
            name: item if item.__class__ in _PLAIN else _encoder(item.__class__, encode)(item)
            for name, default in omitted
            if (item := getattr(value, name)) is not default
        }

    return encode_object


_NEVER = object()


def _unchanged(value: T) -> T:
    return value


def _encode_float(value: float) -> Any:
    return value if isfinite(value) else {TAG: "float", "value": str(value)}


def _encode_mapping(encode: Callable[[Any], Any], mapping: Mapping[Any, Any]) -> Any:
    items = {
        str(key): item if item.__class__ in _PLAIN else _encoder(item.__class__, encode)(item)
        for key, item in mapping.items()
    }
    return {TAG: "object", "value": items} if TAG in items and encode is to_record else items


def _dump_model(value: Any) -> Any:
    return value.model_dump(mode="json", by_alias=True)


def _dump_dataclass(kind: type[Any], value: Any) -> Any:
    return _adapter(kind).dump_python(value, mode="json", by_alias=True)


def from_json(kind: type[T], data: object) -> T:
    """Return `data` as a `kind`; raises `pydantic.ValidationError` if it does not fit."""
    return _adapter(kind).validate_python(data)


def from_record(kind: type[T], data: object) -> T:
    """Return the `kind` that `to_record` encoded, including users' models and data classes.

    Raises `DamagedRecordError` if the data does not fit, and `StoreError` if the program does not have one of
    the classes. Nothing is imported: a class that a record names is only looked up, so a record cannot load
    code.
    """
    try:
        return from_json(kind, _restore(data))
    except ValueError as error:  # includes pydantic's ValidationError
        raise DamagedRecordError(
            f"A record can't be read as {kind.__name__}; if a newer Redraft wrote it, upgrade: {error}"
        ) from error


def without_tags(data: Any) -> Any:
    """Return a record as `to_json` would have encoded it: to be read, without looking up any class."""
    if isinstance(data, list):
        return [without_tags(item) for item in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, Any]", data)
    if TAG in items:
        return without_tags(items["value"])
    return {key: without_tags(item) for key, item in items.items()}


def _restore(data: object) -> object:
    if isinstance(data, list):
        return [_restore(item) for item in cast("list[object]", data)]
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, object]", data)
    if TAG not in items:
        return {key: _restore(item) for key, item in items.items()}
    name, value = str(items[TAG]), items["value"]
    if name == "float":
        return float(str(value))
    if name == "object":
        return {key: _restore(item) for key, item in cast("dict[str, object]", value).items()}
    return from_json(_class_named(name), value)


def is_record(kind: type[Any]) -> bool:
    """Return whether a class is a pydantic model or a data class."""
    return hasattr(kind, "model_validate") or is_dataclass(kind)


def _class_named(name: str) -> type[Any]:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not is_record(found):
        raise StoreError(
            f"A record contains the class {name!r}, which is not loaded here; import its module first."
        )
    return found


@lru_cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (only decoding needs it)

    return TypeAdapter(kind)


MISTAKES = (TypeError, AttributeError, NameError)
"""What a bug in a function raises; trying again does not help."""

CRITERION_FUNCTION_NOTE = "The function of the criterion "
"""The beginning of the note on an exception that a criterion's function raised."""


def is_from_criterion_function(error: BaseException) -> bool:
    """Return whether an error was raised by a criterion's function."""
    return any(note.startswith(CRITERION_FUNCTION_NOTE) for note in getattr(error, "__notes__", ()))


class RecordedError(RedraftError):
    """A recorded exception whose class cannot be restored; its subclass has the name of that class."""


def describe_error(error: BaseException) -> str:
    """Return an error's message, preceded by the name of its class unless that is one of Redraft's.

    The messages of others may be a single word, like that of a `KeyError`.
    """
    if isinstance(error, RedraftError) and not isinstance(error, RecordedError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def failure_to_json(error: Exception) -> dict[str, Any]:
    """Return an exception as JSON data: its type, message and usage, and what a retry needs to know."""
    data = to_json(error)
    if isinstance(error, RedraftError) and error.usage is not None:
        data["usage"] = to_json(error.usage)
    if isinstance(error, ModelError):
        data |= {"status": error.status, "retryable": error.retryable, "retry_after": error.retry_after}
    if isinstance(error, WorkflowError):
        place = {"file": error.file, "line": error.line, "node": error.node, "key": error.key}
        data |= {"retryable": error.retryable, "place": place}
    if isinstance(error, UnfinishedError):
        data |= {"reason": to_json(error.reason), "conversation": to_json(error.conversation)}
        data["partial"] = to_record(error.partial)
    if isinstance(error, SandboxError):
        data["line"] = error.line
    if isinstance(error, RejectedOutputError):
        data |= {"output": to_record(error.output), "why": error.why}
    if isinstance(error, ReflectionFailedError):
        data["history"] = to_record(error.history)
    return data


_ANY = cast("type[Any]", Any)


def failure_from_json(data: dict[str, Any]) -> Exception:
    """Return the exception that `failure_to_json` encoded.

    It has the same class if that is one of Python's or Redraft's. Any other becomes a subclass of
    `RecordedError` with the same name and message.
    """
    name, message = data["type"], data["message"]
    if name == ModelError.__name__:
        failure: Exception = ModelError(
            message,
            status=data["status"],
            retryable=data["retryable"],
            retry_after=data["retry_after"],
        )
    elif name == WorkflowError.__name__:
        failure = WorkflowError(message, retryable=data.get("retryable", False), **data.get("place", {}))
    elif name == UnfinishedError.__name__:
        reason, conversation = data["reason"], data["conversation"]
        failure = UnfinishedError(
            message,
            conversation=None if conversation is None else from_json(Conversation, conversation),
            reason=None if reason is None else ConvergenceReason(reason),
        )
        failure.partial = from_record(_ANY, data.get("partial"))
    elif name == RejectedOutputError.__name__:
        output = from_record(_ANY, data.get("output"))
        failure = RejectedOutputError(message, output=output, why=data.get("why", ""))
    elif name == ReflectionFailedError.__name__:
        history: Any = data.get("history")
        of_run = isinstance(history, dict)  # and a list of attempts if it is from a workflow's loop
        kind = cast("type[Any]", ReflectionHistory) if of_run else _ANY
        failure = ReflectionFailedError(message, from_record(kind, cast("object", history)))
    else:
        failure = _exception_named(name, message)
    if isinstance(failure, SandboxError):
        failure.line = data.get("line")
    if isinstance(failure, RedraftError) and data.get("usage") is not None:
        failure.usage = from_json(TokenUsage, data["usage"])
    return failure


def _exception_named(name: str, message: str) -> Exception:
    for module in (errors, builtins):
        kind: Any = vars(module).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(message)
            except TypeError:  # its constructor needs more than a message
                break
    return type(name, (RecordedError,), {})(message)
