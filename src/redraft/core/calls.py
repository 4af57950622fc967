"""Call what users wrote: sync or async, filling the parameters that it names."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from types import FunctionType
from typing import TYPE_CHECKING, Any, get_args

from redraft.core.context import RunContext
from redraft.core.errors import ConfigError
from redraft.core.feedback import render_feedback
from redraft.core.steps import allowance

if TYPE_CHECKING:
    from types import CodeType

FILLED_BY_NAME = frozenset({"run", "feedback", "attempt"})


@dataclass(frozen=True, slots=True)
class Signature:
    """Say which of `run`, `feedback`, `attempt` a callable takes, by position and by keyword."""

    positional: tuple[str, ...] = ()
    keywords: tuple[tuple[str, str], ...] = ()
    is_async: bool = False


def caller(
    fn: Callable[..., Any], verb: str, given: int
) -> tuple[Callable[..., Awaitable[Any]], Signature | None]:
    """Return `fn` as an async callable, and what it asks for besides what it is given, if it does."""
    signature = signature_of(fn, verb, given)
    call = fn if signature.is_async else partial(_in_thread, fn)
    return call, signature if signature.positional or signature.keywords else None


# Not closures: of ten thousand runs alive at once, the garbage collector would look into each cell.
@dataclass(slots=True)
class Called:
    """Hold what `caller` returned: the base of the verbs that a user's functions make."""

    call: Callable[..., Awaitable[Any]]
    told: Signature | None

    def filled(self, told: Signature, run: RunContext, *given: Any) -> Awaitable[Any]:
        """Call with what is given, and with what is asked for besides."""
        extra = (value_of(kind, run) for kind in told.positional)
        return self.call(*given, *extra, **{name: value_of(kind, run) for name, kind in told.keywords})


def awaited(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return `fn` as an async callable; one that is not async runs in a thread."""
    return fn if _is_async(fn) else partial(_in_thread, fn)


def _is_async(fn: Callable[..., Any]) -> bool:
    # A class's __call__ and a partial's function are what is awaited, not the object around them.
    target: Any = fn.func if isinstance(fn, partial) else fn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (anything callable)
    if inspect.isclass(
        target
    ):  # calling a class makes an instance; that its __call__ is async is another matter
        return False
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(
        getattr(target, "__call__", None)  # noqa: B004 (the method itself is looked at)
    )


def _called(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:  # no future can hold one: whoever awaited it would wait for ever
        raise RuntimeError(f"{fn!r} raised StopIteration") from error


async def _in_thread(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    within = allowance.get()
    if within is not None and within.bounds_time:
        result = await _in_daemon_thread(partial(_called, fn, *args, **kwargs))
    else:
        result = await asyncio.to_thread(_called, fn, *args, **kwargs)
    return await result if inspect.isawaitable(result) else result  # a lambda around an async function


async def _in_daemon_thread(call: Callable[[], Any]) -> Any:
    """Call in a thread that nobody has to wait for: one that hangs can be left, but not stopped.

    Those of the event loop's own executor are joined before the loop closes.
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
            result = context.run(call)
        except BaseException as error:  # noqa: BLE001 (it is raised where the call is awaited)
            failure = error
        # A loop that was closed meanwhile has nobody left who waits.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    Thread(target=work, daemon=True, name="redraft-call").start()
    return await done


def value_of(kind: str, run: RunContext) -> Any:
    """Return what fills a parameter named `run`, `feedback` or `attempt`."""
    if kind == "run":
        return run
    return run.attempt if kind == "attempt" else render_feedback(run.attempt)


# Closures made for each run share their code, and with it their parameters: inspecting once is enough, unless
# the annotations differ. By the code's id, since its hash is one of all that it holds; and with the code, so
# that no other gets that id. Bounded, since code that is made at run time would pile up.
_signatures: dict[tuple[int, int], tuple[CodeType, dict[str, Any], Signature]] = {}
REMEMBERED = 1024

SHAPES = {"generate": "(prompt)", "evaluate": "(output)", "revise": "(output, evaluation)"}


def signature_of(fn: Callable[..., Any], verb: str, given: int) -> Signature:
    """Say how to call `fn` with `given` positional arguments; raises `ConfigError` where that can't be."""
    if not isinstance(fn, FunctionType) or (fn.__dict__ and _says_otherwise(fn)):
        return _inspect(fn, verb, given)
    key = id(fn.__code__), given
    known = _signatures.get(key)
    if known is None or (known[1] is not fn.__annotations__ and known[1] != fn.__annotations__):
        if len(_signatures) >= REMEMBERED:
            _signatures.clear()
        known = _signatures[key] = fn.__code__, fn.__annotations__, _inspect(fn, verb, given)
    return known[2]


def _says_otherwise(fn: Callable[..., Any]) -> bool:
    """Say whether a function claims another signature than its code has, as a decorator makes it do."""
    return hasattr(fn, "__wrapped__") or hasattr(fn, "__signature__")


def _inspect(fn: Callable[..., Any], verb: str, given: int) -> Signature:
    if not callable(fn):
        raise ConfigError(f"{verb} must be a function, called as {verb}{SHAPES[verb]}; got {fn!r}.")
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without a signature takes what it is given
        return Signature(is_async=_is_async(fn))
    in_order = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(in_order) < given and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ConfigError(f"{verb} is called as {verb}{SHAPES[verb]}; {fn!r} takes fewer arguments.")
    positional: list[str] = []
    keywords: list[tuple[str, str]] = []
    skipped = False
    for parameter in [*in_order[given:], *(p for p in parameters if p.kind is p.KEYWORD_ONLY)]:
        kind = kind_of(parameter)
        if kind is None:
            skipped = True
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"{verb} is called as {verb}{SHAPES[verb]}; nothing fills the parameter "
                    f"{parameter.name!r} of {fn!r}. By name, 'run', 'feedback' and 'attempt' are filled."
                )
        elif parameter.kind is not parameter.POSITIONAL_ONLY:
            keywords.append((parameter.name, kind))
        elif skipped:
            raise ConfigError(
                f"{verb}: {parameter.name!r} of {fn!r} can't be filled without what is before it."
            )
        else:
            positional.append(kind)
    return Signature(tuple(positional), tuple(keywords), _is_async(fn))


def kind_of(parameter: inspect.Parameter) -> str | None:
    """Say what fills a parameter: `run` by name or annotation, `feedback` and `attempt` by their names."""
    annotation = parameter.annotation
    if isinstance(annotation, str):
        is_context = re.search(r"\bRunContext\b", annotation) is not None
    else:
        is_context = annotation is RunContext or RunContext in get_args(annotation)
    if is_context:
        return "run"
    return parameter.name if parameter.name in FILLED_BY_NAME else None
