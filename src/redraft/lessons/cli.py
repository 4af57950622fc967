"""`redraft lessons`: read, search and edit what agents have learnt."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from redraft._codec import to_json
from redraft._texts import estimate_tokens, shortened
from redraft._validation import check_choice, nearest
from redraft.errors import ConfigError, LessonFileError, RedraftError, StoreError
from redraft.lessons.duties import Duty, all_due
from redraft.lessons.export import FILES, Export, Form, ManagedBlock, export, front_matter, standing_in
from redraft.lessons.files import replace_file, reporting
from redraft.lessons.folder import LessonFolder, agents_in, folder_name
from redraft.lessons.impact import Counters, Counting
from redraft.lessons.index import LessonIndex, Refreshed, of_many_machines
from redraft.lessons.lesson import KINDS, STATUSES, Content, Lesson, LessonKind, headings_of, lesson_document
from redraft.lessons.lessons import Lessons, Problem, reflection_of
from redraft.lessons.markdown import parse
from redraft.lessons.rules import Rules
from redraft.lessons.safety import lesson_redactor
from redraft.models.embed import embedder_of
from redraft.settings import load_settings, project_folder
from redraft.stores.location import project_store
from redraft.terminal import options
from redraft.terminal.console import BAD, GAP, GOOD, QUIET
from redraft.terminal.exits import ExitCode, surface
from redraft.terminal.options import edited
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible
from redraft.types import Task as AskedTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence

    from rich.console import RenderableType

    from redraft.lessons.folder import Entry
    from redraft.lessons.index import Found, Query
    from redraft.lessons.lesson import Status
    from redraft.lessons.rules import Rule
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store
    from redraft.terminal.console import CalmConsole


@contextmanager
def lessons_surface(*, debug: bool) -> Generator[None]:
    """Do what `surface` does, with every error fit to be shown."""
    with surface(debug=debug):
        try:
            yield
        except RedraftError as error:
            from redraft.lessons.safety import lesson_redactor
            from redraft.text.characters import visible

            error.args = (visible(lesson_redactor().redact(str(error)).text),)
            raise


Kind = Annotated[str | None, typer.Option(metavar="KIND", help="failure, partial, procedure or decision.")]
Task = Annotated[str | None, typer.Option(metavar="TEXT", help="What was asked.")]
Type = Annotated[str, typer.Option(metavar="TYPE", help="The kind of task it was.")]
Tools = Annotated[list[str] | None, typer.Option(metavar="NAME", help="What it used; repeatable.")]
Error = Annotated[str, typer.Option(metavar="TEXT", help="The error that came of it.")]
Run = Annotated[str, typer.Option(metavar="RUN", help="The run that taught it.")]
Sure = Annotated[float | None, typer.Option(metavar="X", help="How sure you are of it, 0 to 1.")]
OfBoth = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure, or a partial success.")]
OfFailure = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure.")]
OfProcedure = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a procedure that worked.")]
OfDecision = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a decision.")]
Why = Annotated[str | None, typer.Option(metavar="TEXT", help="Of a failure, or a decision.")]
File = Annotated[str | None, typer.Option(metavar="FILE.md", help="Take a lesson that is written already.")]
Agent = Annotated[
    str | None, typer.Option(metavar="NAME", help="Whose lesson it is; not needed where there is one.")
]
Place = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Look there, not in the folder of the settings.")
]


def lessons_add(
    kind: Kind = None,
    task: Task = None,
    task_type: Type = "",
    tool: Tools = None,
    error: Error = "",
    run: Run = "",
    confidence: Sure = None,
    what_happened: OfBoth = None,
    what_went_wrong: OfBoth = None,
    why: Why = None,
    do_differently: OfBoth = None,
    rule: OfFailure = None,
    strategy: OfProcedure = None,
    why_it_worked: OfProcedure = None,
    decision: OfDecision = None,
    alternatives: OfDecision = None,
    file: File = None,
    agent: Agent = None,
    path: Place = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Write a lesson by hand. Out of options or a file, else in your editor; it is active at once."""
    with lessons_surface(debug=debug):
        from redraft.lessons.lesson import lesson_document
        from redraft.terminal.console import CalmConsole, emit_json

        place = LessonsPlace.of(path)
        said = {
            "what_happened": what_happened,
            "what_went_wrong": what_went_wrong,
            "why": why,
            "do_differently": do_differently,
            "rule": rule,
            "strategy": strategy,
            "why_it_worked": why_it_worked,
            "decision": decision,
            "alternatives": alternatives,
        }
        whose = the_agent(place, agent)
        about = {"task": task, "task_type": task_type, "error": error, "source": run}
        lesson = lesson_given(content_of(said, kind), file, kind, whose, about, tuple(tool or ()))
        added = add_lesson(place, whose, lesson, confidence)
        if as_json:
            emit_json({"is_new": added.is_new, **lesson_document(added.lesson)})
        else:
            CalmConsole().show(added_line(added.lesson, is_new=added.is_new), soft_wrap=True)


OwingAgent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only what this agent owes.")]


