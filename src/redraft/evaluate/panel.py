"""Evaluate an output by several criteria: checks first, judges after."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from redraft._calls import DEFAULT_THRESHOLD
from redraft._steps import allowance
from redraft.errors import ConfigError, UnfinishedError
from redraft.evaluate.ask import together
from redraft.evaluate.checks import check_keys, count, function, regex, schema, wrong
from redraft.evaluate.compare import compare, needs_model
from redraft.evaluate.criteria import criteria_of
from redraft.evaluate.judge import judge
from redraft.evaluate.verdict import applies, merge
from redraft.protocols import Evaluator
from redraft.types import COUNTS, NOTHING_USED, Issue, QualityCriterion, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.evaluate.judge import Judging
    from redraft.protocols import ChatModel, CommandRunner, RunContext
    from redraft.types import Output

Part: TypeAlias = tuple[str, Evaluator]

LOCAL = {"regex": regex, "function": function, "schema": schema, **dict.fromkeys(COUNTS, count)}
QUICK = frozenset({"regex", *COUNTS, "schema", "compare"})
"""Evaluators that wait for nothing, so that starting tasks for them would cost more than they do."""

JUDGE = ""
"""The name of the judge among the evaluators; no criterion has it."""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Judge an output by several criteria; an `Evaluator`. Made by `panel`.

    `checks` and `judged` are the names of the criteria that no model judges, and that one does. Checks that
    are `quick` are carried out one by one, those that are `waiting` for something at once. `asking` are the
    evaluators that ask a model; the judge of several criteria goes by the empty name.
    """

    criteria: tuple[QualityCriterion, ...]
    threshold: float
    checks: tuple[str, ...]
    judged: tuple[str, ...]
    gates: tuple[QualityCriterion, ...]
    quick: tuple[Part, ...]
    waiting: tuple[Part, ...]
    asking: tuple[Part, ...]

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation:
        """Judge `output`; raises `ModelError` when the judge's provider failed.

        What the budget of the run does not allow, or cuts short, is not judged.
        """
        found: dict[str, ReflectionEvaluation] = {}
        for name, check in self.quick:
            found[name] = await check(output, run)
        if self.waiting:
            await _carry_out(self.waiting, output, run, found, free=True)
        gates = [_is_passed(found[gate.name], gate) for gate in self.gates]
        gates_passed = False if False in gates else None if None in gates else True
        if not gates_passed and not run.free_only:
            run = replace(run, free_only=True)
        if self.asking:
            await _carry_out(self.asking, output, run, found, free=False)
        return merge(self.criteria, self.threshold, found, found.pop(JUDGE, None), gates_passed=gates_passed)


def _is_passed(evaluation: ReflectionEvaluation, gate: QualityCriterion) -> bool | None:
    """Say whether a gate is passed; None where it could not be judged, which is not passed, either."""
    if evaluation.overall_score is None:
        return None if applies(evaluation) else True
    return evaluation.overall_score >= gate.threshold and evaluation.satisfactory


async def _carry_out(
    parts: Sequence[Part],
    output: Output,
    run: RunContext,
    found: dict[str, ReflectionEvaluation],
    *,
    free: bool,
) -> None:
    evaluations = await together([_found(part, output, run, free=free) for part in parts])
    found.update(zip((name for name, _ in parts), evaluations, strict=True))


async def _found(part: Part, output: Output, run: RunContext, *, free: bool) -> ReflectionEvaluation:
    """Return what one part finds; what the budget of the run cuts short is not judged, and the others are."""
    name, evaluate = part
    within = allowance.get()
    try:
        if free and within is not None:
            return await within.in_time(evaluate(output, run))
        return await evaluate(output, run)
    except UnfinishedError as error:
        if error.reason is None:
            raise
        issue = Issue(f"Not judged: {error}", name or None)
        return ReflectionEvaluation(None, issues=(issue,), confidence=0.0, usage=error.usage or NOTHING_USED)


def panel(
    criteria: Sequence[QualityCriterion | str] | None,
    *,
    threshold: float = DEFAULT_THRESHOLD,
    model: ChatModel | None = None,
    run_command: CommandRunner | None = None,
    judging: Judging | None = None,
    task_type: str = "",
) -> Panel:
    """Make one evaluator of several criteria (None: the default set of the task type).

    Deterministic criteria come first; unless each one with `gate=True` reaches its threshold, no model is
    asked, and what it would have judged is None. Overall is the weighted mean of what could be judged; one of
    weight 0 does not count in it. An output is satisfactory when overall reaches `threshold`, each criterion
    its own, and none is None. Raises `ConfigError` for anything that can't work. Specification 2.4.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"The quality threshold must be in 0..1, got {threshold!r}.")
    chosen = criteria_of(criteria, task_type)
    quick, waiting, asking = list[Part](), list[Part](), list[Part]()
    for criterion in chosen:
        if needs_model(criterion):
            _check_judged(criterion, model)
        if criterion.evaluator != "llm":
            part = (criterion.name, _single(criterion, model, run_command))
            (asking if needs_model(criterion) else quick if criterion.evaluator in QUICK else waiting).append(
                part
            )
    by_judge = tuple(criterion for criterion in chosen if criterion.evaluator == "llm")
    if by_judge and model:
        asking.append((JUDGE, judge(by_judge, model, judging)))
    return Panel(
        chosen,
        threshold,
        tuple(criterion.name for criterion in chosen if not needs_model(criterion)),
        tuple(criterion.name for criterion in chosen if needs_model(criterion)),
        tuple(criterion for criterion in chosen if criterion.gate),
        tuple(quick),
        tuple(waiting),
        tuple(asking),
    )


def _check_judged(criterion: QualityCriterion, model: ChatModel | None) -> None:
    if criterion.gate:
        raise wrong(criterion, "gate=True is for criteria that no model judges; a gate spares the model.")
    if model is None:
        raise wrong(criterion, f"{criterion.evaluator} needs a model; give one, or set REDRAFT_MODEL.")
    if criterion.evaluator == "llm":
        check_keys(criterion)


def _single(
    criterion: QualityCriterion, model: ChatModel | None, run_command: CommandRunner | None
) -> Evaluator:
    kind = criterion.evaluator
    if kind in LOCAL:
        return LOCAL[kind](criterion)
    if kind == "compare":
        return compare(criterion, model)
    if run_command is None:
        raise wrong(criterion, "command needs a runner of commands; give run_command, such as a ProcessJail.")
    from redraft.evaluate.command import command  # noqa: PLC0415 (only criteria with commands need it)

    return command(criterion, run_command)
