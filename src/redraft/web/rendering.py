"""Rendering: the templates, what they may ask of a value, and the one style sheet and script."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from redraft._texts import unasked
from redraft.types import render_usage
from redraft.web.shown import shown

PROGRAM = f"Redraft {version('redraft')}"
STATIC = {"redraft.css": "text/css", "redraft.js": "text/javascript", "redraft.svg": "image/svg+xml"}
MINUTE, HOUR, DAY = 60, 3600, 86400


def render(template: str, **context: Any) -> str:
    """Return a page by its template."""
    return _templates().get_template(template).render(program=PROGRAM, **context)


@cache
def static_text(name: str) -> str:
    """Return one of the files in `static/`."""
    return (files("redraft.web") / "static" / name).read_text("utf-8")


@cache
def static_path(name: str) -> str:
    """Return where the dashboard serves one of the files in `static/`: it changes when the file does."""
    return f"/static/{name}?{digest(static_text(name))[:12]}"


def digest(text: str) -> str:
    """Return the hash of a text in hexadecimal."""
    return sha256(text.encode()).hexdigest()


def policy_hash(text: str) -> str:
    """Return how a content security policy names an inline text."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@cache
def _templates() -> Environment:
    templates = Environment(
        loader=PackageLoader("redraft.web"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {
        "ago": ago,
        "cost": cost,
        "count": count,
        "score": score,
        "seconds": seconds,
        "url": url,
        "used": render_usage,
        "utc": utc,
    }
    templates.globals.update({"static": static_path, "unasked": unasked})  # pyright: ignore[reportArgumentType, reportCallIssue] (Jinja types its own only)
    return templates


def score(value: float | None) -> str:
    """Render a score with two digits; one that is not known as a question mark."""
    return "?" if value is None else f"{value:.2f}"


def cost(value: float | None) -> str:
    """Render US dollars; what is not known is said to be so."""
    return "not known" if value is None else f"${value:.4f}"


def count(value: int | None) -> str:
    """Render a whole number."""
    return "not known" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Render a time with the digits that matter."""
    if value is None:
        return "not known"
    if value < MINUTE:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), MINUTE)
    if value < HOUR:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, MINUTE)
    return f"{hours} h {minutes:02d} min"


def utc(at: datetime) -> str:
    """Render a time of day."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime, now: datetime | None = None) -> str:
    """Say how long ago something was; a time more than a week away by its date."""
    passed = ((now or datetime.now(UTC)) - at).total_seconds()
    if passed < MINUTE:
        return "just now"
    for unit, length, most in (("min", MINUTE, HOUR), ("h", HOUR, DAY), ("d", DAY, 7 * DAY)):
        if passed < most:
            return f"{int(passed / length)} {unit} ago"
    return f"{at.astimezone(UTC):%Y-%m-%d}"


def url(text: str) -> str:
    """Return a text as one part of an address."""
    return quote(text, safe="", errors="surrogatepass")