def lessons_due(
    agent: OwingAgent = None, as_json: options.Json = False, debug: options.Debug = False
) -> None:
    """List the runs that owe a reflection. They failed, wholly or in part; their agent's next run waits."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json

        due = due_duties(agent)
        if as_json:
            emit_json({"due": [duty_document(duty) for duty in due]})
            return
        CalmConsole().show(due_view(due))
        if due:
            CalmConsole(stderr=True).say(
                "`redraft lessons add --run RUN` reflects on one, `waive RUN --why WHY` lets it be."
            )


def lessons_waive(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="A run's id, how that begins or ends, or 'last'.")
    ],
    why: Annotated[str, typer.Option("-m", "--why", metavar="WHY", help="The reason, for who looks later.")],
    agent: OwingAgent = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Let a run be without a reflection. Its agent goes on, and the reason is kept."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json
        from redraft.text.characters import visible

        duty = waive_duty(run, why, agent)
        if as_json:
            emit_json(duty_document(duty))
        else:
            CalmConsole().say(visible(f"{duty.run_id}  waived: {why}"))


def lessons_export(
    to: Annotated[str, typer.Option("--to", metavar="FORM", help="agents-md, skill or rules.")],
    file: Annotated[
        str | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="The file, if not AGENTS.md, .claude/skills/lessons/SKILL.md, .claude/rules/lessons.md; "
            "'-' prints the text.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file is out of date.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", metavar="N", help="How long it may be: 1000, of a skill 4000."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a block that was edited by hand, too.")
    ] = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only lessons of this agent.")
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--path", metavar="FOLDER", help="Look there, not in the folder of the settings."),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Put the best lessons where coding agents read them. Into a block; the rest of a file stays."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit, emit_json

        told = CalmConsole(stderr=True)
        place = LessonsPlace.of(path, agent)
        job = Exporting.of(place, form_of(to), file, max_tokens, check=check)
        told.say(job.summary)
        if job.target is None:
            emit(job.export.body)
            return
        wanted = not check and not job.is_current
        if not job.is_current:
            told.show(job.changes(coloured=told.is_coloured), soft_wrap=not told.is_terminal)
        if wanted:
            job.check_unedited(force=force)
        is_written = wanted and (yes or confirmed(told, job.shown))
        if is_written:
            job.write()
        is_refused = wanted and not is_written
        told.say("Nothing was written." if is_refused else job.ending(is_written=is_written))
        if as_json:
            emit_json(job.as_document(is_written=is_written))
        raise typer.Exit(ExitCode.MET if job.is_current or is_written else ExitCode.NOT_MET)


Which = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A lesson's id, how that begins or ends, or 'last'.", show_default=False
    ),
]
AnyPlace = Annotated[
    Path | None,
    typer.Option("--path", metavar="FOLDER", help="Look there, not in the folder of the settings."),
]
AnyAgent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Only those of this agent.")]
AnyReason = Annotated[
    str, typer.Option("-m", "--why", metavar="WHY", help="The reason, for who looks later.")
]
AnyType = Annotated[str | None, typer.Option("--task-type", metavar="TYPE", help="The kind of task.")]

lessons = typer.Typer(rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
lessons.command("add")(lessons_add)
lessons.command("due")(lessons_due)
lessons.command("waive")(lessons_waive)
lessons.command("export")(lessons_export)


@lessons.callback(invoke_without_command=True)
def listed(
    context: typer.Context,
    agent: AnyAgent = None,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="Only: failure, partial, procedure, decision.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(metavar="S", help="Only: active, quarantined, retired, superseded.")
    ] = None,
    task_type: AnyType = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """List what agents have learnt. What each lesson is about, whether it is in force, and if it helps."""
    with lessons_surface(debug=debug):
        if context.invoked_subcommand is not None:
            if as_json or any(one is not None for one in (agent, kind, status, task_type, path)):
                from redraft.errors import ConfigError

                raise ConfigError(
                    f"Give options behind the command: redraft lessons {context.invoked_subcommand} ..."
                )
            return
        from redraft.terminal.console import CalmConsole, emit_json

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
    agent: AnyAgent = None,
    all_agents: Annotated[
        bool, typer.Option("--all-agents", help="Those of all agents; so it is without --agent, too.")
    ] = False,
    task_type: AnyType = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Find what fits a task. As an agent would be told it: active lessons, the best first, with reasons."""
    with lessons_surface(debug=debug):
        from redraft.errors import ConfigError
        from redraft.lessons.index import Query
        from redraft.terminal.console import CalmConsole, emit_json

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
    agent: AnyAgent = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show a lesson. Its file, whether it is in force and why not, and whether it helped."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json

        found = read_lesson(LessonsPlace.of(path, agent), which)
        if as_json:
            emit_json({**kept_document(found), "text": found.text})
        else:
            CalmConsole().show(lesson_view(found))


@lessons.command()
def edit(
    which: Which,
    agent: AnyAgent = None,
    path: AnyPlace = None,
    debug: options.Debug = False,
) -> None:
    """Edit a lesson in your editor. A file that would be broken is not saved, but kept beside it."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole

        lesson = edit_lesson(LessonsPlace.of(path, agent), which)
        if lesson is None:
            CalmConsole(stderr=True).say("Nothing was changed.")
        else:
            CalmConsole().show(changed_line(lesson), soft_wrap=True)


@lessons.command()
def approve(
    which: Which,
    why: AnyReason = "",
    agent: AnyAgent = None,
    path: AnyPlace = None,
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
    why: AnyReason,
    agent: AnyAgent = None,
    path: AnyPlace = None,
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
    agent: AnyAgent = None,
    path: AnyPlace = None,
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
    agent: AnyAgent = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say whether a lesson helped. It counts beside what the scores of runs say."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json

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
    agent: AnyAgent = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Make one of lessons that say the same. The surest stays as it is worded, the others name it."""

    async def change(kept: Lessons, ids: list[str]) -> Lesson:
        return await kept.merge(ids, keep=ids[0] if keep else None)

    _change([keep, *which] if keep else which, agent, path, change, as_json=as_json, debug=debug)


