"""Declare commands: groups with a default, and errors as exit codes."""

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
"""More characters than the first sentence of a command's help has."""


class CommandGroup(TyperGroup):
    """A group whose help has the whole first sentence of each command, on several lines if need be."""

    def format_commands(self, ctx: _click.Context, formatter: _click.HelpFormatter) -> None:
        """Write the commands into the help."""
        rows = [
            (name, command.get_short_help_str(LONGEST_LINE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def command_group(*, help: str, default: str = "", takes_files: bool = False) -> typer.Typer:  # noqa: A002 (as Typer calls it)
    """Return a group of commands that runs `default`, or shows its help, if it is called without a command.

    With `takes_files`, so does a first argument that names no command and has a dot or a colon in it.
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

    The command has the option `--debug`, which prints the traceback instead. An async function runs in
    `run_async`.
    """
    return _command(function, debug=(Debug, False))


def at_database(function: Function) -> Callable[..., None]:
    """As `handles_errors`, with the option `--database`: the store that takes the place of the project's."""
    return _command(function, database=(Database, None), debug=(Debug, False))


def _command(function: Function, **shared: tuple[Any, Any]) -> Callable[..., None]:
    """Make a command with shared options; the function gets those that are parameters of it."""
    # Evaluated here, since Typer would look up the annotations in this module.
    declared = signature(function, eval_str=True)
    options = {
        name: Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in shared.items()
    }

    @wraps(function)
    def command(**given: Any) -> None:
        from redraft.stores.location import store_at

        own = {name: value for name, value in given.items() if name in declared.parameters}
        with surface(debug=given["debug"]), store_at(given["database"] if "database" in options else None):
            result = function(**own)
            if isawaitable(result):
                run_async(result)

    # Those that the function has, too, keep their own declaration, but come last as everywhere.
    parameters = sorted({**options, **declared.parameters}.values(), key=lambda one: one.name in options)
    shown = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    vars(command)["__signature__"] = declared.replace(parameters=shown)
    return command


def run_async(main: Awaitable[T]) -> T:
    """Run the asynchronous part of a command, and close the project's store at its end.

    Unlike `asyncio.run`, it ends even if a task of a library ignores its cancellation.
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

    runner = asyncio.Runner()  # not closed by itself: that waits for all tasks, without a bound
    loop = runner.get_loop()
    try:
        return runner.run(running())
    finally:
        loop.run_until_complete(end_others())
        loop.close()
        asyncio.set_event_loop(None)


def own_command() -> str:
    """Return the command `redraft` as a shell in this folder finds it: with its path if it needs one."""
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{shlex.quote(sys.executable)} -m redraft"
    found = shutil.which("redraft")
    if started.name != "redraft" or not started.is_file() or (found and Path(found).samefile(started)):
        return "redraft"
    path, here = os.path.abspath(started), Path.cwd()  # noqa: PTH100 (a virtual environment is a link that must stay)
    return shlex.quote(str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path)
