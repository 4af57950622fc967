"""`redraft forget`: erase what is stored of a run, a task or a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from redraft._texts import counted
from redraft.errors import ConfigError
from redraft.retention.project_data import ProjectData
from redraft.terminal import options
from redraft.terminal.commands import confirm, run_async
from redraft.terminal.console import QUIET, CalmConsole, emit_json
from redraft.terminal.exits import surface
from redraft.text.characters import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from redraft.retention.project_data import Forgotten

Check = Annotated[bool, typer.Option("--check", help="Show what would be deleted, and delete nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
MOST_SHOWN = 10


def forget(
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="A run's id, its beginning, or 'last'.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="All runs of a task: its description, digest or name."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="Everything that contains a text, such as a name."),
    ] = None,
    check: Check = False,
    force: Annotated[
        bool, typer.Option("--force", help="Erase runs of processes that this machine can't check, too.")
    ] = False,
    yes: Yes = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Erase a run, a task's runs, or whatever contains a text, wherever Redraft has stored it."""
    with surface(debug=debug):
        if sum(one is not None for one in (run, task, text)) != 1:
            raise ConfigError("Say what to forget: one of --run RUN, --task TASK and --text TEXT.")
        run_async(_forget(run, task, text, check=check, force=force, yes=yes, as_json=as_json))


async def _forget(
    run: str | None,
    task: str | None,
    text: str | None,
    *,
    check: bool,
    force: bool,
    yes: bool,
    as_json: bool,
) -> None:
    data = ProjectData()
    if check or not yes:
        found = await data.forget(run=run, task=task, text=text, check=True, force=force)
        if check:
            _deliver(found, as_json=as_json)
            return
        CalmConsole(stderr=True).show(_forgotten_text(found))
        if not confirm("Erase it for good?", to="erase", done="erased"):
            CalmConsole(stderr=True).say("Nothing was erased.")
            return
    _deliver(await data.forget(run=run, task=task, text=text, force=force), as_json=as_json)


def _deliver(found: Forgotten, *, as_json: bool) -> None:
    if as_json:
        emit_json({"forgotten": found})
    else:
        CalmConsole().show(_forgotten_text(found))


def _forgotten_text(found: Forgotten) -> RenderableType:
    verb = "Would erase" if found.checked else "Erased"
    things = ", ".join(counted(number, name) for name, number in found.counts.items())
    lines = [Text(f"{verb}: {things}." if things else "Nothing is stored of it.")]
    for name, ids in (("run", found.runs), ("lesson", found.lessons), ("playbook", found.playbooks)):
        lines += [Text(visible(f"  {name}  {one}"), QUIET) for one in ids[:MOST_SHOWN]]
        if len(ids) > MOST_SHOWN:
            lines.append(Text(f"  and {len(ids) - MOST_SHOWN} more", QUIET))
    if found.unreadable:
        damaged = counted(found.unreadable, "damaged record")
        lines.append(Text(f"{damaged} can't be read: redraft doctor names them."))
    if found.other_files:
        lines.append(Text("These files contain it, too, and are yours to change:"))
        lines += [Text(visible(f"  {one}")) for one in found.other_files]
    lines += [Text(visible(remark)) for remark in found.remarks]
    if not found.checked:
        lines.append(Text(OUT_OF_REACH, QUIET))
    return Group(*lines)


OUT_OF_REACH = (
    "Out of reach: backups, git history, copies elsewhere, the folders of other machines, and what providers "
    "of models and telemetry keep."
)
