"""`redraft lessons`: read, search and edit what agents have learned."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from redraft._codec import to_json
from redraft._texts import abridged, counted, estimate_tokens, shortened
from redraft._validation import check_choice
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import ENDING, unused_files
from redraft.lessons.exchange import FILES, KNOWN_FILES, ExportFile, section_of
from redraft.lessons.folder import MOST_LESSONS
from redraft.lessons.impact import Counters
from redraft.lessons.lesson import (
    KINDS,
    STATUSES,
    TRUST_MEANINGS,
    Fact,
    Lesson,
    LessonKind,
    checked_content,
    headings_of,
    lesson_document,
)
from redraft.lessons.lessons import approval
from redraft.lessons.library import LessonLibrary
from redraft.lessons.markdown import parse_draft, template
from redraft.loop.criteria_file import add_criteria
from redraft.memory.safety import memory_redactor
from redraft.models.names import model_of
from redraft.proposals.cli import project_criteria, proposals_view, written
from redraft.proposals.proposals import FEWEST_RUNS, as_python
from redraft.redact.redactor import withheld
from redraft.settings import load_settings
from redraft.terminal import options
from redraft.terminal.commands import command_group, handles_errors
from redraft.terminal.console import BAD, GOOD, QUIET, CalmConsole, deliver, emit, emit_json
from redraft.terminal.exits import ExitCode
from redraft.terminal.input import confirm, edited, read_text, refused_text, save_refused
from redraft.terminal.tables import PlainTable
from redraft.terminal.word_diff import changes
from redraft.text.characters import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from redraft.lessons.documents import Entry
    from redraft.lessons.due import DueReflection
    from redraft.lessons.exchange import Export, Form, ImportItem
    from redraft.lessons.lesson import Content, Status
    from redraft.lessons.library import LessonDetails, Listing

Reference = Annotated[
    str,
    typer.Argument(metavar="ID", help="A lesson's id, its beginning or end, or 'last'.", show_default=False),
]
Agent = Annotated[str | None, typer.Option("--agent", metavar="NAME", help="Consider only this agent.")]
Owner = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="NAME", help="The agent that learns; optional if only one agent has lessons."
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("--path", metavar="FOLDER", help="Use the lessons in FOLDER, not the project's."),
]
TaskType = Annotated[str, typer.Option("--task-type", metavar="TYPE", help="The type of task.")]
Why = Annotated[str, typer.Option("--why", "-m", metavar="TEXT", help="The reason, kept for later readers.")]
FailureField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a failure.")]
FailedField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a failure or a partial success.")]
ProcedureField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a procedure.")]
DecisionField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a decision.")]
FactField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a fact.")]
WhyField = Annotated[str | None, typer.Option(metavar="TEXT", help="For a failure or a decision.")]

T = TypeVar("T")

lessons = command_group(default="list", help="List, search and edit what agents have learned.")


def _library(path: Path | None, agent: str | None = None) -> aclosing[LessonLibrary]:
    return aclosing(LessonLibrary(path, agent=agent))


def _redacted(value: T) -> T:
    return memory_redactor().redact_object(value)


# --- reading -----------------------------------------------------------------------------------------------


@lessons.command("list")
@handles_errors
async def list_lessons(
    agent: Agent = None,
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="KIND", help="List only this kind: failure, partial, procedure, decision or fact."
        ),
    ] = None,
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS", help="List only this status: active, quarantined, retired or superseded."
        ),
    ] = None,
    task_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="List only lessons for this type of task.")
    ] = None,
    archived: Annotated[bool, typer.Option("--archived", help="List archived lessons, too.")] = False,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """List lessons (the default). Shows whether they pay, and each one's status, trust and effect."""
    async with _library(path, agent) as library:
        listing = _redacted(
            await library.find(kind=kind, status=status, task_type=task_type, with_archive=archived)
        )
        payoff, unused = await library.payoff(), unused_files(library.documents)
    if as_json:
        emit_json(
            {
                "path": str(library.documents),
                "payoff": payoff,
                "broken": len(listing.problems),
                "problems": [to_json(problem) for problem in listing.problems],
                "archived": listing.archived,
                "unused": unused,
                "lessons": [_document(details) for details in listing.lessons],
            }
        )
        return
    console = CalmConsole()
    if listing.lessons:
        CalmConsole(stderr=True).say(payoff.sentence("lessons"))
        console.show(_table(listing.lessons))
    elif {agent, kind, status, task_type} == {None}:
        console.say(
            f"There are no lessons in {visible(str(library.documents))} yet.\n"
            "An Agent with lessons=Lessons(agent=...) writes one when a run fails.\n"
            "`redraft lessons add` adds one by hand."
        )
    else:
        console.say(f"No lesson in {visible(str(library.documents))} matches.")
    CalmConsole(stderr=True).say(_summary(listing))
    CalmConsole(stderr=True).say(unused)


