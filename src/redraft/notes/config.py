"""ReflectionConfig and Trial: how a task is reflected on, and how its notes have to prove themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redraft.core.check import check_choice, check_count, check_share
from redraft.core.errors import ConfigError
from redraft.core.protocols import ChatModel
from redraft.notes.strategy import MAX_TOKENS, ReflectionStrategy


@dataclass(frozen=True, slots=True)
class Trial:
    """Let a share of the runs go without the note, so that it shows whether the note helps.

    `share` (0..1, neither end) of the runs are the control: they go without any note, or `against="previous"`
    with the one before. A note stays until `min_runs` runs with it were scored; only then the newest takes
    its place. What the task's criteria say of a run's first version is its score. When at least 10 runs with
    notes and 10 control runs put a 95 % bootstrap interval of the difference below zero, the control takes
    over.
    """

    share: float = 0.2
    min_runs: int = 5
    against: Literal["none", "previous"] = "none"

    def __post_init__(self) -> None:
        check_share("Trial.share", self.share)
        if self.share in (0, 1):
            raise ConfigError(f"Trial.share must leave runs with and without the note, got {self.share!r}.")
        check_count("Trial.min_runs", self.min_runs, 1)
        check_choice("Trial.against", self.against, ("none", "previous"))


# Compared by identity, as functions are.
@dataclass(frozen=True, slots=True, eq=False)
class ReflectionConfig:
    """Choose how a task is reflected on after a run that was accepted.

    `model` reflects: a name or a `ChatModel`; without it the task's own, else the ensemble's. A smaller and
    cheaper one will often do. `strategy` stands in for `LlmReflectionStrategy` and needs no model.
    `max_tokens` bounds a note. `trial` makes the notes prove themselves. Raises `ConfigError`.
    """

    model: str | ChatModel | None = None
    strategy: ReflectionStrategy | None = None
    max_tokens: int = MAX_TOKENS
    trial: Trial | None = None

    def __post_init__(self) -> None:
        check_count("max_tokens", self.max_tokens, 50)
        if self.strategy is not None and not callable(self.strategy):
            raise ConfigError(f"strategy must be a function of a ReflectionInput, got {self.strategy!r}.")
        if self.trial is not None and not isinstance(self.trial, Trial):  # pyright: ignore[reportUnnecessaryIsInstance] (True is what people try)
            raise ConfigError(f"trial must be a Trial(...), got {self.trial!r}.")
