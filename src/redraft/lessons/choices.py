"""What may be chosen of lessons, checked where they are made."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.core.check import check_count
from redraft.core.errors import ConfigError
from redraft.models.names import model_of
from redraft.stores.base import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.core.settings import Settings

SWITCHES = ("semantic", "auto", "successes", "trusted")


def check_choices(given: Mapping[str, Any], settings: Settings) -> None:
    """Raise `ConfigError` for a choice that can't work, by its name, with what was expected.

    `given` are the parameters of `Lessons`, by name; an embedder is looked at by who makes it.
    """
    if not isinstance(given["agent"], str) or not given["agent"].strip():
        raise ConfigError(
            f"Lessons need the name of the agent that learns: agent=..., got {given['agent']!r}."
        )
    if given["path"] is not None and not isinstance(given["path"], str | Path):
        raise ConfigError(f"path must be a folder, or None for the project's, got {given['path']!r}.")
    check_count("max_tokens", given["max_tokens"], 1)
    for name in SWITCHES:
        if not isinstance(given[name], bool):
            raise ConfigError(f"{name} must be True or False, got {given[name]!r}.")
    if not isinstance(given["store"], bool | Store):
        expected = "True for the project's, False for none, or a Store"
        raise ConfigError(f"store must be {expected}, got {given['store']!r}.")
    _check_clock(given["clock"])
    if given["model"] is not None:
        model_of(given["model"], settings)


def _check_clock(clock: Any) -> None:
    said = clock() if callable(clock) else clock
    if not callable(clock) or not isinstance(said, datetime) or said.tzinfo is None:
        raise ConfigError(f"clock must be a function that gives the time with its zone, got {said!r}.")
