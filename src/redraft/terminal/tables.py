"""Tables without lines, from columns of cells."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from redraft.terminal.console import QUIET

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from rich.text import Text

GAP = 2
"""Spaces between two columns."""


def plain_table(
    columns: Mapping[str, Sequence[str | Text]], *, right: Collection[str] = (), wrap: Collection[str] = ()
) -> Table:
    """Return a table of columns by name.

    Columns in `right` are aligned to the right; cells in columns of `wrap` are broken if they are too long.
    """
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        justify = "right" if name in right else "left"
        overflow = "fold" if name in wrap else "ellipsis"
        table.add_column(name, justify=justify, no_wrap=name not in wrap, overflow=overflow)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def width_of(columns: Mapping[str, Sequence[str | Text]]) -> int:
    """Return the width that columns take in a table, with the gap after each."""
    return sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())
