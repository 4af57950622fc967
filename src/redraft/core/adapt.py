"""Plain functions as verbs, plain values as drafts and evaluations: normalised here, once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from redraft.core.calls import Called, caller
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
OUTPUTS = (str, dict, list, int, float)
NUMBERS = (float, int, Real)  # the common ones first: asking the abstract one is slow


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


def evaluator(fn: Callable[..., Any], threshold: float = DEFAULT_THRESHOLD) -> Evaluator:
    """Make an `Evaluator` of any callable that takes an output.

    A verdict that can't be used (prose, NaN, 7, nothing) is an evaluation whose score is None, and the
    issue says what came back.
    """
    return _Evaluating(*caller(fn, "evaluate", 1), threshold)


@dataclass(slots=True)
class _Evaluating(Called):
    threshold: float

    async def __call__(self, output: Any, run: RunContext, /) -> ReflectionEvaluation:
        told = self.told
        verdict = await (self.call(output) if told is None else self.filled(told, run, output))
        try:
            return evaluation_of(verdict, self.threshold)
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


def evaluation_of(value: Any, threshold: float = DEFAULT_THRESHOLD) -> ReflectionEvaluation:
    """Make a `ReflectionEvaluation` of a verdict.

    A verdict is a bool, a number in 0..1, a pair of one of these and a reason, a mapping with `valid` or
    `score` and optionally `reason`, `errors`, `suggestions`, or already an evaluation. Raises `OutputError`
    for anything else, NaN and numbers out of range included.
    """
    verdict, reason = value, None
    if isinstance(value, tuple):
        pair: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] (whatever it holds)
        if len(pair) == 2:  # noqa: PLR2004 (a pair)
            verdict, reason = pair
    if isinstance(verdict, bool):
        score, satisfactory = float(verdict), verdict
    elif isinstance(verdict, NUMBERS):
        score = float(verdict)
        if not 0.0 <= score <= 1.0:  # which NaN is not, either
            raise _out_of_range(score)
        satisfactory = score >= threshold
    elif isinstance(value, ReflectionEvaluation):
        if value.overall_score is not None:
            _score_of(value.overall_score)
        if value.satisfactory and value.unjudged:  # an unknown never wins
            return replace(value, satisfactory=False)
        return value
    elif isinstance(value, dict):
        return _evaluation_of_mapping(cast("Mapping[Any, Any]", value), threshold)
    else:
        raise OutputError(
            f"the verdict is {short_repr(value)}; expected a bool, a number in 0..1, (verdict, reason), "
            "a dict with 'valid' or 'score', or a ReflectionEvaluation"
        )
    evaluation = ReflectionEvaluation(score, {}, satisfactory)
    if reason and not satisfactory:
        evaluation.issues = (Issue(str(reason)),)  # not as an argument: these need no looking at
    return evaluation


def _evaluation_of_mapping(value: Mapping[Any, Any], threshold: float) -> ReflectionEvaluation:
    valid, score = value.get("valid"), value.get("score")
    if valid is None and score is None:
        raise OutputError(f"the verdict {short_repr(value)} has neither 'valid' nor 'score'")
    if valid is not None and not isinstance(valid, bool):
        raise OutputError(f"the verdict's 'valid' is {short_repr(valid)}; expected true or false")
    number = _score_of(score) if score is not None else (1.0 if valid else 0.0)
    satisfactory = number >= threshold if valid is None else valid
    problems = _texts(value.get("errors"))
    if not satisfactory and not problems:
        problems = _texts(value.get("reason"))
    issues = tuple(Issue(text) for text in problems)
    return ReflectionEvaluation(number, {}, satisfactory, issues, _texts(value.get("suggestions")))


def _score_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        raise OutputError(f"the score is {short_repr(value)}; expected a number in 0..1")
    score = float(value)
    if not 0.0 <= score <= 1.0:
        raise _out_of_range(score)
    return score


def _out_of_range(score: float) -> OutputError:
    hint = "; divide by 100?" if 1 < score <= 100 else ""  # noqa: PLR2004 (a percentage)
    return OutputError(f"the score is {score!r}; expected a number in 0..1{hint}")


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (str(value),)
