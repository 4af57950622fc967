"""Which version is best: one comparison, and four ways to select."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.version import ReflectionVersion

Selection: TypeAlias = Literal["highest_score", "latest", "first_satisfactory", "weighted_recency"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
QUALITY_SHARE = 0.8
"""How much of `weighted_recency` is the score; the rest is the position."""


def is_better(one: ReflectionVersion, other: ReflectionVersion) -> bool:
    """Say whether `one` beats `other`: satisfactory before not, gates passed before not, then the score.

    A score that is not known loses against any other, and a gain within the judge's spread is none.
    """
    a, b = one.evaluation, other.evaluation
    if a.satisfactory != b.satisfactory:
        return a.satisfactory
    if a.gates_passed != b.gates_passed:
        return a.gates_passed
    if a.overall_score is None:
        return False
    if b.overall_score is None:
        return True
    gain = a.overall_score - b.overall_score
    return gain > 0 and gain > max(a.spread, b.spread)


def highest(versions: Sequence[ReflectionVersion]) -> ReflectionVersion:
    """Return the best of at least one version; ties keep the earliest."""
    best = versions[0]
    for version in versions:
        if is_better(version, best):
            best = version
    return best


def select(versions: Sequence[ReflectionVersion], selection: Selection) -> ReflectionVersion:
    """Return the version that a run returns. Specification 2.7.2.

    A version that a callback accepted is returned whatever the selection. `first_satisfactory` without a
    satisfactory version is `highest_score`.
    """
    for version in reversed(versions):
        if version.accepted:
            return version
    if selection == "latest":
        return versions[-1]
    if selection == "weighted_recency":
        return _weighted(versions)
    if selection == "first_satisfactory":
        for version in versions:
            if version.evaluation.satisfactory:
                return version
    return highest(versions)


def _weighted(versions: Sequence[ReflectionVersion]) -> ReflectionVersion:
    last = max(1, len(versions) - 1)

    def weight(position: int) -> float:
        score = versions[position].evaluation.overall_score or 0.0
        return QUALITY_SHARE * score + (1 - QUALITY_SHARE) * position / last

    return versions[max(range(len(versions)), key=weight)]


def first_best_last(
    versions: Sequence[ReflectionVersion], best: ReflectionVersion
) -> tuple[ReflectionVersion, ...]:
    """Return these three in their order, each once."""
    kept = {version.iteration: version for version in (versions[0], best, versions[-1])}
    return tuple(kept[iteration] for iteration in sorted(kept))