@lessons.command()
@handles_errors
async def show(
    reference: Reference, agent: Agent = None, path: Folder = None, as_json: options.Json = False
) -> None:
    """Show a lesson. Prints its Markdown, whether it is in use, and whether it has helped."""
    async with _library(path, agent) as library:
        details = _redacted(await library.show(reference))
    document = {**_document(details), "text": details.text, "has_run": details.has_run}
    lesson, counters = details.lesson, details.counters
    lines = [Text(visible(lesson.id), "bold"), _status(lesson, archived=details.archived)]
    lines.append(Text(f"Trust: {lesson.trust or 'unknown'} ({TRUST_MEANINGS[lesson.trust]})"))
    if lesson.overrules:
        lines.append(Text(f"Approved although it holds {visible(lesson.overrules)}"))
    if lesson.check:
        check = f"The criterion {visible(lesson.check)!r} replaces it"
        lines.append(Text(f"{check}: runs that are judged by it do not get the lesson"))
    uses = f"Used in {counted(counters.uses, 'run')}: helped {counters.helped}, hurt {counters.hurt}"
    lines.append(Text("Not used in any run yet" if counters == Counters() else uses))
    if counters.obedience:
        lines.append(Text(f"{counters.obedience.capitalize()}"))
    if section := section_of(lesson):
        lines.append(Text(f"From {visible(section)}"))
    elif source := visible(lesson.source):
        lines.append(Text(f"From the run {source}{f' (redraft show {source})' if details.has_run else ''}"))
    lines.append(Text(visible(details.file), QUIET))
    deliver(
        Group(*lines, "", Padding(Text(visible(details.text).rstrip()), INDENT)), document, as_json=as_json
    )


@lessons.command()
@handles_errors
async def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A task, an error, a name.")],
    k: Annotated[int, typer.Option("-k", metavar="N", min=1, help="Show at most N lessons.")] = 5,
    agent: Agent = None,
    task_type: TaskType = "",
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Find lessons for a task. Lists active ones, best first, each with the reason."""
    async with _library(path, agent) as library:
        matches = _redacted(await library.search(query, k=k, task_type=task_type))
    if not matches and not as_json:
        CalmConsole(stderr=True).say("No active lesson matches.")
        return
    documents = [
        {"score": match.score, "reason": match.reason, "lesson": lesson_document(match.lesson)}
        for match in matches
    ]
    parts: list[RenderableType] = []
    for match in matches:
        parts.append(Text.assemble(f"{match.score:5.2f}  ", (visible(match.lesson.id), "bold")))
        summary = Text(shortened(visible(match.lesson.headline), LONGEST_SUMMARY))
        parts += [Padding(line, (0, 0, 0, 7)) for line in (summary, Text(visible(match.reason), QUIET))]
    deliver(
        Group(*parts, "", Text(SCORE_LEGEND, QUIET)),
        {"query": query, "found": documents},
        as_json=as_json,
    )


@lessons.command()
@handles_errors
async def doctor(agent: Agent = None, path: Folder = None, as_json: options.Json = False) -> None:
    """Check the lessons. Lists broken files (then it exits with 1), near-duplicates and unused lessons."""
    async with _library(path, agent) as library:
        problems = _redacted(await library.problems())
    titles = {
        "broken": ("Broken: ignored until the file is fixed", BAD),
        "ignored": ("Ignored: entries that have no meaning", QUIET),
        "disobeyed": ("Disobeyed: stressed in prompts, and retired if that does not help", BAD),
        "duplicate": ("Near-duplicates: `redraft lessons merge` merges them", ""),
        "hidden": ("Hidden: not used", QUIET),
    }
    parts: list[RenderableType] = []
    for what, (title, style) in titles.items():
        group = [problem for problem in problems if problem.what == what]
        if group:
            parts += [""] if parts else []
            parts.append(Text(f"{title} ({len(group)})", f"bold {style}".strip()))
        for problem in group:
            line = problem.why if problem.why.startswith(problem.id) else f"{problem.id}: {problem.why}"
            parts.append(Padding(Text(visible(line)), INDENT))
    deliver(
        Group(*parts) if parts else Text("No lesson is broken, duplicated or hidden.", GOOD),
        {"path": str(library.documents), "problems": problems},
        as_json=as_json,
    )
    is_broken = any(problem.what == "broken" for problem in problems)
    raise typer.Exit(ExitCode.NOT_MET if is_broken else ExitCode.MET)


# --- writing -----------------------------------------------------------------------------------------------


@lessons.command()
@handles_errors
async def add(
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="failure, partial, procedure, decision or fact.")
    ] = None,
    task: Annotated[str, typer.Option(metavar="TEXT", help="The task that the lesson is about.")] = "",
    task_type: TaskType = "",
    tool: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A tool that was used; repeatable.")
    ] = None,
    error: Annotated[str, typer.Option(metavar="TEXT", help="The error that occurred.")] = "",
    run: Annotated[str, typer.Option(metavar="RUN", help="The run that the lesson comes from.")] = "",
    confidence: Annotated[float | None, typer.Option(metavar="X", help="From 0 to 1; default: 0.7.")] = None,
    what_happened: FailedField = None,
    what_went_wrong: FailedField = None,
    why: WhyField = None,
    do_differently: FailedField = None,
    rule: FailureField = None,
    strategy: ProcedureField = None,
    why_it_worked: ProcedureField = None,
    decision: DecisionField = None,
    alternatives: DecisionField = None,
    subject: FactField = None,
    statement: FactField = None,
    evidence: FactField = None,
    file: Annotated[str | None, typer.Option(metavar="FILE.md", help="Read the lesson from a file.")] = None,
    agent: Owner = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Add a lesson by hand. Takes it from options, a file, or your editor; it is active immediately."""
    fields = {
        "what_happened": what_happened,
        "what_went_wrong": what_went_wrong,
        "why": why,
        "do_differently": do_differently,
        "rule": rule,
        "strategy": strategy,
        "why_it_worked": why_it_worked,
        "decision": decision,
        "alternatives": alternatives,
        "subject": subject,
        "statement": statement,
        "evidence": evidence,
    }
    about = {"task": task, "task_type": task_type, "error": error, "source": run, "tools": tuple(tool or ())}
    async with _library(path, agent) as library:
        owner = library.only_agent()
        lesson = _lesson_from(content_of(fields, kind), file, kind, owner, about)
        added, is_new = _redacted(await library.add(lesson, confidence=confidence))
    if is_new:
        line = _line(added, Text.assemble("Added. ", _status(added)))
    else:
        line = _line(added, f"says nearly the same already; its confidence is now {added.confidence:.2f}.")
    deliver(line, {"is_new": is_new, **lesson_document(added)}, as_json=as_json, soft_wrap=True)


