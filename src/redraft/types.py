"""The data of a run: tasks, criteria, evaluations, versions, usage and results."""

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
from redraft._validation import (
    check_choice,
    check_list,
    check_share,
    check_text,
    is_number,
    named_error,
    nearest,
    repr_of,
)
from redraft._words import overlap, words_in
from redraft.errors import ConfigError, RedraftError

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
    """An image for a model: its bytes, or a `url` that the provider fetches."""

    media_type: str = ""
    digest: str = ""
    """SHA-256 of the bytes; images with the same digest are equal."""
    url: str = ""
    data: bytes = field(default=b"", repr=False, compare=False, metadata={"recorded": False})
    """The bytes. Records leave them out; a store holds them once per digest."""


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
    """A task as plain data; `redraft.Task` adds the agent that answers it, and its options."""

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
    """The images of the description."""

    def __post_init__(self) -> None:
        check_text("The description of a task", self.description)
        check_text("The expected_output of a task", self.expected_output)
        check_text("The task_type of a task", self.task_type)
        check_text("The context of a task", self.context)
        for name in ("tools", "messages", "images"):
            value = getattr(self, name)
            if value.__class__ is not tuple:  # a stored task, which has tuples, must be equal
                check_list(f"The {name} of a task", value)
                object.__setattr__(self, name, tuple(value))

    def plain(self) -> PlainTask:
        """The task as a run receives and records it."""
        return self

    @property
    def ensemble_options(self) -> tuple[str, ...]:
        """The names of its options that only an `Ensemble` carries out."""
        return ()

    @property
    def all_images(self) -> tuple[Image, ...]:
        """The images of the earlier messages and of the task itself."""
        return (*images_in(self.messages), *self.images)


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Advice:
    """One piece of advice for a run."""

    text: str
    source: str
    """Where it comes from."""
    reason: str = ""
    """Why it was chosen."""
    tokens: int = 0
    is_note: bool = False
    """Whether it is a note on this very task.

    A note brings its own formatting. It is placed right before the task, which then gets a heading.
    """
    kind: Literal["information", "rule", "requirement", "quoted", "fact"] = "information"
    """How advice other than a note is presented.

    `rule`: as the agent's own rules. `requirement`: after the task, as another requirement of the answer.
    `fact`: in a list of data after the task. `quoted`: as data, in one fence before the task.
    """
    after: str = ""
    """The failure that it answers, such as "version 1"; empty for advice from the start."""


def images_in(messages: Iterable[Message]) -> tuple[Image, ...]:
    """The images of messages, in order."""
    return tuple(
        chain.from_iterable(message.images for message in messages if isinstance(message, ImageMessage))
    )


def with_images(content: str, images: tuple[Image, ...]) -> Message:
    """Build a user message, with images if there are any."""
    return ImageMessage("user", content, images) if images else Message("user", content)


FAILED_VERSION = "version "
"""Prefix of `Advice.after` for a version that failed."""
COUNTS = ("words", "characters", "lines", "bullets")
NOT_JUDGED = "Not judged: "
"""Prefix of an issue that says why a criterion has no score."""
NOT_MET = "Not met."
"""The issue that the writer sees where only the description of the failed criterion is shown."""
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
"""Evaluators of earlier versions, each with its replacement."""
ORIGINS = ("given", "generated")
GENERATED_THRESHOLD = 0.5
"""The threshold of generated criteria: a version that reaches it is not replaced by one that passes more."""

MOST_WEIGHT = 1_000_000
"""The highest weight of a criterion, so that sums of weights are finite."""

