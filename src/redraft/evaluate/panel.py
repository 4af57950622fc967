"""A panel evaluates an output by several criteria: free checks first, then the judges."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

from redraft._calls import sees_run
from redraft._steps import step_context
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
"""Checks that wait for nothing: tasks of their own would cost more than the checks."""


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
    """Return one evaluator for several criteria (None: the default set of the task type).

    Criteria that need no model come first; unless each one with `gate=True` reaches its threshold, no model
    is asked, and what it would have judged is None. An output that is satisfactory only because a single
    judgement is just above a threshold is judged a second time, and both count. The overall score is the
    weighted mean of what could be judged; a weight of 0 does not count. An output is satisfactory when the
    overall score reaches `threshold`, each criterion reaches its own, and none is None. `may_decide` is asked
    before a judge is called whether it may decide what is satisfactory, or only advise. Raises `ConfigError`
    for anything that can't work.
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
        shown = [one for one in for_judge if one.shown is True]
        hidden = [one for one in for_judge if one.shown is not True]
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
    from redraft.evaluate.command import command  # noqa: PLC0415 (likewise)

    return command(criterion, run_command)


@dataclass(frozen=True, eq=False)
class Panel:
    """Judge an output by several criteria; an `Evaluator`, made by `panel`.

    Evaluators go by the name of their criterion: `immediate` checks run one after the other, `waiting` ones
    at once, then those that are `paid`, together with the `judges` of all other criteria. Criteria that are
    not wholly shown to the writer have a judge of their own, the last one, or the critique of the others
    could give them away. With `output_alone`, a judgement depends on the output alone, and not on the run so
    far. `rubric` is what the writer may know of the criteria. `judge_id` identifies the judges, which are one
    model, and `may_decide` says whether they decide what is satisfactory. If not, what they judge is
    `advice`: it counts for nothing next to other criteria, and where there are none, nothing is satisfactory.
    `evidence` gathers what the judges see besides the output; a criterion without its evidence is not judged.
    """

    criteria: tuple[QualityCriterion, ...]
    threshold: float
    immediate: Mapping[str, Evaluator]
    waiting: Mapping[str, Evaluator]
    paid: Mapping[str, Evaluator]
    judges: tuple[ScoreJudge | ProbabilityJudge, ...]
    output_alone: bool
    rubric: str
    judge_id: JudgeId | None = None
    may_decide: Callable[[JudgeId], Awaitable[bool]] | None = None
    advice: frozenset[str] = frozenset()
    evidence: EvidenceGatherer | None = None

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
        """The criteria that must be met before a model is asked."""
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
        names = frozenset(one.name for one in self.criteria if one.evaluator == "llm")
        criteria = self.criteria
        if any(one.weight for one in self.counting if one.name not in names):
            criteria = tuple(
                [replace(one, weight=0.0, threshold=0.0) if one.name in names else one for one in criteria]
            )
        return replace(self, criteria=criteria, advice=names)

    @cached_property
    def is_undecided(self) -> bool:
        """Whether all that counts is advice."""
        return all(one.name in self.advice for one in self.counting if one.weight)

    @cached_property
    def least(self) -> float:
        """The lowest overall score that is satisfactory; generated criteria are met without one."""
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
        """Judge `output`; raises `ModelError` when the judge's provider failed.

        What the run's budget does not allow, or cuts short, is not judged.
        """
        found = {name: await check(output, run) for name, check in self.immediate.items()}
        if self.waiting:
            checks = {name: check(output, run) for name, check in self.waiting.items()}
            budget = step_context.get().budget
            if budget is not None:  # the judge's calls are steps, which end at the run's deadline anyway
                checks = {name: budget.in_time(check) for name, check in checks.items()}
            found |= zip(checks, await _at_once(checks.items()), strict=True)
        gates = [_is_passed(found[gate.name], gate) for gate in self.gates]
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
            results = await _at_once(calls)
            found |= zip(self.paid, results, strict=False)  # those of the judges follow
            judgements = results[len(self.paid) :]
        evaluation = decided_by.merge(found, judgements, gates_passed)
        if not gates_passed:
            missed = [gate.name for gate, passed in zip(self.gates, gates, strict=True) if not passed]
            evaluation = replace(evaluation, failed_gates=tuple(missed))
        if decided_by is self and self._hangs_on_one_call(evaluation, judgements):
            seconds: list[_Call] = [
                (None, judge.confirm(first, output, view))
                for (judge, _, view), first in zip(judges, judgements, strict=True)
                if isinstance(judge, ScoreJudge)
            ]
            if seconds:
                evaluation = self.merge(found, await _at_once(seconds), gates_passed)
        return evaluation

    async def _with_evidence(
        self, judge: ScoreJudge | ProbabilityJudge, output: Output, run: RunContext
    ) -> tuple[ScoreJudge | ProbabilityJudge, tuple[Issue, ...]]:
        """Return a judge with its evidence, without the criteria that lack theirs; and why they lack it."""
        if run.free_only or self.evidence is None:
            return judge, ()
        exhibits = await self.evidence.gather(judge.criteria, output, run)
        if exhibits is NO_EXHIBITS:
            return judge, ()
        criteria = [one for one in judge.criteria if one.name not in exhibits.missing]
        return replace(judge, criteria=criteria, exhibits=exhibits), tuple(exhibits.missing.values())

    def merge(
        self,
        found: Mapping[str, ReflectionEvaluation],
        judgements: Sequence[ReflectionEvaluation],
        gates_passed: bool | None,
    ) -> ReflectionEvaluation:
        """Merge the evaluations of single criteria with those of the judges.

        A criterion that does not apply is left out; one that could not be judged is None. A criterion is met
        when its score reaches its threshold, unless its own evaluator says otherwise; with a threshold of 0
        it is a wish, and never required. The judge's spread counts as much as its criteria weigh.
        """
        judged = self._judgement(judgements) if judgements else None
        scores, unmet = _scores(self.criteria, found, judged)
        missed = {one.name for one in unmet} | {name for name, score in scores.items() if score is None}
        missed -= self.advice
        overall = weighted_mean(self.counting, scores)
        is_enough = overall is not None and overall >= self.least
        evaluations = [*found.values(), judged] if judged else [*found.values()]
        issues = unique_issues([issue for one in evaluations for issue in one.issues])
        mentioned = {issue.criterion for issue in issues}
        # A suggestion is of no criterion, so one of an evaluator whose criterion is hidden has to go.
        telling = [one for name, one in found.items() if name not in self.shown]
        telling += [judged] if judged else []
        return ReflectionEvaluation(
            overall,
            scores,
            satisfactory=is_enough and not missed and not self.is_undecided,
            issues=(*issues, *[shortfall(c, scores[c.name]) for c in unmet if c.name not in mentioned]),
            suggestions=tuple(dict.fromkeys([text for one in telling for text in one.suggestions])),
            confidence=min([one.confidence for one in evaluations], default=1.0),
            spread=_spread(self.counting, scores, judged) if judged else 0.0,
            samples=judged.samples if judged else (),
            agreement=_agreement(self.counting, self.least, scores, judged, missed) if judged else 1.0,
            repeats_itself=judged is not None and judged.repeats_itself,
            gates_passed=gates_passed,
            usage=total_usage(evaluations),
            memo={name: one.memo for name, one in found.items() if one.memo is not None} or None,
            generated=tuple([name for name in scores if name in self.generated]),
            meets_given=(is_enough or not self.has_given)
            and missed <= self.generated
            and not self.is_undecided,
            shown=dict(self.shown) or None,
            opinions=_opinions(scores, found, judged),
            unmet=None if self.is_undecided else self._unmet(scores, unmet, overall),
        )

    def _unmet(
        self,
        scores: Mapping[str, float | None],
        unmet: Sequence[QualityCriterion],
        overall: float | None,
    ) -> tuple[str, ...]:
        """Return the names of the criteria that fall short, or that pull the mean below its threshold."""
        if not unmet and overall is not None and overall < self.least:
            unmet = [
                one
                for one in self.counting
                if one.weight and (score := scores.get(one.name)) is not None and score < self.least
            ]
        return tuple([one.name for one in unmet])

    def _judgement(self, judgements: Sequence[ReflectionEvaluation]) -> ReflectionEvaluation:
        """Return the evaluations of the judges as one."""
        parts = [
            _hidden(judgement, judge.criteria[0].name) if _is_hidden(judge) else judgement
            for judge, judgement in zip(self.judges, judgements, strict=True)
        ]
        return reduce(_together, parts)

    def _hangs_on_one_call(
        self, evaluation: ReflectionEvaluation, judgements: Sequence[ReflectionEvaluation]
    ) -> bool:
        """Return whether an output is satisfactory only because one judgement is just above a threshold."""
        if not evaluation.satisfactory or evaluation.samples:
            return False
        scores = {name: score for one in judgements for name, score in one.criteria_scores.items()}
        if not scores:
            return False
        known = [(self.threshold, evaluation.overall_score)]
        known += [(one.threshold, scores.get(one.name)) for one in self.criteria]
        return any(least and score is not None and score - least < NEAR for least, score in known)