@lessons.command()
def doctor(
    agent: AnyAgent = None,
    path: AnyPlace = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Say what to look at. Broken files, lessons that say the same, hidden ones and why."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json

        place = LessonsPlace.of(path, agent)
        found = problems_of(place)
        if as_json:
            emit_json({"path": str(place.path), "problems": found})
        else:
            CalmConsole().show(problems_view(found))
        is_broken = any(one.what == "broken" for one in found)
        raise typer.Exit(ExitCode.NOT_MET if is_broken else ExitCode.MET)


@lessons.command()
def reindex(path: AnyPlace = None, as_json: options.Json = False, debug: options.Debug = False) -> None:
    """Make the index anew. It is made of the files, and may be deleted at any time."""
    with lessons_surface(debug=debug):
        from redraft.terminal.console import CalmConsole, emit_json

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
        from redraft.lessons.lesson import lesson_document
        from redraft.terminal.console import CalmConsole, emit_json

        lesson = change_lesson(LessonsPlace.of(path, agent), which, change)
        if as_json:
            emit_json(lesson_document(lesson))
        else:
            CalmConsole().show(changed_line(lesson), soft_wrap=True)


LAST = "last"
DAY = "YYYY-MM-DD-"
"""What the name of a lesson's file begins with."""
SHOWN = 8
"""How many candidates are named."""
COMPARED = 1_000
"""How many of the newest are looked at for what was probably meant."""
LIKE = 0.5


@dataclass(frozen=True, slots=True)
class LessonsPlace:
    """Hold the folder of all agents' lessons, and the one agent that a command is about, if it is one."""

    path: Path
    agent: str | None = None

    @classmethod
    def of(cls, path: Path | None, agent: str | None = None) -> LessonsPlace:
        """Return the place that was given, else that of the settings, which is the project's.

        Raises `ConfigError` for an agent that has no lessons there, and names the nearest.
        """
        place = cls(path or project_folder() / load_settings().memory, agent)
        known = agents_in(place.path)
        if agent is not None and folder_name(agent) not in known:
            near = f" {nearest(agent, known)}" if known else ""
            raise ConfigError(
                f"The agent {visible(agent)!r} has no lessons in {str(place.path)!r}.{visible(near)}"
            )
        return place

    def folders(self) -> list[LessonFolder]:
        """Return the folders of the lessons that a command is about."""
        names = agents_in(self.path) if self.agent is None else [folder_name(self.agent)]
        # A folder of another name is nobody's; `redraft lessons doctor` tells.
        return [LessonFolder(self.path, name) for name in names if folder_name(name) == name]

    def meant(self, wanted: str) -> Entry:
        """Return the lesson that is meant: by its id, its beginning or its end, or `last` for the newest.

        The agent may be left out, and the day, too. Raises `ConfigError` where none fits, or several do, and
        names those.
        """
        entries: dict[str, Entry] = {}
        for folder in self.folders():
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of two with one name, the archived one comes later
        if wanted == LAST and entries:
            return max(entries.values(), key=_age)
        if wanted in entries:
            return entries[wanted]
        part = wanted.casefold()
        found = [entry for entry in entries.values() if part and _is_part(entry.id.casefold(), part)]
        exact = [entry for entry in found if _stem(entry.id) == wanted]
        if len(exact or found) == 1:
            return (exact or found)[0]
        raise ConfigError(_not_one(wanted, exact or found, list(entries), self.path))


def the_agent(place: LessonsPlace, agent: str | None) -> str:
    """Return the agent that was given, else the only one with lessons; raises `ConfigError` for neither."""
    if agent is not None:
        if not agent.strip():
            raise ConfigError("--agent needs a name.")
        return agent
    known = agents_in(place.path)
    if len(known) != 1:
        there = f"there are lessons of {', '.join(known)}" if known else "nobody has lessons yet"
        raise ConfigError(f"Whose lesson is it? Give --agent NAME; {visible(there)}.")
    return known[0]


def _is_part(lesson_id: str, part: str) -> bool:
    stem = _stem(lesson_id)
    return lesson_id.endswith(part) or any(
        one.startswith(part) for one in (lesson_id, stem, stem[len(DAY) :])
    )


def _stem(lesson_id: str) -> str:
    return lesson_id.partition("/")[2]


def _age(entry: Entry) -> tuple[str, int, str]:
    """Return what the newest lesson has most of: its day, by its name if that has one, then the time."""
    stem = _stem(entry.id)
    return stem[:10] if stem[:4].isdecimal() else str(entry.day), entry.changed_ns, entry.id


def _not_one(wanted: str, found: list[Entry], known: list[str], path: Path) -> str:
    if not known:
        return f"There are no lessons in {str(path)!r} yet."
    if found:
        names = [entry.id for entry in found]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        said = f"Several lessons fit {wanted!r}: {', '.join(names[:SHOWN])}{more}."
    else:
        near = get_close_matches(wanted, sorted(known, key=_stem)[-COMPARED:], cutoff=LIKE)
        hint = f"the nearest are {', '.join(near)}." if near else "`redraft lessons` lists them."
        said = f"There is no lesson {wanted!r} in {str(path)!r}; {hint}"
    return visible(lesson_redactor().redact(said).text)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter:
    """Say which lessons are meant; what is None leaves out none."""

    kind: str | None = None
    status: str | None = None
    task_type: str | None = None

    def __post_init__(self) -> None:
        if self.kind is not None:
            check_choice("--kind", self.kind, tuple(KINDS))
        if self.status is not None:
            check_choice("--status", self.status, STATUSES)

    def fits(self, lesson: Lesson) -> bool:
        """Say whether a lesson is meant."""
        return (
            self.kind in (None, lesson.kind)
            and self.status in (None, lesson.status)
            and self.task_type in (None, lesson.task_type)
        )


@dataclass(frozen=True, slots=True)
class KeptLesson:
    """Hold a lesson with its file, what that says, and how often the lesson helped and hurt."""

    lesson: Lesson
    file: str
    archived: bool = False
    counters: Counters = field(default_factory=Counters)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Listed:
    """Hold lessons, the newest first; count the files that can't be read, and those in the archive."""

    lessons: list[KeptLesson]
    broken: int = 0
    archived: int = 0


def read_lessons(place: LessonsPlace, wanted: Filter, *, whole: bool = True) -> Listed:
    """Read the lessons that fit, with their secrets withheld; the archive is only counted.

    Unless they are wanted `whole`, they are fit for a table and nothing else: there secrets are withheld in
    what that shows, which takes a fraction of the time.
    """
    found: list[KeptLesson] = []
    broken = archived = 0
    for folder in place.folders():
        for entry in folder.entries():
            if entry.archived:
                archived += 1
                continue
            try:
                lesson = folder.read_entry(entry)
            except StoreError:
                broken += 1
                continue
            if wanted.fits(lesson):
                found.append(KeptLesson(lesson, _shown_path(entry.path)))
    counted = _counted(place)
    kept = [
        KeptLesson(one.lesson, one.file, counters=counted.get(one.lesson.id, Counters())) for one in found
    ]
    kept.sort(key=lambda one: (one.lesson.day, one.lesson.id), reverse=True)
    redactor = lesson_redactor()
    shown = redactor.redact_object(kept) if whole else _in_rows(kept, redactor)
    return Listed(shown, broken, archived)


def read_lesson(place: LessonsPlace, wanted: str) -> KeptLesson:
    """Read the lesson that is meant, with its secrets withheld; raises `LessonFileError` for a broken one."""
    entry = place.meant(wanted)
    folder = LessonFolder(place.path, entry.id.partition("/")[0])
    lesson, text = folder.read_entry(entry), folder.text_of(entry)
    counters = _counted(place).get(lesson.id, Counters())
    kept = KeptLesson(lesson, _shown_path(entry.path), entry.archived, counters, text)
    return lesson_redactor().redact_object(kept)


def change_lesson(
    place: LessonsPlace, wanted: list[str], change: Callable[[Lessons, list[str]], Awaitable[Lesson]]
) -> Lesson:
    """Change the lessons that are meant; return the one that counts then, with its secrets withheld."""
    ids = [place.meant(one).id for one in wanted]
    agent = ids[0].partition("/")[0]
    return lesson_redactor().redact_object(with_lessons(place, agent, lambda lessons: change(lessons, ids)))


def with_lessons(place: LessonsPlace, agent: str, use: Callable[[Lessons], Awaitable[T]]) -> T:
    """Return what is made of an agent's lessons; they are closed behind it."""

    async def using(store: Store | None) -> T:
        lessons = Lessons(place.path, agent=agent, store=store or False, auto=False)
        try:
            return await use(lessons)
        finally:
            await lessons.aclose()

    return with_store(using)


def permanent_rules(place: LessonsPlace) -> dict[str, list[Rule]]:
    """Read the rules that people made permanent, by the folder of their agent; what can't be read is left."""
    found: dict[str, list[Rule]] = {}
    for folder in place.folders():
        with suppress(StoreError):
            found[folder.name] = Rules(place.path, folder.name).permanent()
    return found


def with_store(use: Callable[[Store | None], Awaitable[T]]) -> T:
    """Return what is made of the project's store, None where it keeps nothing; it is closed behind it."""

    async def using() -> T:
        store = project_store()
        try:
            return await use(store)
        finally:
            if store is not None:
                await store.aclose()

    return asyncio.run(using())


def rate_lesson(place: LessonsPlace, wanted: str, *, helped: bool) -> KeptLesson:
    """Count that a lesson helped or hurt as a person sees it; return it, with its secrets withheld.

    Raises `ConfigError` where nothing is kept, so that it would be forgotten at once.
    """
    if not load_settings().home:
        raise ConfigError("The project keeps nothing (`home` is empty), so there is nowhere to count it.")
    lesson = place.meant(wanted).id
    with_lessons(place, lesson.partition("/")[0], lambda lessons: lessons.rate(lesson, helped))
    return read_lesson(place, lesson)


def helped_of(place: LessonsPlace) -> dict[str, float]:
    """Return for each lesson that was ever used how much more often it helped than it hurt."""
    return {lesson: float(its.helped - its.hurt) for lesson, its in _counted(place).items()}


def active_lessons(place: LessonsPlace) -> list[Lesson]:
    """Read the lessons that are in force, as their files have them; the archive is left out."""
    found: list[Lesson] = []
    for folder in place.folders():
        for entry in folder.entries():
            try:
                lesson = None if entry.archived else folder.read_entry(entry)
            except StoreError:
                continue
            if lesson is not None and lesson.status == "active":
                found.append(lesson)
    return sorted(found, key=attrgetter("id"))


def _in_rows(kept: list[KeptLesson], redactor: Redactor) -> list[KeptLesson]:
    """Return lessons with the secrets withheld in what a table shows."""

    @cache
    def clean(text: str) -> str:
        return redactor.redact(text).text

    return [
        replace(
            one,
            lesson=replace(
                one.lesson,
                id=clean(one.lesson.id),
                agent=clean(one.lesson.agent),
                summary=clean(one.lesson.summary),
                task_type=clean(one.lesson.task_type),
            ),
        )
        for one in kept
    ]


def _counted(place: LessonsPlace) -> Mapping[str, Counters]:
    async def counting(store: Store | None) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        if store is not None:
            for folder in place.folders():
                found |= await Counting(store, folder.name).all_counters()
        return found

    return with_store(counting)


def _shown_path(path: os.PathLike[str]) -> str:
    """Return a path as it is shortest to type from here."""
    there = os.path.relpath(path)
    return os.fspath(path) if there.startswith("..") else there


STDOUT = "-"


@dataclass(frozen=True, slots=True)
class Exporting:
    """Hold what is to be written (`export`) and where: `target` is None for stdout, `shown` is its name.

    `text` is what the file says now, None if it is not there; `block` the block in it.
    """

    form: Form
    export: Export
    shown: str
    target: Path | None
    text: str | None
    block: ManagedBlock

    @classmethod
    def of(
        cls, place: LessonsPlace, form: Form, file: str | None, max_tokens: int | None, *, check: bool
    ) -> Exporting:
        """Read the lessons and the file.

        With `check` lessons stand as they do in the block, wherever that is asked. Raises `ConfigError` for a
        file that can't have such a block.
        """
        shown = file or FILES[form]
        target = (
            None if shown == STDOUT else _target(project_folder() / shown if file is None else Path(shown))
        )
        text = None if target is None else _read(target, shown)
        block = ManagedBlock.find(text or "", shown)
        standing = standing_in(block.body or "") if check else helped_of(place)
        made = export(active_lessons(place), form, standing, max_tokens, permanent_rules(place))
        return cls(form, made, shown, target, text, block)

    @property
    def is_current(self) -> bool:
        """Whether the block is there, and says what it should."""
        return self.block.says(self.export.body)

    @property
    def summary(self) -> str:
        """What is in the text, and what was left out of it, with the reasons."""
        made = self.export
        agents = len({one.partition("/")[0] for one in made.ids})
        rules = f"{_count(made.rules, 'permanent rule')}; " if made.rules else ""
        lines = [f"{rules}{_count(len(made.ids), 'lesson')} of {_count(agents, 'agent')}, the best first, "]
        lines[0] += f"{estimate_tokens(made.body):,} tokens"
        lines[0] += f"; {made.omitted} left out, for which there is no room" if made.omitted else ""
        lines[0] += f"; {made.alike} left out as repeating others" if made.alike else ""
        lines[0] += "."
        lines += [f"Left out: {one} holds {why}." for one, why in made.refused.items()]
        return visible("\n".join(lines))

    def changes(self, *, coloured: bool) -> RenderableType:
        """Render what would change."""
        after = self.front + self.export.body
        head = f"{self.shown}: " + ("a new file" if self.text is None else "the rest of it stays as it is")
        before = self.block.body or ""
        return Group(Text(visible(head), QUIET), changes(before, after, coloured=coloured, longest=None))

    def check_unedited(self, *, force: bool) -> None:
        """Raise `ConfigError` for a block that somebody edited by hand, which would be lost."""
        if self.block.is_edited and not force:
            raise ConfigError(
                f"The block in {self.shown!r} was edited by hand, so it stays. Put what it should say into "
                "a lesson (redraft lessons edit, add); --force writes over it."
            )

    def write(self) -> None:
        """Write the file, whole at once; raises `ConfigError` if it was changed meanwhile, or can't be."""
        target = cast("Path", self.target)
        if _read(target, self.shown) != self.text:
            raise ConfigError(f"{self.shown!r} was changed meanwhile; nothing was written.")
        block = ManagedBlock(self.front, None, "") if self.front else self.block
        text = block.with_body(self.export.body)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, text.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ConfigError(f"{self.shown!r} can't be written: {error.strerror}.") from error

    def ending(self, *, is_written: bool) -> str:
        """Say how it went."""
        if is_written:
            return f"{self.shown} is written."
        if self.is_current:
            return f"{self.shown} is up to date."
        if self.block.is_edited:
            return f"{self.shown}: the block of lessons was edited by hand."
        return (
            f"{self.shown} has no block of lessons."
            if self.block.body is None
            else (f"{self.shown} is out of date.")
        )

    def as_document(self, *, is_written: bool) -> dict[str, Any]:
        """Return it as plain data."""
        made = self.export
        return {
            "file": self.shown,
            "form": self.form,
            "up_to_date": self.is_current or is_written,
            "written": is_written,
            "edited_by_hand": self.block.is_edited and not is_written,
            "tokens": estimate_tokens(made.body),
            "rules": made.rules,
            "lessons": list(made.ids),
            "omitted": made.omitted,
            "alike": made.alike,
            "refused": dict(made.refused),
        }

    @property
    def front(self) -> str:
        """What a new file begins with, and one that says nothing yet."""
        return "" if (self.text or "").strip() else front_matter(self.form, self.shown)


def form_of(given: str) -> Form:
    """Return the form that was asked for; raises `ConfigError` for one that is none."""
    check_choice("--to", given, tuple(FILES))
    return cast("Form", given)


def confirmed(console: CalmConsole, shown: str) -> bool:
    """Ask whether to write; raises `ConfigError` where there is nobody to be asked."""
    if not sys.stdin.isatty():
        raise ConfigError("Nothing was written, as there is no terminal to ask in; --yes writes it.")
    console.out(visible(f"Write {shown}? [y/N] "), end="", highlight=False)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _target(path: Path) -> Path:
    """Return the file to write; a link is followed within its own folder alone."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; --file takes a file.")
    if not path.is_symlink():
        return path
    target = path.resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{str(path)!r} is a link to {str(target)!r}; say so with --file if you mean that.")
    return target


def _read(path: Path, shown: str) -> str | None:
    """Return what a file says, character by character, also what is no UTF-8; None if it is not there."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{shown!r} can't be read: {error.strerror}.") from error


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


