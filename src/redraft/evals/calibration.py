"""Calibration: a judge's agreement with the labels of a person, and with its own earlier judgements."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from hashlib import sha256
from itertools import islice, pairwise
from operator import attrgetter
from statistics import fmean
from typing import TYPE_CHECKING, Any, cast

from redraft._codec import from_json, from_record, to_record
from redraft._texts import as_text, counted
from redraft._validation import check_count, is_number
from redraft.errors import ConfigError, RedraftError, over_budget
from redraft.evals.evaluation import digest, run_together
from redraft.evals.judging import SECOND, STABILITY, criteria_of_judge, judge_again
from redraft.evaluate.judge import JudgeId, JudgeOptions
from redraft.evaluate.panel import NEAR
from redraft.loop.budget import Budget, SharedBudget, check_prices
from redraft.loop.journal import RunKey
from redraft.loop.labels import (
    FEWEST_LABELS,
    LABEL,
    Label,
    agreement_with,
    answers,
    grouped,
    labels_of,
    store_label,
)
from redraft.loop.pattern import ReflectionPattern
from redraft.loop.record import Origin, task_digest
from redraft.loop.runs import ENDED_RUNS, Runs
from redraft.models.names import model_of
from redraft.settings import load_settings
from redraft.stats import FEWEST_CASES, Agreement, PairedComparison, compared_means
from redraft.stores.base import Record
from redraft.types import NOTHING_USED, Conversation, Draft, Output, PlainTask, QualityCriterion, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from redraft.loop.record import RunRecord
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import ReflectionEvaluation, ReflectionResult

NEWEST = 500
"""How many of the newest runs are searched for judgements."""
PARTS = 5
"""Folds of the cross-validation that measures the saving of a threshold."""


# --- judgements --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Judgement:
    """A stored judgement: an output of a run, and a model's score of it by one criterion."""

    key: str
    """Identifies the task, the output and the criterion, whichever run they are from."""
    run: str
    version: str
    task: PlainTask
    output: Output
    criterion: QualityCriterion
    score: float
    """0..1."""
    conversation: Conversation | None = field(default=None, repr=False)
    """The conversation that led to the output, if its writer used tools."""

    @property
    def is_near(self) -> bool:
        """Whether the score is close to the threshold."""
        return is_near(self.score, self.criterion.threshold)


def judgements_in(record: RunRecord, criteria: Iterable[QualityCriterion]) -> list[Judgement]:
    """A model's judgements in a run by these criteria, without duplicate outputs."""
    by_key: dict[str, Judgement] = {}
    for version in record.all_versions:
        for criterion in criteria:
            score = _score_of(version.evaluation, criterion, record.options.get("quality_threshold"))
            if score is None or not criterion.threshold or version.repeats is not None:
                continue
            parts = record.task.description, as_text(version.output), criterion.name, criterion.description
            key = sha256(json.dumps(parts).encode()).hexdigest()[:20]
            judgement = Judgement(
                key,
                record.run_id,
                version.name,
                record.task,
                version.output,
                criterion,
                score,
                version.conversation,
            )
            by_key.setdefault(key, judgement)
    return list(by_key.values())


def _score_of(
    evaluation: ReflectionEvaluation, criterion: QualityCriterion, threshold: float | None
) -> float | None:
    """A model's score of an output by a criterion; None if it gave none.

    A workflow's judge gives an overall score, and `valid` decides: where the score contradicts it, the score
    counts as 1 or 0.
    """
    if criterion.name in evaluation.criteria_scores:
        return evaluation.criteria_scores[criterion.name]
    score, is_valid = evaluation.overall_score, evaluation.satisfactory
    if criterion.name not in evaluation.opinions or score is None or threshold is None:
        return None
    return score if (score >= threshold) is is_valid else float(is_valid)