def content_of(options: Mapping[str, str | None], kind: str | None = None) -> Content | None:
    """The content of a lesson from options, by field name; None if no field is set.

    By default, the `kind` that fits the fields best. Raises `ConfigError` for fields that are missing or
    belong to another kind.
    """
    texts = {name: text for name, text in options.items() if text is not None}
    if kind is not None:
        check_choice("--kind", kind, tuple(KINDS))
    if not texts:
        return None
    best = min(KINDS.values(), key=lambda form: len(texts.keys() ^ headings_of(form).keys()))
    form = best if kind is None else KINDS[cast("LessonKind", kind)]
    names = headings_of(form)
    if missing := [name for name in names if name not in texts]:
        raise ConfigError(f"A {form.kind} also needs {', '.join(map(_option, missing))}.")
    if odd := [name for name in texts if name not in names]:
        raise ConfigError(f"A {form.kind} takes no {', '.join(map(_option, odd))}.")
    return form(**cast("dict[str, Any]", texts))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _lesson_from(
    content: Content | None, file: str | None, kind: str | None, agent: str, about: dict[str, Any]
) -> Lesson:
    """The lesson from options, a file, or the editor; options override the file."""
    if content is not None and file is not None:
        raise ConfigError("Give either the fields of a lesson or a --file, not both.")
    if content is not None:
        if isinstance(content, Fact):
            about["task"] = about["task"] or content.subject
        if not about["task"].strip():
            raise ConfigError("Give --task: a lesson is found by the task that it is about.")
        lesson = Lesson(content, agent, datetime.now(UTC).date(), "")
    elif file is not None:
        lesson = parse_draft(read_text(file), file, agent)
    else:
        lesson = _written_in_editor(kind, agent)
    return replace(lesson, **{name: value for name, value in about.items() if value})


def _written_in_editor(kind: str | None, agent: str) -> Lesson:
    """A lesson written in the editor; an invalid one is saved in the current folder."""
    blank = template(cast("LessonKind", kind or "failure"), agent)
    text = edited(blank, "lesson.md")
    if text == blank:
        raise ConfigError("Nothing was written, so no lesson was added.")
    try:
        lesson = parse_draft(text, "the lesson", agent)
        checked_content(lesson.content)
    except (ConfigError, LessonFileError) as error:
        path, number = Path("lesson.md"), 1
        while path.exists():
            number += 1
            path = Path(f"lesson-{number}.md")
        save_refused(path, text)
        raise ConfigError(
            f"{error} Your text is in {str(path)!r}; correct it, then run "
            f"`redraft lessons add --file {path}`."
        ) from error
    return lesson


