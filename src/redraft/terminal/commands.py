"""Declare commands: groups with a default command, shared options, and errors as exit codes."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from functools import partial, wraps
from inspect import Parameter, isawaitable, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import typer
from typer.core import TyperGroup

from redraft.terminal.exits import surface
from redraft.terminal.options import Database, Debug

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from typer import _click

T = TypeVar("T")
Function: TypeAlias = "Callable[..., Awaitable[None] | None]"

_HELP = {"help_option_names": ["-h", "--help"]}
LONGEST_LINE = 1_000
"""Characters; the first sentence of a command's help is never longer."""


class CommandGroup(TyperGroup):
    """A group whose help shows the whole first sentence of each command, on several lines if needed."""

    def format_commands(self, ctx: _click.Context, formatter: _click.HelpFormatter) -> None:
        """List the commands in the help."""
        rows = [
            (name, command.get_short_help_str(LONGEST_LINE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def command_group(*, help: str, default: str = "", takes_files: bool = False) -> typer.Typer:  # noqa: A002 (as Typer calls it)
    """Make a group of commands; without a command, it runs `default`, or shows its help.

    With `takes_files`, it also runs `default` if the first argument is not a command and contains a dot or a
    colon.
    """
    make = partial(
        typer.Typer, help=help, rich_markup_mode=None, add_completion=False, context_settings=_HELP
    )
    if not default:
        return make(cls=CommandGroup, no_args_is_help=True)

    class Group(CommandGroup):
        def parse_args(self, ctx: _click.Context, args: list[str]) -> list[str]:
            first = args[0] if args else "-"
            is_file = takes_files and first not in self.commands and not {".", ":"}.isdisjoint(first)
            if is_file or (first.startswith("-") and first not in _HELP["help_option_names"]):
                args = [default, *args]
            return super().parse_args(ctx, args)

        def format_epilog(self, ctx: _click.Context, formatter: _click.HelpFormatter) -> None:
            path = ctx.command_path
            self.epilog = (
                f"Without a command, `{path}` runs `{path} {default}` and takes its options: "
                f"`{path} {default} --help` lists them."
            )
            super().format_epilog(ctx, formatter)

    return make(cls=Group)


def handles_errors(function: Function) -> Callable[..., None]:
    """Make a command of a sync or async function: an error becomes a line on stderr and an exit code.

    The option `--debug` prints the traceback instead. An async function runs in `run_async`.
    """
    return _command(function, debug=(Debug, False))


def at_database(function: Function) -> Callable[..., None]:
    """Like `handles_errors`, with the option `--database`, which replaces the store of the project."""
    return _command(function, database=(Database, None), debug=(Debug, False))


def _command(function: Function, **shared: tuple[Any, Any]) -> Callable[..., None]:
    """Make a command with shared options; the function gets only the options that it declares."""
    # Annotations are evaluated now, since Typer would look them up in this module.
    declared = signature(function, eval_str=True)
    options = {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    }

    @wraps(function)
    def command(**arguments: Any) -> None:
        from redraft.stores.location import store_at

        own = {name: value for name, value in arguments.items() if name in declared.parameters}
        database = arguments["database"] if "database" in options else None
        with surface(debug=arguments["debug"]), store_at(database):
            result = function(**own)
            if isawaitable(result):
                run_async(result)

    # A shared option that the function declares keeps its declaration, but comes last as in all commands.
    parameters = sorted(
        {**options, **declared.parameters}.values(), key=lambda parameter: parameter.name in options
    )
    keywords = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(command)["__signature__"] = declared.replace(parameters=keywords)
    return command


def run_async(main: Awaitable[T]) -> T:
    """Run the asynchronous part of a command, then close the project's store.

    Unlike `asyncio.run`, it returns even if a task of a library ignores its cancellation.
    """
    from redraft._tasks import end_tasks
    from redraft.stores.location import close_project_store

    async def running() -> T:
        try:
            return await main
        finally:
            await close_project_store()

    async def end_others() -> None:
        await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})
        await asyncio.get_running_loop().shutdown_asyncgens()
        await asyncio.get_running_loop().shutdown_default_executor()

    runner = asyncio.Runner()  # not used as a context manager, which would wait for all tasks without a bound
    loop = runner.get_loop()
    try:
        return runner.run(running())
    finally:
        try:
            loop.run_until_complete(end_others())
        finally:  # also at a second Ctrl-C
            loop.close()
            asyncio.set_event_loop(None)


def own_command() -> str:
    """The command with which a shell in this folder finds `redraft`, with its path if needed."""
    program = Path(sys.argv[0])
    if program.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m redraft"
    on_path = shutil.which("redraft")
    if program.name != "redraft" or not program.is_file() or (on_path and Path(on_path).samefile(program)):
        return "redraft"
    path, folder = os.path.abspath(program), Path.cwd()  # noqa: PTH100 (a virtual environment is a link that must stay)
    return shlex.quote(str(Path(path).relative_to(folder)) if Path(path).is_relative_to(folder) else path)
