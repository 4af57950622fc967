"""The five success criteria: figures that say whether reflecting works, measured on stored runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, fields, replace
from functools import partial
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any

from redraft._codec import describe_error
from redraft._hints import keyword_hints
from redraft._texts import counted
from redraft._validation import check_count
from redraft.errors import ConfigError, RedraftError, over_budget
from redraft.evals.judging import SECOND, criteria_of_judge, judge_again
from redraft.evaluate.criteria import weighted_mean
from redraft.loop.budget import Budget, SharedBudget, check_prices
from redraft.loop.diagnose import UNSTABLE, sample_difference
from redraft.loop.journal import RunKey, new_run_id
from redraft.loop.pattern import pattern_or_default
from redraft.loop.record import RUN, Origin
from redraft.loop.runs import ENDED_RUNS, Runs
from redraft.loop.select import BestScores
from redraft.loop.stop import plateau, quality_met
from redraft.loop.version_diff import addressed
from redraft.models.names import label_of_model, model_of
from redraft.settings import load_settings
from redraft.stores.location import required_project_store
from redraft.types import NOTHING_USED, ConvergenceReason, Draft, TokenUsage, highest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.record import RunRecord
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import QualityCriterion, ReflectionEvaluation, ReflectionVersion

NEWEST = 200
"""How many of the newest runs are measured by default."""
SOON = 3
"""How many revisions a run may take to become satisfactory."""
CONVERGED = (
    ConvergenceReason.QUALITY_MET,
    ConvergenceReason.USER_ACCEPTED,
    ConvergenceReason.PLATEAU,
    ConvergenceReason.OSCILLATION,
    ConvergenceReason.DIMINISHING_RETURNS,
    ConvergenceReason.SEMANTIC_STABILITY,
    ConvergenceReason.REPEATED_ISSUES,
)
"""The reasons of a run that stopped because it was good enough, or got no better."""


@dataclass(frozen=True, slots=True)
class SuccessFigure:
    """One success criterion: its value, its target, and the cases that it is measured on."""

    title: str
    value: float | None
    """The share of cases that meet the criterion (0..1), or a mean difference; None without cases."""
    target: float
    met: int
    cases: int
    unknown: int
    """Further cases that can't be decided."""
    noun: str
    did: str
    """Verb phrase for the cases that meet the criterion, such as "ended better than they began"."""
    at_most: bool = False
    """Whether the target is an upper limit rather than a minimum."""

    @classmethod
    def share(
        cls, title: str, target: float, noun: str, did: str, cases: Iterable[bool | None]
    ) -> SuccessFigure:
        """The share of cases that meet a criterion; None marks a case that can't be decided."""
        decided = list(cases)
        met, unknown = decided.count(True), decided.count(None)
        count = len(decided) - unknown
        return cls(title, met / count if count else None, target, met, count, unknown, noun, did)

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a case."""
        if self.value is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def shown_value(self) -> str:
        """The value, with as many digits as show on which side of the target it is."""
        value = self.value
        if value is None:
            return "?"
        digits = next(n for n in range(2, 20) if replace(self, value=round(value, n)).reached is self.reached)
        return f"{value:.{digits}f}" if self.at_most else f"{value:.{digits - 2}%}"

    @property
    def shown_target(self) -> str:
        """The target, with its direction."""
        return f"<= {self.target:.2f}" if self.at_most else f">= {self.target:.0%}"

    @property
    def stands_on(self) -> str:
        """The number of cases in words."""
        noun = self.noun if self.cases != 1 else self.noun.removesuffix("s")
        summary = f"{self.met} of {self.cases} {noun} {self.did}" if self.cases else f"no {noun}"
        return f"{summary}; {self.unknown} unknown" if self.unknown else summary


@dataclass(frozen=True, slots=True)
class SuccessCriteria:
    """Whether reflecting works: five figures, each with a target."""

    runs: int
    """Ended runs that are measured."""
    quality_improvement: SuccessFigure
    """Share of runs with a revision whose returned version is better than the first."""
    convergence: SuccessFigure
    """Share of runs with a satisfactory version after at most three revisions."""
    issue_resolution: SuccessFigure
    """Share of issues sent to a revision that its evaluation no longer has."""
    consistency: SuccessFigure
    """Mean difference between two judgements of the same output."""
    termination: SuccessFigure
    """Share of runs that stopped as soon as they met the quality or reached a plateau."""
    usage: TokenUsage = NOTHING_USED
    """Usage of the second judgements that were made for these figures."""
    note: str = ""
    """Why second judgements are missing."""

    @classmethod
    def of(
        cls, records: Sequence[RunRecord], second: Mapping[str, ReflectionEvaluation] | None = None
    ) -> SuccessCriteria:
        """Measure the records of ended runs; `second` maps run ids to second judgements."""
        judged = [record for record in records if record.versions]
        differences = [_differences(record, (second or {}).get(record.run_id)) for record in judged]
        known_differences = [
            difference for of_run in differences if of_run is not None for difference in of_run
        ]
        share = SuccessFigure.share
        return cls(
            len(records),
            share(
                "Quality improvement",
                0.8,
                "runs",
                "ended better than they began",
                (_is_improved(record) for record in judged if record.revisions),
            ),
            share(
                "Convergence",
                0.7,
                "runs",
                f"became satisfactory within {SOON} revisions",
                map(_is_soon_satisfactory, records),
            ),
            share(
                "Issue resolution",
                0.85,
                "issues",
                "were gone in the next version",
                (is_gone for record in judged for is_gone in _resolved(record)),
            ),
            SuccessFigure(
                "Consistency",
                fmean(known_differences) if known_differences else None,
                UNSTABLE,
                sum(difference <= UNSTABLE for difference in known_differences),
                len(known_differences),
                differences.count(None),
                "outputs",
                f"scored within {UNSTABLE} of each other when judged twice",
                at_most=True,
            ),
            share(
                "Termination",
                0.9,
                "runs",
                "stopped where the quality was met or a plateau reached",
                (stopped for record in judged for stopped in _stopped_in_time(record)),
            ),
        )

    @property
    def figures(self) -> dict[str, SuccessFigure]:
        """The figures by their names."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value for name, value in values if isinstance(value, SuccessFigure)}

    def document(self) -> dict[str, Any]:
        """The figures as plain data."""
        names = ("value", "target", "reached", "met", "cases", "unknown", "noun")
        figures = {
            name: {key: getattr(figure, key) for key in names} for name, figure in self.figures.items()
        }
        return {"runs": self.runs, **figures, "usage": self.usage, "note": self.note}


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
async def success_criteria(
    store: Store | None = None,
    *,
    status: str | None = None,
    name: str | None = None,
    reason: str | None = None,
    task: str | None = None,
    inner: bool = False,
    limit: int = NEWEST,
    judge_again: int = 0,
    pattern: ReflectionPattern | None = None,
) -> SuccessCriteria:
    """Measure whether reflecting works: five figures on the newest runs of a store that have ended.

    `store` defaults to the project's store. The runs are filtered as by `Runs.rows`. Runs that have not
    ended, are damaged, or could not revise, such as those of `redraft check`, don't count.

    `judge_again` makes second judgements of up to that many of the newest runs that have none; by default no
    model is called. The model that judged in the run judges again, or the judge of `pattern`, whose budgets
    hold for all second judgements together. They are stored and count in later measurements. Raises
    `ConfigError` for a model that can't work, or if no model for the second judgement is known.
    """
    check_count("judge_again", judge_again, 0)
    store, pattern = store or required_project_store("runs"), pattern_or_default(pattern)
    runs = Runs(store)
    rows = await runs.rows(status=status, name=name, reason=reason, task=task, inner=inner, limit=limit)
    records = [
        record
        for record in await runs.read_rows(rows)
        if record.status in ENDED_RUNS and record.options.get("max_iterations") != 0
    ]
    stored = await asyncio.gather(*(_second_judgement(record, runs, store) for record in records))
    second = {
        record.run_id: evaluation
        for record, evaluation in zip(records, stored, strict=True)
        if evaluation is not None
    }
    if not judge_again:
        return SuccessCriteria.of(records, second)
    missing = [record for record in records if record.run_id not in second]
    chosen = _runs_to_judge(missing, pattern, judge_again)
    made, usage, note = await _judge_again(chosen, pattern, store)
    return replace(SuccessCriteria.of(records, second | made), usage=usage, note=note)


