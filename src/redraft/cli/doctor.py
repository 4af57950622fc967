"""`redraft doctor`: what is installed here, which models answer, and whether a jail works."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import ExitCode, surface


def doctor(
    probe: Annotated[
        bool, typer.Option("--probe", help="Load each local model that is installed and have it answer.")
    ] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what works here. Where something is missing, say what to install."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.examine import examine
        from redraft.cli.findings import findings_text

        findings = examine(probe=probe)
        if as_json:
            emit_json(findings.as_document())
        else:
            CalmConsole().show(findings_text(findings))
        raise typer.Exit(ExitCode.PROVIDER if findings.probe_failed else ExitCode.MET)