DEFAULT_CRITERION_THRESHOLD = 0.7
"""The score (0..1) from which a criterion without a `threshold` is met."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class QualityCriterion:
    """A criterion to judge an output by, and how to judge it.

    Raises `ConfigError` for an empty name, an unknown evaluator, a number out of range or a value of the
    wrong type.
    """

    name: str
    description: str = ""
    weight: float = 1.0
    """Its weight (0..1,000,000) in the overall score."""
    threshold: float = DEFAULT_CRITERION_THRESHOLD
    """The lowest score (0..1) that meets it."""
    evaluator: str = "llm"
    """The kind of judgement.

    `llm`, `regex`, `words`, `characters`, `lines`, `bullets`, `function`, `schema`, `compare`, `command` or
    `generated_tests`.
    """
    evaluator_config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options of the evaluator."""
    gate: bool = False
    """Whether it must be met before the judge is called; only for criteria that need no model.

    If a gate fails, the criteria left to the judge score None.
    """
    origin: Literal["given", "generated"] = "given"
    """Who decided what is right: the user (`given`), or a model, as in tests that it wrote (`generated`).

    A generated criterion may be wrong, so it decides only between outputs that are equal by the given
    criteria: a later output that passes all generated criteria replaces an earlier one that passed less than
    half. Its `threshold` is always 0.5, it does not count in the overall score if another criterion does, and
    it can't be a gate. `generated_tests` are always of generated origin.
    """
    shown: Shown = True
    """What the writer may know of it.

    True: the name and the description from the first draft on, and every failure, with the values that the
    check expected. `"description"`: the same, but of a failure only that the criterion is not met. False:
    nothing. The rest of `evaluator_config` never reaches a writer. The result names every issue in all three
    cases.
    """

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
            raise ConfigError(f"A criterion needs a name; got {repr_of(self.name)}.")
        checks: tuple[tuple[str, object, type, str], ...] = (
            ("description", self.description, str, "a text"),
            ("evaluator", self.evaluator, str, "a text"),
            ("evaluator_config", self.evaluator_config, Mapping, "a mapping"),
            ("gate", self.gate, bool, "True or False"),
        )
        for field_name, value, kind, expected in checks:
            if not isinstance(value, kind):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
                raise ConfigError(
                    f"Criterion {self.name!r}: {field_name} must be {expected}, got {repr_of(value)}."
                )
        object.__setattr__(self, "evaluator_config", dict(self.evaluator_config))  # the caller may change it
        if self.evaluator not in EVALUATORS:
            hint = REMOVED_EVALUATORS.get(self.evaluator) or nearest(self.evaluator, EVALUATORS)
            raise ConfigError(f"Criterion {self.name!r}: unknown evaluator {self.evaluator!r}; {hint}")
        if not is_number(self.weight) or not 0 <= self.weight <= MOST_WEIGHT:
            expected = f"a number in 0..{MOST_WEIGHT:,}"
            raise ConfigError(
                f"Criterion {self.name!r}: weight must be {expected}, got {repr_of(self.weight)}."
            )
        check_share(f"Criterion {self.name!r}: threshold", self.threshold)
        check_choice(f"Criterion {self.name!r}: origin", self.origin, ORIGINS)
        if self.evaluator == "generated_tests":
            object.__setattr__(self, "origin", "generated")
        if self.origin == "generated":
            if self.gate:
                why = "a generated criterion may be wrong, so it can't be a gate."
                raise ConfigError(f"Criterion {self.name!r}: {why}")
            object.__setattr__(self, "threshold", GENERATED_THRESHOLD)
        if not isinstance(self.shown, bool) and self.shown != "description":
            raise ConfigError(
                f"Criterion {self.name!r}: shown must be True, False or 'description', "
                f"got {repr_of(self.shown)}."
            )


Criterion: TypeAlias = "QualityCriterion | str | Pattern[str] | Callable[..., Any] | Mapping[str, Any]"
"""The forms in which a criterion may be written; a class is a `Callable`, a mapping is a JSON Schema."""

_NOT_GIVEN = cast("Any", object())


@attribute_hints
@keyword_hints()
@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens, requests and cost of model calls. Usages add up with `+`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """The part of `input_tokens` that the provider served from its prompt cache."""
    requests: int = 0
    """Calls that were answered."""
    failed_requests: int = 0
    """Calls that were not answered."""
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
        """Input plus output tokens."""
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
"""The usage of a function that does not report its usage."""


