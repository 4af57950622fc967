"""`redraft diff`: what changed between two versions of a run, and which points that dealt with."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface

VERSION = "2 or v2, first, best, last."


def diff(
    run: options.Run,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "best",
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Compare two versions of a run. Word by word, or field by field where they are JSON."""
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.diff_view import diff_view
        from redraft.cli.kept_runs import read_run
        from redraft.loop.version_diff import diff_document, version_diff

        kept = read_run(run)
        found = version_diff(kept.version(older), kept.version(newer))
        if as_json:
            emit_json({"run_id": kept.record.run_id, **diff_document(found)})
        else:
            console = CalmConsole()
            console.show(diff_view(found, coloured=console.is_coloured))
