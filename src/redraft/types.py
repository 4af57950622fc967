"""The data of a run: tasks, criteria, evaluations, versions, results and what they cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib import import_module
from itertools import chain
from math import hypot
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, SupportsIndex, TypeAlias, cast

from redraft._hints import attribute_hints, keyword_hints
from redraft._validation import check_choice, check_share, is_number, nearest
from redraft._words import overlap, words_in
from redraft.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from re import Pattern

    from pydantic_core import CoreSchema
    from typing_extensions import TypeVar

    OutputT = TypeVar("OutputT", default=Any)
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT")  # before Python 3.13 without a default, which only type checkers need

ItemT = TypeVar("ItemT")

__all__ = [
    "Advice",
    "Choice",
    "ConvergenceReason",
    "Conversation",
    "Draft",
    "Image",
    "ImageMessage",
    "Issue",
    "Message",
    "PlainTask",
    "QualityCriterion",
    "Reflection",
    "ReflectionEvaluation",
    "ReflectionHistory",
    "ReflectionResult",
    "ReflectionVersion",
    "Stop",
    "TokenUsage",
]


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Image:
    """An image for a model: its bytes, or a `url` that the provider fetches.

    `digest` is the SHA-256 of the bytes: images with the same are equal. Records hold everything but the
    bytes, which a store keeps once.
    """

    media_type: str = ""
    digest: str = ""
    url: str = ""
    data: bytes = field(default=b"", repr=False, compare=False, metadata={"recorded": False})


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@keyword_hints()
@dataclass(frozen=True, slots=True)
class ImageMessage(Message):
    """A message with images, which follow its text."""

    images: tuple[Image, ...] = ()


@keyword_hints()
@dataclass(frozen=True, slots=True)
class PlainTask:
    """What an agent is asked, as plain data; `redraft.Task` adds who answers, and how."""

    description: str
    expected_output: str = ""
    """What the answer should look like."""
    task_type: str = ""
    """Picks default criteria (`code_generation`, `writing`, `analysis`, `reasoning`), and groups lessons."""
    tools: tuple[str, ...] = ()
    """The names of the tools that the agent may use."""
    context: str = ""
    """Background for this run only."""
    messages: tuple[Message | ImageMessage, ...] = ()
    """The conversation before the task."""
    images: tuple[Image, ...] = ()
    """Those that belong to the description."""

    def plain(self) -> PlainTask:
        """Return the task as plain data: what a run gets and what its record keeps."""
        return self

    @property
    def all_images(self) -> tuple[Image, ...]:
        """The images of the earlier messages and of the task itself."""
        return (*images_in(self.messages), *self.images)


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice for a run: its text, where it comes from, why it was chosen, its tokens.

    A note (`is_note`) is about this very task and brings its own formatting: it is placed right before the
    task, which then gets a heading. Of all others, `kind` decides how they are presented: `rule` as the
    agent's own rules, `requirement` as what the answer must also meet, after the task, `fact` in a list of
    data after the task, `quoted` as data in one fence before it, and the rest as information.
    """

    text: str
    source: str
    reason: str = ""
    tokens: int = 0
    is_note: bool = False
    kind: Literal["information", "rule", "requirement", "quoted", "fact"] = "information"
    after: str = ""
    """What had failed when it was given, such as "version 1"; empty for advice from the start."""


def images_in(messages: Iterable[Message]) -> tuple[Image, ...]:
    """Return the images of messages, in order."""
    return tuple(chain.from_iterable(one.images for one in messages if isinstance(one, ImageMessage)))


def with_images(content: str, images: tuple[Image, ...]) -> Message:
    """Return a user message with images, if there are any."""
    return ImageMessage("user", content, images) if images else Message("user", content)


VERSION = "version "
"""How `Advice.after` begins if a version had failed."""
COUNTS = ("words", "characters", "lines", "bullets")
NOT_JUDGED = "Not judged: "
"""How an issue begins that says why a criterion has no score."""
NOT_MET = "Not met."
"""What a writer learns of a failure of which only the criterion's description is shown."""
Shown: TypeAlias = bool | Literal["description"]
EVALUATORS = (
    "llm",
    "regex",
    *COUNTS,
    "function",
    "schema",
    "compare",
    "command",
    "generated_tests",
)
REMOVED_EVALUATORS = {
    "examples": "list the examples as the 'calls' of a 'command', or use 'generated_tests', which takes "
    "them from the task."
}
"""Evaluators of earlier versions, each with what to write instead."""
ORIGINS = ("given", "generated")
ENOUGH = 0.5
"""The share of a generated criterion from which an output is not replaced by one that passes more."""

MOST_WEIGHT = 1_000_000
"""The highest weight of a criterion: sums of weights have to stay finite."""

