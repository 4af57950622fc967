"""The dashboard's pages on lessons: the lessons of an agent, each lesson, and the changes to it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft._validation import nearest
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import Entry, check_file
from redraft.lessons.folder import LessonFolder
from redraft.lessons.impact import Counters, Impact
from redraft.lessons.lesson import KINDS, STATUSES, TRUST_MEANINGS, Lesson, headings_of, lesson_document
from redraft.lessons.lessons import approval
from redraft.lessons.library import LessonLibrary
from redraft.lessons.markdown import render
from redraft.lessons.overview import Overview, Problem
from redraft.lessons.rules import Rules
from redraft.memory.effects import payoff_of
from redraft.text.characters import visible
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import digest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable

    from redraft.lessons.lesson import LessonKind
    from redraft.lessons.lessons import Lessons
    from redraft.web.project import Project

PAGE_SIZE = 100
LATEST_USES = 20
"""Number of uses of a lesson that are listed."""
MAX_AGENTS = 50
"""Maximum agents in the list whose lessons are counted."""
MAX_ARCHIVED = 200
"""Maximum archived lessons that are listed: the newest by their names."""
MAX_COMPARED = 200
"""Maximum active lessons that are checked for duplicates; an agent that learns has at most 30."""
RULE_GROUPS = {
    "permanent": "Permanent",
    "proposed": "Proposed as permanent: for you to decide",
    "tactical": "Tactical: at most ten, four weeks each",
}


# --- the lessons of an agent ----------------------------------------------------------------------------


def _filter(request: PageRequest) -> dict[str, Any]:
    """The lessons to list, by the query; raises `ConfigError` for an unknown kind or status.

    An empty kind or status admits any. `before` is the id of the last lesson on the previous page.
    """
    return {
        "kind": request.one_of("kind", tuple(KINDS)),
        "status": request.one_of("status", STATUSES),
        "archived": request.query.get("archived") == "1",
        "before": request.query.get("before", ""),
    }


async def lessons(request: PageRequest) -> dict[str, Any]:
    """The lessons of the agent in the query, or of the only agent; otherwise the agents, for a choice.

    `older` is the id of the last lesson if there is another page.
    """
    project, chosen = request.project, _filter(request)
    library = _library(project)
    names = await asyncio.to_thread(library.agents)
    agent = request.query.get("agent", "").strip() or (names[0] if len(names) == 1 else "")
    if not agent:
        folders = [LessonFolder(library.documents, name) for name in names[:MAX_AGENTS]]
        counted = await asyncio.to_thread(lambda: list(map(_counted, folders)))
        names, counted = await project.redacted((names, counted))
        return {"agents": counted, "agent_names": names, "payoff": await library.payoff()}
    if agent not in names:
        raise NotFoundError(f"The agent {agent!r} has no lessons here; {nearest(agent, names)}")
    impact = Impact(project.store, agent)
    counters = await impact.all_counters()
    overview = await _overview(project, agent, archived=MAX_ARCHIVED if chosen["archived"] else 0)
    page, older = _page(chosen, overview.lessons)
    rows = [
        (
            lesson,
            counters.get(lesson.id, Counters()),
            lesson.id in overview.archived_ids,
            overview.duplicate_of(lesson.id),
        )
        for lesson in page
    ]
    broken = [problem for problem in overview.problems if problem.what == "broken"]
    names, chosen, rows, broken, rules, playbooks = await project.redacted(
        (names, chosen, rows, broken, overview.rules, overview.playbooks), full=request.full
    )
    return {
        "agent": agent,
        "agent_names": names,
        "filter": chosen,
        "payoff": payoff_of(await impact.groups()),
        "lessons": [
            {
                **lesson_document(lesson),
                "counters": used,
                "archived": is_archived,
                **_duplicate(duplicate),
            }
            for lesson, used, is_archived, duplicate in rows
        ],
        "older": older,
        "archived": len(overview.archived_ids),
        "broken": broken,
        "rules": rules,
        "playbooks": playbooks,
    }


def _counted(folder: LessonFolder) -> dict[str, Any]:
    """The number of lessons of an agent, and the day of the newest, without opening a file."""
    entries = list(folder.entries())
    days = [str(entry.day) for entry in entries if not entry.archived]
    archived = len(entries) - len(days)
    return {"name": folder.name, "lessons": len(days), "archived": archived, "newest": max(days, default="")}


def _duplicate(problem: Problem | None) -> dict[str, str | None]:
    """The near-duplicate of a lesson: a sentence, and the id of the other lesson."""
    if problem is None:
        return {"duplicate": None, "duplicate_of": None}
    return {"duplicate": problem.why, "duplicate_of": problem.other}


def _page(chosen: dict[str, Any], lessons: Iterable[Lesson]) -> tuple[list[Lesson], str | None]:
    """A page of the lessons that match, and the id after which the next page begins."""
    left, before = iter(lessons), chosen["before"]
    if before and all(lesson.id != before for lesson in left):
        raise NotFoundError(f"There is no lesson {before!r} here, so none before it.")
    matching = (
        lesson
        for lesson in left
        if chosen["kind"] in ("", lesson.kind) and chosen["status"] in ("", lesson.status)
    )
    page = list(islice(matching, PAGE_SIZE + 1))
    return page[:PAGE_SIZE], page[PAGE_SIZE - 1].id if len(page) > PAGE_SIZE else None


# --- a single lesson ------------------------------------------------------------------------------------


async def lesson(request: PageRequest) -> dict[str, Any]:
    """A lesson with its uses, rules and playbooks, or the `problem` and the `text` of a broken document.

    `stored_runs` are its runs that have a page. `digest` identifies its text. `is_editable` says that the
    page shows all of its text, so that saving the text loses nothing.
    """
    project = request.project
    entry = await _entry(project, request.path["agent"], request.path["name"])
    folder = LessonFolder(_library(project).documents, request.path["agent"])
    impact = Impact(project.store, folder.agent)
    latest = await impact.latest(entry.id, LATEST_USES)
    overview = await _overview(project, folder.agent)
    stored, text, problem = None, "", ""
    try:
        text = await asyncio.to_thread(folder.text_of, entry)
        stored = await asyncio.to_thread(folder.read_entry, entry)
    except StoreError as error:
        problem = str(error)
    runs = {use.run_id for use in latest} | ({stored.source} if stored else set[str]())
    rules = [rule for rule in overview.rules if rule.source == entry.id]
    playbooks = [playbook for playbook in overview.playbooks if playbook.lesson == entry.id]
    shown_lesson, uses, duplicate, rules, playbooks, broken, place = await project.redacted(
        (
            stored,
            latest,
            overview.duplicate_of(entry.id),
            rules,
            playbooks,
            {"id": entry.id, "problem": problem, "text": text if stored is None else ""},
            entry.place,
        ),
        full=request.full,
    )
    texts: Iterable[str] = [] if stored is None else to_json(stored.content).values()
    is_whole = stored is not None and shown_lesson is not None and shown_lesson.content == stored.content
    counters = await impact.counters(entry.id)
    return {
        **(broken if shown_lesson is None else lesson_document(shown_lesson)),
        "file": place,
        "archived": entry.archived,
        "counters": counters,
        "failure_rate": counters.failure_rate,
        "latest_uses": uses,
        "stored_runs": sorted(await project.stored_runs(runs)),
        **_duplicate(duplicate),
        "rules": rules,
        "playbooks": playbooks,
        "digest": digest(text),
        "is_editable": is_whole and all(visible(text) == text for text in texts),
    }


def headings(kind: LessonKind) -> dict[str, str]:
    """The heading of each field of a lesson's content."""
    return headings_of(KINDS[kind])


