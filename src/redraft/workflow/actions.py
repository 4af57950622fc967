"""Actions: those that are built in, and those of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.core.errors import ConfigError
from redraft.workflow.correct import correct_action
from redraft.workflow.judge import evaluate_action
from redraft.workflow.llm import llm_action
from redraft.workflow.loop import loop_action
from redraft.workflow.names import CORRECT, EVALUATE, LLM_CALL, LOOP, plain_name

if TYPE_CHECKING:
    from redraft.workflow.bench import BuiltIn

F = TypeVar("F", bound=Callable[..., Any])

ENTRY_POINTS = "redraft.actions"

BUILT_IN: dict[str, BuiltIn] = {
    LLM_CALL: llm_action,
    LOOP: loop_action,
    EVALUATE: evaluate_action,
    CORRECT: correct_action,
}

_registered: dict[str, Callable[..., Any]] = {}


def action(name: str) -> Callable[[F], F]:
    """Make a function an action of all workflows of this process: called as `fn(state=..., **params)`.

    It may be async. What it returns is plain JSON data. Raises `ConfigError` for a name that is taken.
    """
    if plain_name(name) in BUILT_IN:
        raise ConfigError(f"The action {name!r} is built in; give yours another name.")

    def register(fn: F) -> F:
        _registered[name] = fn
        return fn

    return register


def known_actions(given: Mapping[str, Callable[..., Any]] | None = None) -> Mapping[str, Callable[..., Any]]:
    """Return the actions of one's own: those given, else registered, else of packages that are installed."""
    own = {plain_name(name): fn for name, fn in {**_registered, **(given or {})}.items()}
    return _Actions(own, _points())


class _Actions(Mapping[str, Callable[..., Any]]):
    """Look actions up by name; one of a package is imported only where a file names it."""

    def __init__(self, own: Mapping[str, Callable[..., Any]], points: Mapping[str, EntryPoint]) -> None:
        self._own = own
        self._points = points

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._own[name] if name in self._own else _loaded(self._points[name])

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._points})

    def __len__(self) -> int:
        return len({**self._own, **self._points})


@lru_cache(maxsize=1)  # looking for them reads the metadata of every package that is installed
def _points() -> dict[str, EntryPoint]:
    """Return the entry points of packages; none of them takes the name of an action that is built in."""
    points = {plain_name(point.name): point for point in entry_points(group=ENTRY_POINTS)}
    return {name: point for name, point in points.items() if name not in BUILT_IN}


def _loaded(point: EntryPoint) -> Callable[..., Any]:
    package = f" of the package {point.dist.name!r}" if point.dist is not None else ""
    what = f"the action {point.name!r}{package} can't be used: its entry point {point.value!r}"
    try:
        fn = point.load()
    except Exception as error:  # importing a package runs its code, which raises what it likes
        raise ConfigError(f"{what} failed with {type(error).__name__}: {error}") from error
    if not callable(fn):
        raise ConfigError(f"{what} must be a function, got {fn!r:.60}")
    return fn
