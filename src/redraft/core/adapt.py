"""Plain functions as verbs, plain values as drafts and evaluations: normalised here, once."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass
from functools import partial
from math import isfinite
from numbers import Real
from types import FunctionType
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from redraft.core.context import RunContext
from redraft.core.errors import ConfigError, OutputError
from redraft.core.evaluation import Issue, ReflectionEvaluation
from redraft.core.feedback import render_feedback, render_retry
from redraft.core.version import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType

    from redraft.core.protocols import Evaluator, Generator, Reviser

FILLED_BY_NAME = frozenset({"run", "feedback", "attempt"})
DEFAULT_THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Signature:
    """Say which of `run`, `feedback`, `attempt` a callable takes, by position and by keyword."""

    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()

    @property
    def is_told(self) -> bool:
        """Whether the callable takes anything of the run."""
        return bool(self.positional or self.keywords)


def generator(fn: Callable[..., Any]) -> Generator:
    """Make a `Generator` of any callable that takes a prompt.

    A critique reaches it through `feedback`, `attempt` or `run`; where it takes none of these, the critique
    is appended to the prompt.
    """
    call = _caller(fn, "generate", 1)
    told = signature_of(fn, "generate", 1).is_told

    async def generate(prompt: str, run: RunContext, /) -> Draft:
        if not told and run.attempt.evaluation is not None:
            prompt = render_retry(prompt, run.attempt)
        return draft_of(await call(run, prompt), "generate")

    return generate


def regenerating(generate: Generator) -> Reviser:
    """Make a `Reviser` of a generator: call it again with the critique."""

    async def revise(_output: Any, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return await generate(run.task.description, run)

    return revise


def reviser(fn: Callable[..., Any]) -> Reviser:
    """Make a `Reviser` of any callable that takes an output and its evaluation."""
    call = _caller(fn, "revise", 2)

    async def revise(output: Any, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return draft_of(await call(run, output, evaluation), "revise")

    return revise


def evaluator(fn: Callable[..., Any], threshold: float = DEFAULT_THRESHOLD) -> Evaluator:
    """Make an `Evaluator` of any callable that takes an output.

    A verdict that can't be used (prose, NaN, 7, nothing) is an evaluation whose score is None, and the
    issue says what came back.
    """
    call = _caller(fn, "evaluate", 1)

    async def evaluate(output: Any, run: RunContext, /) -> ReflectionEvaluation:
        verdict = await call(run, output)
        try:
            return evaluation_of(verdict, threshold)
        except OutputError as error:
            return ReflectionEvaluation(None, issues=(Issue(f"Not judged: {error}"),), confidence=0.0)

    return evaluate


def draft_of(value: Any, source: str = "generate") -> Draft:
    """Make a `Draft` of what a generator or reviser returned; raises `OutputError` for what is no output."""
    if isinstance(value, Draft):
        _check_output(value.output, source)
        return value
    _check_output(value, source)
    return Draft(value)


def _check_output(value: Any, source: str) -> None:
    if value is None:
        raise OutputError(f"{source} returned None; expected a text, a JSON value or a pydantic model.")
    if not isinstance(value, str | dict | list | int | float) and not hasattr(value, "model_dump_json"):
        kind = type(value).__name__
        raise OutputError(f"{source} returned a {kind}; expected a text, a JSON value or a pydantic model.")


def evaluation_of(value: Any, threshold: float = DEFAULT_THRESHOLD) -> ReflectionEvaluation:
    """Make a `ReflectionEvaluation` of a verdict.

    A verdict is a bool, a number in 0..1, a pair of one of these and a reason, a mapping with `valid` or
    `score` and optionally `reason`, `errors`, `suggestions`, or already an evaluation. Raises `OutputError`
    for anything else, NaN and numbers out of range included.
    """
    if isinstance(value, ReflectionEvaluation):
        return value
    if isinstance(value, bool):
        return _judged(1.0 if value else 0.0, value, ())
    if isinstance(value, Real):
        score = _score_of(value)
        return _judged(score, score >= threshold, ())
    if isinstance(value, tuple) and len(value) == 2:  # noqa: PLR2004 (a pair; pyright: ignore) # pyright: ignore[reportUnknownArgumentType]
        verdict, reason = value  # pyright: ignore[reportUnknownVariableType] (checked by the call below)
        plain = evaluation_of(verdict, threshold)
        issues = () if plain.satisfactory or not reason else (Issue(str(reason)),)  # pyright: ignore[reportUnknownArgumentType]
        return _judged(plain.overall_score or 0.0, plain.satisfactory, issues)
    if isinstance(value, dict):
        return _evaluation_of_mapping(value, threshold)  # pyright: ignore[reportUnknownArgumentType]
    raise OutputError(
        f"the verdict is {_short(value)}; expected a bool, a number in 0..1, (verdict, reason), "
        "a dict with 'valid' or 'score', or a ReflectionEvaluation"
    )


def _evaluation_of_mapping(value: Mapping[Any, Any], threshold: float) -> ReflectionEvaluation:
    valid, score = value.get("valid"), value.get("score")
    if valid is None and score is None:
        raise OutputError(f"the verdict {_short(value)} has neither 'valid' nor 'score'")
    if valid is not None and not isinstance(valid, bool):
        raise OutputError(f"the verdict's 'valid' is {_short(valid)}; expected true or false")
    number = _score_of(score) if score is not None else (1.0 if valid else 0.0)
    satisfactory = number >= threshold if valid is None else valid
    problems = _texts(value.get("errors"))
    if not satisfactory and not problems:
        problems = _texts(value.get("reason"))
    return _judged(
        number, satisfactory, tuple(Issue(text) for text in problems), _texts(value.get("suggestions"))
    )


def _judged(
    score: float, satisfactory: bool, issues: tuple[Issue, ...], suggestions: tuple[str, ...] = ()
) -> ReflectionEvaluation:
    return ReflectionEvaluation(score, {}, satisfactory, issues, suggestions)


def _score_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OutputError(f"the score is {_short(value)}; expected a number in 0..1")
    score = float(value)
    if not isfinite(score) or not 0.0 <= score <= 1.0:
        raise OutputError(f"the score is {score!r}; expected a number in 0..1")
    return score


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (str(value),)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."  # noqa: PLR2004 (a line's worth)


def _caller(fn: Callable[..., Any], verb: str, given: int) -> Callable[..., Any]:
    """Return an async callable `(run, *given)` that fills what `fn` asks for by name."""
    if not callable(fn):
        raise ConfigError(f"{verb} must be callable, got {_short(fn)}.")
    signature = signature_of(fn, verb, given)
    call = awaited(fn)
    if not signature.positional and not signature.keywords:

        async def plain(_run: RunContext, *args: Any) -> Any:
            return await call(*args)

        return plain

    async def filled(run: RunContext, *args: Any) -> Any:
        extra = (value_of(kind, run) for kind in signature.positional)
        return await call(*args, *extra, **{name: value_of(kind, run) for name, kind in signature.keywords})

    return filled


def awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` as an async callable; one that is not async runs in a thread."""
    return fn if _is_async(fn) else partial(_in_thread, fn)


