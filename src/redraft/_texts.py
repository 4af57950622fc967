"""Render outputs, scores, counts and times as text; shorten, copy and measure them."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin

from redraft._codec import json_form
from redraft._validation import readable, repr_of
from redraft.types import (
    Choice,
    Conversation,
    Draft,
    ReflectionEvaluation,
    ReflectionResult,
    ReflectionVersion,
    in_one_line,
    in_prose,
    unwrapped,
    why_unasked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from datetime import tzinfo

    from redraft.types import Output

LONGEST_REPR = 80
"""The maximum length of a value within a message, in characters."""

SHORT_TEXT = 1500
"""The length, in characters, up to which rewriting a text costs no more than editing it."""


def as_text(output: Output, indent: int | None = 2) -> str:
    """Render an output as text: a string unchanged, other values as JSON or a `repr` without addresses.

    `indent=None` renders a single line, in a tenth of the time.
    """
    if isinstance(output, str):
        return output
    if (source := source_of(output)) is not None:
        return json.dumps(source, ensure_ascii=False, indent=indent)
    try:
        if hasattr(output, "model_dump_json"):  # a pydantic model, recognised without importing pydantic
            return output.model_dump_json(indent=indent, by_alias=True)
        return json.dumps(output, ensure_ascii=False, indent=indent, default=_json_or_text)
    except (TypeError, ValueError):  # keys or values without a JSON form, or a value inside itself
        return without_addresses(repr_of(output))


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Remove memory addresses, which differ from run to run."""
    return _ADDRESS.sub("", text)


def is_short(output: Output) -> bool:
    """Whether writing an output anew costs no more than editing it."""
    return len(as_text(output)) <= SHORT_TEXT


def json_data(output: Output) -> Any:
    """Convert an output to JSON data: the JSON that a model wrote, or else its serialisation.

    Raises `ValueError` for a value without a JSON form.
    """
    if (source := source_of(output)) is not None:
        return source
    return json_form(output, by_alias=True)


def _json_or_text(value: object) -> Any:
    if isinstance(value, set | frozenset):  # its order differs from process to process
        return sorted(cast("set[Any]", value), key=repr_of)
    try:
        return json_data(value)
    except ValueError:
        return without_addresses(readable(value))


_sources: ContextVar[dict[int, tuple[Any, Any]] | None] = ContextVar("sources", default=None)
"""Outputs of the run with their sources, by the `id` of the output. The output keeps its `id` valid."""


@contextmanager
def remembering_sources() -> Generator[None]:
    """Remember the sources of outputs until the end of the block."""
    outside = _sources.set({})
    try:
        yield
    finally:
        _sources.reset(outside)


def remember_source(output: Output, source: Any) -> None:
    """Remember the JSON data that an output was validated from.

    With aliases, serialisers or validators that change a value, the class could not validate its own dump.
    """
    sources = _sources.get()
    if sources is not None and not isinstance(output, _SCALARS):
        sources[id(output)] = output, source


def source_of(output: Output) -> Any:
    """The JSON data that an output was validated from, if remembered."""
    sources = _sources.get()
    remembered = None if sources is None else sources.get(id(output))
    return None if remembered is None else remembered[1]


MINUTE, HOUR, DAY = 60, 3600, 86400
"""Seconds."""


def ago(at: datetime, now: datetime | None = None, zone: tzinfo | None = None) -> str:
    """Say how long ago something was; after a week, its date in a `zone`, by default the local one."""
    passed = ((now or datetime.now(UTC)) - at).total_seconds()
    if passed < MINUTE:
        return "just now"
    for unit, length, most in (("min", MINUTE, HOUR), ("h", HOUR, DAY), ("d", DAY, 7 * DAY)):
        if passed < most:
            return f"{int(passed / length)} {unit} ago"
    return f"{at.astimezone(zone):%Y-%m-%d}"


