"""Five figures that say whether reflecting works, measured on any set of runs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import fmean
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, cast

from redraft._texts import counted
from redraft.errors import ConfigError
from redraft.evaluate.criteria import weighted_mean
from redraft.loop.diagnose import UNSTABLE, sample_difference
from redraft.loop.journal import Journalled
from redraft.loop.keeper import run_and_store
from redraft.loop.pattern import ReflectionPattern, starting_draft
from redraft.loop.record import Origin, RunRecord
from redraft.loop.select import Peaks
from redraft.loop.stop import plateau, quality_met
from redraft.loop.verbs import function_verbs
from redraft.loop.version_diff import addressed
from redraft.models.names import label_of_model, model_of
from redraft.settings import load_settings
from redraft.stores.base import Store
from redraft.types import NOTHING_USED, ConvergenceReason, QualityCriterion, TokenUsage, highest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.protocols import ChatModel, ModelChoice
    from redraft.types import ReflectionEvaluation, ReflectionResult, ReflectionVersion

SOON = 3
"""How many revisions a run may take to become satisfactory."""
SATISFIED = (ConvergenceReason.QUALITY_MET, ConvergenceReason.USER_ACCEPTED)
CONVERGED = (
    *SATISFIED,
    ConvergenceReason.PLATEAU,
    ConvergenceReason.OSCILLATION,
    ConvergenceReason.DIMINISHING_RETURNS,
    ConvergenceReason.SEMANTIC_STABILITY,
    ConvergenceReason.REPEATED_ISSUES,
)
"""The reasons of a run that stopped because it was good enough, or got no better."""
SECOND = "second judgement"
"""The name of the run that judges an output of another run again."""


@dataclass(frozen=True, slots=True)
class SuccessFigure:
    """One success criterion.

    `value` is the share of cases in which it is met (0..1), or the mean difference of two judgements; None if
    there is no case. It stands on `cases`, of which `met` meet it; `unknown` more can't be decided. `reached`
    says whether the value reaches `target`.
    """

    value: float | None
    target: float
    met: int
    cases: int
    unknown: int
    noun: str
    at_most: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None without a case."""
        if self.value is None:
            return None
        return self.value <= self.target if self.at_most else self.value >= self.target


