"""Question: what `find` is asked, checked once and in a form that every store answers in the same way."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic_core import to_json

from redraft.core.check import check_count
from redraft.core.errors import ConfigError
from redraft.stores.row import LONGEST_NAME, check_name, json_text, microseconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.stores.base import Record, Scalar, Where


_LAST = "\U0010ffff"


class Question(NamedTuple):
    """Hold which records are wanted: `fields` as JSON texts, `after` as the time and key of a record."""

    kind: str
    prefix: str
    fields: Mapping[str, frozenset[str]]
    newest_first: bool
    after: tuple[int, str] | None
    limit: int | None


def question(
    kind: str,
    *,
    prefix: str = "",
    where: Where | None = None,
    newest_first: bool = False,
    after: Record | None = None,
    limit: int | None = None,
) -> Question:
    """Check and put into form what `find` and `near` take; raises `ConfigError` for what makes no sense."""
    check_name("kind", kind)
    if prefix:
        check_name("prefix", prefix)
    if limit is not None:
        check_count("limit", limit, 1)
    cursor = None
    if after is not None:
        if after.created_at is None:
            raise ConfigError(f"after: the record {after.key!r} is none that a store returned.")
        cursor = microseconds(after.created_at), after.key
    return Question(kind, prefix, wanted(where), newest_first, cursor, limit)


def wanted(where: Where | None) -> dict[str, frozenset[str]]:
    """Return for each field the JSON texts that it may have; one that is absent counts as `null`.

    As JSON, True is not 1, "1" is not 1, and 1 is 1.0: one number has several texts. Raises `ConfigError` for
    a field that can't be named in a JSON path, and for a value that is no scalar.
    """
    fields: dict[str, frozenset[str]] = {}
    for field, value in (where or {}).items():
        if not field or any(char in '"\\' or not char.isprintable() for char in field):
            raise ConfigError(
                f"where: {field!r} can't be asked for; a field has a name without quotes, backslashes and "
                "control characters."
            )
        values = value if isinstance(value, tuple) else (value,)
        fields[field] = frozenset(text for each in values for text in _texts(field, each))
    return fields


def matches(data: Mapping[str, Any], fields: Mapping[str, frozenset[str]]) -> bool:
    """Say whether a record's data has one of the wanted texts in each field."""
    return all(json_text(data.get(field)) in texts for field, texts in fields.items())


def after_all_with(prefix: str) -> str:
    """Return a text that comes after all keys that begin with a prefix, and before all others after it."""
    stem = prefix.rstrip(_LAST)
    if not stem:
        return _LAST * LONGEST_NAME
    following = "\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)  # surrogates are no text
    return stem[:-1] + following


def _texts(field: str, value: Scalar) -> set[str]:
    if value is not None and not isinstance(value, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance] (not all code is typed)
        raise ConfigError(
            f"where: {field!r} must be a text, a number, a bool, None, or a tuple of those; got {value!r}."
        )
    if isinstance(value, float) and not isfinite(value):
        return set()  # JSON has no such number, so no record has
    texts = {json_text(value)}
    if isinstance(value, int | float) and not isinstance(value, bool):
        same = _same_numbers(value)
        # What writes records spells some floats in another way: 0.00001, not 1e-05.
        texts |= {json_text(number) for number in same} | {to_json(number).decode() for number in same}
    return texts


def _same_numbers(value: float) -> list[float]:
    """Return the other forms of a whole number: the int, the float, and the zero below zero."""
    if value == 0:
        return [0, 0.0, -0.0]
    try:
        forms = [int(value), float(value)]
    except OverflowError:  # an int beyond all floats
        return []
    return [cast("float", form) for form in forms if form == value]
