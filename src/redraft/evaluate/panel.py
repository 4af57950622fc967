"""A panel evaluates an output by several criteria: free checks first, then the judges."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from redraft._calls import sees_run
from redraft._steps import in_time
from redraft._verdicts import DEFAULT_THRESHOLD
from redraft.errors import ConfigError, UnfinishedError
from redraft.evaluate.ask import together, total_usage
from redraft.evaluate.checks import count, function, function_of, of_part, regex, schema
from redraft.evaluate.compare import compare
from redraft.evaluate.criteria import (
    agreement,
    applies,
    criteria_of,
    invalid,
    needs_model,
    shortfall,
    weighted_mean,
)
from redraft.evaluate.evidence import NO_EXHIBITS, EvidenceGatherer, sources_of
from redraft.evaluate.judge import CRITIQUE, ROLE, SCALE, JudgeId, JudgeOptions, ScoreJudge, judge_id
from redraft.evaluate.judge_probability import YES_NO_ROLE, ProbabilityJudge
from redraft.evaluate.requirements import rubric_of
from redraft.protocols import Evaluator
from redraft.types import (
    COUNTS,
    NOT_JUDGED,
    NOTHING_USED,
    Issue,
    QualityCriterion,
    ReflectionEvaluation,
    Shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from redraft.execution import CommandRunner
    from redraft.protocols import ChatModel, RunContext
    from redraft.types import Criterion, Output

CHECKS = {"regex": regex, "function": function, "schema": schema, **dict.fromkeys(COUNTS, count)}
IMMEDIATE = frozenset({"regex", *COUNTS, "schema", "compare"})
"""Checks without I/O: a task for each would cost more than the check."""


def panel(
    criteria: Sequence[Criterion] | None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    model: ChatModel | None = None,
    run_command: CommandRunner | None = None,
    judge_options: JudgeOptions | None = None,
    task_type: str = "",
    may_decide: Callable[[JudgeId], Awaitable[bool]] | None = None,
) -> Panel:
    """An evaluator for several criteria; for None, the default set of the task type.

    Criteria that need no model come first. Unless all criteria with `gate=True` reach their thresholds, no
    model is called, and the criteria for it are None. An output that is satisfactory only because a single
    judgement is just above a threshold is judged a second time, and both judgements count. The overall score
    is the weighted mean of the judged criteria; a weight of 0 does not count. An output is satisfactory when
    the overall score reaches `threshold`, each criterion reaches its own threshold, and none is None. Before
    a judge is called, `may_decide` says whether it may decide what is satisfactory, or only advise. Raises
    `ConfigError` for a configuration that can't work.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"The quality threshold must be in 0..1, got {threshold!r}.")
    chosen = criteria_of(criteria, task_type)
    immediate: dict[str, Evaluator] = {}
    waiting: dict[str, Evaluator] = {}
    paid: dict[str, Evaluator] = {}
    for_judge: list[QualityCriterion] = []
    for criterion in chosen:
        is_paid = needs_model(criterion)
        if is_paid:
            _check_judged(criterion, model)
        if criterion.evaluator == "llm":
            for_judge.append(criterion)
            continue
        group = paid if is_paid else immediate if criterion.evaluator in IMMEDIATE else waiting
        group[criterion.name] = _evaluator(criterion, model, run_command)
    judges: list[ScoreJudge | ProbabilityJudge] = []
    identity = None
    if model is not None and for_judge:
        options = judge_options or JudgeOptions()
        is_score = options.method == "score"
        kind = ScoreJudge if is_score else ProbabilityJudge
        shown = [criterion for criterion in for_judge if criterion.shown is True]
        hidden = [criterion for criterion in for_judge if criterion.shown is not True]
        judges = [kind(judged, model, options) for judged in (shown, hidden) if judged]
        texts = (ROLE, SCALE, CRITIQUE) if is_score else (YES_NO_ROLE,)
        identity = judge_id(for_judge, model, options, texts)
    evidence = EvidenceGatherer(for_judge, run_command) if judges else None
    output_alone = not (any(map(_depends_on_run, chosen)) or (evidence and evidence.names_evidence))
    return Panel(
        chosen,
        threshold,
        immediate,
        waiting,
        paid,
        tuple(judges),
        output_alone,
        rubric_of(chosen),
        identity,
        may_decide,
        evidence=evidence,
    )


