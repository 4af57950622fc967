"""The dashboard's pages of lessons: those of an agent, each one, and what a person makes of them."""

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
from redraft.lessons.folder import REFLECTIONS, Entry, LessonFolder, agents_in, folder_name, modified_ns
from redraft.lessons.impact import USE, Counters, Use
from redraft.lessons.lesson import KINDS, STATUSES, Lesson, headings_of, lesson_document
from redraft.lessons.lessons import Lessons, Problem, broken_in, problems_among
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rule, Rules
from redraft.text.characters import visible
from redraft.web.feed import Feed
from redraft.web.page import Change, Form, NotFoundError, Page, PageRequest, Slice
from redraft.web.rendering import digest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from redraft.stores.base import Record, Store
    from redraft.web.project import Project

PAGE_SIZE = 100
LATEST_USES = 20
"""Uses of a lesson that are listed one by one."""
MAX_AGENTS = 50
"""Agents whose lessons are counted in the list of agents."""
MAX_ARCHIVED = 200
"""Archived lessons that are listed: the newest by their names."""
MAX_COMPARED = 200
"""Active lessons that are checked for duplicates; an agent that learns keeps no more than 30."""
RULE_GROUPS = {
    "permanent": "Permanent",
    "proposed": "Proposed as permanent: for you to decide",
    "tactical": "Tactical: at most ten, four weeks each",
}