LONGEST_FILE = 1_000_000
ABOUT = "what the task is about, in a few words"
_EMPTY_ENTRY = re.compile(r"^[a-z_]+:[ \t]*\n", re.MULTILINE)
_REJECTED = ".rejected"


@dataclass(frozen=True, slots=True)
class Added:
    """Hold a lesson that was added, or the one that says nearly the same and is surer now."""

    lesson: Lesson
    is_new: bool


def content_of(said: dict[str, str | None], kind: str | None) -> Content | None:
    """Return what options say as the content of a lesson; None where they say nothing.

    The kind follows from what is said, unless it is given. Raises `ConfigError` for what is missing, or does
    not belong to the kind.
    """
    if kind is not None:
        check_choice("--kind", kind, tuple(KINDS))
    texts: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    if not texts:
        return None
    form = KINDS[cast("LessonKind", kind)] if kind is not None else _form_of(set(texts))
    names = list(headings_of(form))
    if missing := [name for name in names if name not in texts]:
        raise ConfigError(f"A {form.kind} also takes {', '.join(map(_option, missing))}.")
    if odd := [name for name in texts if name not in names]:
        raise ConfigError(f"A {form.kind} does not take {', '.join(map(_option, odd))}.")
    return form(**texts)


def add_lesson(place: LessonsPlace, agent: str, lesson: Lesson, confidence: float | None) -> Added:
    """File a lesson that a person wrote, active at once; raises `ConfigError` for what no lesson may say."""
    before = {entry.id for entry in LessonFolder(place.path, agent).entries()}
    task = AskedTask(lesson.task or lesson.summary, task_type=lesson.task_type, tools=lesson.tools)

    async def record(lessons: Lessons) -> Lesson:
        return await lessons.record(
            lesson.content, task, error=lesson.error, run_id=lesson.source, confidence=confidence
        )

    filed = with_lessons(place, agent, record)
    return Added(filed, filed.id not in before)