@lessons.command()
@handles_errors
async def edit(reference: Reference, agent: Agent = None, path: Folder = None) -> None:
    """Edit a lesson's Markdown in your editor. What can't be saved stays in a file that is named."""
    async with _library(path, agent) as library:
        entry = library.resolve(reference)
        before = library.text_of(entry)
        rejected = _copy_of(entry, "rejected")
        text = edited(refused_text(rejected) or before, f"{entry.stem}{ENDING}")
        if text == before:
            save_refused(rejected, "")
            CalmConsole(stderr=True).say("Nothing was changed.")
            return
        try:
            lesson = await library.lessons_of(entry.id).edit_file(entry.id, text, before=before)
        except (ConfigError, StoreError) as error:
            is_newer = _has_changed(library, entry, before)
            stays = _copy_of(entry, "conflict") if is_newer else rejected
            save_refused(stays, text)
            opens = "opens the newer version" if is_newer else "resumes it"
            raise ConfigError(
                f"{error} Nothing was saved. Your text is in {str(stays)!r}; "
                f"`redraft lessons edit {reference}` {opens}."
            ) from error
        save_refused(rejected, "")
    saved = _redacted(lesson)
    CalmConsole().show(_line(saved, Text.assemble("Saved. ", _status(saved))), soft_wrap=True)


def _has_changed(library: LessonLibrary, entry: Entry, before: str) -> bool:
    """Whether a lesson has another text by now; False if it can't be read."""
    with suppress(ConfigError, StoreError):
        return library.text_of(library.resolve(entry.id)) != before
    return False


def _copy_of(entry: Entry, why: str) -> Path:
    """Path of a text that was not saved: next to the lesson's file, or in the current folder."""
    name = f"{entry.stem}{ENDING}.{why}"
    return entry.path.with_name(name) if entry.file else Path(name)


