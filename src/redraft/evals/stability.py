"""Stability: whether a judge says the same again, and the same when its rubric is worded in another way."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING

from redraft._codec import from_record, to_record
from redraft._texts import counted
from redraft._validation import check_bound, check_count
from redraft.errors import ConfigError, RedraftError
from redraft.evals.calibration import STABILITY, judgements_by_output, kappa_cell
from redraft.evals.evaluation import Group, Spending, digest
from redraft.evaluate.panel import NEAR
from redraft.loop.keeper import RunKey, run_and_store
from redraft.loop.labels import agreement_with
from redraft.loop.pattern import ReflectionPattern, judges_of, starting_draft
from redraft.loop.record import Origin
from redraft.loop.run import Verbs
from redraft.models.names import model_of
from redraft.settings import load_settings
from redraft.stats import Agreement
from redraft.stores.base import Record
from redraft.types import NOTHING_USED, QualityCriterion, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.evals.calibration import Calibration, Judgement, Judging
    from redraft.evaluate.judge import JudgeId
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import Output

OUTPUTS = 20
"""How many outputs are judged again, by default."""
REPEATS = 2
AS_IT_IS, REVERSED, REWORDED = "as it is", "criteria in reverse", "other words"

PROMPT = (
    "Here is a task, and what somebody made of it.\n\nTask:\n{task}\n\n{output}\n\n"
    "How well does it do by each of these points? Give 1 to what you could not improve, 0 to a complete "
    "miss, and everything else its place between them. Say first what you see, then the number.\n\n{criteria}"
)
"""The rubric in other words: the same scale, and the same criteria."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A wording of the rubric, by a name: the criteria, and the prompt in place of the judge's own (None)."""

    name: str
    criteria: tuple[QualityCriterion, ...]
    prompt: str | None


