"""Encode values as JSON and decode them by type: data classes, models and exceptions."""

from __future__ import annotations

import builtins
import json
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta, timezone
from enum import Enum
from functools import cached_property, lru_cache, partial
from hashlib import sha256
from importlib import import_module
from math import isfinite
from operator import attrgetter
from types import CodeType, NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from redraft import errors
from redraft._pointers import pointer
from redraft._validation import named_error, readable, repr_of
from redraft.errors import (
    ConfigError,
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
"""The key under which a record names the class of a value; a mapping that already has this key is wrapped."""


def to_json(value: Any) -> Any:
    """Convert a value to JSON data for reading: data classes and models as objects, times in ISO 8601.

    An exception becomes its type and message; any other value without a JSON form, its `repr`.
    """
    return _encoded(value, READ)


def plain_data(value: Any, what: str) -> Any:
    """Copy a value as plain JSON data: models and data classes as objects, times in ISO 8601.

    Raises `ConfigError`, whose message begins with `what`, for other values, NaN and infinities included, and
    for keys that become the same text.
    """
    try:
        data = json_form(value)
        json.dumps(data, allow_nan=False)
    except ValueError as error:  # pydantic's own is one
        raise ConfigError(f"{what} is not JSON data: {error}") from error
    return data


def json_form(value: Any, **options: Any) -> Any:
    """Convert a value to JSON data as pydantic does; raises `ValueError` for a value without a JSON form.

    That includes a mapping with keys that become the same text, such as 1 and "1": one would be lost.
    """
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 (records do not need it)

    data = to_jsonable_python(value, **options)
    pending = [value]
    while pending:
        part = pending.pop()
        if (kind := part.__class__) in _PLAIN:
            continue
        if kind is dict or isinstance(part, Mapping):
            items = cast("Mapping[Any, Any]", part)
            if any(key.__class__ is not str for key in items):
                keys: dict[str, Any] = {}
                for key in items:
                    [text] = to_jsonable_python({key: None}, **options)
                    if text in keys:
                        raise ValueError(f"the keys {keys[text]!r} and {key!r} both become {text!r}")
                    keys[text] = key
            pending += items.values()
        elif isinstance(part, list | tuple | set | frozenset):
            pending += cast("Iterable[Any]", part)
        elif is_record(kind):
            names = kind.model_fields if _is_model(kind) else map(_NAME, fields(part))
            pending += [getattr(part, name, None) for name in names]
    return data


def to_record(value: Any) -> Any:
    """Convert a value to JSON data from which `from_record` restores it, equal and of the same class.

    A part for which that is impossible becomes a marker: `unrestorable_in` names it, and `from_record`
    refuses to restore it.

    Fields with their defaults are left out, because a record is written at every step of a run. So the
    meaning of a default in Redraft's own classes must never change.
    """
    try:
        return _encoded(value, TYPED if _is_own(value.__class__) else EXACT)
    except RecursionError:
        return _marker("the value contains itself, or is nested too deeply", value)


def unrestorable_in(data: Any, path: str = "") -> Iterator[str]:
    """Describe each value in a record that can't be restored: its JSON pointer, and the reason."""
    if isinstance(data, list):
        for index, item in enumerate(cast("list[Any]", data)):
            if item.__class__ not in _PLAIN:
                yield from unrestorable_in(item, f"{path}/{index}")
    elif isinstance(data, dict):
        items = cast("dict[str, Any]", data)
        if items.get(TAG) == UNRESTORABLE:
            yield f"{path}: {items['reason']}" if path else str(items["reason"])
            return
        for key, item in items.items():
            if item.__class__ not in _PLAIN:  # the parts of an object that names its class have its path
                yield from unrestorable_in(item, path if TAG in items else path + pointer([key]))


class _UnrestorableError(Exception):
    """A value has no form from which it can be restored."""


_Mode: TypeAlias = Literal["read", "typed", "exact"]
READ: _Mode = "read"
"""For people: nothing is restored from the data."""
TYPED: _Mode = "typed"
"""For a field whose type says the class of its value."""
EXACT: _Mode = "exact"
"""For a value of any class: the data names each class that JSON does not have."""

UNRESTORABLE = "unrestorable"
"""The tag of a marker, which has only a readable form of the value, and the reason."""

_PLAIN = frozenset({str, int, bool, NoneType})

_UNTYPED = re.compile(r"\b(?:Any|object|Output|OutputT|Item)\b")
"""Matches the annotations of the fields whose values may be of any class."""


def _encoded(value: Any, mode: _Mode) -> Any:
    kind = value.__class__
    return value if kind in _PLAIN else _encoder(kind, mode)(value)


def _is_own(kind: type[Any]) -> bool:
    return issubclass(kind, Issue) or (is_dataclass(kind) and kind.__module__.startswith("redraft."))


@lru_cache(512)
def _encoder(kind: type[Any], mode: _Mode) -> Callable[[Any], Any]:
    if _is_own(kind):  # before `str`, of which an issue is a subclass
        encode = _object_encoder(kind, mode)
        return _tagging(_name_of(kind), encode) if mode == EXACT else encode
    if mode == EXACT:
        return _exact_encoder(kind)
    if issubclass(kind, Enum):
        return lambda value: _encoded(value.value, mode)
    if issubclass(kind, float):
        return _encode_float if mode == TYPED else _unchanged
    if issubclass(kind, str | int):
        return _unchanged
    if issubclass(kind, Mapping):
        return partial(_encode_mapping, mode)
    if issubclass(kind, list | tuple | set | frozenset):
        return partial(_encode_items, mode)
    if issubclass(kind, datetime):
        return datetime.isoformat
    if mode == TYPED:
        return _exact_encoder(kind)
    if issubclass(kind, type):
        return repr_of
    if issubclass(kind, BaseException):
        return lambda value: {"type": kind.__name__, "message": readable(value)}
    if hasattr(kind, "model_dump"):  # a pydantic model, recognised without importing pydantic
        return lambda value: value.model_dump(mode="json", by_alias=True)
    if is_dataclass(kind):
        return lambda value: _adapter(kind).dump_python(value, mode="json", by_alias=True)
    return repr_of


def _exact_encoder(kind: type[Any]) -> Callable[[Any], Any]:
    """Make an encoder that names the class of a value unless JSON has it; it marks what can't be restored."""
    if kind in _PLAIN:
        return _unchanged
    if kind is float:
        return _encode_float
    if kind is list:
        return partial(_encode_items, EXACT)
    if kind is dict:
        return partial(_encode_mapping, EXACT)
    name = _name_of(kind)
    if (builtin := _BUILTINS.get(name)) is not None:
        parts_of = builtin[0]
        encode = _tagging(name, lambda value: _encoded(parts_of(value), EXACT))
    elif reason := why_unrestorable(kind):
        return partial(_marker, reason)
    elif is_record(kind):
        encode = partial(_encode_state, name, _state_of_model if _is_model(kind) else _state_of_dataclass)
    else:
        encode = _tagging(name, partial(_encode_plain_value, kind))
    return partial(_encode_or_mark, encode)


def why_unrestorable(kind: type[Any]) -> str:
    """Explain why the store can't restore values of a class; empty if the class is no obstacle."""
    name = _name_of(kind)
    if kind in (*_PLAIN, float, list, dict) or name in _BUILTINS or _is_own(kind):
        return ""
    if not _is_restorable(kind):
        return f"the store can't hold a value of the class {kind.__qualname__!r}"
    if _class_if_loaded(name) is not kind:
        return f"the module {kind.__module__!r} has no class of the name {kind.__qualname__!r}"
    return ""


def _encode_or_mark(encode: Callable[[Any], Any], value: Any) -> Any:
    try:
        return encode(value)
    except _UnrestorableError as error:
        return _marker(str(error), value)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001 (a user's class may raise anything)
        return _marker(f"reading it raises {describe_error(error)}", value)


def _marker(reason: str, value: Any) -> dict[str, Any]:
    rendered: Any = f"<{value.__class__.__qualname__}>"
    for render in (to_json, repr_of):
        with suppress(Exception):  # a user's class may raise anything
            rendered = render(value)
            break
    return {TAG: UNRESTORABLE, "value": rendered, "reason": reason}


def _tagging(name: str, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: {TAG: name, "value": encode(value)}


def _name_of(kind: type[Any]) -> str:
    return f"{kind.__module__.removesuffix('._local')}:{kind.__qualname__}"  # `pathlib._local` in Python 3.13


def _object_encoder(kind: type[Any], mode: _Mode) -> Callable[[Any], Any]:
    """Make the encoder of one of Redraft's own classes, whose fields restore the types of their values."""
    if issubclass(kind, Issue):
        described: list[tuple[str, Any, Any]] = [(name, None, str) for name in ISSUE_FIELDS]
    else:
        described = [
            (field.name, field.default, field.type)
            for field in fields(kind)
            if field.metadata.get("recorded", True)
        ]
    encoded: list[tuple[str, Any, _Mode]] = [
        (name, _NEVER, READ)
        if mode == READ
        else (name, default, EXACT if _UNTYPED.search(str(annotation)) else TYPED)
        for name, default, annotation in described
    ]

    def encode_object(value: Any) -> dict[str, Any]:
        return {
            name: item if item.__class__ in _PLAIN else _encoder(item.__class__, mode)(item)
            for name, default, mode in encoded
            if (item := getattr(value, name)) is not default
        }

    return encode_object


_NEVER = object()
_NAME = attrgetter("name")


def _unchanged(value: T) -> T:
    return value


def _encode_float(value: float) -> Any:
    return value if isfinite(value) else {TAG: "float", "value": str(value)}


def _encode_items(mode: _Mode, items: Iterable[Any]) -> list[Any]:
    return [item if item.__class__ in _PLAIN else _encoder(item.__class__, mode)(item) for item in items]


def _encode_mapping(mode: _Mode, mapping: Mapping[Any, Any]) -> Any:
    if mode == EXACT and any(key.__class__ is not str for key in mapping):
        return {TAG: "pairs", "value": [_encode_items(mode, pair) for pair in mapping.items()]}
    items = {
        str(key): item if item.__class__ in _PLAIN else _encoder(item.__class__, mode)(item)
        for key, item in mapping.items()
    }
    if len(items) < len(mapping) and mode == READ:  # keys such as 1 and "1"
        return repr_of(mapping)
    return {TAG: "object", "value": items} if TAG in items and mode != READ else items


# Values of other classes: of the standard library, and of users.


def _is_model(kind: type[Any]) -> bool:
    return hasattr(kind, "model_validate")  # a pydantic model, recognised without importing pydantic


def _is_restorable(kind: Any) -> bool:
    if is_record(kind):
        try:
            object.__new__(kind)
        except TypeError:  # its instances are dictionaries or exceptions, say, with a content of their own
            return False
        return True
    is_named_tuple = issubclass(kind, tuple) and "_fields" in dir(cast("object", kind))
    return is_named_tuple or issubclass(kind, (Enum, *_BASES))


_BASES = (str, int, float, bytes)
"""The builtin classes whose subclasses are restored by a call with the plain value."""


def _encode_plain_value(kind: type[Any], value: Any) -> Any:
    if isinstance(value, Enum):
        plain = value.value
    elif isinstance(value, tuple):
        plain = list(cast("tuple[Any, ...]", value))
    else:
        base = next(base for base in _BASES if isinstance(value, base))
        plain = cast("Any", base).__getnewargs__(value)[0]
    try:
        again = _rebuilt(kind, plain)
        is_equal = again.__class__ is kind and bool(again == value or value != value)  # noqa: PLR0124 (NaN)
    except Exception as error:
        raise _UnrestorableError(
            f"{kind.__qualname__}({plain!r:.60}) raises {describe_error(error)}"
        ) from error
    if not is_equal:
        raise _UnrestorableError(f"{kind.__qualname__}({plain!r:.60}) is not equal to the value")
    return _encoded(plain, EXACT)


def _rebuilt(kind: type[Any], plain: Any) -> Any:
    return cast("Any", kind)._make(plain) if issubclass(kind, tuple) else kind(plain)


def _encode_state(name: str, state_of: Callable[[Any], dict[str, Any]], value: Any) -> Any:
    """Encode the attributes of a model or data class. Another validation might change or reject them."""
    parts = {
        part: {key: _encoded(item, EXACT) for key, item in cast("dict[str, Any]", items).items()}
        if isinstance(items, dict)
        else items
        for part, items in state_of(value).items()
    }
    return {TAG: name, **parts}


def _state_of_dataclass(value: Any) -> dict[str, Any]:
    kind = value.__class__
    state = {field.name: getattr(value, field.name) for field in fields(kind) if hasattr(value, field.name)}
    others = {
        name: item
        for name, item in getattr(value, "__dict__", {}).items()
        if name not in state and not isinstance(getattr(kind, name, None), cached_property)
    }
    return {"fields": state, **({"others": others} if others else {})}


def _state_of_model(value: Any) -> dict[str, Any]:
    names = value.__class__.model_fields
    state = {name: item for name, item in value.__dict__.items() if name in names}
    if missing := names.keys() - state:
        raise _UnrestorableError(f"the {value.__class__.__qualname__!r} has no {min(missing)!r}")
    parts: dict[str, Any] = {"fields": state}
    if value.model_fields_set != set(names):
        parts["given"] = sorted(value.model_fields_set)
    if value.__pydantic_extra__ is not None:
        parts["extra"] = value.__pydantic_extra__
    if value.__pydantic_private__ is not None:
        parts["private"] = value.__pydantic_private__
    return parts


def _with_state(kind: type[Any], parts: dict[str, Any]) -> Any:
    """Restore an instance from its state; raises `ValueError` if its class has other fields now."""
    state, value = parts["fields"], object.__new__(kind)
    names: Iterable[str] = kind.model_fields if _is_model(kind) else [field.name for field in fields(kind)]
    if not set(state) <= set(names) or (_is_model(kind) and set(names) - set(state)):
        raise ValueError(f"the class {kind.__qualname__!r} had other fields when the record was written")
    if not _is_model(kind):
        for name, item in {**state, **parts.get("others", {})}.items():
            object.__setattr__(value, name, item)
        return value
    attributes = {
        "__dict__": state,
        "__pydantic_fields_set__": set(parts.get("given", names)),
        "__pydantic_extra__": parts.get("extra"),
        "__pydantic_private__": parts.get("private"),
    }
    for name, item in attributes.items():
        object.__setattr__(value, name, item)
    return value


def _zone_of(value: Any) -> Any:
    """The time zone of a time as JSON data: a name, an offset in seconds, or None."""
    if value.tzinfo is None:
        return None
    if (key := getattr(value.tzinfo, "key", None)) is not None:
        return key
    offset = value.utcoffset()
    if offset is None or value.replace(tzinfo=timezone(offset)) != value:
        raise _UnrestorableError(f"the time zone {value.tzinfo!r} can't be stored")
    return offset.total_seconds()


def _key_of_zone(value: Any) -> str:
    if value.key is None:
        raise _UnrestorableError(f"the time zone {value!r} can't be stored")
    return value.key


def _in_zone(value: Any, fold: int, zone: Any) -> Any:
    if isinstance(zone, str):
        from zoneinfo import ZoneInfo  # noqa: PLC0415 (rarely needed)

        return value.replace(tzinfo=ZoneInfo(zone), fold=fold)
    tz = None if zone is None else timezone(timedelta(seconds=zone))
    return value.replace(tzinfo=tz, fold=fold)


def _factory_of(value: Any) -> str | None:
    factory = value.default_factory
    if factory is None or vars(builtins).get(getattr(factory, "__name__", "")) is factory:
        return None if factory is None else factory.__name__
    raise _UnrestorableError(f"a defaultdict with the factory {factory!r} can't be stored")


def _called(kind: Any, parts: Any) -> Any:
    return kind(parts)


def _spread(kind: Any, parts: Any) -> Any:
    return kind(*parts)


_BUILTINS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    **dict.fromkeys(
        ("builtins:tuple", "builtins:set", "builtins:frozenset", "redraft.types:FrozenList"), (list, _called)
    ),
    **dict.fromkeys(
        ("builtins:bytes", "builtins:bytearray"),
        (lambda value: b64encode(value).decode(), lambda kind, text: kind(b64decode(text))),
    ),
    "builtins:complex": (lambda value: [value.real, value.imag], _spread),
    "builtins:range": (lambda value: [value.start, value.stop, value.step], _spread),
    "builtins:slice": (lambda value: [value.start, value.stop, value.step], _spread),
    "datetime:date": (lambda value: value.isoformat(), lambda kind, text: kind.fromisoformat(text)),
    **dict.fromkeys(
        ("datetime:datetime", "datetime:time"),
        (
            lambda value: [value.replace(tzinfo=None).isoformat(), value.fold, _zone_of(value)],
            lambda kind, parts: _in_zone(kind.fromisoformat(parts[0]), parts[1], parts[2]),
        ),
    ),
    "datetime:timedelta": (lambda value: [value.days, value.seconds, value.microseconds], _spread),
    "datetime:timezone": (
        lambda value: value.utcoffset(None).total_seconds(),
        lambda kind, seconds: kind(timedelta(seconds=seconds)),
    ),
    **dict.fromkeys(
        (
            "decimal:Decimal",
            "fractions:Fraction",
            "uuid:UUID",
            *(f"ipaddress:IPv{n}{what}" for n in (4, 6) for what in ("Address", "Network", "Interface")),
            *(f"pathlib:{pure}{system}Path" for pure in ("", "Pure") for system in ("Posix", "Windows")),
        ),
        (str, _called),
    ),
    "zoneinfo:ZoneInfo": (_key_of_zone, _called),
    "re:Pattern": (
        lambda value: [value.pattern, value.flags],
        lambda _, parts: re.compile(*parts),
    ),
    "collections:deque": (lambda value: [list(value), value.maxlen], _spread),
    "collections:Counter": (dict, _called),
    "collections:OrderedDict": (dict, _called),
    "collections:defaultdict": (
        lambda value: [_factory_of(value), dict(value)],
        lambda kind, parts: kind(parts[0] and vars(builtins)[parts[0]], parts[1]),
    ),
}
"""Functions that split a value of the standard library into parts, and rebuild it."""


def from_json(kind: type[T], data: object) -> T:
    """Validate data as a `kind`; raises `pydantic.ValidationError`."""
    return _adapter(kind).validate_python(data)


def from_record(kind: type[T], data: object) -> T:
    """Restore a value that `to_record` encoded, including users' models and data classes.

    Raises `DamagedRecordError` if the data does not fit, and `StoreError` if a class is not loaded. Nothing
    is imported: a class that a record names is only looked up, so a record cannot load code.
    """
    with _reading(kind, data):
        return from_json(kind, _walked(data, _restored))


def read_only(kind: type[T], data: object) -> T:
    """Convert a record to a `kind` for reading: outputs of users' classes are plain data.

    Raises `DamagedRecordError` if the data does not fit.
    """
    with _reading(kind, data):
        return from_json(kind, without_tags(data))


@contextmanager
def _reading(kind: type[Any], data: object) -> Generator[None]:
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        name: tuple[str, str] | None = getattr(data, "name", None)  # of data that a store has read
        record = "A record" if name is None else f"The record {name[0]!r} {name[1]!r} is damaged: it"
        what = f"can't be read as {kind.__name__}; if a newer Redraft wrote it, upgrade"
        raise DamagedRecordError(f"{record} {what}: {_brief(error)}") from error


def _brief(error: Exception) -> str:
    """The first mistake of a `pydantic.ValidationError`, or the message of another error."""
    for first in getattr(error, "errors", list[Any])()[:1]:
        return f"{pointer(first['loc'])}: {first['msg']}"
    return str(error) if isinstance(error, ValueError) else named_error(error)


def _is_tagged(items: Mapping[str, Any]) -> bool:
    """Whether an object names its class; the columns of an index may have a criterion of that name."""
    return TAG in items and not items.keys().isdisjoint(("value", "fields"))


def _walked(data: Any, convert: Callable[[str, dict[str, Any]], Any]) -> Any:
    """Copy JSON data, with `convert` called on the name and the items of each object that names its class."""
    if isinstance(data, list):
        return [_walked(item, convert) for item in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    items = cast("dict[str, Any]", data)
    if _is_tagged(items):
        return convert(str(items[TAG]), items)
    return {key: _walked(item, convert) for key, item in items.items()}


def without_tags(data: Any) -> Any:
    """Convert a record to data for reading, without looking up any class."""
    return _walked(data, _plain_form)


def _plain_form(name: str, items: dict[str, Any]) -> Any:
    if "fields" in items:
        return without_tags({**items["fields"], **(items.get("extra") or {})})
    value = items["value"]
    if name == "pairs":
        return {str(without_tags(key)): without_tags(item) for key, item in value}
    if name in ("datetime:datetime", "datetime:time"):
        return _rebuilt_builtin(name, value).isoformat()
    if name == "object":
        return {key: without_tags(item) for key, item in value.items()}
    return without_tags(value)


def _restored(name: str, items: dict[str, Any]) -> Any:
    if name == UNRESTORABLE:
        raise StoreError(
            f"A record has only the text of a value, not the value: {items['reason']}. Start a new run."
        )
    if "fields" in items:
        parts = {
            part: {key: _walked(item, _restored) for key, item in cast("dict[str, Any]", attributes).items()}
            if isinstance(attributes, dict)
            else attributes
            for part, attributes in items.items()
        }
        return _with_state(_class_named(name), parts)
    value = items["value"]
    if name == "float":
        return float(str(value))
    if name == "object":
        return {key: _walked(item, _restored) for key, item in value.items()}
    if name == "pairs":
        return {_walked(key, _restored): _walked(item, _restored) for key, item in value}
    if name in _BUILTINS:
        return _rebuilt_builtin(name, _walked(value, _restored))
    kind = _class_named(name)
    if _is_own(kind):
        return from_json(kind, _walked(value, _restored))
    return from_json(kind, value) if is_record(kind) else _rebuilt(kind, _walked(value, _restored))


def _rebuilt_builtin(name: str, parts: Any) -> Any:
    module, _, kind = name.partition(":")  # a name of the table, so of the standard library
    return _BUILTINS[name][1](getattr(import_module(module), kind), parts)


def is_record(kind: Any) -> bool:
    """Whether a class is a pydantic model or a data class; an enumeration of data objects is not."""
    return (_is_model(kind) or is_dataclass(kind)) and not issubclass(cast("type[Any]", kind), Enum)


def _class_named(name: str) -> type[Any]:
    kind = _class_if_loaded(name)
    if kind is None:
        raise StoreError(
            f"A record contains the class {name!r}, which is not loaded here; import its module first."
        )
    return kind


def _class_if_loaded(name: str) -> type[Any] | None:
    """The class of a name, if it is loaded and its values can be restored."""
    module, _, path = name.partition(":")
    kind: Any = sys.modules.get(module)
    for part in path.split("."):
        kind = getattr(kind, part, None)
    return kind if isinstance(kind, type) and (_is_own(kind) or _is_restorable(kind)) else None


@lru_cache
def _adapter(kind: type[T]) -> TypeAdapter[T]:
    from pydantic import TypeAdapter  # noqa: PLC0415 (only decoding needs it)

    return TypeAdapter(kind)


MISTAKES = (TypeError, AttributeError, NameError)
"""Errors that mean a bug in a function, so that a retry does not help."""


def describe_error(error: BaseException) -> str:
    """The message of an error, preceded by the name of its class unless it is one of Redraft's.

    Messages of other errors may be a single word, like that of a `KeyError`.
    """
    return readable(error) if isinstance(error, RedraftError) else named_error(error)


def failure_to_json(error: Exception) -> dict[str, Any]:
    """Convert an exception to JSON data: its type, message, usage, and the attributes that a retry needs.

    For a class of neither Python nor Redraft, that includes its nearest base class of these.
    """
    data = to_json(error)
    if (base := next(filter(_is_shared, type(error).__mro__))) is not type(error):
        data["base"] = base.__name__
    if isinstance(error, RedraftError) and error.usage is not None:
        data["usage"] = to_json(error.usage)
    if isinstance(error, WorkflowError):
        data["place"] = {name: getattr(error, name) for name in ("file", "line", "node", "key")}
    return data | {name: encode(getattr(error, name)) for name, (encode, _) in _attributes_of(error).items()}


def failure_from_json(data: dict[str, Any]) -> Exception:
    """Restore an exception that `failure_to_json` encoded.

    Exceptions of Python and of Redraft have the same class again. Any other gets a class of the same name,
    derived from its nearest base class of Python or Redraft.
    """
    failure: Any = _exception(_failure_class(data.get("base", data["type"])), data["type"], data["message"])
    for name, value in data.get("place", {}).items():
        setattr(failure, name, value)
    for name, (_, decode) in _attributes_of(failure).items():
        if name in data:
            setattr(failure, name, decode(data[name]))
    if data.get("usage") is not None:
        failure.usage = from_json(TokenUsage, data["usage"])
    return failure


_Attribute: TypeAlias = "tuple[Callable[[Any], Any], Callable[[Any], Any]]"


def _attributes_of(error: Exception) -> dict[str, _Attribute]:
    """The attributes of an exception that are recorded, with the functions that encode and decode them."""
    return {
        name: attribute
        for kind, attributes in _ATTRIBUTES.items()
        if isinstance(error, kind)
        for name, attribute in attributes.items()
    }


def _optional(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda data: None if data is None else from_json(kind, data)


def _history(data: Any) -> Any:
    """The history of a run, or the list of attempts of a workflow's loop."""
    return from_record(cast("type[Any]", ReflectionHistory if data.__class__ is dict else Any), data)


_AS_IT_IS: _Attribute = (_unchanged, _unchanged)
_OF_ANY_CLASS: _Attribute = (to_record, partial(from_record, cast("type[Any]", Any)))
_ATTRIBUTES: dict[type[Exception], dict[str, _Attribute]] = {
    ModelError: dict.fromkeys(
        ("status", "retryable", "retry_after", "over_quota", "unusable_reply"), _AS_IT_IS
    ),
    WorkflowError: {"retryable": _AS_IT_IS},
    UnfinishedError: {
        "reason": (to_json, _optional(ConvergenceReason)),
        "conversation": (to_json, _optional(Conversation)),
        "partial": _OF_ANY_CLASS,
    },
    SandboxError: {"line": _AS_IT_IS},
    RejectedOutputError: {"output": _OF_ANY_CLASS, "why": _AS_IT_IS},
    ReflectionFailedError: {"history": (to_record, _history)},
}


def _failure_class(name: str) -> type[Exception]:
    """The exception of Redraft or Python with a name; `Exception` if there is none."""
    kinds = (vars(module).get(name) for module in (errors, builtins))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Exception)), Exception)


def _is_shared(kind: type[Any]) -> bool:
    return kind in (vars(errors).get(kind.__name__), vars(builtins).get(kind.__name__))


def _renamed(kind: type[Exception], name: str) -> type[Exception]:
    return kind if kind.__name__ == name else type(name, (kind,), {})


def _exception(base: type[Exception], name: str, message: str) -> Exception:
    """An exception of the first class, among this one and its bases, that needs no more than a message."""
    for kind in base.__mro__:
        with suppress(TypeError):
            return _renamed(kind, name)(message)
    raise AssertionError("every exception takes a message")


# --- fingerprints ---------------------------------------------------------------------------------------


def fingerprint(value: Any) -> str:
    """A short digest of a definition, the same in every process with the same code."""
    return sha256(json.dumps(_plain(value)).encode()).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """A value as JSON data that does not depend on the process; functions by their code."""
    if value is None or isinstance(value, str | int | float):
        return value if not isinstance(value, float) else repr(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        plain = {str(key): _plain(items[key]) for key in sorted(items, key=str)}
        return (
            plain if len(plain) == len(items) else [[repr(key), _plain(item)] for key, item in items.items()]
        )
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        return sorted(json.dumps(_plain(item)) for item in cast("set[Any]", value))
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if is_dataclass(value):
        return {
            "class": type(value).__qualname__,
            **{field.name: _plain(getattr(value, field.name, None)) for field in fields(value) if field.init},
        }
    if hasattr(value, "__code__"):
        return [value.__module__, value.__qualname__, _plain(value.__code__)]
    if isinstance(value, CodeType):
        # Not its repr: it has an address, and the repr of a set has an order of the process.
        constants = [_plain(each) if isinstance(each, _NESTED) else repr(each) for each in value.co_consts]
        text = json.dumps([value.co_names, constants])
        return sha256(value.co_code + text.encode()).hexdigest()[:12]
    name = getattr(value, "name", None)
    return [type(value).__module__, type(value).__qualname__, name if isinstance(name, str) else ""]


_NESTED = (CodeType, frozenset, tuple)
