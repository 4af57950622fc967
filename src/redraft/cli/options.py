"""The arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

DEMO_MODEL = "local:qwen2.5-coder-0.5b"

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The draft; '-' reads it from standard input.")
]
Criteria: TypeAlias = Annotated[
    Path, typer.Option("--criteria", "-c", metavar="YAML", help="What the draft is judged by; see check -h.")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="NAME",
        help="provider:model, local:NAME or local:PATH.gguf; else REDRAFT_MODEL decides.",
    ),
]
BudgetTokens: TypeAlias = Annotated[
    int | None,
    typer.Option("--budget-tokens", metavar="N", help="Start no call that does not fit into N tokens."),
]
BudgetUsd: TypeAlias = Annotated[
    float | None, typer.Option("--budget-usd", metavar="X", help="Start no call beyond X US dollars.")
]
BudgetSeconds: TypeAlias = Annotated[
    float | None,
    typer.Option("--budget-seconds", metavar="S", help="Cancel what is still under way after S seconds."),
]
Events: TypeAlias = Annotated[
    str | None,
    typer.Option("--events", metavar="FILE", help="Add what happens to FILE, as lines of JSON."),
]
NoKeep: TypeAlias = Annotated[bool, typer.Option("--no-keep", help="Do not keep the run.")]
Run: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, how it begins, or 'last'.", show_default=False)
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Print a traceback when something fails.")]
