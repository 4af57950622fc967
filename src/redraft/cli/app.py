"""The command `redraft`: what it offers, and how it begins."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from redraft.cli.check import check
from redraft.cli.cycle import cycle
from redraft.cli.demo import demo
from redraft.cli.diff import diff
from redraft.cli.doctor import doctor
from redraft.cli.exits import tell_error
from redraft.cli.export import export
from redraft.cli.lessons import lessons
from redraft.cli.notes import notes
from redraft.cli.resume import resume
from redraft.cli.revise import revise
from redraft.cli.run import run
from redraft.cli.runs import runs
from redraft.cli.schema import schema
from redraft.cli.settings import settings
from redraft.cli.show_run import show
from redraft.cli.ui import ui
from redraft.cli.why import why

EPILOG = (
    "Exit codes: 0 the criteria are met, 1 they are not, 2 something given was wrong, 3 a budget ran out, "
    "4 the model failed, 70 a defect in Redraft, 130 interrupted."
)

# Plain help: Rich would take a good part of the time that `redraft --help` may.
app = typer.Typer(
    name="redraft",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(demo, check, revise, run, runs, show, why, diff, resume, export, ui, schema, doctor, settings),
):
    app.command()(command)
app.add_typer(notes, name="notes")
app.add_typer(lessons, name="lessons")
app.add_typer(cycle, name="cycle")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"redraft {version('redraft')}")
        raise typer.Exit


@app.callback()
def redraft(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Redraft until it is good: judge a draft by criteria, revise it, keep the best version."""


def main() -> None:
    """Run the command line of this process."""
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a character should not cost anybody a finished run.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] (true of real streams)
    try:
        app()
    except OSError as error:  # the help can't be written: no command was begun that would have told it
        sys.exit(tell_error(error, debug=False))


def _open_missing_streams() -> None:
    """Let a stream that was closed by whoever started us be empty, or lead nowhere; Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if vars(sys)[name] is None:
            # The lowest free descriptor is taken: that of the very stream, and no file of ours comes there.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (for good)
