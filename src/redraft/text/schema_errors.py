"""Errors of a JSON Schema validator in words: the expected value, the actual value, and a suggestion."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import describe_error
from redraft._pointers import pointer
from redraft._texts import short_repr
from redraft.types import Issue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_SHOWN = 80
MAX_OPTIONS = 12
MAX_BRANCHES = 5

_in_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """One place where a value does not fit its schema."""

    path: str
    """The dotted path, such as `a.1`; empty for the whole value."""
    message: str
    schema_path: str
    """JSON pointer to the rule in the schema."""
    expected: str
    got: str
    suggestion: str
    pointer: str = ""
    """The path as a JSON pointer."""

    @property
    def placed(self) -> str:
        """The message with its place as a JSON pointer, as issues name places."""
        what = self.message.removeprefix(f"{self.path or 'The value'}: ")
        return f"{self.pointer}: {what}" if self.pointer else f"{what[:1].upper()}{what[1:]}"

    def as_dict(self) -> dict[str, str]:
        """The documented fields of the problem: path, message, schema_path, expected, got."""
        return {
            "path": self.path,
            "message": self.message,
            "schema_path": self.schema_path,
            "expected": self.expected,
            "got": self.got,
        }


def problem_of(error: Any, value: Any) -> SchemaProblem:
    """Describe an error of the validator; `value` is the whole checked value."""
    place = place_of(error, value)
    at = ".".join(map(str, place))
    got = shown(value_at(value, place))
    kind = error.kind.name
    expected, suggestion = _WORDS.get(kind, _other)(error, f"{at!r}" if at else "the value")
    where = at or "The value"
    message = f"{where}: expected {expected}, got {got}" if kind not in _BARE else f"{where}: {expected}"
    rule = pointer(error.schema_path)
    return SchemaProblem(at, message, rule, expected, got, suggestion, pointer(place))


def place_of(error: Any, value: Any) -> tuple[str | int, ...]:
    """The place of an error of the validator in the whole checked value.

    The validator gives a key of digits as a number, and leaves out an empty key.
    """
    place: list[str | int] = []
    for part in error.instance_path:
        while (key := _key_in(value, part)) is None:
            place.append("")
            value = value[""]
        value = value[key]
        place.append(key)
    while isinstance(value, dict) and "" in value and value != error.instance:
        value = cast("dict[str, Any]", value)[""]
        place.append("")
    return tuple(place)


def _key_in(value: dict[str, Any] | list[Any], part: str | int) -> str | int | None:
    """The key or the position that the validator calls `part`; None if the value does not have it."""
    if isinstance(value, list) or part in value:
        return part
    if isinstance(part, str):
        return None
    name = re.compile(rf"\+?0*{part}")
    return next(filter(name.fullmatch, value), None)


def value_at(value: Any, place: Sequence[str | int]) -> Any:
    """The part of a value at a place."""
    for key in place:
        value = value[key]
    return value


MOST_ISSUES = 20


def validated(adapter: Any, value: Any, name: str, criterion: str) -> tuple[Any, tuple[Issue, ...]]:
    """Validate JSON data by a class: an instance without issues, or None and the issues.

    `adapter` is pydantic's `TypeAdapter` of the class, `name` the name of the class in messages.
    """
    from pydantic import ValidationError  # noqa: PLC0415 (an adapter has loaded it)

    try:
        # As JSON, from which strict models accept times and enumerations.
        return adapter.validate_json(json.dumps(value)), ()
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False)[:MOST_ISSUES]
        return None, tuple(
            _issue(problem["msg"], problem["loc"], problem["input"], criterion) for problem in problems
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 (a validator of the user's may raise anything)
        return None, (Issue(f"It is not a valid {name}: {describe_error(error)}", criterion),)


def _issue(message: str, place: Sequence[int | str], value: Any, criterion: str) -> Issue:
    """Convert a pydantic error about a value at a place to an issue."""
    got = "" if isinstance(value, dict | list) else f", got {short_repr(value)}"
    return Issue(f"{message}{got}", criterion, pointer(place) or None)


def shown(value: Any) -> str:
    """A value as shortened JSON; a large list or object only as its size."""
    if isinstance(value, str):
        short = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 3] + "..."
        return _in_json(short)
    if isinstance(value, list | tuple | dict):
        return _shown_holder(cast("list[Any] | dict[str, Any]", value))
    text = json.dumps(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def _shown_holder(holder: list[Any] | dict[str, Any]) -> str:
    inside = list(holder.values()) if isinstance(holder, dict) else holder
    if len(inside) <= MAX_OPTIONS and not any(isinstance(inner, list | dict) for inner in inside):
        # Cut before encoding, so that a large value is never written out in full.
        text = _in_json(
            {_cut(key): _cut(inner) for key, inner in holder.items()}
            if isinstance(holder, dict)
            else [_cut(inner) for inner in inside]
        )
        if len(text) <= MAX_SHOWN:
            return text
    return f"{'an object' if isinstance(holder, dict) else 'a list'} of {len(inside)}"


def _cut(value: Any) -> Any:
    return value[:MAX_SHOWN] if isinstance(value, str) else value


Words = tuple[str, str]
"""The expected value, and the suggestion."""

_TYPES = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}


def _type(error: Any, at: str) -> Words:
    names: list[str] = error.kind.value
    expected = " or ".join(_TYPES[name] for name in names)
    return expected, f"Make {at} {expected}."


def _options(error: Any, at: str) -> Words:
    options: list[Any] = error.kind.value
    listed = ", ".join(shown(option) for option in options[:MAX_OPTIONS])
    more = f" or {len(options) - MAX_OPTIONS} others" if len(options) > MAX_OPTIONS else ""
    return f"one of {listed}{more}", f"Set {at} to one of {listed}{more}."


def _say(expected: str, suggestion: str) -> Callable[[Any, str], Words]:
    """Describe errors by templates, in which `{}` is the value of the rule."""

    def describe(error: Any, at: str) -> Words:
        value = error.kind.value
        return expected.format(value), suggestion.format(value, at=at)

    return describe


def _count(words: str, thing: str, advice: str) -> Callable[[Any, str], Words]:
    def describe(error: Any, at: str) -> Words:
        count = error.kind.value
        noun = thing if count == 1 else {"property": "properties"}.get(thing, thing + "s")
        return f"{words} {count} {noun}", f"{advice} {at}: it needs {words} {count} {noun}."

    return describe


def _pattern(error: Any, at: str) -> Words:
    if type(error.kind).__name__ != "Pattern":  # the engine gave up
        return "a text that its pattern can be tried on in time", f"Shorten {at}, or simplify its pattern."
    return f"a text that matches {error.kind.value}", f"Rewrite {at} so that it matches {error.kind.value}."


def _contains(error: Any, at: str) -> Words:
    if error.schema_path[-1:] == ["maxContains"]:
        return "fewer items of the kind that 'contains' describes", f"Remove matching items from {at}."
    return "more items of the kind that 'contains' describes", f"Add a matching item to {at}."


def _unexpected(error: Any, at: str) -> Words:
    names: list[str] = error.kind.value
    listed = ", ".join(shown(name) for name in names[:MAX_OPTIONS])
    return f"{listed} {'is' if len(names) == 1 else 'are'} not allowed", f"Remove {listed} from {at}."


def _false(error: Any, at: str) -> Words:
    # The validator also reports keys that are not allowed in this way.
    if error.schema_path[-1:] == ["additionalProperties"]:
        return "an object without other keys", f"Remove the keys of {at} that the schema does not name."
    return "nothing here", f"Remove {at}: it is not allowed."


def _not(error: Any, at: str) -> Words:
    denied = shown(error.kind.value)
    return f"a value that does not fit {denied}", f"Change {at} so that it does not fit {denied}."


def _name(error: Any, at: str) -> Words:
    inner = error.kind.value
    expected, _ = _WORDS.get(inner.kind.name, _other)(inner, "the name")
    name = shown(inner.instance)
    return f"names of keys that are {expected}, and {name} is not", f"Rename the key {name} of {at}."


def _branches(error: Any, at: str) -> Words:
    branches: list[list[Any]] = error.kind.value
    if not all(branches):
        return "a value that fits exactly one of the alternatives", f"Make {at} fit only one alternative."
    depth = len(error.instance_path)
    ways = "; or ".join(dict.fromkeys(_first(branch, depth) for branch in branches[:MAX_BRANCHES]))
    return f"one of these alternatives: {ways}", f"Make {at} fit one of the alternatives: {ways}."


def _first(branch: list[Any], depth: int) -> str:
    error = branch[0]
    if error.kind.name in ("anyOf", "oneOf"):  # alternatives of alternatives would only confuse
        return "another set of alternatives"
    expected, _ = _WORDS.get(error.kind.name, _other)(error, "it")
    inside = ".".join(map(str, error.instance_path[depth:]))
    return f"{inside}: {expected}" if inside else expected


def _other(error: Any, at: str) -> Words:
    message = str(error.message)[: 2 * MAX_SHOWN]
    return f"what {error.kind.name!r} asks for ({message})", f"Change {at} as {error.kind.name!r} asks."


_BARE = frozenset(
    ("required", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames")
)
"""Kinds whose message does not show the value, which is often large and would add nothing."""

_WORDS: dict[str, Callable[[Any, str], Words]] = {
    "type": _type,
    "required": _say("the key {!r} is required, and missing", "Add the key {!r} to {at}."),
    "enum": _options,
    "const": lambda error, at: (shown(error.kind.value), f"Set {at} to {shown(error.kind.value)}."),
    "minimum": _say("at least {}", "Make {at} at least {}."),
    "maximum": _say("at most {}", "Make {at} at most {}."),
    "exclusiveMinimum": _say("greater than {}", "Make {at} greater than {}."),
    "exclusiveMaximum": _say("less than {}", "Make {at} less than {}."),
    "multipleOf": _say("a multiple of {}", "Make {at} a multiple of {}."),
    "minLength": _count("at least", "character", "Lengthen"),
    "maxLength": _count("at most", "character", "Shorten"),
    "minItems": _count("at least", "item", "Add items to"),
    "maxItems": _count("at most", "item", "Remove items from"),
    "minProperties": _count("at least", "property", "Add keys to"),
    "maxProperties": _count("at most", "property", "Remove keys from"),
    "pattern": _pattern,
    "format": _say("a text in the format {!r}", "Write {at} in the format {!r}."),
    "uniqueItems": _say("items that all differ", "Remove the items of {at} that repeat others."),
    "contains": _contains,
    "additionalProperties": _unexpected,
    "unevaluatedProperties": _unexpected,
    "unevaluatedItems": _unexpected,
    "additionalItems": _say("at most {} items", "Remove items from {at}: at most {} are allowed."),
    "falseSchema": _false,
    "not": _not,
    "propertyNames": _name,
    "anyOf": _branches,
    "oneOf": _branches,
}
