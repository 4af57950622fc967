"""What a page may show: every text made inert, and none so long that a browser would choke on it."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from redraft.text.visible import visible

LONGEST = 100_000
"""Characters that are shown of one text; a page with many versions of a megabyte each would be of no use."""


def shown(value: Any) -> Any:
    """Return what a template prints in place of a value: all that comes from a run goes through here."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def clipped(text: str) -> str:
    """Return a text, or its beginning with a word on what was cut."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n\n[cut here: {len(text) - LONGEST:,} more characters]"
