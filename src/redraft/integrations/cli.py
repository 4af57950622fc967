"""`redraft hook` and `redraft mcp`: the commands that coding agents call, and their installation."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from redraft.errors import ConfigError, MissingExtraError
from redraft.integrations.hook_answer import GIT, answer
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors, run_async
from redraft.terminal.console import CalmConsole, emit
from redraft.terminal.exits import ExitCode
from redraft.terminal.input import confirm, on_interrupt

if TYPE_CHECKING:
    from redraft.integrations.coding_agents import CodingAgent
    from redraft.integrations.hook_install import FileChange
    from redraft.integrations.hook_settings import HookOptions
    from redraft.web.guard import Address

hook = command_group(help="Check what coding agents do, and tell them what was learned.")

CALLED = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Settings of commands that agents call. Exit code 2 blocks an agent, so no argument is a usage error."""

Caller: TypeAlias = Annotated[str, typer.Argument(metavar="AGENT", help="claude, codex, cursor or git.")]
Check: TypeAlias = Annotated[
    bool, typer.Option("--check", help="Show the change without making it; exit with 1 if there is one.")
]
Program: TypeAlias = Annotated[
    str,
    typer.Option("--program", metavar="COMMAND", help="How to start redraft, such as 'uv run redraft'."),
]


@hook.command(context_settings=CALLED, options_metavar="AGENT")
def stop(context: typer.Context) -> None:
    """Judge what the agent did in a turn. If a criterion is not met, the agent has to go on.

    Reads the agent's event as JSON from stdin, and answers as the agent expects. For git, the hook judges
    what is staged, and exits with 10 if a criterion is not met. If something keeps Redraft from judging,
    nothing is blocked, and a line on stderr says why.
    """
    raise typer.Exit(answer("stop", context.args))


@hook.command(context_settings=CALLED, options_metavar="AGENT")
def start(context: typer.Context) -> None:
    """Tell the agent what was learned. Runs at the start of a session and with each prompt."""
    raise typer.Exit(answer("start", context.args))


@hook.command(context_settings=CALLED, options_metavar="AGENT")
def before(context: typer.Context) -> None:
    """Tell the agent what failed before it does the same again. Nothing is blocked."""
    raise typer.Exit(answer("before", context.args))


@hook.command(context_settings=CALLED, options_metavar="AGENT")
def end(context: typer.Context) -> None:
    """End a session. What it teaches is written down in the background."""
    raise typer.Exit(answer("end", context.args))


@hook.command()
@handles_errors
def learn() -> None:
    """Write the lessons of sessions that have ended. `redraft hook end` does so by itself."""
    from redraft.integrations.hook import learn

    for lesson in run_async(learn()):
        emit(lesson)


@hook.command()
@handles_errors
def accept() -> None:
    """Show what has changed in the settings and criteria since they were accepted, and accept it.

    What an agent changes while it is at work is not applied until then. It takes a person at a terminal.
    """
    from redraft.integrations.hook import accept
    from redraft.integrations.hook_install import FileChange
    from redraft.integrations.hook_sessions import Sessions
    from redraft.settings import project_folder

    accepted = Sessions().accepted()
    changed = {} if accepted is None else accepted.changed(project_folder())
    if accepted is None or not changed:
        CalmConsole(stderr=True).say("Nothing has changed.")
        return
    for name, text in changed.items():
        emit(FileChange(Path(name), accepted.texts[name], text).diff)
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was accepted: a person has to do that, at a terminal.")
    if not confirm("Accept this?", to="accept", done="accepted"):
        raise typer.Exit(ExitCode.NOT_MET)
    accept()


@hook.command()
@handles_errors
def install(
    agent: Caller,
    program: Program = "",
    check: Check = False,
) -> None:
    """Have a coding agent, or git before a commit, call the hook. Shows what it writes."""
    from redraft.integrations.hook_install import installed, installed_in_git
    from redraft.integrations.hook_settings import HookOptions

    hook_options = HookOptions.load()  # before anything is written
    root, configured = _repository(), _configured(agent)
    program = program or _this_program()
    if configured is None:
        change = installed_in_git(_pre_commit(), program)
    else:
        change = installed(configured, root, program)
    _make(change, check=check)
    _advise(configured, change.path, program, hook_options)


@hook.command()
@handles_errors
def uninstall(
    agent: Caller,
    check: Check = False,
) -> None:
    """Remove what `install` wrote, and nothing else."""
    from redraft.integrations.hook_install import uninstalled, uninstalled_from_git

    root, configured = _repository(), _configured(agent)
    change = uninstalled_from_git(_pre_commit()) if configured is None else uninstalled(configured, root)
    _make(change, check=check)


def _configured(name: str) -> CodingAgent | None:
    """The agent of this name, None for git; raises `ConfigError` for any other name."""
    from redraft._validation import check_choice
    from redraft.integrations.coding_agents import AGENTS

    check_choice("AGENT", name, [*AGENTS, GIT])
    return AGENTS.get(name)


