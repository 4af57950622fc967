"""Draft and ReflectionVersion: an output as it was made, and as it stands in the history."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.core.conversation import Conversation
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.usage import NOT_REPORTED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Sequence

Output: TypeAlias = Any
"""A text, a JSON value (dict, list, number, bool) or a pydantic model."""


@dataclass(slots=True)
class Draft:
    """Hand over one output as a generator or reviser made it.

    A plain output is enough where nothing else is known; a function that knows what its model calls used
    returns `Draft(text, usage=...)`. `improvements` says what was changed, `notes` what a person should know
    about how it was made (an edit that did not apply). `conversation` is how an agent that acts came to it,
    `memo` JSON data that its maker wants to find again in the version.
    """

    output: Output
    usage: TokenUsage = NOT_REPORTED
    improvements: tuple[str, ...] = ()
    strategy: str = "draft"
    notes: tuple[str, ...] = ()
    conversation: Conversation | None = None
    memo: Any = None


@dataclass(slots=True)
class ReflectionVersion:
    """Keep one output with its evaluation and how it came about.

    `iteration` is 1-based. `token_usage` covers making and judging it. `strategy` is how it was made
    (`draft`, `given`, `fresh`, or a revision strategy) and `base` the iteration that it was revised from.
    `repeats` is the earlier iteration with the very same output, whose evaluation it shares. `gain` is by
    how much its score beat the best before it that was judged by the same criteria (a gate newly passed
    counts as 1, one that was lost as -1); None where there is none, and for a repeat. `accepted` is True
    when a callback accepted it. `conversation` is how an agent that acts came to it, `memo` what its maker
    left there. Specification 2.7.1.
    """

    iteration: int
    output: Output
    evaluation: ReflectionEvaluation
    improvements_applied: tuple[str, ...] = ()
    timestamp: datetime = field(default_factory=partial(datetime.now, UTC))
    token_usage: TokenUsage = NOT_REPORTED
    strategy: str = "draft"
    base: int | None = None
    repeats: int | None = None
    gain: float | None = None
    accepted: bool = False
    conversation: Conversation | None = None
    memo: Any = None


def highest(versions: Sequence[ReflectionVersion]) -> ReflectionVersion:
    """Return the best of at least one version, by what was said of each; ties keep the earliest."""
    best = versions[0]
    for version in versions:
        if version.evaluation.outranks(best.evaluation):
            best = version
    return best
