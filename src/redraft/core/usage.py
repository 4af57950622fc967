"""TokenUsage: what model calls used and cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

_NOT_GIVEN = cast("Any", object())


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Count what model calls used; two usages add up with `+`.

    `cached_tokens` are those of `input_tokens` that the provider served from its prompt cache. `requests`
    counts the calls that were answered, `failed_requests` those that were not. `cost_usd` is in US dollars;
    None means that it is not known, and an unknown part makes the sum unknown. Where it is not given, tokens
    and answered calls have an unknown cost, and nothing used costs 0.0.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    failed_requests: int = 0
    cost_usd: float | None = _NOT_GIVEN

    def __post_init__(self) -> None:
        if self.cost_usd is _NOT_GIVEN:
            used = self.input_tokens or self.output_tokens or self.requests
            object.__setattr__(self, "cost_usd", None if used else 0.0)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        # The shortcuts keep a loop of plain functions free of bookkeeping.
        if other is NOTHING_USED or (other is NOT_REPORTED and self.cost_usd is None):
            return self
        if self is NOTHING_USED:
            return other
        unknown = self.cost_usd is None or other.cost_usd is None
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.requests + other.requests,
            self.failed_requests + other.failed_requests,
            None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )


NOTHING_USED = TokenUsage()
"""The usage of a step that called no model."""

NOT_REPORTED = TokenUsage(cost_usd=None)
"""The usage of a function that did not say what it used."""
