"""Detect a run's failure modes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft._texts import listed
from redraft.types import ConvergenceReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import ReflectionEvaluation, ReflectionVersion

UNSTABLE = 0.1
"""The spread of one output's scores from which a judge is called unstable (specification, section 6)."""

ENOUGH_DRAFTS = 20

ACCEPTED_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Signals:
    """Say where the scores of a run come from.

    `judge` names the model that judges, if one does; `judged` are the criteria it judges. `self_judged` is
    True when that is the generating model and nothing else has a say.
    """

    judge: str = ""
    judged: frozenset[str] = frozenset()
    self_judged: bool = False


NO_JUDGE = Signals()


def diagnose(
    versions: Sequence[ReflectionVersion], reason: ConvergenceReason, signals: Signals
) -> dict[str, str]:
    """Return the name of each failure mode that shows in a run, with a sentence. Specification 4.4."""
    found: dict[str, str] = {}
    if reason is ConvergenceReason.REPEATED_ISSUES:
        found["infinite_loop"] = "The same issues came back in every version; more rounds would not help."
    if worse := _regression(versions):
        found["quality_regression"] = (
            f"Version {worse.iteration} was worse than an earlier one; the best one was gone back to."
        )
    if blind := _not_judged(versions):
        found["unjudged"] = f"Not fully judged: {blind}."
    if signals.judged:
        found.update(_of_the_judge(versions, signals))
    return found


def _regression(versions: Sequence[ReflectionVersion]) -> ReflectionVersion | None:
    """Return the first version that scored lower than one before it, by more than the judge's spread."""
    for version in versions:
        gain = version.gain
        if gain is not None and gain < 0 and gain < -version.evaluation.spread:
            return version
    return None


def _not_judged(versions: Sequence[ReflectionVersion]) -> str:
    """Name the versions that were not fully judged, and by what not: `versions 2 and 4 (clarity), version 5`.

    Where nothing is there to judge, what was made is satisfactory without a score; where a gate failed,
    nobody wanted to know the rest.
    """
    missing: dict[tuple[str, ...], list[str]] = {}
    for version in versions:
        evaluation = version.evaluation
        if not (evaluation.is_fully_judged or evaluation.satisfactory or evaluation.gates_passed is False):
            missing.setdefault(evaluation.unjudged, []).append(str(version.iteration))
    return ", ".join(
        f"{'version' if len(numbers) == 1 else 'versions'} {listed(numbers)}"
        + (f" ({listed(names)})" if names else "")
        for names, numbers in missing.items()
    )


def _of_the_judge(versions: Sequence[ReflectionVersion], signals: Signals) -> dict[str, str]:
    found: dict[str, str] = {}
    if signals.self_judged:
        found["self_judged_only"] = (
            "The only signal was the model's opinion of itself, which often makes answers worse; "
            "add a check, or let another model judge."
        )
    spread = max(version.evaluation.spread for version in versions)
    if spread > UNSTABLE:
        found["unstable_judge"] = f"The judge's scores of one output differ by {spread:.2f}."
    if _overcritical(versions, signals):
        found["overcritical"] = (
            "Nothing but the judge objected, and it never was satisfied; "
            "lower the threshold or sharpen the criteria."
        )
    first = versions[0].evaluation
    share = first_drafts.add(signals, first.satisfactory) if _by_judge_alone(first, signals) else None
    if share is not None and share >= ACCEPTED_SHARE:
        found["undercritical"] = (
            f"The judge accepted {share:.0%} of the last {ENOUGH_DRAFTS} first drafts; "
            "it may accept anything."
        )
    return found


def _by_judge_alone(evaluation: ReflectionEvaluation, signals: Signals) -> bool:
    return set(evaluation.criteria_scores) <= signals.judged


def _overcritical(versions: Sequence[ReflectionVersion], signals: Signals) -> bool:
    distinct = [version.evaluation for version in versions if version.repeats is None]
    if len(distinct) < 3 or any(evaluation.satisfactory for evaluation in distinct):  # noqa: PLR2004 (a habit)
        return False
    return all(
        score is not None and (name in signals.judged or score == 1.0)
        for evaluation in distinct
        for name, score in evaluation.criteria_scores.items()
    )


class FirstDrafts:
    """Remember, per judge, whether it accepted the latest first drafts.

    That is the only trace of an undercritical judge.

    Bounded: the last drafts of the last judges. It is kept in the process, since no single run can show it.
    """

    def __init__(self, judges: int = 64) -> None:
        self._judges = judges
        self._accepted: dict[tuple[str, frozenset[str]], deque[bool]] = {}

    def add(self, signals: Signals, accepted: bool) -> float | None:
        """Count a first draft; return the share accepted once there are enough of them, else None."""
        key = (signals.judge, signals.judged)
        record = self._accepted.pop(key, None) or deque[bool](maxlen=ENOUGH_DRAFTS)
        record.append(accepted)
        self._accepted[key] = record
        if len(self._accepted) > self._judges:
            del self._accepted[next(iter(self._accepted))]
        return sum(record) / len(record) if len(record) == ENOUGH_DRAFTS else None


first_drafts = FirstDrafts()
