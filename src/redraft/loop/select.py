"""Select the best version of a run, and measure gains between versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from redraft.types import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import ReflectionEvaluation, ReflectionVersion

Selection: TypeAlias = Literal["highest_score", "latest", "first_satisfactory", "weighted_recency"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
QUALITY_SHARE = 0.8
"""The weight of the score in `weighted_recency`; the rest is the position."""


def is_better(one: ReflectionVersion, other: ReflectionVersion) -> bool:
    """Return whether `one` outranks `other`, as `ReflectionEvaluation.outranks` defines it."""
    return one.evaluation.outranks(other.evaluation)


class Peaks:
    """The best scores of a run so far, separate for each set of judged criteria."""

    def __init__(self) -> None:
        self._scores: dict[tuple[bool | None, frozenset[str]], float] = {}
        self._gates: set[bool | None] = set()

    def gain(self, evaluation: ReflectionEvaluation) -> float | None:
        """Return by how much an evaluation beats the best before it, and include it from now on.

        Only versions judged by the same criteria are compared; without an earlier one, the gain is None.
        Passing the gates for the first time adds 1 to the gain, and failing them again subtracts 1, whatever
        else was judged, since the judge is not called after a failed gate.
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
    """Return the best version of a run by a selection. Specification 2.7.2.

    A version that a callback accepted always wins. `first_satisfactory` falls back to `highest_score`.
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
    """Return the first, the best and the last version in their order, each once."""
    preserved = {version.iteration: version for version in (versions[0], best, versions[-1])}
    return tuple(preserved[iteration] for iteration in sorted(preserved))