def wordings_of(
    judging: Judging, others: Mapping[str, Sequence[QualityCriterion]] | None = None
) -> list[Wording]:
    """Return the rubric as it is, and in other wordings: `others` by their names, then some of our own.

    Raises `ConfigError` for other criteria that have not the names of the judge's.
    """
    own, prompt = judging.criteria, judging.options.prompt
    found = [Wording(AS_IT_IS, own, prompt)]
    for name, criteria in (others or {}).items():
        described = {one.name: one.description for one in criteria}
        if missing := [one.name for one in own if one.name not in described]:
            raise ConfigError(
                f"The wording {name!r} has no criterion {missing[0]!r}. It needs all that the judge has: "
                f"{', '.join(one.name for one in own)}."
            )
        worded = tuple(replace(one, description=described[one.name]) for one in own)
        found.append(Wording(name, worded, prompt))
    if len(own) > 1:
        found.append(Wording(REVERSED, own[::-1], prompt))
    if prompt is None:
        found.append(Wording(REWORDED, own, PROMPT))
    return found


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How often a judge decides otherwise when it is asked again, with one wording of its rubric.

    `verdicts` counts the judgements that were made again, and `flipped` those that fell on the other side of
    the threshold; `near` and `near_flipped` count those whose kept score was close to it. `difference` is the
    mean distance of the scores. `agreement` is that with the labels.
    """

    wording: str
    verdicts: int
    flipped: int
    near: int
    near_flipped: int
    difference: float | None
    agreement: Agreement


@dataclass(frozen=True, slots=True)
class StabilityReport:
    """How steady a judge is, for each wording of its rubric; `note` says why not all judgements were made."""

    model: str
    outputs: int
    repeats: int
    rows: tuple[Steadiness, ...]
    usage: TokenUsage = NOTHING_USED
    note: str = ""

    @classmethod
    async def stored(cls, store: Store, judge: JudgeId) -> StabilityReport | None:
        """Return what was found last of a judge; None if nothing was."""
        record = await store.get(STABILITY, judge.key)
        return None if record is None else from_record(cls, record.data)

    @property
    def _times(self) -> str:
        return "once" if self.repeats == 1 else f"{self.repeats} times"

    def table(self) -> list[dict[str, str]]:
        """Return the cells of a table, a row for each wording."""
        return [
            {
                "wording": f"{one.wording}, {self._times}" if one.wording == AS_IT_IS else one.wording,
                "verdicts": str(one.verdicts),
                "flipped": _share(one.flipped, one.verdicts),
                "near the threshold": f"{one.near_flipped} of {one.near}",
                "score differs by": "?" if one.difference is None else f"{one.difference:.2f}",
                "kappa (95 %)": kappa_cell(one.agreement),
            }
            for one in self.rows
        ]


class StabilityTest:
    """Judge again what a judge has judged: `repeats` times by its rubric, and once in each other wording.

    Only first drafts are judged again, labelled ones first: later versions were judged with a record of the
    earlier ones. `wordings` are criteria with the same names and other descriptions, by a name for each.
    `model` judges, by default the one that did; another one is compared with the labels in its place. Every
    judgement is stored as a run, and none is made twice. The budgets bound all of them. `on_judged` is called
    after each. Raises `ConfigError` for a model that can't work, before anything is spent.
    """

    def __init__(
        self,
        calibration: Calibration,
        store: Store,
        *,
        model: str | ChatModel | None = None,
        outputs: int = OUTPUTS,
        repeats: int = REPEATS,
        wordings: Mapping[str, Sequence[QualityCriterion]] | None = None,
        at_once: int = 8,
        budget_tokens: int | None = None,
        budget_usd: float | None = None,
        budget_seconds: float | None = None,
        on_judged: Callable[[], None] | None = None,
    ) -> None:
        check_count("outputs", outputs, 1)
        check_count("repeats", repeats, 1)
        check_count("at_once", at_once, 1)
        self._budgets = {"tokens": budget_tokens, "usd": budget_usd, "seconds": budget_seconds}
        for name, bound in self._budgets.items():
            check_bound(f"budget_{name}", bound)
        self._calibration, self._store = calibration, store
        self._repeats, self._at_once, self._on_judged = repeats, at_once, on_judged
        if calibration.judging.is_of_workflow:
            raise ConfigError(
                f"The judge {calibration.judge.key} is that of a workflow, which fills in its prompt, so it "
                "can't be asked again here."
            )
        self._wordings = wordings_of(calibration.judging, wordings)
        try:
            self._model = model_of(model or calibration.judge.model, load_settings())
        except ConfigError as error:
            raise ConfigError(
                f"The judge can't be asked again: {error} Give a model with --model."
            ) from error
        self._name = model if isinstance(model, str) else calibration.judge.model
        self._outputs = list(islice(judgements_by_output(calibration), outputs))
        self.total = len(self._outputs) * (repeats + len(self._wordings) - 1)

    async def run(self) -> StabilityReport:
        """Make the judgements that were not made before, and report on all."""
        spending, gate = Spending(self._budgets), asyncio.Semaphore(self._at_once)
        scores: dict[tuple[str, str, int], Mapping[str, float | None]] = {}
        failures: list[str] = []

        async def judge(of_output: Sequence[Judgement], wording: Wording, number: int) -> None:
            async with gate:
                if spending.is_over:
                    return
                try:
                    found, usage = await self._judge(of_output[0], wording, number)
                except RedraftError as error:
                    failures.append(str(error))
                    return
                spending.add(usage)
                scores[of_output[0].key, wording.name, number] = found
                if self._on_judged is not None:
                    self._on_judged()

        async with Group() as group:
            for of_output in self._outputs:
                for wording in self._wordings:
                    for number in range(1, (self._repeats if wording.name == AS_IT_IS else 1) + 1):
                        group.start(judge(of_output, wording, number))
        if failures and not scores:
            raise ConfigError(f"The judge can't be asked again: {failures[0]}")
        rows = tuple(self._steadiness(wording, scores) for wording in self._wordings)
        note = ""
        if len(scores) < self.total:
            why = f"{failures[0]}" if failures else "the budget was spent"
            note = f"{counted(len(scores), 'judgement')} of {self.total}: {why}"
        report = StabilityReport(self._name, len(self._outputs), self._repeats, rows, spending.usage, note)
        if self._name == self._calibration.judge.model:
            await self._store.put(Record(STABILITY, self._calibration.judge.key, to_record(report)))
        return report

    async def _judge(
        self, judgement: Judgement, wording: Wording, number: int
    ) -> tuple[Mapping[str, float | None], TokenUsage]:
        """Judge an output again, or read the judgement that was made before; return the scores."""
        options = self._calibration.judging.options
        pattern = ReflectionPattern(
            0,
            # The score matters, and no verdict that would have to be confirmed.
            [replace(one, threshold=0.0) for one in wording.criteria],
            0.0,
            wording.prompt,
            reflection_model=self._model,
            judge=options.kind,
            structured_reflection=options.structured,
            on_failure="raise",
        )
        judges = judges_of(pattern, self._model, judgement.task.task_type)
        place = digest(self._name, judgement.run, judgement.version, wording.name, repr(wording), str(number))
        run_id = f"steady-{judgement.run}.{place}"
        draft = starting_draft(judgement.output)
        key = RunKey(run_id, self._store, resumes=True, parent=judgement.run)
        verbs = Verbs(None, judges, _unchanged)
        made = await run_and_store(
            judgement.task,
            verbs,
            pattern.options_for(judges),
            key.step(),
            draft,
            Origin("function", STABILITY, self._name),
        )
        return made.final_evaluation.criteria_scores, made.token_usage

    def _steadiness(
        self, wording: Wording, scores: Mapping[tuple[str, str, int], Mapping[str, float | None]]
    ) -> Steadiness:
        pairs: list[tuple[Judgement, float]] = []
        for of_output in self._outputs:
            for number in range(1, self._repeats + 1):
                found = scores.get((of_output[0].key, wording.name, number), {})
                pairs += [
                    (one, score) for one in of_output if (score := found.get(one.criterion.name)) is not None
                ]
        labels = self._calibration.labels
        told = [
            replace(labels[one.key], score=score)
            for one, score in pairs
            if one.key in labels and labels[one.key].met is not None
        ]
        flipped = [one for one, score in pairs if _accepts(one, one.score) is not _accepts(one, score)]
        near = [one for one, _ in pairs if abs(one.score - one.criterion.threshold) < NEAR]
        return Steadiness(
            wording.name,
            len(pairs),
            len(flipped),
            len(near),
            len([one for one in flipped if abs(one.score - one.criterion.threshold) < NEAR]),
            fmean(abs(one.score - score) for one, score in pairs) if pairs else None,
            agreement_with(told, self._calibration.criteria),
        )


def _share(part: int, of_all: int) -> str:
    return f"{part / of_all:.0%}" if of_all else "?"


def _accepts(judgement: Judgement, score: float) -> bool:
    return score >= judgement.criterion.threshold


async def _unchanged(output: Output, _evaluation: object, _run: object, /) -> Output:
    raise AssertionError(f"nothing is revised, but {output!r} was")
