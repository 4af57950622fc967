"""Lessons: what an agent has learnt, and how it goes on learning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from contextvars import Context
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from redraft._codec import from_record, to_record
from redraft._texts import shortened
from redraft._validation import check_share
from redraft.errors import ConfigError, LessonFileError, ModelError, OutputError, StoreError
from redraft.lessons.advice import Known, advice_of
from redraft.lessons.duties import Duties, Duty, due_error
from redraft.lessons.folder import NEARLY, RULES, Filing, overlap, words_of
from redraft.lessons.impact import Counting, ScoredRun
from redraft.lessons.index import Found, LessonIndex, Query, of_many_machines
from redraft.lessons.lesson import Content, Failure, Lesson, check_choices
from redraft.lessons.outcome import Outcome, Raised, failure_of, outcome_of, score_of
from redraft.lessons.playbooks import PLAYBOOKS, Playbook, Playbooks
from redraft.lessons.rules import Rules
from redraft.lessons.trust import LONGEST, Cleaner, refusal_of
from redraft.lessons.writer import FORMS, MANDATORY, Replay, Written, write_content
from redraft.models.embed import embedder_of
from redraft.models.names import model_of
from redraft.protocols import ChatModel, Embedder
from redraft.redact.log import logger
from redraft.settings import load_settings, project_folder
from redraft.stores.base import Record, Store, intact
from redraft.stores.location import project_store
from redraft.stores.memory import MemoryStore
from redraft.text.characters import without_middle
from redraft.types import Advice, ReflectionResult, Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from redraft.lessons.impact import Counters
    from redraft.lessons.lesson import LessonKind, Status
    from redraft.lessons.rules import Rule
    from redraft.models.embed import NamedEmbedder

AT_ONCE = 32
"""Lessons that are embedded after something was learnt."""
AT_MOST_NOW = 8
"""Lessons that a question waits for, where an event loop ended before they were embedded."""


class Backlog:
    """Embed the newest lessons that have no vector, so that they are found by meaning.

    That goes on in the event loop that began it. Where this ends first, the next question makes up for it, in
    another process, too. A failure is logged, and costs nothing but that the full text alone finds a lesson,
    until something else is learnt.
    """

    def __init__(self, index: LessonIndex) -> None:
        self._index = index
        self._task: asyncio.Task[None] | None = None
        self._is_behind = True  # an earlier process may have ended too soon

    def begin(self) -> None:
        """Begin, or let what is under way look once more."""
        self._is_behind = True
        if not self._is_under_way():
            # Without the context of who begins it: this belongs to no run, and to no step of one.
            self._task = asyncio.create_task(self._work_off(AT_ONCE), context=Context())

    async def catch_up(self, agent: str | None) -> None:
        """Embed a few of an agent, or of all, where a loop ended too soon; what is under way goes on."""
        if not self._is_under_way():
            await self._work_off(AT_MOST_NOW, agent)

    async def wait(self) -> None:
        """Wait for what was begun in this event loop."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    def _is_under_way(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def _work_off(self, most: int, agent: str | None = None) -> None:
        while self._is_behind:
            self._is_behind = False
            try:
                await self._index.fill(most, agent)
            except asyncio.CancelledError:
                self._is_behind = True
                raise
            except Exception as error:  # noqa: BLE001 (it may be an embedder of anybody's, and nobody waits)
                logger.warning("New lessons are found by their words alone for now: %s", error)


WAITING = "lesson_waiting"
"""The kind of the records."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Hold the rule and the steps that came with a lesson in quarantine."""

    lesson: str
    principle: str = ""
    replay: Replay | None = None


class WaitingRoom:
    """Keep what waits with the lessons of one agent, in a store."""

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._agent = agent

    async def enter(self, lesson: str, task: Task, principle: str, replay: Replay | None) -> None:
        """Let a lesson wait."""
        waiting = Waiting(lesson, principle, replay)
        data = to_record(waiting) | {"lesson": lesson}  # what it is searched by is there whatever it is
        await self._store.put(Record(WAITING, f"{self._prefix(task)}{lesson.rpartition('/')[2]}", data))

    async def of_task(self, task: Task) -> list[str]:
        """Return the ids of the lessons that this very task taught and that still wait, the newest first."""
        found = await self._store.find(WAITING, prefix=self._prefix(task), newest_first=True)
        return [from_record(Waiting, one.data).lesson for one in intact(found)]

    async def leave(self, lesson: str) -> Waiting | None:
        """Return what waited with a lesson, for the last time; to one caller only."""
        found = intact(await self._store.find(WAITING, where={"lesson": lesson}))
        if not found or not await self._store.delete(WAITING, found[0].key):
            return None
        return from_record(Waiting, found[0].data)

    def _prefix(self, task: Task) -> str:
        # Found by the task, which happens at the beginning of each run.
        return f"{self._agent}/{_identity(task)}/"


