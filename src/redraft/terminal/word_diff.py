"""Render the changes between two texts, word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from redraft.terminal.console import BAD, GOOD, QUIET
from redraft.text.characters import visible
from redraft.text.diff import hunks, similarity, word_diff

if TYPE_CHECKING:
    from redraft.text.diff import Op

ALIKE = 0.4
"""Similarity below which texts are shown one after the other: a word diff would be a jumble."""
CONTEXT = 1
LONGEST = 14
STYLES = {"=": "", "-": f"strike {BAD}", "+": f"underline {GOOD}"}
MARKS = {"=": ("", ""), "-": ("[-", "-]"), "+": ("{+", "+}")}


def changes(before: str, after: str, *, coloured: bool, longest: int | None = LONGEST) -> Text:
    """Render the changed lines, with a line of context; without colours, changes are marked.

    At most `longest` lines are shown.
    """
    before, after = visible(before), visible(after)
    if similarity(before, after) < ALIKE:
        lines = [
            *_whole(before, "-", coloured=coloured, longest=longest),
            *_whole(after, "+", coloured=coloured, longest=longest),
        ]
        return Text("\n").join(lines)
    lines: list[Text] = []
    for part in hunks(word_diff(before, after), CONTEXT):
        if not isinstance(part, int):
            lines += [
                Text.assemble(*(marked(op, text, coloured=coloured) for op, text in line)) for line in part
            ]
        elif lines:
            lines.append(Text("...", QUIET))
    return Text("\n").join(_clipped(lines, longest))


def marked(op: Op, text: str, *, coloured: bool) -> Text:
    """Render an unchanged, removed or added piece of a diff."""
    opening, closing = ("", "") if coloured else MARKS[op]
    return Text(f"{opening}{text}{closing}", STYLES[op])


def _whole(text: str, op: Op, *, coloured: bool, longest: int | None) -> list[Text]:
    style = STYLES[op].removeprefix("strike ").removeprefix("underline ")
    lines = [Text(f"{op} {line}", style if coloured else "") for line in text.strip("\n").splitlines()]
    return _clipped(lines, longest)


def _clipped(lines: list[Text], longest: int | None) -> list[Text]:
    if longest is None or len(lines) <= longest:
        return lines
    return [*lines[: longest - 1], Text(f"... and {len(lines) - longest + 1} more lines", QUIET)]