def cost_at(price: tuple[float, float], input_tokens: int, output_tokens: int, /) -> float:
    """The cost in US dollars at a price for a million input and a million output tokens."""
    return (input_tokens * price[0] + output_tokens * price[1]) / 1_000_000


def usage_before(error: BaseException) -> TokenUsage:
    """The usage before an error, as far as the error reports it."""
    return (error.usage if isinstance(error, RedraftError) else None) or NOTHING_USED


@keyword_hints()
class Issue(str):
    """A problem in an output: its message, and its place.

    An issue is a `str`, so lists of issues can be joined, searched and printed. It equals a plain string with
    its message, and another issue with the same message and place.
    """

    __slots__ = ("criterion", "line", "number", "path")

    criterion: str | None
    """The name of the criterion that is not met."""
    path: str | None
    """The JSON pointer to the wrong value in a structured output."""
    line: int | None
    """The 1-based number of the wrong line of a text."""
    number: int | None
    """Identifies an issue of a judge, or of generated tests, across the versions of a run; else None."""

    def __new__(
        cls,
        message: str,
        criterion: str | None = None,
        path: str | None = None,
        line: int | None = None,
        number: int | None = None,
    ) -> Self:
        """Create an issue from its message and, where known, its place and its number."""
        issue, put = super().__new__(cls, message), object.__setattr__
        put(issue, "criterion", criterion)
        put(issue, "path", path)
        put(issue, "line", line)
        put(issue, "number", number)
        return issue

    def __setattr__(self, name: str, value: object) -> None:
        if name in ISSUE_FIELDS:
            raise AttributeError(f"an issue can't be changed, so {name!r} can't be set")
        super().__setattr__(name, value)

    @property
    def message(self) -> str:
        """What is wrong, as a plain string."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Issue):
            return str.__eq__(self, other) if isinstance(other, str) else NotImplemented
        return str.__eq__(self, other) and (
            (self.criterion, self.path, self.line) == (other.criterion, other.path, other.line)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __reduce__(self) -> tuple[type[Issue], tuple[str, str | None, str | None, int | None, int | None]]:
        return Issue, (str(self), self.criterion, self.path, self.line, self.number)

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
                lambda fields: Issue(**fields), core_schema.typed_dict_schema(fields)
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
        item = cast("Any", super().__getitem__(index))
        return FrozenList(item) if isinstance(index, slice) else item

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
"""The empty list, shared by all evaluations and versions."""


def frozen_list(values: Iterable[Any]) -> FrozenList[Any]:
    """Freeze a list; a single string is one item."""
    if type(values) is FrozenList:
        return cast("FrozenList[Any]", values)
    if not values:
        return NO_ITEMS
    try:
        return FrozenList((values,) if isinstance(values, str) else values)
    except TypeError:
        raise ConfigError(f"Expected a list, got {repr_of(values)}.") from None


ISSUE_FIELDS = ("message", "criterion", "path", "line", "number")
"""The keys of an issue in JSON, in order."""


def _issue_to_fields(value: object) -> object:
    if isinstance(value, Issue):
        return {name: getattr(value, name) for name in ISSUE_FIELDS}
    return {"message": value} if isinstance(value, str) else value


SAME_ISSUE = 0.6
"""Jaccard similarity of words from which two messages name the same issue."""


def same_issue(issue: Issue, other: Issue) -> bool:
    """Whether two versions have the same issue.

    A judge's issues are compared by number, a check's by criterion and path. Otherwise, as for plain
    functions, similar words decide.
    """
    if issue.number is not None and other.number is not None:
        return (issue.criterion, issue.number) == (other.criterion, other.number)
    if issue.message == other.message:
        return True
    is_checked = issue.criterion is not None and other.criterion is not None
    if is_checked and (issue.criterion, issue.path) != (other.criterion, other.path):
        return False
    if is_checked and issue.path is not None:
        return True
    return similar_words(issue.message, other.message)


def similar_words(message: str, other: str) -> bool:
    """Whether two messages share most of their words."""
    words, others = words_in(message), words_in(other)
    return bool(words or others) and overlap(words, others) >= SAME_ISSUE


@attribute_hints
@keyword_hints()
@dataclass(slots=True)
class ReflectionEvaluation:
    """The judgement of one output: how good it is, what is wrong, what to do about it.

    Scores are in 0..1; None means "could not be judged", which is not the same as bad. Issues may be plain
    strings.
    """

    overall_score: float | None
    """A verdict only if every criterion was judged (`is_fully_judged`)."""
    criteria_scores: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    """Scores by the names of the criteria. A criterion that does not apply to this output is absent."""
    satisfactory: bool = False
    issues: tuple[Issue, ...] = NO_ITEMS
    suggestions: tuple[str, ...] = NO_ITEMS
    confidence: float = 1.0
    """How sure the judge is, 0..1."""
    spread: float = 0.0
    """The margin of error of the overall score, if the judge was asked more than once.

    It is the standard error of the samples, times the pattern's `judge_margin`. A gain counts only if it
    exceeds the margins of both versions combined, `hypot(spread, earlier_spread)`.
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

    None does not count as passed. Without an overall score, the value is never True.
    """
    failed_gates: tuple[str, ...] = ()
    """The names of the gates that kept the judge from being asked."""
    usage: TokenUsage = NOTHING_USED
    memo: Any = None
    """JSON data of the evaluator, for later calls."""
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

    A criterion falls short of its own threshold; or, if only the mean is too low, of the mean's threshold.
    """

    def __post_init__(self) -> None:
        if self.issues:
            self.issues = FrozenList(
                [
                    issue if isinstance(issue, Issue) else Issue(str(issue))
                    for issue in frozen_list(self.issues)
                ]
            )
        else:
            self.issues = NO_ITEMS
        if self.suggestions is not NO_ITEMS:
            self.suggestions = frozen_list(self.suggestions)
        if self.overall_score is None and self.gates_passed:
            self.gates_passed = None  # nothing was judged, so no gate was

    @property
    def failing(self) -> tuple[Issue, ...]:
        """The issues of unmet criteria, each message once, without remarks on criteria that are met."""
        unjudged = [issue for issue in self.issues if issue.startswith(NOT_JUDGED)]
        if self.satisfactory:
            failing = unjudged
        else:
            met = self.judged.difference(self.judged if self.unmet is None else self.unmet)
            # The score may fall short although each criterion is met: then every issue may be the reason.
            failing = [issue for issue in self.issues if issue.criterion not in met]
            failing = failing if len(failing) > len(unjudged) else self.issues
        by_text: dict[tuple[str, str | None, int | None], Issue] = {}
        for issue in failing:
            by_text.setdefault((str(issue), issue.path, issue.line), issue)
        return tuple(by_text.values())

    @property
    def reasons_unjudged(self) -> tuple[str, ...]:
        """Why criteria could not be judged, each reason once."""
        reasons = [issue.removeprefix(NOT_JUDGED) for issue in self.issues if issue.startswith(NOT_JUDGED)]
        return tuple(dict.fromkeys(reasons))

    def for_writer(self) -> ReflectionEvaluation:
        """The part of the evaluation that the writer may know, by the `shown` of its criteria.

        Reasons why a criterion could not be judged are left out: no revision would change them.
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
        if not self.criteria_scores:
            return ()
        return tuple([name for name, score in self.criteria_scores.items() if score is None])

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
        return frozenset([name for name, score in self.criteria_scores.items() if score is not None])

    @property
    def is_fully_judged(self) -> bool:
        """Whether there is an overall score, and every criterion has one."""
        return self.overall_score is not None and None not in self.criteria_scores.values()

    @property
    def leaves_nothing_to_revise(self) -> bool:
        """Whether some criteria could not be judged, and all others are met."""
        if self.overall_score is None:
            return not self.unmet
        return self.unmet == () and not self.is_fully_judged

    @property
    def is_conclusive(self) -> bool:
        """Whether judging more would not change the verdict: nothing is unjudged, or a gate failed."""
        return self.is_fully_judged or self.gates_passed is False

    @property
    def comparable_score(self) -> float | None:
        """The overall score if other runs can be compared with it, else None.

        They can if every criterion was judged, or if a failed gate made the rest irrelevant.
        """
        return self.overall_score if self.is_conclusive else None

    @property
    def generated_score(self) -> float | None:
        """The lowest score of the generated criteria; None without any, or if one could not be judged."""
        if not self.generated:
            return None
        scores = [self.criteria_scores.get(name) for name in self.generated]
        judged = [score for score in scores if score is not None]
        return min(judged) if len(judged) == len(scores) else None

    def by_given(self) -> ReflectionEvaluation:
        """The evaluation by the given criteria alone, without a score if there are none."""
        scores = {name: score for name, score in self.criteria_scores.items() if name not in self.generated}
        return ReflectionEvaluation(
            self.overall_score if scores else None,
            scores,
            self.meets_given if self.generated else self.satisfactory,
            spread=self.spread,
            gates_passed=self.gates_passed,
        )

    def is_level_with(self, other: ReflectionEvaluation) -> bool:
        """Whether two outputs differ in nothing but their scores."""
        return (
            not (self.generated or other.generated)
            and self.satisfactory == other.satisfactory
            and bool(self.gates_passed) == bool(other.gates_passed)
            and self.overall_score is not None
            and other.overall_score is not None
            and set(self.unjudged) == set(other.unjudged)
        )

    def outranks(self, other: ReflectionEvaluation) -> bool:
        """Whether this output is certainly better than an earlier one, with the evaluation `other`.

        Satisfactory comes before not satisfactory, an output with a score before one without, fully judged
        before partly judged, gates passed before not passed, and fewer unjudged criteria before more. Scores
        decide only between outputs judged by the same criteria, and a gain within the margins of error does
        not count. Generated criteria decide only between outputs that are equal by the given ones, and only
        for an output that passes all against one that passed less than half.
        """
        if self.generated or other.generated:
            ours, theirs = self.by_given(), other.by_given()
            if ours.outranks(theirs) or theirs.outranks(ours):
                return ours.outranks(theirs)
            score, earlier_score = self.generated_score, other.generated_score
            return score == 1 and earlier_score is not None and earlier_score < GENERATED_THRESHOLD
        if self.satisfactory != other.satisfactory:
            return self.satisfactory
        if self.overall_score is None or other.overall_score is None:
            return self.overall_score is not None and other.overall_score is None
        missing, earlier_missing = self.unjudged, other.unjudged
        if bool(missing) != bool(earlier_missing):
            return not missing
        if bool(self.gates_passed) != bool(other.gates_passed):
            return bool(self.gates_passed)
        if missing != earlier_missing and set(missing) != set(earlier_missing):
            return len(missing) < len(earlier_missing)
        gain = self.overall_score - other.overall_score
        return gain > 0 and gain > hypot(self.spread, other.spread)


@dataclass(frozen=True, slots=True)
class Reflection:
    """A reflection in the middle of a run."""

    trigger: str
    """Why it took place."""
    text: str
    """The text that went into the conversation; empty if the reflecting model failed."""
    iteration: int
    """The 1-based version that was being made."""
    step: int = 0
    """The number of steps that the model had taken in the conversation; 0 between two versions."""
    usage: TokenUsage = NOTHING_USED
    problem: str = ""
    """Why the reflecting model failed."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation that led to an output, so that a revision can continue it."""

    messages: list[Any] = field(default_factory=list[Any])
    """The messages of the agent's framework, as JSON data, from the first prompt on.

    The messages of a revision include those of the version it revised.
    """
    reflections: tuple[Reflection, ...] = ()
    """The reflections on the way to this output alone."""


