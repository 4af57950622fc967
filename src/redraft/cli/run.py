"""`redraft run`: carry out a workflow file, or say what can be known of it beforehand."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import surface

File: TypeAlias = Annotated[
    str, typer.Argument(metavar="FILE", help="The workflow, a YAML file.", show_default=False)
]
Values: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--value",
        "-v",
        metavar="NAME=TEXT",
        help="A value of the state: NAME=TEXT as it is, NAME=@FILE the text of a file (@- of stdin), "
        "NAME:=JSON or NAME:=@FILE as JSON. As often as needed.",
    ),
]
Check: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Run nothing: say what is wrong, or ok and what it would use.")
]
Model: TypeAlias = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="The model that answers, whatever the file names."),
]
AllowUnsandboxed: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-unsandboxed", help="Run `sandbox: process` code with limits only where no jail works."
    ),
]


def run(
    file: File,
    values: Values = None,
    check: Check = False,
    model: Model = None,
    allow_unsandboxed: AllowUnsandboxed = False,
    events: options.Events = None,
    no_keep: options.NoKeep = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Run a workflow. Prints what its last node gave, with --json the state at its end.

    Of a loop its output is printed, and of an object with one text that text. Exit code 1 says that a loop
    with `on_failure: raise` failed.
    """
    with surface(debug=debug):
        from redraft.cli.console import CalmConsole
        from redraft.cli.run_check import report
        from redraft.cli.run_kept import taken_up
        from redraft.cli.run_outcome import deliver_workflow, workflow_ending
        from redraft.cli.run_progress import WorkflowProgress
        from redraft.cli.run_ready import ready
        from redraft.cli.run_values import given_values
        from redraft.cli.run_workflow import carry_out_workflow, told_how_to_go_on
        from redraft.cli.watching import watched

        again = taken_up.get()
        given = given_values(values or ()) if again is None else again.record.given
        found = ready(file, given, model=model, keep=not no_keep, allow_unsandboxed=allow_unsandboxed)
        if check:
            report(found, as_json=as_json, allow_unsandboxed=allow_unsandboxed)
            return
        told = CalmConsole(stderr=True)
        progress = WorkflowProgress(told, [node.name for node in found.workflow.spec.nodes])
        with (
            watched(progress, events) as listener,
            told_how_to_go_on(progress, told.say, debug=debug),
            progress,
        ):
            result = carry_out_workflow(found, listener, keep=not no_keep)
        told.say(workflow_ending(result))
        if result.run_id:
            told.say(f"Kept as {result.run_id}; redraft show last")
        deliver_workflow(result, progress.last, as_json=as_json)
