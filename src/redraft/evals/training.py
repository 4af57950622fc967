"""Training data: pairs of answers that were told apart, and corrected drafts, out of stored runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any, Literal

from redraft._texts import as_text, key_of
from redraft.loop.record import RunRecord
from redraft.redact.redactor import EVERY_CATEGORY, redactor_of_environment
from redraft.types import ReflectionVersion, prompt_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redraft.evals.cases import EvalCase
    from redraft.types import ReflectionEvaluation

By = Literal["checks", "judge"]


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two answers to one task, of which one is better, by checks or by a judge beyond its error.

    `is_right` says whether the better one passed.
    """

    record: RunRecord
    chosen: ReflectionVersion
    rejected: ReflectionVersion
    by: By
    is_right: bool


def preference_pairs(records: Iterable[RunRecord], cases: Sequence[EvalCase] = ()) -> list[PreferencePair]:
    """Return preference pairs from runs that have ended: the best version, and each that is clearly worse.

    Checks tell two versions apart if one does at least as well by every check, and better by one. Where they
    are level, a judge does if the scores differ by more than their standard errors, which takes samples
    (`judge_samples`). Runs with images are left out, and runs of tasks that are `cases` are left out: what
    agents are evaluated on must not be what they are trained on.
    """
    redactor = redactor_of_environment(also=EVERY_CATEGORY)
    runs, tasks = {case.run for case in cases}, {case.task.description for case in cases}
    found: list[PreferencePair] = []
    for record in records:
        best = record.version(record.best)
        description = record.task.description
        if best is None or record.run_id in runs or {description, redactor.redact(description).text} & tasks:
            continue
        if record.task.all_images:  # the rows have no place for them, and without them they teach guessing
            continue
        checks = _checks_of(record.options.get("criteria", ()))
        seen = {key_of(best.output)}
        for version in record.all_versions:
            if key_of(version.output) in seen:
                continue
            if by := told_apart(best.evaluation, version.evaluation, checks):
                seen.add(key_of(version.output))
                found.append(PreferencePair(record, best, version, by, best.evaluation.satisfactory))
    return found


def _checks_of(criteria: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the names of the recorded criteria that need no model."""
    judged = ("llm", "generated_tests")
    return frozenset(
        one["name"]
        for one in criteria
        if one.get("evaluator", "llm") not in judged and one.get("origin", "given") == "given"
        if one.get("evaluator") != "compare" or one["evaluator_config"].get("method") == "similarity"
    )


def told_apart(
    better: ReflectionEvaluation, worse: ReflectionEvaluation, checks: frozenset[str]
) -> By | None:
    """Return what says that one version is better than another; None if nothing does."""
    ours, theirs = better.criteria_scores, worse.criteria_scores
    common = [
        (mine, other)
        for name in checks
        if (mine := ours.get(name)) is not None and (other := theirs.get(name)) is not None
    ]
    if any(mine < other for mine, other in common):
        return None
    if any(mine > other for mine, other in common):
        return "checks"
    if not (better.is_fully_judged and worse.is_fully_judged and better.judged == worse.judged):
        return None
    if min(len(better.samples), len(worse.samples)) < 2:  # noqa: PLR2004 (one alone has no error)
        return None
    gain = (better.overall_score or 0.0) - (worse.overall_score or 0.0)
    return "judge" if gain > hypot(better.spread, worse.spread) else None


def dpo_rows(pairs: Iterable[PreferencePair]) -> list[dict[str, Any]]:
    """Return pairs as conversational preference data: `prompt`, `chosen`, `rejected`."""
    return _redacted(
        {
            "prompt": _prompt(pair.record),
            "chosen": [_said("assistant", as_text(pair.chosen.output))],
            "rejected": [_said("assistant", as_text(pair.rejected.output))],
        }
        for pair in pairs
    )


def sft_rows(pairs: Iterable[PreferencePair]) -> list[dict[str, Any]]:
    """Return corrected drafts as conversations (`messages`): answers of runs whose first draft was worse.

    Only answers that passed are examples to follow.
    """
    return _redacted(
        {"messages": [*_prompt(pair.record), _said("assistant", as_text(pair.chosen.output))]}
        for pair in pairs
        if pair.is_right and pair.rejected.iteration == 1 and not pair.rejected.candidate
    )


def _prompt(record: RunRecord) -> list[dict[str, str]]:
    """Return what was asked, without the advice that one run had."""
    system = record.origin.system_prompt
    asked = [_said(one.role, one.content) for one in record.task.messages]
    return [*([_said("system", system)] if system else []), *asked, _said("user", prompt_of(record.task))]


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _redacted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    redactor = redactor_of_environment(also=EVERY_CATEGORY)
    return [redactor.redact_json(row) for row in rows]
