"""Script: code out of a file, with the data that it sees and the limits that it keeps to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

from redraft.core.errors import ConfigError

MOST_SOURCE = 256 * 1024
"""Characters of source that a script may have."""

LEAST_MEMORY_MB, MOST_MEMORY_MB = 32, 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Bound one run of a script; raises `ConfigError` for a bound that makes no sense.

    `seconds` is wall time from the script's first line on. `memory_mb` (32 to 1024) counts what the script
    itself takes, not its interpreter. `output_chars` is what it may print, `result_chars` the length of its
    result as JSON.
    """

    seconds: float = 2.0
    memory_mb: int = 64
    output_chars: int = 64 * 1024
    result_chars: int = 1 << 20

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            kind = int | float if name == "seconds" else int
            if isinstance(value, bool) or not isinstance(value, kind) or not (value > 0 and isfinite(value)):
                raise ConfigError(f"A script's limit {name!r} must be a number > 0, got {value!r}.")
        if not LEAST_MEMORY_MB <= self.memory_mb <= MOST_MEMORY_MB:
            raise ConfigError(
                f"A script's limit 'memory_mb' must be {LEAST_MEMORY_MB} to {MOST_MEMORY_MB}, "
                f"got {self.memory_mb!r}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return the limits as they travel to the process that runs the script."""
        return {
            "seconds": self.seconds,
            "memory_mb": self.memory_mb,
            "output_chars": self.output_chars,
            "result_chars": self.result_chars,
        }


@dataclass(frozen=True, slots=True)
class Script:
    """Ask for one run of code that is not ours: `source` in `language` (`python`, `lua`, `prolog`).

    `names` is JSON data, which the code sees as its variables (in Prolog as facts). `sandbox` matters to
    Python only: `inline` is a subset of the language in a warm interpreter, `process` all of it in a jailed
    child. Raises `ConfigError` for more source than `MOST_SOURCE`.
    """

    language: str
    source: str
    names: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Limits = field(default_factory=Limits)
    sandbox: Literal["inline", "process"] = "inline"

    def __post_init__(self) -> None:
        if len(self.source) > MOST_SOURCE:
            raise ConfigError(
                f"A script may have {MOST_SOURCE:,} characters, and this one has {len(self.source):,}."
            )


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """Carry what a script gave: its value as plain JSON data, and what it printed."""

    value: Any
    printed: str = ""
