"""Plain functions as verbs, plain values as drafts and evaluations: normalised here, once."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from redraft.core.calls import Called, caller
from redraft.core.check import is_number
from redraft.core.errors import OutputError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.feedback import render_retry
from redraft.core.task import prompt_of
from redraft.core.texts import short_repr
from redraft.core.version import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redraft.core.context import RunContext
    from redraft.core.protocols import Evaluator, Generator, Reviser

DEFAULT_THRESHOLD = 0.8
VERDICTS = (
    "a bool, a number in 0..1, (verdict, reason), a dict with 'valid' or 'score', or a ReflectionEvaluation"
)
OUTPUTS = (str, dict, list, int, float)
NUMBERS = (float, int, Real)  # the common ones first: asking the abstract one is slow
_BOOLS = {"true": True, "false": False}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SCORE = re.compile(rf"{_NUMBER}(?:\s*(?:(%)|(?:/|out of)\s*{_NUMBER}))?")
_REMARK = re.compile(r"[.,;:]?|\s*[(\[].*|[.,;:]?\s[^\d/%]*", re.DOTALL)


def generator(fn: Callable[..., Any]) -> Generator:
    """Make a `Generator` of any callable that takes a prompt.

    A critique reaches it through `feedback`, `attempt` or `run`; where it takes none of these, the critique
    is appended to the prompt.
    """
    return _Generating(*caller(fn, "generate", 1))


class _Generating(Called):
    __slots__ = ()

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft:
        if self.told is not None:
            return draft_of(await self.filled(self.told, run, prompt), "generate")
        if run.attempt.evaluation is not None:
            prompt = render_retry(prompt, run.attempt)
        return draft_of(await self.call(prompt), "generate")


def regenerating(generate: Generator) -> Reviser:
    """Make a `Reviser` of a generator: call it again with the critique."""

    async def revise(_output: Any, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return await generate(prompt_of(run.task, run.advice), run)

    return revise


def reviser(fn: Callable[..., Any]) -> Reviser:
    """Make a `Reviser` of any callable that takes an output and its evaluation."""
    return _Revising(*caller(fn, "revise", 2))


class _Revising(Called):
    __slots__ = ()

    async def __call__(self, output: Any, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        if self.told is not None:
            return draft_of(await self.filled(self.told, run, output, evaluation), "revise")
        return draft_of(await self.call(output, evaluation), "revise")


def evaluator(
    fn: Callable[..., Any],
    threshold: float = DEFAULT_THRESHOLD,
    score_max: float | None = None,
    name: str = "evaluate",
) -> Evaluator:
    """Make an `Evaluator` of any callable that takes an output; errors call it `name`.

    A verdict that can't be used (prose, NaN, 7) is an evaluation whose score is None, and the issue says what
    came back. None is no verdict but a forgotten `return`, and raises `TypeError`. `score_max` declares that
    its numbers go up to there instead of 1.
    """
    return _Evaluating(*caller(fn, "evaluate", 1), threshold, score_max, name)


@dataclass(slots=True)
class _Evaluating(Called):
    threshold: float
    score_max: float | None
    name: str

    async def __call__(self, output: Any, run: RunContext, /) -> ReflectionEvaluation:
        told = self.told
        verdict = await (self.call(output) if told is None else self.filled(told, run, output))
        if verdict is None:
            raise TypeError(f"{self.name} returned None; expected {VERDICTS}")
        try:
            return evaluation_of(verdict, self.threshold, self.score_max)
        except OutputError as error:
            return ReflectionEvaluation(None, issues=(Issue(f"Not judged: {error}"),), confidence=0.0)


def draft_of(value: Any, source: str = "generate") -> Draft:
    """Make a `Draft` of what a generator or reviser returned; raises `OutputError` for what is no output."""
    if isinstance(value, OUTPUTS):  # what nearly all are, before a call that would say the same
        return Draft(value)
    if isinstance(value, Draft):
        _check_output(value.output, source)
        return value
    _check_output(value, source)
    return Draft(value)


def _check_output(value: Any, source: str) -> None:
    if isinstance(value, OUTPUTS):
        return
    if value is None:
        raise OutputError(f"{source} returned None; expected a text, a JSON value or a pydantic model.")
    if isinstance(value, type) or not hasattr(value, "model_dump_json"):
        got = value if isinstance(value, type) else type(value).__name__
        raise OutputError(f"{source} returned {got!r}; expected a text, a JSON value or a pydantic model.")


def evaluation_of(
    value: Any, threshold: float = DEFAULT_THRESHOLD, score_max: float | None = None
) -> ReflectionEvaluation:
    """Make a `ReflectionEvaluation` of a verdict.

    A verdict is a bool, a number in 0..1, a pair of one of these and a reason, a mapping with `valid` or
    `score` and optionally `reason`, `errors`, `suggestions`, or already an evaluation. In a mapping, where
    models write them, `valid` may be a text ("true") and `score` one that says its scale ("0.4", "85/100",
    "85 %"). Numbers up to another maximum than 1 need `score_max`, here or in the mapping: a bare 85 may be
    anything. Raises `OutputError` for anything else, NaN and numbers out of range included.
    """
    verdict, reason = value, None
    if isinstance(value, tuple):
        pair: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] (whatever it holds)
        if len(pair) == 2:  # noqa: PLR2004 (a pair)
            verdict, reason = pair
    if isinstance(verdict, bool):
        score, satisfactory = float(verdict), verdict
    elif isinstance(verdict, NUMBERS):
        score = float(verdict) if score_max is None else float(verdict) / score_max
        if not 0.0 <= score <= 1.0:  # which NaN is not, either
            raise _out_of_range(score)
        satisfactory = score >= threshold
    elif isinstance(value, ReflectionEvaluation):
        if isinstance(value.overall_score, str):  # of an object the score is read, of this one it is kept
            raise OutputError(f"the score is {value.overall_score!r}; expected a number in 0..1")
        if value.overall_score is not None:
            _score_of(value.overall_score, None)
        if value.satisfactory and value.unjudged:  # an unknown never wins
            return replace(value, satisfactory=False)
        return value
    elif isinstance(value, dict):
        return _evaluation_of_mapping(cast("Mapping[Any, Any]", value), threshold, score_max)
    else:
        raise OutputError(f"the verdict is {short_repr(value)}; expected {VERDICTS}")
    evaluation = ReflectionEvaluation(score, {}, satisfactory)
    if reason and not satisfactory:
        evaluation.issues = (Issue(str(reason)),)  # not as an argument: these need no looking at
    return evaluation


def _evaluation_of_mapping(
    value: Mapping[Any, Any], threshold: float, score_max: float | None
) -> ReflectionEvaluation:
    valid, score = value.get("valid"), value.get("score")
    if valid is None and score is None:
        raise OutputError(f"the verdict {short_repr(value)} has neither 'valid' nor 'score'")
    if isinstance(valid, str):
        valid = _BOOLS.get(valid.strip().lower(), valid)
    if valid is not None and not isinstance(valid, bool):
        raise OutputError(f"the verdict's 'valid' is {short_repr(valid)}; expected true or false")
    declared = value.get("score_max")
    if declared is not None and (not is_number(declared) or declared <= 0):
        raise OutputError(f"the verdict's 'score_max' is {short_repr(declared)}; expected a number above 0")
    scale = score_max if declared is None else float(declared)
    number = _score_of(score, scale) if score is not None else (1.0 if valid else 0.0)
    satisfactory = number >= threshold if valid is None else valid
    problems = _texts(value.get("errors"))
    if not satisfactory and not problems:
        problems = _texts(value.get("reason"))
    issues = tuple(Issue(text) for text in problems)
    return ReflectionEvaluation(number, {}, satisfactory, issues, _texts(value.get("suggestions")))


def _score_of(value: Any, score_max: float | None) -> float:
    score = share_of(value, score_max)
    if score is not None:
        return score
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        raise OutputError(f"the score is {short_repr(value)}; expected a number in 0..1")
    if score_max is not None:
        raise OutputError(f"the score is {short_repr(value)}; expected a number in 0..{score_max:g}")
    raise _out_of_range(float(value))


def share_of(value: Any, score_max: float | None = None) -> float | None:
    """Return a score as a number in 0..1; None for what is no score, or one whose scale nobody knows.

    A score is a number in 0..1, or in 0..`score_max` where that is declared, or a text: such a number, a
    fraction ("9/10") or a percentage ("90 %").
    """
    if isinstance(value, str):
        found = _SCORE.fullmatch(value.strip())
        return None if found is None else _share_said(found, score_max)
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        return None
    return _within(value, score_max or 1.0)


def leading_share_of(text: str) -> float | None:
    """Return the score that a line of prose begins with: "0.85 (good)", "9/10, mostly clear".

    What follows must not be part of the number, nor hold another one unless it is in brackets.
    """
    found = _SCORE.match(text)
    if found is None or _REMARK.fullmatch(text, found.end()) is None:
        return None
    return _share_said(found, None)


def _share_said(found: re.Match[str], score_max: float | None) -> float | None:
    number, percent, most = found.groups()
    scale = 100.0 if percent else float(most) if most else (score_max or 1.0)
    return _within(float(number), scale)


def _within(number: Any, scale: float) -> float | None:
    # An integer may be too large for a float, and NaN is in no range.
    return float(number) / scale if scale > 0 and 0 <= number <= scale else None


def _out_of_range(score: float) -> OutputError:
    hint = "; declare its scale with score_max" if score > 1 else ""
    return OutputError(f"the score is {score!r}; expected a number in 0..1{hint}")


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (str(value),)