DEFAULT_CRITERION_THRESHOLD = 0.7
"""From which score (0..1) a criterion is met that does not say so itself."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class QualityCriterion:
    """One criterion to judge an output by, and how to judge it.

    `weight` (0..1,000,000) is its share of the overall score; `threshold` (0..1) is the lowest score with
    which an output is satisfactory. `evaluator` is one of `llm`, `regex`, `words`, `characters`, `lines`,
    `bullets`, `function`, `schema`, `compare`, `command`, `generated_tests`, and `evaluator_config` holds
    that evaluator's options. With `gate=True`, a criterion that needs no model must be met before the judge
    is called; if it fails, the criteria left to the judge score None.

    `origin` says who decided what is right: `given` by the user, or `generated` by a model, like tests that
    it wrote itself. Such a criterion may be wrong, so given criteria come first, and it decides only between
    outputs that are equal by them: a later one that passes all generated criteria replaces an earlier one
    that passed less than half. Its `threshold` is always 0.5, it does not count in the overall score if
    another criterion does, and it can't be a gate. `generated_tests` are always of generated origin.

    `shown` decides what the writer may know. True: the name and the description from the first draft on, and
    whatever is found wrong, with the values that a failed check expected. `"description"`: of a failure only
    that the criterion is not met. False: nothing at all, neither the criterion nor that it failed. What else
    is in `evaluator_config` never reaches a writer. The result names every issue in all three cases.

    Raises `ConfigError` for an empty name, an unknown evaluator, a number out of range or a value of the
    wrong type.
    """

    name: str
    description: str = ""
    weight: float = 1.0
    threshold: float = DEFAULT_CRITERION_THRESHOLD
    evaluator: str = "llm"
    evaluator_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gate: bool = False
    origin: Literal["given", "generated"] = "given"
    shown: Shown = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"A criterion needs a name; got {self.name!r}.")
        checks: tuple[tuple[str, object, type, str], ...] = (
            ("description", self.description, str, "a text"),
            ("evaluator", self.evaluator, str, "a text"),
            ("evaluator_config", self.evaluator_config, Mapping, "a mapping"),
            ("gate", self.gate, bool, "True or False"),
        )
        for field_name, value, kind, expected in checks:
            if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
                raise ConfigError(f"Criterion {self.name!r}: {field_name} must be {expected}, got {value!r}.")
        if self.evaluator not in EVALUATORS:
            raise ConfigError(
                f"Criterion {self.name!r}: unknown evaluator {self.evaluator!r}; "
                f"{REMOVED_EVALUATORS.get(self.evaluator) or nearest(self.evaluator, EVALUATORS)}"
            )
        if not is_number(self.weight) or not 0 <= self.weight <= MOST_WEIGHT:
            expected = f"a number in 0..{MOST_WEIGHT:,}"
            raise ConfigError(f"Criterion {self.name!r}: weight must be {expected}, got {self.weight!r}.")
        check_share(f"Criterion {self.name!r}: threshold", self.threshold)
        check_choice(f"Criterion {self.name!r}: origin", self.origin, ORIGINS)
        if self.evaluator == "generated_tests":
            object.__setattr__(self, "origin", "generated")
        if self.origin == "generated":
            if self.gate:
                why = "a generated criterion may be wrong, so it can't be a gate."
                raise ConfigError(f"Criterion {self.name!r}: {why}")
            object.__setattr__(self, "threshold", ENOUGH)
        if not isinstance(self.shown, bool) and self.shown != "description":
            raise ConfigError(
                f"Criterion {self.name!r}: shown must be True, False or 'description', got {self.shown!r}."
            )


Criterion: TypeAlias = "QualityCriterion | str | Pattern[str] | Callable[..., Any] | Mapping[str, Any]"
"""What a criterion may be written as; a class is a `Callable`, a mapping is a JSON Schema."""

_NOT_GIVEN = cast("Any", object())


@attribute_hints
@keyword_hints()
@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What model calls used: tokens, requests and cost. Two usages add up with `+`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that the provider served from its prompt cache."""
    requests: int = 0
    """The calls that were answered."""
    failed_requests: int = 0
    """The calls that were not answered."""
    cost_usd: float | None = _NOT_GIVEN
    """US dollars; None means unknown, and an unknown part makes the sum unknown.

    By default, 0.0 where nothing was used, and unknown otherwise.
    """

    def __post_init__(self) -> None:
        if self.cost_usd is _NOT_GIVEN:
            used = self.input_tokens or self.output_tokens or self.requests
            object.__setattr__(self, "cost_usd", None if used else 0.0)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: TokenUsage) -> TokenUsage:
        # The shortcuts keep a loop of plain functions free of bookkeeping.
        if other is NOTHING_USED or (other is NOT_REPORTED and self.cost_usd is None):
            return self
        if self is NOTHING_USED:
            return other
        unknown = self.cost_usd is None or other.cost_usd is None
        return TokenUsage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.requests + other.requests,
            self.failed_requests + other.failed_requests,
            None if unknown else (self.cost_usd or 0.0) + (other.cost_usd or 0.0),
        )


NOTHING_USED = TokenUsage()
"""The usage of a step that called no model."""

NOT_REPORTED = TokenUsage(cost_usd=None)
"""The usage of a function that does not report any."""


