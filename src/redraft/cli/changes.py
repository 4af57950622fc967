"""What changed from one version to another, word by word, as a person reads it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

from redraft.cli.show import BAD, GOOD, QUIET
from redraft.text.diff import similarity, word_diff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.text.diff import Op

Piece: TypeAlias = "tuple[Op, str]"
Line: TypeAlias = "list[Piece]"

ALIKE = 0.4
"""The similarity below which two texts are shown one after the other: their words would only be mixed up."""
CONTEXT = 1
LONGEST = 14
STYLES = {"=": "", "-": f"strike {BAD}", "+": GOOD}
MARKS = {"=": ("", ""), "-": ("[-", "-]"), "+": ("{+", "+}")}


def changes(before: str, after: str, *, coloured: bool) -> Text:
    """Render the lines that differ with a line around them; without colours, marks stand for them."""
    if similarity(before, after) < ALIKE:
        lines = [*_whole(before, "-", coloured=coloured), *_whole(after, "+", coloured=coloured)]
        return Text("\n").join(lines)
    lines = _lines(word_diff(before, after))
    changed = {at for at, line in enumerate(lines) if any(op != "=" for op, _ in line)}
    near = [any(at + off in changed for off in range(-CONTEXT, CONTEXT + 1)) for at in range(len(lines))]
    shown: list[Text] = []
    for is_near, group in groupby(zip(near, lines, strict=True), key=lambda pair: pair[0]):
        if is_near:
            shown += [_line(line, coloured=coloured) for _, line in group]
        elif shown:
            shown.append(Text("...", QUIET))
    return Text("\n").join(_clipped(shown))


def _lines(pieces: Sequence[Piece]) -> list[Line]:
    lines: list[Line] = [[]]
    for op, text in pieces:
        first, *more = text.split("\n")
        lines[-1].append((op, first))
        lines.extend([(op, rest)] for rest in more)
    return lines


def _line(line: Line, *, coloured: bool) -> Text:
    shown = Text()
    for op, text in line:
        if text:
            opening, closing = ("", "") if coloured else MARKS[op]
            shown.append(f"{opening}{text}{closing}", STYLES[op])
    return shown


def _whole(text: str, op: Op, *, coloured: bool) -> list[Text]:
    style = STYLES[op].removeprefix("strike ")
    lines = [Text(f"{op} {line}", style if coloured else "") for line in text.strip().splitlines()]
    return _clipped(lines)


def _clipped(lines: list[Text]) -> list[Text]:
    if len(lines) <= LONGEST:
        return lines
    return [*lines[: LONGEST - 1], Text(f"... and {len(lines) - LONGEST + 1} more lines", QUIET)]
