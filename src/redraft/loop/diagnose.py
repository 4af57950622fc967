"""Detect a run's failure modes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

from redraft._texts import listed, listed_names
from redraft.evaluate.judge import JudgeId
from redraft.loop.select import UNDECIDED
from redraft.types import ConvergenceReason, highest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redraft.types import ReflectionVersion

UNSTABLE = 0.1
"""How much two judgements of an output may differ on average."""
UNSURE = 0.5
"""The confidence below which a judgement is no more than a guess."""
ENOUGH_DRAFTS = 20
"""First drafts that a judge must have judged before it can be called undercritical."""
ACCEPTED_SHARE = 0.95
"""The share of accepted first drafts from which a judge is undercritical."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Where the scores of a run come from."""

    judge: str = ""
    """The name of the model that judges, if any."""
    judged: frozenset[str] = frozenset()
    """The criteria that the model judges."""
    self_judged: bool = False
    """Whether the model that judges also drafts, and there are no other criteria."""
    judge_id: JudgeId | None = None
    """The judge as calibrations identify it; None if no model scores a criterion."""


NO_JUDGE = Signals()


class FirstDrafts:
    """Whether each judge accepted its latest first drafts: the only sign of an undercritical judge.

    A single run can't show it, so the runs of a pattern share this record. Judges and drafts are bounded.
    """

    def __init__(self, judges: int = 64) -> None:
        self._judges = judges
        self._accepted: dict[tuple[str, frozenset[str]], deque[bool]] = {}

    def add(self, signals: Signals, accepted: bool) -> float | None:
        """Add a first draft; returns the share of accepted drafts, or None until there are enough."""
        key = (signals.judge, signals.judged)
        record = self._accepted.pop(key, None) or deque[bool](maxlen=ENOUGH_DRAFTS)
        record.append(accepted)
        self._accepted[key] = record
        if len(self._accepted) > self._judges:
            del self._accepted[next(iter(self._accepted))]
        return sum(record) / len(record) if len(record) == ENOUGH_DRAFTS else None


def diagnose(
    versions: Sequence[ReflectionVersion],
    reason: ConvergenceReason,
    signals: Signals,
    first_drafts: FirstDrafts,
) -> dict[str, str]:
    """The failure modes that a run shows, each with a sentence about it.

    `first_drafts` records earlier runs with the same pattern; the first draft of this run is added.
    """
    findings: dict[str, str] = {}
    if reason is ConvergenceReason.REPEATED_ISSUES:
        findings["infinite_loop"] = "The same issues came back in every version; more rounds would not help."
    if worse := [version for version in versions if (version.gain or 0.0) < -version.margin]:
        findings["quality_regression"] = (
            f"Version {worse[0].iteration} was worse than an earlier one; revisions go on from the best one."
        )
    if missing := _unjudged(versions):
        findings["unjudged"] = f"Not fully judged: {missing}."
    if doubts := _doubts(versions):
        findings["generated_criteria"] = doubts
    if even := [
        str(version.iteration)
        for version in versions
        if version.evaluation.preferred == UNDECIDED and version.repeats is None
    ]:
        what = "version" if len(even) == 1 else "versions"
        findings["undecided_comparison"] = (
            f"The judge preferred neither {what} {listed(even)} nor the best one before in both orders, "
            "so the earlier one was kept."
        )
    if signals.judged:
        findings.update(_judge_problems(versions, signals, first_drafts))
    return findings


def _unjudged(versions: Sequence[ReflectionVersion]) -> str:
    """Name the versions that lack scores, and their criteria: `versions 2 and 4 (clarity), version 5`.

    Without criteria a version is satisfactory without a score, and after a failed gate the others are not
    judged on purpose; neither is named.
    """
    missing: dict[tuple[str, ...], list[str]] = {}
    for version in versions:
        evaluation = version.evaluation
        if not (evaluation.is_fully_judged or evaluation.satisfactory or evaluation.gates_passed is False):
            missing.setdefault(evaluation.unjudged, []).append(str(version.iteration))
    if not missing:
        return ""
    return ", ".join(
        f"{'version' if len(numbers) == 1 else 'versions'} {listed(numbers)}"
        + (f" ({listed_names(names)})" if names else "")
        for names, numbers in missing.items()
    )


