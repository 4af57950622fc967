"""QualityCriterion: one thing to judge an output by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redraft.core.check import check_share, is_number
from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest

COUNTS = ("words", "characters", "lines", "bullets")
EVALUATORS = ("llm", "regex", *COUNTS, "function", "schema", "compare", "command")


@dataclass(frozen=True, slots=True)
class QualityCriterion:
    """Name one thing to judge an output by, and say how.

    `weight` (>= 0) is its share in the overall score; `threshold` (0..1) is the least score that it must
    reach for an output to be satisfactory. `evaluator` is one of `llm`, `regex`, `words`, `characters`,
    `lines`, `bullets`, `function`, `schema`, `compare`, `command`, and `evaluator_config` is what that
    evaluator needs. With `gate=True` a criterion that no model judges spares the judge unless it is met: what
    the judge would have judged is then None.

    Raises `ConfigError` for an empty name, an unknown evaluator, a number out of its range and a value of the
    wrong kind.
    Specification 2.4.2.
    """

    name: str
    description: str = ""
    weight: float = 1.0
    threshold: float = 0.7
    evaluator: str = "llm"
    evaluator_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"A criterion needs a name; got {self.name!r}.")
        given: tuple[tuple[str, object, type, str], ...] = (
            ("description", self.description, str, "a text"),
            ("evaluator", self.evaluator, str, "a text"),
            ("evaluator_config", self.evaluator_config, Mapping, "a mapping"),
            ("gate", self.gate, bool, "True or False"),
        )
        for field_name, value, kind, expected in given:
            if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
                raise ConfigError(f"Criterion {self.name!r}: {field_name} must be {expected}, got {value!r}.")
        if self.evaluator not in EVALUATORS:
            raise ConfigError(
                f"Criterion {self.name!r}: unknown evaluator {self.evaluator!r}; "
                f"{nearest(self.evaluator, EVALUATORS)}"
            )
        if not is_number(self.weight) or self.weight < 0:
            raise ConfigError(f"Criterion {self.name!r}: weight must be a number >= 0, got {self.weight!r}.")
        check_share(f"Criterion {self.name!r}: threshold", self.threshold)