Output: TypeAlias = Any
"""A string, a JSON value (dict, list, number, bool), a pydantic model or a data class."""


@keyword_hints()
@dataclass(slots=True)
class Draft(Generic[OutputT]):
    """An output as a generator or reviser returns it, with its usage and how it was made.

    A function may return the plain output instead, or `Draft(text, usage=...)` to report its usage.
    """

    output: OutputT
    usage: TokenUsage = NOT_REPORTED
    improvements: tuple[str, ...] = NO_ITEMS
    """What was changed."""
    strategy: str = "draft"
    notes: tuple[str, ...] = ()
    """Remarks for a reader on how it was made, such as an edit that did not apply."""
    conversation: Conversation | None = None
    """How an agent that uses tools arrived at it."""
    memo: Any = None
    """JSON data of the generator or reviser, stored with the version."""
    evaluation: ReflectionEvaluation | None = None
    """Its evaluation, if it was judged when it was chosen from several candidates."""
    choice: Choice | None = None
    """Why it was chosen from several candidates."""
    model: str = ""
    """The name of the model that wrote it, if reported."""
    advice: tuple[Advice, ...] = ()
    """The advice on earlier failures in its prompt."""

    def usage_by_role(self, role: str) -> Mapping[str, TokenUsage]:
        """The usage of `role` for this draft, and that of the choice and the other candidates."""
        used = {} if self.choice is None else dict(self.choice.usage)
        return used | {role: used.get(role, NOTHING_USED) + self.usage}

    def converted(self, convert: Callable[[Any], Any]) -> Draft:
        """The draft with its output and those of the rejected candidates converted."""
        choice = None if self.choice is None else self.choice.converted(convert)
        return replace(self, output=convert(self.output), choice=choice)


