"""Hint at the keyword argument that was probably meant."""

from __future__ import annotations

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FunctionType
    from typing import Any, TypeVar

    C = TypeVar("C", bound=Callable[..., Any])

_TAKES_ANY_KEYWORD = 0x08  # the flags of `inspect`, whose import would cost more than this module
_IS_ASYNC = 0x80

REMOVED = {
    "choose": "Checks choose among candidates, and the judge scores those that no check distinguishes.",
    "share_lessons": "With PostgreSQL, lessons are records in the database; Lessons(path=...) keeps files.",
    "spool": "Leave it out: what an agent has not stored when its process ends is lost.",
    "fleet": "Leave it out: one process evaluates many cases at once; at_once=... says how many.",
}
"""Options of earlier versions, each with what replaced it."""


def keyword_hints(**options: str) -> Callable[[C], C]:
    """Decorate a public function or class: the `TypeError` of an unknown keyword argument gets a hint.

    `options` maps a parameter to the dotted name of the class of its values. An option of that class which is
    passed to the function itself is a `TypeError` that says so.
    """

    def decorate(public: C) -> C:
        target: Any = public
        if not isinstance(target, type):
            return _hinting(target, target.__qualname__, options)
        name = "__init__" if "__init__" in vars(target) else "__new__"
        setattr(target, name, _hinting(getattr(target, name), target.__qualname__, options))
        return public

    return decorate


def _hinting(call: FunctionType, name: str, options: Mapping[str, str]) -> Any:
    def hinting(*args: Any, **keywords: Any) -> Any:
        try:
            return call(*args, **keywords)
        except TypeError as error:
            if text := _hint(error, call, keywords, options):
                raise TypeError(f"{name}() got an unexpected keyword argument {text}") from None
            raise

    async def hinting_later(*args: Any, **keywords: Any) -> Any:
        return await hinting(*args, **keywords)

    wrapper: Any = hinting_later if call.__code__.co_flags & _IS_ASYNC else hinting
    # What `functools.wraps` does.
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__", "__annotations__"):
        setattr(wrapper, attribute, getattr(call, attribute))
    wrapper.__dict__.update(call.__dict__)
    wrapper.__wrapped__ = call  # for `inspect.signature`
    return wrapper


def _hint(
    error: TypeError, call: FunctionType, keywords: Mapping[str, Any], options: Mapping[str, str]
) -> str | None:
    """Return the unknown keyword with a hint, or None if that isn't what the error is about."""
    started = error.__traceback__ and error.__traceback__.tb_next  # then the error is from within
    if started or call.__code__.co_flags & _TAKES_ANY_KEYWORD:
        return None
    known = _parameters(call)
    unknown = next((name for name in keywords if name not in known), None)
    if unknown is None:
        return None
    from pkgutil import resolve_name  # noqa: PLC0415 (only an error needs it)

    for parameter, kind in options.items():
        taker = resolve_name(kind)
        if unknown in _parameters(taker.__init__.__wrapped__):
            return f"{unknown!r}. Pass it as {parameter}={taker.__name__}({unknown}=...)."
    return f"{unknown!r}. {REMOVED.get(unknown) or meant(unknown, known)}"


def meant(unknown: str, known: Sequence[str]) -> str:
    """Return the keyword that was probably meant, as a sentence, or else all that are known."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    close = get_close_matches(unknown, known, 1) or [name for name in known if unknown in name.split("_")]
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Expected one of {', '.join(map(repr, known))}." if known else "It takes none."


def _parameters(call: FunctionType) -> list[str]:
    code = call.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return [name for name in names if name not in ("self", "cls")]
