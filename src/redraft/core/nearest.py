"""The nearest known name to one that was probably misspelt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

START = 3
"""Letters at the start of a name by which `coding` means `code_generation`, which is not spelt like it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and which there are."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    names = list(known)
    close = get_close_matches(name.lower(), names, 1) or [
        one for one in names if len(name) >= START and one.startswith(name.lower()[:START])
    ]
    listed = f"known are {', '.join(map(repr, names))}." if names else "none is known."
    return f"did you mean {close[0]!r}? K{listed[1:]}" if close else listed