# --- the lessons of an agent ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """Say which lessons to list: of a kind, of a status (each empty for any), with archived ones or not.

    `before` is the id of the last lesson on the previous page.
    """

    kind: str
    status: str
    archived: bool
    before: str

    @classmethod
    def of(cls, request: PageRequest) -> Filter:
        """Return the filter of a query; raise `ConfigError` for an unknown kind or status."""
        query = request.query
        return cls(
            request.one_of("kind", tuple(KINDS)),
            request.one_of("status", STATUSES),
            query.get("archived") == "1",
            query.get("before", ""),
        )

    def admits(self, lesson: Lesson) -> bool:
        """Say whether to list a lesson."""
        return self.kind in ("", lesson.kind) and self.status in ("", lesson.status)


@dataclass(frozen=True, slots=True)
class LessonRow:
    """Hold a lesson as the table shows it; `duplicate` says that it repeats the lesson `other`.

    The `lesson` itself, with all its texts, is there for data only.
    """

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
    duplicate: str
    other: str
    lesson: Lesson | None


@dataclass(frozen=True, slots=True)
class LessonsView:
    """Hold one page of an agent's lessons; `older` is the id of the last one if there is another page.

    Without an `agent`, `counted` lists the agents to choose from.
    """

    agents: tuple[str, ...]
    filter: Filter
    agent: str = ""
    counted: tuple[AgentCount, ...] = ()
    rows: tuple[LessonRow, ...] = ()
    older: str = ""
    archived: int = 0
    broken: tuple[Problem, ...] = ()
    rules: tuple[Rule, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    is_complete: bool = True
    """Whether all uses have been counted."""
    kinds: tuple[str, ...] = tuple(KINDS)
    statuses: tuple[str, ...] = STATUSES
    rule_groups: tuple[tuple[str, str], ...] = tuple(RULE_GROUPS.items())


async def lessons(request: PageRequest) -> LessonsView:
    """Read the lessons of the agent in the query, or of the only agent; of several, list the agents."""
    project, chosen = request.project, Filter.of(request)
    reader, uses = _reader(project), _uses(project)
    agents = await asyncio.to_thread(reader.agents)
    agent = request.query.get("agent", "").strip() or (agents[0] if len(agents) == 1 else "")
    if not agent:
        counted = await asyncio.to_thread(reader.counted, agents)
        agents, counted = await project.redacted((tuple(agents), tuple(counted)))
        return LessonsView(agents, chosen, counted=counted)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here; {nearest(agent, agents)}")
    await uses.feed.read()
    found = await asyncio.to_thread(reader.read, agent, with_archived=chosen.archived)
    rows, older = _rows(request, chosen, found)
    view = LessonsView(
        tuple(agents),
        chosen,
        agent,
        (),
        rows,
        older,
        len(found.archived_ids),
        tuple(one for one in found.problems if one.what == "broken"),
        found.rules,
        found.playbooks,
        uses.feed.is_complete,
    )
    return await project.redacted(view, full=request.full)


def _rows(request: PageRequest, chosen: Filter, found: AgentLessons) -> tuple[tuple[LessonRow, ...], str]:
    """Return one page of lessons, and after which one the next page begins."""
    lessons = iter(found.lessons)
    if chosen.before and all(one.id != chosen.before for one in lessons):
        raise NotFoundError(f"There is no lesson {chosen.before!r} here, so none before it.")
    page = list(islice(filter(chosen.admits, lessons), PAGE_SIZE + 1))
    uses = _uses(request.project)
    rows: list[LessonRow] = []
    for one in page[:PAGE_SIZE]:
        duplicate = found.duplicate_of(one.id)
        rows.append(
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
                uses.counters(one.id),
                one.id in found.archived_ids,
                duplicate.why if duplicate else "",
                duplicate.other if duplicate else "",
                one if request.full else None,
            )
        )
    return tuple(rows), page[PAGE_SIZE - 1].id if len(page) > PAGE_SIZE else ""


def _lessons_document(view: LessonsView) -> dict[str, Any]:
    if not view.agent:
        return {"agents": [to_json(one) for one in view.counted]}
    rows = [
        {
            **(lesson_document(row.lesson) if row.lesson else {}),
            "counters": to_json(row.counters),
            "archived": row.archived,
            "duplicate": row.duplicate or None,
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
        "is_complete": view.is_complete,
    }


# --- one lesson -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Part:
    """Hold one part of a lesson: the name of its field, its heading, and its text."""

    name: str
    heading: str
    text: str


@dataclass(frozen=True, slots=True)
class LessonView:
    """Hold a lesson with the rules and playbooks that came with it, or the `problem` of a broken file.

    `duplicate` says that it repeats the lesson `other`. `stored` are those of its runs that have a page.
    `digest` tells this state of its file from any other. `is_editable` says that all of its text can be
    shown, so that nothing is lost when that is written back.
    """

    id: str
    file: str
    archived: bool
    counters: Counters
    latest: tuple[Use, ...]
    stored: frozenset[str]
    is_complete: bool
    lesson: Lesson | None = None
    parts: tuple[Part, ...] = ()
    duplicate: str = ""
    other: str = ""
    rules: tuple[Rule, ...] = ()
    playbooks: tuple[Playbook, ...] = ()
    digest: str = ""
    is_editable: bool = False
    problem: str = ""
    text: str = ""


async def lesson(request: PageRequest) -> LessonView:
    """Read a lesson as its file has it now."""
    project, uses = request.project, _uses(request.project)
    agent, entry = await _entry(project, request.path["agent"], request.path["name"])
    await uses.feed.read()
    latest = tuple(uses.latest(entry.id))
    among = await asyncio.to_thread(_reader(project).read, agent)
    folder, text = LessonFolder(project.memory, agent), ""
    found, problem = None, ""
    try:
        text = await asyncio.to_thread(folder.text_of, entry)
        found = await asyncio.to_thread(folder.read_entry, entry)
    except StoreError as error:
        problem = str(error)
    duplicate = among.duplicate_of(entry.id)
    runs = {use.run_id for use in latest} | ({found.source} if found else set[str]())
    parts = () if found is None else _parts(found)
    view = LessonView(
        entry.id,
        str(entry.path),
        entry.id in among.archived_ids,
        uses.counters(entry.id),
        latest,
        await project.stored_runs(runs),
        uses.feed.is_complete,
        found,
        parts,
        duplicate.why if duplicate else "",
        duplicate.other if duplicate else "",
        tuple(rule for rule in among.rules if rule.source == entry.id),
        tuple(one for one in among.playbooks if one.lesson == entry.id),
        problem=problem,
        text=text if found is None else "",
    )
    shown = await project.redacted(view, full=request.full)
    is_shown = shown.parts == parts and all(visible(one.text) == one.text for one in parts)
    return replace(shown, digest=digest(text), is_editable=is_shown and found is not None)


async def _entry(project: Project, agent: str, name: str) -> tuple[str, Entry]:
    """Return the agent and the file of a lesson; raise `NotFoundError` if there is no such lesson."""
    agents = await asyncio.to_thread(_reader(project).agents)
    if agent not in agents:
        raise NotFoundError(f"The agent {agent!r} has no lessons here.")
    try:
        return agent, await asyncio.to_thread(LessonFolder(project.memory, agent).entry_of, f"{agent}/{name}")
    except LessonFileError as error:
        raise NotFoundError(str(error)) from error


def _parts(lesson: Lesson) -> tuple[Part, ...]:
    texts = to_json(lesson.content)
    headings = headings_of(type(lesson.content))
    return tuple(Part(name, heading, texts[name]) for name, heading in headings.items())


def _lesson_document(view: LessonView) -> dict[str, Any]:
    return {
        **(lesson_document(view.lesson) if view.lesson else {"id": view.id, "problem": view.problem}),
        "file": view.file,
        "archived": view.archived,
        "counters": to_json(view.counters),
        "latest_uses": to_json(view.latest),
        "duplicate": view.duplicate or None,
        "rules": to_json(view.rules),
        "playbooks": to_json(view.playbooks),
    }


# --- what a person changes ------------------------------------------------------------------------------


async def _change(form: Form, make: Callable[[Lessons, str], Awaitable[str]]) -> str:
    """Make a change of the lesson in the path, and return what `make` says of it."""
    project = form.project
    agent, entry = await _entry(project, form.path["agent"], form.path["name"])
    lessons = Lessons(project.memory, agent=agent, store=project.store, auto=False)
    try:
        return await make(lessons, entry.id)
    except LessonFileError as error:  # the file is broken, not the store
        raise ConfigError(str(error)) from error
    finally:
        await lessons.aclose()


async def _approve(form: Form) -> str:
    async def approve(lessons: Lessons, lesson_id: str) -> str:
        await lessons.approve(lesson_id, form.text("why", "").strip())
        return "The lesson is active: runs that it is relevant to are given it."

    return await _change(form, approve)


async def _retire(form: Form) -> str:
    async def retire(lessons: Lessons, lesson_id: str) -> str:
        await lessons.retire(lesson_id, form.text("why").strip())
        return "The lesson is retired: no run is given it any more. Its file stays."

    return await _change(form, retire)


async def _merge(form: Form) -> str:
    agent = form.path["agent"]
    _, other = await _entry(form.project, agent, form.text("other").strip().removeprefix(f"{agent}/"))
    keep = _choice(form, "keep", "this", "other")

    async def merge(lessons: Lessons, lesson_id: str) -> str:
        kept, merged = (lesson_id, other.id) if keep == "this" else (other.id, lesson_id)
        await lessons.merge([kept, merged], keep=kept)
        return f"Merged: {kept} supersedes {merged}."

    return await _change(form, merge)


async def _rate(form: Form) -> str:
    how = _choice(form, "how", "helped", "hurt")

    async def rate(lessons: Lessons, lesson_id: str) -> str:
        await lessons.rate(lesson_id, how == "helped")
        return f"Rated: it {how}."

    return await _change(form, rate)


async def _edit(form: Form) -> str:
    async def edit(lessons: Lessons, lesson_id: str) -> str:
        before = await lessons.get(lesson_id)
        agent, entry = await _entry(form.project, form.path["agent"], form.path["name"])
        text = await asyncio.to_thread(LessonFolder(form.project.memory, agent).text_of, entry)
        if digest(text) != form.text("digest"):
            raise ConfigError(
                "Not saved: the lesson has changed since this page was loaded. Reload the page."
            )
        content = type(before.content)
        texts = {name: form.text(name).replace("\r\n", "\n") for name in headings_of(content)}
        after = await lessons.edit(lesson_id, content(**texts))
        return "There was nothing to save." if after == before else "Saved."

    return await _change(form, edit)


async def _make_permanent(form: Form) -> str:
    agent = form.path["agent"]
    if agent not in await asyncio.to_thread(_reader(form.project).agents):
        raise NotFoundError(f"The agent {agent!r} has no lessons here.")
    try:
        rule = await asyncio.to_thread(Rules(form.project.memory, agent).make_permanent, form.text("rule"))
    except LessonFileError as error:  # there is no such rule, or the file is broken
        raise ConfigError(str(error)) from error
    return f"This rule is permanent: {rule.text}"


def _choice(form: Form, name: str, *choices: str) -> str:
    chosen = form.text(name)
    if chosen not in choices:
        raise ConfigError(f"{name} must be {' or '.join(map(repr, choices))}, got {chosen!r}.")
    return chosen


# --- reading files and uses -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AgentCount:
    """Count an agent's lessons: those outside the archive, of which `newest` is the last day, and inside."""

    name: str
    lessons: int
    archived: int
    newest: str