# --- the figures -------------------------------------------------------------------------------------------


def _is_improved(record: RunRecord) -> bool | None:
    """Whether the returned version beats the first; None if their judgements can't be compared."""
    first, best = record.version(1), record.version(record.best)
    if first is None or best is None:
        return None
    if best is first:
        return False if first.evaluation.is_conclusive else None
    best_scores = BestScores()
    best_scores.gain(first.evaluation)
    gain, margin = best_scores.gain(best.evaluation)
    return None if gain is None else gain > margin


def _is_soon_satisfactory(record: RunRecord) -> bool | None:
    """Whether a version was satisfactory within `SOON` revisions; None for a run interrupted before that."""
    versions = record.versions
    satisfactory = [
        version.iteration for version in versions if version.evaluation.satisfactory or version.accepted
    ]
    if satisfactory:
        within = min(satisfactory) <= SOON + 1
        return within if within or _has_all_versions(record) else None
    if record.status != "finished" or all(version.evaluation.overall_score is None for version in versions):
        return None
    return False


def _has_all_versions(record: RunRecord) -> bool:
    return len(record.versions) == record.revisions + 1


def _resolved(record: RunRecord) -> list[bool | None]:
    """For each issue sent to a revision, whether that revision resolved it.

    Resampled drafts got no feedback. Issues of criteria that are hidden from the writer were never sent.
    """
    resolved: list[bool | None] = []
    for at, version in enumerate(record.versions[1:], 1):
        if version.strategy == "resample":
            continue
        if version.base is None:  # a fresh start gets the issues of the best earlier version
            earlier = record.versions[:at]
            base = highest(earlier) if version.iteration == at + 1 else None
        else:
            base = record.version(version.base)
        if base is not None:
            visible_issues = base.evaluation.shown or {}
            resolved += [
                point.addressed
                for point in addressed(base.evaluation, version.evaluation).points
                if visible_issues.get(point.issue.criterion or "", True) is not False
            ]
    return resolved


