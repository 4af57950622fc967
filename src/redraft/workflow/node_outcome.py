"""NodeOutcome: how a node ended, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from redraft.core.summary import render_score

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """Say how a node ended; `valid` is whether a loop or a judgement was satisfied, None for other nodes."""

    valid: bool | None = None
    attempts: int | None = None
    best_score: float | None = None

    @classmethod
    def of(cls, result: Any) -> NodeOutcome:
        """Read what a node gave."""
        if not isinstance(result, dict) or "valid" not in result:
            return cls()
        values = cast("Mapping[str, Any]", result)
        attempts = values.get("reflection_iteration")
        if not isinstance(attempts, int):
            return cls(values["valid"] is True)
        return cls(values["valid"] is True, attempts, values.get("reflection_best_score"))

    @property
    def verdict(self) -> str:
        """A word or two."""
        return "done" if self.valid is None else "valid" if self.valid else "not valid"

    @property
    def detail(self) -> str:
        """What else is known of it; empty for what is no loop."""
        if self.attempts is None:
            return ""
        times = "1 attempt" if self.attempts == 1 else f"{self.attempts} attempts"
        return f"after {times}, best score {render_score(self.best_score).strip()}"
