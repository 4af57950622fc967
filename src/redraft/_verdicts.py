"""Normalise the results of functions: outputs to drafts, verdicts to evaluations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from functools import partial
from math import inf
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar, cast

from redraft._texts import copy_of, short_repr, snapshot
from redraft._validation import MOST, is_number, named_error, readable
from redraft.errors import OutputError
from redraft.types import (
    NOT_REPORTED,
    NOTHING_USED,
    Advice,
    Choice,
    Conversation,
    Draft,
    FrozenList,
    Issue,
    Reflection,
    ReflectionEvaluation,
    ReflectionVersion,
    TokenUsage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
D = TypeVar("D", ReflectionEvaluation, Draft[Any], Choice, Conversation)

DEFAULT_THRESHOLD = 0.8
VERDICTS = (
    "a bool, a number in 0..1, (verdict, reason), a dict with 'valid' or 'score', or a ReflectionEvaluation"
)
OUTPUTS = (str, dict, list, int, float)
NUMBERS = (float, int, Real)  # the common types first: checking against an abstract class is slow
LISTS = (str, list, tuple)
_BOOLS = {"true": True, "false": False}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SCORE = re.compile(rf"{_NUMBER}(?:\s*(?:(%)|(?:/|out of)\s*{_NUMBER}))?")
_REMARK = re.compile(r"[.,;:]?|\s*[(\[].*|[.,;:]?\s[^\d/%]*", re.DOTALL)


def draft_of(value: Any, source: str = "generate") -> Draft:
    """Normalise the result of a generator or reviser to a `Draft`.

    Raises `OutputError`, with the usage of the draft, for a value that is not an output or can't be copied,
    such as one with a lock in it, and for a draft with an invalid field.
    """
    try:
        return _checked_draft(value, source)
    except OutputError as error:
        if isinstance(value, Draft):
            with suppress(TypeError, ValueError):  # the usage may be what is invalid
                error.usage = usage_of(cast("Draft", value).usage)
        raise


def _checked_draft(value: Any, source: str) -> Draft:
    draft = cast("Draft", value) if isinstance(value, Draft) else Draft(value)
    output = draft.output
    if not isinstance(output, OUTPUTS) and (
        isinstance(output, type) or not (hasattr(output, "model_dump_json") or is_dataclass(output))
    ):
        got = output if isinstance(output, type | None) else type(output).__name__
        raise OutputError(
            f"{source} returned {got!r}; expected a string, a JSON value, a pydantic model or a data class."
        )
    is_draft = draft is value
    if is_draft:
        draft = _normalised(draft, f"the draft of {source}")
    try:  # the run copies it at each step
        if is_draft:
            snapshot(draft)
        else:
            copy_of(output)
    except Exception as error:  # a class in it may raise anything
        why = f"which can't be copied ({named_error(error)}); return data alone"
        raise OutputError(f"{source} returned {short_repr(output)}, {why}.") from error
    return draft


def evaluation_of(
    value: Any, threshold: float = DEFAULT_THRESHOLD, score_max: float | None = None
) -> ReflectionEvaluation:
    """Normalise a verdict to a new `ReflectionEvaluation`.

    A verdict is a bool, a number in 0..1, a pair of either and a reason, a `ReflectionEvaluation`, or a
    mapping with `valid` (or `pass`, `passed`) or `score` and, optionally, `reason`, `errors` (or `issues`)
    and `suggestions`; or a mapping with the fields of an evaluation, from `overall_score` to `confidence`.
    Scalars of NumPy count as Python's. Since models write mappings, the case of the keys does not matter,
    `valid` may be a string ("true"), and so may `score` if its scale is clear ("0.4", "85/100", "85 %").
    Numbers above 1 need a `score_max`, here or in the mapping. Raises `OutputError` for other values,
    including NaN and numbers out of range.
    """
    verdict, reason = value, None
    if isinstance(value, tuple):
        pair: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] (items of any type)
        if len(pair) == 2:  # noqa: PLR2004 (a pair)
            verdict, reason = pair
    verdict = plain_scalar(verdict)
    if isinstance(verdict, bool):
        score, satisfactory = float(verdict), verdict
    elif isinstance(verdict, NUMBERS):
        score = _within(verdict, score_max or 1.0)
        if score is None:
            raise _out_of_range(verdict, score_max)
        satisfactory = score >= threshold
    elif isinstance(value, ReflectionEvaluation):
        return normalised_evaluation(value)
    elif isinstance(value, Mapping):
        return _evaluation_of_mapping(cast("Mapping[Any, Any]", value), threshold, score_max)
    else:
        raise OutputError(f"the verdict is {short_repr(value)}; expected {VERDICTS}")
    evaluation = ReflectionEvaluation(score, {}, satisfactory)
    if reason and not satisfactory:  # set here, because __post_init__ would look at each issue again
        evaluation.issues = FrozenList(_issues(reason if isinstance(reason, LISTS) else readable(reason)))
    return evaluation


def plain_scalar(value: Any) -> Any:
    """Convert a scalar of NumPy, or an array without dimensions, to the type of Python."""
    if getattr(value, "shape", None) == () and hasattr(value, "dtype") and hasattr(value, "item"):
        return value.item()
    return value


def normalised_evaluation(evaluation: ReflectionEvaluation) -> ReflectionEvaluation:
    """Copy an evaluation made by user code, with every field of its declared type.

    None becomes the default, a single string a list, and strings become issues. Raises `OutputError`, which
    names the field, for any other invalid value.
    """
    copy = _normalised(evaluation, "the evaluation")
    if copy.satisfactory and copy.unjudged:  # an unknown never wins
        return replace(copy, satisfactory=False, unmet=())
    return copy


def _normalised(value: D, owner: str) -> D:
    """Copy a data class with the fields that its readers return; None becomes the default."""
    blank, readers = next(known for kind, known in _FIELDS.items() if isinstance(value, kind))
    fields: dict[str, Any] = {}
    for name, read in readers.items():
        raw = getattr(value, name)
        plain = getattr(blank, name) if raw is None else plain_scalar(raw)
        try:
            fields[name] = None if plain is None else read(plain)
        except (TypeError, ValueError) as error:
            raise OutputError(f"{name} of {owner} is {short_repr(raw)}; expected {error}") from None
    return replace(value, **fields)


# Readers of single fields: each returns the value to store, or raises an error with the expected value.


def _share(value: Any) -> float:
    share = None if isinstance(value, bool) or not isinstance(value, NUMBERS) else _within(value, 1.0)
    if share is None:
        raise ValueError("a number in 0..1")
    return share


def _not_negative(value: Any) -> float:
    if not is_number(value) or value < 0:
        raise ValueError("a number of at least 0")
    return float(value)


def _flag(value: Any) -> bool:
    if isinstance(value, str):
        value = _BOOLS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise TypeError("True or False")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a text")
    return value


def _scores(value: Any) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for name, score in _pairs(value, "a mapping of names to numbers in 0..1, or to None"):
        number = plain_scalar(score)
        try:
            is_bool = isinstance(number, bool)
            scores[name] = None if number is None else float(number) if is_bool else _share(number)
        except ValueError as error:
            raise ValueError(f"{error} or None for {name!r}, got {short_repr(score)}") from None
    return scores


def _pairs(value: Any, expected: str) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise TypeError(expected)
    items = cast("Mapping[Any, Any]", value).items()
    if not all(isinstance(name, str) for name, _ in items):
        raise TypeError(f"{expected}; a name is a text")
    return [(str(name), item) for name, item in items]


def _samples(value: Any) -> tuple[dict[str, float], ...]:
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise TypeError("a list of mappings of names to scores")
    samples = [_scores(sample) for sample in cast("Iterable[Any]", value)]
    return tuple({name: score for name, score in sample.items() if score is not None} for sample in samples)


def _shown(value: Any) -> dict[str, Any] | None:
    """Names of criteria with their `QualityCriterion.shown`."""
    expected = "a mapping of names to True, False or 'description', or None"
    pairs = dict(_pairs(value, expected))
    if not all(isinstance(shown, bool) or shown == "description" for shown in pairs.values()):
        raise ValueError(expected)
    return pairs or None


def _texts(value: Any) -> tuple[str, ...]:
    """Convert a string, or a list of strings, to a tuple; an object stands for the text in it."""
    return tuple(text for item in _items(value, "a list of texts") if (text := message_of(item)))


def _items(value: Any, expected: str) -> Iterable[Any]:
    """The items of a list; a single string or object is the only item."""
    if value is None or value == "":
        return ()
    if isinstance(value, str | Mapping):
        return (cast("Any", value),)
    if not isinstance(value, Iterable):
        raise TypeError(expected)
    return cast("Iterable[Any]", value)


def _issues(value: Any) -> tuple[Issue, ...]:
    if value.__class__ is str:  # as almost always
        return (Issue(value),) if value else ()
    return tuple(issue for item in _items(value, "a list of issues or texts") if (issue := _issue(item)))


def _issue(item: Any) -> Issue:
    if isinstance(item, Issue):
        for name, kind in (("criterion", str), ("path", str), ("line", int), ("number", int)):
            part = getattr(item, name)
            if part is not None and not isinstance(part, kind):
                expected = "a text" if kind is str else "a whole number"
                raise TypeError(f"an issue whose {name} is {expected}, got {part!r}")
        return item
    fields = cast("Mapping[str, Any]", item if isinstance(item, Mapping) else {})
    criterion, path, line = (fields.get(name) for name in ("criterion", "path", "line"))
    return Issue(
        message_of(item),
        criterion if isinstance(criterion, str) and criterion else None,
        path if isinstance(path, str) and path else None,
        line if isinstance(line, int) and not isinstance(line, bool) else None,
    )


MESSAGES = ("message", "description", "text", "issue", "problem", "error", "comment", "detail", "reason")
"""The usual keys of the message in an object."""


def message_of(item: Any) -> str:
    """The text of an item of a list: the item itself, or the message in an object."""
    if not isinstance(item, Mapping):
        return "" if item is None else readable(item)
    fields = fields_of(cast("Any", item))
    for key in (*MESSAGES, "suggestion", "title"):
        if isinstance(text := fields.get(key), str) and text.strip():
            return text.strip()
    return json.dumps(fields, ensure_ascii=False, default=str) if fields else ""


_KEY_PARTS = re.compile(r"[\W_]+")
ZERO_WIDTH: dict[int, None] = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF))
"""Characters without a width, as a table for `str.translate` that removes them."""


def key_name(key: Any) -> str:
    """Normalise a key to lower case, with underscores for everything but letters and digits."""
    return _KEY_PARTS.sub("_", str(key).translate(ZERO_WIDTH).casefold()).strip("_")


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of an object in a model's reply, by `key_name`; empty for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return {key_name(key): item for key, item in cast("Mapping[Any, Any]", value).items()}


def usage_of(value: Any) -> TokenUsage:
    """Normalise reported usage to Python's numbers; tokens without a call count as one call.

    Raises `TypeError` or `ValueError` with the expected value.
    """
    if not isinstance(value, TokenUsage):
        raise TypeError("a TokenUsage")
    if value is NOTHING_USED or value is NOT_REPORTED:
        return value
    counts: dict[str, int] = {}
    for name in ("input_tokens", "output_tokens", "cached_tokens", "requests", "failed_requests"):
        count = plain_scalar(getattr(value, name))
        if isinstance(count, bool) or not isinstance(count, Integral) or not 0 <= int(count) <= MOST:
            raise ValueError(f"a TokenUsage whose {name} is a whole number in 0..{MOST:,}")
        counts[name] = int(count)
    cost = plain_scalar(value.cost_usd)
    usage = TokenUsage(**counts, cost_usd=None if cost is None else _not_negative(cost))
    has_calls = usage.requests or usage.failed_requests
    return replace(usage, requests=1) if usage.total_tokens and not has_calls else usage


def advice_of(value: Any) -> tuple[Advice, ...]:
    """Advice as an advisor returned it; raises `TypeError` that says what was expected."""
    return _items_of(Advice, value)


def _items_of(kind: type[T], value: Any) -> tuple[T, ...]:
    items = cast("list[Any]", value)
    if not isinstance(value, list | tuple) or not all(isinstance(item, kind) for item in items):
        raise TypeError(f"a list of {kind.__name__}, got {short_repr(value)}")
    return tuple(items)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TypeError("a list")
    return list(cast("Iterable[Any]", value))


def _instance_of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"a {kind.__name__} or None")
    return value


_FIELDS: dict[type[Any], tuple[Any, dict[str, Callable[[Any], Any]]]] = {
    ReflectionEvaluation: (
        ReflectionEvaluation(None),
        {
            "overall_score": _share,
            "criteria_scores": _scores,
            "satisfactory": _flag,
            "issues": _issues,
            "suggestions": _texts,
            "confidence": _share,
            "spread": _not_negative,
            "samples": _samples,
            "agreement": _share,
            "repeats_itself": _flag,
            "preferred": _share,
            "gates_passed": _flag,
            "failed_gates": _texts,
            "usage": usage_of,
            "memo": copy_of,
            "generated": _texts,
            "meets_given": _flag,
            "shown": _shown,
            "opinions": _texts,
            "unmet": _texts,
        },
    ),
    Draft: (
        Draft(""),
        {
            "usage": usage_of,
            "improvements": _texts,
            "strategy": lambda value: _text(value) or "draft",
            "notes": _texts,
            "conversation": lambda value: _normalised(_instance_of(Conversation, value), "the conversation"),
            "evaluation": lambda value: normalised_evaluation(_instance_of(ReflectionEvaluation, value)),
            "choice": lambda value: _normalised(_instance_of(Choice, value), "the choice"),
            "model": _text,
            "advice": advice_of,
        },
    ),
    Choice: (
        Choice(""),
        {
            "detail": _text,
            "numbers": lambda value: dict(_pairs(value, "a mapping of names")),
            "rejected": partial(_items_of, ReflectionVersion),
            "usage": lambda value: {
                role: usage_of(used) for role, used in _pairs(value, "a mapping of roles")
            },
        },
    ),
    Conversation: (
        Conversation(),
        {
            "messages": _list,
            "reflections": partial(_items_of, Reflection),
        },
    ),
}
"""The classes that user code makes: an instance with defaults, and the readers of their fields."""


def _evaluation_of_mapping(
    value: Mapping[Any, Any], threshold: float, score_max: float | None
) -> ReflectionEvaluation:
    fields = {key_name(key): plain_scalar(item) for key, item in value.items()}
    is_evaluation = "overall_score" in fields
    score = fields.get("score")
    if is_evaluation:
        if score is not None and score != fields["overall_score"]:
            both = "'score' and 'overall_score'"
            raise OutputError(f"the verdict {short_repr(value)} contradicts itself in {both}")
        score = fields["overall_score"]
    decisions = {name: fields[name] for name in DECISIONS if fields.get(name) is not None}
    if score is None and not decisions and not is_evaluation:
        raise OutputError(f"the verdict {short_repr(value)} has neither 'valid' nor 'score'")
    valid: bool | None = None
    for name, raw in decisions.items():
        decision = _BOOLS.get(raw.strip().lower(), raw) if isinstance(raw, str) else raw
        if not isinstance(decision, bool):
            raise OutputError(f"the verdict's {name!r} is {short_repr(raw)}; expected true or false")
        if valid is not None and valid is not decision:
            keys = " and ".join(map(repr, decisions))
            raise OutputError(f"the verdict {short_repr(value)} contradicts itself in {keys}")
        valid = decision
    if isinstance(score, bool):
        if valid is not None and valid is not score:
            raise OutputError(f"the verdict {short_repr(value)} contradicts itself in 'score' and 'valid'")
        valid, score = score, None
    declared = fields.get("score_max")
    if declared is not None and (not is_number(declared) or declared <= 0):
        raise OutputError(f"the verdict's 'score_max' is {short_repr(declared)}; expected a number above 0")
    scale = score_max if declared is None else float(declared)
    is_unknown = is_evaluation and fields["overall_score"] is None
    number = None if is_unknown else 1.0 if valid else 0.0
    if score is not None:
        number = _score_of(score, scale)
    satisfactory = number is not None and number >= threshold if valid is None else valid
    problems = _issues(fields.get("errors")) or _issues(fields.get("issues"))
    if not satisfactory and not problems:
        reason = next((fields[key] for key in REASONS if fields.get(key)), None)
        problems = _issues(reason)
    suggestions = _texts(fields.get("suggestions"))
    evaluation = ReflectionEvaluation(number, {}, satisfactory, problems, suggestions)
    if not is_evaluation:
        return evaluation
    scores, confidence = fields.get("criteria_scores"), fields.get("confidence")
    return normalised_evaluation(replace(evaluation, criteria_scores=scores, confidence=confidence))


DECISIONS = ("valid", "pass", "passed", "satisfactory")
"""The keys in a mapping for whether an output is good enough."""
REASONS = ("reason", "comment", "explanation", "feedback")


def _score_of(value: Any, score_max: float | None) -> float:
    score = share_of(value, score_max)
    if score is not None:
        return score
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        raise OutputError(f"the score is {short_repr(value)}; expected a number in 0..1")
    raise _out_of_range(value, score_max)


def share_of(value: Any, score_max: float | None = None) -> float | None:
    """Scale a score to 0..1; None if it is not a score or its scale is unknown.

    A score is a number in 0..`score_max` (1 if not declared), or a string: such a number, a fraction ("9/10")
    or a percentage ("90 %").
    """
    if isinstance(value, str):
        match = _SCORE.fullmatch(value.strip())
        return None if match is None else _share_in(match, score_max)
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        return None
    return _within(value, score_max or 1.0)


def leading_share_of(text: str) -> float | None:
    """The score at the start of a line of prose ("0.85 (good)", "9/10, mostly clear"), or None.

    Another number may follow only in brackets.
    """
    match = _SCORE.match(text)
    if match is None or _REMARK.fullmatch(text, match.end()) is None:
        return None
    return _share_in(match, None)


def _share_in(match: re.Match[str], score_max: float | None) -> float | None:
    number, percent, most = match.groups()
    scale = 100.0 if percent else float(most) if most else (score_max or 1.0)
    return _within(float(number), scale)


def _within(number: Any, scale: float) -> float | None:
    # An integer may be too large for a float, NaN is in no range, and a long text may be an infinite scale.
    return float(number) / scale if 0 < scale < inf and 0 <= number <= scale else None


def _out_of_range(score: Any, score_max: float | None) -> OutputError:
    scaled = f"{{'score': {short_repr(score)}, 'score_max': 100}}"
    hint = (
        f"; declare another scale with score_max, as in {scaled}" if score_max is None and score > 1 else ""
    )
    return OutputError(f"the score is {short_repr(score)}; expected a number in 0..{score_max or 1:g}{hint}")