@keyword_hints()
class Issue(str):
    """One problem in an output: its message, and where it was found.

    An issue is a `str`, so lists of issues can be joined, searched and printed. `criterion` is the name of
    the criterion that found it, `path` a JSON pointer into a structured output, `line` a 1-based line of a
    text. `number` is the one by which a judge knows the issue again in later versions of a run. An issue
    equals a plain string with its message, and another issue with the same message and place.
    """

    __slots__ = ("_criterion", "_line", "_number", "_path")

    _criterion: str | None
    _path: str | None
    _line: int | None
    _number: int | None

    def __new__(
        cls,
        message: str,
        criterion: str | None = None,
        path: str | None = None,
        line: int | None = None,
        number: int | None = None,
    ) -> Self:
        """Create an issue from its message and, where known, its place and its number."""
        issue = super().__new__(cls, message)
        issue._criterion = criterion
        issue._path = path
        issue._line = line
        issue._number = number
        return issue

    @property
    def message(self) -> str:
        """What is wrong, as a plain string."""
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

    @property
    def number(self) -> int | None:
        """The number by which a judge, or the tests that a model wrote, know it again; else None."""
        return self._number

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

    def __reduce__(self) -> tuple[type[Issue], tuple[str, str | None, str | None, int | None, int | None]]:
        return Issue, (str(self), self._criterion, self._path, self._line, self._number)

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> CoreSchema:
        """Read an issue from an object or a plain string, and write it as an object."""
        from pydantic_core import core_schema  # noqa: PLC0415 (only decoding needs it)

        def optional(schema: CoreSchema) -> CoreSchema:
            return core_schema.with_default_schema(core_schema.nullable_schema(schema), default=None)

        fields = {
            "message": core_schema.typed_dict_field(core_schema.str_schema(), required=True),
            "criterion": core_schema.typed_dict_field(optional(core_schema.str_schema())),
            "path": core_schema.typed_dict_field(optional(core_schema.str_schema())),
            "line": core_schema.typed_dict_field(optional(core_schema.int_schema())),
            "number": core_schema.typed_dict_field(optional(core_schema.int_schema())),
        }
        return core_schema.no_info_before_validator_function(
            _issue_to_fields,
            core_schema.no_info_after_validator_function(
                _issue_from_fields, core_schema.typed_dict_schema(fields)
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(_issue_to_fields),
        )


class FrozenList(tuple[ItemT, ...]):
    """A tuple that also equals a list with the same items, and concatenates with lists.

    The sum with a list is a list, in either order. Slices and sums with tuples are frozen lists.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            return list(self) == other
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __getitem__(self, index: Any) -> Any:
        found = cast("Any", super().__getitem__(index))
        return FrozenList(found) if isinstance(index, slice) else found

    def __add__(self, other: Any) -> Any:
        if isinstance(other, list):
            return [*self, *cast("list[Any]", other)]
        if isinstance(other, tuple):
            return FrozenList((*self, *cast("tuple[Any, ...]", other)))
        return NotImplemented

    def __radd__(self, other: Any) -> Any:
        if isinstance(other, list):
            return [*cast("list[Any]", other), *self]
        return (
            FrozenList((*cast("tuple[Any, ...]", other), *self))
            if isinstance(other, tuple)
            else NotImplemented
        )

    def __mul__(self, times: SupportsIndex) -> FrozenList[ItemT]:
        return FrozenList(super().__mul__(times))

    __rmul__ = __mul__

    def copy(self) -> list[ItemT]:
        """A list with the same items."""
        return list(self)


NO_ITEMS: FrozenList[Any] = FrozenList()
"""The empty list that all evaluations and versions share."""


def frozen_list(values: Iterable[Any]) -> FrozenList[Any]:
    """A frozen list of the items; a single text is one item."""
    if type(values) is FrozenList:
        return cast("FrozenList[Any]", values)
    if not values:
        return NO_ITEMS
    return FrozenList((values,) if isinstance(values, str) else values)


ISSUE_FIELDS = ("message", "criterion", "path", "line", "number")
"""The fields of an issue as an object, in order."""


def _issue_to_fields(value: object) -> object:
    if isinstance(value, Issue):
        return {name: getattr(value, name) for name in ISSUE_FIELDS}
    return {"message": value} if isinstance(value, str) else value


def _issue_from_fields(fields: dict[str, Any]) -> Issue:
    return Issue(**fields)


SAME_ISSUE = 0.6
"""The Jaccard similarity of their words from which two messages name the same issue."""


def same_issue(one: Issue, other: Issue) -> bool:
    """Return whether two issues of different versions are the same one.

    A judge's issues are known by their numbers, those of a check by criterion and path; within these, and
    for issues without a criterion, such as those of plain functions, similar words decide.
    """
    if one.number is not None and other.number is not None:
        return (one.criterion, one.number) == (other.criterion, other.number)
    if one.message == other.message:
        return True
    is_checked = one.criterion is not None and other.criterion is not None
    if is_checked and (one.criterion, one.path) != (other.criterion, other.path):
        return False
    if is_checked and one.path is not None:
        return True
    return similar_words(one.message, other.message)


def similar_words(one: str, other: str) -> bool:
    """Return whether two messages share most of their words."""
    words, others = words_in(one), words_in(other)
    return bool(words or others) and overlap(words, others) >= SAME_ISSUE


@attribute_hints
@keyword_hints()
@dataclass(slots=True)
class ReflectionEvaluation:
    """The judgement of one output: how good it is, what is wrong, what to do about it.

    Scores are in 0..1; None means that something could not be judged, which is not the same as bad. Issues
    may be plain strings.
    """

    overall_score: float | None
    """A verdict only if every criterion was judged (`is_fully_judged`)."""
    criteria_scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """By the names of the criteria; a criterion that does not apply to this output is absent."""
    satisfactory: bool = False
    issues: tuple[Issue, ...] = NO_ITEMS
    suggestions: tuple[str, ...] = NO_ITEMS
    confidence: float = 1.0
    """How sure the judge is, 0..1."""
    spread: float = 0.0
    """The margin of error of the overall score, if the judge was asked more than once.

    It is the standard error of the samples, times the pattern's `judge_margin`. A gain counts only if it
    exceeds the margins of both versions together, `sqrt(one**2 + other**2)`.
    """
    samples: tuple[Mapping[str, float], ...] = ()
    """The scores of each judgement by criterion, if the judge was asked more than once."""
    agreement: float = 1.0
    """The share of samples (0..1) with the same verdict as `satisfactory`."""
    repeats_itself: bool = False
    """Whether all replies of the judge were the same, word for word."""
    preferred: float | None = None
    """With `accept="pairwise"`, the comparison with the best output before it, in both orders.

    1.0 if this output is better, 0.0 if it is worse, 0.5 if that is undecided; None without a comparison.
    """
    gates_passed: bool | None = True
    """False if a criterion with `gate=True` failed; None if none failed, but one could not be judged.

    That does not count as passed. Without an overall score, it is never True.
    """
    failed_gates: tuple[str, ...] = ()
    """The names of the gates that are not passed, because of which no model was asked."""
    usage: TokenUsage = NOTHING_USED
    memo: Any = None
    """JSON data that the evaluator wants to find again."""
    generated: tuple[str, ...] = ()
    """The names of the criteria of generated origin."""
    meets_given: bool = True
    """Whether the output would be satisfactory without the generated criteria."""
    shown: Mapping[str, Shown] | None = None
    """The criteria that are partly or fully hidden from the writer, with their `QualityCriterion.shown`."""
    opinions: tuple[str, ...] = ()
    """The names of the criteria that a model judged."""
    unmet: tuple[str, ...] | None = None
    """The names of the criteria that were judged and fall short; None if the evaluator does not say.

    A criterion falls short of its own threshold or, where the mean alone does, of that of the mean.
    """

    def __post_init__(self) -> None:
        if self.issues is not NO_ITEMS:
            self.issues = frozen_list(
                [
                    issue if isinstance(issue, Issue) else Issue(str(issue))
                    for issue in frozen_list(self.issues)
                ]
            )
        if self.suggestions is not NO_ITEMS:
            self.suggestions = frozen_list(self.suggestions)
        if self.overall_score is None and self.gates_passed:
            self.gates_passed = None  # nothing was judged, so no gate was

    @property
    def failing(self) -> tuple[Issue, ...]:
        """The issues of what is not met, each message once; remarks on criteria that are met are left out."""
        unjudged = [issue for issue in self.issues if issue.startswith(NOT_JUDGED)]
        if self.satisfactory:
            found = unjudged
        else:
            met = self.judged.difference(self.judged if self.unmet is None else self.unmet)
            # The score may fall short although each criterion is met: then every issue may be the reason.
            found = [issue for issue in self.issues if issue.criterion not in met]
            found = found if len(found) > len(unjudged) else self.issues
        by_text: dict[tuple[str, str | None, int | None], Issue] = {}
        for issue in found:
            by_text.setdefault((str(issue), issue.path, issue.line), issue)
        return tuple(by_text.values())

    @property
    def reasons_unjudged(self) -> tuple[str, ...]:
        """Why something could not be judged, each reason once."""
        found = [one.removeprefix(NOT_JUDGED) for one in self.issues if one.startswith(NOT_JUDGED)]
        return tuple(dict.fromkeys(found))

    def for_writer(self) -> ReflectionEvaluation:
        """Return what the writer may know of this evaluation, by the `shown` of its criteria.

        That something could not be judged is left out: no revision would change that.
        """
        if self.shown is None and self.is_fully_judged:
            return self
        shown = self.shown or {}
        scores = {
            name: score for name, score in self.criteria_scores.items() if shown.get(name, True) is not False
        }
        issues: dict[Issue, None] = {}
        for issue in self.issues:
            name = issue.criterion or ""
            if issue.startswith(NOT_JUDGED):
                continue
            if name not in shown:
                issues[issue] = None
            elif scores.get(name) is not None:
                issues[Issue(NOT_MET, name)] = None
        return replace(
            self,
            criteria_scores=scores,
            issues=tuple(issues),
            samples=(),
            generated=tuple(name for name in self.generated if name in scores),
            opinions=tuple(name for name in self.opinions if name in scores),
            failed_gates=tuple(name for name in self.failed_gates if name in scores),
            unmet=None if self.unmet is None else tuple(name for name in self.unmet if name in scores),
            memo=None,
            shown=None,
        )

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The names of the criteria that could not be judged."""
        return tuple(name for name, score in self.criteria_scores.items() if score is None)

    @property
    def unasked(self) -> tuple[str, ...]:
        """The names of the criteria without a score only because a gate is not passed."""
        if not self.failed_gates:
            return ()
        others = {issue.criterion for issue in self.issues if issue.startswith(NOT_JUDGED)}
        others.update(self.failed_gates)
        return tuple(name for name in self.unjudged if name not in others)

    @property
    def judged(self) -> frozenset[str]:
        """The names of the criteria that have a score; the overall score is their weighted mean."""
        if not self.criteria_scores:
            return frozenset()
        return frozenset(name for name, score in self.criteria_scores.items() if score is not None)

    @property
    def is_fully_judged(self) -> bool:
        """Whether there is an overall score, and every criterion has one."""
        return self.overall_score is not None and None not in self.criteria_scores.values()

    @property
    def leaves_nothing_to_revise(self) -> bool:
        """Whether something could not be judged, and nothing that could be is known to be wrong."""
        if self.overall_score is None:
            return not self.unmet
        return self.unmet == () and not self.is_fully_judged

    @property
    def is_conclusive(self) -> bool:
        """Whether judging more would not change the verdict: nothing is unjudged, or a gate failed."""
        return self.is_fully_judged or self.gates_passed is False

    @property
    def comparable_score(self) -> float | None:
        """The overall score if it can be compared with those of other runs, else None.

        It can if every criterion was judged, or if a failed gate made judging the rest needless.
        """
        return self.overall_score if self.is_conclusive else None

    @property
    def generated_score(self) -> float | None:
        """The lowest score of the generated criteria; None without any, or if one could not be judged."""
        if not self.generated:
            return None
        scores = [self.criteria_scores.get(name) for name in self.generated]
        known = [score for score in scores if score is not None]
        return min(known) if len(known) == len(scores) else None

    def by_given(self) -> ReflectionEvaluation:
        """Return the evaluation by the given criteria alone, without a score if there are none."""
        scores = {name: score for name, score in self.criteria_scores.items() if name not in self.generated}
        return ReflectionEvaluation(
            self.overall_score if scores else None,
            scores,
            self.meets_given if self.generated else self.satisfactory,
            spread=self.spread,
            gates_passed=self.gates_passed,
        )

    def is_level_with(self, other: ReflectionEvaluation) -> bool:
        """Return whether nothing but their scores tells two outputs apart."""
        return (
            not (self.generated or other.generated)
            and self.satisfactory == other.satisfactory
            and bool(self.gates_passed) == bool(other.gates_passed)
            and self.overall_score is not None
            and other.overall_score is not None
            and set(self.unjudged) == set(other.unjudged)
        )

    def outranks(self, other: ReflectionEvaluation) -> bool:
        """Return whether this output is certainly better than an earlier one judged by `other`.

        Satisfactory comes before not satisfactory, an output with a score before one without, fully judged
        before partly judged, gates passed before not passed, and fewer unjudged criteria before more. Scores
        decide only between outputs judged by the same criteria, and a gain within the margins of error does
        not count. Generated criteria decide only between outputs that are equal by the given ones, and only
        for an output that passes all against one that passed less than half.
        """
        if self.generated or other.generated:
            one, two = self.by_given(), other.by_given()
            if one.outranks(two) or two.outranks(one):
                return one.outranks(two)
            mine, its = self.generated_score, other.generated_score
            return mine == 1 and its is not None and its < ENOUGH
        for mine, its in (
            (self.satisfactory, other.satisfactory),
            (self.overall_score is not None, other.overall_score is not None),
            (self.is_fully_judged, other.is_fully_judged),
            (bool(self.gates_passed), bool(other.gates_passed)),
        ):
            if mine is not its:
                return mine
        if self.overall_score is None or other.overall_score is None:
            return False
        if not self.is_fully_judged:
            missing, others = self.unjudged, other.unjudged
            if len(missing) != len(others):
                return len(missing) < len(others)
            if set(missing) != set(others):
                return False
        gain = self.overall_score - other.overall_score
        return gain > 0 and gain > hypot(self.spread, other.spread)


@dataclass(frozen=True, slots=True)
class Reflection:
    """A reflection in the middle of a run: what triggered it, when, and what it said."""

    trigger: str
    text: str
    """What went into the conversation; empty if the reflecting model failed."""
    iteration: int
    """The 1-based version that was being made."""
    step: int = 0
    """The steps that the model had taken in the conversation; 0 between two versions."""
    usage: TokenUsage = NOTHING_USED
    problem: str = ""
    """Why the reflecting model failed."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said and done on the way to one output, so that a revision can go on from there."""

    messages: list[Any] = field(default_factory=list[Any])
    """Those of the agent's framework, as JSON data, from the first prompt on.

    A revision's include those of the version it revised.
    """
    reflections: tuple[Reflection, ...] = ()
    """Those made on the way to this output alone."""


Output: TypeAlias = Any
"""A string, a JSON value (dict, list, number, bool), a pydantic model or a data class."""


@keyword_hints()
@dataclass(slots=True)
class Draft(Generic[OutputT]):
    """An output as a generator or reviser returns it, with what it knows about it.

    A function may return the plain output instead; one that knows what its model calls used returns
    `Draft(text, usage=...)`.
    """

    output: OutputT
    usage: TokenUsage = NOT_REPORTED
    improvements: tuple[str, ...] = ()
    """What was changed."""
    strategy: str = "draft"
    notes: tuple[str, ...] = ()
    """What a reader should know about how it was made, such as an edit that did not apply."""
    conversation: Conversation | None = None
    """How an agent that uses tools arrived at it."""
    memo: Any = None
    """JSON data that the generator or reviser wants to find again in the version."""
    evaluation: ReflectionEvaluation | None = None
    """Its judgement, if choosing it from several candidates took one."""
    choice: Choice | None = None
    """Why it was chosen from several candidates."""
    model: str = ""
    """The name of the model that wrote it, if that is known."""
    advice: tuple[Advice, ...] = ()
    """The advice on what had failed that its writer was given."""

    def usage_by_role(self, role: str) -> Mapping[str, TokenUsage]:
        """Return its usage as that of `role`, with what the choice and the other candidates used."""
        used = {} if self.choice is None else dict(self.choice.usage)
        return used | {role: used.get(role, NOTHING_USED) + self.usage}

    def converted(self, convert: Callable[[Any], Any]) -> Draft:
        """Return the draft with its output converted, and those of the rejected candidates."""
        choice = None if self.choice is None else self.choice.converted(convert)
        return replace(self, output=convert(self.output), choice=choice)


FailureKind: TypeAlias = Literal["check", "judge"]
LengthClass: TypeAlias = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class Way:
    """The way in which a version was to be revised: a revision strategy, or `revise` for a function of yours.

    `failure` says whether checks alone had found it wrong or a judge, and `length` how long its output was.
    `reason` says what the choice stands on, if earlier revisions decided it.
    """

    name: str
    failure: FailureKind
    length: LengthClass
    reason: str = ""


@dataclass(slots=True)
class Choice:
    """Why a draft was chosen from several candidates, and the others."""

    detail: str
    """The reason, in a sentence."""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Maps names such as `chosen` or `scores` to JSON data."""
    rejected: tuple[ReflectionVersion, ...] = ()
    """The candidates that were not chosen, judged as far as choosing took."""
    usage: Mapping[str, TokenUsage] = field(default_factory=dict[str, "TokenUsage"])
    """What they and the choice used, by role; the usage of the chosen draft is its own."""

    def converted(self, convert: Callable[[Any], Any]) -> Choice:
        """Return the choice with the outputs of the rejected candidates converted."""
        return replace(self, rejected=tuple(one.converted(convert) for one in self.rejected))


@attribute_hints
@dataclass(slots=True)
class ReflectionVersion(Generic[OutputT]):
    """One output of a run with its evaluation and how it came about."""

    iteration: int
    """1-based."""
    output: OutputT
    evaluation: ReflectionEvaluation
    improvements_applied: tuple[str, ...] = NO_ITEMS
    timestamp: datetime = field(default_factory=partial(datetime.now, UTC))
    token_usage: TokenUsage = NOT_REPORTED
    """What making and judging it used."""
    strategy: str = "draft"
    """How it was made: `draft`, `given`, `fresh`, `revise`, or a revision strategy."""
    base: int | None = None
    """The iteration that it was revised from."""
    repeats: int | None = None
    """The earlier iteration with the very same output, whose evaluation it shares."""
    gain: float | None = None
    """By how much its score beat the best earlier version judged by the same criteria.

    A gate newly passed counts as 1, a gate that was lost as -1, and a comparison as 0.5, 0 or -0.5. None if
    there is no such version, and for a repeat.
    """
    margin: float = 0.0
    """The margin of error of the gain: a gain within it may be the judge's noise."""
    accepted: bool = False
    """Whether a callback accepted it."""
    conversation: Conversation | None = None
    """That of its `Draft`, as are `memo`, `choice` and `model`."""
    memo: Any = None
    choice: Choice | None = None
    candidate: int | None = None
    """The 1-based number of a rejected candidate; its iteration is that of the chosen draft."""
    model: str = ""
    way: Way | None = None
    """How it was to be revised, if a model had the choice among several ways."""

    def __post_init__(self) -> None:
        if self.improvements_applied is not NO_ITEMS:
            self.improvements_applied = frozen_list(self.improvements_applied)

    @property
    def name(self) -> str:
        """Its iteration, and for a rejected candidate its number after a dot: `1.2`."""
        return str(self.iteration) if self.candidate is None else f"{self.iteration}.{self.candidate}"

    @property
    def rejected(self) -> tuple[ReflectionVersion, ...]:
        """The candidates that were not chosen in its place."""
        return () if self.choice is None else self.choice.rejected

    def converted(self, convert: Callable[[Any], Any]) -> ReflectionVersion:
        """Return the version with its output converted, and those of the rejected candidates."""
        choice = None if self.choice is None else self.choice.converted(convert)
        return replace(self, output=convert(self.output), choice=choice)

    def for_writer(self) -> ReflectionVersion:
        """Return what the writer may know of this version."""
        shown = self.evaluation.for_writer()
        if shown is self.evaluation:
            return self
        return replace(self, evaluation=shown, choice=None if self.evaluation.shown else self.choice)


def replaces(version: ReflectionVersion, best: ReflectionVersion) -> bool:
    """Return whether a version is better than the best one before it."""
    preferred = version.evaluation.preferred
    if preferred is None:
        return version.evaluation.outranks(best.evaluation)
    return preferred == 1.0 and version.repeats is None


def highest(versions: Sequence[ReflectionVersion]) -> ReflectionVersion:
    """Return the best version: the one that replaced those before it, and was replaced by none after it."""
    best = versions[0]
    for version in versions[1:]:
        if replaces(version, best):
            best = version
    return best


class ConvergenceReason(StrEnum):
    """Why a run stopped.

    - `quality_met`: a version is satisfactory.
    - `max_iterations`: the maximum number of revisions was made.
    - `plateau`, `diminishing`, `oscillation`: scores stopped rising, hardly rise, or go up and down.
    - `semantic_stability`, `repeated_issues`: revisions change nothing, or the same issues come back.
    - `token_budget`, `cost_budget`, `time_budget`: a budget is spent, or too little of it is left for the
      next call.
    - `user_accepted`, `user_stopped`: a callback, or a rule given as `until`, decided.
    - `unjudged`: something could not be judged, and nothing that could be is known to be wrong.
    - `error`, `cancelled`: a step failed for good, or the run was cancelled.
    """

    QUALITY_MET = "quality_met"
    MAX_ITERATIONS = "max_iterations"
    PLATEAU = "plateau"
    OSCILLATION = "oscillation"
    DIMINISHING_RETURNS = "diminishing"
    SEMANTIC_STABILITY = "semantic_stability"
    REPEATED_ISSUES = "repeated_issues"
    USER_ACCEPTED = "user_accepted"
    USER_STOPPED = "user_stopped"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 (a reason, no secret)
    COST_BUDGET = "cost_budget"
    TIME_BUDGET = "time_budget"
    UNJUDGED = "unjudged"
    ERROR = "error"
    CANCELLED = "cancelled"

    @property
    def is_budget(self) -> bool:
        """Whether a budget stopped the run."""
        return self in {self.TOKEN_BUDGET, self.COST_BUDGET, self.TIME_BUDGET}


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run stops."""

    reason: ConvergenceReason
    detail: str = ""
    """A sentence that explains the reason."""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What decided it: names such as `score` or `plateau_iterations`, and JSON data."""


@dataclass(slots=True)
class ReflectionHistory(Generic[OutputT]):
    """The versions of a finished run, and why it ended."""

    versions: tuple[ReflectionVersion[OutputT], ...]
    best_version: ReflectionVersion[OutputT]
    """The version to use."""
    final_version: ReflectionVersion[OutputT]
    """The last version made."""
    convergence_reason: ConvergenceReason
    total_iterations: int
    """The number of revisions: one less than the versions made."""

    def __post_init__(self) -> None:
        self.versions = frozen_list(self.versions)


@attribute_hints
@dataclass(slots=True)
class ReflectionResult(Generic[OutputT]):
    """A finished run: the output to use, why it stopped, what it cost."""

    success: bool
    """Whether the best version is satisfactory."""
    final_output: OutputT
    """The output of the last version."""
    best_output: OutputT
    """The output to use."""
    final_evaluation: ReflectionEvaluation
    """The evaluation of the last version."""
    history: ReflectionHistory[OutputT]
    iterations_used: int
    """The number of revisions."""
    convergence_reason: ConvergenceReason
    token_usage: TokenUsage
    execution_time: float
    """Seconds."""
    run_id: str = ""
    usage_by_role: Mapping[str, TokenUsage] = field(default_factory=dict[str, "TokenUsage"])
    """Splits `token_usage` into `generation`, `evaluation`, `revision` and `reflection`."""
    diagnostics: Mapping[str, str] = field(default_factory=dict[str, str])
    """Maps names to sentences: what a reader should know about this run."""
    advice: tuple[Advice, ...] = ()
    error: BaseException | None = None
    """The exception that ended the run, if any."""
    reflections: tuple[Reflection, ...] = ()
    """Those in the middle of the run."""
    task: PlainTask | None = None
    """What was asked; None in a result that does not come from a run."""
    stop: Stop | None = None
    """Explains the `convergence_reason`; None in a result that does not come from a run."""
    criteria: tuple[QualityCriterion, ...] = ()
    """Those that judged it, where this process knows them."""

    def __repr__(self) -> str:
        best = self.history.best_version
        versions = len(self.history.versions)
        score = render_score(best.evaluation.overall_score).strip()
        reason = self.convergence_reason.value
        return f"<{type(self).__name__} {reason}: version {best.iteration} of {versions}, score {score}>"

    def _repr_html_(self) -> str:
        """Return the result as HTML, which notebooks show."""
        # By name: what displays a run stands far above these types.
        return import_module("redraft.loop.display").result_html(self)

    def summary(self) -> str:
        """Summarize the run in a few lines: versions with scores, what failed, why it stopped, the cost."""
        history = self.history
        lines: list[str] = []
        for version in history.versions:
            lines.append(version_line(version, is_best=version is history.best_version))
            lines += [version_line(other) for other in version.rejected]
            if version.choice is not None:
                lines.append(f"    {version.choice.detail}")
        reason = self.convergence_reason.value
        lines.append(f"Stopped: {REASONS[reason]} ({reason}).")
        unjudged = self.history.best_version.evaluation.leaves_nothing_to_revise
        met = "satisfactory" if self.success else "not fully judged" if unjudged else "not satisfactory"
        lines.append(f"Returned: version {history.best_version.iteration}, {met}.")
        lines.append(f"Used: {render_usage(self.token_usage)}, {self.execution_time:.1f} s.")
        lines += [f"Note ({name}): {text}" for name, text in self.diagnostics.items()]
        # A budget is a stop, which the reason and the note about it explain, also when the run is replayed.
        if self.error is not None and not self.convergence_reason.is_budget:
            lines.append(f"Error: {type(self.error).__name__}: {self.error}")
        return "\n".join(lines)


REASONS = {
    "quality_met": "the quality threshold was met",
    "max_iterations": "the maximum number of revisions was made",
    "plateau": "the best version was not beaten any more",
    "oscillation": "scores went up and down without getting better",
    "diminishing": "the last gain was below the improvement threshold",
    "semantic_stability": "revisions no longer changed the output",
    "repeated_issues": "the same issues came back again and again",
    "user_accepted": "the user accepted a version",
    "user_stopped": "the user stopped the run",
    "token_budget": "the token budget was spent",
    "cost_budget": "the cost budget was spent",
    "time_budget": "the time budget was spent",
    "unjudged": "nothing is known to be wrong, but not everything could be judged",
    "error": "a step failed for good",
    "cancelled": "the run was cancelled",
}


def version_line(version: ReflectionVersion, *, is_best: bool = False) -> str:
    """Render a version on one line: its score, how it was made, and what failed."""
    mark = "*" if is_best else " "
    same = f", same as version {version.repeats}" if version.repeats else ""
    unasked = version.evaluation.unasked
    missing = [name for name in version.evaluation.unjudged if name not in unasked]
    blind = f", not judged: {', '.join(map(in_prose, missing))}" if missing else ""
    reasons = _first(version.evaluation.reasons_unjudged)
    if reasons:
        blind += f" ({_without_stop(reasons)})" if missing else f", not judged: {reasons}"
    if unasked:
        blind += f", {', '.join(map(in_prose, unasked))} {why_unasked(version.evaluation)}"
    score = render_score(version.evaluation.overall_score)
    failed = failures(version.evaluation, with_unjudged=False)
    how = "not chosen" if version.candidate else version.strategy
    preferred = f", {words}" if (words := preference(version)) else ""
    return f"{mark} version {version.name}  {score}  {how}{same}{preferred}{blind}{failed}"


def why_unasked(evaluation: ReflectionEvaluation) -> str:
    """Say which gates kept the judge from being asked: `not asked: gate 'dated' not met`."""
    gates = evaluation.failed_gates
    return f"not asked: {'gate' if len(gates) == 1 else 'gates'} {', '.join(map(repr, gates))} not met"


def in_prose(name: str) -> str:
    """Name of a criterion within a sentence, quoted if it has spaces; a pattern keeps its backslashes."""
    return repr(name).replace("\\\\", "\\") if " " in name else name


def preference(version: ReflectionVersion) -> str:
    """Say how a version compared with the best one before it; empty if they were not compared."""
    preferred = version.evaluation.preferred
    return "" if preferred is None or version.repeats is not None else PREFERRED.get(preferred, "")


PREFERRED = {
    1.0: "preferred to the best before",
    0.5: "not preferred",
    0.0: "worse than the best before",
}


def joined(messages: Iterable[object]) -> str:
    """Return messages on one line, with semicolons in place of the full stops between them."""
    *lines, last = [" ".join(str(message).split()) for message in messages] or [""]
    return "; ".join([*map(_without_stop, lines), last])


def _without_stop(line: str) -> str:
    """A line without its full stop; the three dots of a shortened line stay."""
    return line if line.endswith("...") else line.removesuffix(".")


def failures(evaluation: ReflectionEvaluation, *, with_unjudged: bool = True) -> str:
    """Render the first issues to follow a version's score; empty if it is satisfactory."""
    if evaluation.satisfactory:
        return ""
    failed = _first([_at_its_path(issue) for issue in evaluation.failing if not issue.startswith(NOT_JUDGED)])
    unjudged = _first(evaluation.reasons_unjudged) if with_unjudged else ""
    return (f"  failed: {failed}" if failed else "") + (f"  not judged: {unjudged}" if unjudged else "")


def _at_its_path(issue: Issue) -> str:
    return f"{issue} (at {issue.path})" if issue.path and issue.path not in issue else issue


def _first(messages: Sequence[str], most: int = 3, length: int = 100) -> str:
    """Render the first messages on one line, and say how many more there are."""
    lines = [joined([message]) for message in messages[:most]]
    first = [line if len(line) <= length else f"{line[: length - 3].rstrip(' .')}..." for line in lines]
    more = len(messages) - most
    return joined([*first, f"and {more} more"] if more > 0 else first)


def render_score(score: float | None) -> str:
    """Render a score with two decimals, and an unknown one as a dash."""
    return "  - " if score is None else f"{score:.2f}"


def render_usage(usage: TokenUsage) -> str:
    """Tokens, calls and cost in prose, such as `1,234 tokens in 2 calls, cost unknown`.

    Functions of the user that report nothing have used an unknown amount, not none.
    """
    if usage == NOTHING_REPORTED:
        return "tokens and cost not reported"
    cost = "cost unknown" if usage.cost_usd is None else render_usd(usage.cost_usd)
    failed = f" ({usage.failed_requests} failed)" if usage.failed_requests else ""
    calls = "1 call" if usage.requests == 1 else f"{usage.requests} calls"
    return f"{usage.total_tokens:,} tokens in {calls}{failed}, {cost}"


def render_usd(dollars: float) -> str:
    """Render US dollars with four decimals; a cost that would round to nothing becomes `<$0.0001`."""
    return f"${dollars:.4f}" if dollars == 0 or dollars >= SMALLEST_USD else f"<${SMALLEST_USD}"


NOTHING_REPORTED = TokenUsage(cost_usd=None)
SMALLEST_USD = 0.0001
