"""Memory: what an agent remembers, and what a cycle changed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Item: TypeAlias = Mapping[str, Any]
"""One thing that is remembered: JSON data with an `id`, a `timestamp` (`2026-11-22T10:00:00.000Z`)."""

RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK = (
    "recentActions",
    "patterns",
    "constraints",
    "feedbackHistory",
)
STANDARD_KEYS = (RECENT_ACTIONS, PATTERNS, CONSTRAINTS, FEEDBACK)
"""The keys that every agent has; a file may name others. Specification 004, Memory Keys."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Hold the items under each key, oldest first, as they were after cycle `cycle` (0: before the first)."""

    items: Mapping[str, Sequence[Item]] = field(default_factory=dict[str, Sequence[Item]])
    cycle: int = 0

    def of(self, key: str) -> Sequence[Item]:
        """Return the items under a key; one that was never written has none."""
        return self.items.get(key, ())


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Say what became of one item: `before` is None for a new one, `after` for one that is gone.

    `at` is where one that is gone stood under its key (0: first), so that a change can be undone.
    """

    key: str
    id: str
    before: Item | None
    after: Item | None
    at: int | None = None
