"""Which version is best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from redraft.types import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import ReflectionEvaluation, ReflectionVersion

Selection: TypeAlias = Literal["highest_score", "latest", "first_satisfactory", "weighted_recency"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
QUALITY_SHARE = 0.8
"""How much of `weighted_recency` is the score; the rest is the position."""


def is_better(one: ReflectionVersion, other: ReflectionVersion) -> bool:
    """Say whether `one` beats `other`: `ReflectionEvaluation.outranks` says by what."""
    return one.evaluation.outranks(other.evaluation)


class Peaks:
    """The best scores of a run so far, kept apart by what was judged."""

    def __init__(self) -> None:
        self._scores: dict[tuple[bool | None, frozenset[str]], float] = {}
        self._gates: set[bool | None] = set()

    def gain(self, evaluation: ReflectionEvaluation) -> float | None:
        """Return by how much an evaluation beats the best before it, and count it from now on.

        A gain or a drop exists only between versions that were judged by the same criteria; None where there
        is no such version. Passing the gates for the first time counts as 1 and failing them again as -1,
        whatever else was judged, since a failed gate spares the judge.
        """
        score, gates, judged = evaluation.overall_score, evaluation.gates_passed, evaluation.judged
        if score is None:
            return None
        before = self._scores.get((gates, judged))
        self._scores[gates, judged] = score if before is None else max(before, score)
        first_pass = gates is True and False in self._gates and True not in self._gates
        self._gates.add(gates)
        if first_pass:
            return score - self._scores.get((False, judged), score) + 1
        if gates is False and True in self._gates:
            return score - self._scores.get((True, judged), score) - 1
        return None if before is None else score - before


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

    def weight(position: int) -> tuple[bool, float]:
        evaluation = versions[position].evaluation
        quality = QUALITY_SHARE * (evaluation.overall_score or 0.0)
        return evaluation.is_fully_judged, quality + (1 - QUALITY_SHARE) * position / last

    return versions[max(range(len(versions)), key=weight)]


def first_best_last(
    versions: Sequence[ReflectionVersion], best: ReflectionVersion
) -> tuple[ReflectionVersion, ...]:
    """Return these three in their order, each once."""
    kept = {version.iteration: version for version in (versions[0], best, versions[-1])}
    return tuple(kept[iteration] for iteration in sorted(kept))