def lesson_of_file(text: str, file: str, agent: str) -> Lesson:
    """Read a lesson that a person wrote; what is left over of a template counts as nothing said.

    Raises `LessonFileError` with the line.
    """
    front, body = _parts(text)
    for form in KINDS.values():
        for one in fields(form):
            body = body.replace(f"> {one.metadata['says']}\n", "\n")
    stem = f"{_today()}-{folder_name(file)}"
    try:
        lesson = parse(_EMPTY_ENTRY.sub("#\n", front) + body, f"{folder_name(agent)}/{stem}", agent)
    except LessonFileError as error:
        raise LessonFileError(str(error).partition(": ")[2], file=file, line=error.line) from error
    if ABOUT in lesson.summary:
        raise LessonFileError(f"Its title still says {ABOUT!r}.", file=file)
    return lesson


def template(kind: str | None, agent: str) -> str:
    """Return the file of a lesson that says nothing yet, and under each heading what belongs there."""
    form = KINDS[cast("LessonKind", kind or "failure")]
    what = "Procedure" if form.kind == "procedure" else "Reflection"
    parts = [f"# {what}: {_today()} - {agent} - {ABOUT}"]
    parts += [f"## {one.metadata['heading']}\n> {one.metadata['says']}\n" for one in fields(form)]
    front = f"---\nkind: {form.kind}\ntask:\ntask_type:\ntools: []\nerror:\n---\n"
    return front + "\n\n".join(parts)


