"""Render outputs, scores, counts and times as text; shorten, copy and measure them."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from datetime import UTC, datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_origin

from redraft.types import (
    Choice,
    Conversation,
    Draft,
    ReflectionEvaluation,
    ReflectionResult,
    ReflectionVersion,
    in_prose,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from datetime import tzinfo

    from redraft.types import Output

SHOWN = 80
"""The most characters of a value within a message."""

SHORT_TEXT = 1500
"""Characters up to which rewriting a text costs no more than editing it."""


def as_text(output: Output, indent: int | None = 2) -> str:
    """Render an output as text: a string as it is, anything else as JSON, or failing that its `repr`.

    `indent=None` renders a single line, in a tenth of the time.
    """
    if isinstance(output, str):
        return output
    if (source := source_of(output)) is not None:
        return json.dumps(source, ensure_ascii=False, indent=indent)
    if hasattr(output, "model_dump_json"):  # a pydantic model, recognised without importing pydantic
        return output.model_dump_json(indent=indent, by_alias=True)
    try:
        return json.dumps(output, ensure_ascii=False, indent=indent, default=_json_or_text)
    except (TypeError, ValueError):  # keys that are not strings, or a value that contains itself
        return repr(output)


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def without_addresses(text: str) -> str:
    """Return a text without the addresses of objects in memory, which differ from run to run."""
    return _ADDRESS.sub("", text)


def is_short(output: Output) -> bool:
    """Say whether writing an output anew costs no more than editing it."""
    return len(as_text(output)) <= SHORT_TEXT


def json_data(output: Output) -> Any:
    """Return an output as JSON data: as a model wrote it, else with its models and times as they are written.

    Raises `ValueError` for what has no JSON form.
    """
    if (source := source_of(output)) is not None:
        return source
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 (texts do not need it)

    return to_jsonable_python(output, by_alias=True)


def _json_or_text(value: object) -> Any:
    try:
        return json_data(value)
    except ValueError:
        return str(value)


_sources: ContextVar[dict[int, tuple[Any, Any]] | None] = ContextVar("sources", default=None)
"""Outputs of the run and their sources, by the `id` of the output, which stays valid with it."""


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

    An output need not have a form in JSON from which its class would validate it again: with aliases,
    serialisers or validators that change a value, its dump is something else.
    """
    sources = _sources.get()
    if sources is not None and not isinstance(output, _SCALARS):
        sources[id(output)] = output, source


