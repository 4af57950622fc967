"""ReflectionEvaluation: one judgement of one output, and the issues that it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from redraft.core.usage import NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from pydantic_core import CoreSchema


class Issue(str):
    """Name one problem found in an output: its message, and where it was found.

    An issue is a text, so that lists of issues can be joined, searched and printed. `path` is a JSON pointer
    into a structured output, `line` a 1-based line of a text, `criterion` the name of the criterion that
    found it. An issue equals a plain text with its message, and another issue with the same message and
    place. Specification 2.4.3.
    """

    __slots__ = ("_criterion", "_line", "_path")

    _criterion: str | None
    _path: str | None
    _line: int | None

    def __new__(
        cls, message: str, criterion: str | None = None, path: str | None = None, line: int | None = None
    ) -> Self:
        """Make an issue of a message and, where known, the place where it was found."""
        issue = super().__new__(cls, message)
        issue._criterion = criterion
        issue._path = path
        issue._line = line
        return issue

    @property
    def message(self) -> str:
        """What is wrong, as a plain text."""
        return str(self)

    @property
    def criterion(self) -> str | None:
        """The name of the criterion that found it."""
        return self._criterion

    @property
    def path(self) -> str | None:
        """The JSON pointer to the value that is wrong."""
        return self._path

    @property
    def line(self) -> int | None:
        """The 1-based line that is wrong."""
        return self._line

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Issue):
            return str.__eq__(self, other) if isinstance(other, str) else NotImplemented
        return str.__eq__(self, other) and (self._criterion, self._path, self._line) == (
            other._criterion,
            other._path,
            other._line,
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[type[Issue], tuple[str, str | None, str | None, int | None]]:
        return Issue, (str(self), self._criterion, self._path, self._line)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Read an issue from an object with its fields or from a plain text, and write it as an object."""
        from pydantic_core import core_schema  # noqa: PLC0415 (a run that decodes nothing does not pay for it)

        def unknown(schema: CoreSchema) -> CoreSchema:
            return core_schema.with_default_schema(core_schema.nullable_schema(schema), default=None)

        fields = {
            "message": core_schema.typed_dict_field(core_schema.str_schema(), required=True),
            "criterion": core_schema.typed_dict_field(unknown(core_schema.str_schema())),
            "path": core_schema.typed_dict_field(unknown(core_schema.str_schema())),
            "line": core_schema.typed_dict_field(unknown(core_schema.int_schema())),
        }
        return core_schema.no_info_before_validator_function(
            _as_fields,
            core_schema.no_info_after_validator_function(_of_fields, core_schema.typed_dict_schema(fields)),
            serialization=core_schema.plain_serializer_function_ser_schema(_as_fields),
        )


ISSUE_FIELDS = ("message", "criterion", "path", "line")
"""What an issue is written as, in this order."""


def _as_fields(value: object) -> object:
    if isinstance(value, Issue):
        return {name: getattr(value, name) for name in ISSUE_FIELDS}
    return {"message": value} if isinstance(value, str) else value


def _of_fields(fields: dict[str, Any]) -> Issue:
    return Issue(**fields)


NO_NAMES: frozenset[str] = frozenset()


def _issues(given: Iterable[object]) -> tuple[Issue, ...]:
    values: tuple[Any, ...] = _several(given)
    for value in values:
        if not isinstance(value, Issue):
            return tuple(one if isinstance(one, Issue) else Issue(str(one)) for one in values)
    return values  # as nearly always


def _several(given: Iterable[Any]) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str) else tuple(given)  # one text or issue, not its letters


@dataclass(slots=True)
class ReflectionEvaluation:
    """Judge one output: how good, what is wrong, what to do.

    `overall_score` and the values of `criteria_scores` are in 0..1; None means that it could not be judged,
    which is not the same as bad. A criterion that does not apply to this output is absent. `satisfactory` is
    the verdict. Issues may be given as plain strings. `confidence` (0..1) is how sure the judge is; `spread`
    is the distance between the highest and lowest overall score when the judge was asked more than once, and
    a gain smaller than it is no gain. `gates_passed` is False when a criterion with `gate=True` failed, and
    None when none failed but one could not be judged: that is not passed, either. `overall_score` is a
    verdict only where every criterion was judged (`is_fully_judged`). `memo` is JSON data that the evaluator
    wants to find again. Specification 2.4.3.
    """

    overall_score: float | None
    criteria_scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    satisfactory: bool = False
    issues: tuple[Issue, ...] = ()
    suggestions: tuple[str, ...] = ()
    confidence: float = 1.0
    spread: float = 0.0
    gates_passed: bool | None = True
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

    @property
    def judged(self) -> frozenset[str]:
        """The names of the criteria that have a score: what the overall score is the mean of."""
        scores = self.criteria_scores
        return frozenset(name for name in scores if scores[name] is not None) if scores else NO_NAMES

    @property
    def is_fully_judged(self) -> bool:
        """Whether there is a score and no criterion is missing from it."""
        return self.overall_score is not None and None not in self.criteria_scores.values()

    @property
    def comparable_score(self) -> float | None:
        """The overall score where other runs' scores can be compared with it, else None.

        It is there for what was fully judged, and for what failed a gate, which spares the judge.
        """
        return self.overall_score if self.is_fully_judged or self.gates_passed is False else None

    def outranks(self, other: ReflectionEvaluation) -> bool:
        """Say whether this judgement is surely a better one than `other`.

        Satisfactory before not, gates passed before not, then by how much was judged: one that lacks more
        criteria never outranks one that lacks fewer. Scores decide between what was judged alike, and a gain
        within the judge's spread is none.
        """
        if self.satisfactory != other.satisfactory:
            return self.satisfactory
        if bool(self.gates_passed) != bool(other.gates_passed):
            return bool(self.gates_passed)
        if self.overall_score is None or other.overall_score is None:
            return self.overall_score is not None
        missing, others = self.unjudged, other.unjudged
        if len(missing) != len(others):
            return len(missing) < len(others)
        if missing and set(missing) != set(others):
            return False
        gain = self.overall_score - other.overall_score
        return gain > 0 and gain > max(self.spread, other.spread)
