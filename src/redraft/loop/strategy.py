"""Choose how to make the next version: its base, its strategy and its temperature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from redraft._texts import as_text, is_short
from redraft.evaluate.criteria import is_test, needs_model
from redraft.loop.select import is_better, is_setback
from redraft.protocols import Attempt
from redraft.types import highest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import Output, QualityCriterion, ReflectionEvaluation, ReflectionVersion

RevisionStrategy: TypeAlias = Literal[
    "full_rewrite", "targeted_edit", "incremental", "fresh", "resample", "hybrid"
]

STRATEGIES: tuple[str, ...] = get_args(RevisionStrategy)

HIGHEST_TEMPERATURE = 1.0
"""The temperature after a revision that led nowhere: the highest that all providers take."""

MOSTLY_WRONG = 0.5
"""The share of failing criteria, or of lines with issues, above which a text is rewritten."""

AFTER_FAILURE = {
    "targeted_edit": "full_rewrite",
    "full_rewrite": "incremental",
    "incremental": "targeted_edit",
}
"""The strategy to try after a strategy that made things worse."""

FROM_SCRATCH = ("fresh", "resample")
"""The strategies that hide the failed text: `fresh` with its issues as constraints, `resample` without."""


def next_attempt(
    versions: Sequence[ReflectionVersion],
    best: ReflectionVersion,
    before: Attempt,
    *,
    visible: Sequence[ReflectionVersion],
    strategy: RevisionStrategy,
    diversify: bool,
    is_repeat: bool,
    criteria: Sequence[QualityCriterion] = (),
    max_tokens: int | None = None,
) -> tuple[Attempt, ReflectionVersion]:
    """The attempt after `before`, and the version that it starts from: the best version, or the last.

    `visible` are the versions as the writer may see them: they go into the attempt, and `versions` decide.
    `strategy` is the pattern's. `is_repeat` says that the last output repeats an earlier output, which calls
    for a fresh start with `diversify`. If only checks among `criteria` fail, `hybrid` may start a short
    output from scratch.

    A version that was not fully judged is set aside like a version that made things worse, but prompts don't
    say so.
    """
    last = versions[-1]
    base = best if is_setback(last, best) else last
    worse = base is not last and last.evaluation.is_conclusive  # a failed gate is conclusive, too
    stuck = diversify and (is_repeat or (last.strategy == "fresh" and worse))
    # A long text is first revised in another way, at a temperature, before it is thrown away.
    fresh = stuck and (is_short(base.output) or before.temperature is not None)
    way: str = strategy
    if (worse or stuck) and not fresh:
        tried = last.strategy if last.strategy in AFTER_FAILURE else before.strategy
        way = AFTER_FAILURE.get(tried, "full_rewrite")
    if criteria and strategy == "hybrid" and not stuck:
        way = _after_failed_checks(versions, base, criteria) or way
    visible_base = visible[base.iteration - 1]
    attempt = Attempt(
        number=len(versions) + 1,
        mode="fresh" if fresh else "revise",
        previous=base.output,
        evaluation=visible_base.evaluation,
        strategy=way,
        temperature=HIGHEST_TEMPERATURE if stuck else None,
        failed=visible[-1] if worse and not is_repeat else None,
        max_tokens=max_tokens,
        base=None if fresh else base.iteration,
    )
    return attempt, visible_base


def _after_failed_checks(
    versions: Sequence[ReflectionVersion], base: ReflectionVersion, criteria: Sequence[QualityCriterion]
) -> str | None:
    """How to start a short output from scratch if only checks fail, and it is half wrong or more.

    Small models repeat most of what they are asked to rewrite. A failed test says what came out, not what to
    do: however few fail, another sample solves more, until they fail in exactly the same way again.
    """
    evaluation, last = base.evaluation, versions[-1].evaluation
    if evaluation.suggestions or versions[0].strategy == "given" or not is_short(base.output):
        return None
    scores = evaluation.criteria_scores
    failing = [
        criterion
        for criterion in criteria
        if criterion.name in scores and (scores[criterion.name] or 0.0) < criterion.threshold
    ]
    others = [criterion for criterion in failing if not is_test(criterion)]
    if not failing or any(map(needs_model, others)):
        return None
    if not others and all(version.evaluation.issues != last.issues for version in versions[:-1]):
        return "resample"
    score = evaluation.overall_score
    return from_scratch(evaluation, versions) if score is not None and score <= MOSTLY_WRONG else None


def choose_strategy(
    output: Output, evaluation: ReflectionEvaluation, versions: Sequence[ReflectionVersion] = ()
) -> str:
    """Choose the strategy of `hybrid` by how long the text is and how much of it is wrong.

    A long text is never thrown away: it is edited if all issues have a place or there are few of them,
    rewritten if it is mostly wrong, and otherwise extended. A short text is rewritten, or started from
    scratch if all of its checks failed: no part is known to be worth keeping, and a model that sees its
    failed draft tends to repeat it.
    """
    text, issues = as_text(output), evaluation.issues
    if is_short(text):
        return from_scratch(evaluation, versions) if evaluation.overall_score == 0.0 else "full_rewrite"
    wrong_lines = {issue.line for issue in issues if issue.line is not None}
    if len(wrong_lines) / (text.count("\n") + 1) > MOSTLY_WRONG:
        return "full_rewrite"
    # A check that passes or fails says nothing about how much is wrong, so places come first.
    if issues and all(issue.line is not None or issue.path is not None for issue in issues):
        return "targeted_edit"
    if _failing_share(evaluation) > MOSTLY_WRONG:
        return "full_rewrite"
    return "targeted_edit" if len(issues) <= 3 else "incremental"  # noqa: PLR2004 (a handful of edits)


def way_of_hybrid(
    output: Output,
    evaluation: ReflectionEvaluation,
    versions: Sequence[ReflectionVersion],
    *,
    is_misfit: bool = False,
) -> str:
    """Choose the strategy of `hybrid` for a model: a draft of the caller's is never thrown away.

    `is_misfit` means that the output is not of the output type, and may need little.
    """
    if is_misfit:
        return "full_rewrite"
    strategy = choose_strategy(output, evaluation, versions)
    # Outside of a run there are no versions, and the text is the caller's.
    is_given = not versions or versions[0].strategy == "given"
    return "full_rewrite" if strategy in FROM_SCRATCH and is_given else strategy


def from_scratch(evaluation: ReflectionEvaluation | None, versions: Sequence[ReflectionVersion]) -> str:
    """Choose how to start from scratch: in the way not yet tried in this run, or in the better of the two.

    Whether feedback helps depends on the model: some solve more with it, and small models more without.
    Suggestions are always passed on: they say what to do, where a failed check only says what came out.
    """
    with_feedback = [version for version in versions if version.strategy == "fresh"]
    if not with_feedback or (evaluation is not None and evaluation.suggestions):
        return "fresh"
    without = [version for version in versions if version.strategy == "resample"]
    if not without or is_better(highest(without), highest(with_feedback)):
        return "resample"
    return "fresh"


def _failing_share(evaluation: ReflectionEvaluation) -> float:
    scores = [score for score in evaluation.criteria_scores.values() if score is not None]
    if not scores:
        return 0.0 if evaluation.overall_score is None else float(evaluation.overall_score < MOSTLY_WRONG)
    return sum(score < MOSTLY_WRONG for score in scores) / len(scores)
