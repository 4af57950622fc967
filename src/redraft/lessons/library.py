"""LessonLibrary: the lessons of all agents, for commands, pages and programs."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from redraft._hints import keyword_hints
from redraft._validation import check_choice, nearest, only
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import INDEX, REFLECTIONS, RULES, LessonFiles, documents_of
from redraft.lessons.due import DueReflection, all_due, resolve_due
from redraft.lessons.exchange import (
    KNOWN_FILES,
    MAX_TOKENS,
    VOUCHED,
    Export,
    Form,
    ImportItem,
    add_imported,
    compared,
    copied,
    export,
    read_items,
)
from redraft.lessons.facts import runs_behind
from redraft.lessons.failure_history import labels_of, proposals_of_runs, runs_of
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.impact import Counters, Impact
from redraft.lessons.index import LessonIndex, LessonMatches, Refreshed
from redraft.lessons.lesson import KINDS, STATUSES, Lesson
from redraft.lessons.lessons import Lessons
from redraft.lessons.overview import Problem
from redraft.lessons.playbooks import Playbooks
from redraft.lessons.ranking import LessonQuery
from redraft.lessons.rules import Rules
from redraft.memory.effects import payoff_of
from redraft.memory.safety import Cleaner
from redraft.models.embed import embedder_of
from redraft.proposals.drafts import drafted_by
from redraft.proposals.proposals import PROPOSED, from_data, to_data
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Record, intact, listed
from redraft.stores.location import project_store
from redraft.stores.run_index import RUN, run_index
from redraft.types import PlainTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from redraft.lessons.documents import Entry
    from redraft.lessons.index import LessonMatch
    from redraft.lessons.rules import Rule
    from redraft.memory.effects import History, Payoff
    from redraft.proposals.proposals import Proposal, RecurringFailure
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import QualityCriterion

EMBEDDED_PER_STEP = 256
MOST_SUGGESTED = 1_000
"""The newest lessons that are suggested for a reference to no lesson."""


@dataclass(frozen=True, slots=True)
class LessonDetails:
    """A lesson with its counters and its file, relative to the working directory, or record.

    `text` is its Markdown, and `has_run` says whether the run that taught it is stored, if that was
    looked up.
    """

    lesson: Lesson
    file: str
    archived: bool = False
    counters: Counters = field(default_factory=Counters)
    text: str = ""
    has_run: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Lessons, newest first; `archived` counts those in the archive."""

    lessons: list[LessonDetails]
    broken: int = 0
    """The number of files that can't be parsed, whose lessons are not in use."""
    archived: int = 0
    problems: tuple[Problem, ...] = ()
    """What is wrong with these files."""


