"""Tables without rules, which fit the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from redraft.terminal.console import QUIET, CalmConsole
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from rich.console import Console, ConsoleOptions, OverflowMethod, RenderResult

GAP = 2
"""Spaces between columns."""
NARROW = 24
"""Width at which a cut cell is still readable."""
SHORTEST = 12
"""Least width of the `fill` column."""
EMPTY = ("", "-")
"""Cells without information."""


class PlainTable:
    """A table of rows, which map the names of columns to cells; all rows have the columns of the first.

    On a terminal, the table fits the width. If there is too little room, empty columns are left out, then the
    columns in `drop`, in order; a line below the table names these. The column `fill` takes the remaining
    room, at least `shortest` characters, and is cut. Cells of other columns are cut only if that is not
    enough; columns in `wrap` are broken into lines instead. Columns in `right` are aligned to the right.

    In a file or pipe, each row is a line with every column, and nothing is cut. A wide character counts as
    two. Control characters in a `str` are made visible.
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, str | Text]],
        *,
        right: Collection[str] = (),
        wrap: Collection[str] = (),
        drop: Sequence[str] = (),
        fill: str = "",
        shortest: int = SHORTEST,
    ) -> None:
        table = list(rows)
        self._columns = {name: [row[name] for row in table] for name in (table[0] if table else ())}
        self._right, self._wrap, self._drop = right, wrap, drop
        self._fill, self._shortest = fill, shortest

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table and the names of the columns left out; called by Rich."""
        cut = "ellipsis" if console.encoding.startswith("utf") else "crop"
        columns = {
            name: [self._cell(name, cell, cut) for cell in cells] for name, cells in self._columns.items()
        }
        table, left_out = bare_table(), list[str]()
        if isinstance(console, CalmConsole) and console.is_piped and options.max_width == console.width:
            table.width = sum(_width(name, cells) + GAP for name, cells in columns.items()) - GAP
        else:
            left_out = self._fit(columns, options.max_width + GAP)  # the last column has no gap after it
        for name in columns:
            # With `no_wrap`, a long column would keep its width and leave no room for the others.
            table.add_column(name, justify="right" if name in self._right else "left", overflow="fold")
        for row in zip(*columns.values(), strict=True):
            table.add_row(*row)
        yield table
        if left_out:
            line = f"Left out in {options.max_width} columns: {', '.join(left_out)}; --json has all."
            yield Text(line, QUIET)

    def _cell(self, name: str, cell: str | Text, cut: OverflowMethod) -> Text:
        """A cell that is broken into lines or cut, depending on its column."""
        text = Text(visible(cell)) if isinstance(cell, str) else cell.copy()
        if name in self._wrap:
            return text
        if name == self._fill:
            text = Text(" ".join(text.plain.split()), text.style)
        text.no_wrap, text.overflow = True, cut
        return text

    def _fit(self, columns: dict[str, list[Text]], room: int) -> list[str]:
        """Remove and cut columns until they fit; return the names of removed columns that were not empty."""
        blank = [name for name, cells in columns.items() if all(cell.plain in EMPTY for cell in cells)]
        left_out = list[str]()
        for name in (*blank, *self._drop):
            if name in columns and sum(map(self._need, columns, columns.values())) > room:
                del columns[name]
                left_out += [name] if name and name not in blank else []
        if self._fill in columns and self._fill not in self._wrap:
            others = sum(_width(name, cells) + GAP for name, cells in columns.items() if name != self._fill)
            for cell in columns[self._fill]:
                cell.truncate(max(self._shortest, room - others - GAP))
        return left_out

    def _need(self, name: str, cells: Sequence[Text]) -> int:
        """Width that a column needs, with the gap."""
        width = _width(name, cells)
        if name == self._fill:
            width = min(width, self._shortest)
        elif name not in self._wrap:
            width = min(width, NARROW)
        return width + GAP


def bare_table() -> Table:
    """A Rich table without rules, with gaps between the columns."""
    return Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)


def _width(name: str, cells: Sequence[Text]) -> int:
    return max(cell_len(name), *(line.cell_len for cell in cells for line in cell.split()))