FailureKind: TypeAlias = Literal["check", "judge"]
LengthClass: TypeAlias = Literal["short", "long"]


@dataclass(frozen=True, slots=True)
class Way:
    """The way to revise a version, and the situation in which it was chosen."""

    name: str
    """A revision strategy, or `revise` for a function of the user's."""
    failure: FailureKind
    """Whether only checks had failed, or a judge was not satisfied."""
    length: LengthClass
    """The length of the output to revise."""
    reason: str = ""
    """The evidence for the choice, if earlier revisions decided it."""


@dataclass(slots=True)
class Choice:
    """Why a draft was chosen from several candidates, and the rejected ones."""

    detail: str
    """The reason, in a sentence."""
    numbers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Maps names such as `chosen` or `scores` to JSON data."""
    rejected: tuple[ReflectionVersion, ...] = ()
    """The candidates that were not chosen, judged as far as the choice required."""
    usage: Mapping[str, TokenUsage] = field(default_factory=dict[str, "TokenUsage"])
    """The usage of the rejected candidates and of the choice, by role; the chosen draft has its own."""

    def converted(self, convert: Callable[[Any], Any]) -> Choice:
        """The choice with the outputs of the rejected candidates converted."""
        return replace(self, rejected=tuple(version.converted(convert) for version in self.rejected))


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
    """The usage of making and judging it."""
    strategy: str = "draft"
    """How it was made: `draft`, `given`, `fresh`, `revise`, or a revision strategy."""
    base: int | None = None
    """The iteration that it was revised from."""
    repeats: int | None = None
    """The earlier iteration with exactly the same output, whose evaluation it shares."""
    gain: float | None = None
    """Its score minus the score of the best earlier version judged by the same criteria.

    A gate newly passed counts as 1, a gate that was lost as -1, and a comparison as 0.5, 0 or -0.5. None if
    there is no such version, and for a repeat.
    """
    margin: float = 0.0
    """The margin of error of the gain: a gain within it may be the judge's noise."""
    accepted: bool = False
    """Whether a callback accepted it."""
    conversation: Conversation | None = None
    """Copied from its `Draft`, like `memo`, `choice` and `model`."""
    memo: Any = None
    choice: Choice | None = None
    candidate: int | None = None
    """The 1-based number of a rejected candidate, which has the iteration of the chosen draft."""
    model: str = ""
    way: Way | None = None
    """The way chosen for revising it, if a model could revise in several ways."""

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
        """The version with its output and those of the rejected candidates converted."""
        choice = None if self.choice is None else self.choice.converted(convert)
        return replace(self, output=convert(self.output), choice=choice)

    def for_writer(self) -> ReflectionVersion:
        """The part of the version that the writer may know."""
        evaluation = self.evaluation.for_writer()
        if evaluation is self.evaluation:
            return self
        return replace(self, evaluation=evaluation, choice=None if self.evaluation.shown else self.choice)