async def _judged(
    judge: ScoreJudge | ProbabilityJudge, unseen: tuple[Issue, ...], output: Output, run: RunContext
) -> ReflectionEvaluation:
    """Judge by the criteria that have their evidence; the issues say what others lack."""
    if not judge.criteria:
        return ReflectionEvaluation(None, issues=unseen, confidence=0.0)
    evaluation = await judge(output, run)
    return replace(evaluation, issues=(*evaluation.issues, *unseen)) if unseen else evaluation


def _depends_on_run(criterion: QualityCriterion) -> bool:
    if criterion.evaluator == "compare":
        return "against" in criterion.evaluator_config
    return criterion.evaluator == "function" and sees_run(function_of(criterion))


NEAR = 0.1 - 1e-9
"""How far above a threshold one judgement is trusted; closer to it, a second one is asked for."""


def _is_hidden(judge: ScoreJudge | ProbabilityJudge) -> bool:
    """Return whether a judge's criteria are not wholly shown to the writer."""
    return judge.criteria[0].shown is not True


def _hidden(evaluation: ReflectionEvaluation, name: str) -> ReflectionEvaluation:
    """Return a judgement of criteria that the writer is not shown; issues without one go to `name`."""
    issues = tuple(Issue(one, one.criterion or name, number=one.number) for one in evaluation.issues)
    return replace(evaluation, issues=issues, suggestions=())  # a suggestion is of no criterion