def source_of(output: Output) -> Any:
    """Return the JSON data that an output was validated from; None if that is not remembered."""
    sources = _sources.get()
    found = None if sources is None else sources.get(id(output))
    return None if found is None else found[1]


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
    """Return a text as one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def short_repr(value: Any, most: int = SHOWN) -> str:
    """Return the `repr` of a value in at most `most` characters, to fit into a message."""
    text = repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def type_name(kind: Any) -> str:
    """Name of a type as it is written, such as `list[Order]`."""
    base = getattr(get_origin(kind) or kind, "__name__", None) or short_repr(kind)
    inner = ", ".join(map(type_name, get_args(kind)))
    return f"{base}[{inner}]" if inner else base


def key_of(output: Output) -> object:
    """Return what only identical outputs share; the number 1 and the text "1" are different."""
    return output if isinstance(output, str) else (output.__class__, as_text(output, indent=None))


def copy_of(output: Output) -> Output:
    """Copy an output, so that a function that changes it does not change the history."""
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
    """Copy JSON data, five times as fast as `deepcopy`, which keeps track of all that it has seen."""
    kind = value.__class__
    if kind is dict:
        return {key: item if item.__class__ in _IMMUTABLE else _copied(item) for key, item in value.items()}
    if kind is list:
        return [item if item.__class__ in _IMMUTABLE else _copied(item) for item in value]
    return deepcopy(value)


def snapshot(value: Any) -> Any:
    """Copy what a run hands to somebody else's code, so that a change there does not rewrite its history.

    Versions, evaluations, drafts, attempts and results are copied with all that can be changed in them;
    anything else is returned as it is.
    """
    kind = cast("type[Any]", type(value))
    copy = _SNAPSHOTS.get(kind)
    return value if copy is None else copy(value)


T = TypeVar("T")
D = TypeVar("D", Draft[Any], ReflectionVersion[Any])


def _replaced(one: T, **changes: Any) -> T:
    """Do what `dataclasses.replace` does, but don't check and convert again what is right.

    For an evaluation that takes a fifth of the time.
    """
    copy, put = object.__new__(type(one)), object.__setattr__
    names: tuple[str, ...] = cast("Any", one).__slots__
    for name in names:
        put(copy, name, getattr(one, name))
    for name, value in changes.items():
        put(copy, name, value)
    return copy


def _evaluation(one: ReflectionEvaluation) -> ReflectionEvaluation:
    return _replaced(one, criteria_scores=dict(one.criteria_scores), memo=copy_of(one.memo))


def _draft(one: D) -> D:
    return _replaced(
        one,
        output=copy_of(one.output),
        evaluation=snapshot(one.evaluation),
        conversation=snapshot(one.conversation),
        memo=copy_of(one.memo),
        choice=snapshot(one.choice),
    )


def _choice(one: Choice) -> Choice:
    rejected = tuple(map(_draft, one.rejected))
    return _replaced(one, numbers=copy_of(dict(one.numbers)), rejected=rejected, usage=dict(one.usage))


def _conversation(one: Conversation) -> Conversation:
    return _replaced(one, messages=copy_of(one.messages))


def _result(one: ReflectionResult) -> ReflectionResult:
    history = one.history
    copies = {id(version): _draft(version) for version in history.versions}
    best, final = (
        copies.get(id(version)) or _draft(version)
        for version in (history.best_version, history.final_version)
    )
    versions = tuple(copies[id(version)] for version in history.versions)
    return _replaced(
        one,
        best_output=best.output,
        final_output=final.output,
        final_evaluation=final.evaluation,
        history=_replaced(history, versions=versions, best_version=best, final_version=final),
        usage_by_role=dict(one.usage_by_role),
        diagnostics=dict(one.diagnostics),
    )


_SNAPSHOTS: dict[type[Any], Callable[[Any], Any]] = {
    ReflectionEvaluation: _evaluation,
    ReflectionVersion: _draft,
    Draft: _draft,
    Choice: _choice,
    Conversation: _conversation,
    ReflectionResult: _result,
    tuple: lambda items: tuple([snapshot(item) for item in items]),
}


BYTES_PER_TOKEN = 3.6  # the mean of o200k and the Qwen tokenizers on English prose and Python


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too many than too few where it is not ASCII."""
    return 0 if not text else max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))


def compared(number: float, sign: str, bound: float) -> str:
    """Render `0.92 >= 0.80`, with as many digits as it takes to tell different numbers apart."""
    for digits in range(2, 6):
        left, right = f"{number:.{digits}f}", f"{bound:.{digits}f}"
        if left != right or number == bound:
            return f"{left} {sign} {right}"
    return f"{number!r} {sign} {bound!r}"


def scored(version: ReflectionVersion) -> str:
    """Render a version's score, and which criteria it does not cover."""
    score, missing = version.evaluation.overall_score, version.evaluation.unjudged
    if score is None:
        return "not judged"
    return f"{score:.2f} without {listed_names(missing)}" if missing else f"{score:.2f}"


def has_no_criteria(version: ReflectionVersion) -> bool:
    """Return whether a version passed because there were no criteria to judge it by."""
    evaluation = version.evaluation
    return evaluation.satisfactory and evaluation.overall_score is None and not evaluation.criteria_scores


def verdict_of(evaluation: ReflectionEvaluation) -> str:
    """Return what a judgement says of a version, to go on a sentence such as "version 2, which "."""
    if evaluation.satisfactory:
        return "meets the criteria"
    return "was not fully judged" if evaluation.leaves_nothing_to_revise else "does not meet the criteria"


def listed(things: Sequence[str], conjunction: str = "and") -> str:
    """Join words as in a sentence: `a`, `a and b`, `a, b and c`."""
    *most, last = things or ("none",)
    return f"{', '.join(most)} {conjunction} {last}" if most else last


def listed_names(names: Iterable[str]) -> str:
    """Join the names of criteria as in a sentence; one that is a sentence itself is quoted."""
    return listed([in_prose(name) for name in names])


def sized(size: int) -> str:
    """Render a number of bytes: `950 bytes`, `1.5 MB`."""
    for unit, scale in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} bytes"


def limits_in_words(least: int | None, most: int | None) -> str:
    """Return the limits of a number, of which one may be missing: `at most 5`, `exactly 5`, `1 to 5`."""
    if least is None or most is None:
        return f"at most {most}" if least is None else f"at least {least}"
    return f"exactly {most}" if least == most else f"{least} to {most}"


def counted(number: int, thing: str) -> str:
    """Render a count: `1 version`, `2 versions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