def replaces(version: ReflectionVersion, best: ReflectionVersion) -> bool:
    """Whether a version is better than the best version before it."""
    preferred = version.evaluation.preferred
    if preferred is None:
        return version.evaluation.outranks(best.evaluation)
    return preferred == 1.0 and version.repeats is None


def highest(versions: Sequence[ReflectionVersion]) -> ReflectionVersion:
    """Best version; ties keep the earliest."""
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
    - `unjudged`: some criteria could not be judged, and all others are met.
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
    """The values that decided it: names such as `score` or `plateau_iterations`, and JSON data."""


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
    """A finished run: the output to use, the reason why it stopped, and its cost."""

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
    """Remarks on this run: names and sentences."""
    advice: tuple[Advice, ...] = ()
    error: BaseException | None = None
    """The exception that ended the run, if any."""
    reflections: tuple[Reflection, ...] = ()
    """The reflections in the middle of the run."""
    task: PlainTask | None = None
    """None in a result that does not come from a run."""
    stop: Stop | None = None
    """Explains the `convergence_reason`; None in a result that does not come from a run."""
    criteria: tuple[QualityCriterion, ...] = ()
    """The criteria that judged the output, if available in this process."""
    short_of: tuple[str, ...] = ()
    """Each threshold that the best version misses, such as `the score 0.75 < 0.80`."""

    def __repr__(self) -> str:
        best = self.history.best_version
        versions = self.history.total_iterations + 1
        score = render_score(best.evaluation.overall_score).strip()
        reason = self.convergence_reason.value
        return f"<{type(self).__name__} {reason}: version {best.iteration} of {versions}, score {score}>"

    def _repr_html_(self) -> str:
        """The result as HTML, for notebooks."""
        # By name, because `loop` is a higher layer.
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
        lines.append(f"Returned: version {history.best_version.iteration}, {verdict(self)}.")
        lines.append(f"Used: {render_usage(self.token_usage)}, {self.execution_time:.1f} s.")
        lines += [f"Note ({name}): {text}" for name, text in self.diagnostics.items()]
        # A budget is a stop, which the reason and the note about it explain, also when the run is replayed.
        if self.error is not None and not self.convergence_reason.is_budget:
            lines.append(f"Error: {named_error(self.error)}")
        return "\n".join(lines).translate(_CONTROLS)


