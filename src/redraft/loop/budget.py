"""Budget: what a run may use, and the tally of what it has used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

from redraft.core.check import check_bound
from redraft.core.errors import ModelError, OutputError
from redraft.core.result import ConvergenceReason
from redraft.core.usage import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from redraft.core.chat import ModelRole


@dataclass(frozen=True, slots=True)
class Budget:
    """Bound a run: tokens of all calls, US dollars, seconds, and tokens of revisions; None is no bound.

    Raises `ConfigError` for a bound of 0 or less: nothing could run under it.
    """

    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    revision_tokens: int | None = None

    def __post_init__(self) -> None:
        bounds = {
            "budget_tokens": self.tokens,
            "budget_usd": self.usd,
            "budget_seconds": self.seconds,
            "max_revision_tokens": self.revision_tokens,
        }
        for name, bound in bounds.items():
            check_bound(name, bound)


NO_BUDGET = Budget()


@dataclass(slots=True)
class Tally:
    """Add up what one run has used, by role."""

    budget: Budget
    by_role: dict[str, TokenUsage] = field(default_factory=dict[str, TokenUsage])
    known_usd: float = 0.0
    clock: Callable[[], float] = monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def add(self, role: ModelRole, usage: TokenUsage) -> None:
        """Count what a step used."""
        used = self.by_role.get(role)
        if used is None:
            self.by_role[role] = usage
        elif usage is not NOTHING_USED:
            self.by_role[role] = used + usage
        if usage.cost_usd:
            self.known_usd += usage.cost_usd

    def add_failure(self, role: ModelRole | None, error: Exception) -> None:
        """Count a call that failed, and what was paid on the way to the failure."""
        if role is not None and isinstance(error, ModelError | OutputError):
            failed = TokenUsage(failed_requests=1) if isinstance(error, ModelError) else NOTHING_USED
            self.add(role, failed + (error.usage or NOTHING_USED))

    def total(self) -> TokenUsage:
        """Return what all roles used together."""
        total = NOTHING_USED
        for used in self.by_role.values():
            total += used
        return total

    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return self.clock() - self.started

    def spent(self, under_way: TokenUsage = NOTHING_USED) -> ConvergenceReason | None:
        """Name the budget of the run that is spent, if one is; `under_way` is not counted yet."""
        budget = self.budget
        if budget is NO_BUDGET:
            return None
        used = self.total() + under_way
        if budget.tokens is not None and used.total_tokens >= budget.tokens:
            return ConvergenceReason.TOKEN_BUDGET
        # One cost that is not known must not set the others free.
        if budget.usd is not None and self.known_usd + (under_way.cost_usd or 0.0) >= budget.usd:
            return ConvergenceReason.COST_BUDGET
        if budget.seconds is not None and self.seconds() >= budget.seconds:
            return ConvergenceReason.TIME_BUDGET
        return None

    def allows_waiting(self, seconds: float, under_way: TokenUsage = NOTHING_USED) -> bool:
        """Say whether the run may wait so long and then still start a step."""
        bound = self.budget.seconds
        return self.spent(under_way) is None and (bound is None or self.seconds() + seconds < bound)

    def revision_tokens_left(self) -> int | None:
        """Return how many tokens revisions may still use; None where that is not bounded."""
        if self.budget.revision_tokens is None:
            return None
        used = self.by_role.get("revision", NOTHING_USED).total_tokens
        return max(0, self.budget.revision_tokens - used)
