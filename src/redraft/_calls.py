"""Adapt plain functions to generators, evaluators and revisers."""

from __future__ import annotations

import asyncio
import inspect
import re
import sys
import traceback
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from threading import Thread
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from redraft._critique import render_feedback, render_retry
from redraft._steps import call_gate, step_context, unexited, user_call
from redraft._texts import copy_of, snapshot, without_addresses
from redraft._validation import named_error
from redraft._verdicts import DEFAULT_THRESHOLD, VERDICTS, draft_of, evaluation_of
from redraft.errors import ConfigError, OutputError
from redraft.protocols import Attempt, RunContext
from redraft.types import NOT_JUDGED, Draft, Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path
    from types import CodeType, CoroutineType

    from redraft.protocols import Evaluator, Generator, Reviser

R = TypeVar("R")


def generator(fn: Callable[..., Any]) -> Generator:
    """Adapt a callable that takes a prompt.

    It gets the critique of an earlier attempt in its parameter `feedback`, `attempt` or `run`. Without such a
    parameter, the critique is appended to the prompt.
    """
    call, sees_run = _caller(fn, "generate", 1)

    async def generate(prompt: str, run: RunContext, /) -> Draft:
        if run.attempt.evaluation is not None and not sees_run:
            prompt = render_retry(prompt, run.attempt)
        return draft_of(await call(run, prompt), "generate")

    return partial(_within_budget, "generate", generate)