def _check_judged(criterion: QualityCriterion, model: ChatModel | None) -> None:
    if criterion.gate:
        raise invalid(
            criterion,
            "gate=True works only for criteria that need no model, because gates run before any model call.",
        )
    if model is None:
        raise invalid(criterion, f"{criterion.evaluator} needs a model; give one, or set REDRAFT_MODEL.")
    if criterion.evaluator == "llm":
        sources_of(criterion)


def _evaluator(
    criterion: QualityCriterion, model: ChatModel | None, run_command: CommandRunner | None
) -> Evaluator:
    if criterion.evaluator in CHECKS:
        return of_part(criterion, CHECKS[criterion.evaluator])
    if criterion.evaluator == "compare":
        return compare(criterion, model)
    if run_command is None:
        raise invalid(
            criterion,
            f"{criterion.evaluator} needs a runner of commands; give run_command, such as a ProcessJail.",
        )
    if criterion.evaluator == "generated_tests" and model is not None:
        from redraft.evaluate.generated_tests import generated_tests  # noqa: PLC0415 (only criteria for code need it)

        return generated_tests(criterion, model, run_command)
    from redraft.evaluate.command import command  # noqa: PLC0415 (few criteria are commands)

    return command(criterion, run_command)


@dataclass(frozen=True, eq=False)
class Panel:
    """Judge an output by several criteria; an `Evaluator`, made by `panel`."""

    criteria: tuple[QualityCriterion, ...]
    threshold: float
    immediate: Mapping[str, Evaluator]
    """Checks that run one after the other, by criterion name."""
    waiting: Mapping[str, Evaluator]
    """Checks that then run in parallel, by criterion name."""
    paid: Mapping[str, Evaluator]
    """Evaluators that call a model, in parallel with the judges, by criterion name."""
    judges: tuple[ScoreJudge | ProbabilityJudge, ...]
    """The judges of all other criteria, with one model.

    Criteria that are partly or fully hidden from the writer have a separate judge, the last: a shared
    critique could give them away.
    """
    output_alone: bool
    """Whether a judgement depends only on the output, and not on the run so far."""
    rubric: str
    """The requirements that the writer may know."""
    judge_id: JudgeId | None = None
    may_decide: Callable[[JudgeId], Awaitable[bool]] | None = None
    """Whether the judges may decide what is satisfactory."""
    advice: frozenset[str] = frozenset()
    """The names of criteria whose judges only advise.

    They do not count next to other criteria; if there are no others, nothing is satisfactory.
    """
    evidence: EvidenceGatherer | None = None
    """Gathers what the judges see besides the output; a criterion without its evidence is not judged."""

    @cached_property
    def checks(self) -> tuple[str, ...]:
        """The names of the criteria that no model judges."""
        return tuple(criterion.name for criterion in self.criteria if not needs_model(criterion))

    @cached_property
    def judged(self) -> tuple[str, ...]:
        """The names of the criteria that a model judges."""
        return tuple(criterion.name for criterion in self.criteria if needs_model(criterion))

    @cached_property
    def gates(self) -> tuple[QualityCriterion, ...]:
        """The criteria that must be met before a model is called."""
        return tuple(criterion for criterion in self.criteria if criterion.gate)

    @cached_property
    def has_given(self) -> bool:
        """Whether a given criterion has a weight; if none has, the generated ones count."""
        return any(criterion.weight for criterion in self.criteria if criterion.origin == "given")

    @cached_property
    def counting(self) -> tuple[QualityCriterion, ...]:
        """The criteria that count in the overall score."""
        if not self.has_given:
            return self.criteria
        return tuple(criterion for criterion in self.criteria if criterion.origin == "given")

    @cached_property
    def advised(self) -> Panel:
        """The same panel, whose judges only advise."""
        names = frozenset(criterion.name for criterion in self.criteria if criterion.evaluator == "llm")
        criteria = self.criteria
        if any(criterion.weight for criterion in self.counting if criterion.name not in names):
            criteria = tuple(
                [
                    replace(criterion, weight=0.0, threshold=0.0) if criterion.name in names else criterion
                    for criterion in criteria
                ]
            )
        return replace(self, criteria=criteria, advice=names)

    @cached_property
    def is_undecided(self) -> bool:
        """Whether only advice counts."""
        return all(criterion.name in self.advice for criterion in self.counting if criterion.weight)

    @cached_property
    def least(self) -> float:
        """The lowest satisfactory overall score; generated criteria need none."""
        return self.threshold if self.has_given else 0.0

    @cached_property
    def generated(self) -> frozenset[str]:
        """The names of the criteria of generated origin."""
        return frozenset(criterion.name for criterion in self.criteria if criterion.origin == "generated")

    @cached_property
    def shown(self) -> dict[str, Shown]:
        """The criteria that are partly or fully hidden from the writer."""
        return {criterion.name: criterion.shown for criterion in self.criteria if criterion.shown is not True}

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge `output`; raises `ModelError` if the judge's provider fails.

        A criterion is not judged if the run's budget does not allow it, or cuts it short.
        """
        by_name = {name: await check(output, run) for name, check in self.immediate.items()}
        if self.waiting:
            # The judge's calls are steps, which end at the run's deadline anyway.
            checks = {name: in_time(check(output, run)) for name, check in self.waiting.items()}
            by_name |= zip(checks, await _in_parallel(checks.items()), strict=True)
        gates = [_is_passed(by_name[gate.name], gate) for gate in self.gates]
        gates_passed = False if False in gates else None if None in gates else True
        if not gates_passed:
            run = replace(run, free_only=True)
        decided_by = self
        if self.judge_id and self.may_decide and not run.free_only:
            decided_by = self if await self.may_decide(self.judge_id) else self.advised
        views = [run if _is_hidden(judge) else run.for_writer() for judge in self.judges]
        judges = [
            (*(await self._with_evidence(judge, output, run)), view)
            for judge, view in zip(self.judges, views, strict=True)
        ]
        judgements: list[ReflectionEvaluation] = []
        if self.paid or judges:
            calls: list[_Call] = [(name, evaluate(output, run)) for name, evaluate in self.paid.items()]
            calls += [(None, _judged(judge, unseen, output, view)) for judge, unseen, view in judges]
            results = await _in_parallel(calls)
            by_name |= zip(self.paid, results, strict=False)  # the judgements follow
            judgements = results[len(self.paid) :]
        evaluation = decided_by.merge(by_name, judgements, gates_passed)
        if not gates_passed:
            missed = [gate.name for gate, passed in zip(self.gates, gates, strict=True) if not passed]
            evaluation = replace(evaluation, failed_gates=tuple(missed))
        if decided_by is self and self._needs_confirmation(evaluation, judgements):
            seconds: list[_Call] = [
                (None, judge.confirm(first, output, view))
                for (judge, _, view), first in zip(judges, judgements, strict=True)
                if isinstance(judge, ScoreJudge)
            ]
            if seconds:
                evaluation = self.merge(by_name, await _in_parallel(seconds), gates_passed)
        return evaluation

    async def _with_evidence(
        self, judge: ScoreJudge | ProbabilityJudge, output: Output, run: RunContext
    ) -> tuple[ScoreJudge | ProbabilityJudge, tuple[Issue, ...]]:
        """A judge with its evidence and without the criteria that lack evidence, whose issues say why."""
        if run.free_only or self.evidence is None:
            return judge, ()
        exhibits = await self.evidence.gather(judge.criteria, output, run)
        if exhibits is NO_EXHIBITS:
            return judge, ()
        criteria = [criterion for criterion in judge.criteria if criterion.name not in exhibits.missing]
        return replace(judge, criteria=criteria, exhibits=exhibits), tuple(exhibits.missing.values())

    def merge(
        self,
        by_name: Mapping[str, ReflectionEvaluation],
        judgements: Sequence[ReflectionEvaluation],
        gates_passed: bool | None,
    ) -> ReflectionEvaluation:
        """Merge the evaluations of single criteria with the judgements.

        A criterion that does not apply is left out; a criterion that could not be judged is None. A criterion
        is met when its score reaches its threshold, unless its own evaluator says otherwise; with a threshold
        of 0 it is optional. The judge's spread counts in proportion to the weight of its criteria.
        """
        judged = self._judgement(judgements) if judgements else None
        scores, unmet = _scores(self.criteria, by_name, judged)
        missed = {criterion.name for criterion in unmet} | {
            name for name, score in scores.items() if score is None
        }
        missed -= self.advice
        overall = weighted_mean(self.counting, scores)
        is_enough = overall is not None and overall >= self.least
        evaluations = [*by_name.values(), judged] if judged else [*by_name.values()]
        issues = unique_issues([issue for evaluation in evaluations for issue in evaluation.issues])
        mentioned = {issue.criterion for issue in issues}
        # A suggestion does not name its criterion, so suggestions about hidden criteria are left out.
        visible = [evaluation for name, evaluation in by_name.items() if name not in self.shown]
        visible += [judged] if judged else []
        by_check = missed - judged.criteria_scores.keys() if judged else missed
        return ReflectionEvaluation(
            overall,
            scores,
            satisfactory=is_enough and not missed and not self.is_undecided,
            issues=(*issues, *[shortfall(c, scores[c.name]) for c in unmet if c.name not in mentioned]),
            suggestions=tuple(
                dict.fromkeys([text for evaluation in visible for text in evaluation.suggestions])
            ),
            confidence=min([evaluation.confidence for evaluation in evaluations], default=1.0),
            spread=_spread(self.counting, scores, judged) if judged else 0.0,
            samples=judged.samples if judged else (),
            # Where a check decided, the judge's samples can't disagree with the verdict.
            agreement=agreement(self.counting, self.least, scores, judged.samples)
            if judged and not by_check
            else 1.0,
            repeats_itself=judged is not None and judged.repeats_itself,
            gates_passed=gates_passed,
            usage=total_usage(evaluations),
            memo={
                name: evaluation.memo for name, evaluation in by_name.items() if evaluation.memo is not None
            }
            or None,
            generated=tuple([name for name in scores if name in self.generated]),
            meets_given=(is_enough or not self.has_given)
            and missed <= self.generated
            and not self.is_undecided,
            shown=dict(self.shown) or None,
            opinions=_opinions(scores, by_name, judged),
            unmet=None if self.is_undecided else self._unmet(scores, unmet, overall),
        )

    def _unmet(
        self,
        scores: Mapping[str, float | None],
        unmet: Sequence[QualityCriterion],
        overall: float | None,
    ) -> tuple[str, ...]:
        """The names of the criteria below their thresholds, or that pull the mean below its threshold."""
        if not unmet and overall is not None and overall < self.least:
            unmet = [
                criterion
                for criterion in self.counting
                if criterion.weight
                and (score := scores.get(criterion.name)) is not None
                and score < self.least
            ]
        return tuple([criterion.name for criterion in unmet])

    def _judgement(self, judgements: Sequence[ReflectionEvaluation]) -> ReflectionEvaluation:
        """Merge the evaluations of the judges."""
        parts = [
            _attributed(judgement, judge.criteria[0].name) if _is_hidden(judge) else judgement
            for judge, judgement in zip(self.judges, judgements, strict=True)
        ]
        return reduce(_joined, parts)

    def _needs_confirmation(
        self, evaluation: ReflectionEvaluation, judgements: Sequence[ReflectionEvaluation]
    ) -> bool:
        """Whether an output is satisfactory only because a single judgement is just above a threshold."""
        if not evaluation.satisfactory or evaluation.samples:
            return False
        scores = {
            name: score for judgement in judgements for name, score in judgement.criteria_scores.items()
        }
        if not scores:
            return False
        pairs = [(self.threshold, evaluation.overall_score)]
        pairs += [(criterion.threshold, scores.get(criterion.name)) for criterion in self.criteria]
        return any(least and score is not None and score - least < NEAR for least, score in pairs)


async def _judged(
    judge: ScoreJudge | ProbabilityJudge, unseen: tuple[Issue, ...], output: Output, run: RunContext
) -> ReflectionEvaluation:
    """Judge by the criteria that have their evidence; the `unseen` issues say what others lack."""
    if not judge.criteria:
        return ReflectionEvaluation(None, issues=unseen, confidence=0.0)
    evaluation = await judge(output, run)
    return replace(evaluation, issues=(*evaluation.issues, *unseen)) if unseen else evaluation


def _depends_on_run(criterion: QualityCriterion) -> bool:
    if criterion.evaluator == "compare":
        return "against" in criterion.evaluator_config
    return criterion.evaluator == "function" and sees_run(function_of(criterion))


NEAR = 0.1 - 1e-9
"""A single judgement closer than this above a threshold needs a second one."""


def _is_hidden(judge: ScoreJudge | ProbabilityJudge) -> bool:
    """Whether a judge's criteria are partly or fully hidden from the writer."""
    return judge.criteria[0].shown is not True