def _doubts(versions: Sequence[ReflectionVersion]) -> str:
    """Explain generated criteria that were not judged, or not followed because they may be wrong."""
    evaluations = [version.evaluation for version in versions if version.evaluation.generated]
    if not evaluations:
        return ""
    first = evaluations[0]
    unjudged = [name for name in first.generated if first.criteria_scores.get(name) is None]
    sentences = [f"{issue.rstrip('.')}." for issue in first.issues if issue.criterion in unjudged]
    best = highest(versions)
    best_score = best.evaluation.generated_score
    for version in versions:
        score = version.evaluation.generated_score
        if best_score is not None and score is not None and score > best_score:
            sentences.append(
                f"Version {version.iteration} does better by them ({score:.2f}) than version "
                f"{best.iteration} ({best_score:.2f}), but they may be wrong."
            )
            break
    return " ".join(sentences)


def _judge_problems(
    versions: Sequence[ReflectionVersion], signals: Signals, first_drafts: FirstDrafts
) -> dict[str, str]:
    findings: dict[str, str] = {}
    opinions = [
        version.evaluation.criteria_scores.get(name) for version in versions for name in signals.judged
    ]
    if signals.self_judged and any(score is not None for score in opinions):
        findings["self_judged_only"] = (
            "The only signal was the model's opinion of itself, which often makes answers worse; "
            "add a check, or let another model judge."
        )
    judged = [version.evaluation for version in versions if version.repeats is None]
    if any(evaluation.repeats_itself for evaluation in judged):
        findings["repeating_judge"] = (
            "All samples of a version were the same reply, word for word, so they say nothing about the "
            "judge's noise. The model may not accept a temperature."
        )
    difference = max(sample_difference(version.evaluation.samples) for version in versions)
    if difference > UNSTABLE:
        findings["unstable_judge"] = f"The judge's scores of one output differ by {difference:.2f}."
    if flipping := [version for version in versions if version.evaluation.agreement < 1]:
        findings["flipping_verdict"] = (
            "The judge's samples disagree on whether the output is satisfactory: "
            + "; ".join(
                f"{version.evaluation.agreement:.0%} agree with the verdict on version {version.iteration}"
                for version in flipping
            )
            + "."
        )
    unsure = [
        f"{version.iteration} ({version.evaluation.confidence:.2f})"
        for version in versions
        if version.evaluation.is_fully_judged and version.evaluation.confidence < UNSURE
    ]
    if unsure:
        findings["low_confidence"] = (
            f"The judge was unsure about {'version' if len(unsure) == 1 else 'versions'} {listed(unsure)}."
        )
    if _overcritical(versions, signals):
        findings["overcritical"] = (
            "Only the judge objected, and it was never satisfied; "
            "lower the threshold or sharpen the criteria."
        )
    first = versions[0].evaluation
    if set(first.criteria_scores) <= signals.judged:  # no check had a say
        share = first_drafts.add(signals, first.satisfactory)
        if share is not None and share >= ACCEPTED_SHARE:
            findings["undercritical"] = (
                f"The judge accepted {share:.0%} of the last {ENOUGH_DRAFTS} first drafts; "
                "it may accept anything."
            )
    return findings


def sample_difference(samples: Sequence[Mapping[str, float]]) -> float:
    """The average difference between the mean scores of two samples; 0 for fewer than two."""
    means = [fmean(scores.values()) for scores in samples]
    return fmean([abs(a - b) for a, b in combinations(means, 2)] or [0.0])


def _overcritical(versions: Sequence[ReflectionVersion], signals: Signals) -> bool:
    distinct = [version.evaluation for version in versions if version.repeats is None]
    if len(distinct) < 3 or any(evaluation.satisfactory for evaluation in distinct):  # noqa: PLR2004 (enough to be a habit)
        return False
    return all(
        score is not None and (name in signals.judged or score == 1.0)
        for evaluation in distinct
        for name, score in evaluation.criteria_scores.items()
    )
