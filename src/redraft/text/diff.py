"""Differences between texts, word by word, and between JSON values, field by field."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from redraft._pointers import pointer

if TYPE_CHECKING:
    from collections.abc import Sequence

Op: TypeAlias = Literal["=", "-", "+"]

MAX_WORDS = 20_000
"""Total words above which texts are compared by line: matching takes quadratic time."""

MAX_LINES = 20_000

MAX_PAIRS = 100_000
"""Pairs of equal words above which texts are compared by line: repetition makes matching slow."""

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_PLAIN_WORD = re.compile(r"\S+")


class Absent:
    """The type of `ABSENT`, the placeholder for a field that one of two values lacks."""

    def __repr__(self) -> str:
        return "(absent)"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field that differs between two JSON values."""

    path: str
    """JSON pointer; empty for the whole value."""
    old: Any
    new: Any


def word_diff(old: str, new: str) -> list[tuple[Op, str]]:
    """Split two texts into pieces, in order: kept (`=`), removed (`-`), added (`+`).

    Kept and removed pieces make up `old`; kept and added pieces make up `new`. Large texts are compared line
    by line, enormous ones as a whole.
    """
    pieces: list[tuple[Op, str]] = []
    before, after = _WORD.findall(old), _WORD.findall(new)
    if not _is_quick(before, after, MAX_WORDS):
        before, after = _lines(old, new)
    for tag, i, j, k, m in _matcher(before, after).get_opcodes():
        if tag == "equal":
            pieces.append(("=", "".join(before[i:j])))
            continue
        if i < j:
            pieces.append(("-", "".join(before[i:j])))
        if k < m:
            pieces.append(("+", "".join(after[k:m])))
    return pieces


def similarity(old: str, new: str) -> float:
    """Share of words that two texts have in common, in order, from 0.0 to 1.0.

    Large texts are compared line by line.
    """
    if old == new:
        return 1.0
    before, after = _PLAIN_WORD.findall(old), _PLAIN_WORD.findall(new)
    if not _is_quick(before, after, MAX_WORDS):
        before, after = _lines(old, new)
    return _matcher(before, after).ratio()


def field_diff(old: Any, new: Any) -> list[FieldChange]:
    """Fields in which two JSON values differ: the fields of `old` in order, then new fields.

    Lists are compared by position. A field that is missing on one side is `ABSENT` there.
    """
    changes: list[FieldChange] = []
    waiting: list[tuple[str, Any, Any]] = [("", old, new)]
    while waiting:  # not recursion: values may be nested deeper than Python can call
        path, before, after = waiting.pop()
        left, right = _fields(before), _fields(after)
        if left is None or right is None or type(before) is not type(after):
            # True equals 1 in Python, but not in JSON.
            if before != after or isinstance(before, bool) != isinstance(after, bool):
                changes.append(FieldChange(path, before, after))
            continue
        keys = [*left, *(key for key in right if key not in left)]
        waiting += (
            (path + pointer([key]), left.get(key, ABSENT), right.get(key, ABSENT)) for key in reversed(keys)
        )
    return changes


def _lines(old: str, new: str) -> tuple[list[str], list[str]]:
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    return (before, after) if _is_quick(before, after, MAX_LINES) else ([old], [new])


def _is_quick(before: Sequence[str], after: Sequence[str], most: int) -> bool:
    """Whether two sequences are short and varied enough to be matched quickly."""
    if len(before) + len(after) > most:
        return False
    counts = Counter(after)
    pairs = sum(count * counts[word] for word, count in Counter(before).items() if not word.isspace())
    return pairs <= MAX_PAIRS


def _matcher(before: Sequence[str], after: Sequence[str]) -> SequenceMatcher[str]:
    # Spaces count as junk: pairing all spaces takes fifty times as long as pairing the words.
    return SequenceMatcher(str.isspace, before, after, autojunk=False)


def _fields(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value)
    if isinstance(value, list):
        return dict(enumerate(cast("list[Any]", value)))
    return None


Piece: TypeAlias = "tuple[Op, str]"
Line: TypeAlias = "list[Piece]"


def diff_lines(pieces: Sequence[Piece]) -> list[Line]:
    r"""Split the pieces of a word diff into lines, without their line breaks; a line may be empty.

    Where only white space changed, its line breaks are written as `\n`, so that the change can be seen.
    """
    lines: list[Line] = [[]]
    for op, text in pieces:
        if op != "=" and "\n" in text and text.isspace():
            lines[-1].append((op, text.replace("\n", "\\n")))
            if op == "+":
                lines.append([])
            continue
        first, *more = text.split("\n")
        if first:
            lines[-1].append((op, first))
        lines.extend([(op, rest)] if rest else [] for rest in more)
    return lines


def hunks(pieces: Sequence[Piece], context: int) -> list[list[Line] | int]:
    """Lines that differ, each with `context` lines around it.

    A number is a count of omitted unchanged lines, also before the first and after the last difference.
    """
    lines = diff_lines(pieces)
    changed = {at for at, line in enumerate(lines) if any(op != "=" for op, _ in line)}
    near = [any(at + off in changed for off in range(-context, context + 1)) for at in range(len(lines))]
    parts: list[list[Line] | int] = []
    for is_near, group in groupby(zip(near, lines, strict=True), key=lambda pair: pair[0]):
        part = [line for _, line in group]
        parts.append(part if is_near else len(part))
    return parts
