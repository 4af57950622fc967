"""`redraft lessons`: what agents have learnt, as a person reads it, searches it and has a say in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from redraft.cli import options  # noqa: TC001 (Typer reads the annotations)
from redraft.cli.exits import ExitCode
from redraft.cli.lessons_add import lessons_add
from redraft.cli.lessons_duties import lessons_due, lessons_waive
from redraft.cli.lessons_export import lessons_export
from redraft.cli.lessons_surface import lessons_surface

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.lessons.lesson import Lesson
    from redraft.lessons.lessons import Lessons

Which = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A lesson's id, how that begins or ends, or 'last'.", show_default=False
    ),
]
Place = Annotated[
    Path | None,
    typer.Option("--path", metavar="FOLDER", help="Look there, not in the folder of the settings."),
]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only those of this agent.")]
Why = Annotated[str, typer.Option("-m", "--why", metavar="WHY", help="The reason, for who looks later.")]
Type = Annotated[str | None, typer.Option("--task-type", metavar="TYPE", help="The kind of task.")]

lessons = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
lessons.command("add")(lessons_add)
lessons.command("due")(lessons_due)
lessons.command("waive")(lessons_waive)
lessons.command("export")(lessons_export)


@lessons.callback(invoke_without_command=True)
def listed(
    context: typer.Context,
    agent: Agent = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only: failure, partial, procedure, decision.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="S", help="Only: active, quarantined, retired, superseded.")
    ] = None,
    task_type: Type = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List what agents have learnt. What each lesson is about, whether it is in force, and if it helps."""
    with lessons_surface(debug=debug):
        if context.invoked_subcommand is not None:
            if as_json or any(one is not None for one in (agent, kind, status, task_type, path)):
                from redraft.core.errors import ConfigError

                raise ConfigError(
                    f"Give options behind the command: redraft lessons {context.invoked_subcommand} ..."
                )
            return
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_lessons import Filter, read_lessons
        from redraft.cli.lessons_document import kept_document
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_rows import lessons_line, lessons_rows, no_lessons

        wanted = Filter(kind, status, task_type)
        place = LessonsPlace.of(path, agent)
        found = read_lessons(place, wanted, whole=as_json)
        if as_json:
            emit_json(
                {
                    "path": str(place.path),
                    "broken": found.broken,
                    "archived": found.archived,
                    "lessons": [kept_document(one) for one in found.lessons],
                }
            )
            return
        console = CalmConsole()
        if found.lessons:
            console.show(lessons_rows(found.lessons, console.width))
        else:
            console.show(no_lessons(str(place.path), filtered=agent is not None or wanted != Filter()))
        line = lessons_line(found.lessons, broken=found.broken, archived=found.archived)
        CalmConsole(stderr=True).say(line)


@lessons.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A task, an error, a name.")],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="How many at most.")] = 5,
    agent: Agent = None,
    all_agents: Annotated[
        bool, typer.Option("--all-agents", help="Those of all agents; so it is without --agent, too.")
    ] = False,
    task_type: Type = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Find what fits a task. As an agent would be told it: active lessons, the best first, with reasons."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.lessons_document import found_document
        from redraft.cli.lessons_index import search_lessons
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import found_view
        from redraft.core.errors import ConfigError
        from redraft.lessons.query import Query

        if agent is not None and all_agents:
            raise ConfigError("lessons search takes one of --agent and --all-agents.")
        if not query.strip():
            raise ConfigError("QUERY is empty; say what to search for.")
        place = LessonsPlace.of(path, agent)
        found = search_lessons(place, Query(query, task_type or "", agent=agent, k=k))
        if as_json:
            emit_json({"query": query, "found": [found_document(one) for one in found]})
        elif found:
            CalmConsole().show(found_view(found))
        else:
            CalmConsole(stderr=True).say("No active lesson fits.")


