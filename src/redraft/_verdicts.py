"""Read what functions return: outputs as drafts, verdicts as evaluations."""

from __future__ import annotations

import re
from dataclasses import is_dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

from redraft._texts import short_repr
from redraft._validation import is_number
from redraft.errors import OutputError
from redraft.types import Draft, Issue, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_THRESHOLD = 0.8
VERDICTS = (
    "a bool, a number in 0..1, (verdict, reason), a dict with 'valid' or 'score', or a ReflectionEvaluation"
)
OUTPUTS = (str, dict, list, int, float)
NUMBERS = (float, int, Real)  # the common types first: checking against an abstract class is slow
_BOOLS = {"true": True, "false": False}
_NUMBER = r"(\d+(?:\.\d*)?|\.\d+)"
_SCORE = re.compile(rf"{_NUMBER}(?:\s*(?:(%)|(?:/|out of)\s*{_NUMBER}))?")
_REMARK = re.compile(r"[.,;:]?|\s*[(\[].*|[.,;:]?\s[^\d/%]*", re.DOTALL)


def draft_of(value: Any, source: str = "generate") -> Draft:
    """Wrap what a generator or reviser returned in a `Draft`; raises `OutputError` if it is not an output."""
    if isinstance(value, Draft):
        draft = cast("Draft", value)
        _check_output(draft.output, source)
        return draft
    _check_output(value, source)
    return Draft(value)


def _check_output(value: Any, source: str) -> None:
    if isinstance(value, OUTPUTS):
        return
    if isinstance(value, type) or not (hasattr(value, "model_dump_json") or is_dataclass(value)):
        got = value if isinstance(value, type | None) else type(value).__name__
        raise OutputError(
            f"{source} returned {got!r}; expected a string, a JSON value, a pydantic model or a data class."
        )


def evaluation_of(
    value: Any, threshold: float = DEFAULT_THRESHOLD, score_max: float | None = None
) -> ReflectionEvaluation:
    """Turn a verdict into a `ReflectionEvaluation`.

    A verdict is a bool, a number in 0..1, a pair of either and a reason, a `ReflectionEvaluation`, or a
    mapping with `valid` or `score` and, optionally, `reason`, `errors` and `suggestions`. Since models write
    mappings, `valid` may be a text there ("true"), and so may `score` if it says its scale ("0.4", "85/100",
    "85 %"). Numbers above 1 need a `score_max`, here or in the mapping. Raises `OutputError` for anything
    else, including NaN and numbers out of range.
    """
    verdict, reason = value, None
    if isinstance(value, tuple):
        pair: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType] (whatever it holds)
        if len(pair) == 2:  # noqa: PLR2004 (a pair)
            verdict, reason = pair
    if isinstance(verdict, bool):
        score, satisfactory = float(verdict), verdict
    elif isinstance(verdict, NUMBERS):
        score = _within(verdict, score_max or 1.0)
        if score is None:
            raise _out_of_range(verdict, score_max)
        satisfactory = score >= threshold
    elif isinstance(value, ReflectionEvaluation):
        if isinstance(value.overall_score, str):  # unlike in a mapping, it would be kept as a text
            raise OutputError(f"the score is {value.overall_score!r}; expected a number in 0..1")
        if value.overall_score is not None:
            _score_of(value.overall_score, None)
        if value.satisfactory and value.unjudged:  # an unknown never wins
            return replace(value, satisfactory=False, unmet=())
        return value
    elif isinstance(value, dict):
        return _evaluation_of_mapping(cast("Mapping[Any, Any]", value), threshold, score_max)
    else:
        raise OutputError(f"the verdict is {short_repr(value)}; expected {VERDICTS}")
    evaluation = ReflectionEvaluation(score, {}, satisfactory)
    if reason and not satisfactory:
        evaluation.issues = (Issue(str(reason)),)  # set here, since __post_init__ would convert it again
    return evaluation


def _evaluation_of_mapping(
    value: Mapping[Any, Any], threshold: float, score_max: float | None
) -> ReflectionEvaluation:
    valid, score = value.get("valid"), value.get("score")
    if valid is None and score is None:
        raise OutputError(f"the verdict {short_repr(value)} has neither 'valid' nor 'score'")
    if isinstance(valid, str):
        valid = _BOOLS.get(valid.strip().lower(), valid)
    if valid is not None and not isinstance(valid, bool):
        raise OutputError(f"the verdict's 'valid' is {short_repr(valid)}; expected true or false")
    declared = value.get("score_max")
    if declared is not None and (not is_number(declared) or declared <= 0):
        raise OutputError(f"the verdict's 'score_max' is {short_repr(declared)}; expected a number above 0")
    scale = score_max if declared is None else float(declared)
    number = _score_of(score, scale) if score is not None else (1.0 if valid else 0.0)
    satisfactory = number >= threshold if valid is None else valid
    problems = _texts(value.get("errors"))
    if not satisfactory and not problems:
        problems = _texts(value.get("reason"))
    issues = tuple(Issue(text) for text in problems)
    return ReflectionEvaluation(number, {}, satisfactory, issues, _texts(value.get("suggestions")))


def _score_of(value: Any, score_max: float | None) -> float:
    score = share_of(value, score_max)
    if score is not None:
        return score
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        raise OutputError(f"the score is {short_repr(value)}; expected a number in 0..1")
    raise _out_of_range(value, score_max)


def share_of(value: Any, score_max: float | None = None) -> float | None:
    """Scale a score to 0..1; return None if it is not a score or its scale is unknown.

    A score is a number in 0..`score_max` (1 if not declared), or a text: such a number, a fraction ("9/10")
    or a percentage ("90 %").
    """
    if isinstance(value, str):
        found = _SCORE.fullmatch(value.strip())
        return None if found is None else _share_in(found, score_max)
    if isinstance(value, bool) or not isinstance(value, NUMBERS):
        return None
    return _within(value, score_max or 1.0)


def leading_share_of(text: str) -> float | None:
    """Return the score at the start of a line of prose ("0.85 (good)", "9/10, mostly clear"), or None.

    Another number may follow only in brackets.
    """
    found = _SCORE.match(text)
    if found is None or _REMARK.fullmatch(text, found.end()) is None:
        return None
    return _share_in(found, None)


def _share_in(found: re.Match[str], score_max: float | None) -> float | None:
    number, percent, most = found.groups()
    scale = 100.0 if percent else float(most) if most else (score_max or 1.0)
    return _within(float(number), scale)


def _within(number: Any, scale: float) -> float | None:
    # An integer may be too large for a float, and NaN is in no range.
    return float(number) / scale if scale > 0 and 0 <= number <= scale else None


def _out_of_range(score: Any, score_max: float | None) -> OutputError:
    scaled = f"{{'score': {short_repr(score)}, 'score_max': 100}}"
    hint = (
        f"; declare another scale with score_max, as in {scaled}" if score_max is None and score > 1 else ""
    )
    return OutputError(f"the score is {short_repr(score)}; expected a number in 0..{score_max or 1:g}{hint}")


def _texts(value: Any) -> tuple[str, ...]:
    if value is None or value == "":
        return ()
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return (str(value),)
