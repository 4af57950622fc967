"""TaskReflection: how the instructions of a task could have been better."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from redraft.core.check import check_count
from redraft.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class TaskReflection:
    """Hold what an analysis of a task's runs came to: better instructions, and what was noticed.

    `refined_description` and `refined_expected_output` are improved versions of the task's own, which stay as
    they are. `run_count` (from 1) is how many runs have informed it. Raises `ConfigError` for a part that is
    None or no text, and for a count below 1.
    """

    refined_description: str
    refined_expected_output: str
    observations: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    reflected_at: datetime = field(default_factory=partial(datetime.now, UTC))
    run_count: int = 1

    def __post_init__(self) -> None:
        _check_text("refined_description", self.refined_description)
        _check_text("refined_expected_output", self.refined_expected_output)
        for name, items in (("observations", self.observations), ("suggestions", self.suggestions)):
            if isinstance(items, str) or not isinstance(items, list | tuple):  # pyright: ignore[reportUnnecessaryIsInstance] (what strategies of others return)
                raise ConfigError(f"{name} must be a list of texts, got {items!r}.")
            for item in items:
                _check_text(f"an item of {name}", item)
            object.__setattr__(self, name, tuple(items))
        if not isinstance(self.reflected_at, datetime):  # pyright: ignore[reportUnnecessaryIsInstance] (likewise)
            raise ConfigError(f"reflected_at must be a datetime, got {self.reflected_at!r}.")
        check_count("run_count", self.run_count, 1)

    @classmethod
    def of_first_run(
        cls,
        refined_description: str,
        refined_expected_output: str,
        observations: Sequence[str] = (),
        suggestions: Sequence[str] = (),
    ) -> TaskReflection:
        """Make the reflection on a task's first run, as of now."""
        return cls(refined_description, refined_expected_output, tuple(observations), tuple(suggestions))

    @classmethod
    def from_prior(
        cls,
        refined_description: str,
        refined_expected_output: str,
        observations: Sequence[str] = (),
        suggestions: Sequence[str] = (),
        *,
        prior: TaskReflection,
    ) -> TaskReflection:
        """Make the reflection that follows `prior`, as of now: one more run has informed it."""
        return cls(
            refined_description,
            refined_expected_output,
            tuple(observations),
            tuple(suggestions),
            run_count=prior.run_count + 1,
        )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be a text, got {value!r}.")
