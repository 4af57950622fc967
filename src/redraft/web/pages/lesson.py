"""Lesson: what one lesson says, where it comes from, whether it helps, and what a person makes of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.folder import Entry, LessonFolder
from redraft.lessons.impact import Counters, Use
from redraft.lessons.lesson import Lesson, headings_of, lesson_document
from redraft.lessons.lessons import Lessons
from redraft.lessons.playbooks import Playbook
from redraft.lessons.rules import Rule
from redraft.loop.record import RUN
from redraft.text.characters import visible
from redraft.web.change import Change, Wanted
from redraft.web.page import Asked, NotFoundError, Page
from redraft.web.pages.lessons import known_agent
from redraft.web.rendering import digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from redraft.web.project import Project


@dataclass(frozen=True, slots=True)
class Said:
    """Hold one part of a lesson: the name of its field, its heading, and what it says."""

    name: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class LessonView:
    """Hold a lesson with what came with it, or the `problem` of its file where that is broken.

    `doubles` says that it repeats another one, `other` is which. `kept` are those of its runs that have a
    page. `mark` tells its file from any other. `is_editable` says that all it says can be shown, so that
    nothing is lost when that is written back.
    """

    id: str
    file: str
    archived: bool
    counters: Counters
    latest: tuple[Use, ...]
    kept: frozenset[str]
    is_whole: bool
    lesson: Lesson | None = None
    said: tuple[Said, ...] = ()
    doubles: str = ""
    other: str = ""
    rules: tuple[Rule, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    mark: str = ""
    is_editable: bool = False
    problem: str = ""
    text: str = ""


async def lesson(asked: Asked) -> LessonView:
    """Read a lesson, as its file has it."""
    project, path = asked.project, asked.path
    agent, entry = await _entry(project, path)
    uses = project.lesson_uses
    await uses.chronicle.read()
    latest = tuple(uses.latest(entry.id))
    shelf = await asyncio.to_thread(project.lessons.shelf, agent)
    folder, text = LessonFolder(project.lessons.path, agent), ""
    found, problem = None, ""
    try:
        text = await asyncio.to_thread(folder.text_of, entry)
        found = await asyncio.to_thread(folder.read_entry, entry)
    except StoreError as error:
        problem = str(error)
    double = next((one for one in shelf.problems if (one.id, one.what) == (entry.id, "duplicate")), None)
    runs = {use.run_id for use in latest} | ({found.source} if found else set[str]())
    said = () if found is None else _said(found)
    view = LessonView(
        entry.id,
        str(entry.path),
        entry.id in shelf.archived_ids,
        uses.counters(entry.id),
        latest,
        frozenset([run_id for run_id in runs if run_id and await project.store.get(RUN, run_id)]),
        uses.chronicle.is_whole,
        found,
        said,
        "" if double is None else double.why,
        "" if double is None else double.other,
        tuple(rule for rule in shelf.rules if rule.source == entry.id),
        tuple(one for one in shelf.playbooks if one.lesson == entry.id),
        problem=problem,
        text=text if found is None else "",
    )
    shown = await project.shown(view, whole=asked.whole)
    is_shown = shown.said == said and all(visible(one.text) == one.text for one in said)
    return replace(shown, mark=digest(text), is_editable=is_shown and found is not None)


async def _entry(project: Project, path: Mapping[str, str]) -> tuple[str, Entry]:
    """Return the agent and the file that are meant."""
    agent = await known_agent(project, path["agent"])
    folder = LessonFolder(project.lessons.path, agent)
    try:
        return agent, await asyncio.to_thread(folder.entry_of, f"{agent}/{path['name']}")
    except LessonFileError as error:
        raise NotFoundError(str(error)) from error


def _said(found: Lesson) -> tuple[Said, ...]:
    written = to_json(found.content)
    return tuple(
        Said(name, heading, written[name]) for name, heading in headings_of(type(found.content)).items()
    )


def _document(view: LessonView) -> dict[str, Any]:
    return {
        **(lesson_document(view.lesson) if view.lesson else {"id": view.id, "problem": view.problem}),
        "file": view.file,
        "archived": view.archived,
        "counters": to_json(view.counters),
        "latest_uses": to_json(view.latest),
        "doubles": view.doubles or None,
        "rules": to_json(view.rules),
        "playbooks": to_json(view.playbooks),
    }


async def _with(wanted: Wanted, use: Callable[[Lessons, str], Awaitable[str]]) -> str:
    """Return what is made of the lesson that is meant, by the lessons of its agent."""
    project = wanted.project
    agent, entry = await _entry(project, wanted.path)
    lessons = Lessons(project.lessons.path, agent=agent, store=project.store, auto=False)
    try:
        return await use(lessons, entry.id)
    except LessonFileError as error:  # the file is broken: not the store's fault
        raise ConfigError(str(error)) from error
    finally:
        await lessons.aclose()


async def _approve(wanted: Wanted) -> str:
    async def approve(lessons: Lessons, lesson_id: str) -> str:
        await lessons.approve(lesson_id, wanted.text("why", "").strip())
        return "The lesson is active: it is put before its agent where it fits."

    return await _with(wanted, approve)


async def _retire(wanted: Wanted) -> str:
    async def retire(lessons: Lessons, lesson_id: str) -> str:
        await lessons.retire(lesson_id, wanted.text("why").strip())
        return "The lesson is retired: it is put before nobody any more, and stays among the files."

    return await _with(wanted, retire)


async def _merge(wanted: Wanted) -> str:
    agent = wanted.path["agent"]
    name = wanted.text("other").strip().removeprefix(f"{agent}/")
    _, other = await _entry(wanted.project, {"agent": agent, "name": name})
    keep = wanted.text("keep")
    if keep not in ("this", "other"):
        raise ConfigError(f"keep must be 'this' or 'other', got {keep!r}.")

    async def merge(lessons: Lessons, lesson_id: str) -> str:
        stays, goes = (lesson_id, other.id) if keep == "this" else (other.id, lesson_id)
        await lessons.merge([stays, goes], keep=stays)
        return f"Merged: {stays} stays, and supersedes {goes}."

    return await _with(wanted, merge)


async def _rate(wanted: Wanted) -> str:
    how = wanted.text("how")
    if how not in ("helped", "hurt"):
        raise ConfigError(f"how must be 'helped' or 'hurt', got {how!r}.")

    async def rate(lessons: Lessons, lesson_id: str) -> str:
        await lessons.rate(lesson_id, how == "helped")
        return f"Counted: it {how}."

    return await _with(wanted, rate)


async def _edit(wanted: Wanted) -> str:
    async def edit(lessons: Lessons, lesson_id: str) -> str:
        before = await lessons.get(lesson_id)
        agent, entry = await _entry(wanted.project, wanted.path)
        folder = LessonFolder(wanted.project.lessons.path, agent)
        if digest(await asyncio.to_thread(folder.text_of, entry)) != wanted.text("mark"):
            raise ConfigError("Nothing was saved: the lesson was changed since this page was made.")
        form = type(before.content)
        texts = {name: wanted.text(name).replace("\r\n", "\n") for name in headings_of(form)}
        after = await lessons.edit(lesson_id, form(**texts))
        return "Nothing was changed." if after == before else "The lesson says what you wrote."

    return await _with(wanted, edit)


PATH = "/lessons/{agent}/{name}"
PAGE = Page(PATH, "lesson.html", lesson, _document)
CHANGES = (
    Change(f"{PATH}/approve", _approve),
    Change(f"{PATH}/retire", _retire),
    Change(f"{PATH}/merge", _merge),
    Change(f"{PATH}/rate", _rate),
    Change(f"{PATH}/edit", _edit),
)
