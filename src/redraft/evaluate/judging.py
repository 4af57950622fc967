"""Judging: how a model judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redraft.core.errors import ConfigError
from redraft.evaluate.prompts import check_prompt


@dataclass(frozen=True, slots=True)
class Judging:
    """Say how a model judges.

    `kind` is `score` (one call for all criteria) or `probability` (one yes/no question a criterion; the score
    is the probability of "yes", for models that tell log probabilities). `samples` asks that often, keeps the
    median and reports the spread. `prompt` replaces the judge's prompt; {task}, {output}, {criteria} and
    {history} in it are filled in. `structured` asks for JSON, else for prose with score lines.
    `include_history` shows how earlier versions were judged. Raises `ConfigError` for what can't work.
    """

    kind: Literal["score", "probability"] = "score"
    samples: int = 1
    prompt: str | None = None
    structured: bool = True
    include_history: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("score", "probability"):
            raise ConfigError(f"A judge's kind must be 'score' or 'probability', got {self.kind!r}.")
        if self.samples < 1:
            raise ConfigError(f"A judge's samples must be at least 1, got {self.samples!r}.")
        if self.kind == "probability" and self.samples > 1:
            raise ConfigError("A probability is the same each time; samples are for the judge 'score'.")
        if self.prompt is not None:
            check_prompt(self.prompt)
