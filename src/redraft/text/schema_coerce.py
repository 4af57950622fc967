"""Coercion: texts that are exactly a number or a truth value, where the schema wants one."""

from __future__ import annotations

import re
from collections import Counter
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

MAX_ROUNDS = 6
MAX_DIGITS = 300
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
"""The texts that are truth values, in lower case."""

Place = tuple[str | int, ...]
Key = tuple[Place, Place]
"""Which rule an error is of, and where in the value."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_NOTHING = object()


def coerced(value: Any, errors: list[Any], errors_of: Callable[[Any], list[Any]]) -> tuple[Any, list[Any]]:
    """Return the value with its texts turned into what the schema wants there, and the errors that remain.

    Only where a text is an error of type, and holds nothing but the value, with or without white space around
    it: `"12"`, `" -3"`, `"1.5"`, `"true"`, `"False"`, `"yes"`, `"no"`, `"1"`, `"0"`; never to null. Of
    `anyOf` and `oneOf` the first branch that it makes valid is taken. The value that was given is left as it
    is.
    """
    tried: set[Place] = set()
    branches: Counter[Key] = Counter()
    for _ in range(MAX_ROUNDS):
        changes = {place: new for place, new in _changes(errors, value) if place not in tried}
        tried |= set(changes)
        if changes:
            value, errors = _keeping(value, changes, errors_of)
            continue
        asked = {_key(error): _asked(error, value, branches) for error in errors if _is_choice(error)}
        asked = {key: changes for key, changes in asked.items() if changes}
        if not asked:
            break
        value, errors = _mending(value, asked, errors_of)
    return value, errors


def _keeping(
    value: Any, changes: dict[Place, Any], errors_of: Callable[[Any], list[Any]]
) -> tuple[Any, list[Any]]:
    """Change the places of a value, but for those where another part of the schema wants the text."""
    changed = _with(value, changes)
    errors = errors_of(changed)
    types = [error for error in errors if error.kind.name == "type" and "string" in error.kind.value]
    refused = {tuple(error.instance_path) for error in types} & set(changes)
    if not refused:
        return changed, errors
    changed = _with(value, {place: new for place, new in changes.items() if place not in refused})
    return changed, errors_of(changed)


def _mending(
    value: Any, asked: dict[Key, dict[Place, Any]], errors_of: Callable[[Any], list[Any]]
) -> tuple[Any, list[Any]]:
    """Change the places of a value as branches ask, and take back what did not mend its error."""
    changed = _with(value, {place: new for changes in asked.values() for place, new in changes.items()})
    errors = errors_of(changed)
    failed = {_key(error) for error in errors} & set(asked)
    if not failed:
        return changed, errors
    mended = [changes for key, changes in asked.items() if key not in failed]
    changed = _with(value, {place: new for changes in mended for place, new in changes.items()})
    return changed, errors_of(changed)


def _asked(error: Any, value: Any, branches: Counter[Key]) -> dict[Place, Any]:
    """Return what the next branch of an error asks for that asks for anything."""
    key = _key(error)
    while branches[key] < len(error.kind.value):
        branches[key] += 1
        changes = dict(_nested(error.kind.value[branches[key] - 1], value))
        if changes:
            return changes
    return {}


def _is_choice(error: Any) -> bool:
    return error.kind.name in ("anyOf", "oneOf")


def _nested(errors: Iterable[Any], value: Any) -> Iterable[tuple[Place, Any]]:
    """Yield what the errors of a branch ask for; of branches within it, the first that asks for anything."""
    errors = list(errors)
    yield from _changes(errors, value)
    for error in errors:
        if _is_choice(error):
            for branch in error.kind.value:
                if asked := list(_nested(branch, value)):
                    yield from asked
                    break


def _key(error: Any) -> Key:
    return tuple(error.evaluation_path), tuple(error.instance_path)


def _changes(errors: Iterable[Any], value: Any) -> Iterable[tuple[Place, Any]]:
    for error in errors:
        if error.kind.name == "type":
            place: Place = tuple(error.instance_path)
            text = _at(value, place)
            new = as_type(text, error.kind.value) if isinstance(text, str) else _NOTHING
            if new is not _NOTHING:
                yield place, new


def as_type(text: str, types: Sequence[str]) -> Any:
    """Return the value of one of the types that a text holds and nothing else, or a mark of its own.

    A number goes before a truth value: `"1"` is 1 where both are allowed.
    """
    text = text.strip()
    if len(text) > MAX_DIGITS:
        return _NOTHING
    if ("integer" in types or "number" in types) and _INTEGER.match(text):
        return int(text)
    if "number" in types and _NUMBER.match(text) and isfinite(float(text)):
        return float(text)
    return TRUTH.get(text.lower(), _NOTHING) if "boolean" in types else _NOTHING


def _at(value: Any, place: Place) -> Any:
    for key in place:
        value = value[key]
    return value


def _with(value: Any, changes: dict[Place, Any]) -> Any:
    """Return the value with some places changed; what holds them is copied, once, and the rest is shared."""
    if not changes or () in changes:
        return changes.get((), value)
    copies: dict[Place, Any] = {(): _copy(value)}
    for place, new in changes.items():
        for end in range(1, len(place)):
            if place[:end] not in copies:
                holder = copies[place[: end - 1]]
                copies[place[:end]] = holder[place[end - 1]] = _copy(holder[place[end - 1]])
        copies[place[:-1]][place[-1]] = new
    return copies[()]


def _copy(value: Any) -> Any:
    return dict(cast("dict[Any, Any]", value)) if isinstance(value, dict) else list(value)