def _stopped_in_time(record: RunRecord) -> list[bool | None]:
    """Whether a run stopped as soon as it met the quality or reached a plateau; empty if it did neither."""
    if not _has_all_versions(record):
        return [None] if record.reason in CONVERGED else []
    rules = (quality_met, plateau(record.options.get("plateau_iterations") or 2))
    versions = record.versions
    counts = range(1, len(versions) + 1)
    reached = next((count for count in counts if any(rule(versions[:count]) for rule in rules)), None)
    if reached is None:
        return [True] if record.reason in CONVERGED else []
    return [reached == len(versions)]


def _differences(record: RunRecord, second: ReflectionEvaluation | None) -> list[float] | None:
    """Score differences of the outputs that were judged twice; empty if no model judged in the run.

    None if a model judged in the run, but no output twice.
    """
    differences = [
        sample_difference(version.evaluation.samples)
        for version in record.versions
        if version.repeats is None and len(version.evaluation.samples) > 1
    ]
    criteria, version = _to_judge_again(record)
    if second is not None and version is not None:
        then = weighted_mean(criteria, version.evaluation.criteria_scores)
        now = weighted_mean(criteria, second.criteria_scores)
        if then is not None and now is not None:
            differences.append(abs(then - now))
    return differences or (None if criteria else [])


# --- second judgements -------------------------------------------------------------------------------------


def _to_judge_again(record: RunRecord) -> tuple[list[QualityCriterion], ReflectionVersion | None]:
    """Criteria of a run that a model judged, and the version to judge again by them.

    It is the first version with all their scores, because only the first judgement of a run is made without
    a record of earlier versions.
    """
    criteria = criteria_of_judge(record)
    if not any(criterion.weight for criterion in criteria):
        return [], None

    def has_scores(version: ReflectionVersion) -> bool:
        scores = version.evaluation.criteria_scores
        return all(scores.get(criterion.name) is not None for criterion in criteria)

    return criteria, next(filter(has_scores, record.versions), None)


