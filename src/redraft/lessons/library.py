"""LessonLibrary: the lessons of all agents, for commands, pages and programs."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft._hints import keyword_hints
from redraft._validation import check_choice, nearest, only
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import (
    INDEX,
    PLAYBOOKS,
    REFLECTIONS,
    RULES,
    LessonFiles,
    documents_of,
    store_of,
)
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
from redraft.lessons.index import LessonIndex
from redraft.lessons.lesson import KINDS, STATUSES, Lesson
from redraft.lessons.lessons import Lessons
from redraft.lessons.overview import Problem
from redraft.lessons.playbooks import Playbooks
from redraft.lessons.ranking import LessonQuery
from redraft.lessons.rules import Rules
from redraft.memory.effects import payoff_of
from redraft.memory.safety import Cleaner
from redraft.models.embed import embedder_of
from redraft.proposals.drafts import drafts_of_model
from redraft.proposals.proposals import PROPOSED, from_data, to_data
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Record, intact, listed
from redraft.stores.run_index import RUN, run_index
from redraft.types import PlainTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

    from redraft.lessons.documents import Entry
    from redraft.lessons.index import Indexed, LessonMatch
    from redraft.lessons.rules import Rule
    from redraft.memory.effects import History, Payoff
    from redraft.proposals.proposals import Proposal, RecurringFailure
    from redraft.protocols import ChatModel
    from redraft.stores.base import Store
    from redraft.types import QualityCriterion

EMBEDDED_PER_STEP = 256
MOST_SUGGESTED = 1_000
"""Number of the newest lessons among which similar names are suggested for an unknown reference."""


@dataclass(frozen=True, slots=True)
class LessonDetails:
    """A lesson with its counters and its file."""

    lesson: Lesson
    file: str
    """The file, relative to the working directory, or the record."""
    archived: bool = False
    counters: Counters = field(default_factory=Counters)
    text: str = ""
    """Its Markdown, from `LessonLibrary.show`."""
    has_run: bool = False
    """Whether the run that taught it is stored, from `LessonLibrary.show`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Lessons, newest first."""

    lessons: list[LessonDetails]
    archived: int = 0
    """The number of lessons in the archive."""
    problems: tuple[Problem, ...] = ()
    """The problems of files that can't be parsed, whose lessons are not in use."""


@dataclass(frozen=True, slots=True)
class ErasedLessons:
    """The result of erasing lessons, or of a check without erasing."""

    lessons: tuple[str, ...] = ()
    """The ids of lessons."""
    playbooks: tuple[str, ...] = ()
    """The ids of playbooks."""
    rules: int = 0
    """The number of rules."""