@lessons.command()
def show(
    which: Which,
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a lesson. Its file, whether it is in force and why not, and whether it helped."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_lessons import read_lesson
        from redraft.cli.lessons_document import kept_document
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import lesson_view

        found = read_lesson(LessonsPlace.of(path, agent), which)
        if as_json:
            emit_json({**kept_document(found), "text": found.text})
        else:
            CalmConsole().show(lesson_view(found))


@lessons.command()
def edit(
    which: Which,
    agent: Agent = None,
    path: Place = None,
    debug: options.Debug = False,
) -> None:
    """Edit a lesson in your editor. A file that would be broken is not saved, but kept beside it."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import changed_line
        from redraft.cli.lessons_writing import edit_lesson

        lesson = edit_lesson(LessonsPlace.of(path, agent), which)
        if lesson is None:
            CalmConsole(stderr=True).say("Nothing was changed.")
        else:
            CalmConsole().show(changed_line(lesson), soft_wrap=True)


@lessons.command()
def approve(
    which: Which,
    why: Why = "",
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Let a lesson be put before its agent. One that waits in quarantine, or was retired."""

    async def change(kept: Lessons, ids: list[str]) -> Lesson:
        return await kept.approve(ids[0], why)

    _change([which], agent, path, change, as_json=as_json, debug=debug)


@lessons.command()
def retire(
    which: Which,
    why: Why,
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Put a lesson before nobody any more. It stays among the files, with the reason."""

    async def change(kept: Lessons, ids: list[str]) -> Lesson:
        return await kept.retire(ids[0], why)

    _change([which], agent, path, change, as_json=as_json, debug=debug)


@lessons.command()
def supersede(
    which: Which,
    by: Annotated[str, typer.Option("--by", metavar="ID", help="The lesson that takes its place.")],
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Let another lesson take the place of one. That stays among the files, and names the other."""

    async def change(kept: Lessons, ids: list[str]) -> Lesson:
        return await kept.supersede(ids[0], by=ids[1])

    _change([which, by], agent, path, change, as_json=as_json, debug=debug)


@lessons.command()
def rate(
    which: Which,
    helped: Annotated[bool, typer.Option("--helped/--hurt", help="What it did, as you see it.")],
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say whether a lesson helped. It counts beside what the scores of runs say."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_lessons import rate_lesson
        from redraft.cli.lessons_document import kept_document
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import rated_line

        rated = rate_lesson(LessonsPlace.of(path, agent), which, helped=helped)
        if as_json:
            emit_json(kept_document(rated))
        else:
            CalmConsole().show(rated_line(rated), soft_wrap=True)


@lessons.command()
def merge(
    which: Annotated[list[str], typer.Argument(metavar="ID ID...", help="As for show.", show_default=False)],
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="ID", help="The one that stays, instead of the surest.")
    ] = None,
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Make one of lessons that say the same. The surest stays as it is worded, the others name it."""

    async def change(kept: Lessons, ids: list[str]) -> Lesson:
        return await kept.merge(ids, keep=ids[0] if keep else None)

    _change([keep, *which] if keep else which, agent, path, change, as_json=as_json, debug=debug)


@lessons.command()
def doctor(
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what to look at. Broken files, lessons that say the same, hidden ones and why."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.lessons_index import problems_of
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import problems_view

        place = LessonsPlace.of(path, agent)
        found = problems_of(place)
        if as_json:
            emit_json({"path": str(place.path), "problems": found})
        else:
            CalmConsole().show(problems_view(found))
        is_broken = any(one.what == "broken" for one in found)
        raise typer.Exit(ExitCode.NOT_MET if is_broken else ExitCode.MET)


@lessons.command()
def reindex(path: Place = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Make the index anew. It is made of the files, and may be deleted at any time."""
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.lessons_index import make_index
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import reindexed_line

        told = CalmConsole(stderr=True)
        place = LessonsPlace.of(path)
        made = make_index(place, lambda count: told.say(f"{count:,} lessons embedded"))
        if as_json:
            emit_json({"path": str(place.path), **made.as_document()})
        else:
            CalmConsole().show(reindexed_line(made), soft_wrap=True)


def _change(
    which: list[str],
    agent: str | None,
    path: Path | None,
    change: Callable[[Lessons, list[str]], Awaitable[Lesson]],
    *,
    as_json: bool,
    debug: bool,
) -> None:
    with lessons_surface(debug=debug):
        from redraft.cli.console import CalmConsole, emit_json
        from redraft.cli.kept_lessons import change_lesson
        from redraft.cli.lessons_place import LessonsPlace
        from redraft.cli.lessons_view import changed_line
        from redraft.lessons.lesson_document import lesson_document

        lesson = change_lesson(LessonsPlace.of(path, agent), which, change)
        if as_json:
            emit_json(lesson_document(lesson))
        else:
            CalmConsole().show(changed_line(lesson), soft_wrap=True)
