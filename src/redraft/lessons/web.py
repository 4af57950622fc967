"""The dashboard's pages of lessons: the list of an agent's, and each one."""

from __future__ import annotations

import asyncio
from bisect import insort
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record, to_json
from redraft._validation import nearest
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.folder import REFLECTIONS, Entry, LessonFolder, agents_in, folder_name
from redraft.lessons.impact import USE, Counters, Use
from redraft.lessons.index import modified
from redraft.lessons.lesson import KINDS, STATUSES, Lesson, headings_of, lesson_document
from redraft.lessons.lessons import Lessons, Problem, broken_in, problems_among
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rule, Rules
from redraft.text.characters import visible
from redraft.web.chronicle import Chronicle
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from redraft.lessons.folder import Entry
    from redraft.stores.base import Record, Store
    from redraft.web.project import Project

LATEST = 20
"""How many uses of a lesson are shown one by one."""


@dataclass(slots=True)
class _Counted:
    uses: int = 0
    helped: int = 0
    hurt: int = 0
    latest: list[Use] = field(default_factory=list[Use])

    def add(self, use: Use) -> None:
        self.uses += not use.rated
        self.helped += use.helped is True
        self.hurt += use.helped is False
        if len(self.latest) < LATEST or use.at > self.latest[0].at:
            insort(self.latest, use, key=attrgetter("at"))
            del self.latest[:-LATEST]


class LessonUses:
    """Add up what lessons did in runs and what people said of them; a store would read all uses each time."""

    def __init__(self, store: Store) -> None:
        self._lessons: dict[str, _Counted] = {}
        self.chronicle = Chronicle(store, USE, self._note)

    @classmethod
    def of(cls, project: Project) -> LessonUses:
        """Return those of a project."""
        return cls(project.store)

    def counters(self, lesson: str) -> Counters:
        """Return the counters of a lesson, by its id."""
        found = self._of(lesson)
        return Counters(found.uses, found.helped, found.hurt)

    def latest(self, lesson: str) -> list[Use]:
        """Return the latest uses of a lesson, the last one first."""
        return self._of(lesson).latest[::-1]

    def _of(self, lesson: str) -> _Counted:
        return self._lessons.get(lesson) or _Counted()

    def _note(self, record: Record) -> None:
        use = from_record(Use, record.data)
        self._lessons.setdefault(use.lesson, _Counted()).add(use)


MOST_AGENTS = 50
"""Agents whose files are counted for the list of them."""
MOST_ARCHIVED = 200
"""Archived lessons that are listed: the newest by their names."""
COMPARED = 200
"""Active lessons that are looked through for duplicates; learning keeps no more than 30."""


@dataclass(frozen=True, slots=True)
class AgentFiles:
    """Count the files of an agent: those where lessons are active or wait, and those in the archive."""

    name: str
    lessons: int
    archived: int
    newest: str


@dataclass(frozen=True, slots=True)
class Shelf:
    """Hold an agent's lessons, the newest first, and what a person should look at among them.

    `rules` and `playbooks` are what its lessons left beside themselves. `archived_ids` are all that lie in
    the archive, whether they were read or not.
    """

    agent: str
    lessons: tuple[Lesson, ...]
    archived_ids: frozenset[str]
    problems: tuple[Problem, ...]
    rules: tuple[Rule, ...]
    playbooks: tuple[Playbook, ...]


