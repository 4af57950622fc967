"""Adapt plain functions to verbs, and plain values to drafts and evaluations."""

from __future__ import annotations

import asyncio
import inspect
import re
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from threading import Thread
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast, get_args

from redraft._steps import allowance
from redraft._texts import as_text, short_repr
from redraft._validation import is_number
from redraft.errors import ConfigError, OutputError
from redraft.protocols import RunContext
from redraft.types import Draft, Issue, ReflectionEvaluation, prompt_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from types import CodeType

    from redraft.protocols import Attempt, Evaluator, Generator, Reviser
    from redraft.types import ReflectionVersion

DEFAULT_THRESHOLD = 0.8
VERDICTS = (
    "a bool, a number in 0..1, (verdict, reason), a dict with 'valid' or 'score', or a ReflectionEvaluation"
)


def generator(fn: Callable[..., Any]) -> Generator:
    """Adapt a callable that takes a prompt.

    It gets the critique of an earlier attempt in its parameter `feedback`, `attempt` or `run`. If it has none
    of these, the critique is appended to the prompt.
    """
    call, sees_run = _caller(fn, "generate", 1)

    async def generate(prompt: str, run: RunContext, /) -> Draft:
        if run.attempt.evaluation is not None and not sees_run:
            prompt = render_retry(prompt, run.attempt)
        return draft_of(await call(run, prompt), "generate")

    return generate


