"""Convergence rules: pure functions of the versions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft._texts import as_text
from redraft.errors import ConfigError, OutputError
from redraft.loop.select import is_better
from redraft.types import ConvergenceReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.protocols import Stopper
    from redraft.types import Issue, ReflectionVersion

SAME_ISSUE = 0.6
"""Token Jaccard similarity from which two messages name the same issue."""
IN_A_ROW = 3
"""How many versions in a row must repeat themselves before a pattern counts as one."""


def reason_of(answer: object) -> ConvergenceReason | None:
    """Read what a rule answered; a rule of a user's may say just True or False."""
    if answer is None or isinstance(answer, ConvergenceReason):
        return answer
    if answer is False:
        return None
    if answer is True:
        return ConvergenceReason.USER_STOPPED
    try:
        return ConvergenceReason(answer)
    except ValueError:
        raise OutputError(
            f"until returned {answer!r}; expected None, a ConvergenceReason, or True to stop"
        ) from None


def first(*rules: Stopper) -> Stopper:
    """Ask the rules in order; the first one that has a reason wins."""

    def first_reason(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
        for rule in rules:
            if reason := rule(versions):
                return reason
        return None

    return first_reason


def quality_met(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Stop when the last version is satisfactory."""
    return ConvergenceReason.QUALITY_MET if versions[-1].evaluation.satisfactory else None


def max_iterations(revisions: int) -> Stopper:
    """Stop after so many revisions; 0 stops after the first draft."""
    if revisions < 0:
        raise ConfigError(f"max_iterations must be at least 0, got {revisions!r}.")

    def at_maximum(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
        return ConvergenceReason.MAX_ITERATIONS if len(versions) > revisions else None

    return at_maximum


def unjudged(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Stop when nothing could be judged at the start, or twice in a row: there is nothing to revise by."""
    if versions[-1].evaluation.overall_score is not None:
        return None
    first_or_again = len(versions) == 1 or versions[-2].evaluation.overall_score is None
    return ConvergenceReason.UNJUDGED if first_or_again else None


def plateau(iterations: int) -> Stopper:
    """Stop when the best score was not beaten for `iterations` (>= 1) versions.

    A version that repeats an earlier one says nothing about the rest, and does not count. A gain within the
    judge's own spread is none.
    """
    if iterations < 1:
        raise ConfigError(f"plateau_iterations must be at least 1, got {iterations!r}.")

    def on_plateau(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
        left = iterations
        for version in reversed(versions):
            if version.gain is None:
                continue
            if version.gain > version.evaluation.spread:
                return None
            left -= 1
            if left == 0:
                return ConvergenceReason.PLATEAU
        return None

    return on_plateau


def diminishing(threshold: float) -> Stopper:
    """Stop when the last version beat the best before it, but by less than `threshold` (0..1)."""
    if not 0 <= threshold <= 1:
        raise ConfigError(f"improvement_threshold must be in 0..1, got {threshold!r}.")

    def small_gain(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
        gain = versions[-1].gain
        # Scores are decimal fractions: 0.55 - 0.5 must not fall short of 0.05 by the last bit.
        small = gain is not None and 0 < gain < threshold - 1e-9
        return ConvergenceReason.DIMINISHING_RETURNS if small else None

    return small_gain


def oscillation(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Stop when the last four scores went up, down, up (or the reverse) and ended no higher.

    Scores of different criteria go neither up nor down.
    """
    if len(versions) < 4:  # noqa: PLR2004 (two turns take four points)
        return None
    scores: list[float] = []
    criteria = versions[-1].evaluation.judged
    for version in versions[-4:]:
        score = version.evaluation.overall_score
        if score is None or version.repeats is not None or version.evaluation.judged != criteria:
            return None
        scores.append(score)
    a, b, c, d = scores
    turns = (b - a) * (c - b) < 0 and (c - b) * (d - c) < 0
    return ConvergenceReason.OSCILLATION if turns and max(c, d) <= max(a, b) else None


def semantic_stability(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Stop when two versions in a row changed nothing in substance and won nothing."""
    if len(versions) < IN_A_ROW:
        return None
    before, between, last = versions[-IN_A_ROW:]
    unchanged = _nothing_new(between, last) and _nothing_new(before, between)
    return ConvergenceReason.SEMANTIC_STABILITY if unchanged else None


def repeated_issues(versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Stop when three versions in a row have the same issues, and the last is no better than the first."""
    if len(versions) < IN_A_ROW:
        return None
    last = versions[-IN_A_ROW:]
    latest = last[-1].evaluation
    if not latest.issues or is_better(last[-1], last[0]):
        return None
    if any(version.repeats is not None for version in last):
        return None
    stuck = all(
        same_issues(version.evaluation.issues, latest.issues)
        and same_issues(latest.issues, version.evaluation.issues)
        for version in last[:-1]
    )
    return ConvergenceReason.REPEATED_ISSUES if stuck else None


def same_issues(issues: Iterable[Issue], among: Sequence[Issue]) -> bool:
    """Say whether every one of `issues` is also among the others."""
    return all(any(same_issue(issue, other) for other in among) for issue in issues)


def same_issue(one: Issue, other: Issue) -> bool:
    """Say whether two issues are the same: same criterion and path, or much the same words."""
    if one.message == other.message:
        return True
    if one.criterion is not None and one.path is not None:
        return (one.criterion, one.path) == (other.criterion, other.path)
    a, b = _words(one.message), _words(other.message)
    return bool(a or b) and len(a & b) / len(a | b) >= SAME_ISSUE


def same_substance(one: str, other: str) -> bool:
    """Say whether two texts differ in nothing but white space, case and punctuation at word ends."""
    return one == other or _substance(one) == _substance(other)


def _nothing_new(before: ReflectionVersion, after: ReflectionVersion) -> bool:
    if after.repeats is not None:
        return True
    if is_better(after, before):
        return False
    return same_substance(as_text(before.output), as_text(after.output))


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def _substance(text: str) -> list[str]:
    return [word.rstrip(".,;:!?") for word in text.casefold().split()]