def _id_prefix(run_id: str) -> str:
    """Prefix of the ids of second judgements of a run."""
    return f"again-{run_id}."


async def _second_judgement(record: RunRecord, runs: Runs, store: Store) -> ReflectionEvaluation | None:
    """The stored second judgement of a run; None if there is none, or all have failed."""
    rows = await store.find(RUN, prefix=_id_prefix(record.run_id))
    judgements = [await runs.listed(row) for row in rows]
    evaluations = (
        judgement.versions[0].evaluation
        for judgement in judgements
        if judgement.parent == record.run_id and judgement.versions
    )
    return next((evaluation for evaluation in evaluations if evaluation.is_fully_judged), None)


def _runs_to_judge(records: Sequence[RunRecord], pattern: ReflectionPattern, count: int) -> list[RunRecord]:
    """The first `count` runs that can be judged again by a pattern.

    Raises `ConfigError` if there are none because no run names its judge.
    """
    judged = [record for record in records if _to_judge_again(record)[1] is not None]
    able = [record for record in judged if pattern.reflection_model or _judge_of(record)]
    if judged and not able:
        raise ConfigError(
            "No run names the model that judged in it: give a model for the second judgement "
            "(--model, or reflection_model=... in the pattern)."
        )
    return able[:count]


async def _judge_again(
    records: Sequence[RunRecord], pattern: ReflectionPattern, store: Store
) -> tuple[dict[str, ReflectionEvaluation], TokenUsage, str]:
    """Judge an output of each run again, one after the other, until the budget is spent.

    Each judgement is stored as a child of the run that it judges. Returns the judgements by run id, their
    usage, and why some are missing. Raises `ConfigError` for a model that can't work.
    """
    models = [pattern.reflection_model or _model_of(record) for record in records]
    if pattern.budget_usd is not None:
        check_prices(*(model_of(model, load_settings()) for model in models))
    budget = SharedBudget(Budget(pattern.budget_tokens, pattern.budget_usd, pattern.budget_seconds))
    made: dict[str, ReflectionEvaluation] = {}
    usages: list[TokenUsage] = []
    note = ""
    for record, model in zip(records, models, strict=True):
        criteria, version = _to_judge_again(record)
        if version is None:
            raise AssertionError("only runs with a judged version are judged again")
        key = RunKey(f"{_id_prefix(record.run_id)}{new_run_id()}", store, parent=record.run_id)
        origin = Origin("function", SECOND, label_of_model(pattern.reflection_model or _judge_of(record)))
        judging = replace(pattern, reflection_model=model)
        draft = Draft(version.output, NOTHING_USED, conversation=version.conversation)
        work = partial(judge_again, record.task, draft, criteria, judging, key, origin)
        try:
            result = await budget.part(record.run_id, work, attrgetter("token_usage"))
        except ConfigError:
            raise
        except RedraftError as error:
            if over_budget(error):
                note = f"The budget was spent after {counted(len(made), 'second judgement')}."
            else:
                why = describe_error(error.__cause__ or error)
                note = f"Judging the run {record.run_id} again failed: {why}"
            break
        usages.append(result.token_usage)
        if result.final_evaluation.is_fully_judged:
            made[record.run_id] = result.final_evaluation
    return made, sum((*usages, *budget.suspended.values()), NOTHING_USED), note


def _model_of(record: RunRecord) -> ChatModel:
    """The model that judged in a run; raises `ConfigError` if it can't be called from here."""
    try:
        return model_of(_judge_of(record), load_settings())
    except ConfigError as error:
        raise ConfigError(
            f"The judge of the run {record.run_id} can't be called: {error} Give another one for the second "
            "judgement (--model, or reflection_model=... in the pattern)."
        ) from error


def _judge_of(record: RunRecord) -> str | None:
    """Name of the model that judged in a run; None for a model object without a name."""
    name = str(record.options.get("judge") or "")
    name = name if name and not set("(<") & set(name) else record.origin.model
    return name or None
