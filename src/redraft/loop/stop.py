"""Stop rules: pure functions of the versions that return why a run stops, with the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, cast, overload

from redraft._calls import called
from redraft._texts import as_text, compared, counted, has_no_criteria, listed, listed_names, scored, snapshot
from redraft._validation import check_count, check_share
from redraft._verdicts import plain_scalar
from redraft.errors import OutputError
from redraft.loop.select import is_setback
from redraft.types import (
    ConvergenceReason,
    ReflectionVersion,
    Stop,
    highest,
    in_one_line,
    in_prose,
    joined,
    replaces,
    same_issue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from redraft.protocols import Stopper
    from redraft.types import Issue

__all__ = [
    "diminishing",
    "first",
    "max_iterations",
    "oscillation",
    "plateau",
    "quality_met",
    "repeated_issues",
    "semantic_stability",
    "unjudged",
]

Rule: TypeAlias = "Callable[[Sequence[ReflectionVersion]], Stop | None]"
"""A stop rule of Redraft; a caller's `Stopper` may return other values that mean a stop."""
IN_A_ROW = 3
"""Versions in a row that must be alike to count as stuck."""


def first(*rules: Stopper) -> Rule:
    """Combine rules: the first reason decides. A caller's own rule gets copies of the versions."""
    checked = [_checked(rule) for rule in rules]

    def first_reason(versions: Sequence[ReflectionVersion], /) -> Stop | None:
        for rule in checked:
            if stop := rule(versions):
                return stop
        return None

    return first_reason


def _checked(rule: Stopper) -> Rule:
    """A rule whose answer is a `Stop` or None: a rule of Redraft as it is, a caller's own wrapped."""
    if getattr(getattr(rule, "func", rule), "__module__", "").startswith("redraft."):
        return cast("Rule", rule)
    return lambda versions: stop_of(called(rule, _Copies(versions)), versions)


class _Copies(Sequence[ReflectionVersion]):
    """Copies of versions, each made on access: most rules look at the last version or two."""

    def __init__(self, versions: Sequence[ReflectionVersion]) -> None:
        self._versions = versions
        self._copies: dict[int, ReflectionVersion] = {}

    def __len__(self) -> int:
        return len(self._versions)

    @overload
    def __getitem__(self, at: int, /) -> ReflectionVersion: ...
    @overload
    def __getitem__(self, at: slice, /) -> Sequence[ReflectionVersion]: ...
    def __getitem__(self, at: int | slice, /) -> ReflectionVersion | Sequence[ReflectionVersion]:
        places = range(len(self._versions))[at]
        if isinstance(places, range):
            return tuple(self[place] for place in places)
        if places not in self._copies:
            self._copies[places] = snapshot(self._versions[places])
        return self._copies[places]


def stop_of(answer: object, versions: Sequence[ReflectionVersion]) -> Stop | None:
    """Convert what a rule returned to a `Stop`; a custom rule may return a bare reason, True or False."""
    answer = plain_scalar(answer)
    if answer is None or answer is False:
        return None
    try:
        if isinstance(answer, Stop):
            reason = ConvergenceReason(answer.reason)
            return answer if reason is answer.reason else replace(answer, reason=reason)
        reason = ConvergenceReason.USER_STOPPED if answer is True else ConvergenceReason(answer)
    except ValueError:
        raise OutputError(
            f"until returned {answer!r}; expected None, a Stop, a ConvergenceReason, or True to stop"
        ) from None
    return after(reason, "A custom rule said stop after", versions[-1])


def after(reason: ConvergenceReason, what: str, version: ReflectionVersion) -> Stop:
    """A stop after a version, for a decision outside the built-in rules."""
    score = version.evaluation.overall_score
    detail = f"{what} version {version.iteration} ({scored(version)})."
    return Stop(reason, detail, {"version": version.iteration, "score": score})


def quality_met(
    versions: Sequence[ReflectionVersion],
    /,
    *,
    threshold: float | None = None,
    criteria: Mapping[str, float] | None = None,
) -> Stop | None:
    """Stop when the last version is satisfactory, unless generated criteria keep a version that is not.

    The evaluator decides what is satisfactory; `threshold` and the thresholds of `criteria` only explain it.
    """
    last = versions[-1]
    if not last.evaluation.satisfactory:
        return None
    if last.evaluation.generated and not highest(versions).evaluation.satisfactory:
        return None
    score, scores = last.evaluation.overall_score, last.evaluation.criteria_scores
    detail = f"Version {last.iteration} is satisfactory"
    if score is not None and threshold is not None:
        detail = f"Version {last.iteration} scored {compared(score, '>=', threshold)}"
        if score < threshold:  # a custom evaluator may decide by more than the score
            detail = f"Version {last.iteration} is satisfactory by its evaluator, and scored {score:.2f}"
    met = [
        f"{in_prose(name)} {compared(criterion_score, '>=', least)}"
        for name, least in (criteria or {}).items()
        if (criterion_score := scores.get(name)) is not None and criterion_score >= least
    ]
    if met:
        detail += f", and every criterion is at its threshold: {listed(met)}"
    numbers = {"version": last.iteration, "score": score, "quality_threshold": threshold}
    return Stop(ConvergenceReason.QUALITY_MET, f"{detail}.", numbers)


