"""The command line `redraft`; each command is loaded when it is called."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
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


FIRST = {
    "demo": ("redraft.demo.cli", "Show Redraft at work, offline."),
    "check": ("redraft.loop.cli", "Judge a draft by criteria."),
    "revise": ("redraft.loop.cli", "Revise a draft until its criteria are met."),
    "runs": ("redraft.history.cli", "List runs and workflows, newest first."),
    "show": ("redraft.history.cli", "Show a run."),
    "why": ("redraft.history.cli", "Explain why a run stopped."),
    "diff": ("redraft.history.cli", "Compare two versions of a run."),
    "resume": ("redraft.history.cli", "Resume a run after its last finished step."),
    "eval": ("redraft.evals.cli", "Evaluate agents on your own cases."),
    "ui": ("redraft.dashboard", "Open the dashboard in a browser."),
}
"""The commands that a newcomer needs, with their modules and lines in the help."""
MORE = {
    "Criteria and runs": {
        "criteria": "redraft.proposals.cli",
        "calibrate": "redraft.evals.cli",
        "export": "redraft.history.cli",
    },
    "Memory": {"notes": "redraft.notes.cli", "lessons": "redraft.lessons.cli"},
    "Workflows, cycles": {
        "run": "redraft.workflow.cli",
        "test": "redraft.workflow.cli",
        "schema": "redraft.main",
        "cycle": "redraft.cycles.cli",
        "approve": "redraft.history.approve",
    },
    "Coding agents": {"hook": "redraft.integrations.cli", "mcp": "redraft.integrations.cli"},
    "Fleet": {
        "worker": "redraft.fleet.cli",
        "submit": "redraft.fleet.cli",
        "fleet": "redraft.fleet.cli",
        "cancel": "redraft.fleet.cli",
    },
    "Project": {
        "doctor": "redraft.doctor",
        "settings": "redraft.doctor",
        "token": "redraft.dashboard",
        "forget": "redraft.retention.cli",
        "prune": "redraft.retention.cli",
        "backup": "redraft.retention.cli",
        "restore": "redraft.retention.cli",
    },
}
"""The modules of the other commands, by group; the help has a line for each group."""
AFTER_COMMANDS = {
    "Options": "--help, also after COMMAND; --version",
    "Read more": "docs/start.md, docs/commands.md",
}
"""The last lines of the help."""
REMOVED = {
    "optimize": "tune texts with GEPA over an Evaluation, as examples/tune_with_gepa.py does",
    "eval export": "write the rows with a few lines of Python, as examples/training_pairs.py does",
    "eval --fleet": "leave it out: one process evaluates many cases at once, --concurrency says how many",
    "lessons export --force": "leave it out: an export replaces the block; the diff shows what changes",
    "lessons sync": "a project on PostgreSQL keeps its lessons there; docs/fleet.md says how to move files",
    "cycle feedback --approve": "praise needs only -m TEXT; to decide on a plan: `redraft approve AGENT`",
    "calibrate --wording": "change the criteria, which makes them another judge; docs/evaluate.md",
    "demo --memory": "leave it out: docs/start.md shows what notes do for the next runs of a task",
    "restore --max-size": "leave it out: a backup is unpacked whatever its size; --check says what is in it",
}
"""Commands and options of earlier versions, each with its replacement."""
COMMANDS = {name: module for name, (module, _) in FIRST.items()} | {
    name: module for group in MORE.values() for name, module in group.items()
}


class Commands(TyperGroup):
    """A group that loads the module of a command when it is called; `redraft --help` loads none."""

    def list_commands(self, ctx: _click.Context) -> list[str]:  # noqa: ARG002 (Typer passes it)
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def parse_args(self, ctx: _click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; `redraft help COMMAND` is `redraft COMMAND --help`."""
        if args[:1] in (["help"], ["-help"]):
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def get_command(self, ctx: _click.Context, cmd_name: str) -> _click.Command | None:  # noqa: ARG002 (as above)
        """Load a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        implementation = getattr(import_module(COMMANDS[cmd_name]), cmd_name)
        if isinstance(implementation, typer.Typer):
            group = implementation
        else:
            group = typer.Typer(rich_markup_mode=None, add_completion=False)
            group.command()(implementation)
        command = get_command(group)
        command.name = cmd_name
        return command

    def resolve_command(
        self, ctx: _click.Context, args: list[str]
    ) -> tuple[str | None, _click.Command | None, list[str]]:
        """Find the command that the arguments name; an unknown or removed one gets a hint."""
        options = [arg.partition("=")[0] for arg in args if arg.startswith("-")]
        for removed, instead in REMOVED.items():
            command, *more = removed.split()
            if args[0] == command and set(more) <= {*args[1:2], *options}:
                ctx.fail(f"There is no `redraft {removed}`: {instead}.")
        if args[0] not in COMMANDS:
            close = get_close_matches(args[0], ["help", *COMMANDS], 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: _click.Context, formatter: _click.HelpFormatter) -> None:
        """Write the help: 22 lines, which a terminal of 80 columns and 24 lines shows with the prompt."""
        formatter.write_text(self.help or "")
        self.format_usage(ctx, formatter)
        first = [(name, line) for name, (_, line) in FIRST.items()]
        more = [(group, ", ".join(commands)) for group, commands in MORE.items()]
        for rows in (first, [*more, *AFTER_COMMANDS.items()]):
            formatter.write_paragraph()
            with formatter.indentation():
                formatter.write_dl(rows)


# Plain help: importing Rich would take most of the time of `redraft --help`.
app = typer.Typer(
    name="redraft",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=True,
    options_metavar="",
    subcommand_metavar="COMMAND [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(f"redraft {version('redraft')}")
        raise typer.Exit


@app.callback()
def redraft(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Judge a draft, and revise it until it meets your criteria."""


def main() -> None:
    """Run the command line of this process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if vars(sys)[name] is None:  # closed by the caller
            # This takes the stream's own descriptor, the lowest free one, before another file can.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (for good)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal cannot show must not lose a finished run.
        stream.reconfigure(errors="replace")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] (true of real streams)
    try:
        app()
    except OSError as error:  # the help cannot be written; commands report their own errors
        sys.exit(report_error(error, debug=False))


class FileKind(StrEnum):
    """The kinds of files that have a schema."""

    WORKFLOW = "workflow"
    AGENT = "agent"


def schema(
    kind: Annotated[FileKind, typer.Argument(metavar="KIND", help="The kind of files.")] = FileKind.WORKFLOW,
    debug: options.Debug = False,
) -> None:
    """Print the JSON Schema of workflow or agent files, for completion and checks in an editor.

    Write it into a file, such as workflow.schema.json, and begin a workflow with the line
    `# yaml-language-server: $schema=workflow.schema.json`.
    """
    with surface(debug=debug):
        import json

        from redraft.terminal.console import emit

        if kind is FileKind.AGENT:
            from redraft.cycles.spec import agent_schema as file_schema
        else:
            from redraft.workflow.spec import workflow_schema as file_schema

        emit(json.dumps(file_schema(), indent=2))