def _identity(task: Task) -> str:
    # What a task says may be secret; that two are the same shows in their hashes.
    return sha256(" ".join(task.description.split()).encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Memory:
    """Hold the parts of one agent's memory. `agent` is its name, `folder` that of its files."""

    agent: str
    folder: str
    path: Path
    now: Callable[[], datetime]
    filing: Filing
    rules: Rules
    playbooks: Playbooks
    index: LessonIndex
    backlog: Backlog
    duties: Duties
    counting: Counting
    waiting: WaitingRoom

    @classmethod
    def of(
        cls,
        path: Path,
        agent: str,
        store: Store,
        embedder: NamedEmbedder | None,
        now: Callable[[], datetime],
    ) -> Memory:
        """Return the memory of an agent under a path; nothing is read or written yet."""

        def today() -> date:
            return now().date()

        filing = Filing(path, agent)
        folder = filing.folder.name
        index = LessonIndex(path, embedder, shared=of_many_machines(store))
        return cls(
            agent,
            folder,
            path,
            now,
            filing,
            Rules(path, agent, now=today),
            Playbooks(path, agent, now=today),
            index,
            Backlog(index),
            Duties(store, folder, now),
            Counting(store, folder),
            WaitingRoom(store, folder),
        )

    def active_rules(self) -> list[Rule]:
        """Return the rules to put before the agent; none, with a warning, where their file can't be read."""
        try:
            return self.rules.active()
        except LessonFileError as error:
            logger.warning("The agent goes without its rules: %s", error)
            return []

    def filing_of(self, lesson_id: str) -> Filing:
        """Return the filing of the agent whose lesson this is."""
        folder = lesson_id.partition("/")[0]
        return self.filing if folder == self.folder else Filing(self.path, folder)


SUMMARY_WORDS = 8
LONGEST_SUMMARY = 200
_MOST = 1_000
"""Characters of the task and of the error that a lesson is found by."""


class Learning:
    """Put what is learnt into the memory of an agent."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def reflect(
        self, outcome: Outcome, model: ChatModel, *, only_replicable: bool = False
    ) -> Lesson | None:
        """Have a model write what is to be learnt, and file it.

        With `only_replicable` nothing is filed unless the model says that it helps other tasks, too. Raises
        what `write_content` raises.
        """
        written = await write_content(outcome, model)
        if written.problem:
            about = f"the run {outcome.run_id!r}" if outcome.run_id else f"{outcome.task.description!r:.100}"
            logger.warning("The reflection on %s is not all a model's: %s", about, written.problem)
        if only_replicable and not written.principle and written.procedure is None:
            return None
        return await self.file(outcome, written)

    async def file(self, outcome: Outcome, written: Written, *, by_hand: bool = False) -> Lesson:
        """File what is to be learnt from how a task ended, redacted already; return the lesson.

        It waits in quarantine unless the outcome is trusted or a person wrote it.
        """
        memory = self._memory
        lesson = await asyncio.to_thread(self._lesson, outcome, written, by_hand=by_hand)
        filed = await asyncio.to_thread(memory.filing.file, lesson, by_hand=by_hand)
        lesson = filed.lesson
        is_other = lesson.content != written.content or lesson.status != "active"
        if by_hand and not filed.is_new and is_other and lesson.source == outcome.run_id:
            # A person's words take the place of a model's, and count whatever was decided before.
            changed = {"content": written.content, "status": "active", "why": "", "superseded_by": ""}
            lesson = await asyncio.to_thread(_changed, memory, lesson.id, changed)
            await self.admit(lesson)
        if filed.is_new:
            if lesson.status == "active":
                await self.follow(lesson, written.principle, written.procedure)
            else:
                await memory.waiting.enter(lesson.id, outcome.task, written.principle, written.procedure)
        if outcome.run_id:
            await memory.duties.fulfil(outcome.run_id, lesson.kind, lesson.id)
        memory.backlog.begin()
        return lesson

    async def admit(self, lesson: Lesson) -> None:
        """Let the rule and the steps that waited with a lesson follow it."""
        waited = await self._memory.waiting.leave(lesson.id)
        if waited is not None:
            await self.follow(lesson, waited.principle, waited.replay)

    async def follow(self, lesson: Lesson, principle: str, replay: Replay | None) -> None:
        """Add the rule and the steps that came with a lesson to those of the agent."""
        playbooks = self._memory.playbooks
        if principle:
            await self._add_rule(principle, lesson.id)
        if replay is not None:
            playbook = Playbook(
                lesson.summary,
                replay.steps,
                replay.strategy,
                replay.outcome,
                lesson.agent,
                lesson.day,
                lesson.task_type,
                lesson.tools,
                lesson.id,
                lesson.source,
            )
            try:
                await asyncio.to_thread(playbooks.add, playbook)
            except LessonFileError as error:
                logger.warning("The steps of the lesson %s are lost: %s", lesson.id, error)

    async def _add_rule(self, principle: str, lesson_id: str) -> None:
        needed = await self.needed()
        try:
            added = await asyncio.to_thread(
                self._memory.rules.add, principle, lesson_id, is_needed=lambda rule: rule.source in needed
            )
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s is lost: %s", lesson_id, error)
            return
        if added.rule is None:
            logger.info("The rule of the lesson %s was refused: %s.", lesson_id, added.why)

    async def needed(self) -> frozenset[str]:
        """Return the ids of the lessons that helped more often than they hurt."""
        counted = await self._memory.counting.all_counters()
        return frozenset(lesson for lesson, its in counted.items() if its.helped > its.hurt)

    async def expire(self) -> None:
        """End the rules and playbooks whose time is over; rules still needed are proposed to a person."""
        rules = self._memory.rules
        try:
            if await asyncio.to_thread(rules.due):
                needed = await self.needed()
                await asyncio.to_thread(rules.expire, lambda rule: rule.source in needed)
        except LessonFileError as error:
            logger.warning("The rules stay as they are: %s", error)
        await asyncio.to_thread(self._memory.playbooks.archive)

    def _lesson(self, outcome: Outcome, written: Written, *, by_hand: bool) -> Lesson:
        cleaner, task = Cleaner(), outcome.task
        described = cleaner.redacted(task.description)
        summary = " ".join(described[:LONGEST].split()[:SUMMARY_WORDS])
        return Lesson(
            written.content,
            self._memory.agent,
            self._memory.now().date(),
            shortened(cleaner.kept(summary), LONGEST_SUMMARY) if summary else "untitled",
            task=without_middle(described, _MOST),
            task_type=cleaner.redacted(task.task_type),
            tools=tuple(map(cleaner.redacted, outcome.tools or task.tools)),
            error=without_middle(cleaner.redacted(outcome.error), _MOST),
            confidence=written.confidence,
            status="active" if by_hand or outcome.trusted else "quarantined",
            source=outcome.run_id,
        )


def given(content: Content, task_status: str = "") -> Written:
    """Return what a person or a program wrote, its secrets withheld.

    Raises `ConfigError` for what no lesson may say, which names the field and the reason, and for another
    kind of reflection than how the task ended asks for.
    """
    if task_status and not isinstance(content, FORMS[task_status]):
        raise ConfigError(
            f"A task that ended as {task_status!r} takes a {FORMS[task_status].__name__}, "
            f"got a {type(content).__name__}."
        )
    cleaner = Cleaner()
    clean: dict[str, Any] = {}
    for one in fields(content):
        clean[one.name] = cleaner.redacted(getattr(content, one.name))
        if why := cleaner.refusal(clean[one.name]):
            raise ConfigError(f"{type(content).__name__}.{one.name} can't be kept in a lesson: {why}.")
    kept = replace(content, **clean)
    return Written(kept, principle=kept.rule if isinstance(kept, Failure) else "")


def _changed(memory: Memory, lesson_id: str, changed: dict[str, Any]) -> Lesson:
    return memory.filing_of(lesson_id).change(lesson_id, **changed)


class Settling:
    """Count a run for its lessons, release those that helped, and retire those that hurt."""

    def __init__(self, memory: Memory, upkeep: Upkeep) -> None:
        self._memory = memory
        self._upkeep = upkeep

    async def settle(self, result: ReflectionResult, outcome: Outcome | None) -> None:
        """Do so; `outcome` is how the run ended, None where that is not known."""
        if result.task is None:
            return
        memory, score = self._memory, score_of(result)
        lessons = await asyncio.to_thread(self._had, result)
        run = ScoredRun(
            result.run_id,
            memory.folder,
            memory.now(),
            score,
            result.task.task_type,
            tuple(lesson.id for lesson in lessons),
        )
        runs = await memory.counting.count(run)
        for lesson in lessons:
            if lesson.status == "quarantined":
                await self._release(lesson, result.run_id, score, succeeded=_succeeded(outcome))
            elif lesson.status == "active":
                await self._retire(lesson, runs)

    def _had(self, result: ReflectionResult) -> list[Lesson]:
        """Return the lessons that were put before a run and are still there."""
        found: dict[str, Lesson] = {}
        for advice in result.advice:
            with suppress(LessonFileError):  # advice from elsewhere, or a file that was deleted
                filing = self._memory.filing_of(advice.source)
                found[advice.source] = filing.folder.read(advice.source)
        return list(found.values())

    async def _release(self, lesson: Lesson, run_id: str, score: float | None, *, succeeded: bool) -> None:
        before = await self._memory.counting.score(lesson.source) if lesson.source else None
        better = score is not None and before is not None and score > before
        if lesson.source != run_id and (succeeded or better):
            await self._upkeep.approve(lesson.id, f"The attempt {run_id} with it did better.")

    async def _retire(self, lesson: Lesson, runs: Sequence[ScoredRun]) -> None:
        effect = await self._memory.counting.harm(lesson.id, runs)
        if effect is not None:
            why = (
                f"It hurt: runs with it scored {-effect.mean:.2f} less than runs without "
                f"(95 % interval {effect.low:.2f} to {effect.high:.2f})."
            )
            await self._upkeep.retire(lesson.id, why)
            await self._memory.counting.judged(lesson.id, runs)


def _succeeded(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "success"


class Fulfilling:
    """Reflect on the runs of one agent that have to be reflected on; many processes may do so at once."""

    def __init__(self, memory: Memory, learning: Learning) -> None:
        self._duties = memory.duties
        self._learning = learning

    async def begin(self, outcome: Outcome) -> None:
        """Write down that a run has to be reflected on."""
        await self._duties.begin(outcome, FORMS[outcome.status].kind)

    async def fulfil(self, outcome: Outcome, model: ChatModel) -> None:
        """Reflect on a run, unless somebody else is at it."""
        kind = FORMS[outcome.status].kind
        if not await self._duties.hold(outcome.run_id, kind):
            return
        try:
            await self._learning.reflect(outcome, model)
        except BaseException:
            await self._duties.release(outcome.run_id, kind)
            raise

    async def still_due(self, model: ChatModel | None) -> list[Duty]:
        """Do what is due where there is a model for it, and return what is left."""
        due = await self._duties.due()
        if not due or model is None:
            return due
        return [duty for duty in due if duty.outcome is None or not await self._made_up(duty.outcome, model)]

    async def _made_up(self, outcome: Outcome, model: ChatModel) -> bool:
        try:
            await self.fulfil(outcome, model)
        except (StoreError, ModelError, OutputError) as error:
            logger.warning("The run %r could not be reflected on: %s", outcome.run_id, error)
            return False
        return True


@dataclass(frozen=True, slots=True)
class Problem:
    """Name a lesson that a person should look at, and say why.

    `broken`: its file can't be understood; `duplicate`: it says what another says; `hidden`: it is put before
    nobody, for it is in quarantine, retired, superseded, or says what no lesson may. `other` is the lesson
    that a duplicate repeats.
    """

    id: str
    what: Literal["broken", "duplicate", "hidden"]
    why: str
    other: str = ""


class Upkeep:
    """Change the standing of lessons in the memory of an agent."""

    def __init__(self, memory: Memory, learning: Learning) -> None:
        self._memory = memory
        self._learning = learning

    async def follow(self, lesson: Lesson) -> None:
        """Let what came with a lesson go where a person's edit of its file has put the lesson."""
        if lesson.status == "active":
            await self._learning.admit(lesson)
        elif lesson.status != "quarantined":
            await self._drop(lesson.id)
        self._memory.backlog.begin()

    async def approve(self, lesson_id: str, why: str = "") -> Lesson:
        """Let a lesson be put before the model; its rule and its steps come with it."""
        lesson = await self.change(lesson_id, status="active", why=why, superseded_by="")
        await self.follow(lesson)
        return lesson

    async def retire(self, lesson_id: str, why: str) -> Lesson:
        """Put a lesson before nobody any more; nor the rule and the steps that came with it."""
        if not why.strip():
            raise ConfigError(f"To retire the lesson {lesson_id!r}, say why.")
        lesson = await self.change(lesson_id, status="retired", why=why)
        await self.follow(lesson)
        return lesson

    async def supersede(self, lesson_id: str, by: str) -> Lesson:
        """Let another lesson take the place of one; raises `LessonFileError` where one is not there."""
        if lesson_id == by:
            raise ConfigError(f"The lesson {lesson_id!r} can't take its own place.")
        await self.get(by)
        lesson = await self.change(lesson_id, status="superseded", superseded_by=by)
        await self.follow(lesson)
        return lesson

    async def merge(self, lesson_ids: Sequence[str], keep: str | None = None) -> Lesson:
        """Make one of lessons that say the same, and return it.

        `keep` stays as it is worded, without it the surest, of equally sure ones the newest; it is as sure as
        none of them being wrong, and is found by the tools of all. The others are superseded by it.
        """
        ids = list(dict.fromkeys(lesson_ids))
        if len(ids) < 2:  # noqa: PLR2004 (one has nothing to be merged with)
            raise ConfigError(f"Merging takes at least two lessons, got {ids!r}.")
        if keep is not None and keep not in ids:
            raise ConfigError(f"keep must be one of the lessons that are merged, got {keep!r}.")
        lessons = [await self.get(one) for one in ids]
        best = max(
            (one for one, its_id in zip(lessons, ids, strict=True) if keep in (None, its_id)),
            key=lambda one: (one.status == "active", one.confidence, one.day, one.id),
        )
        doubt = 1.0
        for one in lessons:
            doubt *= 1 - one.confidence
        tools = tuple(dict.fromkeys(tool for one in (best, *lessons) for tool in one.tools))
        merged = await self.change(best.id, tools=tools, confidence=round(1 - doubt, 2))
        for one in lessons:
            if one.id != best.id:
                await self.supersede(one.id, best.id)
        return merged

    async def get(self, lesson_id: str) -> Lesson:
        """Return a lesson as its file has it; raises `LessonFileError` where there is none."""
        return await asyncio.to_thread(self._read, lesson_id)

    async def edit(self, lesson_id: str, content: Content) -> Lesson:
        """Put other words, redacted already, in the place of a lesson's."""
        lesson = await self.change(lesson_id, content=content)
        self._memory.backlog.begin()
        return lesson

    async def change(self, lesson_id: str, **changed: Any) -> Lesson:
        """Write a lesson anew with some fields changed."""
        filing = self._memory.filing_of(lesson_id)
        return await asyncio.to_thread(lambda: filing.change(lesson_id, **changed))

    def problems(self) -> list[Problem]:
        """Return what a person should look at among the lessons of the agent, the archive left out."""
        folder = self._memory.filing.folder
        found: list[Problem] = []
        lessons: list[Lesson] = []
        for entry in folder.entries():
            if not entry.archived:
                try:
                    lessons.append(folder.read_entry(entry))
                except StoreError as error:
                    found.append(_broken(error, entry.id))
        found += broken_in(self._memory.rules, self._memory.playbooks, self._memory.folder)
        return [*found, *problems_among(lessons)]

    def _read(self, lesson_id: str) -> Lesson:
        return self._memory.filing_of(lesson_id).folder.read(lesson_id)

    async def _drop(self, lesson_id: str) -> None:
        """Take out what came with a lesson."""
        await self._memory.waiting.leave(lesson_id)
        folder = lesson_id.partition("/")[0]
        try:
            await asyncio.to_thread(Rules(self._memory.path, folder).drop, lesson_id)
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s may still stand: %s", lesson_id, error)
        await asyncio.to_thread(Playbooks(self._memory.path, folder).drop, lesson_id)


def broken_in(rules: Rules, playbooks: Playbooks, folder: str) -> Iterator[Problem]:
    """Name the rules and playbooks in an agent's folder that can't be understood."""
    for kept, name in ((rules, RULES), (playbooks, PLAYBOOKS)):
        place = f"{folder}/{name}"
        try:
            yield from (_broken(error, place) for error in kept.broken())
        except StoreError as error:  # nothing of it can be read
            yield _broken(error, place)


def problems_among(lessons: Sequence[Lesson]) -> Iterator[Problem]:
    """Name the lessons that are put before nobody, and those that nearly say what one before them says."""
    yield from (_hidden(lesson) for lesson in lessons if lesson.status != "active")
    barred = ((lesson, refusal_of(lesson)) for lesson in lessons if lesson.status == "active")
    yield from (Problem(lesson.id, "hidden", f"it holds {what}") for lesson, what in barred if what)
    yield from _duplicates([lesson for lesson in lessons if lesson.status == "active"])


def _broken(error: StoreError, place: str) -> Problem:
    return Problem(error.file if isinstance(error, LessonFileError) else place, "broken", str(error))


def _hidden(lesson: Lesson) -> Problem:
    why = lesson.why or (f"by {lesson.superseded_by}" if lesson.superseded_by else "")
    return Problem(lesson.id, "hidden", f"{lesson.status}: {why}" if why else lesson.status)


def _duplicates(lessons: Sequence[Lesson]) -> Iterator[Problem]:
    """Name each lesson that nearly says what one before it says."""
    known = [(one, words_of(one.content)) for one in lessons]
    for number, (one, words) in enumerate(known):
        for other, others in known[:number]:
            if one.kind == other.kind and overlap(words, others) >= NEARLY:
                yield Problem(one.id, "duplicate", f"It says nearly what {other.id} says.", other.id)
                break


T = TypeVar("T")

RECALLED = 3
MAX_TOKENS = 800
_OF_THIS_TASK = "learnt in an earlier attempt at this very task, and not approved yet"


def _utc_now() -> datetime:
    return datetime.now(UTC)


# Compared by identity: it stands for files that others change.
@dataclass(frozen=True, slots=True, eq=False)
class Lessons:
    """Keep what an agent learns, and put it before the agent when it is relevant.

    Lessons are files under `<path>/reflections/<agent>/`, which people may read, edit and keep in git;
    without a path it is the project's folder `memory`, or what REDRAFT_MEMORY says. What is counted is in
    `store`: the project's, one that is given, or with False none that outlives the process. `model` writes
    reflections: a name or a `ChatModel`; without one the model of the agent that has these lessons, else that
    of the settings. `embedder` finds lessons by meaning; without one that of the settings, else the offline
    one if it is installed, else full text alone. With `semantic` the lessons of all agents are searched, by
    meaning first. What is put before a run is at most `max_tokens` long. `clock` tells the time, with its
    zone.

    An `Agent(..., lessons=...)` just learns: with `auto` a run that failed, wholly or in part, is reflected
    on at its end, or, if that was cut short, at the beginning of the next one. Without a model the duty
    stays, and the next run raises `ReflectionDueError` until somebody gave a reflection or waived it. With
    `successes` a run that needed revisions to succeed is reflected on, too, and leaves a procedure if the
    model says that others can use it. A lesson waits in quarantine, put only before the very task that taught
    it, until an attempt with it did better or a person approved it; `trusted` says that nobody but you has a
    say in the agent's tasks, tools and texts, so that lessons are active at once.

    Serves many tasks and threads at once; any number of processes may share the files and the store. Raises
    `ConfigError` for what can't work, and `StoreError` where a file or the store can't be read or written.
    Reflexion Protocol.
    """

    path: str | Path | None = None
    _: KW_ONLY
    agent: str = "agent"
    model: str | ChatModel | None = None
    embedder: str | Embedder | Callable[[list[str]], Any] | None = None
    semantic: bool = False
    store: bool | Store = True
    max_tokens: int = MAX_TOKENS
    auto: bool = True
    successes: bool = False
    trusted: bool = False
    clock: Callable[[], datetime] = _utc_now
    _memory: Memory = field(init=False, repr=False)
    _learning: Learning = field(init=False, repr=False)
    _fulfilling: Fulfilling = field(init=False, repr=False)
    _upkeep: Upkeep = field(init=False, repr=False)
    _raised: Raised = field(init=False, repr=False, default_factory=Raised)

    def __post_init__(self) -> None:
        settings = load_settings()
        check_choices({one.name: getattr(self, one.name) for one in fields(self) if one.init}, settings)
        embedder = embedder_of(self.embedder, settings)
        path = Path(self.path).absolute() if self.path else project_folder() / settings.memory
        memory = Memory.of(path, self.agent, _store(self.store), embedder, self.clock)
        learning = Learning(memory)
        object.__setattr__(self, "_memory", memory)
        object.__setattr__(self, "_learning", learning)
        object.__setattr__(self, "_fulfilling", Fulfilling(memory, learning))
        object.__setattr__(self, "_upkeep", Upkeep(memory, learning))

    def with_model(self, model: ChatModel) -> Lessons:
        """Return these lessons with a model to write them, unless they have one of their own."""
        if self.model is not None:
            return self
        other = copy(self)
        object.__setattr__(other, "model", model)
        return other

    # --- learning ------------------------------------------------------------------------------------------

    async def reflect_on(
        self, what: Outcome | ReflectionResult, *, content: Content | None = None
    ) -> Lesson | None:
        """Write down what is to be learnt from how a task ended, and return the lesson.

        A person or a program may give the `content`; else the model writes it, in one call. A run leaves one
        lesson of a kind, however often this is called; content that is given takes the place of a model's.
        What nearly says what another lesson says is not filed: that one gets surer by 0.1, and is returned.
        None where it is not known how a run ended, or where the lesson of a run was deleted since.

        Raises `ConfigError` for content that no lesson may hold, and where there is no model; `ModelError`
        and `OutputError` where a success or a decision could not be put into words.
        """
        if not isinstance(what, Outcome | ReflectionResult):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"reflect_on takes the result of a run or an Outcome, got {what!r:.200}.")
        outcome = what if isinstance(what, Outcome) else outcome_of(what, trusted=self.trusted)
        if outcome is None:
            return None
        run_id = self._raised.run_of(outcome)
        outcome = replace(outcome, trusted=outcome.trusted or self.trusted, run_id=run_id)
        if content is not None:
            written = await asyncio.to_thread(given, content, outcome.status)
            return await self._embedded(self._learning.file(outcome, written, by_hand=True))
        kind = FORMS[outcome.status].kind
        if outcome.run_id and (known := await self._memory.duties.lesson_of(outcome.run_id, kind)):
            try:
                return await self.get(known)
            except LessonFileError:
                return None
        return await self._embedded(self._learning.reflect(outcome, self._model()))

    async def record(
        self,
        content: Content,
        task: str | Task,
        *,
        error: str = "",
        run_id: str = "",
        confidence: float | None = None,
    ) -> Lesson:
        """File a lesson that a person or a program wrote; it is active at once.

        Secrets in it are withheld. Raises `ConfigError` for what no lesson may say: an instruction to drop
        the rules or a check, a command, an address.
        """
        asked = Task(task) if isinstance(task, str) else task.asked()
        status = next((status for status, form in FORMS.items() if isinstance(content, form)), None)
        if status is None:
            raise ConfigError(
                f"A lesson is a Failure, a Partial, a Procedure or a Decision, got {content!r:.200}."
            )
        outcome = Outcome(asked, status, error=error, run_id=run_id, trusted=True)  # pyright: ignore[reportArgumentType] (the keys of FORMS)
        written = await asyncio.to_thread(given, content)
        if confidence is not None:
            check_share("confidence", confidence)
            written = replace(written, confidence=confidence)
        return await self._embedded(self._learning.file(outcome, written, by_hand=True))

    # --- advising ------------------------------------------------------------------------------------------

    async def recall(self, task: str | Task, k: int = RECALLED) -> list[Advice]:
        """Return what to put before a task: the `k` most relevant lessons, the rules, up to 3 playbooks.

        Each is quoted as data, with its id as `source` and the reason why it was chosen; together they have
        at most `max_tokens`, the best first. Raises `ReflectionDueError` while an earlier run of the agent
        that failed, wholly or in part, has left no reflection.
        """
        asked = Task(task) if isinstance(task, str) else task.asked()
        if due := await self._fulfilling.still_due(self._auto_model):
            raise due_error(due)
        lessons = await self._waiting(asked, k)
        if len(lessons) < k:
            lessons += await self.search(asked, k - len(lessons))
        known = Known(
            lessons,
            await asyncio.to_thread(self._memory.active_rules),
            await asyncio.to_thread(self._memory.playbooks.for_task, asked.task_type),
        )
        return advice_of(known, self._memory.folder, self.max_tokens)

    async def search(self, task: str | Task, k: int = RECALLED, *, error: str = "") -> list[Found]:
        """Return the `k` active lessons that are most relevant to a task, with scores and reasons."""
        asked = Task(task) if isinstance(task, str) else task.asked()
        agent = None if self.semantic else self.agent
        await self._memory.backlog.catch_up(agent)
        query = Query(asked.description, asked.task_type, asked.tools, error, agent, k)
        return await self._memory.index.search(query)

    async def observe(self, result: ReflectionResult) -> None:
        """Learn from how a run went, and count it for the lessons that it had.

        A lesson helped if the run's score is above the average of the agent's runs without it, of the same
        task type. One that surely hurts (by at least 10 runs with and 10 without) is retired, one in
        quarantine that helped is released. A run that failed is reflected on where there is a model.
        """
        outcome, model = outcome_of(result, trusted=self.trusted), self._auto_model
        must = outcome is not None and outcome.status in MANDATORY
        if outcome is not None and must:
            await self._fulfilling.begin(outcome)
        elif outcome is not None:
            await self._memory.duties.waive(outcome.run_id, "The run went on, and succeeded.")
        await Settling(self._memory, self._upkeep).settle(result, outcome)
        if outcome is not None and must and model is not None:
            await self._fulfilling.fulfil(outcome, model)
        elif outcome is not None and model is not None and self.successes and result.iterations_used:
            await self._learning.reflect(outcome, model, only_replicable=True)
        await self._learning.expire()
        self._memory.backlog.begin()  # what people added

    async def observe_failure(self, task: Task, run_id: str, error: Exception) -> None:
        """Learn from a run that made nothing; where its model failed, not before the next run.

        An error of the configuration teaches nothing that a lesson could mend.
        """
        outcome, model = failure_of(task, run_id, error, trusted=self.trusted), self._auto_model
        if outcome is None:
            return
        self._raised.add(outcome)
        await self._fulfilling.begin(outcome)
        if model is not None and not isinstance(error, ModelError):  # what has just failed says little
            await self._fulfilling.fulfil(outcome, model)

    # --- duties --------------------------------------------------------------------------------------------

    async def due(self) -> list[Duty]:
        """Return what has to be reflected on before the agent moves on, with how each run ended."""
        return await self._memory.duties.due()

    async def waive(self, run_id: str, why: str) -> None:
        """Let a run be forgotten without a reflection; raises `ConfigError` where nothing is due of it."""
        await self._memory.duties.waive_by_hand(run_id, why)

    # --- upkeep --------------------------------------------------------------------------------------------

    async def get(self, lesson_id: str) -> Lesson:
        """Return a lesson by its id, as its file has it; raises `LessonFileError` where there is none."""
        return await self._upkeep.get(lesson_id)

    async def find(
        self, *, status: Status | None = None, kind: LessonKind | None = None, archived: bool = False
    ) -> list[Lesson]:
        """Return the agent's lessons, the oldest first; broken files are left out, `problems` names them."""
        lessons = await asyncio.to_thread(lambda: list(self._memory.filing.lessons(archived=archived)))
        found = [one for one in lessons if status in (None, one.status) and kind in (None, one.kind)]
        return sorted(found, key=lambda one: (one.day, one.id))

    async def approve(self, lesson_id: str, why: str = "") -> Lesson:
        """Let a lesson in quarantine, or one that was retired, be put before the agent."""
        return await self._embedded(self._upkeep.approve(lesson_id, why))

    async def retire(self, lesson_id: str, why: str) -> Lesson:
        """Put a lesson before nobody any more; it stays among the files, with the reason."""
        return await self._embedded(self._upkeep.retire(lesson_id, why))

    async def supersede(self, lesson_id: str, by: str) -> Lesson:
        """Let another lesson take the place of one, which stays among the files and names its successor."""
        return await self._embedded(self._upkeep.supersede(lesson_id, by))

    async def merge(self, lesson_ids: Sequence[str], *, keep: str | None = None) -> Lesson:
        """Make one of lessons that say the same: `keep`, else the surest, stays and supersedes the others.

        Its words stay as they are. Its confidence becomes that of not all of them being wrong, its tools
        those of all. Raises `ConfigError` where `keep` is none of them.
        """
        return await self._embedded(self._upkeep.merge(lesson_ids, keep))

    async def edit(self, lesson_id: str, content: Content) -> Lesson:
        """Put other words in the place of a lesson's; raises `ConfigError` for what no lesson may say."""
        written = await asyncio.to_thread(given, content)
        return await self._embedded(self._upkeep.edit(lesson_id, written.content))

    async def follow(self, lesson_id: str) -> None:
        """Let the rule and the steps that came with a lesson follow it, after its file was edited by hand."""
        await self._embedded(self._upkeep.follow(await self.get(lesson_id)))

    async def rate(self, lesson_id: str, helped: bool) -> None:
        """Count that a lesson helped, or hurt, as a person sees it."""
        await self.get(lesson_id)
        await self._memory.counting.rate(lesson_id, helped=helped, at=self.clock())

    async def counters(self, lesson_id: str) -> Counters:
        """Return how many runs had a lesson, and how often it helped and hurt."""
        return await self._memory.counting.counters(lesson_id)

    async def problems(self) -> list[Problem]:
        """Return what a person should look at: broken files, duplicates, hidden lessons with the reason."""
        return await asyncio.to_thread(self._upkeep.problems)

    async def aclose(self) -> None:
        """Let go of the index over the files; the next use opens it again. A store is the caller's."""
        await self._memory.backlog.wait()
        await self._memory.index.aclose()

    async def _embedded(self, change: Awaitable[T]) -> T:
        """Return what comes of a change by hand when it is found by meaning, too."""
        changed = await change
        await self._memory.backlog.wait()
        return changed

    @property
    def _auto_model(self) -> ChatModel | None:
        """The model that reflects unasked; None where that is not wanted, or there is none."""
        return self._model() if self.auto and (self.model or load_settings().model) else None

    def _model(self) -> ChatModel:
        return model_of(self.model, load_settings())

    async def _waiting(self, task: Task, k: int) -> list[Found]:
        """Return the lessons in quarantine that this very task taught: a retry sees what has been tried."""
        found: list[Found] = []
        for lesson_id in await self._memory.waiting.of_task(task):
            try:
                lesson = await self.get(lesson_id)
            except LessonFileError:  # a person deleted it
                continue
            if lesson.status != "quarantined":  # a person's edit of the file decided
                await self._upkeep.follow(lesson)
            elif len(found) < k and not refusal_of(lesson):
                found.append(Found(lesson, 1.0, _OF_THIS_TASK))
        return found


def _store(given_one: bool | Store) -> Store:
    if not isinstance(given_one, bool):
        return given_one
    return (project_store() if given_one else None) or MemoryStore()
