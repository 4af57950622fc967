"""Rendering: templates and their filters, static files, long or hostile texts, and text comparison."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from redraft._texts import HOUR, MINUTE, ago, as_text, has_no_criteria, verdict_of
from redraft.text.characters import visible
from redraft.text.diff import Line, hunks, similarity, word_diff
from redraft.types import render_usage

PROGRAM = f"Redraft {version('redraft')}"
STATIC = {"redraft.css": "text/css", "redraft.js": "text/javascript", "redraft.svg": "image/svg+xml"}
LONGEST = 100_000
"""Longest text on a page; a page with many versions of a megabyte each would be unusable."""
CUT = "\n\n[cut here: "
_CUT = re.compile(re.escape(CUT) + r"[\d,]+ more characters\]\Z")


def render(template: str, **context: Any) -> str:
    """Render a template, named by its path in the package, such as `web/templates/base.html`."""
    return _environment().get_template(template).render(program=PROGRAM, **context)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("redraft", ""),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=inert,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "ago": partial(ago, zone=UTC),
        "as_text": as_text,
        "clipped": clipped,
        "cost": cost,
        "count": count,
        "score": score,
        "seconds": seconds,
        "url": url,
        "used": render_usage,
        "utc": utc,
    }
    functions = {"static": static_path, "has_no_criteria": has_no_criteria, "verdict_of": verdict_of}
    environment.globals.update(functions)  # pyright: ignore[reportArgumentType, reportCallIssue] (Jinja types its own only)
    return environment


@cache
def static_text(name: str) -> str:
    """The content of a file in `static/`."""
    return (files("redraft.web") / "static" / name).read_text("utf-8")


@cache
def static_path(name: str) -> str:
    """The address of a file in `static/`, which changes with its content."""
    return f"/static/{name}?{digest(static_text(name))[:12]}"


def digest(text: str) -> str:
    """The SHA-256 of a text in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def policy_hash(text: str) -> str:
    """The source expression with which a content security policy allows an inline text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def score(value: float | None) -> str:
    """Render a score with two digits, or `?` if it is unknown."""
    return "?" if value is None else f"{value:.2f}"


def cost(value: float | None) -> str:
    """Render US dollars."""
    return "unknown" if value is None else f"${value:.4f}"


def count(value: int | None) -> str:
    """Render a whole number."""
    return "unknown" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Render a duration with the significant digits."""
    if value is None:
        return "unknown"
    if value < MINUTE:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), MINUTE)
    if value < HOUR:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, MINUTE)
    return f"{hours} h {minutes:02d} min"


def utc(at: datetime) -> str:
    """Render a date and time in UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def url(text: str) -> str:
    """Quote a text as one segment of an address."""
    quoted = quote(text, safe="", errors="surrogatepass")
    return _DATA.sub(r"%2E\1", quoted)


_DATA = re.compile(r"\.(json|events)$", re.IGNORECASE)
"""An ending that would lead to the data of a page."""


def inert(value: Any) -> Any:
    """Make control and bidirectional characters visible; applied to every value that a template prints."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def clipped(text: str) -> str:
    """Cut a text at `LONGEST` characters, with a note of the number of characters that are missing."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}{cut_note(len(text) - LONGEST)}"


def cut_note(characters: int) -> str:
    """The note at the end of a cut text."""
    return f"{CUT}{characters:,} more characters]"


def is_cut(text: str) -> bool:
    """Whether a text ends with the note of a cut text."""
    return _CUT.search(text, max(0, len(text) - len(CUT) - 40)) is not None


@dataclass(frozen=True, slots=True)
class TextChange:
    """The difference between two texts."""

    is_same: bool = False
    hunks: tuple[list[Line] | int, ...] = ()
    """The changed lines; a number replaces that many unchanged lines."""
    sides: tuple[str, str] | None = None
    """Both texts, instead of hunks, if they have little in common."""


CONTEXT = 2
"""Unchanged lines around each change."""
ALIKE = 0.4
"""The similarity below which two texts are shown side by side: a diff would only mix up their words."""
LARGEST = 200_000
"""Most characters of both texts together for a comparison word by word."""


SHORT = 20_000
"""Most characters of both texts together for which the result is cached."""
CACHED = 500
"""Cached results: a live page compares the same texts again and again."""


def text_change(before: str, after: str) -> TextChange:
    """Compare two texts."""
    if before == after:
        return TextChange(is_same=True)
    is_short = len(before) + len(after) <= SHORT
    return (_cached_change if is_short else _change)(before, after)


def _change(before: str, after: str) -> TextChange:
    if len(before) + len(after) > LARGEST or similarity(before, after) < ALIKE:
        return TextChange(sides=(clipped(before), clipped(after)))
    return TextChange(hunks=tuple(hunks(word_diff(before, after), CONTEXT)))


_cached_change = lru_cache(CACHED)(_change)