def _make(change: FileChange, *, check: bool) -> None:
    if change.before == change.after:
        CalmConsole(stderr=True).say(f"{change.path}: nothing to change.")
        return
    if check:
        emit(change.diff)
        raise typer.Exit(ExitCode.NOT_MET)
    change.write()
    CalmConsole(stderr=True).say(f"{'Deleted' if change.after is None else 'Written'}: {change.path}")


def _advise(agent: CodingAgent | None, path: Path, program: str, hook_options: HookOptions) -> None:
    """Print the remaining steps."""
    from redraft.integrations.git import locate
    from redraft.integrations.hook_install import HUSKY
    from redraft.settings import project_folder

    criteria = project_folder() / hook_options.criteria
    if locate(Path.cwd()) is None:
        CalmConsole(stderr=True).say("This is not a git repository: until it is, nothing is checked.")
    if not criteria.is_file():
        CalmConsole(stderr=True).say(f"Write the criteria next: {criteria} does not exist.")
    if agent is not None and Path(shlex.split(program)[0]).is_absolute():
        CalmConsole(stderr=True).say(
            "The command is a path on this machine; for others who share the file, pass --program."
        )
    if agent is not None and agent.note:
        CalmConsole(stderr=True).say(agent.note)
    if path.name == "pre-commit" and path.parent.name != HUSKY and not os.access(path, os.X_OK):
        CalmConsole(stderr=True).say(f"git ignores {path} until it is executable.")


def _this_program() -> str:
    """Command that starts this `redraft`: its path, unless the name alone works outside its venv."""
    import shutil

    own = Path(sys.executable).with_name("redraft")
    search_path = os.environ.get("PATH", "").split(os.pathsep)
    folders = [folder for folder in search_path if Path(folder) != own.parent]
    if sys.prefix == sys.base_prefix:
        folders.append(str(own.parent))
    found = shutil.which("redraft", path=os.pathsep.join(folders))
    return "redraft" if found and Path(found).resolve() == own.resolve() else shlex.quote(str(own))


def _repository() -> Path:
    """Top folder of the git repository, else the project folder."""
    from redraft.integrations.git import locate
    from redraft.settings import project_folder

    location = locate(Path.cwd())
    return project_folder() if location is None else location[0]


def _pre_commit() -> Path:
    from redraft.integrations.git import WorkTree
    from redraft.integrations.hook_install import HUSKY

    process = WorkTree(Path.cwd()).run("rev-parse", "--git-path", "hooks")
    if process.returncode:
        raise ConfigError(f"{str(Path.cwd())!r} is not in a git repository.")
    path = Path(os.fsdecode(process.stdout).removesuffix("\n")).absolute()
    # husky runs the hooks of the parent folder, and rewrites the folder that git reads on each install.
    return (path.parent if path.parts[-2:] == (HUSKY, "_") else path) / "pre-commit"


@handles_errors
def mcp(
    http: Annotated[
        bool, typer.Option("--http", help="Serve any number of clients on this machine over HTTP.")
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
        typer.Option(
            "--folder", metavar="DIR", help="The folder of the project. Default: the working folder."
        ),
    ] = None,
    criteria: Annotated[
        str | None,
        typer.Option(
            "--criteria",
            "-c",
            metavar="YAML",
            help="The criteria file to use if a client names none. Default: criteria.yaml, if there is one.",
        ),
    ] = None,
    agent: Annotated[
        str,
        typer.Option(
            "--agent",
            metavar="NAME",
            help="The name under which lessons are stored. Default: the hook's.",
        ),
    ] = "",
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
) -> None:
    """Serve checks, lessons and runs to coding agents, over MCP.

    An agent starts it by itself and talks to it over stdin and stdout:

    \b
    claude mcp add redraft -- redraft mcp
    codex mcp add redraft -- redraft mcp

    docs/coding-agents.md documents the tools. Budgets hold for each draft that is judged.
    """  # noqa: D301 (the character by which click knows that lines stay as they are)
    if find_spec("mcp") is None:
        raise MissingExtraError("The MCP server", "mcp")
    if folder is not None:
        try:
            os.chdir(folder)
        except OSError as error:
            raise ConfigError(f"The folder {str(folder)!r} can't be used: {error.strerror}.") from error
    from redraft.integrations.hook_settings import HookOptions
    from redraft.integrations.mcp import CRITERIA, ProjectTools, path_in_project, serve_http, serve_stdio

    if criteria is not None:
        path_in_project(criteria)
    tools = ProjectTools(
        agent or HookOptions.load().lessons,
        model,
        CRITERIA if criteria is None else criteria,
        wait,
        budget_tokens,
        budget_usd,
        budget_seconds,
    )
    if not http:
        with on_interrupt(signal.SIG_DFL):  # the SDK's thread would wait for a line of stdin before it stops
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
        run_async(serve_http(tools, Keys(chosen, browsers=False), port, announce))
    except KeyboardInterrupt:  # the normal end: uvicorn raises it again once all is closed
        return
