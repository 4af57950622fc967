"""The command `redraft`: its commands, each loaded when it is called."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from redraft.terminal import options
from redraft.terminal.exits import report_error, surface

if TYPE_CHECKING:
    from typer import _click


class Kind(StrEnum):
    """Name the kinds of files."""

    WORKFLOW = "workflow"
    AGENT = "agent"


def schema(
    kind: Annotated[Kind, typer.Argument(help="Of which files.")] = Kind.WORKFLOW,
    debug: options.Debug = False,
) -> None:
    """Print the JSON Schema of workflow or agent files, with which an editor completes and checks them.

    Write it into a file, such as workflow.schema.json, and begin a workflow with the line
    `# yaml-language-server: $schema=workflow.schema.json`.
    """
    with surface(debug=debug):
        import json

        from redraft.terminal.console import emit

        if kind is Kind.AGENT:
            from redraft.cycles.spec import agent_schema as made
        else:
            from redraft.workflow.spec import workflow_schema as made

        emit(json.dumps(made(), indent=2))


EPILOG = (
    "Exit codes: 0 the criteria are met, 1 they are not, 2 something given was wrong, 3 a budget ran out, "
    "4 the model failed, 70 a defect in Redraft, 130 interrupted."
)

COMMANDS = {
    "demo": ("redraft.demo", "Show it at work, offline."),
    "check": ("redraft.loop.cli", "Judge a draft by criteria."),
    "revise": ("redraft.loop.cli", "Revise a draft until its criteria are met."),
    "run": ("redraft.workflow.cli", "Run a workflow."),
    "runs": ("redraft.history.cli", "List the runs and workflows that are kept here, the newest first."),
    "show": ("redraft.history.cli", "Show a kept run."),
    "why": ("redraft.history.cli", "Say why a run stopped."),
    "diff": ("redraft.history.cli", "Compare two versions of a run."),
    "resume": ("redraft.history.cli", "Go on with a run after its last finished step."),
    "export": ("redraft.history.cli", "Export a kept run."),
    "ui": ("redraft.dashboard", "Open the dashboard in a browser."),
    "schema": ("redraft.main", "Print the JSON Schema of workflow or agent files."),
    "doctor": ("redraft.doctor", "Say what works here."),
    "settings": ("redraft.doctor", "Print the settings that apply in this folder."),
    "notes": ("redraft.notes.cli", "List the notes on tasks."),
    "lessons": ("redraft.lessons.cli", "Read, search and edit what agents have learnt."),
    "cycle": ("redraft.cycles.cli", "Run agents in cycles."),
}
"""Each command with the module that has it and its line of the help, which is listed without loading it."""


class Commands(TyperGroup):
    """Load the module of a command when that is called: `redraft --help` loads none of them."""

    def list_commands(self, ctx: _click.Context) -> list[str]:  # noqa: ARG002 (as Typer calls it)
        """Return the names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: _click.Context, cmd_name: str) -> _click.Command | None:  # noqa: ARG002 (likewise)
        """Return a command by its name, or None."""
        if cmd_name not in COMMANDS:
            return None
        found = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        if isinstance(found, typer.Typer):
            group = found
        else:
            group = typer.Typer(rich_markup_mode=None, add_completion=False)
            group.command()(found)
        command = get_command(group)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: _click.Context, formatter: _click.HelpFormatter) -> None:  # noqa: ARG002 (likewise)
        """List the commands of the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


# Plain help: Rich would take a good part of the time that `redraft --help` may.
app = typer.Typer(
    name="redraft",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
        sys.exit(report_error(error, debug=False))


def _open_missing_streams() -> None:
    """Let a stream that was closed by whoever started us be empty, or lead nowhere; Python has None there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if vars(sys)[name] is None:
            # The lowest free descriptor is taken: that of the very stream, and no file of ours comes there.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (for good)
