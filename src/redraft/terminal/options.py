"""The arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

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
