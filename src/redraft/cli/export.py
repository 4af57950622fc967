"""`redraft export`: a kept run as one HTML file, or as data."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 (Typer reads the annotations)
from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def export(
    run: options.Run,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one HTML file that shows it all; '-' is stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let FILE be one that exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all of it as one JSON document.")] = False,
    debug: options.Debug = False,
) -> None:
    """Export a kept run. --html FILE is for people, --json for programs; read it before you share it."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit, emit_json
        from redraft.cli.kept_runs import read_run, shown_document
        from redraft.cli.output import check_output, write_output
        from redraft.core.errors import ConfigError
        from redraft.web.export import run_page

        if (html is None) != as_json:
            raise ConfigError("export takes one of --html FILE and --json.")
        to_file = html is not None and str(html) != "-"
        if html is not None and to_file:
            check_output(html, force=force, option="--html")
        kept = read_run(run, to_export=True)
        if html is None:
            emit_json(shown_document(kept))
        elif to_file:
            write_output(html, run_page(kept), force=force)
            told = (
                f"Wrote {html}. Secrets, personal data and names of hosts that were recognised are withheld; "
                "all else is there word for word: read it before you share it."
            )
            CalmConsole(stderr=True).say(told)
        else:
            emit(run_page(kept))
