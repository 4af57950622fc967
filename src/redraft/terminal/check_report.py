"""What `--check` prints about a valid file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from rich.table import Table

from redraft._texts import counted
from redraft.terminal.console import QUIET, CalmConsole, emit_json
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import RenderableType


def deliver_check(file: str, used: Mapping[str, Any], *, as_json: bool) -> None:
    """Print that a file is valid, with its name, the number of its parts, and what it would use."""
    if as_json:
        emit_json({"file": file, "ok": True, **used})
    else:
        CalmConsole().show(_table(file, used))


def _table(file: str, used: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=QUIET)
    table.add_column()
    parts = (counted(one, name.removesuffix("s")) for name, one in used.items() if isinstance(one, int))
    table.add_row("ok", visible(f"{file}: {', '.join((used['name'], *parts))}"))
    for name, value in used.items():
        if isinstance(value, list) and value and name != "notes":
            table.add_row(name, visible(", ".join(cast("list[str]", value))))
    if used["env"]:
        variables = (f"{name} ({'set' if is_set else 'not set'})" for name, is_set in used["env"].items())
        table.add_row("env", ", ".join(variables))
    for note in used.get("notes", ()):
        table.add_row("note", visible(note))
    return table
