"""ReflectionEvaluation: one judgement of one output, and the issues that it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from redraft.core.made import maker
from redraft.core.usage import NOTHING_USED, TokenUsage


@dataclass(frozen=True, slots=True)
class Issue:
    """Name one problem found in an output.

    `path` is a JSON pointer into a structured output, `line` a 1-based line of a text, `criterion` the name
    of the criterion that found it. `str(issue)` is the message.
    """

    message: str
    criterion: str | None = None
    path: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        return self.message


issue_of = maker(Issue)


def _issues(given: Iterable[object]) -> tuple[Issue, ...]:
    values: tuple[Any, ...] = _several(given)
    for value in values:
        if not isinstance(value, Issue):
            return tuple(one if isinstance(one, Issue) else Issue(str(one)) for one in values)
    return values  # as nearly always


def _several(given: Iterable[Any]) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given)  # one text, not its letters


@dataclass(slots=True)
class ReflectionEvaluation:
    """Judge one output: how good, what is wrong, what to do.

    `overall_score` and the values of `criteria_scores` are in 0..1; None means that it could not be judged,
    which is not the same as bad. A criterion that does not apply to this output is absent. `satisfactory` is
    the verdict. Issues may be given as plain strings. `confidence` (0..1) is how sure the judge is; `spread`
    is the distance between the highest and lowest overall score when the judge was asked more than once, and
    a gain smaller than it is no gain. `gates_passed` is False when a criterion with `gate=True` failed.
    `memo` is JSON data that the evaluator wants to find again. Specification 2.4.3.
    """

    overall_score: float | None
    criteria_scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    satisfactory: bool = False
    issues: tuple[Issue, ...] = ()
    suggestions: tuple[str, ...] = ()
    confidence: float = 1.0
    spread: float = 0.0
    gates_passed: bool = True
    usage: TokenUsage = NOTHING_USED
    memo: Any = None

    def __post_init__(self) -> None:
        if self.issues:
            self.issues = _issues(self.issues)
        if self.suggestions:
            self.suggestions = _several(self.suggestions)

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The names of the criteria that could not be judged."""
        if None not in self.criteria_scores.values():
            return ()
        return tuple(name for name, score in self.criteria_scores.items() if score is None)