async def _entry(project: Project, agent: str, name: str) -> Entry:
    """The document of a lesson; raises `NotFoundError` if there is none, or for example only a link."""
    await _check_agent(project, agent)
    try:
        entry = await asyncio.to_thread(
            LessonFolder(_library(project).documents, agent).entry_of, f"{agent}/{name}"
        )
        if entry.file:
            check_file(entry.file, entry.id)
    except LessonFileError as error:
        raise NotFoundError(str(error)) from error
    return entry


# --- changes by a person --------------------------------------------------------------------------------


@asynccontextmanager
async def _lesson_to_change(form: Form) -> AsyncGenerator[tuple[Lessons, Entry]]:
    """Open the lessons of the agent in the path, with the file of the lesson in the path."""
    entry = await _entry(form.project, form.path["agent"], form.path["name"])
    async with aclosing(_library(form.project)) as library:
        try:
            yield library.lessons_of(entry.id), entry
        except LessonFileError as error:  # the lesson is broken, not the store
            raise ConfigError(str(error)) from error


async def _approve(form: Form) -> str:
    async with _lesson_to_change(form) as (lessons, entry):
        before = await lessons.get(entry.id)
        return approval(before, await lessons.approve(entry.id, form.text("why", "").strip()))


async def _retire(form: Form) -> str:
    async with _lesson_to_change(form) as (lessons, entry):
        await lessons.retire(entry.id, form.text("why").strip())
    return "The lesson is retired: no run is given it any more. It stays, and approving it brings it back."