@dataclass(frozen=True, slots=True)
class AgentLessons:
    """Hold an agent's lessons, the newest first, with its rules and playbooks, and what is wrong with them.

    `archived_ids` are all lessons in the archive, whether they were read or not.
    """

    lessons: tuple[Lesson, ...]
    archived_ids: frozenset[str]
    problems: tuple[Problem, ...]
    rules: tuple[Rule, ...]
    playbooks: tuple[Playbook, ...]

    def duplicate_of(self, lesson_id: str) -> Problem | None:
        """Return which earlier lesson a lesson repeats, if any."""
        return next((one for one in self.problems if (one.id, one.what) == (lesson_id, "duplicate")), None)


@dataclass(slots=True)
class LessonReader:
    """Read the lessons of all agents under `path`; a file is parsed again only after a change.

    Its methods block for a moment: call them in a thread. They raise `StoreError` if a folder can't be read.
    """

    path: Path
    _parsed: dict[str, tuple[tuple[int, int], Lesson | Problem]] = field(
        default_factory=dict[str, tuple[tuple[int, int], "Lesson | Problem"]]
    )
    _playbooks: dict[str, Playbooks] = field(default_factory=dict[str, Playbooks])

    @classmethod
    def of(cls, project: Project) -> LessonReader:
        """Return a reader of a project's lessons."""
        return cls(project.memory)

    def agents(self) -> list[str]:
        """Return the folders of the agents, most recently changed first."""
        # A folder of another name belongs to no agent: `redraft lessons doctor` reports it.
        names = [name for name in agents_in(self.path) if folder_name(name) == name]
        reflections = self.path / REFLECTIONS
        return sorted(names, key=lambda name: (-modified_ns(f"{reflections}/{name}"), name))

    def counted(self, agents: Iterable[str]) -> list[AgentCount]:
        """Count the lessons of at most 50 agents."""
        found: list[AgentCount] = []
        for agent in islice(agents, MAX_AGENTS):
            entries = list(LessonFolder(self.path, agent).entries())
            days = [str(entry.day) for entry in entries if not entry.archived]
            archived = len(entries) - len(days)
            found.append(AgentCount(agent, len(days), archived, max(days, default="")))
        return found

    def read(self, agent: str, *, with_archived: bool = False) -> AgentLessons:
        """Return the lessons of an agent, on request with the newest 200 of its archive."""
        folder = LessonFolder(self.path, agent)
        entries = list(folder.entries())
        archived = sorted((one for one in entries if one.archived), key=_stem, reverse=True)
        listed = [one for one in entries if not one.archived]
        listed += archived[:MAX_ARCHIVED] if with_archived else []
        parsed = [self._parse(folder, entry) for entry in listed]
        problems = [one for one in parsed if isinstance(one, Problem)]
        archived_ids = frozenset(one.id for one in archived)
        lessons = sorted(
            (one for one in parsed if not isinstance(one, Problem)),
            key=lambda one: (one.id not in archived_ids, one.day, one.id),
            reverse=True,
        )
        compared = [one for one in lessons if one.id not in archived_ids][:MAX_COMPARED]
        rules = Rules(self.path, agent)
        playbooks = self._playbooks.setdefault(agent, Playbooks(self.path, agent))
        problems += broken_in(rules, playbooks, agent)
        problems += problems_among(compared[::-1])
        known: list[Rule] = []
        with suppress(LessonFileError):  # it is among the problems
            known = [*rules.permanent(), *rules.proposed(), *rules.active(), *rules.due()]
        return AgentLessons(
            tuple(lessons),
            archived_ids,
            tuple(problems),
            tuple(dict.fromkeys(known)),
            tuple(playbooks.active()),
        )

    def _parse(self, folder: LessonFolder, entry: Entry) -> Lesson | Problem:
        state = (entry.changed_ns, entry.size)
        known = self._parsed.get(entry.file)
        if known is not None and known[0] == state:
            return known[1]
        try:
            found = folder.read_entry(entry)
        except StoreError as error:
            found = Problem(entry.id, "broken", str(error))
        self._parsed[entry.file] = (state, found)
        return found


