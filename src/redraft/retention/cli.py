"""`redraft forget`, `prune`, `backup` and `restore`."""

from __future__ import annotations

import re
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from redraft._texts import counted, sized
from redraft.errors import ConfigError
from redraft.retention.backup import back_up
from redraft.retention.backup import restore as restore_backup
from redraft.retention.project_data import ProjectData
from redraft.settings import project_folder
from redraft.terminal import options
from redraft.terminal.commands import handles_errors
from redraft.terminal.console import QUIET, CalmConsole, deliver
from redraft.terminal.exits import ExitCode
from redraft.terminal.input import confirm, read_stdin
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from rich.console import RenderableType

    from redraft.retention.backup import Backup
    from redraft.retention.project_data import Forgotten, Pruned

Check = Annotated[bool, typer.Option("--check", help="Show what would be deleted, and delete nothing.")]
Yes = Annotated[bool, typer.Option("--yes", help="Don't ask.")]
MOST_SHOWN = 10
PATIENCE = 2.0
"""Seconds after which a slow command says what it is doing."""
STDIN = "-"


@handles_errors
async def forget(
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="A run's id, its beginning, or 'last'.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="All runs of a task: its description, digest or name."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="TEXT",
            help="Everything that contains a text, such as a name; '-' reads it from standard input.",
        ),
    ] = None,
    check: Check = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also erase runs whose process this machine can't check.")
    ] = False,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Erase everything stored about a run, a task or a person (all that contains a text).

    The exit code is 1 if other files contain the text or an export of the run, or if something could not be
    searched.
    """
    if sum(option is not None for option in (run, task, text)) != 1:
        raise ConfigError("Say what to forget: --run RUN, --task TASK or --text TEXT.")
    if text == STDIN:
        text = read_stdin().strip()
    data = ProjectData()
    if check or not yes:
        with _patience("Searching all that is stored..."):
            preview = await data.forget(run=run, task=task, text=text, check=True, force=force)
        if check:
            _check_not_empty(preview, run, task)
            deliver(_forgotten_text(preview), {"forgotten": preview}, as_json=as_json)
            return
        if preview.counts:  # otherwise, don't ask, but complete a call that was interrupted
            CalmConsole(stderr=True).show(_forgotten_text(preview))
            if not confirm("Erase it for good?", to="erase", done="erased"):
                CalmConsole(stderr=True).say("Nothing was erased.")
                return
    with _patience("Searching all that is stored, and erasing..."):
        erased = await data.forget(run=run, task=task, text=text, force=force)
    _check_not_empty(erased, run, task)  # after erasing: a killed call may have left only bytes to overwrite
    deliver(_forgotten_text(erased), {"forgotten": erased}, as_json=as_json)
    raise typer.Exit(ExitCode.NOT_MET if erased.other_files or erased.unreadable else ExitCode.MET)


def _check_not_empty(forgotten: Forgotten, run: str | None, task: str | None) -> None:
    """Raise `ConfigError` if nothing is stored about a run or task: its name is probably wrong."""
    if forgotten.counts or forgotten.unreadable or (run is None and task is None):
        return
    thing = f"run {run!r}" if run is not None else f"run or note of the task {task!r}"
    completed = "" if forgotten.checked else " If an earlier call was interrupted, this one has completed it."
    raise ConfigError(f"There is no {thing} here; `redraft runs` lists the runs.{completed}")


def _forgotten_text(forgotten: Forgotten) -> RenderableType:
    verb = "Would erase" if forgotten.checked else "Erased"
    things = ", ".join(counted(number, name) for name, number in forgotten.counts.items())
    is_left = forgotten.other_files or forgotten.unreadable
    nothing = "There is nothing to erase." if is_left else "Nothing is stored about it."
    lines = [Text(f"{verb}: {things}." if things else nothing)]
    for name, ids in (
        ("run", forgotten.runs),
        ("lesson", forgotten.lessons),
        ("playbook", forgotten.playbooks),
    ):
        lines += [Text(visible(f"  {name}  {item}"), QUIET) for item in ids[:MOST_SHOWN]]
        if len(ids) > MOST_SHOWN:
            lines.append(Text(f"  and {len(ids) - MOST_SHOWN} more", QUIET))
    if forgotten.unreadable:
        lines.append(Text("These could not be searched, and were left as they are:"))
        lines += [Text(visible(f"  {place}")) for place in forgotten.unreadable]
    if forgotten.other_files:
        lines.append(Text("These other files contain it; change them yourself:"))
        lines += [Text(visible(f"  {file}")) for file in forgotten.other_files]
    lines += [Text(visible(remark)) for remark in forgotten.remarks]
    if not forgotten.checked:
        lines.append(Text(OUT_OF_REACH, QUIET))
    return Group(*lines)


@handles_errors
async def prune(
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Delete runs older than this: 12h, 90d or 8w."),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            "--max-size",
            metavar="SIZE",
            help="Delete the oldest runs until the store takes at most this: 500MB or 2GB.",
        ),
    ] = None,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Also delete runs that a person has labelled.")
    ] = False,
    check: Check = False,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Delete old runs and workflows with their journals. Notes, lessons, labels and evaluations stay."""
    if older_than is None and max_size is None:
        raise ConfigError("Say what to prune: --older-than AGE, --max-size SIZE, or both.")
    age = None
    if older_than is not None:
        age = timedelta(seconds=_number("--older-than", older_than, AGES, LONGEST))
    size = None if max_size is None else _number("--max-size", max_size, SIZES, LARGEST)
    data = ProjectData()
    if check or not yes:
        with _patience("Looking through the records..."):
            preview = await data.prune(older_than=age, max_bytes=size, labelled=labelled, check=True)
        if check or not preview.runs:
            deliver(_pruned_text(preview), {"pruned": preview}, as_json=as_json)
            return
        CalmConsole(stderr=True).show(_pruned_text(preview))
        if not confirm("Delete them for good?", to="delete", done="deleted"):
            CalmConsole(stderr=True).say("Nothing was deleted.")
            return
    with _patience("Looking through the records, and deleting..."):
        pruned = await data.prune(older_than=age, max_bytes=size, labelled=labelled)
    deliver(_pruned_text(pruned), {"pruned": pruned}, as_json=as_json)


