"""Hunks: a word diff as lines, with what did not change around them left out."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.text.diff import Op

Piece: TypeAlias = "tuple[Op, str]"
Line: TypeAlias = "list[Piece]"


def diff_lines(pieces: Sequence[Piece]) -> list[Line]:
    """Return the pieces of a word diff line by line; a line has no line break, and may be empty."""
    lines: list[Line] = [[]]
    for op, text in pieces:
        first, *more = text.split("\n")
        if first:
            lines[-1].append((op, first))
        lines.extend([(op, rest)] if rest else [] for rest in more)
    return lines


def hunks(pieces: Sequence[Piece], context: int) -> list[list[Line] | int]:
    """Return the lines that differ with `context` lines around them, and between them how many are left out.

    What follows the last difference is left out, too, with its number.
    """
    lines = diff_lines(pieces)
    changed = {at for at, line in enumerate(lines) if any(op != "=" for op, _ in line)}
    near = [any(at + off in changed for off in range(-context, context + 1)) for at in range(len(lines))]
    shown: list[list[Line] | int] = []
    for is_near, group in groupby(zip(near, lines, strict=True), key=lambda pair: pair[0]):
        part = [line for _, line in group]
        shown.append(part if is_near else len(part))
    return shown