@lessons.command()
@handles_errors
async def approve(
    reference: Reference,
    why: Why = "",
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Vouch for a lesson and use it. Brings back one that is quarantined, retired or superseded."""
    async with _library(path, agent) as library:
        lesson_id = library.resolve(reference).id
        lessons = library.lessons_of(lesson_id)
        before, after = await lessons.get(lesson_id), await lessons.approve(lesson_id, why)
    _deliver_change(before, after, approval(before, after), as_json=as_json)


@lessons.command()
@handles_errors
async def retire(
    reference: Reference, why: Why, agent: Agent = None, path: Folder = None, as_json: options.Json = False
) -> None:
    """Stop using a lesson. The lesson stays stored, with the reason, and `approve` brings the lesson back."""
    async with _library(path, agent) as library:
        lesson_id = library.resolve(reference).id
        lessons = library.lessons_of(lesson_id)
        before, after = await lessons.get(lesson_id), await lessons.retire(lesson_id, why)
    _deliver_change(before, after, _status(after), as_json=as_json)


@lessons.command()
@handles_errors
async def supersede(
    reference: Reference,
    by: Annotated[str, typer.Option("--by", metavar="ID", help="The lesson that replaces it.")],
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Replace a lesson with another one. The lesson stays stored, and names its successor."""
    async with _library(path, agent) as library:
        lesson_id, successor = library.resolve(reference).id, library.resolve(by).id
        lessons = library.lessons_of(lesson_id)
        before, after = await lessons.get(lesson_id), await lessons.supersede(lesson_id, by=successor)
    _deliver_change(before, after, _status(after), as_json=as_json)


@lessons.command()
@handles_errors
async def merge(
    references: Annotated[list[str], typer.Argument(metavar="ID", help="Two or more lessons.")],
    keep: Annotated[
        str | None, typer.Option(metavar="ID", help="The lesson to keep. Default: the most confident.")
    ] = None,
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Merge lessons that say the same thing. The most confident one stays and supersedes the others."""
    async with _library(path, agent) as library:
        keep_id = None if keep is None else library.resolve(keep).id
        ids = [*filter(None, [keep_id]), *(library.resolve(part).id for part in references)]
        merged = _redacted(await library.lessons_of(ids[0]).merge(ids, keep=keep_id))
    others = ", ".join(visible(lesson_id) for lesson_id in dict.fromkeys(ids) if lesson_id != merged.id)
    line = _line(merged, f"Supersedes {others}; its confidence is now {merged.confidence:.2f}.")
    deliver(line, lesson_document(merged), as_json=as_json, soft_wrap=True)


@lessons.command()
@handles_errors
async def rate(
    reference: Reference,
    helped: Annotated[
        bool, typer.Option("--helped/--hurt", help="Whether the lesson helped or hurt, in your judgement.")
    ],
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Rate a lesson. Your rating counts like a scored run."""
    async with _library(path, agent) as library:
        lesson_id = library.resolve(reference).id
        await library.rate(lesson_id, helped=helped)
        rated = _redacted(await library.show(lesson_id))
    counts = f"  helped {rated.counters.helped}, hurt {rated.counters.hurt}"
    line = Text.assemble((visible(rated.lesson.id), "bold"), counts)
    deliver(line, _document(rated), as_json=as_json, soft_wrap=True)


# --- reflections that are due ------------------------------------------------------------------------------


@lessons.command()
@handles_errors
async def due(agent: Agent = None, as_json: options.Json = False) -> None:
    """List reflections that are due. An agent runs again only after reflecting on its failures."""
    async with _library(None, agent) as library:
        reflections = _redacted(await library.due())
    parts: list[RenderableType] = []
    for reflection in reflections:
        how = "partly done" if reflection.kind == "partial" else "failed"
        parts.append(
            Text.assemble(
                (visible(reflection.run_id), "bold"), f"  {visible(reflection.agent)}  ", (how, BAD)
            )
        )
        if reflection.outcome is not None:
            for text, style in ((reflection.outcome.task.description, ""), (reflection.outcome.error, QUIET)):
                line = shortened(visible(text), LONGEST_SUMMARY)
                parts += [Padding(Text(line, style), INDENT)] if line else []
    deliver(
        Group(*parts) if parts else Text("No reflection is due.", GOOD),
        {"due": [_due_document(reflection) for reflection in reflections]},
        as_json=as_json,
    )
    if reflections and not as_json:
        CalmConsole(stderr=True).say(
            "Write one with `redraft lessons add --run RUN`, or `redraft lessons waive RUN --why TEXT`."
        )


@lessons.command()
@handles_errors
async def waive(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, its beginning or end, or 'last'.")],
    why: Why,
    agent: Agent = None,
    as_json: options.Json = False,
) -> None:
    """Waive the reflection on a run. Its agent can run again, and the reason is kept."""
    async with _library(None, agent) as library:
        waived = _redacted(await library.waive(run, why))
    line = Text(visible(f"{waived.run_id}  waived: {why}"))
    deliver(line, {**_due_document(waived), "why": why}, as_json=as_json, soft_wrap=True)


# --- exports and the index ---------------------------------------------------------------------------------


@lessons.command("export")
@handles_errors
async def export_lessons(
    to: Annotated[str, typer.Option("--to", metavar="FORM", help="agents-md, skill or rules.")] = "agents-md",
    file: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help=f"Default: {', '.join(FILES.values())}; '-' prints the text.",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit with 1 if the file is out of date.")
    ] = False,
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Maximum number of tokens. Default: 1000, or 4000 for a skill."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Export the best lessons for coding agents. They go into a block; the rest of the file stays."""
    check_choice("--to", to, tuple(FILES))
    into = ExportFile.read(cast("Form", to), file)
    async with _library(path, agent) as library:
        export = await library.export(into.form, max_tokens=max_tokens, outside=into.block.outside)
    console = CalmConsole(stderr=True)
    console.say(_export_summary(export))
    document = {
        "file": into.name,
        "form": into.form,
        "tokens": estimate_tokens(export.body),
        "rules": export.rules,
        "lessons": list(export.ids),
        "left_out": [{"id": place, "why": why} for place, why in export.left_out],
        "text": export.body,
    }
    if into.target is None:
        emit_json(document) if as_json else emit(export.body)
        return
    is_current, is_written = into.with_body(export.body) == into.text, False
    if not is_current:
        console.show(
            _export_changes(into, export, coloured=console.is_coloured), soft_wrap=not console.is_terminal
        )
    if not is_current and not check:
        is_written = yes or confirm(f"Write {visible(into.name)}?")
        if is_written:
            into.write(export.body)
    if is_current or is_written or check:
        console.say(_export_outcome(into, is_current=is_current, is_written=is_written))
    else:
        console.say("Nothing was written.")
    if as_json:
        emit_json(document | {"up_to_date": is_current or is_written, "written": is_written})
    raise typer.Exit(ExitCode.MET if is_current or is_written else ExitCode.NOT_MET)


@lessons.command("import")
@handles_errors
async def import_lessons(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH",
            help=f"Files, folders of Markdown, or a folder of lessons. Default: {', '.join(KNOWN_FILES)}.",
            show_default=False,
        ),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Vouch for the text, as `approve` does: it is used immediately.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; show what would be imported.")
    ] = False,
    agent: Owner = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Import instructions as lessons: AGENTS.md, CLAUDE.md, Cursor rules, Markdown.

    Adds the sections that no lesson says yet, and names what it leaves out, and why.
    """
    async with _library(path, agent) as library:
        items = _redacted(await library.import_files(paths or [], trusted=trusted, dry_run=dry_run))
    document = {"dry_run": dry_run, "items": [_import_document(item) for item in items]}
    deliver(_imported(items), document, as_json=as_json)
    CalmConsole(stderr=True).say(_import_summary(items, trusted=trusted, dry_run=dry_run))
    is_refused = any(item.what == "refused" for item in items)
    raise typer.Exit(ExitCode.NOT_MET if is_refused else ExitCode.MET)


@lessons.command()
@handles_errors
async def reindex(path: Folder = None, as_json: options.Json = False) -> None:
    """Rebuild the search index. It is derived from the lessons, and may be deleted at any time."""
    progress = CalmConsole(stderr=True)
    async with _library(path) as library:
        indexed, embedded, embedder = await library.rebuild_index(
            lambda count: progress.say(f"{count:,} lessons embedded")
        )
    document = {
        "path": str(library.documents),
        "lessons": indexed.lessons,
        "embedded": embedded,
        "embedder": embedder,
        "broken": [{"id": lesson_id, "problem": problem} for lesson_id, problem in indexed.broken.items()],
    }
    line = f"{indexed.lessons:,} lessons are in the index"
    line += f", {embedded:,} newly embedded by {visible(embedder)}." if embedder else "."
    if broken := len(indexed.broken):
        line += f" {counted(broken, 'file')} can't be read: `redraft lessons doctor` says why."
    deliver(Text(line), document, as_json=as_json, soft_wrap=True)


# --- checks for recurring failures -------------------------------------------------------------------------


@lessons.command()
@handles_errors
async def propose(
    agent: Annotated[
        str | None, typer.Argument(metavar="AGENT", help="Consider only this agent.", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="NAME", help="Have this model draft, too. Default: rules alone."
        ),
    ] = None,
    weaker: Annotated[
        bool, typer.Option("--all", help="List weaker checks, too, with what speaks against each.")
    ] = False,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Propose checks for what keeps failing, each tried on stored runs; `accept` makes one a criterion."""
    drafter = None if model is None else model_of(model, load_settings())
    async with _library(path, agent) as library:
        proposals = await library.propose(drafter, weaker=weaker)
    if as_json:
        emit_json({"proposals": [withheld(proposal.document()) for proposal in proposals]})
        return
    if not proposals:
        nothing = (
            f"No check is proposed: nothing has failed in {FEWEST_RUNS} runs in a way that a check can tell."
        )
        CalmConsole().say(nothing if weaker else f"{nothing} --all lists weaker ones.")
        return
    CalmConsole().show(proposals_view(proposals))
    CalmConsole(stderr=True).say("`redraft lessons accept ID` adds one to your criteria.")


@lessons.command()
@handles_errors
async def accept(
    reference: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a proposal, or its beginning.", show_default=False)
    ],
    criteria: Annotated[
        Path | None,
        typer.Option(
            "--criteria", "-c", metavar="YAML", help="The criteria file. Default: that of `redraft hook`."
        ),
    ] = None,
    python: Annotated[bool, typer.Option("--python", help="Print it as Python, and write no file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    agent: Agent = None,
    path: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Accept a proposed check: it becomes one of your criteria, and replaces the lessons about it.

    It is tried on the stored runs once more, and shown, before anything is written.
    """
    if python and as_json:
        raise ConfigError("Give either --python or --json, not both.")
    async with _library(path, agent) as library:
        proposal = await library.proposal(reference)
        criteria = criteria or project_criteria()
        CalmConsole(stderr=True).show(proposals_view([proposal]))
        where = "in your program" if python else visible(str(criteria))
        if not (yes or confirm(f"Make it one of the criteria ({where})?")):
            CalmConsole(stderr=True).say("Nothing was written.")
            raise typer.Exit(ExitCode.NOT_MET)
        added = [proposal.criterion] if python else add_criteria(criteria, [proposal.criterion])
        changed = await library.accepted(proposal, added[0].name if added else proposal.criterion.name)
    if as_json:
        file = None if python else str(criteria)
        more = {"file": file, "added": bool(added), "changed_lessons": changed}
        emit_json({**withheld(proposal.document()), **more})
    elif python:
        emit(as_python(added))
    else:
        CalmConsole().say(written(criteria, [criterion.name for criterion in added]))


# --- output ------------------------------------------------------------------------------------------------

STYLES: dict[Status, str] = {"active": GOOD, "quarantined": BAD, "retired": QUIET, "superseded": QUIET}
LONGEST_SUMMARY = 90
SHORTEST_SUMMARY = 20
MOST_NAMED = 5
"""Maximum lessons that are named for each reason of leaving them out."""
OPTIONAL_COLUMNS = ("day", "summary", "kind", "agent", "task type", "failed again", "trust")
"""Columns that are dropped on a narrow terminal, in this order; an id contains day and summary."""
INDENT = (0, 0, 0, 2)


def _document(details: LessonDetails) -> dict[str, Any]:
    return {
        **lesson_document(details.lesson),
        "archived": details.archived,
        "file": details.file,
        "counters": details.counters,
        "failure_rate": details.counters.failure_rate,
    }


def _due_document(due: DueReflection) -> dict[str, Any]:
    return {"run_id": due.run_id, "agent": due.agent, "kind": due.kind, "outcome": to_json(due.outcome)}


def _deliver_change(before: Lesson, after: Lesson, what: str | Text, *, as_json: bool) -> None:
    """Print the new state of a lesson; if it is no longer used, also how to bring it back."""
    after = _redacted(after)
    deliver(
        _line(after, what),
        {"changed": before != after, **lesson_document(after)},
        as_json=as_json,
        soft_wrap=True,
    )
    if after.status not in ("active", before.status) and not as_json:
        CalmConsole(stderr=True).say(f"`redraft lessons approve {visible(after.id)}` brings it back.")


def _line(lesson: Lesson, what: str | Text) -> Text:
    return Text.assemble((visible(lesson.id), "bold"), "  ", what)


def _table(listed: Sequence[LessonDetails]) -> PlainTable:
    """Render lessons as rows; ids are never cut, because other commands accept them."""
    short_ids = {details.lesson.id.partition("/")[2] for details in listed}
    has_agents = len({details.lesson.agent for details in listed}) > 1
    has_obedience = any(details.counters.obedience for details in listed)

    def row(details: LessonDetails) -> dict[str, str | Text]:
        lesson, archived = details.lesson, " (archived)" if details.archived else ""
        agent = {"agent": lesson.agent} if has_agents else {}
        is_stressed = lesson.disobeyed and lesson.status in ("active", "quarantined")
        disobeyed = ", disobeyed" if is_stressed else ""
        counters = details.counters
        known_runs = counters.obeyed + counters.failed_again
        failed_again = f"{counters.failed_again} of {known_runs}" if known_runs else "-"
        return {
            "id": lesson.id.partition("/")[2] if len(short_ids) == len(listed) else lesson.id,
            **agent,
            "kind": lesson.kind,
            "status": Text(f"{lesson.status}{disobeyed}{archived}", STYLES[lesson.status]),
            "trust": lesson.trust or "-",
            "day": str(lesson.day),
            "task type": lesson.task_type,
            "used": "-" if counters == Counters() else f"{counters.uses} +{counters.helped} -{counters.hurt}",
            **({"failed again": failed_again} if has_obedience else {}),
            "conf": f"{lesson.confidence:.2f}",
            "summary": lesson.headline,
        }

    return PlainTable(
        map(row, listed),
        right=("used", "failed again", "conf"),
        wrap=("id",),
        drop=OPTIONAL_COLUMNS,
        fill="summary",
        shortest=SHORTEST_SUMMARY,
    )


MOST_PROBLEMS = 5
"""Maximum unreadable files that a list names."""


def _summary(listing: Listing) -> str:
    counts = Counter(details.lesson.status for details in listing.lessons)
    parts = [f"{counts[status]} {status}" for status in STATUSES if counts[status]]
    if listed := sum(details.archived for details in listing.lessons):
        parts.append(f"{listed} of them archived")
    elif listing.archived:
        parts.append(f"{listing.archived} archived")
    line = f"{counted(len(listing.lessons), 'lesson')}: {', '.join(parts)}." if parts else ""
    if listing.problems:
        line += f" {counted(len(listing.problems), 'file')} can't be read: `redraft lessons doctor` says why."
        line += "".join(
            f"\nNot in use: {visible(problem.why)}" for problem in listing.problems[:MOST_PROBLEMS]
        )
    line = line.strip()
    if counts["quarantined"]:
        line += (
            "\nQuarantined lessons are on trial: used for the task that taught them, and tried in some"
            " similar ones. `redraft lessons approve ID` puts one into use."
        )
    return line


def _status(lesson: Lesson, *, archived: bool = False) -> Text:
    """Render the status of a lesson, with the reason."""
    line, why = Text(lesson.status.capitalize(), STYLES[lesson.status]), visible(lesson.why)
    if lesson.status == "quarantined":
        waiting = (
            "used only for the task that taught it, and tried in similar ones, until it has helped or hurt"
        )
        line.append(f": {why}; {waiting}" if why else f": {waiting}", "")
    elif lesson.status == "superseded":
        line.append(f" by {visible(lesson.superseded_by)}" + (f": {why}" if why else ""), "")
    elif why:
        line.append(f": {why}", "")
    if lesson.disobeyed and lesson.status in ("active", "quarantined"):
        line.append(f"; stressed in prompts, since disobeyed: {visible(lesson.disobeyed)}", BAD)
    return line.append(" (archived)" if archived else "", QUIET)


SCORE_LEGEND = "The number is the similarity, up to 1, plus what shared names and the lesson's effect add."


def _export_summary(export: Export) -> str:
    """Render the contents of an export, and what was left out with the reasons."""
    agents = {lesson_id.partition("/")[0] for lesson_id in export.ids}
    line = f"{counted(export.rules, 'permanent rule')}; " if export.rules else ""
    line += f"{counted(len(export.ids), 'lesson')} of {counted(len(agents), 'agent')}, best first, "
    line += f"{estimate_tokens(export.body):,} tokens."
    by_reason: dict[str, list[str]] = {}
    for place, why in export.left_out:
        by_reason.setdefault(why, []).append(place)
    for why, places in by_reason.items():
        line += f"\nLeft out, since {why}: {abridged(places, MOST_NAMED)}."
    return visible(line)


def _imported(items: Sequence[ImportItem]) -> RenderableType:
    """Render each section with its result, the reason, and the id of a new lesson."""
    styles = {"added": GOOD, "approved": GOOD, "refused": BAD}
    lines: list[RenderableType] = []
    for item in items:
        lines.append(Text.assemble((f"{item.what:<15}", styles.get(item.what, QUIET)), visible(item.place)))
        stored = item.lesson.id if item.what == "added" and item.lesson else ""
        lines += [
            Padding(Text(visible(detail), QUIET), (0, 0, 0, 15)) for detail in (stored, item.why) if detail
        ]
        for line in item.withheld:
            place = f"line {line.number}" if line.number else "several lines"
            text = shortened(visible(line.text), LONGEST_SUMMARY)
            lines.append(Padding(Text(f"{place}: {text}", BAD), (0, 0, 0, 15)))
    return Group(*lines) if lines else Text("There is nothing to import.")


def _import_summary(items: Sequence[ImportItem], *, trusted: bool, dry_run: bool) -> str:
    counts = Counter(item.what for item in items)
    listed = ", ".join(f"{count} {what}" for what, count in counts.items())
    line = f"{'Nothing was written. Would be' if dry_run else 'Imported'}: {listed or 'nothing'}."
    if archived := sum(item.is_archived for item in items):
        line += (
            f"\n{archived} of them went to the archive, since an agent keeps {MOST_LESSONS} of a status. "
            "Search still finds them, and `redraft lessons --archived` lists them."
        )
    if withheld := sum(len(item.withheld) for item in items):
        line += (
            f"\nIn {counted(withheld, 'line')}, shown above, something is withheld. Terms in the setting "
            "redact_allow are kept, unless they are secrets."
        )
    if counts["added"] and not trusted:
        line += (
            "\nThey are quarantined: only some runs try them until they have helped. --trusted approves them."
        )
    return line


def _import_document(item: ImportItem) -> dict[str, Any]:
    return {
        "place": item.place,
        "what": item.what,
        "why": item.why,
        "archived": item.is_archived,
        "withheld": [
            {"line": withheld_line.number, "text": withheld_line.text} for withheld_line in item.withheld
        ],
        "lesson": None if item.lesson is None else lesson_document(item.lesson),
    }


def _export_changes(into: ExportFile, export: Export, *, coloured: bool) -> RenderableType:
    head = f"{into.name}: " + ("a new file" if into.text is None else "the rest of the file stays as it is")
    after = into.front + export.body
    diff = changes(into.block.body or "", after, coloured=coloured, longest=None)
    return Group(Text(visible(head), QUIET), diff)


def _export_outcome(into: ExportFile, *, is_current: bool, is_written: bool) -> str:
    if is_written:
        return f"{into.name} was written."
    if is_current:
        return f"{into.name} is up to date."
    if into.block.body is None:
        return f"{into.name} has no block of lessons."
    return f"{into.name} is out of date."