def _is_async(fn: Callable[..., Any]) -> bool:
    # A class's __call__ and a partial's function are what is awaited, not the object around them.
    target: Any = fn.func if isinstance(fn, partial) else fn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (anything callable)
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 (the method itself is looked at)
    )


async def _in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    result = await asyncio.to_thread(fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result  # a lambda around an async function


def value_of(kind: str, run: RunContext) -> Any:
    """Return what fills a parameter named `run`, `feedback` or `attempt`."""
    if kind == "run":
        return run
    return run.attempt if kind == "attempt" else render_feedback(run.attempt)


# Closures made for each run share their code, and with it their parameters: inspecting once is enough.
_signatures: WeakKeyDictionary[CodeType, dict[int, Signature]] = WeakKeyDictionary()


def signature_of(fn: Callable[..., Any], verb: str, given: int) -> Signature:
    """Say how to call `fn` with `given` positional arguments; raises `ConfigError` where that can't be."""
    if not isinstance(fn, FunctionType) or hasattr(fn, "__wrapped__") or hasattr(fn, "__signature__"):
        return _inspect(fn, verb, given)
    known = _signatures.setdefault(fn.__code__, {})
    if given not in known:
        known[given] = _inspect(fn, verb, given)
    return known[given]


def _inspect(fn: Callable[..., Any], verb: str, given: int) -> Signature:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature takes what it is given
        return Signature()
    in_order = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(in_order) < given and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(f"{verb} must take {given} argument(s) before any other; {fn!r} takes fewer.")
    positional: list[str] = []
    keywords: list[tuple[str, str]] = []
    for parameter in [*in_order[given:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)]:
        kind = _kind_of(parameter)
        if kind is None:
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"{verb}: nothing fills the parameter {parameter.name!r} of {fn!r}; known are "
                    "'run', 'feedback', 'attempt', and those with a default are left alone."
                )
        elif parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(kind)
        else:
            keywords.append((parameter.name, kind))
    return Signature(tuple(positional), tuple(keywords))


def _kind_of(parameter: inspect.Parameter) -> str | None:
    annotation = parameter.annotation
    if annotation is RunContext or annotation in ("RunContext", "redraft.RunContext"):
        return "run"
    return parameter.name if parameter.name in FILLED_BY_NAME else None