def _attributed(evaluation: ReflectionEvaluation, name: str) -> ReflectionEvaluation:
    """A judgement of hidden criteria, without suggestions; issues without a criterion get `name`."""
    issues = tuple(Issue(issue, issue.criterion or name, number=issue.number) for issue in evaluation.issues)
    return replace(evaluation, issues=issues, suggestions=())  # a suggestion does not name its criterion


def _joined(first: ReflectionEvaluation, second: ReflectionEvaluation) -> ReflectionEvaluation:
    """Merge the evaluations of two judges."""
    return replace(
        first,
        criteria_scores={**first.criteria_scores, **second.criteria_scores},
        issues=(*first.issues, *second.issues),
        confidence=min(first.confidence, second.confidence),
        spread=max(first.spread, second.spread),
        samples=tuple(
            {**(scores or {}), **(more or {})} for scores, more in zip_longest(first.samples, second.samples)
        ),
        repeats_itself=first.repeats_itself or second.repeats_itself,
        usage=total_usage([first, second]),
    )


_Call: TypeAlias = "tuple[str | None, Awaitable[ReflectionEvaluation]]"
"""A running evaluation and the name of its criterion; None for a judge of several criteria."""


async def _in_parallel(calls: Iterable[_Call]) -> list[ReflectionEvaluation]:
    return await together([_within_budget(call, name) for name, call in calls])


