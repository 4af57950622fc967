"""Tally: what many runs used together, what of it is not known, and what came after their best versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.types import NOTHING_USED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.types import TokenUsage


@dataclass(slots=True)
class Tally:
    """Add up usages; `cost_usd` is what is known of the cost, and `unknown` in how many runs there is more.

    `later_tokens` and `later_usd` are what came after the best version, `later_unknown` the runs where that
    costs more than is known. `latest` is the run that was added last. `beside` counts what is no run: cycles
    of agents, and notes that were made after runs.
    """

    runs: int = 0
    requests: int = 0
    failed_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    unknown: int = 0
    later_tokens: int = 0
    later_usd: float = 0.0
    later_unknown: int = 0
    latest: str = ""
    beside: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added, or all of it was taken out again."""
        return not self.runs and not self.beside

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def count(
        self, run_id: str, used: Iterable[TokenUsage], later: TokenUsage = NOTHING_USED, sign: int = 1
    ) -> None:
        """Add a run; with a `sign` of -1 take it out again."""
        self._add(used, sign)
        self.runs += sign
        self.later_tokens += sign * later.total_tokens
        self.later_usd += sign * (later.cost_usd or 0.0)
        self.later_unknown += sign * (later.cost_usd is None)
        self.latest = max(self.latest, run_id)

    def count_beside(self, used: TokenUsage) -> None:
        """Add what is no run."""
        self._add((used,), 1)
        self.beside += 1

    def _add(self, used: Iterable[TokenUsage], sign: int) -> None:
        is_known = True
        for one in used:
            self.requests += sign * one.requests
            self.failed_requests += sign * one.failed_requests
            self.input_tokens += sign * one.input_tokens
            self.output_tokens += sign * one.output_tokens
            if one.cost_usd is None:
                is_known = False
            else:
                self.cost_usd += sign * one.cost_usd
        self.unknown += sign * (not is_known)

    def add(self, other: Tally) -> None:
        """Add what others added up."""
        self.runs += other.runs
        self.requests += other.requests
        self.failed_requests += other.failed_requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.cost_usd += other.cost_usd
        self.unknown += other.unknown
        self.later_tokens += other.later_tokens
        self.later_usd += other.later_usd
        self.later_unknown += other.later_unknown
        self.latest = max(self.latest, other.latest)
        self.beside += other.beside
