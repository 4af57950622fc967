"""What differs between two versions, as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft.cli.changes import changes, marked
from redraft.cli.show import BAD, GOOD, QUIET, issue_line
from redraft.core.texts import as_text
from redraft.loop.compared import scored
from redraft.loop.version_diff import field_text
from redraft.text.diff import ABSENT
from redraft.text.visible import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.core.version import ReflectionVersion
    from redraft.loop.version_diff import VersionDiff
    from redraft.text.diff import FieldChange

INDENT = (0, 0, 0, 2)
MARKS = {
    True: ("addressed    ", GOOD),
    False: ("not addressed", BAD),
    None: ("not known    ", QUIET),
}


def diff_view(diff: VersionDiff, *, coloured: bool) -> RenderableType:
    """Render the head, what changed, and the points of the critique."""
    older, newer = diff.older, diff.newer
    parts: list[RenderableType] = [
        Text(
            f"version {older.iteration} ({scored(older)}) > version {newer.iteration} ({scored(newer)})",
            "bold",
        ),
        Text(_made(newer), QUIET),
        "",
    ]
    if older is newer:
        return Group(*parts, Text("That is one version; `redraft diff RUN first last` compares others."))
    if diff.is_same:
        parts.append(Text("The outputs are the same."))
    elif diff.fields is not None:
        parts += [_field(change, coloured=coloured) for change in diff.fields]
    else:
        parts.append(changes(as_text(older.output), as_text(newer.output), coloured=coloured, longest=None))
    return Group(*parts, *_points(diff))


def _made(newer: ReflectionVersion) -> str:
    base = "" if newer.base is None else f", from version {newer.base}"
    return f"how version {newer.iteration} was made: {newer.strategy.replace('_', ' ')}{base}"


def _field(change: FieldChange, *, coloured: bool) -> Text:
    line = Text.assemble((visible(change.path) or "(the whole)", "bold"), ": ")
    if change.old is not ABSENT:
        line.append_text(marked("-", visible(field_text(change.old)), coloured=coloured))
    if change.old is not ABSENT and change.new is not ABSENT:
        line.append(" ")
    if change.new is not ABSENT:
        line.append_text(marked("+", visible(field_text(change.new)), coloured=coloured))
    return line


def _points(diff: VersionDiff) -> list[RenderableType]:
    parts: list[RenderableType] = []
    if diff.critique.points:
        parts += ["", Text(f"What was said about version {diff.older.iteration}")]
        for point in diff.critique.points:
            mark, style = MARKS[point.addressed]
            line = Text.assemble((mark, style), "  ", issue_line(point.issue))
            parts.append(Padding(line, INDENT))
    if diff.critique.new:
        parts += ["", Text(f"What only version {diff.newer.iteration} has")]
        parts += [Padding(issue_line(issue), INDENT) for issue in diff.critique.new]
    return parts