async def _within_budget(call: Awaitable[ReflectionEvaluation], name: str | None) -> ReflectionEvaluation:
    """Await an evaluation; if the run's budget cuts it short, the score is None, and the others go on."""
    try:
        return await call
    except UnfinishedError as error:
        if error.reason is None:
            raise
        issue = Issue(f"{NOT_JUDGED}{error}", name)
        return ReflectionEvaluation(None, issues=(issue,), confidence=0.0, usage=error.usage or NOTHING_USED)


def _is_passed(evaluation: ReflectionEvaluation, gate: QualityCriterion) -> bool | None:
    """Whether a gate is passed; None if it could not be judged, which does not count as passed."""
    if evaluation.overall_score is None:
        return None if applies(evaluation) else True
    return evaluation.overall_score >= gate.threshold and evaluation.satisfactory


def _scores(
    criteria: Sequence[QualityCriterion],
    by_name: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
) -> tuple[dict[str, float | None], list[QualityCriterion]]:
    """The score of each criterion that applies, and the judged criteria that are not met."""
    scores: dict[str, float | None] = {}
    unmet: list[QualityCriterion] = []
    for criterion in criteria:
        evaluation, accepted = by_name.get(criterion.name), True
        if evaluation is None:
            score = judged.criteria_scores.get(criterion.name) if judged else None
        elif applies(evaluation):
            score, accepted = evaluation.overall_score, evaluation.satisfactory
        else:
            continue
        scores[criterion.name] = score
        is_wish = criterion.threshold == 0
        if score is not None and (score < criterion.threshold or not (accepted or is_wish)):
            unmet.append(criterion)
    return scores, unmet