def reviser(fn: Callable[..., Any]) -> Reviser:
    """Adapt a callable that takes an output and its evaluation."""
    call, _ = _caller(fn, "revise", 2)

    async def revise(output: Any, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return draft_of(await call(run, output, evaluation), "revise")

    return revise


def regenerating(generate: Generator) -> Reviser:
    """Return a reviser that calls the generator again, with the critique."""

    async def revise(_output: Any, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return await generate(prompt_of(run.task, run.advice), run)

    return revise


def evaluator(
    fn: Callable[..., Any],
    threshold: float = DEFAULT_THRESHOLD,
    score_max: float | None = None,
    name: str = "evaluate",
) -> Evaluator:
    """Adapt a callable that takes an output and returns a verdict; error messages call it `name`.

    `score_max` is its highest score, if that is not 1. A verdict that can't be read (prose, NaN, 7) becomes
    an evaluation with a score of None and an issue that says what came back. Returning None raises
    `TypeError`, since it almost always means a forgotten `return`.
    """
    call, _ = _caller(fn, "evaluate", 1)

    async def evaluate(output: Any, run: RunContext, /) -> ReflectionEvaluation:
        verdict = await call(run, output)
        if verdict is None:
            raise TypeError(f"{name} returned None; expected {VERDICTS}")
        try:
            return evaluation_of(verdict, threshold, score_max)
        except OutputError as error:
            return ReflectionEvaluation(None, issues=(Issue(f"Not judged: {error}"),), confidence=0.0)

    return evaluate


def sees_run(fn: Callable[..., Any]) -> bool:
    """Return whether an evaluation function also takes the run, so that its verdict may depend on it."""
    return signature_of(fn, "evaluate", 1).sees_run


OUTPUTS = (str, dict, list, int, float)
NUMBERS = (float, int, Real)  # the common types first: checking against an abstract class is slow
_BOOLS = {"true": True, "false": False}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SCORE = re.compile(rf"{_NUMBER}(?:\s*(?:(%)|(?:/|out of)\s*{_NUMBER}))?")
_REMARK = re.compile(r"[.,;:]?|\s*[(\[].*|[.,;:]?\s[^\d/%]*", re.DOTALL)


def draft_of(value: Any, source: str = "generate") -> Draft:
    """Wrap what a generator or reviser returned in a `Draft`; raises `OutputError` if it is not an output."""
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
    """Turn a verdict into a `ReflectionEvaluation`.

    A verdict is a bool, a number in 0..1, a pair of either and a reason, a `ReflectionEvaluation`, or a
    mapping with `valid` or `score` and, optionally, `reason`, `errors` and `suggestions`. Since models write
    mappings, `valid` may be a text there ("true"), and so may `score` if it says its scale ("0.4", "85/100",
    "85 %"). Numbers above 1 need a `score_max`, here or in the mapping. Raises `OutputError` for anything
    else, including NaN and numbers out of range.
    """
    verdict, reason = value, None
    if isinstance(value, tuple):
        pair: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] (whatever it holds)
        if len(pair) == 2:  # noqa: PLR2004 (a pair)
            verdict, reason = pair
    if isinstance(verdict, bool):
        score, satisfactory = float(verdict), verdict
    elif isinstance(verdict, NUMBERS):
        score = _within(verdict, score_max or 1.0)
        if score is None:
            raise _out_of_range(verdict, score_max)
        satisfactory = score >= threshold
    elif isinstance(value, ReflectionEvaluation):
        if isinstance(value.overall_score, str):  # unlike in a mapping, it would be kept as a text
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
        evaluation.issues = (Issue(str(reason)),)  # set here, since __post_init__ would convert it again
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
    raise _out_of_range(value, score_max)


def share_of(value: Any, score_max: float | None = None) -> float | None:
    """Scale a score to 0..1; return None if it is not a score or its scale is unknown.

    A score is a number in 0..`score_max` (1 if not declared), or a text: such a number, a fraction ("9/10")
    or a percentage ("90 %").
    """
    if isinstance(value, str):
        found = _SCORE.fullmatch(value.strip())
        return None if found is None else _share_in(found, score_max)
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        return None
    return _within(value, score_max or 1.0)


def leading_share_of(text: str) -> float | None:
    """Return the score at the start of a line of prose ("0.85 (good)", "9/10, mostly clear"), or None.

    Another number may follow only in brackets.
    """
    found = _SCORE.match(text)
    if found is None or _REMARK.fullmatch(text, found.end()) is None:
        return None
    return _share_in(found, None)


def _share_in(found: re.Match[str], score_max: float | None) -> float | None:
    number, percent, most = found.groups()
    scale = 100.0 if percent else float(most) if most else (score_max or 1.0)
    return _within(float(number), scale)


def _within(number: Any, scale: float) -> float | None:
    # An integer may be too large for a float, and NaN is in no range.
    return float(number) / scale if scale > 0 and 0 <= number <= scale else None


def _out_of_range(score: Any, score_max: float | None) -> OutputError:
    hint = "; declare its scale with score_max" if score_max is None and score > 1 else ""
    return OutputError(f"the score is {short_repr(score)}; expected a number in 0..{score_max or 1:g}{hint}")


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (str(value),)


FILLED_BY_NAME = frozenset({"run", "feedback", "attempt"})


@dataclass(frozen=True, slots=True)
class Signature:
    """Which of `run`, `feedback` and `attempt` a callable takes, by position and by keyword."""

    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()
    is_async: bool = False

    @property
    def sees_run(self) -> bool:
        """Whether the callable learns anything of the run."""
        return bool(self.positional or self.keywords)


def _caller(fn: Callable[..., Any], verb: str, arity: int) -> tuple[Callable[..., Awaitable[Any]], bool]:
    """Return an async function of the run and `arity` arguments, and whether `fn` sees the run."""
    signature = signature_of(fn, verb, arity)
    call = fn if signature.is_async else partial(_in_thread, fn)

    if not signature.sees_run:

        def plain(_run: RunContext, *args: Any) -> Awaitable[Any]:
            return call(*args)

        return plain, False

    def filled(run: RunContext, *args: Any) -> Awaitable[Any]:
        extra = (value_of(kind, run) for kind in signature.positional)
        return call(*args, *extra, **{name: value_of(kind, run) for name, kind in signature.keywords})

    return filled, True


def awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async version of `fn`; a sync function runs in a thread."""
    return fn if _is_async(fn) else partial(_in_thread, fn)


def _is_async(fn: Callable[..., Any]) -> bool:
    # Look at the function that will run: the one in a partial, or the `__call__` of an object.
    target: Any = fn.func if isinstance(fn, partial) else fn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (anything callable)
    if inspect.isclass(target):  # calling a class makes an instance, even if its `__call__` is async
        return False
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 (the method itself is looked at)
    )


def _called(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:  # a future can't hold it: its awaiter would wait forever
        raise RuntimeError(f"{fn!r} raised StopIteration") from error


async def _in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    within = allowance.get()
    if within is not None and within.bounds_time:
        result = await in_daemon_thread(fn, *args, **kwargs)
    else:
        result = await asyncio.to_thread(_called, fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result  # of a lambda around an async function


async def in_daemon_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function in a daemon thread, which can be abandoned if it hangs.

    The threads of the event loop's executor can't: they are joined before the loop closes.
    """
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = context.run(_called, fn, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 (raised again where the call is awaited)
            failure = error
        # If the loop has been closed, nobody is waiting any more.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    Thread(target=work, daemon=True, name="redraft-call").start()
    return await done


def value_of(kind: str, run: RunContext) -> Any:
    """Return the value for a parameter of this kind: `run`, `feedback` or `attempt`."""
    if kind == "run":
        return run
    return run.attempt if kind == "attempt" else render_feedback(run.attempt)


# Closures made for each run share their code and so their parameters: inspecting one is enough, unless the
# annotations differ. The key is the code's id, since hashing code is slow; the value holds the code, so that
# the id is not reused. The size is bounded because code made at run time would pile up.
_signatures: dict[tuple[int, int], tuple[CodeType, dict[str, Any], Signature]] = {}
REMEMBERED = 1024

SHAPES = {"generate": "(prompt)", "evaluate": "(output)", "revise": "(output, evaluation)"}


def signature_of(fn: Callable[..., Any], verb: str, arity: int) -> Signature:
    """Return how to call `fn` with `arity` positional arguments; raises `ConfigError` if it can't be."""
    if not isinstance(fn, FunctionType) or (fn.__dict__ and _overrides_signature(fn)):
        return _inspect(fn, verb, arity)
    key = id(fn.__code__), arity
    known = _signatures.get(key)
    if known is None or (known[1] is not fn.__annotations__ and known[1] != fn.__annotations__):
        if len(_signatures) >= REMEMBERED:
            _signatures.clear()
        known = _signatures[key] = fn.__code__, fn.__annotations__, _inspect(fn, verb, arity)
    return known[2]


def _overrides_signature(fn: Callable[..., Any]) -> bool:
    """Return whether a function has another signature than its code, as decorated functions do."""
    return hasattr(fn, "__wrapped__") or hasattr(fn, "__signature__")


def _inspect(fn: Callable[..., Any], verb: str, arity: int) -> Signature:
    if not callable(fn):
        raise ConfigError(f"{verb} must be a function, called as {verb}{SHAPES[verb]}; got {fn!r}.")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return Signature(is_async=_is_async(fn))
    in_order = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(in_order) < arity and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(f"{verb} is called as {verb}{SHAPES[verb]}; {fn!r} takes fewer arguments.")
    positional: list[str] = []
    keywords: list[tuple[str, str]] = []
    skipped = False
    for parameter in [*in_order[arity:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)]:
        kind = kind_of(parameter)
        if kind is None:
            skipped = True
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"{verb} is called as {verb}{SHAPES[verb]}, so the parameter {parameter.name!r} of "
                    f"{fn!r} gets no value. Only 'run', 'feedback' and 'attempt' are filled by name."
                )
        elif parameter.kind is not parameter.POSITIONAL_ONLY:
            keywords.append((parameter.name, kind))
        elif skipped:
            raise ConfigError(
                f"{verb}: {parameter.name!r} of {fn!r} can't be filled, "
                "because a parameter before it has no value."
            )
        else:
            positional.append(kind)
    return Signature(tuple(positional), tuple(keywords), _is_async(fn))


def kind_of(parameter: inspect.Parameter) -> str | None:
    """Return what fills a parameter: `run` (by name or annotation), `feedback`, `attempt` or None."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        is_context = re.search(r"\bRunContext\b", annotation) is not None
    else:
        is_context = annotation is RunContext or RunContext in get_args(annotation)
    if is_context:
        return "run"
    return parameter.name if parameter.name in FILLED_BY_NAME else None


ASKED = "asked to mend: "
"""The start of an improvement that names a problem to fix rather than a change that was made."""
SHOWN_ISSUES = 5


def render_feedback(attempt: Attempt) -> str:
    """Render what an attempt should do better; empty for a first draft."""
    if attempt.evaluation is None:
        return ""
    parts = [render_critique(attempt.evaluation)]
    if attempt.failed is not None:
        parts.append(render_failure(attempt.failed))
    if attempt.mode == "fresh":
        parts.append("Start anew: an earlier attempt failed in these ways, and changing it led nowhere.")
    return "\n\n".join(part for part in parts if part)


def render_failure(failed: ReflectionVersion) -> str:
    """Render a change that made things worse and the issues it led to."""
    changes = [change for change in failed.improvements_applied if not change.startswith(ASKED)]
    what = "; ".join(changes) or f"the change that made version {failed.iteration}"
    issues = "\n".join(f"- {render_issue(issue)}" for issue in failed.evaluation.issues[:SHOWN_ISSUES])
    text = f"This was tried and made it worse, so do something else: {what}."
    return f"{text}\nIt led to:\n{issues}" if issues else text


def render_retry(prompt: str, attempt: Attempt) -> str:
    """Append the previous answer and its critique to a prompt."""
    feedback = render_feedback(attempt)
    if attempt.mode == "fresh":
        return f"{prompt}\n\n{feedback}"
    return f"{prompt}\n\nYour previous answer:\n{as_text(attempt.previous)}\n\n{feedback}"


def render_critique(evaluation: ReflectionEvaluation) -> str:
    """Render the issues and suggestions of an evaluation as two lists, without empty ones."""
    parts: list[str] = []
    if evaluation.issues:
        parts.append(
            "What is wrong:\n" + "\n".join(f"- {render_issue(issue)}" for issue in evaluation.issues)
        )
    if evaluation.suggestions:
        parts.append("What to do:\n" + "\n".join(f"- {text}" for text in evaluation.suggestions))
    if not parts and not evaluation.satisfactory:
        weak = ", ".join(f"{name} ({score:.2f})" for name, score in _lowest(evaluation))
        parts.append(f"It was not good enough. Lowest scores: {weak}." if weak else "It was not good enough.")
    return "\n\n".join(parts)


def render_issue(issue: Issue) -> str:
    """Render an issue with its place."""
    place = ", ".join(
        part
        for part in (issue.criterion or "", f"at {issue.path}" if issue.path else "", _line(issue))
        if part
    )
    return f"{issue.message} ({place})" if place else issue.message


def _line(issue: Issue) -> str:
    return f"line {issue.line}" if issue.line is not None else ""


def _lowest(evaluation: ReflectionEvaluation) -> list[tuple[str, float]]:
    judged = [(name, score) for name, score in evaluation.criteria_scores.items() if score is not None]
    return sorted(judged, key=lambda pair: pair[1])[:3]