@dataclass(slots=True)
class LessonFiles:
    """Read the lessons under `path`, the folder of all agents, remembering what each file said.

    What it does takes a moment: it is called in a thread. Raises `StoreError` where a folder can't be read.
    """

    path: Path
    _known: dict[str, tuple[tuple[int, int], Lesson | Problem]] = field(
        default_factory=dict[str, tuple[tuple[int, int], "Lesson | Problem"]]
    )
    _playbooks: dict[str, Playbooks] = field(default_factory=dict[str, Playbooks])

    @classmethod
    def of(cls, project: Project) -> LessonFiles:
        """Return those of a project."""
        return cls(project.memory)

    def agents(self) -> list[str]:
        """Return the folders of the agents, those first whose lessons changed last."""
        # A folder of another name is nobody's; `redraft lessons doctor` tells.
        names = [name for name in agents_in(self.path) if folder_name(name) == name]
        reflections = self.path / REFLECTIONS
        return sorted(names, key=lambda name: (-modified(f"{reflections}/{name}"), name))

    def counted(self, agents: Iterable[str]) -> list[AgentFiles]:
        """Count the files of agents, of no more than 50."""
        found: list[AgentFiles] = []
        for agent in list(agents)[:MOST_AGENTS]:
            entries = list(LessonFolder(self.path, agent).entries())
            days = (str(entry.day) for entry in entries if not entry.archived)
            archived = sum(entry.archived for entry in entries)
            found.append(AgentFiles(agent, len(entries) - archived, archived, max(days, default="")))
        return found

    def shelf(self, agent: str, *, with_archived: bool = False) -> Shelf:
        """Return the lessons of an agent; of the archived ones the newest 200, where they are wanted."""
        folder = LessonFolder(self.path, agent)
        entries = list(folder.entries())
        archived = sorted((one for one in entries if one.archived), key=_stem, reverse=True)
        wanted = [one for one in entries if not one.archived]
        wanted += archived[:MOST_ARCHIVED] if with_archived else []
        lessons: list[Lesson] = []
        problems: list[Problem] = []
        for entry in wanted:
            said = self._read(folder, entry)
            (problems if isinstance(said, Problem) else lessons).append(said)  # pyright: ignore[reportArgumentType] (each to its own)
        archived_ids = frozenset(one.id for one in archived)
        lessons.sort(key=lambda one: (one.id not in archived_ids, one.day, one.id), reverse=True)
        looked_at = [one for one in lessons if one.id not in archived_ids][:COMPARED]
        rules, playbooks = Rules(self.path, agent), self._playbooks_of(agent)
        problems += broken_in(rules, playbooks, agent)
        problems += problems_among(looked_at[::-1])
        known: list[Rule] = []
        with suppress(LessonFileError):  # which is among the problems
            known = [*rules.permanent(), *rules.proposed(), *rules.active(), *rules.due()]
        return Shelf(
            agent,
            tuple(lessons),
            archived_ids,
            tuple(problems),
            tuple(dict.fromkeys(known)),
            tuple(playbooks.active()),
        )

    def _playbooks_of(self, agent: str) -> Playbooks:
        if agent not in self._playbooks:
            self._playbooks[agent] = Playbooks(self.path, agent)
        return self._playbooks[agent]

    def _read(self, folder: LessonFolder, entry: Entry) -> Lesson | Problem:
        mark = (entry.changed_ns, entry.size)
        known = self._known.get(entry.file)
        if known is not None and known[0] == mark:
            return known[1]
        try:
            said = folder.read_entry(entry)
        except StoreError as error:
            said = Problem(entry.id, "broken", str(error))
        self._known[entry.file] = (mark, said)
        return said


def _stem(entry: Entry) -> str:
    return entry.id.partition("/")[2]


MOST = 100


@dataclass(frozen=True, slots=True)
class LessonRow:
    """Hold a lesson as the table has it; `doubles` says that it repeats another one, `other` is which."""

    id: str
    kind: str
    status: str
    why: str
    superseded_by: str
    summary: str
    day: date
    task_type: str
    confidence: float
    counters: Counters
    archived: bool
    doubles: str
    other: str
    whole: Lesson | None = None
    """The lesson itself, where all of it is wanted."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Say which lessons are wanted: of a kind, of a status (each empty for any), archived ones, too."""

    kind: str
    status: str
    archived: bool
    before: str

    @classmethod
    def of(cls, request: PageRequest) -> Filter:
        """Return what the query says; raises `ConfigError` for a kind or status that there is not."""
        query = request.query
        return cls(
            request.one_of("kind", tuple(KINDS)),
            request.one_of("status", STATUSES),
            query.get("archived") == "1",
            query.get("before", ""),
        )

    def admits(self, lesson: Lesson) -> bool:
        """Say whether a lesson is wanted."""
        return self.kind in ("", lesson.kind) and self.status in ("", lesson.status)


