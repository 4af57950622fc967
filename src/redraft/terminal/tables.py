"""Tables without lines, from columns of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from redraft.terminal.console import QUIET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

GAP = 2
"""Spaces between two columns."""
NARROW = 24
"""Characters in which a name is readable, if it is cut or broken."""


def plain_table(
    columns: Mapping[str, Sequence[str | Text]], *, right: Collection[str] = (), wrap: Collection[str] = ()
) -> Table:
    """Return a table of columns by name.

    Columns in `right` are aligned to the right. Where there is too little room, the widest columns become
    narrower, and no others: their cells are cut, or broken into lines in columns of `wrap`.
    """
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        # A column with `no_wrap` would keep its width, and a long one leave no room for the others.
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        row = zip(columns, cells, strict=True)
        table.add_row(*(cell if name in wrap else _line(cell) for name, cell in row))
    return table


def _line(cell: str | Text) -> Text:
    """Return a cell that is cut if it is too long."""
    line = Text(cell) if isinstance(cell, str) else cell.copy()
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def width_of(columns: Mapping[str, Sequence[str | Text]], *names: str) -> int:
    """Return the width that columns need in a table, in characters of a terminal, with the gap after each.

    A Chinese or Japanese character takes two of them. Those with `names` need no more than `NARROW`.
    """
    widths = {name: max(map(_width, (name, *cells))) for name, cells in columns.items()}
    return sum((min(NARROW, width) if name in names else width) + GAP for name, width in widths.items())


def _width(cell: str | Text) -> int:
    return cell_len(cell) if isinstance(cell, str) else cell.cell_len