def _stem(entry: Entry) -> str:
    return entry.id.partition("/")[2]


@dataclass(slots=True)
class _LessonUses:
    """Count the uses of one lesson, and hold the latest, the earliest first."""

    uses: int = 0
    helped: int = 0
    hurt: int = 0
    latest: list[Use] = field(default_factory=list[Use])

    def add(self, use: Use) -> None:
        self.uses += not use.rated
        self.helped += use.helped is True
        self.hurt += use.helped is False
        if len(self.latest) < LATEST_USES or use.at > self.latest[0].at:
            insort(self.latest, use, key=attrgetter("at"))
            del self.latest[:-LATEST_USES]


class UseCounts:
    """Count what lessons did in runs, as it happens: a store would have to read all uses each time."""

    def __init__(self, store: Store) -> None:
        self._lessons: dict[str, _LessonUses] = {}
        self.feed = Feed(store, USE, self._add)

    @classmethod
    def of(cls, project: Project) -> UseCounts:
        """Return the counts of a project."""
        return cls(project.store)

    def counters(self, lesson_id: str) -> Counters:
        """Return the counters of a lesson."""
        found = self._lessons.get(lesson_id) or _LessonUses()
        return Counters(found.uses, found.helped, found.hurt)

    def latest(self, lesson_id: str) -> list[Use]:
        """Return the latest uses of a lesson, newest first."""
        found = self._lessons.get(lesson_id) or _LessonUses()
        return found.latest[::-1]

    def _add(self, record: Record) -> None:
        use = from_record(Use, record.data)
        self._lessons.setdefault(use.lesson, _LessonUses()).add(use)


def _reader(project: Project) -> LessonReader:
    return project.shared(LessonReader.of)


def _uses(project: Project) -> UseCounts:
    return project.shared(UseCounts.of)


async def _warm_up(project: Project) -> None:
    await _uses(project).feed.read_all()


PATH = "/lessons/{agent}/{name}"
SLICE = Slice(
    pages=(
        Page("/lessons", "lessons/templates/lessons.html", lessons, _lessons_document),
        Page(PATH, "lessons/templates/lesson.html", lesson, _lesson_document),
    ),
    changes=(
        Change("/lessons/{agent}/permanent", _make_permanent),
        Change(f"{PATH}/approve", _approve),
        Change(f"{PATH}/retire", _retire),
        Change(f"{PATH}/merge", _merge),
        Change(f"{PATH}/rate", _rate),
        Change(f"{PATH}/edit", _edit),
    ),
    warm_up=_warm_up,
)
