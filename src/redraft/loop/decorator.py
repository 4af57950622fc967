"""`@reflected`: run the loop around a function."""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict, deque
from collections.abc import Awaitable
from dataclasses import fields, is_dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import update_wrapper
from hashlib import sha256
from pathlib import PurePath
from types import MethodType, NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
    overload,
)
from uuid import UUID

from redraft._calls import awaited, importable_name, is_async, kind_of, value_of
from redraft._codec import is_record, why_unrestorable
from redraft._hints import keyword_hints, meant
from redraft._prompts import advice_text
from redraft._sync import run_sync
from redraft._texts import as_text, without_addresses
from redraft._validation import repr_of
from redraft._verdicts import OUTPUTS, draft_of
from redraft.errors import ConfigError
from redraft.loop.journal import check_keep, journalled_step
from redraft.loop.pattern import pattern_with
from redraft.loop.record import Origin
from redraft.loop.run import run_and_store
from redraft.loop.verbs import function_verbs
from redraft.redact.log import logger
from redraft.types import ConvergenceReason, Draft, PlainTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Self

    from redraft.loop.pattern import ReflectionPattern
    from redraft.loop.run import Verbs
    from redraft.protocols import ModelChoice, RunContext
    from redraft.stores.base import Store
    from redraft.types import Criterion, ReflectionResult

P = ParamSpec("P")

R = TypeVar("R")


@keyword_hints(pattern="redraft.loop.pattern.ReflectionPattern")
def reflected(
    criteria: Sequence[Criterion] | None = None,
    *,
    evaluate: Callable[..., Any] | None = None,
    max_iterations: int | None = None,
    quality_threshold: float | None = None,
    budget_usd: float | None = None,
    budget_tokens: int | None = None,
    budget_seconds: float | None = None,
    judge: ModelChoice | None = None,
    pattern: ReflectionPattern | None = None,
    keep: bool | Store = True,
) -> Decorator:
    """Decorate a function to judge what it returns, and to call it again with the critique if it falls short.

    A call of the decorated function returns the best output; an `async def` is awaited for it, as before.

    The function gets the critique in a parameter `feedback: str` (empty at first), as a structure in
    `attempt: Attempt`, or the whole context in `run: RunContext`. `criteria` or `evaluate` judge; `judge` is
    the model for criteria that need one. `pattern` holds all other options; an argument given here overrides
    the pattern's. Runs are stored in the project's store, or in the store passed as `keep`; `keep=False`
    keeps none.

    Raises `ConfigError` when the function is decorated, not when it is called.
    """
    if callable(criteria):
        raise ConfigError(
            "Write @reflected(...) with parentheses, and criteria or evaluate; got a function. Put a single "
            "criterion in brackets: @reflected([...])."
        )
    chosen = pattern_with(
        pattern,
        criteria=criteria,
        max_iterations=max_iterations,
        quality_threshold=quality_threshold,
        budget_usd=budget_usd,
        budget_tokens=budget_tokens,
        budget_seconds=budget_seconds,
        judge=judge,
    )

    def decorate(fn: Callable[..., Any], /) -> Any:
        kind: Any = ReflectedCoroutineFunction if is_async(fn) else ReflectedFunction
        return kind(fn, chosen, evaluate, keep)

    return decorate


class Decorator(Protocol):
    """The decorator that `reflected` returns; an `async def` stays one for its callers."""

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] (an awaitable, the first match, is also an R)
        self, fn: Callable[P, Awaitable[R]], /
    ) -> ReflectedCoroutineFunction[P, R]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> ReflectedFunction[P, R]: ...


