"""Patterns: what `learn` gave, taken into the memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from redraft.core.texts import short_repr
from redraft.cycles.bounded import bounded, fit_to_keep
from redraft.cycles.confidence import clamped, confidence_of
from redraft.cycles.drafted import DraftedItems
from redraft.cycles.likeness import alike, essence_of
from redraft.lessons.trust import refused

if TYPE_CHECKING:
    from redraft.cycles.memory import Item

RISE = 0.1
"""What a pattern gains in confidence that is reinforced, or found again."""
MOST_NEW = 50
MOST_NAMED = 1_000
LONGEST = 500
"""Characters of a description."""
LARGEST = 2_000
"""Characters of a pattern, about."""

_ADDRESS = re.compile(r"\b[a-z][a-z0-9+.-]*://|\bwww\.", re.IGNORECASE)
_OURS = frozenset({"id", "timestamp", "since", "count", "cycle"})


@dataclass(slots=True)
class Patterns:
    """Take what was learnt in a cycle into the patterns under one key of the memory.

    `now` is the stamp of what is new, `ids` number it within the cycle, `redacted` withholds its secrets.
    What a model made up is bounded, and nothing of it raises: `refusals` says what was not taken, and why.
    """

    items: DraftedItems
    cycle: int
    now: str
    ids: Iterator[int]
    redacted: Callable[[Any], Any]
    refusals: list[str] = field(default_factory=list[str])

    def take(self, learnt: Mapping[str, Any], rendered: set[str]) -> None:
        """Adjust those that Reason saw, reinforce, retire the deprecated, add what is new, in this order.

        `learnt` has `newPatterns`, `reinforcedPatterns`, `deprecatedPatterns`, `confidenceAdjustment`;
        patterns that are there are named by id or exact description.
        """
        self._adjust(learnt.get("confidenceAdjustment"), rendered)
        for position, _ in self._named(learnt.get("reinforcedPatterns")):
            self._found_again(position)
        for position, _ in self._named(learnt.get("deprecatedPatterns")):
            self.items.remove(position)
        self.add(learnt.get("newPatterns"))

    def add(self, given: Any) -> None:
        """Add patterns; one that says what another says raises its count and confidence instead."""
        listed = _listed(given)
        for one in listed[:MOST_NEW]:
            self._add(one)
        if len(listed) > MOST_NEW:
            self.refusals.append(
                f"{len(listed) - MOST_NEW:,} of {len(listed):,} new patterns were not taken; "
                f"at most {MOST_NEW} are at once"
            )

    def _adjust(self, by: Any, rendered: set[str]) -> None:
        if isinstance(by, bool) or not isinstance(by, int | float) or not isfinite(by):
            return
        for position, item in list(self.items):
            if item.get("id") in rendered:
                self.items.replace(position, {**item, "confidence": clamped(confidence_of(item) + by)})

    def _named(self, names: Any) -> list[tuple[int, Item]]:
        asked = {_name_of(name) for name in _listed(names)[:MOST_NAMED]} - {""}
        if not asked:
            return []
        return [
            (position, item)
            for position, item in self.items
            if item.get("id") in asked or item.get("description") in asked
        ]

    def _add(self, given: Any) -> None:
        pattern = self._pattern_of(given)
        if pattern is None:
            return
        # One who watches over HTTP learns about addresses; orders have no place in a memory.
        if why := refused(_ADDRESS.sub(" ", "\n".join(_texts(pattern)))):
            said = short_repr(pattern["description"])
            self.refusals.append(f"the pattern {said} was not taken: it holds {why}")
            return
        position = self._like(pattern)
        if position is not None:
            self._found_again(position, pattern.get("confidence"))
            return
        ours = {"id": f"p{self.cycle}-{next(self.ids)}", "timestamp": self.now, "cycle": self.cycle}
        self.items.append({**ours, **pattern, "confidence": confidence_of(pattern), "count": 1})

    def _pattern_of(self, given: Any) -> dict[str, Any] | None:
        """Return a pattern as it may be kept; None for what says nothing."""
        fields = cast("Mapping[Any, Any]", given) if isinstance(given, Mapping) else {"description": given}
        described = fields.get("description")
        if not isinstance(described, str) or not described.strip():
            return None
        others = {name: value for name, value in fields.items() if name not in {*_OURS, "description"}}
        pattern = fit_to_keep({"description": described.strip(), **others}, self.redacted, LARGEST)
        return {**pattern, "description": bounded(pattern["description"], LONGEST)}

    def _like(self, pattern: Mapping[str, Any]) -> int | None:
        """Return where there is one that says the same."""
        essence, kind = essence_of(pattern["description"]), pattern.get("type")
        size = len(essence.words)
        for position, item in self.items:
            other = essence_of(item.get("description", ""))
            # The lengths alone rule most of them out, at a fraction of what the call takes.
            is_near = len(other.words) - size in (-1, 0, 1) and alike(essence, other)
            if is_near and item.get("type") == kind:
                return position
        return None

    def _found_again(self, position: int, stated: Any = None) -> None:
        """Raise the count and the confidence, and renew the timestamp: what is still seen is not old."""
        item = self.items[position]
        sure = max(confidence_of(item) + RISE, 0.0 if stated is None else clamped(stated))
        known_since = item.get("since", item["timestamp"])
        self.items.replace(
            position,
            {
                **item,
                "timestamp": max(self.now, item["timestamp"]),
                "since": known_since,
                "confidence": clamped(sure),
                "count": item.get("count", 1) + 1,
            },
        )


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _name_of(name: Any) -> str:
    """Return an id or a description; a model also gives the whole pattern instead."""
    if isinstance(name, Mapping):
        fields = cast("Mapping[Any, Any]", name)
        name = fields.get("id") or fields.get("description")
    return name.strip() if isinstance(name, str) and len(name) <= LARGEST else ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)
