"""Arguments and options that several commands share, and the texts that people name or edit."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from redraft.errors import ConfigError

DEMO_MODEL = "local:qwen2.5-coder-0.5b"

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The draft; '-' reads it from standard input.")
]
Criteria: TypeAlias = Annotated[
    Path,
    typer.Option("--criteria", "-c", metavar="YAML", help="The criteria, a YAML file; see redraft check -h."),
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="provider:model, local:NAME or local:PATH.gguf. Default: REDRAFT_MODEL.",
    ),
]
BudgetTokens: TypeAlias = Annotated[
    int | None,
    typer.Option("--budget-tokens", metavar="N", help="Start no model call that would exceed N tokens."),
]
BudgetUsd: TypeAlias = Annotated[
    float | None,
    typer.Option("--budget-usd", metavar="X", help="Start no model call that would exceed X US dollars."),
]
BudgetSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option("--budget-seconds", metavar="S", help="Cancel whatever is still running after S seconds."),
]
Events: TypeAlias = Annotated[
    str | None,
    typer.Option("--events", metavar="FILE", help="Append the events of the run to FILE, as JSON lines."),
]
NoKeep: TypeAlias = Annotated[bool, typer.Option("--no-keep", help="Do not store the run.")]
Run: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, its beginning, or 'last'.", show_default=False)
]
Database: TypeAlias = Annotated[
    str | None,
    typer.Option("--database", metavar="PATH_OR_URL", help="Use this database, not the project's."),
]
Verbatim: TypeAlias = Annotated[
    bool,
    typer.Option("--verbatim", help="Show all texts as stored; personal data and secrets are not withheld."),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Print a traceback when something fails.")]


DEFAULT_EDITOR = "vi"


def can_edit() -> bool:
    """Return whether an editor is set, or stdin is a terminal to run the default one in."""
    return bool(_editor()) or sys.stdin.isatty()


def edited(text: str, name: str) -> str:
    """Have a text edited in `$VISUAL`, `$EDITOR` or vi, in a file called `name`; return the new text.

    Raises `ConfigError` if there is neither an editor nor a terminal, and if the editor fails.
    """
    if not can_edit():
        raise ConfigError("There is no terminal to edit in; set EDITOR, or edit the file directly.")
    command = shlex.split(_editor() or DEFAULT_EDITOR)
    with tempfile.TemporaryDirectory(prefix="redraft-") as folder:
        path = Path(folder) / name
        path.write_text(text, "utf-8")
        try:
            code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 (the editor that the person chose)
        except OSError as error:
            raise ConfigError(f"The editor {command[0]!r} can't be run: {error.strerror}.") from error
        if code:
            raise ConfigError(f"The editor {command[0]!r} exited with code {code}, so nothing was changed.")
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The edited text can't be read: {error}.") from error


MAX_BYTES = 1_000_000


def read_text(file: str) -> str:
    """Return the text of a file that the user names; raises `ConfigError` if it can't be read."""
    path = Path(file)
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ConfigError(f"{file!r} is too large: {size:,} bytes; at most {MAX_BYTES:,} are allowed.")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{file!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file!r} is not UTF-8: {error.reason}.") from error


def _editor() -> str:
    return os.environ.get("VISUAL", "").strip() or os.environ.get("EDITOR", "").strip()