class ReflectedCallable(Generic[P, R]):
    """A decorated function: `run` calls it for the whole result, and subclasses define a plain call."""

    def __init__(
        self,
        fn: Callable[P, Awaitable[R] | R],
        pattern: ReflectionPattern,
        evaluate: Callable[..., Any] | None = None,
        keep: bool | Store = True,
    ) -> None:
        _check_function(fn)
        update_wrapper(cast("Any", self), fn, updated=())  # callable in each subclass
        for name, value in getattr(fn, "__dict__", {}).items():  # as other decorators set them
            if not hasattr(type(self), name):  # an attribute called `run` must not hide ours
                setattr(self, name, value)
        self._fn = fn
        self._name = getattr(fn, "__qualname__", repr(fn))
        self._signature = inspect.signature(fn)
        kinds = {name: kind_of(parameter) for name, parameter in self._signature.parameters.items()}
        self._filled = {name: kind for name, kind in kinds.items() if kind is not None}
        if not self._filled and pattern.max_iterations > 0:
            raise ConfigError(
                f"{self._name} takes none of 'feedback', 'attempt' and 'run', so a critique can't reach it; "
                'add a parameter `feedback: str = ""`.'
            )
        check_keep(keep)
        self.pattern = pattern
        self._evaluate = evaluate
        self._keep: bool | Store = keep
        self._check_return()
        self._verbs(str)  # raises the errors of the pattern now; any generator will do

    async def _best_output(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """The best output; a warning is logged if it could not be judged."""
        result = await self._run(None, args, kwargs)
        if result.convergence_reason is ConvergenceReason.UNJUDGED and result.stop is not None:
            detail = result.stop.detail
            logger.warning("%s was not fully judged (run %s): %s", self._name, result.run_id, detail)
        return result.best_output

    def _bound_to(self, instance: object) -> Self:
        return type(self)(MethodType(self._fn, instance), self.pattern, self._evaluate, self._keep)

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> ReflectionResult[R]:
        """Call the function in the loop: the best version, why the run stopped and what it cost."""
        return await self._run(None, args, kwargs)

    async def run_as(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> ReflectionResult[R]:
        """Like `run`, with a run id: repeating the call resumes a run that was killed.

        If the run has finished, its result is returned again. Raises `ChangedRunError` if another call has
        used the id. The objects of a method are distinguished by their `repr`, if their class defines one.
        """
        return await self._run(run_id, args, kwargs)

    async def _run(
        self, run_id: str | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> ReflectionResult[R]:
        arguments = self._bind(args, kwargs, run_id)
        lost = self._check_return()
        if lost and self._keep is not False:
            logger.warning("A run of %s can't be resumed if it is interrupted: %s.", self._name, lost)
        call = awaited(self._fn)

        async def generate(_prompt: str, run: RunContext) -> Draft:
            # Feedback that the caller passes is for the first draft; later, the critique replaces it.
            filled = {
                name: self._value(kind, run)
                for name, kind in self._filled.items()
                if name not in arguments or run.attempt.number > 1
            }
            bound = inspect.BoundArguments(self._signature, OrderedDict(arguments | filled))
            bound.apply_defaults()
            return draft_of(await call(*bound.args, **bound.kwargs), self._name)

        task = PlainTask(self._describe(arguments), task_type=self.pattern.task_type)
        step = journalled_step(self._keep, run_id, task)
        verbs = self._verbs(generate)
        origin = Origin(
            "reflected",
            self._name,
            arguments=self._only_text(arguments),
            importable=importable_name(self),
            owner="" if run_id is None else self._owner(),
        )
        return await run_and_store(self.pattern, task, verbs, step, None, origin)

    def _check_return(self) -> str:
        """Why the store can't restore outputs of the annotated type; "" if it can.

        Raises `ConfigError` for a type that no output has. An annotation that can't be resolved (yet) is
        ignored, and so are abstract classes, whose subclasses may be anything.
        """
        try:
            returned = get_type_hints(self._fn).get("return", Any)
        except Exception:  # noqa: BLE001 (evaluating an annotation may raise whatever it likes)
            return ""
        members = _members(returned)
        unfit = [member for member in members if _is_no_output(get_origin(member) or member)]
        if unfit and len(unfit) == len([member for member in members if member is not NoneType]):
            raise ConfigError(
                f"{self._name} returns {_text_of(unfit[0])}, which can't be an output; return a string, "
                "a JSON value, a pydantic model or a data class that holds it."
            )
        return next(filter(None, (why_unrestorable(kind) for kind in _classes_in(members, set()))), "")

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], run_id: str | None) -> dict[str, Any]:
        """The arguments of a call by name; the parameters that the run fills in may be missing."""
        try:
            arguments = self._signature.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(self._mismatch(error, kwargs)) from None
        for name, parameter in self._signature.parameters.items():
            optional = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            required = parameter.default is parameter.empty and not optional and name not in self._filled
            if required and name not in arguments:
                hint = "" if run_id is None else f". {run_id!r} was taken as the run id, which comes first."
                raise TypeError(f"{self._name}() is missing the argument {name!r}{hint}")
        return arguments

    def _mismatch(self, error: TypeError, kwargs: Mapping[str, Any]) -> str:
        """The message for arguments that the function doesn't take."""
        parameters = self._signature.parameters.values()
        accepted = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        unknown = next((name for name in kwargs if name not in accepted), None)
        if unknown is None or str(error) != f"got an unexpected keyword argument {unknown!r}":
            return f"{self._name}(): {error}"
        hint = meant(unknown, accepted)
        if unknown == "run_id":
            hint = "Pass it as the first argument of run_as or run_as_sync."
        return f"{self._name}() got an unexpected keyword argument {unknown!r}. {hint}"

    def _value(self, kind: str, run: RunContext) -> Any:
        value = value_of(kind, run)
        if kind == "feedback" and run.advice:  # there is no prompt that could hold the advice
            value = f"{advice_text(run.advice)}\n\n{value}".strip()
        return value

    def run_sync(self, *args: P.args, **kwargs: P.kwargs) -> ReflectionResult[R]:
        """Like `run`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run(*args, **kwargs))

    def run_as_sync(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> ReflectionResult[R]:
        """Like `run_as`, for code that is not async; works inside a running event loop, too."""
        return run_sync(self.run_as(run_id, *args, **kwargs))

    def _owner(self) -> str:
        """A digest of a method's object; "" if its class has no `repr` that distinguishes objects."""
        owner = self._fn.__self__ if isinstance(self._fn, MethodType) else None
        if owner is None or type(owner).__repr__ is object.__repr__:
            return ""
        return sha256(without_addresses(repr_of(owner)).encode("utf-8", "replace")).hexdigest()[:16]

    def _only_text(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """The only argument of a call, if it is a text; empty for calls with other arguments."""
        names = [name for name in arguments if name not in self._filled]
        if names != list(arguments) or len(names) != 1 or not isinstance(arguments[names[0]], str):
            return ()
        kind = self._signature.parameters[names[0]].kind
        is_positional = kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return (arguments[names[0]],) if is_positional else ()

    def _verbs(self, generate: Callable[..., Any]) -> Verbs:
        verbs = function_verbs(
            self.pattern, self.pattern.task_type, generate, self._evaluate, None, has_draft=False
        )
        if "run" in self._filled.values():
            return verbs
        return replace(verbs, judges=replace(verbs.judges, rubric=""))  # the function never sees it

    def _describe(self, arguments: Mapping[str, Any]) -> str:
        """Describe the task for the judge: the function's docstring and the arguments of this call."""
        what = (inspect.getdoc(self._fn) if inspect.isroutine(self._fn) else "") or self._name
        values = [
            f"{name}: {as_text(value)}" for name, value in arguments.items() if name not in self._filled
        ]
        return "\n".join([what, *values])


class ReflectedFunction(ReflectedCallable[P, R]):
    """A decorated function: call it for the best output, or `run` it for the whole result."""

    def __get__(self, instance: object, owner: type | None = None) -> ReflectedFunction[..., R]:
        """Bind a method to its object, as functions do."""
        return cast("ReflectedFunction[..., R]", self if instance is None else self._bound_to(instance))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The best output; works inside a running event loop, too."""
        return run_sync(self._best_output(args, kwargs))


class ReflectedCoroutineFunction(ReflectedCallable[P, R]):
    """A decorated `async def`: await a call for the best output, or `run` it for the whole result."""

    def __get__(self, instance: object, owner: type | None = None) -> ReflectedCoroutineFunction[..., R]:
        """Bind a method to its object, as functions do."""
        return (
            cast("ReflectedCoroutineFunction[..., R]", self) if instance is None else self._bound_to(instance)
        )

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The best output."""
        return await self._best_output(args, kwargs)


_NO_OUTPUT = (
    *(set, frozenset, bytes, bytearray, memoryview, complex, range, slice, type, deque, re.Pattern),
    *(Decimal, Fraction, date, time, timedelta, UUID, PurePath, BaseException, Enum),
)
"""Classes of values that can't be outputs themselves; the fields of an output may hold most of them."""


def _is_no_output(kind: Any) -> bool:
    if not isinstance(kind, type):
        return False
    return issubclass(kind, _NO_OUTPUT) and not issubclass(kind, OUTPUTS) and not is_record(kind)


def _text_of(annotation: Any) -> str:
    return repr(annotation.__qualname__ if isinstance(annotation, type) else str(annotation))


def _members(annotation: Any) -> list[Any]:
    """The members of a union, or the type alone; an awaitable counts as the type of its result."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return [member for part in parts for member in _members(part)]
    if origin is Annotated:
        return _members(parts[0])
    if isinstance(origin, type) and issubclass(origin, Awaitable) and parts:
        return _members(parts[-1])
    return [annotation]


def _classes_in(annotations: Iterable[Any], seen: set[Any]) -> Iterator[type[Any]]:
    """Yield the concrete classes that annotations name, also in the fields of classes, each once."""
    for annotation in [member for each in annotations for member in _members(each)]:
        origin = get_origin(annotation) or annotation
        if isinstance(origin, type) and origin not in seen and origin not in (object, Any, Draft):
            seen.add(origin)
            yield from _classes_in(_field_types(origin), seen)
            if not is_typeddict(origin) and not _may_be_another(origin):
                yield origin
        yield from _classes_in(get_args(annotation) if origin is not Literal else (), seen)


def _field_types(kind: type[Any]) -> list[Any]:
    """The types of the fields of a model, a data class or a TypedDict; none if one can't be resolved."""
    if is_dataclass(kind):
        names = {field.name for field in fields(kind)}
    elif is_typeddict(kind) or is_record(kind):
        names: set[str] = set(getattr(kind, "model_fields", kind.__annotations__))
    else:
        return []
    try:
        return [hint for name, hint in get_type_hints(kind).items() if name in names]
    except Exception:  # noqa: BLE001 (evaluating an annotation may raise whatever it likes)
        return []


def _may_be_another(kind: type[Any]) -> bool:
    """Whether values of a class may be of a subclass that the store restores."""
    is_abstract = inspect.isabstract(kind) or getattr(kind, "_is_protocol", False)
    return is_abstract or any(not why_unrestorable(other) for other in kind.__subclasses__())


def _check_function(fn: Any) -> None:
    if isinstance(fn, classmethod | staticmethod) or not callable(fn):
        raise ConfigError(
            f"@reflected decorates a function, below @classmethod and @staticmethod; got {fn!r}."
        )
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(
            f"{fn.__qualname__} is a generator; @reflected needs a function that returns its output."
        )