async def _merge(form: Form) -> str:
    agent = form.path["agent"]
    other = await _entry(form.project, agent, form.text("other").strip().removeprefix(f"{agent}/"))
    keep = _choice(form, "keep", "this", "other")
    async with _lesson_to_change(form) as (lessons, entry):
        survivor, merged = (entry.id, other.id) if keep == "this" else (other.id, entry.id)
        await lessons.merge([survivor, merged], keep=survivor)
    return f"Merged: {survivor} supersedes {merged}."


async def _rate(form: Form) -> str:
    how = _choice(form, "how", "helped", "hurt")
    async with _lesson_to_change(form) as (lessons, entry):
        await lessons.rate(entry.id, how == "helped")
    return f"Rated: it {how}."


async def _edit(form: Form) -> str:
    async with _lesson_to_change(form) as (lessons, entry):
        text = await asyncio.to_thread(_library(form.project).text_of, entry)
        if digest(text) != form.text("digest"):
            raise ConfigError(
                "Not saved: the lesson has changed since this page was loaded. Reload the page."
            )
        before = await lessons.get(entry.id)
        content = type(before.content)
        texts = {name: form.text(name).replace("\r\n", "\n") for name in headings_of(content)}
        edited = replace(before, content=content(**texts))
        after = before
        if edited != before:  # `before` guards against a change since the digest was compared
            after = await lessons.edit_file(entry.id, await asyncio.to_thread(render, edited), before=text)
    return "There was nothing to save." if after == before else "Saved."


async def _make_permanent(form: Form) -> str:
    agent = form.path["agent"]
    await _check_agent(form.project, agent)
    try:
        rule = await asyncio.to_thread(
            Rules(_library(form.project).documents, agent).make_permanent, form.text("rule")
        )
    except LessonFileError as error:  # there is no such rule, or the file is broken
        raise ConfigError(str(error)) from error
    return f"This rule is permanent: {rule.text}"


def _choice(form: Form, name: str, *choices: str) -> str:
    chosen = form.text(name)
    if chosen not in choices:
        raise ConfigError(f"{name} must be {' or '.join(map(repr, choices))}, got {chosen!r}.")
    return chosen


# --- reading documents ----------------------------------------------------------------------------------


def _library(project: Project) -> LessonLibrary:
    return LessonLibrary(store=project.store)


async def _check_agent(project: Project, agent: str) -> None:
    """Raise `NotFoundError` if there is no such agent, before a folder is looked up by its name."""
    if agent not in await asyncio.to_thread(_library(project).agents):
        raise NotFoundError(f"The agent {agent!r} has no lessons here.")


async def _overview(project: Project, agent: str, *, archived: int = 0) -> Overview:
    return await asyncio.to_thread(
        Overview.read, _library(project).documents, agent, archived=archived, compared=MAX_COMPARED
    )


PATH = "/lessons/{agent}/{name}"
SLICE = Slice(
    pages=(
        Page(
            "/lessons",
            "lessons/templates/lessons.html",
            lessons,
            functions={"KINDS": tuple(KINDS), "RULE_GROUPS": RULE_GROUPS, "STATUSES": STATUSES},
        ),
        Page(
            PATH,
            "lessons/templates/lesson.html",
            lesson,
            functions={"TRUST_MEANINGS": TRUST_MEANINGS, "headings": headings},
        ),
    ),
    changes=(
        Change("/lessons/{agent}/permanent", _make_permanent),
        Change(f"{PATH}/approve", _approve),
        Change(f"{PATH}/retire", _retire),
        Change(f"{PATH}/merge", _merge),
        Change(f"{PATH}/rate", _rate),
        Change(f"{PATH}/edit", _edit),
    ),
)
