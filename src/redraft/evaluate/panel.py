"""A panel evaluates an output by several criteria: free checks first, then the judges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from redraft._calls import DEFAULT_THRESHOLD
from redraft._steps import allowance
from redraft.errors import ConfigError, UnfinishedError
from redraft.evaluate.ask import spent, together
from redraft.evaluate.checks import check_keys, count, function, invalid, regex, schema
from redraft.evaluate.compare import compare, needs_model
from redraft.evaluate.criteria import criteria_of
from redraft.evaluate.judge import judge
from redraft.evaluate.verdict import applies, shortfall, weighted_mean
from redraft.protocols import Evaluator
from redraft.types import COUNTS, NOTHING_USED, Issue, QualityCriterion, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping, Sequence

    from redraft.evaluate.judge import Judging
    from redraft.execution import CommandRunner
    from redraft.protocols import ChatModel, RunContext
    from redraft.types import Output

CHECKS = {"regex": regex, "function": function, "schema": schema, **dict.fromkeys(COUNTS, count)}
IMMEDIATE = frozenset({"regex", *COUNTS, "schema", "compare"})
"""Checks that wait for nothing: running them in tasks of their own would cost more than they do."""


def panel(
    criteria: Sequence[QualityCriterion | str] | None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    model: ChatModel | None = None,
    run_command: CommandRunner | None = None,
    judging: Judging | None = None,
    task_type: str = "",
) -> Panel:
    """Return one evaluator for several criteria (None: the default set of the task type).

    Criteria that need no model come first; unless each one with `gate=True` reaches its threshold, no model
    is asked, and what it would have judged is None. The overall score is the weighted mean of what could be
    judged; a weight of 0 does not count. An output is satisfactory when the overall score reaches
    `threshold`, each criterion reaches its own, and none is None. Raises `ConfigError` for anything that
    can't work. Specification 2.4.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"The quality threshold must be in 0..1, got {threshold!r}.")
    chosen = criteria_of(criteria, task_type)
    for criterion in chosen:
        if needs_model(criterion):
            _check_judged(criterion, model)
    evaluators = [_Part(c, _evaluator(c, model, run_command)) for c in chosen if c.evaluator != "llm"]
    judged_together = tuple(criterion for criterion in chosen if criterion.evaluator == "llm")
    return Panel(
        chosen,
        threshold,
        immediate=tuple(part for part in evaluators if part.is_free and part.is_immediate),
        waiting=tuple(part for part in evaluators if part.is_free and not part.is_immediate),
        paid=tuple(part for part in evaluators if not part.is_free),
        judge=judge(judged_together, model, judging) if judged_together and model else None,
    )


def _check_judged(criterion: QualityCriterion, model: ChatModel | None) -> None:
    if criterion.gate:
        raise invalid(criterion, "gate=True is for criteria that no model judges; a gate spares the model.")
    if model is None:
        raise invalid(criterion, f"{criterion.evaluator} needs a model; give one, or set REDRAFT_MODEL.")
    if criterion.evaluator == "llm":
        check_keys(criterion)


def _evaluator(
    criterion: QualityCriterion, model: ChatModel | None, run_command: CommandRunner | None
) -> Evaluator:
    if criterion.evaluator in CHECKS:
        return CHECKS[criterion.evaluator](criterion)
    if criterion.evaluator == "compare":
        return compare(criterion, model)
    if run_command is None:
        raise invalid(
            criterion, "command needs a runner of commands; give run_command, such as a ProcessJail."
        )
    from redraft.evaluate.command import command  # noqa: PLC0415 (only criteria with commands need it)

    return command(criterion, run_command)


@dataclass(frozen=True, slots=True)
class _Part:
    """A criterion that has an evaluator of its own."""

    criterion: QualityCriterion
    evaluate: Evaluator

    @property
    def is_free(self) -> bool:
        return not needs_model(self.criterion)

    @property
    def is_immediate(self) -> bool:
        return self.criterion.evaluator in IMMEDIATE


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Judges an output by several criteria; an `Evaluator`. Made by `panel`.

    `immediate` checks run one after the other, `waiting` ones at once; then those that are `paid`, and the
    `judge` of all criteria that have no evaluator of their own.
    """

    criteria: tuple[QualityCriterion, ...]
    threshold: float
    immediate: tuple[_Part, ...]
    waiting: tuple[_Part, ...]
    paid: tuple[_Part, ...]
    judge: Evaluator | None

    @property
    def checks(self) -> tuple[str, ...]:
        """The names of the criteria that no model judges."""
        return tuple(criterion.name for criterion in self.criteria if not needs_model(criterion))

    @property
    def judged(self) -> tuple[str, ...]:
        """The names of the criteria that a model judges."""
        return tuple(criterion.name for criterion in self.criteria if needs_model(criterion))

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge `output`; raises `ModelError` when the judge's provider failed.

        What the run's budget does not allow, or cuts short, is not judged.
        """
        found = {part.criterion.name: await part.evaluate(output, run) for part in self.immediate}
        if self.waiting:
            budget = allowance.get()
            checks = [(part.evaluate(output, run), part.criterion.name) for part in self.waiting]
            # A judge's calls are steps, which end at the run's deadline; these checks are not.
            timed = [(check if budget is None else budget.in_time(check), name) for check, name in checks]
            evaluations = await together([_within_budget(check, name) for check, name in timed])
            found.update(zip((name for _, name in timed), evaluations, strict=True))
        gates = [_passed(found[criterion.name], criterion) for criterion in self.criteria if criterion.gate]
        gates_passed = False if False in gates else None if None in gates else True
        if not gates_passed:
            run = replace(run, free_only=True)
        judged: ReflectionEvaluation | None = None
        if self.paid or self.judge:
            calls = [_within_budget(part.evaluate(output, run), part.criterion.name) for part in self.paid]
            if self.judge:
                calls.append(_within_budget(self.judge(output, run), None))
            evaluations = await together(calls)
            if self.judge:
                judged = evaluations.pop()
            found.update(zip((part.criterion.name for part in self.paid), evaluations, strict=True))
        return merge(self.criteria, self.threshold, found, judged, gates_passed=gates_passed)


