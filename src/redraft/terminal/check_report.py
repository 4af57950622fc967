"""What `--check` prints about a workflow or an agent."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import typer
from rich.table import Table

from redraft._texts import counted
from redraft.errors import SpecFileError
from redraft.terminal.console import QUIET, CalmConsole, emit_json
from redraft.terminal.exits import ExitCode
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rich.console import RenderableType


def deliver_check(file: str, used: Mapping[str, Any], *, as_json: bool) -> None:
    """Print that a file is valid, with its name, the number of its parts, and what it would use."""
    if as_json:
        emit_json({"file": file, "ok": True, **used})
    else:
        CalmConsole().show(_table(file, used))


@contextmanager
def problems_as_json(file: str) -> Generator[None]:
    """Print the mistakes of a file as a JSON document, for editors and other programs."""
    try:
        yield
    except SpecFileError as error:
        problems = [
            {
                "line": one.line,
                **{name: getattr(one, name) for name in LOCATION if hasattr(one, name)},
                "message": str(one),
            }
            for one in error.problems
        ]
        emit_json({"file": file, "ok": False, "problems": problems})
        raise typer.Exit(ExitCode.USAGE) from error


LOCATION = ("node", "stage", "substage", "key")
"""Where in a file a mistake is; a workflow has nodes, and an agent stages."""


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
