"""`redraft show`: one kept run with its versions and what they scored, or one workflow with its nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface


def show(
    run: options.Run,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="The prompts and replies, as they were sent and came.")
    ] = False,
    version: Annotated[
        str | None,
        typer.Option(
            "--version", metavar="V", help="Print a version's whole output: 2, first, best or last."
        ),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a kept run. Its versions, what they scored, what failed, what it used.

    Of a workflow its nodes are shown, what each came to, and the runs of its loops.
    """
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json, emit_made
        from redraft.cli.kept_runs import read_run, shown_document
        from redraft.cli.prompts_view import prompts_view
        from redraft.cli.run_history import read_history
        from redraft.cli.run_view import run_view
        from redraft.cli.show_workflow import check_workflow_options, workflow_view
        from redraft.core.texts import as_text

        console = CalmConsole()
        if (workflow := read_history(run)) is not None:
            check_workflow_options(workflow, version=version, prompts=prompts)
            if as_json:
                emit_json(workflow.document())
            else:
                console.show(workflow_view(workflow))
            return
        kept = read_run(run)
        if version is not None:
            chosen = kept.version(version)
            if as_json:
                emit_json({"run_id": kept.record.run_id, "version": chosen})
            else:
                emit_made(as_text(chosen.output))
        elif as_json:
            emit_json(shown_document(kept, steps=prompts))
        else:
            console.show(run_view(kept, console.width, is_utf8=console.is_utf8))
            if prompts:
                console.show(prompts_view(kept), soft_wrap=True)