AGES = {"h": 3_600, "d": 86_400, "w": 604_800}
SIZES = {"kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
LONGEST = 10_000_000_000
"""Seconds of the longest age, about 300 years, for which a date can still be computed."""
LARGEST = 10**18
"""Bytes of the largest size, a billion gigabytes."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def _number(option: str, text: str, units: Mapping[str, int], most: int) -> int:
    match = _NUMBER.fullmatch(text.strip())
    scales = {name.lower(): scale for name, scale in units.items()}
    if match is None or (scale := scales.get(match[2].lower())) is None:
        raise ConfigError(f"{option} must be a number with a unit ({', '.join(units)}), got {text!r}.")
    number = float(match[1]) * scale
    if number > most:
        unit = max(units, key=units.__getitem__)
        raise ConfigError(f"{option} must be at most {most // units[unit]}{unit}, got {text!r}.")
    return round(number)


def _pruned_text(pruned: Pruned) -> RenderableType:
    verb = "Would delete" if pruned.checked else "Deleted"
    runs = f"{verb} {counted(len(pruned.runs), 'run')}, {sized(pruned.bytes)} of records."
    lines = [Text(runs if pruned.runs else "There are no runs to delete.")]
    if pruned.size is not None and pruned.size_before is not None:
        before, after = sized(pruned.size_before), sized(pruned.size)
        lines.append(
            Text(
                f"The store takes {before}."
                if not pruned.runs
                else f"The store takes {before}, and would take about {after}."
                if pruned.checked
                else f"The store took {before}, and takes {after} now."
            )
        )
    for why, number in pruned.spared.items():
        verb = "stays" if number == 1 else "stay"
        lines.append(Text(f"{counted(number, 'run')} {verb}: {why}.", QUIET))
    lines += [Text(visible(remark)) for remark in pruned.remarks]
    return Group(*lines)


BackupFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the backup.")]


@handles_errors
def backup(
    file: BackupFile,
    files_only: Annotated[
        bool, typer.Option("--files-only", help="Leave out the database, for example if it is in PostgreSQL.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    as_json: options.Json = False,
) -> None:
    """Back up the project to a file: settings, database and lessons. Runs may go on meanwhile."""
    with _patience("Copying and compressing..."):
        made = back_up(file, force=force, files_only=files_only)
    view = _backup_text(f"Backed up {_contents(made)} to {file}.", made)
    deliver(view, {"backup": {**_summary(made), "file": str(file)}}, as_json=as_json)


@handles_errors
def restore(
    file: BackupFile,
    check: Annotated[
        bool, typer.Option("--check", help="Check the backup and show what is in it; change nothing.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the database and other files that exist here.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Restore the project from a backup, into this folder. Stop its programs first."""
    with _patience("Unpacking and checking the backup..."):
        restored = restore_backup(file, force=force, check=check)
    verb = "Would restore" if check else "Restored"
    when = f"{restored.created_at.astimezone():%Y-%m-%d %H:%M}"
    view = _backup_text(f"{verb} {_contents(restored)} to {project_folder()}, as of {when}.", restored)
    document = {**_summary(restored), "folder": str(project_folder()), "checked": check}
    deliver(view, {"restored": document}, as_json=as_json)


def _summary(backup: Backup) -> dict[str, Any]:
    summary = {
        name: getattr(backup, name) for name in ("created_at", "redraft", "format", "bytes", "remarks")
    }
    return {**summary, "files": sorted(backup.files)}


def _contents(backup: Backup) -> str:
    return f"{counted(len(backup.files), 'file')} ({sized(backup.bytes)})"


def _backup_text(line: str, backup: Backup) -> RenderableType:
    return Group(Text(visible(line)), *(Text(visible(remark)) for remark in backup.remarks))


@contextmanager
def _patience(line: str) -> Generator[None]:
    """Print a line if the block takes long."""
    timer = Timer(PATIENCE, CalmConsole(stderr=True).say, (line,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


OUT_OF_REACH = (
    "Out of reach: backups, git history, copies elsewhere, the folders of other machines, and what providers "
    "of models and telemetry keep."
)