@keyword_hints()
class LessonLibrary:
    """The lessons of all agents, or of one `agent`.

    `path` is their folder, by default the place of the project's lessons (see `Lessons`). `store` has
    counters and due reflections: True for the project's store, False for none. Methods raise `ConfigError` if
    the `agent` has no lessons.
    """

    def __init__(
        self, path: str | Path | None = None, *, agent: str | None = None, store: bool | Store = True
    ) -> None:
        self.agent = agent
        self._path = path
        self._store = store_of(store)
        self.documents = documents_of(path, self._store)
        self._lessons: dict[str, Lessons] = {}

    def folders(self) -> list[LessonFolder]:
        """The agents' folders."""
        names = list(self.documents.agents())
        if self.agent is None:
            # `problems` reports folders with names that no agent can have.
            return [LessonFolder(self.documents, name) for name in names if folder_name(name) == name]
        if folder_name(self.agent) not in names:
            hint = f"; {nearest(self.agent, names)}" if names else "."
            raise ConfigError(f"The agent {self.agent!r} has no lessons in {self.place}{hint}")
        return [LessonFolder(self.documents, self.agent)]

    @property
    def place(self) -> str:
        """The location of the lessons, for people: a folder in quotes, or a database."""
        return repr(str(self.documents)) if isinstance(self.documents, LessonFiles) else str(self.documents)

    def agents(self) -> list[str]:
        """The names of the agents' folders, most recently changed first."""
        changed = {name: at for name, at in self.documents.agents().items() if folder_name(name) == name}
        return sorted(changed, key=lambda name: (-changed[name], name))

    def lessons_of(self, lesson_id: str) -> Lessons:
        """The lessons of an agent, by its name or by the id of one of its lessons."""
        agent = lesson_id.partition("/")[0]
        if agent not in self._lessons:
            self._lessons[agent] = self._made(agent)
        return self._lessons[agent]

    async def aclose(self) -> None:
        """Wait until new lessons are embedded. The store is left open."""
        for lessons in self._lessons.values():
            await lessons.aclose()

    # --- reading -------------------------------------------------------------------------------------------

    def resolve(self, reference: str) -> Entry:
        """The lesson with an id, or with the beginning or end of an id; `last` is the newest.

        The agent and the day may be omitted. Raises `ConfigError` with the candidates if no lesson or more
        than one matches.
        """
        entries: dict[str, Entry] = {}
        for folder in self.folders():
            for entry in folder.entries():
                entries.setdefault(entry.id, entry)  # of two files with one name, the archived file is second
        if reference in entries:
            return entries[reference]
        if reference == "last" and entries:
            return self._newest(entries.values())
        part = reference.casefold()
        matches = [entry for entry in entries.values() if part and _matches(entry.id.casefold(), part)]
        matches = [entry for entry in matches if _stem(entry.id) == reference] or matches
        entry = only(matches, reference, "lessons", lambda entry: entry.id)
        if entry is None:
            raise ConfigError(self._unknown(reference, list(entries)))
        return entry

    def _newest(self, entries: Collection[Entry]) -> Entry:
        """The lesson that was written last; of lessons of the same day, a broken lesson counts least."""
        last = max(map(_day, entries))
        newest = [entry for entry in entries if _day(entry) == last]

        def recency(entry: Entry) -> tuple[int, str]:
            try:
                return self._folder_of(entry.id).read_entry(entry).recency, entry.id
            except StoreError:
                return 0, entry.id

        return max(newest, key=recency)

    def _unknown(self, reference: str, lesson_ids: Sequence[str]) -> str:
        if not lesson_ids:
            return f"There are no lessons in {self.place} yet."
        near = get_close_matches(reference, sorted(lesson_ids, key=_stem)[-MOST_SUGGESTED:], cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`redraft lessons` lists them."
        return f"There is no lesson {reference!r} in {self.place}; {hint}"

    def text_of(self, entry: Entry) -> str:
        """The text of a lesson's file."""
        return self._folder_of(entry.id).text_of(entry)

    async def show(self, reference: str) -> LessonDetails:
        """A lesson by reference (see `resolve`); raises `LessonFileError` if its file is broken."""
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
        """The lessons of a kind, a status and a task type; archived lessons only `with_archive`."""
        if kind is not None:
            check_choice("--kind", kind, tuple(KINDS))
        if status is not None:
            check_choice("--status", status, STATUSES)
        counters = await self._counters()

        def read() -> Listing:
            details: list[LessonDetails] = []
            archived, problems = 0, list[Problem]()
            for folder in self.folders():
                entries = list(folder.entries())
                archived += sum(entry.archived for entry in entries)
                chosen = [entry for entry in entries if with_archive or not entry.archived]
                for entry, _, lesson in folder.read_all(chosen):
                    if isinstance(lesson, StoreError):
                        problems.append(Problem(entry.id, "broken", str(lesson)))
                        continue
                    matches = kind in (None, lesson.kind) and status in (None, lesson.status)
                    if matches and task_type in (None, lesson.task_type):
                        counted = counters.get(lesson.id, Counters())
                        details.append(LessonDetails(lesson, _relative(entry), entry.archived, counted))
            details.sort(key=lambda each: (each.lesson.recency, each.lesson.id), reverse=True)
            return Listing(details, archived, tuple(problems))

        return await asyncio.to_thread(read)

    async def payoff(self) -> Payoff:
        """Compare the latest runs with and without lessons, by agent and task type."""
        groups: list[History] = []
        if self._store is not None:
            for folder in await asyncio.to_thread(self.folders):
                groups += await Impact(self._store, folder.name).groups()
        return payoff_of(groups)

    async def search(self, query: str, *, k: int = 5, task_type: str = "") -> list[LessonMatch]:
        """The active lessons that are relevant to a task, best first; full-text matches come last."""
        if not query.strip():
            raise ConfigError("QUERY is empty; say what to search for.")
        if not await asyncio.to_thread(self.folders):  # so that no index is created
            return []
        lesson_query = LessonQuery(query, task_type, agent=self.agent, k=k)
        embedder = embedder_of(None, load_settings())
        counters = await self._counters()
        effects = {lesson_id: each.effect for lesson_id, each in counters.items() if each.effect}
        matches = await LessonIndex(self.documents, embedder).search(lesson_query, effects)
        if embedder is not None and len(matches) < k:
            known = {match.lesson.id for match in matches}
            by_words = await LessonIndex(self.documents).search(lesson_query, effects)
            matches += [replace(match, score=0.0) for match in by_words if match.lesson.id not in known]
        return matches[:k]

    async def problems(self) -> list[Problem]:
        """Broken files, near-duplicates, and lessons not in use; of the archive, only broken files."""
        by_lesson: dict[tuple[str, str], Problem] = {}
        for folder in await asyncio.to_thread(self.folders):
            try:
                problems = await self.lessons_of(folder.name).problems()
            except LessonFileError as error:
                problems = [Problem(error.file, "broken", str(error))]
            by_lesson |= {(problem.id, problem.what): problem for problem in problems}
        if await asyncio.to_thread(self.documents.agents):
            index = LessonIndex(self.documents, embedder_of(None, load_settings()))
            try:
                unread = (await index.refresh()).broken
            except StoreError as error:  # the problems of the files are known without the index
                unread = dict[str, str]()
                by_lesson[INDEX, "broken"] = Problem(INDEX, "broken", str(error))
            for lesson_id, why in unread.items():
                if self.agent is None or lesson_id.partition("/")[0] == folder_name(self.agent):
                    by_lesson.setdefault((lesson_id, "broken"), Problem(lesson_id, "broken", why))
        return list(by_lesson.values())

    # --- writing -------------------------------------------------------------------------------------------

    def only_agent(self) -> str:
        """The agent, or the only agent with lessons; raises `ConfigError` if there are several or none."""
        if self.agent is not None:
            if not self.agent.strip():
                raise ConfigError("--agent needs a name.")
            return self.agent
        agents = list(self.documents.agents())
        if len(agents) != 1:
            owners = f"lessons belong to {', '.join(agents)}" if agents else "no agent has lessons yet"
            raise ConfigError(f"Whose lessons are they? Give --agent NAME; {owners}.")
        return agents[0]

    async def add(self, lesson: Lesson, *, confidence: float | None = None) -> tuple[Lesson, bool]:
        """Store a lesson that a person wrote: the lesson or its near-duplicate, and whether it is new."""
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
        """The reflections that are due, oldest first."""
        if self._store is None:
            return []
        folder = None if self.agent is None else folder_name(self.agent)
        return [reflection for reflection in await all_due(self._store) if folder in (None, reflection.agent)]

    async def waive(self, run: str, why: str) -> DueReflection:
        """Waive the reflection on a run, referenced by its id, the id's beginning or end, or `last`."""
        due = resolve_due(run, await self.due())
        await self.lessons_of(due.agent).waive(due.run_id, why)
        return due

    async def erase(
        self,
        matches: Callable[[str, str], bool],
        *,
        on_unreadable: Callable[[str, StoreError], None],
        check: bool = False,
    ) -> ErasedLessons:
        """Delete the lessons for which `matches(text, run)`, and the rules and playbooks that they taught.

        The archive and broken documents are included. `text` begins with the name of the document. `run` is
        the run that taught a lesson, empty if unknown, and each of the runs that a fact quotes. The search
        index is rebuilt without them. With `check`, nothing is changed. `on_unreadable` gets the place and
        the error of each document or folder that can't be read. Raises `StoreError` if a document can't be
        deleted or changed.
        """
        try:
            folders = self.folders()
        except StoreError as error:
            on_unreadable(self.documents.place(""), error)
            return ErasedLessons()
        erased = [self._erase_in(folder, matches, on_unreadable, check=check) for folder in folders]
        if not check and self.documents.index.exists():  # also if an earlier erasure was interrupted here
            await LessonIndex(self.documents).rebuild()
        return ErasedLessons(
            tuple(lesson for each in erased for lesson in each.lessons),
            tuple(playbook for each in erased for playbook in each.playbooks),
            sum(each.rules for each in erased),
        )

    def _erase_in(
        self,
        folder: LessonFolder,
        matches: Callable[[str, str], bool],
        on_unreadable: Callable[[str, StoreError], None],
        *,
        check: bool,
    ) -> ErasedLessons:
        name = folder.name

        def readable(
            documents: Iterator[tuple[Entry, str, Any]], of: str
        ) -> Iterator[tuple[Entry, str, Any]]:
            try:
                for entry, text, parsed in documents:
                    # For example a link, which leads elsewhere.
                    if not text and isinstance(parsed, StoreError):
                        on_unreadable(entry.place, parsed)
                    else:
                        yield entry, f"{entry.stem}\n{text}", parsed
            except StoreError as error:
                on_unreadable(self.documents.place(of), error)

        lessons: dict[str, Entry] = {}
        for entry, text, lesson in readable(folder.read_all(folder.entries()), name):
            runs = [""] if isinstance(lesson, StoreError) else runs_behind(lesson)
            if any(matches(text, run) for run in runs):
                lessons[entry.id] = entry
        playbooks: dict[str, Entry] = {}
        steps = Playbooks(self.documents, name).read_all(archived=True)
        for entry, text, playbook in readable(steps, f"{name}/{PLAYBOOKS}"):
            lesson_id, run = (
                ("", "") if isinstance(playbook, StoreError) else (playbook.lesson, playbook.source)
            )
            if lesson_id in lessons or matches(text, run):
                playbooks[entry.id] = entry

        def is_rule(text: str, lesson_id: str) -> bool:
            return lesson_id in lessons or matches(text, "")

        rules, count = Rules(self.documents, name), 0
        try:
            count = rules.erase(is_rule, check=True)
        except StoreError as error:
            on_unreadable(self.documents.place(f"{name}/{RULES}"), error)
        else:
            count = count if check else rules.erase(is_rule)
        if not check:
            for entry in (*lessons.values(), *playbooks.values()):
                folder.delete(entry)
        return ErasedLessons(tuple(lessons), tuple(sorted(playbooks)), count)

    async def rebuild_index(self, on_progress: Callable[[int], None]) -> tuple[Indexed, int, str]:
        """Index all documents again and embed all lessons; `on_progress` gets the number embedded so far.

        Returns what is in the index, the number of lessons that were embedded, and the name of the embedder,
        empty if there is none.
        """
        embedder = embedder_of(None, load_settings())
        index = LessonIndex(self.documents, embedder)
        indexed, embedded = await index.rebuild(), 0
        while step := await index.fill(EMBEDDED_PER_STEP):
            embedded += step
            on_progress(embedded)
        return indexed, embedded, "" if embedder is None else embedder.name

    async def export(
        self, form: Form = "agents-md", *, max_tokens: int | None = None, outside: str = ""
    ) -> Export:
        """Render the permanent rules and the best active lessons for coding agents.

        Text `outside` the block of the file is not repeated. `max_tokens` is 1,000 by default, 4,000 for a
        skill.
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
        """Import instructions written for agents: the result for each section.

        By default, imports the project's AGENTS.md, CLAUDE.md, .cursorrules and .cursor/rules. A section is
        added for the agent (see `only_agent`) unless a lesson says the same; stored lessons do not change.
        New lessons are quarantined, unless a person vouches for them: `trusted` approves them, and those from
        an earlier import. Lessons beyond the agent's limit go to the archive. A `dry_run` writes nothing.
        Raises `ConfigError` for a missing file.

        A path that is a folder of lessons, such as `memory`, is copied unchanged: all lessons, playbooks and
        rules with their status, so it has to be `trusted`.
        """
        project = project_folder()
        existing = [project / name for name in KNOWN_FILES if (project / name).exists()]
        chosen = [Path(path) for path in paths] or existing
        if not chosen:
            raise ConfigError(f"None of {', '.join(KNOWN_FILES)} was found in {str(project)!r}; give a PATH.")
        memories = [LessonFiles(path) for path in chosen if (path / REFLECTIONS).is_dir()]
        if memories and not trusted and not dry_run:
            raise ConfigError(
                f"{str(memories[0])!r} is a folder of lessons, which are copied with their status and their "
                "rules: add --trusted (trusted=True) to vouch for them."
            )
        copies = await asyncio.to_thread(
            lambda: [
                item
                for memory in memories
                for item in copied(memory, self.documents, self.agent, dry_run=dry_run)
            ]
        )
        chosen = [path for path in chosen if not (path / REFLECTIONS).is_dir()]
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

    # --- checks for recurring failures ---------------------------------------------------------------------

    async def propose(self, model: ChatModel | None = None, *, weaker: bool = False) -> list[Proposal]:
        """Checks for recurring failures in stored runs, each tried on all outputs of these runs.

        They are drafted by rule, and also by a `model` if there is one. The only change is that the project
        stores each check until it is accepted. With `weaker`, failures without a better check get checks that
        refuse a good output or rest on too few runs.
        """
        store = self._required_store()
        proposals: list[Proposal] = []

        async def draft(failure: RecurringFailure) -> Sequence[QualityCriterion]:
            return () if model is None else (await drafts_of_model(model, failure)).checks

        seen: set[str] = set()
        for agent in await self._agents():
            proposals += await self._proposed(agent, draft, seen, weaker=weaker)
        for proposal in proposals:
            await store.put(Record(PROPOSED, f"{proposal.agent}/{proposal.id}", to_data(proposal)))
        return proposals

    async def proposal(self, reference: str) -> Proposal:
        """A proposed check, by its id or the beginning of it, tried again on stored runs.

        Raises `ConfigError` if there is none, or if the runs no longer suggest it.
        """
        store = self._required_store()
        prefix = "" if self.agent is None else f"{self.agent}/"
        records = intact(await store.find(PROPOSED, prefix=prefix))
        matches = [
            record for record in records if record.key.rpartition("/")[2].startswith(reference) and reference
        ]
        record = only(matches, reference, "proposals", lambda record: record.key)
        if record is None:
            raise ConfigError(f"There is no proposal {reference!r}; `redraft lessons propose` lists them.")
        proposal = from_data(record.data)

        async def draft(_failure: RecurringFailure) -> Sequence[QualityCriterion]:
            return (proposal.criterion,)

        proposals = await self._proposed(proposal.agent, draft, set(), weaker=True)
        if (current := next((each for each in proposals if each.id == proposal.id), None)) is None:
            raise ConfigError(
                f"The stored runs do not suggest the check {reference!r} any more; `redraft lessons propose` "
                "lists those that they do."
            )
        return replace(current, drafter=proposal.drafter)

    async def accepted(self, proposal: Proposal, name: str) -> tuple[str, ...]:
        """Record that a criterion of this name replaces the lessons of a proposal, and list their ids."""
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
        """The checks that an agent's runs suggest, except runs in `seen`, to which the runs are added."""
        store, folder = self._required_store(), LessonFolder(self.documents, folder_name(agent))
        lessons = await asyncio.to_thread(lambda: list(folder.lessons(archived=True)))
        records = await runs_of(store, folder.name, {agent, *(lesson.agent for lesson in lessons)})
        records = [record for record in records if record.run_id not in seen]
        seen |= {record.run_id for record in records}
        labels = await labels_of(store, records)
        without_check = [lesson for lesson in lessons if not lesson.check]
        proposals = await proposals_of_runs(records, without_check, labels, draft=draft, weaker=weaker)
        return [replace(proposal, agent=agent) for proposal in proposals]

    async def _agents(self) -> list[str]:
        """The agents whose runs are examined: the chosen agent, else those with lessons first."""
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
        counters: dict[str, Counters] = {}
        if self._store is not None:
            for folder in await asyncio.to_thread(self.folders):
                counters |= await Impact(self._store, folder.name).all_counters()
        return counters


def _relative(entry: Entry) -> str:
    relative = os.path.relpath(entry.file) if entry.file else ".."
    return entry.place if relative.startswith("..") else relative


def _matches(lesson_id: str, part: str) -> bool:
    stem = _stem(lesson_id)
    without_day = stem[len("YYYY-MM-DD-") :]
    return lesson_id.endswith(part) or any(text.startswith(part) for text in (lesson_id, stem, without_day))


def _stem(lesson_id: str) -> str:
    return lesson_id.partition("/")[2]


def _day(entry: Entry) -> str:
    """The day in the name of a document, or else of its last change."""
    stem = _stem(entry.id)
    return stem[:10] if stem[:4].isdecimal() else str(entry.day)
