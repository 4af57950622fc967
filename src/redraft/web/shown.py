"""What a page may show: every text made inert, and none so long that a browser would choke on it."""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup

from redraft.text.characters import visible

LONGEST = 100_000
"""Characters that are shown of one text; a page with many versions of a megabyte each would be of no use."""
CUT = "\n\n[cut here: "
_CUT = re.compile(re.escape(CUT) + r"[\d,]+ more characters\]\Z")


def shown(value: Any) -> Any:
    """Return what a template prints in place of a value: all that comes from a run goes through here."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return visible(value)


def clipped(text: str) -> str:
    """Return a text, or its beginning with a word on what was cut."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}{cut_note(len(text) - LONGEST)}"


def cut_note(characters: int) -> str:
    """Say at the end of a text how much of it is not shown."""
    return f"{CUT}{characters:,} more characters]"


def is_cut(text: str) -> bool:
    """Say whether a text ends with that note."""
    return _CUT.search(text, max(0, len(text) - len(CUT) - 40)) is not None
