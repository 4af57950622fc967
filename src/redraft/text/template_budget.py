"""The budget of one rendering of a template, and the conversion of its values to text and plain data."""

from __future__ import annotations

import json
from collections.abc import ItemsView, KeysView, ValuesView
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_WEIGHT = 1_000_000
MAX_DEPTH = 100
MAX_BITS = 6_400


class TemplateError(ConfigError):
    """A template is invalid, or reads a missing value.

    `line` counts from 1, and is None if unknown; `source` is the rendered template.
    """

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}: {message}")
        self.message = message
        self.line = line
        self.source = ""


class TemplateLimitError(TemplateError):
    """A template exceeded one of its limits."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """The limits of one rendering."""

    output: int = 1_000_000
    """Characters of output."""
    steps: int = 100_000
    """Steps of work."""
    seconds: float = 1.0
    """Seconds of wall-clock time."""


class RenderingBudget:
    """The remaining budget of a rendering.

    `room` limits the characters and items of intermediate values, at first to eight times the output: without
    it, a template could create many large values and write none of them.
    """

    __slots__ = ("deadline", "depth", "limits", "room", "scopes", "steps")

    def __init__(self, limits: TemplateLimits, scopes: Iterable[str]) -> None:
        self.limits = limits
        self.steps = limits.steps
        self.room = 8 * limits.output
        self.deadline = monotonic() + limits.seconds
        self.scopes = scopes
        self.depth = 0


BUDGET: ContextVar[RenderingBudget] = ContextVar("budget of the template that is being rendered")


def take_step() -> None:
    """Take one step; raises `TemplateLimitError` if no steps or no time are left."""
    budget = BUDGET.get()
    budget.steps -= 1
    if budget.steps < 0:
        raise TemplateLimitError(f"the template takes more than {budget.limits.steps:,} steps")
    if monotonic() > budget.deadline:
        raise TemplateLimitError(f"the template takes longer than {budget.limits.seconds:g} s")


def take_room(size: int) -> None:
    """Take room for `size` characters or items; raises `TemplateLimitError` if there is not enough."""
    budget = BUDGET.get()
    if size > budget.limits.output:
        raise TemplateLimitError(
            f"a value of {size:,} characters or items is too large; at most {budget.limits.output:,}"
        )
    budget.room -= size
    if budget.room < 0:
        raise TemplateLimitError(
            f"the template makes more than {8 * budget.limits.output:,} characters in all"
        )


def each(values: Iterable[Any], written: int = 0) -> Iterator[Any]:
    """Yield values; each costs a step and the `written` characters that the loop's body repeats."""
    for value in values:
        take_step()
        if written:
            take_room(written)
        yield value


def bounded_value(value: Any) -> Any:
    """Take room for a value that a template made and return it; raises `TemplateLimitError` if too large."""
    kind = cast("type[Any]", type(value))
    if kind is str:
        take_room(len(value))
    elif kind is list or kind is tuple or kind is dict:
        take_room(len(value))
        _weigh(value)
    elif kind is int and value.bit_length() > MAX_BITS:
        raise TemplateLimitError(f"a number is too large; at most {MAX_BITS:,} bits")
    elif isinstance(value, str):  # Markup, which would escape added text
        return bounded_value(str.__str__(value))
    return value


def _weigh(value: Any) -> None:
    """Raise if a value is too large when written: nested references to the same list grow exponentially."""
    weight = 0
    waiting: list[Any] = [value]
    while waiting:
        item: Any = waiting.pop()
        if isinstance(item, str):
            weight += len(item) >> 6
        elif isinstance(item, dict):
            waiting.extend(item)  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            waiting.extend(cast("dict[Any, Any]", item).values())
        elif isinstance(item, list | tuple):
            waiting.extend(cast("list[Any]", item))
        elif item is not None and not isinstance(item, int | float):
            raise _not_data(item)
        weight += 1
        if weight + len(waiting) > MAX_WEIGHT:
            raise TemplateLimitError(f"a value contains more than {MAX_WEIGHT:,} others")


def plain(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Copy a value as plain JSON data, which shares nothing with the template's state.

    Raises `TemplateError` for anything else, for NaN and infinities, and beyond 100 levels.
    """
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) or type(value) is str else str.__str__(value)
    if isinstance(value, int | float):
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 (only NaN differs from itself)
            raise TemplateError(f"{value!r} is not a JSON number")
        return value
    if not depth:
        raise TemplateLimitError(f"a value is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        take_step()
        pairs = cast("dict[Any, Any]", value).items()
        return {key if type(key) is str else text_of(key): plain(inner, depth - 1) for key, inner in pairs}
    if isinstance(value, list | tuple | range) or hasattr(value, "__next__"):
        take_step()
        return [plain(inner, depth - 1) for inner in cast("Iterable[Any]", value)]
    if isinstance(value, _VIEWS):
        return plain(list(cast("Iterable[Any]", value)), depth)
    raise _not_data(value)


_VIEWS = (KeysView, ValuesView, ItemsView)


def _not_data(value: Any) -> TemplateError:
    if (missing := getattr(value, "missing_message", None)) is not None:
        return TemplateError(missing)
    return TemplateError(
        f"a {type(value).__name__} is not data: expected a string, number, list, dict or null"
    )


def text_of(value: Any) -> str:
    """The text that a template writes for a value: a string as it is, lists and dicts as JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, int | float):
        return str(plain(value))
    return json.dumps(plain(value), ensure_ascii=False)
