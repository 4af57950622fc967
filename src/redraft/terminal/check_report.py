"""The output of `--check` on a workflow or an agent."""

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


def deliver_check(file: str, requirements: Mapping[str, Any], *, as_json: bool) -> None:
    """Print that a file is valid, with its name, the number of its parts, and its requirements."""
    if as_json:
        emit_json({"file": file, "ok": True, **requirements})
    else:
        CalmConsole().show(_table(file, requirements))


@contextmanager
def problems_as_json(file: str) -> Generator[None]:
    """Print the mistakes of a file as a JSON document, for editors and other programs."""
    try:
        yield
    except SpecFileError as error:
        problems = [
            {
                "line": problem.line,
                **{name: getattr(problem, name) for name in LOCATION if hasattr(problem, name)},
                "message": str(problem),
            }
            for problem in error.problems
        ]
        emit_json({"file": file, "ok": False, "problems": problems})
        raise typer.Exit(ExitCode.USAGE) from error


LOCATION = ("node", "stage", "substage", "key")
"""The fields with the location of a mistake in a file; workflows have nodes, and agents have stages."""


def _table(file: str, requirements: Mapping[str, Any]) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=QUIET)
    table.add_column()
    parts = (
        counted(number, name.removesuffix("s"))
        for name, number in requirements.items()
        if isinstance(number, int)
    )
    table.add_row("ok", visible(f"{file}: {', '.join((requirements['name'], *parts))}"))
    for name, value in requirements.items():
        if isinstance(value, list) and value and name != "notes":
            table.add_row(name, visible(", ".join(cast("list[str]", value))))
    if requirements["env"]:
        variables = (
            f"{name} ({'set' if is_set else 'not set'})" for name, is_set in requirements["env"].items()
        )
        table.add_row("env", ", ".join(variables))
    for note in requirements.get("notes", ()):
        table.add_row("note", visible(note))
    return table