def max_iterations(revisions: int) -> Rule:
    """Stop after this many revisions; 0 stops after the first draft."""
    check_count("max_iterations", revisions, 0)

    def at_maximum(versions: Sequence[ReflectionVersion], /) -> Stop | None:
        done = len(versions) - 1
        if done < revisions:
            return None
        if revisions == 0:
            why = "there is nothing to judge it by" if has_no_criteria(versions[-1]) else "no revision"
            detail = f"One version was asked for, and {why}."
        else:
            detail = (
                f"All {counted(revisions + 1, 'version')} were made: a draft and "
                f"{counted(revisions, 'revision')}, the maximum."
            )
        numbers = {"revisions": done, "max_iterations": revisions}
        return Stop(ConvergenceReason.MAX_ITERATIONS, detail, numbers)

    return at_maximum


def unjudged(versions: Sequence[ReflectionVersion], /) -> Stop | None:
    """Stop when no critique says what to revise: something could not be judged, and all else is met.

    If the next revision would start from an earlier version, which is known to fall short, it takes two such
    versions in a row. Stop as well when all of the user's criteria are met and generated criteria could not
    be judged, unless another generated criterion is known to fall short.
    """
    last = versions[-1]
    evaluation = last.evaluation
    lacks_generated = evaluation.generated and evaluation.meets_given and evaluation.generated_score is None
    if evaluation.unmet or not lacks_generated:
        if not evaluation.leaves_nothing_to_revise:
            return None
        best = highest(versions)
        others = [best, versions[-2]] if is_setback(last, best) else []
        if others and not any(version.evaluation.leaves_nothing_to_revise for version in others):
            return None
    missing = list(evaluation.unjudged)
    names = listed_names(missing)
    reasons = joined((evaluation.reasons_unjudged or evaluation.issues)[:2]).removesuffix(".")
    why = f" ({reasons})" if reasons else ""
    numbers = {
        "version": last.iteration,
        "score": evaluation.overall_score,
        "unjudged": missing,
        "why": reasons,
    }
    if evaluation.overall_score is None:
        what = f": {names}" if missing else ""
        detail = f"Version {last.iteration} could not be judged{what}{why}."
    else:
        met = listed_names(sorted(evaluation.judged))
        detail = (
            f"Version {last.iteration} could not be judged by {names}{why}; what could be judged "
            f"leaves nothing to revise: {met} ({evaluation.overall_score:.2f})."
        )
    return Stop(ConvergenceReason.UNJUDGED, detail, numbers)


def plateau(iterations: int) -> Rule:
    """Stop when `iterations` (>= 1) versions have not beaten the best score.

    A version that repeats an earlier one does not count. A gain within its margin of error is no gain.
    """
    check_count("plateau_iterations", iterations, 1)

    def on_plateau(versions: Sequence[ReflectionVersion], /) -> Stop | None:
        beaten: list[ReflectionVersion] = []
        for version in reversed(versions):
            if version.gain is None:
                continue
            if version.gain > version.margin:
                return None
            beaten.insert(0, version)
            if len(beaten) == iterations:
                return _plateau(versions, beaten)
        return None

    return on_plateau


def _plateau(versions: Sequence[ReflectionVersion], beaten: Sequence[ReflectionVersion]) -> Stop:
    best = highest(versions[: beaten[0].iteration - 1] or versions)
    scores: list[str] = []
    for version in beaten:
        margin = version.margin
        within = f", within the margin of error of {margin:.2f}" if 0 < (version.gain or 0) <= margin else ""
        less = "" if version.evaluation.preferred is None else ", not preferred to it"
        scores.append(f"{version.iteration} ({scored(version)}{within}{less})")
    detail = (
        f"The best score, {scored(best)} of version {best.iteration}, was not beaten by "
        f"{'version' if len(beaten) == 1 else 'versions'} {listed(scores)}; "
        f"plateau_iterations = {len(beaten)}."
    )
    numbers = {
        "best": best.iteration,
        "best_score": best.evaluation.overall_score,
        "not_better": [version.iteration for version in beaten],
        "plateau_iterations": len(beaten),
    }
    return Stop(ConvergenceReason.PLATEAU, detail, numbers)


