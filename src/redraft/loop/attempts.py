"""What is tried next: a revision of the best version so far, or a fresh start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.context import Attempt
from redraft.core.made import maker
from redraft.core.texts import copy_of
from redraft.loop.revise import AFTER_FAILURE, FRESH_TEMPERATURE
from redraft.loop.select import is_better, is_known_drop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.version import ReflectionVersion
    from redraft.loop.pattern import ReflectionPattern

_attempt = maker(Attempt)


def next_attempt(
    versions: Sequence[ReflectionVersion],
    best: ReflectionVersion | None,
    before: Attempt,
    pattern: ReflectionPattern,
    tokens_left: int | None,
) -> tuple[Attempt, ReflectionVersion]:
    """Return the attempt after `before`, and the version that it starts from: the best one, or the last.

    A version that was not fully judged is put aside like one that made things worse, but nobody is told so.
    """
    last = versions[-1]
    best = best or last
    base = best if is_better(best, last) else last
    worse = base is not last and is_known_drop(best, last)
    stuck = last.repeats is not None or (last.strategy == "fresh" and worse)
    fresh = stuck and pattern.diversify
    strategy: str = pattern.revision_strategy
    if worse and not fresh:
        tried = last.strategy if last.strategy in AFTER_FAILURE else before.strategy
        strategy = AFTER_FAILURE.get(tried, "full_rewrite")
    tried_fresh = sum(version.strategy == "fresh" for version in versions) if fresh else 0
    attempt = _attempt(
        len(versions) + 1,
        "fresh" if fresh else "revise",
        copy_of(base.output),
        base.evaluation,
        strategy,
        min(1.0, FRESH_TEMPERATURE + 0.3 * tried_fresh) if fresh else None,
        last if worse and last.repeats is None else None,
        tokens_left,
        None if fresh else base.iteration,
    )
    return attempt, base