def reviser(fn: Callable[..., Any]) -> Reviser:
    """Adapt a callable that takes an output and its evaluation."""
    call, _ = _caller(fn, "revise", 2)

    async def revise(output: Any, evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return draft_of(await call(run, copy_of(output), snapshot(evaluation)), "revise")

    return partial(_within_budget, "revise", revise)


def _within_budget(
    kind: str, fn: Callable[..., CoroutineType[Any, Any, R]], /, *args: Any
) -> CoroutineType[Any, Any, R]:
    """Call the user's function, if the step's budget has room for its costliest call so far."""
    budget = step_context.get().budget
    if budget is None:
        return fn(*args)
    run: RunContext = args[-1]
    is_revision = kind != "evaluate" and run.attempt.number > 1
    return budget.reported(kind, partial(fn, *args), is_revision=is_revision)


def regenerating(generate: Generator) -> Reviser:
    """Make a reviser that calls the generator again, with the critique."""

    async def revise(_output: Any, _evaluation: ReflectionEvaluation, run: RunContext, /) -> Draft:
        return await generate(run.prompt, run)

    return revise


def evaluator(
    fn: Callable[..., Any],
    threshold: float = DEFAULT_THRESHOLD,
    score_max: float | None = None,
    *,
    is_check: bool = False,
) -> Evaluator:
    """Adapt a callable that takes an output and returns a verdict. A check is free: no budget applies to it.

    `score_max` is its highest score, if that is not 1. A verdict that can't be read (prose, NaN, 7) becomes
    an evaluation with a score of None and an issue that quotes it. None raises `TypeError`, because it almost
    always means a forgotten `return`. A failed `assert` is a failed check, with its message as the reason.
    """
    call, _ = _caller(fn, "evaluate", 1)

    async def judge(output: Any, run: RunContext, /) -> ReflectionEvaluation:
        try:
            verdict = await call(run, copy_of(output))  # other checks judge the same output
        except AssertionError as error:
            return ReflectionEvaluation(0.0, issues=(Issue(_reason_of(error)),))
        if verdict is None:
            name = "the function" if is_check else "evaluate"
            raise TypeError(f"{name} returned None; expected {VERDICTS}")
        try:
            return evaluation_of(verdict, threshold, score_max)
        except OutputError as error:
            return ReflectionEvaluation(None, issues=(Issue(f"{NOT_JUDGED}{error}"),), confidence=0.0)

    return judge if is_check else partial(_within_budget, "evaluate", judge)


def _reason_of(error: AssertionError) -> str:
    """The message of a failed assertion, or else its source if that is a single line."""
    line = traceback.extract_tb(error.__traceback__)[-1].line or ""
    if not line.startswith("assert ") or line.endswith(("(", "[", "{", ",", "\\")):
        line = "assertion failed"
    return without_addresses(str(error)) or line


def sees_run(fn: Callable[..., Any]) -> bool:
    """Whether an evaluation function also takes the run, so that its verdict may depend on it."""
    return signature_of(fn, "evaluate", 1).sees_run


FILLED_BY_NAME = frozenset({"run", "feedback", "attempt"})


@dataclass(frozen=True, slots=True)
class Signature:
    """Which of `run`, `feedback` and `attempt` a callable takes, by position and by keyword."""

    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()
    is_async: bool = False
    sees_run: bool = False
    """Whether the callable takes anything of the run."""


def _caller(fn: Callable[..., Any], verb: str, arity: int) -> tuple[Callable[..., Awaitable[Any]], bool]:
    """Make an async function of the run and `arity` arguments; also say whether `fn` sees the run."""
    signature = signature_of(fn, verb, arity)
    call = fn if signature.is_async else partial(_in_thread, fn)
    name, sees_run = getattr(fn, "__name__", verb), signature.sees_run

    def filled(run: RunContext, *args: Any) -> Awaitable[Any]:
        if not sees_run:
            return user_call(call(*args), name)
        extra = (value_of(kind, run) for kind in signature.positional)
        keywords = {name: value_of(kind, run) for name, kind in signature.keywords}
        return user_call(call(*args, *extra, **keywords), name)

    return filled, sees_run


# Closures made for each run share their code and so their parameters: one inspection is enough, unless the
# annotations differ. The key is the code's id, since hashing code is slow; the value holds the code, so that
# the id is not reused. The size is bounded because code made at run time would pile up.
_signatures: dict[tuple[int, int], tuple[CodeType, dict[str, Any], Signature]] = {}
REMEMBERED = 1024

SHAPES = {"generate": "(prompt)", "evaluate": "(output)", "revise": "(output, evaluation)"}


def signature_of(fn: Callable[..., Any], verb: str, arity: int) -> Signature:
    """How to call `fn` with `arity` positional arguments; raises `ConfigError` if that is impossible."""
    # A decorated function may have another signature than its code.
    if not isinstance(fn, FunctionType) or "__wrapped__" in fn.__dict__ or "__signature__" in fn.__dict__:
        return _inspect(fn, verb, arity)
    key = id(fn.__code__), arity
    cached = _signatures.get(key)
    if cached is None or (cached[1] is not fn.__annotations__ and cached[1] != fn.__annotations__):
        if len(_signatures) >= REMEMBERED:
            _signatures.clear()
        cached = _signatures[key] = fn.__code__, fn.__annotations__, _inspect(fn, verb, arity)
    return cached[2]


def _inspect(fn: Callable[..., Any], verb: str, arity: int) -> Signature:
    if not callable(fn):
        raise ConfigError(f"{verb} must be a function, called as {verb}{SHAPES[verb]}; got {fn!r}.")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature
        return Signature(is_async=is_async(fn))
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
    return Signature(tuple(positional), tuple(keywords), is_async(fn), bool(positional or keywords))


def parameters_by_name(fn: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Parameters of a function; empty if it has no signature, like some functions written in C."""
    try:
        return inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return {}


def kind_of(parameter: inspect.Parameter) -> str | None:
    """The value that fills a parameter: `run` (by name or annotation), `feedback`, `attempt` or None."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        is_context = re.search(r"\bRunContext\b", annotation) is not None
    else:
        is_context = annotation is RunContext or RunContext in get_args(annotation)
    if is_context:
        return "run"
    return parameter.name if parameter.name in FILLED_BY_NAME else None


def value_of(kind: str, run: RunContext) -> Any:
    """The argument for a parameter of this kind: `run`, `feedback` or `attempt`."""
    if kind == "run":
        return replace(
            run,
            versions=snapshot(run.versions),
            attempt=_copy_of_attempt(run.attempt),
            rivals=tuple(map(snapshot, run.rivals)),
        )
    return _copy_of_attempt(run.attempt) if kind == "attempt" else render_feedback(run.attempt)


def _copy_of_attempt(attempt: Attempt) -> Attempt:
    if attempt.evaluation is None:
        return attempt
    return replace(
        attempt,
        previous=copy_of(attempt.previous),
        evaluation=snapshot(attempt.evaluation),
        failed=snapshot(attempt.failed),
    )


def awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make an async version of `fn` with the errors of `unexited`; a sync function runs in a thread."""
    call = fn if is_async(fn) else partial(_in_thread, fn)

    async def call_function(*args: Any, **kwargs: Any) -> Any:
        return await unexited(call(*args, **kwargs), repr(fn))

    return call_function


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether a call of `fn` returns a coroutine, judging by its definition."""
    # Look at the function that will run: that of a partial, or the `__call__` of an object.
    target: Any = fn.func if isinstance(fn, partial) else fn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (anything callable)
    if inspect.isclass(target):  # calling a class makes an instance, even if its `__call__` is async
        return False
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 (the method itself is looked at)
    )


def called(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a user's function that is not async; `RuntimeError` replaces the errors that end an event loop."""
    try:
        return fn(*args, **kwargs)
    except (StopIteration, SystemExit, GeneratorExit) as error:
        # A future can't hold the first, so the caller would wait forever. The second, which parsers of
        # arguments raise, would end the event loop and everything else in it. The third would close the
        # coroutines that wait for the call, which then can't await anything to clean up.
        raise RuntimeError(f"{fn!r} raised {named_error(error)}") from error


async def _in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if step_context.get().budget is not None or call_gate.get() is not None:
        # The executor has few threads, which are joined at exit: a function that waits for one would hold up
        # what its reservation blocks, and a function that hangs would hold up the end of a fleet's worker.
        result = await in_daemon_thread(fn, *args, **kwargs)
    else:
        result = await asyncio.to_thread(called, fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result  # of a lambda around an async function


async def in_daemon_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function in a daemon thread, which can be abandoned if it hangs.

    Threads of the event loop's executor cannot: they are joined before the loop closes.
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
            result = context.run(called, fn, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 (raised again where the call is awaited)
            failure = error
        # If the loop has been closed, the caller has gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    Thread(target=work, daemon=True, name="redraft-call").start()
    return await done


def importable_name(thing: object, module: str | None = None) -> str:
    """Name by which another process can import `thing`, `package.module:name`; else "".

    A function has its module and name; any other object is looked up in `module`. Objects of the main script
    have no such name: importing the script would run it again.
    """
    if module is None:
        module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
        if not isinstance(module, str) or module not in sys.modules or "<" in name:
            return ""
        value: object = sys.modules[module]
        for part in name.split("."):
            value = getattr(value, part, None)
        if value is not thing:
            return ""
    else:
        namespace = vars(sys.modules[module]) if module in sys.modules else {}
        name = next((name for name, value in namespace.items() if value is thing), "")
    return f"{module}:{name}" if name and module != "__main__" else ""


def functions_in(path: Path) -> dict[str, Callable[..., Any]]:
    """Load the public functions of a Python file, by name; raises `ConfigError` if it can't be loaded."""
    unique = sha256(str(path.absolute()).encode()).hexdigest()[:8]  # each folder may have a functions.py
    spec = spec_from_file_location(f"redraft_{path.stem}_{unique}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{str(path)!r} is not a Python file; expected PATH.py.")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look up their module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's file may raise anything
        raise ConfigError(f"{str(path)!r} can't be loaded: {named_error(error)}") from error
    return {
        name: function
        for name, function in vars(module).items()
        if not name.startswith("_") and inspect.isfunction(function) and function.__module__ == spec.name
    }
