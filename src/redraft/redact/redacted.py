"""Redacted: a text without what must not be shown, and what was withheld of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Redacted:
    """Hold a text with marks in place of what was found, and how often each kind was; never a value."""

    text: str
    counts: Mapping[str, int]

    def __str__(self) -> str:
        return self.text
