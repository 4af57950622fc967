"""`redraft resume`: go on with a run that was interrupted, without paying twice."""

from __future__ import annotations

from typing import Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import ExitCode, code_of, surface


def resume(
    run: options.Run,
    force: Annotated[
        bool, typer.Option("--force", help="Also where it is not known whether its process still works.")
    ] = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Go on with a run after its last finished step. One that has finished prints its result again.

    A run that a command began is carried out again with what is recorded of it: its arguments, draft and
    criteria; a workflow with its values, and with its file as it is now, so that a mistake there can be
    mended. For any other run the Python call that resumes it is printed, with exit code 2.
    """
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit, emit_json
        from redraft.cli.kept_runs import read_record
        from redraft.cli.output import deliver
        from redraft.cli.resuming import check_idle, resume_command, resuming_call
        from redraft.cli.run_kept import kept_workflow
        from redraft.cli.run_resuming import resume_kept_workflow
        from redraft.cli.show import ending

        if (workflow := kept_workflow(run)) is not None:
            raise typer.Exit(resume_kept_workflow(workflow, as_json=as_json, force=force))
        record = read_record(run)
        if record.status == "finished":
            result = record.result()
            CalmConsole(stderr=True).show(ending(result))
            deliver(result, None, force=False, as_json=as_json)
            raise typer.Exit(code_of(result))
        check_idle(record, force=force)
        if record.origin.surface == "command":
            raise typer.Exit(resume_command(record, as_json=as_json))
        call = resuming_call(record)
        if as_json:
            emit_json({"run_id": record.run_id, "call": call})
        else:
            told = f"The run {record.run_id} belongs to a program of yours, which resumes it with this call:"
            CalmConsole(stderr=True).say(told)
            emit(call)
        raise typer.Exit(ExitCode.USAGE)
