"""`redraft notes`: list, compare, roll back and export the notes on tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft._texts import ago, counted, shortened
from redraft.errors import ConfigError
from redraft.notes.notes import Notes, TaskNotes, payoff_of_notes, payoff_sentence
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import (
    BAD,
    GOOD,
    QUIET,
    CalmConsole,
    deliver,
    emit,
    emit_json,
    sparkline,
)
from redraft.terminal.tables import PlainTable
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible
from redraft.types import render_score

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from redraft.notes.note import Note

MAX_TITLE = 90
"""Characters of a task's title on a line."""
FEW_CONTROLS = "The trial has shown that they help, so only a quarter of its share still goes without."
VERSION = "2 or v2, first, last, now (the one in force)."
TaskName = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="The task's name, part of its description, or the beginning of its id.",
        show_default=False,
    ),
]

notes = command_group(default="list", help="List the notes on tasks, and choose what is in force.")


@notes.command("list")
@handles_errors
async def list_notes(database: options.Database = None, as_json: options.Json = False) -> None:
    """List the notes on tasks. Shows whether notes pay off, which are in force, and the scores with them."""
    async with Notes(database) as stored:
        tasks, runs = await stored.list(), await stored.run_counts()
    console, payoff = CalmConsole(), payoff_of_notes(tasks)
    if as_json:
        rows = [{**task.row(), "runs": runs.get(task.noted.identity, 0)} for task in tasks]
        emit_json({"database": stored.location, "payoff": payoff, "tasks": rows})
    elif tasks:
        CalmConsole(stderr=True).say(payoff_sentence(payoff, [task.before for task in tasks]))
        console.show(_tasks_table(tasks, runs, console))
    else:
        console.show(
            Text(
                f"There are no notes in {stored.location} yet.\n"
                "A task of an Ensemble gets its first note after an accepted run with reflect=True."
            )
        )


def _tasks_table(tasks: Sequence[TaskNotes], runs: Mapping[str, int], console: CalmConsole) -> PlainTable:
    def row(task: TaskNotes) -> dict[str, str | Text]:
        curve = {"": _curve(task, longest=10)} if console.is_utf8 else {}
        return {
            "id": _short_id(task),
            "runs": str(runs.get(task.noted.identity, 0)),
            "notes": str(task.noted.run_count),
            "in force": _version(task.noted.in_force),
            "state": _state(task),
            "before": _score(task.before),
            "now": _score_now(task),
            **curve,
            "task": task.title,
        }

    numbers = ("runs", "notes", "before", "now")
    return PlainTable(map(row, tasks), right=numbers, drop=("", "runs", "notes"), fill="task")


def _score_now(task: TaskNotes) -> Text:
    """The mean score with the note in force: green above the score before notes, red below it."""
    before, now = task.before, task.now
    if before is None or now is None or round(before, 2) == round(now, 2):
        return Text(_score(now))
    return Text(_score(now), GOOD if now > before else BAD)


@notes.command()
@handles_errors
async def show(task: TaskName, database: options.Database = None, as_json: options.Json = False) -> None:
    """Show the note on a task. Prints it as prompts include it, with its latest versions."""
    async with Notes(database) as stored:
        task_notes = await stored.get(task)
    console = CalmConsole()
    noted = task_notes.noted
    in_force = f", {_version(noted.in_force)} of {noted.run_count} in force" if noted.in_force else ""
    parts: list[RenderableType] = [
        Text.assemble((_short_id(task_notes), "bold"), f"  {_title(task_notes)}"),
        Text.assemble("Notes: ", _state(task_notes), in_force, _why_off(task_notes)),
    ]
    if any(use.score is not None for use in task_notes.uses):
        scores = (
            f"Score of a run's first version: {_score(task_notes.before)} before notes, "
            f"{_score(task_notes.now)} in the latest runs with one"
        )
        parts.append(Text(f"{scores}   {_curve(task_notes, longest=12)}" if console.is_utf8 else scores))
    if task_notes.payoff.without_runs:
        parts.append(Text(task_notes.payoff.sentence("notes on this task")))
    if task_notes.noted.is_shown:
        parts.append(Text(FEW_CONTROLS))
    parts.append("")
    if (note := task_notes.in_force) is not None:
        parts += [Padding(Text(visible(task_notes.block(note))), (0, 0, 0, 2)), ""]
    parts.append(_versions_table(task_notes))
    same = any(map(task_notes.repeats, task_notes.revisions))
    parts.append(Text("* in force" + ("   = as the version before it" if same else ""), QUIET))
    if task_notes.why_newer_wait:
        parts.append(Text(task_notes.why_newer_wait, QUIET))
    if older := noted.run_count - len(task_notes.revisions):
        parts.append(Text(f"and {counted(older, 'older version')}: `redraft notes export` prints all", QUIET))
    deliver(Group(*parts), task_notes.document(), as_json=as_json)


