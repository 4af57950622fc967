"""shared_parts: the verbs that the same three functions make, once for all runs."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.core import adapt
from redraft.loop.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

    Verb: TypeAlias = Callable[..., Any] | None

REMEMBERED = 16
"""Sets of functions. Few programs have more, and with each its module is held on to."""

_known: dict[tuple[tuple[Verb, Verb, Verb], float], tuple[tuple[CodeType, CodeType, CodeType], Parts]] = {}


def shared_parts(hands: tuple[Verb, Verb, Verb], threshold: float) -> Parts | None:
    """Return what `generate`, `evaluate` and `revise` make, not to be changed; None where it can't be shared.

    Each of ten thousand runs at once would hold four objects more, and to make them takes a run of three
    versions a twentieth of its time. Functions that hold something (a closure, defaults) are not remembered,
    for that would be held with them. One whose code was exchanged, as notebooks reload it, is looked at anew.
    """
    generate, evaluate, revise = hands
    if not (
        isinstance(generate, FunctionType)
        and isinstance(evaluate, FunctionType)
        and isinstance(revise, FunctionType)
    ):
        return None
    key = hands, threshold
    codes = generate.__code__, evaluate.__code__, revise.__code__
    known = _known.get(key)
    if known is not None and known[0] == codes:
        return known[1]
    if _holds_something(generate) or _holds_something(evaluate) or _holds_something(revise):
        return None
    parts = Parts(adapt.generator(generate), adapt.evaluator(evaluate, threshold), adapt.reviser(revise))
    if len(_known) >= REMEMBERED:
        _known.clear()
    _known[key] = codes, parts
    return parts


def _holds_something(fn: FunctionType) -> bool:
    return bool(fn.__closure__ or fn.__defaults__ or fn.__kwdefaults__ or fn.__dict__)
