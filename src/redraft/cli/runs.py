"""`redraft runs`: the kept runs of this project, the newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def runs(
    status: Annotated[
        str | None,
        typer.Option(metavar="S", help="Only those that are: running, killed, finished, failed, cancelled."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of an agent, or such as 'redraft revise'.")
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="R", help="Only those that stopped so: quality_met, plateau, ...")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many at most.")] = 20,
    inner: Annotated[bool, typer.Option("--inner", help="Runs that ran inside others, too.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the runs that are kept here, the newest first."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_runs import place, read_runs
        from redraft.cli.run_rows import check_filters, no_runs, run_rows
        from redraft.loop.run_document import row_document

        check_filters(status, reason)
        found = read_runs(status=status, name=name, reason=reason, inner=inner, limit=limit)
        if as_json:
            emit_json({"database": place(), "runs": [row_document(record) for record in found]})
            return
        console = CalmConsole()
        if found:
            console.show(run_rows(found, console.width, is_utf8=console.is_utf8))
            if len(found) == limit:
                CalmConsole(stderr=True).say(f"These are the newest {limit}; --limit N shows more.")
        else:
            console.show(no_runs(place(), filtered=any((status, name, reason))))
