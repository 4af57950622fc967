"""Actions: those that are built in, and those of one's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
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


def known_actions(given: dict[str, Callable[..., Any]] | None = None) -> dict[str, Callable[..., Any]]:
    """Return the actions of one's own: from packages' entry points, registered, and given, the last first."""
    named = _of_packages() | _registered | (given or {})
    return {plain_name(name): fn for name, fn in named.items()}


@lru_cache(maxsize=1)  # looking for them reads the metadata of every package that is installed
def _of_packages() -> dict[str, Callable[..., Any]]:
    return {point.name: point.load() for point in entry_points(group=ENTRY_POINTS)}
