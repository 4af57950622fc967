"""Sides: a word diff as two columns of lines, what belongs together beside one another."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING

from redraft.text.diff import Line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.text.diff import Piece


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold a line of the older text and that of the newer one beside it, with their numbers.

    A line that only one side has leaves the other None.
    """

    old: Line | None
    new: Line | None
    old_number: int | None
    new_number: int | None

    @property
    def differs(self) -> bool:
        """Whether anything in it does."""
        sides = (self.old, self.new)
        return None in sides or any(op != "=" for side in sides for op, _ in side or ())


def pairs(pieces: Sequence[Piece]) -> list[Pair]:
    """Return the pieces of a word diff as pairs of lines: a line break that both texts have ends a pair."""
    found: list[Pair] = []
    old: list[Line] = [[]]
    new: list[Line] = [[]]
    numbers = [0, 0]

    def end(lines: int = 0) -> None:
        """Pair what there is but for the last lines of each side, so many."""
        for left, right in zip_longest(old[: len(old) - lines], new[: len(new) - lines]):
            numbers[0] += left is not None
            numbers[1] += right is not None
            places = (None if left is None else numbers[0], None if right is None else numbers[1])
            found.append(Pair(left, right, *places))
        old[:], new[:] = (old[-1:], new[-1:]) if lines else ([[]], [[]])

    for op, text in pieces:
        for at, line in enumerate(text.split("\n")):
            if at and op == "=":
                end()
            elif at:
                (old if op == "-" else new).append([])
            if line and op == "=":
                end(lines=1)  # a line that both have a part of stands beside itself
            if line and op != "+":
                old[-1].append((op, line))
            if line and op != "-":
                new[-1].append((op, line))
    end()
    return found


def folded(rows: Sequence[Pair], context: int) -> list[list[Pair] | int]:
    """Return the pairs that differ with `context` ones around them, and between how many are left out."""
    changed = [at for at, pair in enumerate(rows) if pair.differs]
    near = {at + off for at in changed for off in range(-context, context + 1)}
    shown: list[list[Pair] | int] = []
    for is_near, group in groupby(range(len(rows)), key=near.__contains__):
        part = [rows[at] for at in group]
        shown.append(part if is_near else len(part))
    return shown