def _versions_table(task: TaskNotes) -> PlainTable:
    """A row for each version, the newest first; `*` is in force, `=` has the text of the version before."""
    in_force = task.noted.in_force

    def row(note: Note) -> dict[str, str]:
        mark, same = "*" if note.version == in_force else " ", " =" if task.repeats(note) else ""
        return {
            "version": f"{mark} v{note.version}{same}",
            "made": ago(note.reflection.reflected_at),
            "based on": _version(note.based_on),
            "tokens": str(note.tokens),
            "runs with it": str(task.runs_with(note)),
            "score": _score(task.mean_score(note)),
            "by run": note.run_id,
        }

    numbers = ("tokens", "runs with it", "score")
    return PlainTable(
        map(row, task.revisions[::-1]), right=numbers, wrap=("by run",), drop=("tokens", "based on", "made")
    )


@notes.command()
@handles_errors
async def diff(
    task: TaskName,
    older: Annotated[str, typer.Argument(metavar="V1", help=VERSION)] = "first",
    newer: Annotated[str, typer.Argument(metavar="V2", help=VERSION)] = "last",
    database: options.Database = None,
    as_json: options.Json = False,
) -> None:
    """Compare two versions of a note, word by word."""
    async with Notes(database) as stored:
        task_notes, before, after = await stored.compare(task, older, newer)
    title = Text(f"{_scored_version(task_notes, before)} > {_scored_version(task_notes, after)}", "bold")
    texts = [task_notes.block(note) for note in (before, after)]
    same = Text("The notes are the same.")
    coloured = CalmConsole().is_coloured
    view = same if texts[0] == texts[1] else changes(*texts, coloured=coloured, longest=None)
    deliver(Group(title, "", view), task_notes.diff_document(before, after), as_json=as_json)


def _scored_version(task: TaskNotes, note: Note) -> str:
    mean = task.mean_score(note)
    return f"version {note.version}" + ("" if mean is None else f" ({_score(mean)})")


@notes.command()
@handles_errors
async def rollback(
    task: TaskName,
    version: Annotated[str, typer.Argument(metavar="V", help=VERSION)],
    database: options.Database = None,
    as_json: options.Json = False,
) -> None:
    """Put an older version in force, until a run with it adds the next one (see pin). Ends a pin."""
    async with Notes(database) as stored:
        _print_state(await stored.roll_back(task, version), as_json=as_json)


@notes.command()
@handles_errors
async def pin(
    task: TaskName,
    version: Annotated[str, typer.Argument(metavar="V", help=VERSION)] = "now",
    database: options.Database = None,
    as_json: options.Json = False,
) -> None:
    """Keep a version in force until `notes unpin`. Runs still add versions, but none replaces it."""
    async with Notes(database) as stored:
        _print_state(await stored.pin(task, version), as_json=as_json)


@notes.command()
@handles_errors
async def unpin(task: TaskName, database: options.Database = None, as_json: options.Json = False) -> None:
    """Let the next run with the pinned version replace it."""
    async with Notes(database) as stored:
        _print_state(await stored.unpin(task), as_json=as_json)


@notes.command()
@handles_errors
async def off(
    task: TaskName,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, kept with the notes.")] = "",
    database: options.Database = None,
    as_json: options.Json = False,
) -> None:
    """Stop giving a task its notes. Its runs still add to them."""
    async with Notes(database) as stored:
        _print_state(await stored.switch(task, off=True, why=why), as_json=as_json)


@notes.command()
@handles_errors
async def on(task: TaskName, database: options.Database = None, as_json: options.Json = False) -> None:
    """Give a task its notes again. Restores the one that was in force, else the newest."""
    async with Notes(database) as stored:
        _print_state(await stored.switch(task, off=False), as_json=as_json)


def _print_state(task: TaskNotes, *, as_json: bool) -> None:
    """Print which note is in force now."""
    if as_json:
        emit_json(task.row())
        return
    noted = task.noted
    which = f"version {noted.in_force} of {noted.run_count} is" if noted.in_force else "no note is"
    CalmConsole().show(Text(f"{_title(task)}: {which} in force{_why_off(task)}."), soft_wrap=True)


@notes.command()
@handles_errors
async def export(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="A task, as in `notes show`. Default: all tasks.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    database: options.Database = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document (the default).")] = False,
) -> None:
    """Export the notes. Prints every version with its runs, as JSON or Markdown."""
    if markdown and as_json:
        raise ConfigError("notes export takes --markdown or --json, not both.")
    async with Notes(database) as stored:
        tasks = await stored.read_all(task)
    if markdown:
        emit("\n".join(each.markdown() for each in tasks))
    else:
        emit_json({"tasks": [each.document() for each in tasks]})


# --- cells and tables -------------------------------------------------------------------------------------


def _short_id(task: TaskNotes) -> str:
    return task.noted.identity[:8]


def _title(task: TaskNotes) -> str:
    return shortened(visible(task.title), MAX_TITLE)


def _state(task: TaskNotes) -> Text:
    return Text(task.state, "" if task.state in ("on", "pinned") else BAD)


def _why_off(task: TaskNotes) -> str:
    if task.state == "pinned":
        return f" until `redraft notes unpin {_short_id(task)}`"
    return f" ({visible(task.noted.why_off)})" if task.noted.why_off else ""


def _version(number: int | None) -> str:
    return "-" if number is None else f"v{number}"


def _score(score: float | None) -> str:
    return render_score(score).strip()


def _curve(task: TaskNotes, longest: int) -> str:
    """A sparkline of the scores; empty if no run was scored."""
    return sparkline(task.trend, longest) if any(score is not None for score in task.trend) else ""
