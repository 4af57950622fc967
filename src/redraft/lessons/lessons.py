"""Lessons: what an agent has learnt, and how it goes on learning."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from redraft.core.check import check_share
from redraft.core.errors import ConfigError, LessonFileError, ModelError
from redraft.core.protocols import ChatModel, Embedder
from redraft.core.result import ReflectionResult
from redraft.core.settings import load_settings, project_folder
from redraft.core.task import Advice, Task
from redraft.lessons.advising import Known, advice_of
from redraft.lessons.choices import check_choices
from redraft.lessons.duties import Duty, due_error
from redraft.lessons.ended import failure_of, outcome_of
from redraft.lessons.fulfilling import Fulfilling
from redraft.lessons.learning import Learning, given
from redraft.lessons.memory import Memory
from redraft.lessons.outcome import Outcome
from redraft.lessons.query import Found, Query
from redraft.lessons.raised import Raised
from redraft.lessons.settling import Settling
from redraft.lessons.trust import refusal_of
from redraft.lessons.upkeep import Problem, Upkeep
from redraft.lessons.writing import FORMS, MANDATORY
from redraft.models.embed import embedder_of
from redraft.models.names import model_of
from redraft.stores.base import Store
from redraft.stores.memory import MemoryStore
from redraft.stores.place import project_store

if TYPE_CHECKING:
    from redraft.lessons.content import Content, LessonKind
    from redraft.lessons.counting import Counters
    from redraft.lessons.lesson import Lesson, Status

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
