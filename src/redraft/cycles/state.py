"""CycleState: what the stages of one cycle read and write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DERIVED = ("analysis", "plan", "governance", "execution", "evaluation", "learnings")
"""The keys of `derived_data`; all are there from the begin, so that a prompt may read what no stage wrote."""


@dataclass(slots=True)
class CycleState:
    """Hold what was sensed, what was made of it, and the memory as this cycle sees it.

    `environmental_data` has `payload` (all sources merged) and `errors` (`source`, `error`).
    `derived_data` has what stages write, an empty object where none did. `memory` has every key that the
    file names, the pending feedback included; nobody writes it: `update-state` makes the next one. All is
    plain JSON data. Specification 004.
    """

    environmental_data: dict[str, Any] = field(default_factory=lambda: {"payload": {}, "errors": []})
    derived_data: dict[str, Any] = field(default_factory=lambda: {key: {} for key in DERIVED})
    memory: Mapping[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])

    def scopes(self, **more: Any) -> dict[str, Any]:
        """Return the names that templates and expressions see, and further ones such as `action`."""
        return {
            "environmentalData": self.environmental_data,
            "derivedData": self.derived_data,
            "memory": self.memory,
            **more,
        }
