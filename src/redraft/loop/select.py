"""Select the best version of a run, and measure gains between versions."""

from __future__ import annotations

from dataclasses import replace
from math import hypot
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from redraft.errors import ModelError, UnfinishedError
from redraft.evaluate.ask import total_usage
from redraft.types import ReflectionEvaluation, highest, replaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft._steps import OnFailure, Retry
    from redraft.protocols import Evaluator, Preference, RunContext
    from redraft.types import Output, ReflectionVersion

Selection: TypeAlias = Literal["highest_score", "latest", "first_satisfactory", "weighted_recency"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
QUALITY_SHARE = 0.8
"""The weight of the score in `weighted_recency`; the rest is the position."""


Accept: TypeAlias = Literal["score", "pairwise"]
WAYS_TO_ACCEPT: tuple[str, ...] = get_args(Accept)
UNDECIDED = 0.5


def comparing(evaluate: Evaluator, prefer: Preference, retry: Retry, on_failure: OnFailure) -> Evaluator:
    """Wrap an evaluator to let the judge compare an output with the best one if only their scores differ.

    The comparison is retried; if it fails for good, the two are undecided.
    """

    async def evaluate_and_compare(output: Output, run: RunContext, /) -> ReflectionEvaluation:
        evaluation = await evaluate(output, run)
        best = highest(run.versions) if run.versions else None
        if best is None or run.free_only or not evaluation.is_level_with(best.evaluation):
            return evaluation
        try:
            # Failures of the comparison count as failures of the evaluation step.
            verdict = await retry.run(prefer, output, best.output, run, on_failure=on_failure)
        except ModelError:
            return replace(evaluation, preferred=UNDECIDED)
        except UnfinishedError as error:
            if error.reason is None:
                raise
            return replace(evaluation, preferred=UNDECIDED, usage=total_usage([evaluation], [error]))
        preferred = UNDECIDED if verdict.overall_score is None else verdict.overall_score
        return replace(evaluation, preferred=preferred, usage=evaluation.usage + verdict.usage)

    return evaluate_and_compare


def is_better(version: ReflectionVersion, other: ReflectionVersion) -> bool:
    """Whether `version` is better than `other`, by their evaluations or by comparison."""
    if version.iteration > other.iteration:  # the judge may have compared it with the best before
        return replaces(version, other)
    return version.evaluation.outranks(other.evaluation)


def is_setback(last: ReflectionVersion, best: ReflectionVersion) -> bool:
    """Whether the last version did worse than the best, so that the next revision starts from the best.

    Generated criteria count here, although they do not decide which version is the best.
    """
    if last is best:
        return False
    preferred = last.evaluation.preferred
    if preferred == 0.0 if preferred is not None else best.evaluation.outranks(last.evaluation):
        return True
    now, before = last.evaluation.generated_score, best.evaluation.generated_score
    return now is not None and before is not None and now < before


class BestScores:
    """The best scores of a run so far, separate for each set of judged criteria."""

    def __init__(self) -> None:
        self._best: dict[tuple[bool | None, frozenset[str]], tuple[float, float]] = {}
        self._gates: set[bool | None] = set()

    def gain(self, evaluation: ReflectionEvaluation) -> tuple[float | None, float]:
        """The gain of an evaluation over the best earlier evaluation, and its margin of error.

        The evaluation then counts as an earlier one. Only versions judged by the same criteria are compared;
        the gain of the first such version is None. Passing the gates for the first time adds 1 to the gain,
        and failing them again subtracts 1, whatever else was judged, since the judge is not called after a
        failed gate.
        """
        score, gates, judged = evaluation.overall_score, evaluation.gates_passed, evaluation.judged
        if score is None:
            return None, 0.0
        now = score, evaluation.spread
        before = self._best.get((gates, judged))
        if before is None or score > before[0]:
            self._best[gates, judged] = now
        first_pass = gates is True and False in self._gates and True not in self._gates
        self._gates.add(gates)
        if first_pass:
            return score - self._best.get((False, judged), now)[0] + 1, 0.0
        if gates is False and True in self._gates:
            return score - self._best.get((True, judged), now)[0] - 1, 0.0
        if evaluation.preferred is not None:
            return evaluation.preferred - UNDECIDED, 0.0
        if before is None:
            return None, 0.0
        return score - before[0], hypot(evaluation.spread, before[1])


def select(
    versions: Sequence[ReflectionVersion], selection: Selection, best: ReflectionVersion | None = None
) -> ReflectionVersion:
    """The version to return from a run; `best` is the version with the highest score, if already known.

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
    return best or highest(versions)


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
    """The first, the best and the last version in their order, each once."""
    preserved = {version.iteration: version for version in (versions[0], best, versions[-1])}
    return tuple(preserved[iteration] for iteration in sorted(preserved))
