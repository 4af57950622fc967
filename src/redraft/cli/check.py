"""`redraft check`: judge a draft, and change nothing."""

from __future__ import annotations

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import code_of, surface


def check(
    file: options.File,
    criteria: options.Criteria,
    model: options.Model = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Judge a draft by criteria. A model is asked only where a criterion needs one."""
    with surface(debug=debug):
        # What --help does not need is imported here, in all commands.
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.criteria_file import read_criteria
        from redraft.cli.documents import check_document
        from redraft.cli.progress import Progress
        from redraft.cli.running import judge, read_draft
        from redraft.cli.verdict import verdict

        given = read_criteria(criteria)
        progress = Progress(CalmConsole(stderr=True), rows=False)
        result = judge(read_draft(file), given, model, progress)
        if as_json:
            emit_json(check_document(file, given, result))
        else:
            CalmConsole().show(verdict(given, result))
        raise typer.Exit(code_of(result))