@dataclass(frozen=True, slots=True)
class LessonsView:
    """Hold a page of an agent's lessons; without an `agent`, who has any. `older` names the next page."""

    agents: tuple[str, ...]
    wanted: Filter
    agent: str = ""
    counted: tuple[AgentFiles, ...] = ()
    rows: tuple[LessonRow, ...] = ()
    older: str = ""
    archived: int = 0
    broken: tuple[Problem, ...] = ()
    rules: tuple[Rule, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    is_whole: bool = True
    kinds: tuple[str, ...] = tuple(KINDS)
    statuses: tuple[str, ...] = STATUSES
    standings: dict[str, str] = field(
        default_factory=lambda: {
            "permanent": "Permanent",
            "proposed": "Proposed as permanent: a person decides",
            "tactical": "Tactical: at most ten, four weeks each",
        }
    )


async def lessons(request: PageRequest) -> LessonsView:
    """Read the lessons of an agent: the one in the query, else the only one; of several, say who they are."""
    project, wanted = request.project, Filter.of(request)
    agents = await asyncio.to_thread(project.shared(LessonFiles.of).agents)
    agent = request.query.get("agent", "").strip() or (agents[0] if len(agents) == 1 else "")
    if not agent:
        counted = await asyncio.to_thread(project.shared(LessonFiles.of).counted, agents)
        agents, counted = await project.redacted((tuple(agents), tuple(counted)))
        return LessonsView(agents, wanted, counted=counted)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here. {nearest(agent, agents)}")
    await project.shared(LessonUses.of).chronicle.read()
    shelf = await asyncio.to_thread(
        project.shared(LessonFiles.of).shelf, agent, with_archived=wanted.archived
    )
    rows, older = _rows(request, wanted, shelf)
    view = LessonsView(
        tuple(agents),
        wanted,
        agent,
        (),
        rows,
        older,
        len(shelf.archived_ids),
        tuple(one for one in shelf.problems if one.what == "broken"),
        shelf.rules,
        shelf.playbooks,
        project.shared(LessonUses.of).chronicle.is_whole,
    )
    return await project.redacted(view, full=request.full)


def _rows(request: PageRequest, wanted: Filter, shelf: Shelf) -> tuple[tuple[LessonRow, ...], str]:
    """Return a page of lessons, and where the next one begins."""
    found = iter(shelf.lessons)
    if wanted.before and all(one.id != wanted.before for one in found):
        raise NotFoundError(f"There is no lesson {wanted.before!r} here, before which others could be.")
    page = list(islice(filter(wanted.admits, found), MOST + 1))
    doubles = {one.id: one for one in shelf.problems if one.what == "duplicate"}
    rows = tuple(
        LessonRow(
            one.id,
            one.kind,
            one.status,
            one.why,
            one.superseded_by,
            one.summary,
            one.day,
            one.task_type,
            one.confidence,
            request.project.shared(LessonUses.of).counters(one.id),
            one.id in shelf.archived_ids,
            doubles[one.id].why if one.id in doubles else "",
            doubles[one.id].other if one.id in doubles else "",
            one if request.full else None,
        )
        for one in page[:MOST]
    )
    return rows, page[MOST - 1].id if len(page) > MOST else ""


def _lessons_document(view: LessonsView) -> dict[str, Any]:
    if not view.agent:
        return {"agents": [to_json(one) for one in view.counted]}
    rows = [
        {
            **(lesson_document(row.whole) if row.whole else {}),
            "counters": to_json(row.counters),
            "archived": row.archived,
            "doubles": row.doubles or None,
        }
        for row in view.rows
    ]
    return {
        "agent": view.agent,
        "lessons": rows,
        "older": view.older or None,
        "archived": view.archived,
        "broken": to_json(view.broken),
        "rules": to_json(view.rules),
        "playbooks": to_json(view.playbooks),
        "is_whole": view.is_whole,
    }


async def known_agent(project: Project, agent: str) -> str:
    """Return an agent that has lessons; raises `NotFoundError` for any other."""
    agents = await asyncio.to_thread(project.shared(LessonFiles.of).agents)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here.")
    return agent


async def _make_permanent(wanted: Form) -> str:
    agent = await known_agent(wanted.project, wanted.path["agent"])
    rules = Rules(wanted.project.shared(LessonFiles.of).path, agent)
    try:
        rule = await asyncio.to_thread(rules.make_permanent, wanted.text("rule"))
    except LessonFileError as error:  # no rule like that, or none can be read: not the store's fault
        raise ConfigError(str(error)) from error
    return f"The rule is permanent: {rule.text}"


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


async def lesson(request: PageRequest) -> LessonView:
    """Read a lesson, as its file has it."""
    project, path = request.project, request.path
    agent, entry = await _entry(project, path)
    uses = project.shared(LessonUses.of)
    await uses.chronicle.read()
    latest = tuple(uses.latest(entry.id))
    shelf = await asyncio.to_thread(project.shared(LessonFiles.of).shelf, agent)
    folder, text = LessonFolder(project.shared(LessonFiles.of).path, agent), ""
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
        await project.stored_runs(runs),
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
    shown = await project.redacted(view, full=request.full)
    is_shown = shown.said == said and all(visible(one.text) == one.text for one in said)
    return replace(shown, mark=digest(text), is_editable=is_shown and found is not None)


async def _entry(project: Project, path: Mapping[str, str]) -> tuple[str, Entry]:
    """Return the agent and the file that are meant."""
    agent = await known_agent(project, path["agent"])
    folder = LessonFolder(project.shared(LessonFiles.of).path, agent)
    try:
        return agent, await asyncio.to_thread(folder.entry_of, f"{agent}/{path['name']}")
    except LessonFileError as error:
        raise NotFoundError(str(error)) from error


def _said(found: Lesson) -> tuple[Said, ...]:
    written = to_json(found.content)
    return tuple(
        Said(name, heading, written[name]) for name, heading in headings_of(type(found.content)).items()
    )


def _lesson_document(view: LessonView) -> dict[str, Any]:
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


async def _with(wanted: Form, use: Callable[[Lessons, str], Awaitable[str]]) -> str:
    """Return what is made of the lesson that is meant, by the lessons of its agent."""
    project = wanted.project
    agent, entry = await _entry(project, wanted.path)
    lessons = Lessons(project.shared(LessonFiles.of).path, agent=agent, store=project.store, auto=False)
    try:
        return await use(lessons, entry.id)
    except LessonFileError as error:  # the file is broken: not the store's fault
        raise ConfigError(str(error)) from error
    finally:
        await lessons.aclose()


async def _approve(wanted: Form) -> str:
    async def approve(lessons: Lessons, lesson_id: str) -> str:
        await lessons.approve(lesson_id, wanted.text("why", "").strip())
        return "The lesson is active: it is put before its agent where it fits."

    return await _with(wanted, approve)


async def _retire(wanted: Form) -> str:
    async def retire(lessons: Lessons, lesson_id: str) -> str:
        await lessons.retire(lesson_id, wanted.text("why").strip())
        return "The lesson is retired: it is put before nobody any more, and stays among the files."

    return await _with(wanted, retire)


async def _merge(wanted: Form) -> str:
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


async def _rate(wanted: Form) -> str:
    how = wanted.text("how")
    if how not in ("helped", "hurt"):
        raise ConfigError(f"how must be 'helped' or 'hurt', got {how!r}.")

    async def rate(lessons: Lessons, lesson_id: str) -> str:
        await lessons.rate(lesson_id, how == "helped")
        return f"Counted: it {how}."

    return await _with(wanted, rate)


async def _edit(wanted: Form) -> str:
    async def edit(lessons: Lessons, lesson_id: str) -> str:
        before = await lessons.get(lesson_id)
        agent, entry = await _entry(wanted.project, wanted.path)
        folder = LessonFolder(wanted.project.shared(LessonFiles.of).path, agent)
        if digest(await asyncio.to_thread(folder.text_of, entry)) != wanted.text("mark"):
            raise ConfigError("Nothing was saved: the lesson was changed since this page was made.")
        form = type(before.content)
        texts = {name: wanted.text(name).replace("\r\n", "\n") for name in headings_of(form)}
        after = await lessons.edit(lesson_id, form(**texts))
        return "Nothing was changed." if after == before else "The lesson says what you wrote."

    return await _with(wanted, edit)


async def _warm_up(project: Project) -> None:
    uses = project.shared(LessonUses.of)
    while not uses.chronicle.is_whole:
        await uses.chronicle.read()
        await asyncio.sleep(0.1)


PATH = "/lessons/{agent}/{name}"
SLICE = Slice(
    (
        Page("/lessons", "lessons/templates/lessons.html", lessons, _lessons_document),
        Page(PATH, "lessons/templates/lesson.html", lesson, _lesson_document),
    ),
    (
        Change("/lessons/{agent}/permanent", _make_permanent),
        Change(f"{PATH}/approve", _approve),
        Change(f"{PATH}/retire", _retire),
        Change(f"{PATH}/merge", _merge),
        Change(f"{PATH}/rate", _rate),
        Change(f"{PATH}/edit", _edit),
    ),
    warm_up=_warm_up,
)