def diminishing(threshold: float) -> Rule:
    """Stop when the last version beat the best before it, but by less than `threshold` (0..1).

    A gain within its margin of error is no gain, and left to the plateau.
    """
    check_share("improvement_threshold", threshold)

    def small_gain(versions: Sequence[ReflectionVersion], /) -> Stop | None:
        last = versions[-1]
        # Scores are decimal fractions: 0.55 - 0.5 must not fall short of 0.05 by the last bit.
        if last.gain is None or not last.margin < last.gain < threshold - 1e-9:
            return None
        detail = (
            f"Version {last.iteration} ({scored(last)}) beat the best before it by only "
            f"{compared(last.gain, '<', threshold)} (improvement_threshold)."
        )
        numbers = {"version": last.iteration, "gain": last.gain, "improvement_threshold": threshold}
        return Stop(ConvergenceReason.DIMINISHING_RETURNS, detail, numbers)

    return small_gain


def oscillation(versions: Sequence[ReflectionVersion], /) -> Stop | None:
    """Stop when the last four scores went up, down, up (or the reverse) and ended no higher.

    Scores of different criteria can't be compared, so they don't count.
    """
    if len(versions) < 4:  # noqa: PLR2004 (two turns take four points)
        return None
    last = versions[-4:]
    a, b, c, d = [None if version.repeats else version.evaluation.overall_score for version in last]
    if a is None or b is None or c is None or d is None:
        return None
    turns = (b - a) * (c - b) < 0 and (c - b) * (d - c) < 0
    if not turns or max(c, d) > max(a, b):
        return None
    if any(version.evaluation.judged != last[-1].evaluation.judged for version in last):
        return None
    path = listed([f"{scored(version)} (version {version.iteration})" for version in last])
    numbers = {"scores": {str(version.iteration): version.evaluation.overall_score for version in last}}
    detail = f"The last scores went up and down and ended no higher: {path}."
    return Stop(ConvergenceReason.OSCILLATION, detail, numbers)


def semantic_stability(versions: Sequence[ReflectionVersion], /) -> Stop | None:
    """Stop when two versions in a row changed nothing in substance, and were no better."""
    if len(versions) < IN_A_ROW:
        return None
    last = versions[-IN_A_ROW:]
    unchanged: list[str] = []
    for before, version in pairwise(last):
        if version.repeats is not None:
            unchanged.append(f"version {version.iteration} is the same as version {version.repeats}")
        elif not replaces(version, before) and same_substance(
            as_text(before.output), as_text(version.output)
        ):
            unchanged.append(f"version {version.iteration} says the same as version {before.iteration}")
        else:
            return None
    detail = f"Nothing changed in substance any more: {listed(unchanged)}."
    numbers = {"versions": [version.iteration for version in last[1:]]}
    return Stop(ConvergenceReason.SEMANTIC_STABILITY, detail, numbers)


def repeated_issues(versions: Sequence[ReflectionVersion], /) -> Stop | None:
    """Stop when three versions in a row have the same issues, and the last is no better than the first."""
    if len(versions) < IN_A_ROW:
        return None
    last = versions[-IN_A_ROW:]
    latest = last[-1].evaluation
    if not latest.issues or replaces(last[-1], last[0]):
        return None
    if any(version.evaluation.preferred == 1.0 for version in last[1:]):
        return None
    if any(version.repeats is not None for version in last):
        return None
    for version in last[:-1]:
        issues = version.evaluation.issues
        if not (same_issues(issues, latest.issues) and same_issues(latest.issues, issues)):
            return None
    messages = [in_one_line(issue.message) for issue in latest.issues]
    numbers = [version.iteration for version in last]
    more = [f"and {len(messages) - 3} more"] if len(messages) > 3 else []  # noqa: PLR2004 (enough to recognise the issues)
    before, after = scored(last[0]), scored(last[-1])
    change = f"stayed at {after}" if before == after else f"went from {before} to {after}"
    detail = (
        f"Versions {listed([str(number) for number in numbers])} have the same issues, and the score "
        f"{change}: {joined([*messages[:3], *more]).removesuffix('.')}."
    )
    return Stop(ConvergenceReason.REPEATED_ISSUES, detail, {"versions": numbers, "issues": messages})


def same_issues(issues: Iterable[Issue], among: Sequence[Issue]) -> bool:
    """Whether each of `issues` is also in `among`."""
    return all(any(same_issue(issue, other) for other in among) for issue in issues)


def same_substance(text: str, other: str) -> bool:
    """Whether two texts differ only in white space, case and punctuation at word ends."""
    return text == other or _substance(text) == _substance(other)


def _substance(text: str) -> list[str]:
    return [word.rstrip(".,;:!?") for word in text.casefold().split()]