_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)]) | {ord("\n"): "\n", ord("\t"): "\t"}
"""Control characters, as a table that leaves only line breaks and tabs: texts of models reach a terminal."""


def verdict(result: ReflectionResult) -> str:
    """Say whether the best version is satisfactory, and why not if no issue says it."""
    if result.success:
        return "satisfactory"
    evaluation = result.history.best_version.evaluation
    if evaluation.leaves_nothing_to_revise:
        return "not fully judged"
    return f"not satisfactory{missed_thresholds(result)}"


def missed_thresholds(result: ReflectionResult) -> str:
    """Say after a colon which thresholds the best version misses; empty if an issue says what is wrong."""
    evaluation = result.history.best_version.evaluation
    if result.success or evaluation.failing or evaluation.leaves_nothing_to_revise or not result.short_of:
        return ""
    return f": {'; '.join(result.short_of)}"


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
    repeated = f", same as version {version.repeats}" if version.repeats else ""
    unasked = version.evaluation.unasked
    missing = [name for name in version.evaluation.unjudged if name not in unasked]
    unjudged = f", not judged: {', '.join(map(in_prose, missing))}" if missing else ""
    reasons = _first(version.evaluation.reasons_unjudged)
    if reasons:
        unjudged += f" ({_without_stop(reasons)})" if missing else f", not judged: {reasons}"
    if unasked:
        unjudged += f", {unasked_text(version.evaluation)}"
    score = render_score(version.evaluation.overall_score)
    failed = failures(version.evaluation, with_unjudged=False)
    how = "not chosen" if version.candidate else version.strategy
    preferred = f", {words}" if (words := preference(version)) else ""
    return f"{mark} version {version.name}  {score}  {how}{repeated}{preferred}{unjudged}{failed}"