def _together(first: ReflectionEvaluation, second: ReflectionEvaluation) -> ReflectionEvaluation:
    """Return the evaluations of the two judges as one."""
    return replace(
        first,
        criteria_scores={**first.criteria_scores, **second.criteria_scores},
        issues=(*first.issues, *second.issues),
        confidence=min(first.confidence, second.confidence),
        spread=max(first.spread, second.spread),
        samples=tuple(
            {**(one or {}), **(other or {})} for one, other in zip_longest(first.samples, second.samples)
        ),
        repeats_itself=first.repeats_itself or second.repeats_itself,
        usage=total_usage([first, second]),
    )


_Call: TypeAlias = "tuple[str | None, Awaitable[ReflectionEvaluation]]"
"""An evaluation under way, and the name of its criterion; None for a judge of several."""


async def _at_once(calls: Iterable[_Call]) -> list[ReflectionEvaluation]:
    return await together([_within_budget(call, name) for name, call in calls])


async def _within_budget(call: Awaitable[ReflectionEvaluation], name: str | None) -> ReflectionEvaluation:
    """Await an evaluation; if the run's budget cuts it short, it is not judged, and the others go on."""
    try:
        return await call
    except UnfinishedError as error:
        if error.reason is None:
            raise
        issue = Issue(f"{NOT_JUDGED}{error}", name)
        return ReflectionEvaluation(None, issues=(issue,), confidence=0.0, usage=error.usage or NOTHING_USED)


def _is_passed(evaluation: ReflectionEvaluation, gate: QualityCriterion) -> bool | None:
    """Return whether a gate is passed; None if it could not be judged, which does not count as passed."""
    if evaluation.overall_score is None:
        return None if applies(evaluation) else True
    return evaluation.overall_score >= gate.threshold and evaluation.satisfactory


def _scores(
    criteria: Sequence[QualityCriterion],
    found: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
) -> tuple[dict[str, float | None], list[QualityCriterion]]:
    """Return the score of each criterion that applies, and the criteria that were judged and not met."""
    scores: dict[str, float | None] = {}
    unmet: list[QualityCriterion] = []
    for criterion in criteria:
        evaluation, accepted = found.get(criterion.name), True
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
    found: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
) -> tuple[str, ...]:
    """Return the names of the criteria whose evaluation asked a model."""
    asked = {name for name, one in found.items() if one.usage.requests}
    asked.update(judged.criteria_scores if judged else ())
    return tuple([name for name in scores if name in asked])


def _agreement(
    criteria: Sequence[QualityCriterion],
    threshold: float,
    scores: Mapping[str, float | None],
    judged: ReflectionEvaluation,
    missed: set[str],
) -> float:
    """Return the share of the judge's samples with the verdict of all; 1.0 where a check decided."""
    if missed - judged.criteria_scores.keys():
        return 1.0
    return agreement(criteria, threshold, scores, judged.samples)


def unique_issues(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Drop issues that repeat an earlier one of the same place, apart from case, spacing and a final dot."""
    unique: dict[tuple[object, ...], Issue] = {}
    for issue in issues:
        message = " ".join(issue.message.casefold().split()).rstrip(".")
        unique.setdefault((message, issue.criterion, issue.path, issue.line), issue)
    return tuple(unique.values())


def _spread(
    criteria: Sequence[QualityCriterion], scores: Mapping[str, float | None], judged: ReflectionEvaluation
) -> float:
    if not judged.spread:
        return 0.0
    known = [criterion for criterion in criteria if scores.get(criterion.name) is not None]
    total = sum(criterion.weight for criterion in known)
    by_judge = sum(criterion.weight for criterion in known if criterion.name in judged.criteria_scores)
    return judged.spread * by_judge / total if total else 0.0