def shortened(text: str, most: int) -> str:
    """Shorten a text to one line of at most `most` characters, such as a title.

    A line break becomes a space; of a text with literals, `clipped` escapes it.
    """
    line = unwrapped(text)
    return line if len(line) <= most else f"{line[: most - 3]}..."


def clipped(text: str, most: int) -> str:
    """Shorten a text with literals to one line of at most `most` characters; line breaks are escaped."""
    return shortened(in_one_line(text), most)


def short_repr(value: Any, most: int = LONGEST_REPR) -> str:
    """The `repr` of a value in at most `most` characters, for a message."""
    text = repr_of(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def type_name(kind: Any) -> str:
    """Name of a type as in source code, such as `list[Order]`."""
    base = getattr(get_origin(kind) or kind, "__name__", None) or short_repr(kind)
    inner = ", ".join(map(type_name, get_args(kind)))
    return f"{base}[{inner}]" if inner else base


def key_of(output: Output) -> object:
    """Key for comparing outputs; the number 1 and the text "1" differ."""
    return output if isinstance(output, str) else (output.__class__, as_text(output, indent=None))


def copy_of(output: Output) -> Output:
    """Copy an output, so that changes to it do not reach the history."""
    if output.__class__ in _IMMUTABLE or isinstance(output, _SCALARS):
        return output
    try:
        copy = _copied(output)
    except RecursionError:  # it contains itself
        copy = deepcopy(output)
    if (source := source_of(output)) is not None:
        remember_source(copy, source)
    return copy


_SCALARS = (str, int, float)
_IMMUTABLE = frozenset({str, int, float, bool, NoneType})


def _copied(value: Any) -> Any:
    """Copy JSON data five times as fast as `deepcopy`, which tracks every object that it has seen."""
    kind = value.__class__
    if kind is dict:
        return {key: item if item.__class__ in _IMMUTABLE else _copied(item) for key, item in value.items()}
    if kind is list:
        return [item if item.__class__ in _IMMUTABLE else _copied(item) for item in value]
    return deepcopy(value)


def snapshot(value: Any) -> Any:
    """Copy a value that a run passes to the user's code, so that changes there do not reach the history.

    Versions, evaluations, drafts, conversations and results are copied with everything mutable in them; other
    values are returned as they are.
    """
    kind = value.__class__
    if kind is tuple:
        return tuple([snapshot(item) for item in value])
    if kind is ReflectionResult:
        return _result(value)
    mutable = _MUTABLE.get(kind)
    return value if mutable is None else _replaced(value, mutable)


def _replaced(value: T, copies: Mapping[str, Callable[[Any], Any]]) -> T:
    """Do what `dataclasses.replace` does without checks and conversions, in a fifth of the time."""
    new, put = object.__new__(type(value)), object.__setattr__
    names: tuple[str, ...] = cast("Any", value).__slots__
    for name in names:
        part = getattr(value, name)
        put(new, name, copies[name](part) if name in copies else part)
    return new


T = TypeVar("T")
_OF_DRAFT: dict[str, Callable[[Any], Any]] = {
    "output": copy_of,
    "evaluation": snapshot,
    "conversation": snapshot,
    "memo": copy_of,
    "choice": snapshot,
}
_MUTABLE: dict[type[Any], dict[str, Callable[[Any], Any]]] = {
    Draft: _OF_DRAFT,
    ReflectionVersion: _OF_DRAFT,
    ReflectionEvaluation: {"criteria_scores": dict, "memo": copy_of},
    Choice: {"numbers": lambda numbers: copy_of(dict(numbers)), "rejected": snapshot, "usage": dict},
    Conversation: {"messages": copy_of},
}
"""The fields of a class that may be changed, with the functions that copy them."""


def _result(result: ReflectionResult) -> ReflectionResult:
    """Copy a result, whose best version is one of the versions of its history."""
    history = result.history
    copies = {id(version): snapshot(version) for version in history.versions}
    best, final = (
        copies.get(id(version)) or snapshot(version)
        for version in (history.best_version, history.final_version)
    )
    history = replace(history, versions=tuple(copies.values()), best_version=best, final_version=final)
    return replace(
        result,
        best_output=best.output,
        final_output=final.output,
        final_evaluation=final.evaluation,
        history=history,
        usage_by_role=dict(result.usage_by_role),
        diagnostics=dict(result.diagnostics),
    )


BYTES_PER_TOKEN = 3.6  # the mean of o200k and the Qwen tokenizers on English prose and Python


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text; for text that is not ASCII, the estimate errs on the high side."""
    return 0 if not text else max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))


def compared(number: float, sign: str, bound: float) -> str:
    """Render `0.92 >= 0.80`, with enough digits to distinguish different numbers."""
    for digits in range(2, 6):
        left, right = f"{number:.{digits}f}", f"{bound:.{digits}f}"
        if left != right or number == bound:
            return f"{left} {sign} {right}"
    return f"{number!r} {sign} {bound!r}"


def scored(version: ReflectionVersion) -> str:
    """Render a version's score, and the criteria that it does not cover."""
    score, missing = version.evaluation.overall_score, version.evaluation.unjudged
    if score is None:
        return "not judged"
    return f"{score:.2f} without {listed_names(missing)}" if missing else f"{score:.2f}"


def shortfalls(
    evaluation: ReflectionEvaluation, threshold: float | None, thresholds: Mapping[str, float]
) -> tuple[str, ...]:
    """A clause for each threshold that an evaluation misses; none if it is satisfactory.

    `thresholds` has the threshold of each criterion.
    """
    if evaluation.satisfactory:
        return ()
    clauses: list[str] = []
    if evaluation.overall_score is None:
        clauses.append("the score is not known")
    elif threshold is not None and evaluation.overall_score < threshold:
        clauses.append(f"the score {compared(evaluation.overall_score, '<', threshold)}")
    for name, least in thresholds.items():
        score = evaluation.criteria_scores.get(name, least)
        if name in evaluation.unasked:
            clauses.append(f"{in_prose(name)} was not asked ({why_unasked(evaluation)})")
        elif score is None:
            clauses.append(f"{in_prose(name)} could not be judged")
        elif score < least:
            clauses.append(f"{in_prose(name)} {compared(score, '<', least)}")
    return tuple(clauses)


def has_no_criteria(version: ReflectionVersion) -> bool:
    """Whether a version passed because there were no criteria to judge it by."""
    evaluation = version.evaluation
    return evaluation.satisfactory and evaluation.overall_score is None and not evaluation.criteria_scores


def verdict_of(evaluation: ReflectionEvaluation) -> str:
    """Complete a sentence such as "version 2, which " with the verdict."""
    if evaluation.satisfactory:
        return "meets the criteria"
    return "was not fully judged" if evaluation.leaves_nothing_to_revise else "does not meet the criteria"


def listed(things: Sequence[str], conjunction: str = "and") -> str:
    """Join words as in a sentence: `a`, `a and b`, `a, b and c`."""
    *most, last = things or ("none",)
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def abridged(names: Sequence[str], most: int) -> str:
    """The first names, and the number of the others: `a, b and 3 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def listed_names(names: Iterable[str]) -> str:
    """Join the names of criteria as in a sentence; names with spaces are quoted."""
    return listed([in_prose(name) for name in names])


def sized(size: int) -> str:
    """Render a number of bytes: `950 bytes`, `1.5 MB`."""
    for unit, scale in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def limits_in_words(least: int | None, most: int | None) -> str:
    """Render limits, of which one may be missing: `at most 5`, `exactly 5`, `1 to 5`."""
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"exactly {most}" if least == most else f"{least} to {most}"


def counted(number: int, thing: str) -> str:
    """Render a count: `1 version`, `2 versions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
