"""`redraft mcp`: what coding agents start."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.errors import ConfigError, MissingExtraError
from redraft.terminal import options
from redraft.terminal.commands import run_async
from redraft.terminal.console import CalmConsole
from redraft.terminal.exits import surface

if TYPE_CHECKING:
    from redraft.web.guard import Address


def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve any number of clients of this machine over HTTP.")
    ] = False,
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="The port for --http; 0 picks any free one.")
    ] = 8766,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="REDRAFT_MCP_TOKEN",
            show_envvar=True,
            metavar="TOKEN",
            help="The token that clients send with --http. Without it, a new one is made and printed.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="The project, if it is not the working folder."),
    ] = None,
    criteria: Annotated[
        str,
        typer.Option("--criteria", "-c", metavar="YAML", help="The criteria where a client names none."),
    ] = "criteria.yaml",
    agent: Annotated[
        str, typer.Option("--agent", metavar="NAME", help="The name under which lessons are kept.")
    ] = "coding-agent",
    model: options.Model = None,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", metavar="S", min=0, help="Answer with a run id if judging takes longer than S seconds."
        ),
    ] = 45.0,
    budget_tokens: options.BudgetTokens = None,
    budget_usd: options.BudgetUsd = None,
    budget_seconds: options.BudgetSeconds = None,
    debug: options.Debug = False,
) -> None:
    """Serve this project's checks, lessons and runs to coding agents, over MCP.

    An agent starts it by itself and talks to it over stdin and stdout:

    \b
    claude mcp add redraft -- redraft mcp
    codex mcp add redraft -- redraft mcp

    docs/mcp.md documents the tools. Budgets hold for each draft that is judged.
    """  # noqa: D301 (the character by which click knows that lines stay as they are)
    with surface(debug=debug):
        if find_spec("mcp") is None:
            raise MissingExtraError("The MCP server", "mcp")
        if folder is not None:
            _work_in(folder)
        from redraft.integrations.mcp import ProjectTools, serve_http, serve_stdio

        tools = ProjectTools(agent, model, criteria, wait, budget_tokens, budget_usd, budget_seconds)
        if not http:
            run_async(serve_stdio(tools))
            return
        from redraft.web.guard import Keys

        chosen, console = token or token_urlsafe(32), CalmConsole(stderr=True)

        def announce(address: Address) -> None:
            console.say(f"Redraft serves MCP at {address.url}mcp")
            if token is None:
                console.say(f"Clients send the header 'Authorization: Bearer {chosen}'.")
            console.say("Ctrl-C stops it.")

        try:
            run_async(serve_http(tools, Keys(chosen), port, announce))
        except KeyboardInterrupt:  # the normal end: uvicorn raises it again once all is closed
            return


def _work_in(folder: Path) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(f"The folder {str(folder)!r} can't be used: {error.strerror}.") from error