def lesson_given(
    content: Content | None,
    file: str | None,
    kind: str | None,
    agent: str,
    about: dict[str, str | None],
    tools: tuple[str, ...],
) -> Lesson:
    """Return the lesson that options give, else that of a file, else what a person writes in the editor.

    What options say of the task goes before what a file says. Raises `ConfigError` for both fields and a
    file.
    """
    if content is not None and file is not None:
        raise ConfigError("lessons add takes the fields of a lesson or a --file, not both.")
    if content is not None:
        if not (about["task"] or "").strip():
            raise ConfigError("Say with --task what was asked: a lesson is found by it.")
        lesson = Lesson(content, agent, datetime.now(UTC).date(), "")
    elif file is not None:
        lesson = lesson_of_file(read_file(file), file, agent)
    else:
        lesson = write_by_hand(kind, agent)
    changed: dict[str, Any] = {name: text for name, text in about.items() if text}
    return replace(lesson, **changed, **({"tools": tools} if tools else {}))


def write_by_hand(kind: str | None, agent: str) -> Lesson:
    """Let a person write a lesson in the editor; one that is broken is kept in a file of this folder."""
    blank = template(kind, agent)
    text = edited(blank, "lesson.md")
    if text == blank:
        raise ConfigError("Nothing was written, so there is no new lesson.")
    try:
        lesson = lesson_of_file(text, "the lesson", agent)
        reflection_of(lesson.content)
    except (ConfigError, LessonFileError) as error:
        path = _free(Path("lesson.md"))
        _keep(path, text)
        raise ConfigError(
            f"{error} What you wrote is in {str(path)!r}; mend it, then: redraft lessons add --file {path}"
        ) from error
    return lesson


def edit_lesson(place: LessonsPlace, wanted: str) -> Lesson | None:
    """Let a person edit the file of a lesson; return the lesson, or None if nothing was changed.

    A broken file may be mended so. What can't be a lesson is not saved: it is kept beside the file, the error
    says on which line it is wrong, and the next edit goes on with it. Secrets in it are withheld. What came
    with the lesson goes where its new standing puts it.
    """
    entry = place.meant(wanted)
    folder = LessonFolder(place.path, entry.id.partition("/")[0])
    rejected = entry.path.with_name(f"{entry.path.name}{_REJECTED}")
    before = folder.text_of(entry)
    is_left_over = rejected.is_file() and not rejected.is_symlink()
    text = edited(rejected.read_text("utf-8") if is_left_over else before, entry.path.name)
    if text == before:
        rejected.unlink(missing_ok=True)
        return None
    try:
        lesson = with_lessons(
            place, folder.name, lambda lessons: lessons.edit_file(entry.id, text, before=before)
        )
    except (ConfigError, LessonFileError) as error:
        _keep(rejected, text)
        raise ConfigError(
            f"{error} Nothing was saved. Your edit is in {str(rejected)!r}; "
            f"`redraft lessons edit {wanted}` goes on with it."
        ) from error
    rejected.unlink(missing_ok=True)
    return lesson


def read_file(file: str) -> str:
    """Return what a file of a lesson says; raises `ConfigError` for one that can't be read."""
    path = Path(file)
    try:
        if path.stat().st_size > LONGEST_FILE:
            raise ConfigError(f"{file!r} has {path.stat().st_size:,} bytes, which is no lesson.")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{file!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file!r} is not UTF-8: {error.reason}.") from error


def _parts(text: str) -> tuple[str, str]:
    """Return what stands before the title, with its fences, and the rest."""
    text = text.replace("\r\n", "\n")
    end = text.find("\n---\n", 3) if text.startswith("---\n") else -1
    return (text[: end + 5], text[end + 5 :]) if end >= 0 else ("", text)


def _form_of(names: set[str]) -> type[Content]:
    """Return the kind that what is said fits best: it lacks the least, and has the least too many."""
    return min(KINDS.values(), key=lambda form: len(names ^ set(headings_of(form))))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _keep(path: Path, text: str) -> None:
    with reporting(path):
        replace_file(path, text.encode("utf-8", "surrogatepass"))
        os.chmod(path, 0o600)  # noqa: PTH101 (what was refused may hold a secret)


def _free(path: Path) -> Path:
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _today() -> str:
    return str(datetime.now(UTC).date())


AT_ONCE = 256
"""Lessons that are embedded until it is said how far that is."""


@dataclass(frozen=True, slots=True)
class Reindexed:
    """Hold what was found when every file was read again, and how many lessons were embedded anew."""

    found: Refreshed
    embedded: int
    embedder: str

    def as_document(self) -> dict[str, Any]:
        """Return it as plain data."""
        broken = [{"id": one.id, "problem": one.problem} for one in self.found.broken]
        return {
            "lessons": self.found.added,
            "embedded": self.embedded,
            "embedder": self.embedder,
            "broken": broken,
        }


def search_lessons(place: LessonsPlace, query: Query) -> list[Found]:
    """Return the lessons that fit best, with their secrets withheld.

    A person who asks for some words is shown what has them, last, however little it is about the same.
    """
    if not agents_in(place.path):  # an index over nothing need not be made
        return []
    found = _with_index(place, lambda index: index.search(query))
    if len(found) < query.k and embedder_of(None, load_settings()) is not None:
        near = {one.lesson.id for one in found}
        worded = _with_index(place, lambda index: index.search(query), by_meaning=False)
        found += [replace(one, score=0.0) for one in worded if one.lesson.id not in near]
    return lesson_redactor().redact_object(found[: query.k])