def _shuffled(judgements: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """Order judgements independently of their scores: the first of each run, then the second, and so on.

    The order is deterministic, so that labelling can be resumed.
    """
    of_run: Counter[str] = Counter()
    ranks: dict[str, int] = {}
    unique = {judgement.key: judgement for judgement in judgements}
    by_key = [unique[key] for key in sorted(unique)]
    for judgement in by_key:
        ranks[judgement.key] = of_run[judgement.run]
        of_run[judgement.run] += 1
    return tuple(sorted(by_key, key=lambda judgement: (ranks[judgement.key], judgement.key)))


def judgements_by_output(calibration: Calibration) -> list[tuple[Judgement, ...]]:
    """The judgements of each first draft by all criteria, drafts with labels first."""
    of_output: defaultdict[tuple[str, str], list[Judgement]] = defaultdict(list)
    for judgement in calibration.judgements:
        if judgement.version.partition(".")[0] == "1":
            of_output[judgement.run, judgement.version].append(judgement)
    labels = calibration.labels
    return sorted(
        map(tuple, of_output.values()),
        key=lambda judgements: all(judgement.key not in labels for judgement in judgements),
    )


# --- agreement with labels ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of wrong verdicts, in any unit.

    Raises `ConfigError` unless both are numbers of at least 0 and at least one is positive.
    """

    false_accept: float = 1.0
    """The judge accepts an output that the person rejects."""
    false_reject: float = 1.0
    """The judge rejects an output that the person accepts."""

    def __post_init__(self) -> None:
        for name, value in (("false_accept", self.false_accept), ("false_reject", self.false_reject)):
            if not is_number(value) or value < 0:
                raise ConfigError(f"{name} must be a number of at least 0, got {value!r}.")
        if not self.false_accept + self.false_reject:
            raise ConfigError(
                "false_accept and false_reject can't both be 0: no wrong verdict would cost anything."
            )

    def of(self, label: Label, threshold: float) -> float:
        """Cost of the verdict on a labelled output at a threshold."""
        is_accepted = label.score >= threshold
        if is_accepted is bool(label.met):
            return 0.0
        return self.false_accept if is_accepted else self.false_reject


@dataclass(frozen=True, slots=True)
class ThresholdAdvice:
    """The threshold with the lowest cost on the labelled outputs, and how certain the saving is."""

    now: float
    """The threshold of the criterion."""
    best: float
    """The threshold with the lowest cost."""
    cost: float
    """Mean cost of a verdict at the current threshold."""
    best_cost: float
    """Mean cost of a verdict at the best threshold."""
    saving: PairedComparison
    """Cross-validated: each threshold is chosen without the labels that it is tried on.

    So a threshold that only fits these labels doesn't count as a saving.
    """

    @property
    def is_better(self) -> bool:
        """Whether the saving is beyond chance."""
        return self.best != self.now and self.saving.verdict == "better"

    def sentence(self) -> str:
        """The advice in words, with how certain it is."""
        if self.best == self.now:
            return f"{self.now:g} costs least, {self.cost:.2f} a verdict."
        costs = f"{self.best:g} would cost least, {self.best_cost:.2f} a verdict instead of {self.cost:.2f}"
        return f"{costs}{'' if self.is_better else '; that may be chance'}."


@dataclass(frozen=True, slots=True)
class CriterionReport:
    """How the judge's verdicts by one criterion agree with the labels."""

    name: str
    """Empty for all criteria together."""
    threshold: float | None
    agreement: Agreement
    near: Agreement
    """Agreement on scores within 0.1 of the threshold, where a small difference decides."""
    advice: ThresholdAdvice | None = None

    def row(self) -> dict[str, str]:
        """Table cells by column."""
        agreement, near = self.agreement, self.near
        return {
            "criterion": self.name or "all",
            "labels": str(agreement.count),
            "kappa (95 %)": kappa_cell(agreement),
            "you say yes": "?" if agreement.base_rate is None else f"{agreement.base_rate:.0%}",
            "wrongly accepted": str(agreement.judge_only),
            "wrongly rejected": str(agreement.person_only),
            "wrong near the threshold": f"{near.judge_only + near.person_only} of {near.count}",
        }

    def suggestions(self) -> list[str]:
        """Sentences that suggest changes to this criterion."""
        return [] if self.advice is None else [f"{self.name}: a threshold of {self.advice.sentence()}"]


def is_near(score: float, threshold: float) -> bool:
    """Whether a score is so close to a threshold that a small difference decides the verdict."""
    return abs(score - threshold) < NEAR


def kappa_cell(agreement: Agreement) -> str:
    """Render kappa with its interval for a column that names both."""
    if agreement.kappa is None:
        return "?"
    return str(agreement).removeprefix("kappa ").replace("95 %: ", "")


@dataclass(frozen=True)  # without slots, for the cached properties
class Calibration:
    """A judge, with the criteria and options of its newest run, its judgements, and their labels so far."""

    judge: JudgeId
    criteria: tuple[QualityCriterion, ...]
    """The criteria that the model judges."""
    options: JudgeOptions
    is_of_workflow: bool = False
    """Whether it judged in a workflow's node. The workflow filled in its prompt, so it can't judge again."""
    judgements: tuple[Judgement, ...] = ()
    """In the order in which a person labels them."""
    labels: Mapping[str, Label] = field(default_factory=dict[str, Label])
    """By the key of the judgement."""

    @classmethod
    def of(cls, record: RunRecord) -> Calibration | None:
        """The judge of a run; None if no model scored it, or an earlier Redraft did not store which."""
        stored = record.options
        if not stored.get("judge_id"):
            return None
        options = JudgeOptions(
            method=stored.get("judge_method") or stored.get("judge_kind", "score"),
            prompt=stored.get("reflection_prompt"),
            structured=stored.get("structured_reflection", True),
        )
        judge, criteria = from_json(JudgeId, stored["judge_id"]), tuple(criteria_of_judge(record))
        return cls(judge, criteria, options, record.origin.surface == "workflow")

    @cached_property
    def answers(self) -> tuple[Label, ...]:
        """The labels that say yes or no."""
        return tuple(answers(self.labels.values(), self.criteria))

    @cached_property
    def left(self) -> tuple[Judgement, ...]:
        """Judgements that are still to be labelled, the next first."""
        return tuple(judgement for judgement in self.judgements if judgement.key not in self.labels)

    @cached_property
    def agreement(self) -> Agreement:
        """Agreement of its verdicts with the labels."""
        return agreement_with(self.answers, self.criteria)

    @property
    def is_calibrated(self) -> bool:
        """Whether there are enough labels to measure its agreement."""
        return len(self.answers) >= FEWEST_LABELS and self.agreement.kappa is not None

    def sentence(self) -> str:
        """The agreement in words, or how many labels are missing."""
        agreement, count = self.agreement, len(self.answers)
        if count < FEWEST_LABELS:
            return f"{count} of the {FEWEST_LABELS} labels that a calibration needs."
        if agreement.kappa is None:
            return f"{count} labels, all alike and judged alike: kappa is not defined."
        return (
            f"{count} labels: {agreement}. You and the judge agree on {agreement.observed or 0:.0%}; "
            f"you say yes to {agreement.base_rate or 0:.0%}."
        )

    def document(self) -> dict[str, Any]:
        """The judge for a list, with the numbers of its judgements and labels."""
        return {
            "key": self.judge.key,
            "model": self.judge.model,
            "rubric": self.judge.rubric,
            "criteria": tuple(criterion.name for criterion in self.criteria),
            "judgements": len(self.judgements),
            "left": len(self.left),
            "labels": len(self.answers),
            "agreement": self.agreement,
            "is_of_workflow": self.is_of_workflow,
            "is_calibrated": self.is_calibrated,
            "sentence": self.sentence(),
        }

    def document_with(self, costs: Costs, stability: StabilityReport | None) -> dict[str, Any]:
        """The judge with its figures by criterion; `stability` is None without a stability test."""
        return {**self.document(), "costs": costs, "report": self.report(costs), "stability": stability}

    def report(self, costs: Costs | None = None) -> tuple[CriterionReport, ...]:
        """Figures of all criteria together, followed by those of each criterion."""
        required = [criterion for criterion in self.criteria if criterion.threshold]
        rows = [self._of(criterion, costs or Costs()) for criterion in required]
        thresholds = {criterion.name: criterion.threshold for criterion in required}
        near = [label for label in self.answers if is_near(label.score, thresholds[label.criterion])]
        return CriterionReport("", None, self.agreement, agreement_with(near, self.criteria)), *rows

    def _of(self, criterion: QualityCriterion, costs: Costs) -> CriterionReport:
        labels = [label for label in self.answers if label.criterion == criterion.name]
        near = [label for label in labels if is_near(label.score, criterion.threshold)]
        return CriterionReport(
            criterion.name,
            criterion.threshold,
            agreement_with(labels, [criterion]),
            agreement_with(near, [criterion]),
            threshold_advice(labels, criterion.threshold, costs),
        )


# --- the threshold that costs least ------------------------------------------------------------------------


def threshold_advice(labels: Sequence[Label], now: float, costs: Costs) -> ThresholdAdvice | None:
    """The threshold that would have cost least on these labels; None for too few labels."""
    groups = grouped(labels)
    if len(labels) < FEWEST_LABELS or len(groups) < FEWEST_CASES:
        return None
    scores = sorted({label.score for label in labels})
    # All thresholds between two neighbouring scores give the same verdicts, so one candidate is enough: the
    # current threshold if it lies there, else the middle.
    candidates = [now]
    for below, above in pairwise([0.0, *scores, 1.0]):
        if not below < now <= above and below < above:
            candidates.append(round((below + above) / 2, 2) if above - below > 0.02 else above)  # noqa: PLR2004
    table = {
        group: [sum(costs.of(label, threshold) for label in members) for threshold in candidates]
        for group, members in groups.items()
    }
    totals = [sum(column) for column in zip(*table.values(), strict=True)]

    def cheapest(sums: Sequence[float]) -> int:
        return min(range(len(candidates)), key=lambda at: (round(sums[at], 9), abs(candidates[at] - now)))

    best = cheapest(totals)
    names = sorted(table)
    pairs: list[tuple[float, float]] = []
    for part in (names[start::PARTS] for start in range(PARTS)):
        of_part = [sum(column) for column in zip(*(table[name] for name in part), strict=True)]
        chosen = cheapest([total - own for total, own in zip(totals, of_part, strict=True)])
        pairs += [
            (table[name][0] / len(groups[name]), table[name][chosen] / len(groups[name])) for name in part
        ]
    count = len(labels)
    return ThresholdAdvice(
        now, candidates[best], totals[0] / count, totals[best] / count, compared_means(pairs)
    )


# --- the calibrations of a store ---------------------------------------------------------------------------


class Calibrations:
    """The judges of a project's stored runs, and the labels of their judgements."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list(self) -> list[Calibration]:
        """The judges of the newest runs, the judge with most judgements first."""
        runs = Runs(self._store)
        records = await runs.read_rows(await runs.rows(inner=True, limit=NEWEST))
        of_judge: dict[JudgeId, Calibration] = {}
        judgements: defaultdict[JudgeId, list[Judgement]] = defaultdict(list)
        for record in records:
            calibration = Calibration.of(record)
            if (
                calibration is None
                or record.status not in ENDED_RUNS
                or record.origin.name in (SECOND, STABILITY)
            ):
                continue
            newest = of_judge.setdefault(calibration.judge, calibration)
            judgements[newest.judge] += judgements_in(record, newest.criteria)
        labels = await asyncio.gather(*(labels_of(self._store, judge) for judge in of_judge))
        calibrations = [
            replace(
                newest,
                judgements=_shuffled(judgements[judge]),
                labels={label.key: label for label in stored},
            )
            for (judge, newest), stored in zip(of_judge.items(), labels, strict=True)
        ]
        return sorted(calibrations, key=lambda calibration: -len(calibration.judgements))

    async def get(self, judge: str = "") -> Calibration:
        """Find a judge by a prefix of its key or by its model's name; the only judge by default.

        Raises `ConfigError` if no judge matches, or several do.
        """
        calibrations = [calibration for calibration in await self.list() if calibration.judgements]
        if not calibrations:
            raise ConfigError(
                "No stored run here was judged by a model, so there is nothing to label. Runs stored by an "
                "earlier version don't say which rubric they were judged by."
            )
        matches = [
            calibration
            for calibration in calibrations
            if calibration.judge.key.startswith(judge) or calibration.judge.model == judge
        ]
        if len(matches) == 1:
            return matches[0]
        judges = [calibration.judge for calibration in matches or calibrations]
        names = ", ".join(f"{candidate.key} ({candidate.model})" for candidate in judges)
        what = "There are several judges" if matches else f"There is no judge {judge!r} here"
        raise ConfigError(f"{what}: choose one of {names}.")

    async def label(self, calibration: Calibration, judgement: Judgement, met: bool | None) -> Calibration:
        """Store a person's label of a judgement, None to skip it; returns the updated calibration."""
        judge = calibration.judge
        label = Label(
            judgement.key,
            judge.model,
            judge.rubric,
            judgement.run,
            judgement.version,
            task_digest(judgement.task.description),
            judgement.criterion.name,
            judgement.score,
            met,
            datetime.now(UTC),
        )
        await store_label(self._store, judge, label)
        return replace(calibration, labels={**calibration.labels, label.key: label})

    async def undo(self, calibration: Calibration) -> Calibration:
        """Remove the last label, so that its judgement comes up again; returns the updated calibration."""
        if not calibration.labels:
            return calibration
        last = max(calibration.labels.values(), key=attrgetter("at"))
        await self._store.delete(LABEL, f"{calibration.judge.key}/{last.key}")
        return replace(calibration, labels={k: v for k, v in calibration.labels.items() if k != last.key})


# --- stability ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StabilityReport:
    """Test-retest reliability of a judge: how often its verdict changes when it judges an output again."""

    model: str
    outputs: int
    """How many outputs were judged again."""
    repeats: int
    """New judgements of each output."""
    verdicts: int
    """New judgements in all."""
    flipped: int
    """New judgements with a different verdict than the stored judgement."""
    near: int
    """New judgements whose stored score was close to the threshold."""
    near_flipped: int
    """Flipped judgements whose stored score was close to the threshold."""
    difference: float | None
    """Mean distance between stored and new scores; None without a new score."""
    agreement: Agreement
    """Agreement of the new scores with the labels."""
    usage: TokenUsage = NOTHING_USED
    note: str = ""
    """Why judgements are missing."""

    @classmethod
    async def stored(cls, store: Store, judge: JudgeId) -> StabilityReport | None:
        """The newest report on a judge; None if there is none."""
        record = await store.get(STABILITY, judge.key)
        if record is None:
            return None
        # Earlier versions stored a row for each wording of the rubric, the unchanged rubric first.
        rows = cast("list[dict[str, Any]]", record.data.get("rows", []))
        return from_record(cls, {**record.data, **(rows[0] if rows else {})})

    def row(self) -> dict[str, str]:
        """Table cells by column."""
        return {
            "repeats": str(self.repeats),
            "verdicts": str(self.verdicts),
            "flipped": f"{self.flipped / self.verdicts:.0%}" if self.verdicts else "?",
            "near the threshold": f"{self.near_flipped} of {self.near}",
            "score differs by": "?" if self.difference is None else f"{self.difference:.2f}",
            "kappa (95 %)": kappa_cell(self.agreement),
        }


class StabilityTest:
    """Repeat a judge's judgements of stored outputs, `repeats` times each, by the same rubric.

    Only first drafts are judged again, labelled drafts first: later versions were judged with a record of
    earlier versions. `model` defaults to the judge's own model; another model is compared with the labels
    instead. Every judgement is stored as a run, and a stored judgement is not repeated. The budgets hold for
    all judgements together. `on_judged` is called after each judgement. Raises `ConfigError` for a model that
    can't work, before anything is spent.
    """

    def __init__(
        self,
        calibration: Calibration,
        store: Store,
        *,
        model: str | ChatModel | None = None,
        outputs: int = 20,
        repeats: int = 2,
        concurrency: int = 8,
        budget_tokens: int | None = None,
        budget_usd: float | None = None,
        budget_seconds: float | None = None,
        on_judged: Callable[[], None] | None = None,
    ) -> None:
        check_count("outputs", outputs, 1)
        check_count("repeats", repeats, 1)
        check_count("concurrency", concurrency, 1)
        self._budget = Budget(budget_tokens, budget_usd, budget_seconds)
        self._calibration, self._store = calibration, store
        self._repeats, self._concurrency, self._on_judged = repeats, concurrency, on_judged
        if calibration.is_of_workflow:
            raise ConfigError(
                f"The judge {calibration.judge.key} is that of a workflow, which fills in its prompt, so it "
                "can't be asked again here."
            )
        try:
            self._model = model_of(model or calibration.judge.model, load_settings())
        except ConfigError as error:
            raise ConfigError(
                f"The judge can't be asked again: {error} Give a model with --model."
            ) from error
        if budget_usd is not None:
            check_prices(self._model)
        self._name = model if isinstance(model, str) else calibration.judge.model
        self._outputs = list(islice(judgements_by_output(calibration), outputs))
        self.total = len(self._outputs) * repeats

    async def run(self) -> StabilityReport:
        """Make the judgements that are not stored yet, and report on all."""
        budget, gate = SharedBudget(self._budget), asyncio.Semaphore(self._concurrency)
        scores: dict[tuple[str, int], Mapping[str, float | None]] = {}
        failures: list[str] = []
        usages: list[TokenUsage] = []

        async def judge(judgement: Judgement, number: int) -> None:
            async with gate:
                if budget.is_over:
                    return
                name = f"{judgement.key} {number}"
                try:
                    made = await budget.part(
                        name, partial(self._judge, judgement, number), attrgetter("token_usage")
                    )
                except RedraftError as error:
                    if not (over_budget(error) and budget.is_over):
                        failures.append(str(error))
                    return
                usages.append(made.token_usage)
                scores[judgement.key, number] = made.final_evaluation.criteria_scores
                if self._on_judged is not None:
                    self._on_judged()

        numbers = range(1, self._repeats + 1)
        await run_together(judge(of_output[0], number) for of_output in self._outputs for number in numbers)
        if failures and not scores:
            raise ConfigError(f"The judge can't be asked again: {failures[0]}")
        note = ""
        if len(scores) < self.total:
            why = failures[0] if failures else f"the budget was spent. {budget.explain()}".removesuffix(".")
            note = f"{counted(len(scores), 'judgement')} of {self.total}: {why}"
        usage = sum((*usages, *budget.suspended.values()), NOTHING_USED)
        report = self._report(scores, usage, note)
        if self._name == self._calibration.judge.model:
            await self._store.put(Record(STABILITY, self._calibration.judge.key, to_record(report)))
        return report

    async def _judge(self, judgement: Judgement, number: int) -> ReflectionResult:
        """Judge an output again, or read the stored judgement."""
        judging = self._calibration
        pattern = ReflectionPattern(
            reflection_prompt=judging.options.prompt,
            reflection_model=self._model,
            judge_method=judging.options.method,
            structured_reflection=judging.options.structured,
        )
        rubric = repr((judging.criteria, judging.options.prompt))
        place = digest(self._name, judgement.run, judgement.version, rubric, str(number))
        key = RunKey(f"steady-{judgement.run}.{place}", self._store, resumes=True, parent=judgement.run)
        origin = Origin("function", STABILITY, self._name)
        draft = Draft(judgement.output, NOTHING_USED, conversation=judgement.conversation)
        return await judge_again(judgement.task, draft, judging.criteria, pattern, key, origin)

    def _report(
        self, scores: Mapping[tuple[str, int], Mapping[str, float | None]], usage: TokenUsage, note: str
    ) -> StabilityReport:
        pairs = [
            (judgement, score)
            for of_output in self._outputs
            for number in range(1, self._repeats + 1)
            for judgement in of_output
            if (score := scores.get((of_output[0].key, number), {}).get(judgement.criterion.name)) is not None
        ]
        labels = self._calibration.labels
        labelled = [
            replace(labels[judgement.key], score=score)
            for judgement, score in pairs
            if judgement.key in labels
        ]
        flipped = [
            judgement
            for judgement, score in pairs
            if (score >= judgement.criterion.threshold) != (judgement.score >= judgement.criterion.threshold)
        ]
        return StabilityReport(
            self._name,
            len(self._outputs),
            self._repeats,
            len(pairs),
            len(flipped),
            sum(judgement.is_near for judgement, _ in pairs),
            sum(judgement.is_near for judgement in flipped),
            fmean(abs(judgement.score - score) for judgement, score in pairs) if pairs else None,
            agreement_with(labelled, self._calibration.criteria),
            usage,
            note,
        )
