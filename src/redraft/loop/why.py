"""Why: the rule that stopped a run, with the numbers that it went by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.core.summary import REASONS, render_usd
from redraft.core.texts import as_text
from redraft.core.version import highest
from redraft.loop.compared import compared, counted, listed, scored, unasked
from redraft.loop.stop import IN_A_ROW, same_substance

if TYPE_CHECKING:
    from redraft.core.version import ReflectionVersion
    from redraft.loop.kept_run import KeptRun

Told: TypeAlias = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Why:
    """Say why a run stopped, or how it stands.

    `rule` is its reason to stop, else its state (`running`, `killed`, `failed`); `headline` says that in
    words, `detail` with the numbers, and `numbers` are those. `short_of` says what the best version lacks.
    """

    rule: str
    headline: str
    detail: str
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    short_of: tuple[str, ...] = ()


STATES = {
    "running": "it is still running",
    "killed": "its process ended before the run did",
    "unknown": "it is not known whether its process is still there",
    "failed": "a step failed for good",
    "cancelled": "the run was cancelled",
}


def why(run: KeptRun) -> Why:
    """Say which rule stopped a run, and by which numbers."""
    record = run.record
    best = record.version(record.best)
    short_of = () if best is None else falls_short(run, best)
    if record.reason is None:
        detail, numbers = _unfinished(run)
        state = record.state
        return Why(state, STATES.get(state, state), detail, numbers, short_of)
    reason = record.reason.value
    detail, numbers = RULES[reason](run)
    if record.options.get("max_iterations") == 0 and best is not None and unasked(best):
        return Why(reason, "one version was wanted", "Nothing is there to judge it by.", numbers)
    return Why(reason, REASONS[reason], detail, numbers, short_of)


def falls_short(run: KeptRun, version: ReflectionVersion) -> tuple[str, ...]:
    """Say what a version lacks to be satisfactory: a clause for each threshold that it is below."""
    evaluation, threshold = version.evaluation, run.record.options.get("quality_threshold")
    if evaluation.satisfactory:
        return ()
    lacks: list[str] = []
    if evaluation.overall_score is None:
        lacks.append("the score is not known")
    elif threshold is not None and evaluation.overall_score < threshold:
        lacks.append(f"the score {compared(evaluation.overall_score, '<', threshold)}")
    for name, least in run.thresholds.items():
        score = evaluation.criteria_scores.get(name, least)
        if score is None:
            lacks.append(f"{name} could not be judged")
        elif score < least:
            lacks.append(f"{name} {compared(score, '<', least)}")
    return tuple(lacks)


def _quality_met(run: KeptRun) -> Told:
    last, threshold = run.record.versions[-1], run.record.options.get("quality_threshold")
    score, scores = last.evaluation.overall_score, last.evaluation.criteria_scores
    detail = f"Version {last.iteration} is satisfactory"
    if score is not None and threshold is not None:
        detail = f"Version {last.iteration} scored {compared(score, '>=', threshold)}"
        if score < threshold:  # an evaluator of the program's own decides by more than the score
            detail = f"Version {last.iteration} is satisfactory by its evaluator, and scored {score:.2f}"
    reached = [
        f"{name} {compared(given, '>=', least)}"
        for name, least in run.thresholds.items()
        if (given := scores.get(name)) is not None and given >= least
    ]
    if reached:
        detail += f", and every criterion is at its threshold: {listed(reached)}"
    return f"{detail}.", {"version": last.iteration, "score": score, "quality_threshold": threshold}


def _max_iterations(run: KeptRun) -> Told:
    record = run.record
    allowed = record.options.get("max_iterations")
    revisions = f"{record.revisions} of {allowed} revisions were made"
    if record.origin.surface == "workflow" and isinstance(allowed, int):  # whose file counts attempts
        revisions = f"{record.revisions + 1} of {allowed + 1} attempts were made"
    elif allowed == 0:
        revisions = "No revision was allowed (max_iterations = 0)"
    elif allowed == 1:
        revisions = "The one revision that was allowed was made"
    return f"{revisions}; {_best(run)}.", {"revisions": record.revisions, "max_iterations": allowed}


def _plateau(run: KeptRun) -> Told:
    record = run.record
    iterations: int = record.options.get("plateau_iterations", 1)
    beaten = [version for version in record.versions if version.gain is not None][-iterations:]
    before = [v for v in record.versions if not beaten or v.iteration < beaten[0].iteration]
    best = highest(before) if before else None
    if best is not None and best.evaluation.overall_score is None:
        best = None
    others = listed([f"{v.iteration} ({_score_with_spread(v)})" for v in beaten])
    numbers = {
        "best": None if best is None else best.iteration,
        "best_score": None if best is None else best.evaluation.overall_score,
        "not_better": [version.iteration for version in beaten],
        "plateau_iterations": iterations,
    }
    if best is None:
        return f"No version was better than those before it; plateau_iterations = {iterations}.", numbers
    versions = "version" if len(beaten) == 1 else "versions"
    return (
        f"The best score, {scored(best)} of version {best.iteration}, was not beaten by {versions} {others}; "
        f"plateau_iterations = {iterations}."
    ), numbers


def _diminishing(run: KeptRun) -> Told:
    last, threshold = run.record.versions[-1], run.record.options.get("improvement_threshold")
    gain = last.gain or 0.0
    numbers = {"version": last.iteration, "gain": last.gain, "improvement_threshold": threshold}
    told = f"Version {last.iteration} ({scored(last)}) beat the best before it by only"
    if threshold is None:
        return f"{told} {gain:.2f}.", numbers
    return f"{told} {compared(gain, '<', threshold)} (improvement_threshold).", numbers


def _oscillation(run: KeptRun) -> Told:
    last = run.record.versions[-4:]
    scores = listed([f"{scored(version)} (version {version.iteration})" for version in last])
    return (
        f"The last scores went up and down and ended no higher: {scores}.",
        {"scores": {version.iteration: version.evaluation.overall_score for version in last}},
    )


def _semantic_stability(run: KeptRun) -> Told:
    last = run.record.versions[-IN_A_ROW:]
    said: list[str] = []
    for before, version in pairwise(last):
        if version.repeats is not None:
            said.append(f"version {version.iteration} is the same as version {version.repeats}")
        elif same_substance(as_text(before.output), as_text(version.output)):
            said.append(f"version {version.iteration} says what version {before.iteration} said")
        else:
            said.append(f"version {version.iteration} won nothing")
    versions = [version.iteration for version in last[1:]]
    return f"Nothing changed in substance any more: {listed(said)}.", {"versions": versions}


def _repeated_issues(run: KeptRun) -> Told:
    last = run.record.versions[-IN_A_ROW:]
    issues = [" ".join(issue.message.split()) for issue in last[-1].evaluation.issues]
    shown = "; ".join(issues[:3]) + (f"; and {len(issues) - 3} more" if len(issues) > 3 else "")  # noqa: PLR2004 (enough to recognise them)
    versions = [version.iteration for version in last]
    numbers = listed([str(number) for number in versions])
    detail = f"Versions {numbers} have the same issues, and the score went from"
    detail = f"{detail} {scored(last[0])} to {scored(last[-1])}: {shown}."
    return detail, {"versions": versions, "issues": issues}


def _user(what: str) -> Callable[[KeptRun], Told]:
    def told(run: KeptRun) -> Told:
        last = run.record.versions[-1]
        return f"{what} version {last.iteration} ({scored(last)}).", {"version": last.iteration}

    return told


def _tokens(run: KeptRun) -> Told:
    record, used = run.record, run.record.usage.total_tokens
    allowed = record.options.get("budget_tokens")
    refused = "budget_tokens=" in record.diagnostics.get("budget", "")
    if allowed is not None and (used >= allowed or refused):
        too_little = " What was left was too little for the next call." if used < allowed else ""
        return f"{used:,} of {allowed:,} tokens were used (budget_tokens).{too_little}", {
            "used": used,
            "budget_tokens": allowed,
        }
    revision = record.usage_by_role.get("revision")
    used = revision.total_tokens if revision else 0
    allowed = record.options.get("max_revision_tokens")
    if allowed is None:
        return f"{record.usage.total_tokens:,} tokens were used.", {"used": record.usage.total_tokens}
    return f"Revisions used {used:,} of {allowed:,} tokens (max_revision_tokens).", {
        "used": used,
        "max_revision_tokens": allowed,
    }


def _cost(run: KeptRun) -> Told:
    allowed, used = run.record.options.get("budget_usd"), run.record.usage.cost_usd
    bound = "" if allowed is None else render_usd(allowed)
    if used is None:
        told = f"Part of the cost is not known; what is reached {bound or 'the budget'}"
    else:
        told = f"{render_usd(used)}{f' of {bound}' if bound else ''} were spent"
    return f"{told} (budget_usd).", {"used": used, "budget_usd": allowed}


def _time(run: KeptRun) -> Told:
    allowed, used = run.record.options.get("budget_seconds"), run.record.execution_time
    bound = "" if allowed is None else f" of {allowed:.1f}"
    return f"{used:.1f}{bound} seconds went by (budget_seconds).", {"used": used, "budget_seconds": allowed}


def _unjudged(run: KeptRun) -> Told:
    last = run.record.versions[-1]
    blind = list(last.evaluation.unjudged)
    what = f": {listed(blind)}" if blind else ""
    why_not = "; ".join(" ".join(issue.message.split()) for issue in last.evaluation.issues[:2])
    said = f" ({why_not})" if why_not else ""
    return f"Version {last.iteration} could not be judged{what}{said}.", {
        "version": last.iteration,
        "unjudged": blind,
    }


def _error(run: KeptRun) -> Told:
    failed = [step for step in run.outer_steps if step.error is not None and not step.void]
    at = f"The step {failed[-1].name!r} failed" if failed else "A step failed"
    after = f" after version {run.record.versions[-1].iteration}" if run.record.versions else ""
    numbers = {"step": failed[-1].name if failed else None, "error": run.record.error}
    return f"{at}{after}: {run.record.error}", numbers


def _cancelled(run: KeptRun) -> Told:
    versions = run.record.versions
    after = f"after version {versions[-1].iteration}" if versions else "before its first version"
    return f"It was cancelled {after}.", {"versions": len(versions)}


def _unfinished(run: KeptRun) -> Told:
    record = run.record
    if record.status == "failed":
        return _error(run)
    if record.status == "cancelled":
        return _cancelled(run)
    done, versions = len(run.outer_steps), len(record.versions)
    process = record.process
    numbers = {"versions": versions, "steps": done, "host": process.host, "pid": process.pid}
    went = f"{counted(versions, 'version')} and {counted(done, 'finished step')}"
    if record.state == "killed":
        return (
            f"The process {process.pid} is gone; kept are {went}, which a resumed run does not repeat.",
            numbers,
        )
    if record.state == "unknown":
        said = f"This machine can't tell whether the process {process.pid} is at work on it still"
        return f"{said}: {went} so far.", numbers
    return f"The process {process.pid} on {process.host} is at work on it: {went} so far.", numbers


def _best(run: KeptRun) -> str:
    best = run.record.version(run.record.best)
    return (
        "there is no best version"
        if best is None
        else f"the best is version {best.iteration} ({scored(best)})"
    )


def _score_with_spread(version: ReflectionVersion) -> str:
    gain, spread = version.gain or 0.0, version.evaluation.spread
    within = f", within the judge's spread of {spread:.2f}" if 0 < gain <= spread else ""
    return f"{scored(version)}{within}"


RULES: Mapping[str, Callable[[KeptRun], Told]] = {
    "quality_met": _quality_met,
    "max_iterations": _max_iterations,
    "plateau": _plateau,
    "oscillation": _oscillation,
    "diminishing": _diminishing,
    "semantic_stability": _semantic_stability,
    "repeated_issues": _repeated_issues,
    "user_accepted": _user("A callback accepted"),
    "user_stopped": _user("A callback, or a rule of the caller's, said stop after"),
    "token_budget": _tokens,
    "cost_budget": _cost,
    "time_budget": _time,
    "unjudged": _unjudged,
    "error": _error,
    "cancelled": _cancelled,
}