def make_index(place: LessonsPlace, tell: Callable[[int], None]) -> Reindexed:
    """Read every file again, and embed what has no vector; `tell` is told how many that are so far."""
    embedder = embedder_of(None, load_settings())

    async def make(store: Store | None) -> Reindexed:
        index = LessonIndex(place.path, embedder, shared=of_many_machines(store))
        try:
            found, embedded = await index.rebuild(), 0
            while some := await index.fill(AT_ONCE):
                embedded += some
                tell(embedded)
        finally:
            await index.aclose()
        return Reindexed(found, embedded, "" if embedder is None else embedder.name)

    return with_store(make)


def problems_of(place: LessonsPlace) -> list[Problem]:
    """Return what a person should look at, with its secrets withheld; the archive for broken files alone."""
    found: dict[tuple[str, str], Problem] = {}
    for folder in place.folders():
        try:
            problems = with_lessons(place, folder.name, lambda lessons: lessons.problems())
        except LessonFileError as error:
            problems = [Problem(error.file, "broken", str(error))]
        found |= {(one.id, one.what): one for one in problems}
    if agents_in(place.path):
        for broken in _with_index(place, lambda index: index.refresh()).broken:
            if place.agent is None or broken.id.partition("/")[0] == folder_name(place.agent):
                found.setdefault((broken.id, "broken"), Problem(broken.id, "broken", broken.problem))
    return lesson_redactor().redact_object(list(found.values()))


def _with_index(
    place: LessonsPlace, use: Callable[[LessonIndex], Awaitable[T]], *, by_meaning: bool = True
) -> T:
    async def using() -> T:
        index = LessonIndex(place.path, embedder_of(None, load_settings()) if by_meaning else None)
        try:
            return await use(index)
        finally:
            await index.aclose()

    return asyncio.run(using())


def due_duties(agent: str | None) -> list[Duty]:
    """Return what has to be reflected on, of one agent or of all, with its secrets withheld."""

    async def find(store: Store | None) -> list[Duty]:
        return [] if store is None else await _due(store, agent)

    return lesson_redactor().redact_object(with_store(find))


def waive_duty(wanted: str, why: str, agent: str | None) -> Duty:
    """Let the run that is meant be forgotten without a reflection, and return what was due of it.

    It is meant by its id, how that begins or ends, or `last`. Raises `ConfigError` where nothing is due of
    it, where several are meant, and without a reason.
    """

    async def waive(store: Store | None) -> Duty:
        duty = _meant(wanted, [] if store is None else await _due(store, agent))
        if store is not None:
            await Lessons(agent=duty.agent, store=store).waive(duty.run_id, why)
        return duty

    return lesson_redactor().redact_object(with_store(waive))


async def _due(store: Store, agent: str | None) -> list[Duty]:
    whose = None if agent is None else folder_name(agent)
    return [duty for duty in await all_due(store) if whose in (None, duty.agent)]


def _meant(wanted: str, due: list[Duty]) -> Duty:
    if not due:
        raise ConfigError("Nothing is due: no run waits for a reflection.")
    if wanted == LAST:
        return due[-1]
    exact = [duty for duty in due if duty.run_id == wanted]
    found = exact or [duty for duty in due if duty.run_id.startswith(wanted) or duty.run_id.endswith(wanted)]
    if len({(duty.agent, duty.run_id) for duty in found}) == 1:
        return found[0]
    fitting = ", ".join(sorted({duty.run_id for duty in found}))
    problem = f"several runs fit: {fitting}" if found else "nothing is due of such a run"
    raise ConfigError(f"{wanted!r}: {problem}; `redraft lessons due` lists them.")


def kept_document(kept: KeptLesson) -> dict[str, Any]:
    """Describe a lesson with its file and its counters."""
    return {
        **lesson_document(kept.lesson),
        "archived": kept.archived,
        "file": kept.file,
        "counters": kept.counters,
    }


def duty_document(duty: Duty) -> dict[str, Any]:
    """Describe what is due of a run, and how that ended."""
    return {"run_id": duty.run_id, "agent": duty.agent, "kind": duty.kind, "outcome": to_json(duty.outcome)}


def found_document(found: Found) -> dict[str, Any]:
    """Describe a lesson that was found, and why."""
    return {"score": found.score, "reason": found.reason, "lesson": lesson_document(found.lesson)}


LEAST_SUMMARY = 20
LONGEST_NAME = 16
STATES: dict[Status, str] = {"active": GOOD, "quarantined": BAD, "retired": QUIET, "superseded": QUIET}
DROPPED = ("day", "summary", "kind", "agent", "task type")
"""What goes first where there is no room: an id has the day and most of the summary in it."""


def lessons_rows(lessons: Sequence[KeptLesson], width: int) -> Table:
    """Render lessons as a table, a line each; the id is what other commands take, so it is always whole."""
    these = [one.lesson for one in lessons]
    columns: dict[str, list[str | Text]] = {
        "id": [*shown_ids([one.id for one in these])],
        "agent": [shortened(visible(one.agent), LONGEST_NAME) for one in these],
        "kind": [one.kind for one in these],
        "status": [Text(one.status, STATES[one.status]) for one in these],
        "day": [str(one.day) for one in these],
        "task type": [shortened(visible(one.task_type), LONGEST_NAME) for one in these],
        "used": [used(one.counters) for one in lessons],
        "sure": [f"{one.confidence:.2f}" for one in these],
        "summary": [" " * LEAST_SUMMARY],
    }
    if len({one.agent for one in these}) == 1:
        del columns["agent"]
    for name in DROPPED:
        if name in columns and _taken(columns) > width:
            del columns[name]
    if "summary" in columns:
        room = width - _taken(columns) + LEAST_SUMMARY
        columns["summary"] = [shortened(visible(one.summary), room) for one in these]
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=QUIET)
    for name in columns:
        right = name in ("used", "sure")
        table.add_column(name, no_wrap=name != "id", overflow="fold", justify="right" if right else "left")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*cells)
    return table


def shown_ids(ids: Sequence[str]) -> list[str]:
    """Return ids as they are shown: without the agent where no two of them are the same then."""
    names = [one.partition("/")[2] for one in ids]
    return list(map(visible, names if len(set(names)) == len(names) else ids))


def used(counters: Counters) -> str:
    """Render counters: runs with the lesson, and for how many of them it helped and hurt; none as a dash."""
    if counters == type(counters)():
        return "-"
    return f"{counters.uses} +{counters.helped} -{counters.hurt}"