def _opinions(
    scores: Mapping[str, float | None],
    by_name: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
) -> tuple[str, ...]:
    """The names of the criteria whose evaluation called a model."""
    names = {name for name, evaluation in by_name.items() if evaluation.usage.requests}
    names.update(judged.criteria_scores if judged else ())
    return tuple([name for name in scores if name in names])


_QUOTE = re.compile(r"[\"`\u201c]|(?<!\w)'")


def unique_issues(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Drop issues that repeat an earlier issue at the same place, but for case, spacing and a final dot.

    Issues with literals, which case and spacing tell apart, must be the same.
    """
    unique: dict[tuple[object, ...], Issue] = {}
    for issue in issues:
        message = issue.message.rstrip(".")
        if not _QUOTE.search(message):
            message = " ".join(message.casefold().split())
        unique.setdefault((message, issue.criterion, issue.path, issue.line), issue)
    return tuple(unique.values())


def _spread(
    criteria: Sequence[QualityCriterion], scores: Mapping[str, float | None], judged: ReflectionEvaluation
) -> float:
    if not judged.spread:
        return 0.0
    scored = [criterion for criterion in criteria if scores.get(criterion.name) is not None]
    total = sum(criterion.weight for criterion in scored)
    by_judge = sum(criterion.weight for criterion in scored if criterion.name in judged.criteria_scores)
    return judged.spread * by_judge / total if total else 0.0