@dataclass(frozen=True, slots=True)
class AgentCount:
    """How many lessons an agent has, those in the archive apart; `newest` is the last day of the others."""

    name: str
    lessons: int
    archived: int
    newest: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild of the index found, and how many lessons were embedded, by which embedder."""

    found: Refreshed
    embedded: int
    embedder: str


@dataclass(frozen=True, slots=True)
class ErasedLessons:
    """What was erased, or would be: the ids of lessons and playbooks, and how many rules."""

    lessons: tuple[str, ...] = ()
    playbooks: tuple[str, ...] = ()
    rules: int = 0


@keyword_hints()
class LessonLibrary:
    """The lessons of all agents, or of one `agent`.

    `path` is their folder; by default they are where the project keeps its lessons (see `Lessons`). `store`
    has counters and due reflections: True is the project's, False none. Methods raise `ConfigError` if the
    `agent` has no lessons.
    """

    def __init__(
        self, path: str | Path | None = None, *, agent: str | None = None, store: bool | Store = True
    ) -> None:
        self.agent = agent
        self._path = path
        self._store = (project_store() if store else None) if isinstance(store, bool) else store
        self.documents = documents_of(path, self._store)
        self._lessons: dict[str, Lessons] = {}

    def folders(self) -> list[LessonFolder]:
        """Return the agents' folders."""
        names = list(self.documents.agents())
        if self.agent is None:
            # A folder whose name no agent could have is reported by `problems`.
            return [LessonFolder(self.documents, name) for name in names if folder_name(name) == name]
        if folder_name(self.agent) not in names:
            known = f"; {nearest(self.agent, names)}" if names else "."
            raise ConfigError(f"The agent {self.agent!r} has no lessons in {self.place}{known}")
        return [LessonFolder(self.documents, self.agent)]

    @property
    def place(self) -> str:
        """Where the lessons are, for people: a folder in quotes, or a database."""
        return repr(str(self.documents)) if isinstance(self.documents, LessonFiles) else str(self.documents)

    def agents(self) -> list[str]:
        """Return the names of the agents' folders, most recently changed first."""
        changed = {name: at for name, at in self.documents.agents().items() if folder_name(name) == name}
        return sorted(changed, key=lambda name: (-changed[name], name))

    def lessons_of(self, lesson_id: str) -> Lessons:
        """Return the lessons of an agent, by its name or by the id of one of its lessons."""
        agent = lesson_id.partition("/")[0]
        if agent not in self._lessons:
            self._lessons[agent] = self._made(agent)
        return self._lessons[agent]

    async def aclose(self) -> None:
        """Close the indexes; the store is left open."""
        for lessons in self._lessons.values():
            await lessons.aclose()

    # --- reading -------------------------------------------------------------------------------------------

    def resolve(self, reference: str) -> Entry:
        """Return the lesson with an id, or with the beginning or end of one; `last` is the newest.

        The agent and the day may be omitted. Raises `ConfigError` with the candidates if no lesson or more
        than one matches.
        """
        entries: dict[str, Entry] = {}
        for folder in self.folders():
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of two files with one name, the archived one is second
        if reference in entries:
            return entries[reference]
        if reference == "last" and entries:
            return self._newest(entries.values())
        part = reference.casefold()
        found = [entry for entry in entries.values() if part and _matches(entry.id.casefold(), part)]
        found = [entry for entry in found if _stem(entry.id) == reference] or found
        entry = only(found, reference, "lessons", lambda one: one.id)
        if entry is None:
            raise ConfigError(self._not_found(reference, list(entries)))
        return entry

    def _newest(self, entries: Collection[Entry]) -> Entry:
        """Return the lesson that was written last; of those of one day, a broken one counts least."""
        last = max(map(_day, entries))
        newest = [entry for entry in entries if _day(entry) == last]

        def recency(entry: Entry) -> tuple[int, str]:
            try:
                return self._folder_of(entry.id).read_entry(entry).recency, entry.id
            except StoreError:
                return 0, entry.id

        return max(newest, key=recency)

    def _not_found(self, reference: str, known: Sequence[str]) -> str:
        if not known:
            return f"There are no lessons in {self.place} yet."
        near = get_close_matches(reference, sorted(known, key=_stem)[-MOST_SUGGESTED:], cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`redraft lessons` lists them."
        return f"There is no lesson {reference!r} in {self.place}; {hint}"

    def text_of(self, entry: Entry) -> str:
        """Return the text of a lesson's file."""
        return self._folder_of(entry.id).text_of(entry)

    async def show(self, reference: str) -> LessonDetails:
        """Return a lesson by reference (see `resolve`); raises `LessonFileError` if its file is broken."""
        entry = self.resolve(reference)
        lesson = self._folder_of(entry.id).read_entry(entry)
        counters = await self.lessons_of(lesson.id).counters(lesson.id)
        run = None
        if self._store is not None and lesson.source:
            run = await listed(self._store, RUN, lesson.source)
        return LessonDetails(
            lesson, _relative(entry), entry.archived, counters, self.text_of(entry), run is not None
        )

    async def find(
        self,
        *,
        kind: str | None = None,
        status: str | None = None,
        task_type: str | None = None,
        with_archive: bool = False,
    ) -> Listing:
        """Return the lessons of a kind, a status and a task type, archived ones only `with_archive`."""
        if kind is not None:
            check_choice("--kind", kind, tuple(KINDS))
        if status is not None:
            check_choice("--status", status, STATUSES)
        counters = await self._counters()

        def read() -> Listing:
            found: list[LessonDetails] = []
            archived, problems = 0, list[Problem]()
            for folder in self.folders():
                entries = list(folder.entries())
                archived += sum(entry.archived for entry in entries)
                chosen = [entry for entry in entries if with_archive or not entry.archived]
                for entry, _, lesson in folder.read_all(chosen):
                    if isinstance(lesson, StoreError):
                        problems.append(Problem(entry.id, "broken", str(lesson)))
                        continue
                    wanted = kind in (None, lesson.kind) and status in (None, lesson.status)
                    if wanted and task_type in (None, lesson.task_type):
                        counted = counters.get(lesson.id, Counters())
                        found.append(LessonDetails(lesson, _relative(entry), entry.archived, counted))
            found.sort(key=lambda one: (one.lesson.recency, one.lesson.id), reverse=True)
            return Listing(found, len(problems), archived, tuple(problems))

        return await asyncio.to_thread(read)

    async def payoff(self) -> Payoff:
        """Compare the latest runs that had lessons with those that had none, by agent and task type."""
        groups: list[History] = []
        if self._store is not None:
            for folder in await asyncio.to_thread(self.folders):
                groups += await Impact(self._store, folder.name).groups()
        return payoff_of(groups)

    def count(self, agent: str) -> AgentCount:
        """Count the lessons of an agent, without opening a file."""
        entries = list(LessonFolder(self.documents, agent).entries())
        days = [str(entry.day) for entry in entries if not entry.archived]
        return AgentCount(agent, len(days), len(entries) - len(days), max(days, default=""))

    async def search(self, query: str, *, k: int = 5, task_type: str = "") -> LessonMatches:
        """Return the active lessons that are relevant to a task, best first; full-text matches come last.

        `near_misses` of the list counts others that are almost similar enough.
        """
        if not query.strip():
            raise ConfigError("QUERY is empty; say what to search for.")
        result = LessonMatches()
        if not await asyncio.to_thread(self.folders):  # so that no index is created
            return result
        wanted = LessonQuery(query, task_type, agent=self.agent, k=k)
        embedder = embedder_of(None, load_settings())
        indexes = [LessonIndex(self.documents, embedder)]
        indexes += [LessonIndex(self.documents)] if embedder is not None else []
        found: dict[str, LessonMatch] = {}
        effects = {lesson: its.effect for lesson, its in (await self._counters()).items() if its.effect}
        for index in indexes:
            if len(found) < k:
                lessons = await index.search(wanted, effects)
                result.near_misses = max(result.near_misses, lessons.near_misses)
                for one in lessons:
                    by_words = index is not indexes[0]
                    found.setdefault(one.lesson.id, replace(one, score=0.0) if by_words else one)
        result.extend(islice(found.values(), k))
        return result

    async def problems(self) -> list[Problem]:
        """Return broken files, near-duplicates, and lessons not in use; of the archive, only broken files."""
        found: dict[tuple[str, str], Problem] = {}
        for folder in await asyncio.to_thread(self.folders):
            try:
                problems = await self.lessons_of(folder.name).problems()
            except LessonFileError as error:
                problems = [Problem(error.file, "broken", str(error))]
            found |= {(one.id, one.what): one for one in problems}
        for name in await asyncio.to_thread(self.documents.misplaced):
            why = f"{name}: This is a file where an agent's folder should be: move it away."
            found[name, "broken"] = Problem(name, "broken", why)
        if await asyncio.to_thread(self.documents.agents):
            index = LessonIndex(self.documents, embedder_of(None, load_settings()))
            try:
                unread = (await index.refresh()).broken
            except StoreError as error:  # the files say all the same what is wrong with them
                unread = ()
                found[INDEX, "broken"] = Problem(INDEX, "broken", str(error))
            for broken in unread:
                if self.agent is None or broken.id.partition("/")[0] == folder_name(self.agent):
                    found.setdefault((broken.id, "broken"), Problem(broken.id, "broken", broken.problem))
        return list(found.values())

    # --- writing -------------------------------------------------------------------------------------------

    def only_agent(self) -> str:
        """Return the agent, else the only one with lessons; raises `ConfigError` if there is not just one."""
        if self.agent is not None:
            if not self.agent.strip():
                raise ConfigError("--agent needs a name.")
            return self.agent
        known = list(self.documents.agents())
        if len(known) != 1:
            there = f"lessons belong to {', '.join(known)}" if known else "no agent has lessons yet"
            raise ConfigError(f"Whose lessons are they? Give --agent NAME; {there}.")
        return known[0]

    async def add(self, lesson: Lesson, *, confidence: float | None = None) -> tuple[Lesson, bool]:
        """Store a lesson that a person wrote; return it or its near-duplicate, and whether it is new."""
        before = {entry.id for entry in LessonFolder(self.documents, lesson.agent).entries()}
        task = PlainTask(lesson.task or lesson.summary, task_type=lesson.task_type, tools=lesson.tools)
        lessons = self._made(lesson.agent)
        try:
            filed = await lessons.record(
                lesson.content,
                task,
                error=lesson.error,
                run_id=lesson.source,
                confidence=confidence,
                title=lesson.title,
            )
        finally:
            await lessons.aclose()
        is_new = filed.id not in before
        if is_new and lesson.others:
            folder, others = LessonFolder(self.documents, lesson.agent), Cleaner().redact(lesson.others)
            filed = await asyncio.to_thread(lambda: folder.change(filed.id, others=others))
        return filed, is_new

    async def rate(self, lesson_id: str, *, helped: bool) -> None:
        """Record that a lesson helped or hurt; raises `ConfigError` without a store."""
        if self._store is None:
            raise ConfigError(
                "Ratings are stored with the runs, and this project stores none: its `home` is empty."
            )
        await self.lessons_of(lesson_id).rate(lesson_id, helped)

    async def due(self) -> list[DueReflection]:
        """Return the reflections that are due, oldest first."""
        if self._store is None:
            return []
        folder = None if self.agent is None else folder_name(self.agent)
        return [one for one in await all_due(self._store) if folder in (None, one.agent)]

    async def waive(self, run: str, why: str) -> DueReflection:
        """Waive the reflection on a run, given by its id, the id's beginning or end, or `last`."""
        due = resolve_due(run, await self.due())
        await self.lessons_of(due.agent).waive(due.run_id, why)
        return due

    async def erase(
        self,
        is_wanted: Callable[[str, str], bool],
        *,
        on_unreadable: Callable[[str, StoreError], None],
        check: bool = False,
    ) -> ErasedLessons:
        """Delete the lessons for which `is_wanted(text, run)`, and the rules and playbooks that they taught.

        The archive and broken documents are included; `run` is the one that taught a lesson, empty if
        unknown, and each of the runs that a fact quotes. Afterwards no byte of them is left in the search
        index. With `check`, nothing is changed. `on_unreadable` gets the place of each document or folder
        that is left out, and why. Raises `StoreError` where a document can't be deleted or changed.
        """
        erased, rules = ErasedLessons(), 0
        try:
            folders = self.folders()
        except StoreError as error:
            on_unreadable(self.documents.place(""), error)
            return erased
        for folder in folders:
            gone: dict[str, Entry] = {}
            try:
                for entry, text, lesson in folder.read_all(folder.entries()):
                    if not text and isinstance(lesson, StoreError):  # a link, say, which leads elsewhere
                        on_unreadable(entry.place, lesson)
                    elif any(
                        is_wanted(text, run)
                        for run in (runs_behind(lesson) if isinstance(lesson, Lesson) else [""])
                    ):
                        gone[entry.id] = entry
            except StoreError as error:
                on_unreadable(self.documents.place(folder.name), error)
                continue

            def is_taught(text: str, run: str, lesson: str, gone: Collection[str] = gone) -> bool:
                return lesson in gone or is_wanted(text, run)

            def is_rule(text: str, lesson: str, gone: Collection[str] = gone) -> bool:
                return lesson in gone or is_wanted(text, "")

            playbooks = Playbooks(self.documents, folder.name).erase(
                is_taught, on_unreadable=on_unreadable, check=check
            )
            own_rules = Rules(self.documents, folder.name)
            try:
                found = own_rules.erase(is_rule, check=True)
            except StoreError as error:
                on_unreadable(self.documents.place(f"{folder.name}/{RULES}"), error)
            else:
                rules += found if check else own_rules.erase(is_rule)
            if not check:
                for entry in gone.values():
                    folder.delete(entry)
            erased = replace(
                erased,
                lessons=(*erased.lessons, *gone),
                playbooks=(*erased.playbooks, *playbooks),
                rules=rules,
            )
        if not check and self.documents.index.exists():  # also if an earlier erasure was interrupted here
            await LessonIndex(self.documents).rebuild()
        return erased

    async def rebuild_index(self, on_progress: Callable[[int], None]) -> Rebuilt:
        """Index every document anew and embed all lessons; `on_progress` gets the number embedded so far."""
        embedder = embedder_of(None, load_settings())
        index = LessonIndex(self.documents, embedder)
        found, embedded = await index.rebuild(), 0
        while some := await index.fill(EMBEDDED_PER_STEP):
            embedded += some
            on_progress(embedded)
        return Rebuilt(found, embedded, "" if embedder is None else embedder.name)

    async def export(
        self, form: Form = "agents-md", *, max_tokens: int | None = None, outside: str = ""
    ) -> Export:
        """Render the permanent rules and the best active lessons for coding agents.

        What the file says `outside` of the block is not repeated. `max_tokens` is 1,000 by default, and 4,000
        for a skill.
        """
        lessons: list[Lesson] = []
        rules: dict[str, list[Rule]] = {}
        for folder in self.folders():
            lessons += folder.lessons()
            with suppress(StoreError):
                rules[folder.name] = Rules(self.documents, folder.name).permanent()
        most = MAX_TOKENS[form] if max_tokens is None else max_tokens
        return await asyncio.to_thread(export, lessons, rules, most, outside)

    async def import_files(
        self, paths: Sequence[str | Path] = (), *, trusted: bool = False, dry_run: bool = False
    ) -> list[ImportItem]:
        """Import instructions written for agents; return what became of each section.

        Without `paths`, the project's AGENTS.md, CLAUDE.md, .cursorrules and .cursor/rules. A section is
        added for the agent (see `only_agent`) unless a lesson says the same already; nothing that is stored
        changes. New lessons are quarantined, unless a person vouches for them: `trusted` approves them, and
        those from an earlier import. More lessons than the agent keeps go to the archive. A `dry_run` writes
        nothing. Raises `ConfigError` for a missing file.

        A path that is a folder of lessons, such as `memory`, is copied as it is: all lessons, playbooks and
        rules with their status, so it has to be `trusted`.
        """
        project = project_folder()
        there = [project / name for name in KNOWN_FILES if (project / name).exists()]
        chosen = [Path(path) for path in paths] or there
        if not chosen:
            raise ConfigError(f"None of {', '.join(KNOWN_FILES)} was found in {str(project)!r}; give a PATH.")
        memories = [LessonFiles(one) for one in chosen if (one / REFLECTIONS).is_dir()]
        if memories and not trusted and not dry_run:
            raise ConfigError(
                f"{str(memories[0])!r} is a folder of lessons, which are copied with their status and their "
                "rules: add --trusted (trusted=True) to vouch for them."
            )
        copies = await asyncio.to_thread(
            lambda: [
                one
                for memory in memories
                for one in copied(memory, self.documents, self.agent, dry_run=dry_run)
            ]
        )
        chosen = [one for one in chosen if not (one / REFLECTIONS).is_dir()]
        if not chosen:
            return copies
        folder = LessonFolder(self.documents, self.only_agent())

        def compare() -> list[ImportItem]:
            items = read_items(chosen, folder.agent, project)
            return list(compared(items, folder, trusted=trusted))

        items = await asyncio.to_thread(compare)
        if not dry_run:
            items = [await self._import(item, folder, trusted=trusted) for item in items]
        return copies + items

    async def _import(self, item: ImportItem, folder: LessonFolder, *, trusted: bool) -> ImportItem:
        lesson = item.lesson
        if lesson is None or item.what not in ("added", "approved"):
            return item
        if item.what == "added":
            lesson = await asyncio.to_thread(add_imported, folder, item, lesson)
        if trusted:
            lesson = await self.lessons_of(folder.name).approve(lesson.id, VOUCHED)
        return replace(item, lesson=lesson)

    # --- checks for what keeps failing ---------------------------------------------------------------------

    async def propose(self, model: ChatModel | None = None, *, weaker: bool = False) -> list[Proposal]:
        """Return checks for what keeps failing in stored runs, each tried on all of their outputs.

        They are drafted by rule, and also by a `model` if there is one. Nothing changes but that the project
        remembers the checks until one is accepted. With `weaker`, checks that refuse a good output or rest on
        too few runs are returned, too, for failures that have no other.
        """
        store = self._required_store()
        found: list[Proposal] = []

        async def draft(failure: RecurringFailure) -> Sequence[QualityCriterion]:
            return () if model is None else (await drafted_by(model, failure)).checks

        seen: set[str] = set()
        for agent in await self._agents():
            found += await self._proposed(agent, draft, seen, weaker=weaker)
        for one in found:
            await store.put(Record(PROPOSED, f"{one.agent}/{one.id}", to_data(one)))
        return found

    async def proposal(self, reference: str) -> Proposal:
        """Return a check that was proposed, by its id or the beginning of it, tried again on stored runs.

        Raises `ConfigError` if there is none, and if the runs do not suggest it any more.
        """
        store = self._required_store()
        prefix = "" if self.agent is None else f"{self.agent}/"
        known = intact(await store.find(PROPOSED, prefix=prefix))
        those = [one for one in known if one.key.rpartition("/")[2].startswith(reference) and reference]
        record = only(those, reference, "proposals", lambda one: one.key)
        if record is None:
            raise ConfigError(f"There is no proposal {reference!r}; `redraft lessons propose` lists them.")
        proposal = from_data(record.data)

        async def draft(_failure: RecurringFailure) -> Sequence[QualityCriterion]:
            return (proposal.criterion,)

        found = await self._proposed(proposal.agent, draft, set(), weaker=True)
        if (current := next((one for one in found if one.id == proposal.id), None)) is None:
            raise ConfigError(
                f"The stored runs do not suggest the check {reference!r} any more; `redraft lessons propose` "
                "lists those that they do."
            )
        return replace(current, drafter=proposal.drafter)

    async def accepted(self, proposal: Proposal, name: str) -> tuple[str, ...]:
        """Record that a criterion of this name stands for the lessons of a proposal; return their ids."""
        changed: list[str] = []
        for lesson_id in proposal.lessons:
            with suppress(LessonFileError):  # deleted meanwhile
                folder = self._folder_of(lesson_id)
                await asyncio.to_thread(lambda: folder.change(lesson_id, check=name))  # noqa: B023 (awaited here)
                changed.append(lesson_id)
        await self._required_store().delete(PROPOSED, f"{proposal.agent}/{proposal.id}")
        return tuple(changed)

    async def _proposed(
        self,
        agent: str,
        draft: Callable[[RecurringFailure], Awaitable[Sequence[QualityCriterion]]],
        seen: set[str],
        *,
        weaker: bool,
    ) -> list[Proposal]:
        """Return the checks that an agent's runs suggest, without those in `seen`, which grows."""
        store, folder = self._required_store(), LessonFolder(self.documents, folder_name(agent))
        lessons = await asyncio.to_thread(lambda: list(folder.lessons(archived=True)))
        records = await runs_of(store, folder.name, {agent, *(one.agent for one in lessons)})
        records = [one for one in records if one.run_id not in seen]
        seen |= {one.run_id for one in records}
        labels = await labels_of(store, records)
        without_check = [one for one in lessons if not one.check]
        found = await proposals_of_runs(records, without_check, labels, draft=draft, weaker=weaker)
        return [replace(one, agent=agent) for one in found]

    async def _agents(self) -> list[str]:
        """Return the agents whose runs are looked through: the chosen one, else those with lessons first."""
        if self.agent is not None:
            return [self.agent]
        learned = await asyncio.to_thread(lambda: [folder.name for folder in self.folders()])
        ran = await run_index(self._required_store()).count("agent")
        return list(dict.fromkeys([*learned, *(name for name in ran if name)]))

    def _required_store(self) -> Store:
        if self._store is None:
            raise ConfigError(
                "Checks are proposed from stored runs, and this project stores none: its `home` is empty."
            )
        return self._store

    # --- helpers -------------------------------------------------------------------------------------------

    def _made(self, agent: str) -> Lessons:
        return Lessons(self._path, agent=agent, store=self._store or False, auto=False)

    def _folder_of(self, lesson_id: str) -> LessonFolder:
        return LessonFolder(self.documents, lesson_id.partition("/")[0])

    async def _counters(self) -> dict[str, Counters]:
        found: dict[str, Counters] = {}
        if self._store is not None:
            for folder in await asyncio.to_thread(self.folders):
                found |= await Impact(self._store, folder.name).all_counters()
        return found


def _relative(entry: Entry) -> str:
    relative = os.path.relpath(entry.file) if entry.file else ".."
    return entry.place if relative.startswith("..") else relative


def _matches(lesson_id: str, part: str) -> bool:
    stem = _stem(lesson_id)
    without_day = stem[len("YYYY-MM-DD-") :]
    return lesson_id.endswith(part) or any(one.startswith(part) for one in (lesson_id, stem, without_day))


def _stem(lesson_id: str) -> str:
    return lesson_id.partition("/")[2]


def _day(entry: Entry) -> str:
    """Return the day in the name of a document, or else that of its last change."""
    stem = _stem(entry.id)
    return stem[:10] if stem[:4].isdecimal() else str(entry.day)