def lessons_line(lessons: Sequence[KeptLesson], *, broken: int, archived: int) -> str:
    """Say in a line what there is beside the rows."""
    standing = Counter(one.lesson.status for one in lessons)
    parts = [f"{count} {status}" for status, count in standing.items()]
    parts += [f"{archived} in the archive"] if archived else []
    line = f"{len(lessons)} lessons: {', '.join(parts)}." if parts and len(lessons) != 1 else ""
    line += f" {broken} broken: redraft lessons doctor" if broken else ""
    return line.strip()


def no_lessons(place: str, *, filtered: bool) -> Text:
    """Say that there is nothing, where it was looked for, and what would change that."""
    if filtered:
        return Text(f"No lesson in {place} fits.")
    return Text(
        f"There are no lessons in {place} yet.\n"
        "An Agent with lessons=Lessons(agent=...) learns from what fails; `redraft lessons add` takes yours."
    )


def _taken(columns: dict[str, list[str | Text]]) -> int:
    return sum(max(map(len, (name, *cells))) + GAP for name, cells in columns.items())


INDENT = (0, 0, 0, 2)
LONGEST_SUMMARY = 90
WAITS = "it comes from what nobody vouched for, and waits for an attempt that does better, or a person"
PROBLEMS = {
    "broken": ("Broken: not read until somebody mends them", BAD),
    "duplicate": ("Nearly the same: `redraft lessons merge` makes one of them", ""),
    "hidden": ("Hidden: put before nobody", QUIET),
}


def lesson_view(kept: KeptLesson) -> RenderableType:
    """Render a lesson: how it stands, and its file as it is."""
    lesson, counters = kept.lesson, kept.counters
    lines = [Text(visible(lesson.id), "bold"), standing_of(lesson, archived=kept.archived)]
    if counters == type(counters)():
        lines.append(Text("Used in no run yet"))
    else:
        runs = "1 run" if counters.uses == 1 else f"{counters.uses} runs"
        lines.append(Text(f"Used in {runs}: helped {counters.helped}, hurt {counters.hurt}"))
    if lesson.source:
        source = visible(lesson.source)
        lines.append(Text(f"From the run {source} (redraft show {source})"))
    lines.append(Text(visible(kept.file), QUIET))
    return Group(*lines, "", Padding(Text(visible(kept.text).rstrip()), INDENT))


def standing_of(lesson: Lesson, *, archived: bool = False) -> Text:
    """Say whether a lesson is put before an agent, and if not, why."""
    line = Text(lesson.status.capitalize(), STATES[lesson.status])
    why = visible(lesson.why)
    if lesson.status == "quarantined":
        line.append(f": {why or WAITS}", "")
    elif lesson.status == "superseded":
        line.append(f" by {visible(lesson.superseded_by)}" + (f": {why}" if why else ""), "")
    elif why:
        line.append(f": {why}", "")
    return line.append(" (in the archive)" if archived else "", QUIET)


def changed_line(lesson: Lesson) -> Text:
    """Say in a line how a lesson stands now."""
    line = Text.assemble((visible(lesson.id), "bold"), "  ")
    return line.append_text(standing_of(lesson)).append(
        f"  {shortened(visible(lesson.summary), LONGEST_SUMMARY)}", QUIET
    )


def found_view(found: Sequence[Found]) -> RenderableType:
    """Render what a search found, the best first, each with the reason."""
    parts: list[RenderableType] = []
    for one in found:
        head = Text.assemble(f"{one.score:5.2f}  ", (visible(one.lesson.id), "bold"))
        parts.append(head)
        parts.append(Padding(Text(shortened(visible(one.lesson.summary), LONGEST_SUMMARY)), (0, 0, 0, 7)))
        parts.append(Padding(Text(visible(one.reason), QUIET), (0, 0, 0, 7)))
    return Group(*parts)


def problems_view(problems: Sequence[Problem]) -> RenderableType:
    """Render what a person should look at, the broken files first."""
    if not problems:
        return Text("Nothing is broken, doubled or hidden.", GOOD)
    parts: list[RenderableType] = []
    for what, (title, style) in PROBLEMS.items():
        these = [one for one in problems if one.what == what]
        if not these:
            continue
        parts += ["", Text(f"{title} ({len(these)})", f"bold {style}".strip())]
        for one in these:
            named = one.why if one.why.startswith(one.id) else f"{one.id}: {one.why}"
            parts.append(Padding(Text(visible(named)), INDENT))
    return Group(*parts[1:])


def due_view(due: Sequence[Duty]) -> RenderableType:
    """Render what is due, the oldest first: the run, whose it is, what was asked and what went wrong."""
    if not due:
        return Text("Nothing is due.", GOOD)
    parts: list[RenderableType] = []
    for duty in due:
        how = "done in part" if duty.kind == "partial" else "failed"
        parts.append(Text.assemble((visible(duty.run_id), "bold"), f"  {visible(duty.agent)}  ", (how, BAD)))
        if duty.outcome is not None:
            for said, style in ((duty.outcome.task.description, ""), (duty.outcome.error, QUIET)):
                line = shortened(visible(" ".join(said.split())), LONGEST_SUMMARY)
                parts += [Padding(Text(line, style), INDENT)] if line else []
    return Group(*parts)


def rated_line(kept: KeptLesson) -> Text:
    """Say in a line how often a lesson helped and hurt by now."""
    counters = kept.counters
    said = f"  helped {counters.helped}, hurt {counters.hurt}"
    return Text.assemble((visible(kept.lesson.id), "bold"), said)


def added_line(lesson: Lesson, *, is_new: bool) -> Text:
    """Say in a line which lesson was added, or which one says so already."""
    if is_new:
        return changed_line(lesson)
    sure = f"{lesson.confidence:.2f}"
    return Text.assemble((visible(lesson.id), "bold"), f"  says nearly the same; it is surer now: {sure}.")


def reindexed_line(made: Reindexed) -> Text:
    """Say in a line what the index is made of now."""
    line = f"{made.found.added:,} lessons are in the index"
    line += f", {made.embedded:,} embedded anew by {visible(made.embedder)}." if made.embedder else "."
    if broken := len(made.found.broken):
        line += f" Broken: {broken}; see `redraft lessons doctor`."
    return Text(line)
