"""`redraft runs`: the kept runs of this project, the newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def runs(
    status: Annotated[
        str | None,
        typer.Option(
            metavar="S", help="Only those that are: running, killed, unknown, finished, failed, cancelled."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only those of an agent or workflow, or such as 'redraft revise'."),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="R", help="Only those that stopped so: quality_met, plateau, ...")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="How many at most.")] = 20,
    inner: Annotated[bool, typer.Option("--inner", help="Runs that ran inside others, too.")] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List the runs and workflows that are kept here, the newest first."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_runs import place, read_runs
        from redraft.cli.run_history import read_workflows
        from redraft.cli.run_rows import check_filters, no_runs, row_of, row_of_workflow, run_rows
        from redraft.loop.run_document import row_document
        from redraft.workflow.history import WorkflowRow

        check_filters(status, reason)
        found = read_runs(status=status, name=name, reason=reason, inner=inner, limit=limit)
        # A reason is what stops a loop.
        workflows = [] if reason else read_workflows(status=status, name=name, limit=limit)
        newest = sorted([*found, *workflows], key=lambda one: one.started_at, reverse=True)[:limit]
        if as_json:
            rows = [
                one.document() if isinstance(one, WorkflowRow) else {"kind": "run", **row_document(one)}
                for one in newest
            ]
            emit_json({"database": str(place()), "runs": rows})
            return
        console = CalmConsole()
        if newest:
            rows = [row_of_workflow(one) if isinstance(one, WorkflowRow) else row_of(one) for one in newest]
            console.show(run_rows(rows, console.width, is_utf8=console.is_utf8))
            if len(newest) == limit:
                CalmConsole(stderr=True).say(f"At most {limit} are listed; --limit N shows more.")
        else:
            console.show(no_runs(place(), filtered=any((status, name, reason))))
