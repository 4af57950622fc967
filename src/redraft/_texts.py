"""Render, shorten, copy and count texts and outputs."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import is_dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.types import Output, ReflectionVersion

SHOWN = 80
"""Characters that fit into a line of a message."""
IMMUTABLE = (str, int, float)
_PLAIN = frozenset({str, int, float, bool, NoneType})


def as_text(output: Output, indent: int | None = 2) -> str:
    """Render an output as text: a text as it is, everything else as JSON, or else its `repr`.

    `indent` is for reading; without, it takes a tenth of the time.
    """
    if isinstance(output, str):
        return output
    if hasattr(output, "model_dump_json"):  # a pydantic model, recognised without importing pydantic
        return output.model_dump_json(indent=indent)
    try:
        return json.dumps(output, ensure_ascii=False, indent=indent, default=_data)
    except (TypeError, ValueError):  # keys that are no text, a value that holds itself
        return repr(output)


def _data(value: object) -> object:
    """Return a dataclass as data, anything else as the text that it makes of itself."""
    return to_json(value) if is_dataclass(value) else str(value)


def shortened(text: str, most: int) -> str:
    """Return a text in one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def short_repr(value: Any) -> str:
    """Return the `repr` of a value, cut to what fits into a line of a message."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def copy_of(output: Output) -> Output:
    """Return an output that nobody else holds: what a function changes in its own must not change history."""
    if isinstance(output, IMMUTABLE):
        return output
    try:
        return _copied(output)
    except RecursionError:  # it holds itself
        return deepcopy(output)


def _copied(value: Any) -> Any:
    """Copy JSON data: `deepcopy` remembers all that it has seen, and takes five times as long."""
    kind = value.__class__
    if kind is dict:
        return {key: item if item.__class__ in _PLAIN else _copied(item) for key, item in value.items()}
    if kind is list:
        return [item if item.__class__ in _PLAIN else _copied(item) for item in value]
    return deepcopy(value)


BYTES_PER_TOKEN = 3.6  # the mean of o200k and the Qwen tokenizers on English prose and Python


def estimate_tokens(text: str) -> int:
    """Estimate how many tokens a text takes, erring on the high side for scripts beyond ASCII."""
    return 0 if not text else max(1, round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN))


FEWEST, MOST = 2, 6


def compared(number: float, sign: str, bound: float) -> str:
    """Render `0.92 >= 0.80`; two numbers that differ never look alike, however near they are."""
    for digits in range(FEWEST, MOST):
        left, right = f"{number:.{digits}f}", f"{bound:.{digits}f}"
        if left != right or number == bound:
            return f"{left} {sign} {right}"
    return f"{number!r} {sign} {bound!r}"


def scored(version: ReflectionVersion) -> str:
    """Render a version's score; what is not known of it is said to be so."""
    score, missing = version.evaluation.overall_score, version.evaluation.unjudged
    if score is None:
        return "not judged"
    return f"{score:.2f} without {listed(missing)}" if missing else f"{score:.2f}"


def unasked(version: ReflectionVersion) -> bool:
    """Say whether nothing was there to judge a version by: it passes, for want of any criterion."""
    evaluation = version.evaluation
    return evaluation.satisfactory and evaluation.overall_score is None and not evaluation.criteria_scores


def listed(things: Sequence[str]) -> str:
    """Join as a sentence does: `a`, `a and b`, `a, b and c`."""
    *most, last = things or ("none",)
    return f"{', '.join(most)} and {last}" if most else last


def counted(number: int, thing: str) -> str:
    """Say how many there are: `1 version`, `2 versions`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
