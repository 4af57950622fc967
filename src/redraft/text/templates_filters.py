"""The filters that a template may use: those of Jinja2 that do no harm, and ours for JSON."""

from __future__ import annotations

import html
import json
from functools import wraps
from typing import TYPE_CHECKING, Any

from jinja2.filters import FILTERS

from redraft.core.errors import OutputError
from redraft.text.json_reply import json_of
from redraft.text.templates_budget import (
    TemplateError,
    TemplateLimitError,
    each,
    kept,
    make,
    plain,
    step,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_PARAMETER = 10_000
MAX_ITEMS = 100_000

# Not among them: `attr`, `format`, `pprint`, `random`, `safe`, `striptags`, `urlize`, `wordwrap`, `xmlattr`,
# which reach into objects, grow without bound, are slow on hostile texts, or give another result each time.
_HARMLESS = """
abs batch capitalize center count d default dictsort filesizeformat first float groupby int
items last length list lower map max min reject rejectattr reverse round select selectattr slice sort title
trim truncate unique upper urlencode wordcount
""".split()  # noqa: SIM905 (a list of quoted words is no easier to read)


def filters() -> dict[str, Callable[..., Any]]:
    """Return the filters by name, each of them bounded."""
    ours: dict[str, Callable[..., Any]] = {
        "tojson": to_json_text,
        "json": to_json_text,
        "fromjson": from_json_text,
        "join": join,
        "replace": replace,
        "indent": indent,
        "string": text_of,
        "sum": _sum,
        "escape": _escape,
        "e": _escape,
    }
    theirs = {name: FILTERS[name] for name in _HARMLESS}
    return {name: bounded(name, function) for name, function in (theirs | ours).items()}


def bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter or test a step of the rendering, with numbers, lists and results of a bounded size."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0  # Jinja puts its context or environment before

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        step()
        for given in (*args[first + 1 :], *options.values()):
            if isinstance(given, int) and abs(given) > MAX_PARAMETER:
                raise TemplateLimitError(f"{given} is too large for {name!r}; at most {MAX_PARAMETER:,}")
        value = args[first] if len(args) > first else None
        if isinstance(value, list | tuple | dict) and len(value) > MAX_ITEMS and name not in _ANY_SIZE:  # pyright: ignore[reportUnknownArgumentType] (any JSON)
            raise TemplateLimitError(f"{name!r} takes at most {MAX_ITEMS:,} items")
        result = function(*args, **options)
        return each(result) if hasattr(result, "__next__") else kept(result)

    return call


_ANY_SIZE = ("count", "d", "default", "defined", "first", "last", "length", "none", "undefined")


def to_json_text(value: Any, indent: int | None = None) -> str:
    """Write a value as JSON, letter for letter: it is for prompts, not for HTML."""
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= 8):  # pyright: ignore[reportUnnecessaryIsInstance] # noqa: PLR2004 (from a template; wider is no longer read)
        raise TemplateError(f"the indent of JSON must be a number from 0 to 8, got {indent!r}")
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def from_json_text(value: Any) -> Any:
    """Read a text as JSON, bare or fenced; raises `TemplateError` where it holds none, or several values."""
    if not isinstance(value, str):
        raise TemplateError(f"'fromjson' takes a text, got {text_of(value)[:80]}")
    try:
        return json_of(value)
    except OutputError as error:
        raise TemplateError(f"'fromjson': {error}") from error


def join(values: Iterable[Any], separator: Any = "", attribute: str | None = None) -> str:
    """Join the texts of values."""
    between = text_of(separator)
    parts: list[str] = []
    for value in each(values):
        part = text_of(value if attribute is None else _attribute(value, attribute))
        make(len(part) + len(between))
        parts.append(part)
    return between.join(parts)


def _attribute(value: Any, name: str) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]  # pyright: ignore[reportUnknownVariableType] (any JSON)
    raise TemplateError(f"'join': an item has no {name!r}")


def replace(value: Any, old: Any, new: Any, count: int = -1) -> str:
    """Replace a part of a text, everywhere or `count` times."""
    text, before, after = text_of(value), text_of(old), text_of(new)
    make(len(text) + text.count(before) * max(0, len(after) - len(before)))
    return text.replace(before, after, count)


def indent(value: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    """Indent the lines of a text, but for the first one and blank ones."""
    margin = width if isinstance(width, str) else " " * width
    lines = text_of(value).split("\n")
    make(len(lines) * (len(margin) + 1))
    done = [
        line if (not number and not first) or not (line or blank) else margin + line
        for number, line in enumerate(lines)
    ]
    return "\n".join(done)


def _sum(values: Iterable[Any], attribute: str | None = None, start: float = 0) -> Any:
    if not isinstance(start, int | float):  # pyright: ignore[reportUnnecessaryIsInstance] (from a template)
        raise TemplateError("'sum' adds numbers; use 'join' for texts and '+' for lists")
    numbers = values if attribute is None else (_attribute(value, attribute) for value in values)
    return sum(each(numbers), start)


def _escape(value: Any) -> str:
    return html.escape(text_of(value))