async def _within_budget(
    evaluation: Awaitable[ReflectionEvaluation], name: str | None
) -> ReflectionEvaluation:
    """Await an evaluation; if the run's budget cuts it short, it is not judged, and the others go on."""
    try:
        return await evaluation
    except UnfinishedError as error:
        if error.reason is None:
            raise
        issue = Issue(f"Not judged: {error}", name)
        return ReflectionEvaluation(None, issues=(issue,), confidence=0.0, usage=error.usage or NOTHING_USED)


def _passed(evaluation: ReflectionEvaluation, gate: QualityCriterion) -> bool | None:
    """Return whether a gate is passed; None if it could not be judged, which is no pass either."""
    if evaluation.overall_score is None:
        return None if applies(evaluation) else True
    return evaluation.overall_score >= gate.threshold and evaluation.satisfactory


def merge(
    criteria: Sequence[QualityCriterion],
    threshold: float,
    found: Mapping[str, ReflectionEvaluation],
    judged: ReflectionEvaluation | None,
    *,
    gates_passed: bool | None = True,
) -> ReflectionEvaluation:
    """Merge the evaluations of single criteria with the judge's evaluation of the others.

    A criterion that does not apply is left out; one that could not be judged is None. A criterion is met when
    its score reaches its threshold, unless its own evaluator says otherwise; with a threshold of 0 it is a
    wish, and never required. The judge's spread counts as much as its criteria weigh.
    """
    scores: dict[str, float | None] = {}
    unmet: list[QualityCriterion] = []
    for criterion in criteria:
        evaluation, agreed = found.get(criterion.name), True
        if evaluation is None:
            score = judged.criteria_scores.get(criterion.name) if judged else None
        elif applies(evaluation):
            score, agreed = evaluation.overall_score, evaluation.satisfactory
        else:
            continue
        scores[criterion.name] = score
        if score is not None and (score < criterion.threshold or not (agreed or criterion.threshold == 0)):
            unmet.append(criterion)
    overall = weighted_mean(criteria, scores)
    parts = [*found.values(), *([judged] if judged else [])]
    issues = unique_issues([issue for part in parts for issue in part.issues])
    mentioned = {issue.criterion for issue in issues}
    return ReflectionEvaluation(
        overall,
        scores,
        satisfactory=not unmet
        and None not in scores.values()
        and overall is not None
        and overall >= threshold,
        issues=(*issues, *(shortfall(c, scores[c.name]) for c in unmet if c.name not in mentioned)),
        suggestions=tuple(dict.fromkeys(text for part in parts for text in part.suggestions)),
        confidence=min((part.confidence for part in parts), default=1.0),
        spread=_spread(criteria, scores, judged) if judged else 0.0,
        gates_passed=gates_passed,
        usage=spent(parts),
    )


def unique_issues(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Drop issues that repeat an earlier one of the same place, apart from case, spacing and a final dot."""
    kept: dict[tuple[object, ...], Issue] = {}
    for issue in issues:
        message = " ".join(issue.message.casefold().split()).rstrip(".")
        kept.setdefault((message, issue.criterion, issue.path, issue.line), issue)
    return tuple(kept.values())


def _spread(
    criteria: Sequence[QualityCriterion], scores: Mapping[str, float | None], judged: ReflectionEvaluation
) -> float:
    if not judged.spread:
        return 0.0
    known = [criterion for criterion in criteria if scores.get(criterion.name) is not None]
    total = sum(criterion.weight for criterion in known)
    by_judge = sum(criterion.weight for criterion in known if criterion.name in judged.criteria_scores)
    return judged.spread * by_judge / total if total else 0.0