@dataclass(frozen=True, slots=True)
class SuccessCriteria:
    """Whether reflecting works: five figures, each with a target, on a number of ended `runs`.

    `quality_improvement`: of the runs that revised, the share whose returned version is better than the
    first. `convergence`: of the runs, the share with a satisfactory version after at most three revisions.
    `issue_resolution`: of the issues that a revision was given, the share that its evaluation no longer has.
    `consistency`: by how much two judgements of one output differ on average. `termination`: of the runs that
    met the quality or reached a plateau, the share that stopped right there. `usage` is what second
    judgements made just now have used; `note` says why not all could be made.
    """

    runs: int
    quality_improvement: SuccessFigure
    convergence: SuccessFigure
    issue_resolution: SuccessFigure
    consistency: SuccessFigure
    termination: SuccessFigure
    usage: TokenUsage = NOTHING_USED
    note: str = ""

    @property
    def figures(self) -> dict[str, SuccessFigure]:
        """The figures by their names."""
        return {
            "quality_improvement": self.quality_improvement,
            "convergence": self.convergence,
            "issue_resolution": self.issue_resolution,
            "consistency": self.consistency,
            "termination": self.termination,
        }

    def rows(self) -> list[SuccessRow]:
        """Return the figures as they are shown."""
        return [SuccessRow.of(*SHOWN[name], figure) for name, figure in self.figures.items()]

    def document(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        names = ("value", "target", "reached", "met", "cases", "unknown", "noun")
        figures = {
            name: {key: getattr(figure, key) for key in names} for name, figure in self.figures.items()
        }
        return {"runs": self.runs, **figures, "usage": self.usage, "note": self.note}


SHOWN = {
    "quality_improvement": ("Quality improvement", "ended better than they began"),
    "convergence": ("Convergence", "became satisfactory within 3 revisions"),
    "issue_resolution": ("Issue resolution", "were gone in the next version"),
    "consistency": ("Consistency", "scored within 0.1 of each other when judged twice"),
    "termination": ("Termination", "stopped where the quality was met or a plateau reached"),
}
"""The name of each success criterion, and what its cases did."""


@dataclass(frozen=True, slots=True)
class SuccessRow:
    """A success criterion in words: its name, its value and target, and the cases that it stands on."""

    name: str
    value: str
    target: str
    stands_on: str
    reached: bool | None

    @classmethod
    def of(cls, name: str, did: str, figure: SuccessFigure) -> Self:
        """Return the row of a figure; `did` says what its cases did."""
        target = f"<= {figure.target:.2f}" if figure.at_most else f">= {figure.target:.0%}"
        noun = figure.noun if figure.cases != 1 else figure.noun.removesuffix("s")
        known = f"{figure.met} of {figure.cases} {noun} {did}" if figure.cases else f"no {noun}"
        stands_on = f"{known}; {figure.unknown} unknown" if figure.unknown else known
        return cls(name, _value(figure), target, stands_on, figure.reached)


def _value(figure: SuccessFigure) -> str:
    """Render a value with as many digits as show on which side of the target it is."""
    value = figure.value
    if value is None:
        return "?"
    digits = next(n for n in range(2, 20) if replace(figure, value=round(value, n)).reached is figure.reached)
    return f"{value:.{digits}f}" if figure.at_most else f"{value:.{digits - 2}%}"


def success_criteria(
    records: Sequence[RunRecord], second: Mapping[str, RunRecord] | None = None
) -> SuccessCriteria:
    """Measure the success criteria on the records of ended runs; nothing is called.

    `second` holds second judgements, by the ids of the runs that they judge again.
    """
    judged = [record for record in records if record.versions]
    differences = [_differences(record, (second or {}).get(record.run_id)) for record in judged]
    known = [one for of_run in differences if of_run is not None for one in of_run]
    return SuccessCriteria(
        len(records),
        _share(0.8, "runs", (_is_improved(record) for record in judged if record.revisions)),
        _share(0.7, "runs", map(_is_soon_satisfactory, records)),
        _share(0.85, "issues", (one for record in judged for one in _resolved(record))),
        SuccessFigure(
            fmean(known) if known else None,
            UNSTABLE,
            sum(one <= UNSTABLE for one in known),
            len(known),
            differences.count(None),
            "outputs",
            at_most=True,
        ),
        _share(0.9, "runs", (stopped for record in judged for stopped in _stopped_in_time(record))),
    )


def _share(target: float, noun: str, cases: Iterable[bool | None]) -> SuccessFigure:
    decided = list(cases)
    met, unknown = decided.count(True), decided.count(None)
    known = len(decided) - unknown
    return SuccessFigure(met / known if known else None, target, met, known, unknown, noun)


def _is_improved(record: RunRecord) -> bool | None:
    """Return whether the returned version beats the first; None if they were not judged alike."""
    first, best = record.version(1), record.version(record.best)
    if first is None or best is None:
        return None
    if best is first:
        return False if first.evaluation.is_conclusive else None
    peaks = Peaks()
    peaks.gain(first.evaluation)
    gain, margin = peaks.gain(best.evaluation)
    return None if gain is None else gain > margin


def _is_soon_satisfactory(record: RunRecord) -> bool | None:
    """Return whether a version was satisfactory in time; None for a run that was broken off before."""
    good = [
        version.iteration
        for version in record.versions
        if version.evaluation.satisfactory or version.accepted
    ]
    if good:
        within = min(good) <= SOON + 1
        return within if within or _has_all_versions(record) else None
    if record.status != "finished" or all(one.evaluation.overall_score is None for one in record.versions):
        return None
    return False


def _has_all_versions(record: RunRecord) -> bool:
    return len(record.versions) == record.revisions + 1


def _resolved(record: RunRecord) -> list[bool | None]:
    """Return for each issue that a revision was given whether it is gone in that revision.

    A draft that was made again without feedback was given none, and nobody was given those of criteria that
    are hidden from the writer.
    """
    found: list[bool | None] = []
    for at, version in enumerate(record.versions[1:], 1):
        if version.strategy == "resample":
            continue
        if version.base is None:  # a fresh start is given the issues of the best version before it
            earlier = record.versions[:at]
            base = highest(earlier) if version.iteration == at + 1 else None
        else:
            base = record.version(version.base)
        if base is not None:
            shown = base.evaluation.shown or {}
            points = addressed(base.evaluation, version.evaluation).points
            found += [
                point.addressed
                for point in points
                if shown.get(point.issue.criterion or "", True) is not False
            ]
    return found


def _stopped_in_time(record: RunRecord) -> list[bool | None]:
    """Return whether a run stopped where its quality was met or a plateau reached; empty if neither was."""
    if not _has_all_versions(record):
        return [None] if record.reason in CONVERGED else []
    rules = (quality_met, plateau(record.options.get("plateau_iterations") or 2))
    versions = record.versions
    reached = next(
        (n for n in range(1, len(versions) + 1) if any(rule(versions[:n]) for rule in rules)), None
    )
    if reached is None:
        return [True] if record.reason in CONVERGED else []
    return [reached == len(versions)]


def _differences(record: RunRecord, second: RunRecord | None) -> list[float] | None:
    """Return by how much two judgements differ, for each output that was judged twice.

    Returns None for a run in which a model judged, and no output twice; empty if no model judged.
    """
    found = [
        sample_difference(version.evaluation.samples)
        for version in record.versions
        if version.repeats is None and len(version.evaluation.samples) > 1
    ]
    criteria, version = to_judge_again(record)
    if second is not None and second.versions and version is not None:
        then, now = (
            weighted_mean(criteria, one.evaluation.criteria_scores) for one in (version, second.versions[0])
        )
        if then is not None and now is not None:
            found.append(abs(then - now))
    return found or (None if criteria else [])


# A second judgement.


def to_judge_again(record: RunRecord) -> tuple[list[QualityCriterion], ReflectionVersion | None]:
    """Return the criteria of a run that a model judged, and the version to judge again by them.

    That is the first version that has all their scores, because only the first judgement of a run is made
    without a record of earlier versions.
    """
    fields = ("name", "description", "weight", "threshold", "shown")
    criteria = [
        QualityCriterion(**{name: one[name] for name in fields if name in one})
        for one in cast("Sequence[Mapping[str, Any]]", record.options.get("criteria", ()))
        if one.get("evaluator", "llm") == "llm"
    ]

    def has_scores(evaluation: ReflectionEvaluation) -> bool:
        return all(evaluation.criteria_scores.get(one.name) is not None for one in criteria)

    if not any(criterion.weight for criterion in criteria):
        return [], None
    return criteria, next((one for one in record.versions if has_scores(one.evaluation)), None)


def runs_to_judge(records: Sequence[RunRecord], pattern: ReflectionPattern, count: int) -> list[RunRecord]:
    """Return the first `count` runs that can be judged again by a pattern.

    Raises `ConfigError` if there are none because no model is known.
    """
    judged = [record for record in records if to_judge_again(record)[1] is not None]
    able = [record for record in judged if pattern.reflection_model or judge_of(record)]
    if judged and not able:
        raise ConfigError(
            "No run names the model that judged in it: give a model for the second judgement "
            "(--model, or reflection_model=... in the pattern)."
        )
    return able[:count]


@dataclass(slots=True)
class SecondJudgements:
    """Second judgements of runs, stored as runs inside those that they judge, so that none is paid for twice.

    `pattern` judges: its `reflection_model`, else the model that judged in the run, within its budgets, which
    hold for all together. `usage` is what was used, and `note` says why not all could be made.
    """

    store: Store
    pattern: ReflectionPattern
    usage: TokenUsage = NOTHING_USED
    note: str = ""
    began: float = field(default_factory=monotonic)

    async def make(self, records: Sequence[RunRecord], attempts: Mapping[str, int]) -> None:
        """Judge an output of each run again, in turn, as long as the budget lasts.

        `attempts` are the numbers of earlier attempts by run. Raises `ConfigError` for a model that can't
        work.
        """
        models = [self.pattern.reflection_model or _model_of(record) for record in records]
        for done, (record, model) in enumerate(zip(records, models, strict=True)):
            spent = f"The budget was spent after {counted(done, 'second judgement')}."
            budget = self._left()
            if budget is None:
                self.note = spent
                return
            result = await self._judge(record, attempts.get(record.run_id, 0) + 1, model, budget)
            self.usage += result.token_usage
            if result.error is not None:
                self.note = f"Judging the run {record.run_id} again failed: {result.error}"
                return
            if "budget" in result.diagnostics:  # the call did not fit into what was left
                self.note = spent
                return

    def _left(self) -> dict[str, Any] | None:
        """Return what is left of the budgets; None if one is spent."""
        pattern, used = self.pattern, self.usage
        left = {
            "budget_tokens": pattern.budget_tokens and pattern.budget_tokens - used.total_tokens,
            "budget_usd": pattern.budget_usd and pattern.budget_usd - (used.cost_usd or 0.0),
            "budget_seconds": pattern.budget_seconds and pattern.budget_seconds - (monotonic() - self.began),
        }
        return None if any(one is not None and one <= 0 for one in left.values()) else left

    async def _judge(
        self, record: RunRecord, attempt: int, model: ModelChoice, budget: Mapping[str, Any]
    ) -> ReflectionResult:
        criteria, version = to_judge_again(record)
        if version is None:
            raise AssertionError("only runs with a judged version are judged again")
        pattern = replace(
            self.pattern,
            max_iterations=0,
            quality_criteria=[replace(criterion, threshold=0.0) for criterion in criteria],
            quality_threshold=0.0,  # the score matters, and no verdict that would have to be confirmed
            reflection_model=model,
            on_failure="return",
            advisors=(),
            callbacks=None,
            until=None,
            **budget,
        )
        verbs = function_verbs(pattern, record.task.task_type, None, None, _unchanged, has_draft=True)
        journal = Journalled(self.store, f"{id_prefix(record.run_id)}{attempt}", resumes=False)
        journal.parent = record.run_id
        name = label_of_model(self.pattern.reflection_model or judge_of(record))
        origin = Origin("function", SECOND, name)
        draft = starting_draft(version.output)
        return await run_and_store(pattern, record.task, verbs, journal, draft, origin)


def _model_of(record: RunRecord) -> ChatModel:
    """Return the model that judged in a run; raises `ConfigError` if it can't be called from here."""
    try:
        return model_of(judge_of(record), load_settings())
    except ConfigError as error:
        raise ConfigError(
            f"The judge of the run {record.run_id} can't be called: {error} Give another one for the second "
            "judgement (--model, or reflection_model=... in the pattern)."
        ) from error


def _unchanged(output: Any, _evaluation: ReflectionEvaluation) -> Any:
    return output  # never called: the pattern allows no revision


def id_prefix(run_id: str) -> str:
    """Return the beginning of the ids of the runs that judge an output of a run again."""
    return f"again-{run_id}."


def judge_of(record: RunRecord) -> str | None:
    """Return the name of the model that judged in a run; None if it was an object of a program's."""
    name = str(record.options.get("judge") or "")
    name = name if name and not set("(<") & set(name) else record.origin.model
    return name or None