def why_unasked(evaluation: ReflectionEvaluation) -> str:
    """Say which gates kept the judge from being asked: `gate dated not met`."""
    gates = evaluation.failed_gates
    return f"{'gate' if len(gates) == 1 else 'gates'} {', '.join(map(in_prose, gates))} not met"


def unasked_text(evaluation: ReflectionEvaluation) -> str:
    """Say which criteria were not asked, and why: `not asked: tone (gate dated not met)`."""
    return f"not asked: {', '.join(map(in_prose, evaluation.unasked))} ({why_unasked(evaluation)})"


def in_prose(name: str) -> str:
    """Quote the name of a criterion within a sentence if it has a space or a full stop.

    A pattern keeps its backslashes.
    """
    return repr(name).replace("\\\\", "\\") if " " in name or "." in name else name


def preference(version: ReflectionVersion) -> str:
    """Say how a version compared with the best one before it; empty if they were not compared."""
    preferred = version.evaluation.preferred
    return "" if preferred is None or version.repeats is not None else PREFERRED.get(preferred, "")


PREFERRED = {
    1.0: "preferred to the best before",
    0.5: "not preferred",
    0.0: "worse than the best before",
}


def in_one_line(text: str) -> str:
    """Put a text that may hold literals on one line: line breaks are escaped, other white space stays."""
    return "\\n".join(text.strip().splitlines())


def unwrapped(text: str) -> str:
    """Put prose or code on one line: a line break and the indent after it become one space."""
    return " ".join(filter(None, map(str.strip, text.splitlines())))


def indented(text: str) -> str:
    """Indent all lines of a text but the first, as in an item of a list."""
    return "\n  ".join(text.strip().splitlines())


def joined(messages: Iterable[object]) -> str:
    """Join messages on one line, with semicolons in place of the full stops between them."""
    *lines, last = [in_one_line(str(message)) for message in messages] or [""]
    return "; ".join([*map(_without_stop, lines), last])


def _without_stop(line: str) -> str:
    """Remove the full stop, but not the three dots of a shortened line."""
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


MOST_MESSAGES, LONGEST_MESSAGE = 3, 100


def _first(messages: Sequence[str]) -> str:
    """Render the first messages on one line, and say how many more there are."""
    lines = [joined([message]) for message in messages[:MOST_MESSAGES]]
    first = [
        line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 3].rstrip(' .')}..."
        for line in lines
    ]
    more = len(messages) - MOST_MESSAGES
    return joined([*first, f"and {more} more"] if more > 0 else first)


def render_score(score: float | None) -> str:
    """Render a score with two decimals; an unknown score is a dash."""
    return "  - " if score is None else f"{score:.2f}"


def render_usage(usage: TokenUsage) -> str:
    """Render tokens, calls and cost, such as `1,234 tokens in 2 calls, cost unknown`.

    Usage that was not reported is unknown, not zero.
    """
    if usage == NOT_REPORTED:
        return "tokens and cost not reported"
    cost = "cost unknown" if usage.cost_usd is None else render_usd(usage.cost_usd)
    failed = f" ({usage.failed_requests} failed)" if usage.failed_requests else ""
    calls = "1 call" if usage.requests == 1 else f"{usage.requests} calls"
    return f"{usage.total_tokens:,} tokens in {calls}{failed}, {cost}"


def render_usd(dollars: float) -> str:
    """Render US dollars with four decimals; a cost that would round to nothing becomes `<$0.0001`."""
    return f"${dollars:.4f}" if dollars == 0 or dollars >= SMALLEST_USD else f"<${SMALLEST_USD}"


SMALLEST_USD = 0.0001
