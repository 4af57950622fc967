"""Give the runs of a task its note, and learn from the runs whose output was accepted."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from redraft._calls import awaited
from redraft._steps import answer, uncancelled
from redraft._telemetry import traced
from redraft._texts import estimate_tokens
from redraft._validation import named_error
from redraft.errors import ConfigError, RedraftError, StoreError
from redraft.evaluate.criteria import criteria_of
from redraft.evaluate.requirements import requirements_of
from redraft.loop.journal import Journalled
from redraft.models.metered import MeteredModel
from redraft.models.names import model_of
from redraft.notes.checklist import CheckReflectionStrategy, has_checks
from redraft.notes.note import (
    Arm,
    Note,
    NotedTask,
    NoteUse,
    ReflectedListener,
    Rollback,
    TaskReflectedEvent,
    TaskReflection,
    note_block,
    size_of,
)
from redraft.notes.store import Notebook, NoteStore
from redraft.notes.strategy import LlmReflectionStrategy, storable
from redraft.notes.task import ReflectionConfig, ReflectionInput, Task, TaskIdentity
from redraft.notes.trial import DEFAULT_TRIAL, RUNS_BEFORE_TRIAL, Trial, arm_of, share_of
from redraft.protocols import ChatModel, ModelChoice
from redraft.redact.log import logger
from redraft.stores.base import Record
from redraft.stores.run_index import NOTE_COST, Expense, spent
from redraft.types import (
    NOT_REPORTED,
    NOTHING_USED,
    Advice,
    QualityCriterion,
    ReflectionEvaluation,
    TokenUsage,
)

if TYPE_CHECKING:
    from redraft.notes.task import ReflectionStrategy
    from redraft.protocols import ChatReply, ChatRequest
    from redraft.settings import Settings
    from redraft.stores.base import Store
    from redraft.types import PlainTask

R = TypeVar("R")

NO_MODEL = (
    "there is no model for it: give ReflectionConfig.model, Task.model, or the ensemble's model (or set "
    "REDRAFT_MODEL)"
)
IN_FORCE = "the note in force on this task"


@dataclass(frozen=True, slots=True)
class InjectedNote:
    """The note in a run's prompt, or why there is none."""

    arm: Arm = "none"
    version: int | None = None
    """The version in the prompt; in a trial, this may be another version than `in_force`, or none."""
    in_force: int | None = None
    text: str = ""
    tokens: int = 0
    why: str = ""
    unread: bool = False
    """Whether the notes could not be read, which was logged."""
    line: int | None = None
    """The value of `NotedTask.since` when the note was chosen; None if unknown."""

    def advice(self) -> tuple[Advice, ...]:
        """The note, if any, as advice for drafts and revisions."""
        if not self.text:
            return ()
        source = "note" if self.version is None else f"note v{self.version}"
        return (Advice(self.text, source, self.why, self.tokens, is_note=True),)

    def diagnostics(self) -> dict[str, str]:
        """Diagnostics of the run: whether a trial withheld the note."""
        if self.arm != "control":
            return {}
        instead = "no note" if self.version is None else f"version {self.version}"
        return {
            "trial": f"This is a control run of the trial of this task's notes: it was given {instead} "
            f"instead of version {self.in_force}, to see whether the notes help."
        }


NO_NOTE = InjectedNote()


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """A run to learn from: its accepted output, and the note that it had."""

    run_id: str
    injected: InjectedNote
    output: str
    evaluation: ReflectionEvaluation | None = None
    """The evaluation of the output; None if it was not judged."""
    first_evaluation: ReflectionEvaluation | None = None
    """The evaluation of the first version; None if it was not judged."""
    journal: Journalled | None = None
    """The journal for the steps of learning; None if the run is not stored."""

    @property
    def score(self) -> float | None:
        """The score of the first version; None if it is not comparable with other runs."""
        return self.first_evaluation and self.first_evaluation.comparable_score


@dataclass(slots=True)
class JournalledModel:
    """A `ChatModel` whose replies are recorded in the current step; replayed replies count as used, too."""

    model: MeteredModel
    replayed: TokenUsage = NOTHING_USED

    @property
    def used(self) -> TokenUsage:
        """The usage of all calls."""
        return self.model.used + self.replayed

    @property
    def name(self) -> str:
        """The name of the wrapped model."""
        return self.model.name

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Call the model, or replay its recorded reply."""
        before = self.model.used
        reply = await answer(self.model, request)
        if self.model.used == before:
            self.replayed += reply.usage
        return reply


@dataclass(frozen=True, slots=True)
class WrittenNote:
    """A note as a strategy wrote it, and the usage of writing it."""

    reflection: TaskReflection
    usage: TokenUsage


@dataclass(frozen=True, slots=True)
class Learned:
    """The stored note and its usage; without a note, `problem` says why."""

    reflection: TaskReflection | None = None
    version: int = 0
    is_first: bool = False
    rollback: Rollback | None = None
    usage: TokenUsage = NOTHING_USED
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """Chooses the note for each run of a task, and reflects on accepted runs."""

    task: Task
    config: ReflectionConfig
    notebook: Notebook
    model: ChatModel | None = None
    """The model of the config, else of the task, else of the ensemble; None without a model."""
    listeners: Sequence[ReflectedListener] = ()
    criteria: tuple[QualityCriterion, ...] = ()
    """The criteria that judge the output."""

    async def choose_note(self, run_id: str, inputs: Mapping[str, Any]) -> InjectedNote:
        """Choose the note for a run: the note in force, or the alternative of a trial.

        If the notes can't be read, the run has no note, with a single warning.
        """
        choice = partial(self._choose_note, run_id, inputs)
        return await traced("choose_note", self.task.label, run_id, choice)

    async def _choose_note(self, run_id: str, inputs: Mapping[str, Any]) -> InjectedNote:
        identity, trial = TaskIdentity.of(self.task), self.config.trial
        revisions = self.notebook if isinstance(self.notebook, NoteStore) else None
        try:
            current = await uncancelled(self.notebook.current(identity), "reading the note", "the run")
            if current is None:
                return NO_NOTE
            noted = None if revisions is None else await revisions.noted(identity)
            line = None if noted is None else noted.since
            if size_of(current.reflection, self.task.plain()) == 0:
                return InjectedNote(in_force=current.version, why="the note is still empty", line=line)
            note, arm, why = current, "note", IN_FORCE
            if revisions and trial and noted is not None and _is_control(trial, run_id, noted):
                arm, why = "control", "a control run of the trial: the note before the one in force"
                previous = current.based_on if trial.against == "previous" else None
                note = None if previous is None else await revisions.revision(identity, previous)
        except Exception as error:  # noqa: BLE001 (a run without its note is better than no run)
            logger.warning(
                "The task %r runs without its note, which can't be read: %s", self.task.title, error
            )
            return InjectedNote(unread=True)
        if note is None:
            why = "a control run of the trial: no note"
            return InjectedNote(arm, in_force=current.version, why=why, line=line)
        required = [each.text for criterion in self.criteria for each in requirements_of(criterion)]
        text = note_block(note.reflection, self.task.plain(), inputs, required)
        version = None if revisions is None else note.version
        return InjectedNote(arm, version, current.version, text, estimate_tokens(text), why, line=line)

    async def learn(self, run: AcceptedRun) -> tuple[Learned, TaskReflectedEvent | None]:
        """Reflect on a run, store the note and notify the listeners; return what was learned, and the event.

        A resumed run is reflected on only once. Never raises an `Exception`: a failure leaves the notes as
        they were and logs a warning, unless the run already warned that its note can't be read. After each
        stored note, evaluates the trial of the notes.
        """
        metered = None if self.model is None else JournalledModel(MeteredModel(self.model))
        is_new = False

        async def write() -> Learned:
            nonlocal is_new
            learned = await self._reflect(run, metered)
            await _record_cost(run, learned.usage)
            is_new = True
            return learned

        async def learn() -> Learned:
            try:
                step = once(run.journal, "reflection", Learned, write)
                return await uncancelled(step, "the reflection", "the run")
            except Exception as error:  # noqa: BLE001 (the output is already accepted, and the previous note stays)
                problem = str(error) if isinstance(error, RedraftError) else named_error(error)
                level = logging.INFO if run.injected.unread else logging.WARNING
                logger.log(level, "No note was written on the task %r: %s", self.task.title, problem)
                used = NOTHING_USED if metered is None else metered.used
                return Learned(problem=problem, usage=used)

        learned = await traced("learn_note", self.task.label, run.run_id, learn)
        if not is_new or learned.reflection is None:
            return learned, None
        event = TaskReflectedEvent(
            self.task.description,
            learned.reflection,
            learned.is_first,
            TaskIdentity.of(self.task),
            learned.version,
            run.run_id,
            learned.rollback,
        )
        for listener in self.listeners:
            try:
                await uncancelled(awaited(listener)(event), "the listener", "the run")
            except Exception:
                logger.exception("A listener of on_task_reflected failed for the task %r.", self.task.title)
        return learned, event

    async def _reflect(self, run: AcceptedRun, metered: JournalledModel | None) -> Learned:
        identity, run_id, injected, config = TaskIdentity.of(self.task), run.run_id, run.injected, self.config
        notebook = self.notebook
        if isinstance(notebook, NoteStore):
            await notebook.record_use(identity, NoteUse(run_id, injected.version, injected.arm, run.score))
        strategy = config.strategy or self._default_strategy(metered)
        task, prior = self.task.plain(), await notebook.current(identity)
        subject = self._subject(run, task, prior)

        async def write() -> WrittenNote:
            reflection = storable(await awaited(strategy)(subject), subject)
            used = NOT_REPORTED if config.strategy is not None or metered is None else metered.used
            return WrittenNote(reflection, used)

        written = await once(run.journal, "note", WrittenNote, write)
        note, is_first = await notebook.append(
            task,
            written.reflection,
            run_id=run_id,
            based_on=injected.in_force,
            name=self.task.name,
            trial=config.trial or None,
            arm=injected.arm,
            line=injected.line,
        )
        rollback = None
        if config.trial and isinstance(notebook, NoteStore):
            settle = partial(self._settle_trial, notebook, identity, config.trial)
            rollback = await traced("settle_trial", self.task.label, run_id, settle)
        return Learned(note.reflection, note.version, is_first, rollback, written.usage)

    def _subject(self, run: AcceptedRun, task: PlainTask, prior: Note | None) -> ReflectionInput:
        """The input of a strategy, without anything that the next writer may not know."""
        criteria = tuple(
            criterion if criterion.shown is True else replace(criterion, evaluator_config={})
            for criterion in self.criteria
            if criterion.shown is not False
        )
        return ReflectionInput(
            task,
            run.output,
            prior and prior.reflection,
            run.evaluation and run.evaluation.for_writer(),
            self.config.max_tokens,
            run.first_evaluation and run.first_evaluation.for_writer(),
            criteria,
        )

    def _default_strategy(self, model: ChatModel | None) -> ReflectionStrategy:
        """The strategy for the task's criteria; without checks, it needs a model."""
        if not has_checks(self.criteria):
            if model is None:
                raise ConfigError(NO_MODEL)
            return LlmReflectionStrategy(model)
        return CheckReflectionStrategy(model)

    async def _settle_trial(self, notes: NoteStore, identity: str, trial: Trial) -> Rollback | None:
        """Roll back the note if its trial requires it. A failure does not undo the note just stored."""
        try:
            return await notes.settle(identity, trial)
        except Exception as error:  # noqa: BLE001 (see above)
            logger.warning(
                "The trial of the notes on the task %r could not be evaluated: %s", self.task.title, error
            )
            return None


async def once(journal: Journalled | None, name: str, returns: type[R], fn: Callable[[], Awaitable[R]]) -> R:
    """Do a step of a task's run outside its loop; a process that resumes the run does not repeat it."""
    return await (fn() if journal is None else journal.outside(name, returns, fn))


async def _record_cost(run: AcceptedRun, used: TokenUsage) -> None:
    """Record the usage of the note on a run in the index of runs; a failure is only logged."""
    if run.journal is None or used == NOTHING_USED:
        return
    index = Expense(datetime.now(UTC), run.run_id, **spent([used])).to_data()
    try:
        await run.journal.store.put_if_absent(Record(NOTE_COST, f"{run.run_id}/reflection", {"index": index}))
    except StoreError as error:
        logger.warning("What the note on the run %s cost is not stored: %s", run.run_id, error)


async def note_cost(store: Store, run_id: str) -> TokenUsage:
    """The usage of the note on a run."""
    stored = await store.get(NOTE_COST, f"{run_id}/reflection")
    if stored is None:
        return NOTHING_USED
    cost = Expense.of(stored.data["index"])
    return TokenUsage(
        cost.input_tokens,
        cost.output_tokens,
        requests=cost.requests,
        failed_requests=cost.failed_requests,
        cost_usd=None if cost.unpriced else cost.known_usd,
    )


def _is_control(trial: Trial, run_id: str, noted: NotedTask) -> bool:
    """Whether a run is a control run; not before the notes have a few revisions."""
    if noted.run_count < RUNS_BEFORE_TRIAL or not noted.on_trial:
        return False
    return arm_of(share_of(trial, noted), run_id, noted.identity) == "control"


def learner_of(
    task: Task,
    model: ModelChoice | None,
    notebook: Notebook,
    listeners: Sequence[ReflectedListener],
    settings: Settings,
) -> Learner | None:
    """The learner for a task; None if the task is not reflected on.

    `model` is the ensemble's. A task without its own trial has the default trial, if there are scores to
    compare. Without a model, a warning says what its notes will lack. Raises `ConfigError` for a model that
    can't be used, and for a trial without scores to compare.
    """
    config = task.config
    if config is None:
        return None
    has_revisions = isinstance(notebook, NoteStore)
    if config.trial is None and task.is_judged and has_revisions:
        config = replace(config, trial=DEFAULT_TRIAL)
    if config.trial and not task.is_judged:
        raise ConfigError(
            f"The trial of the task {task.title!r} needs criteria, because a trial compares scores."
        )
    if config.trial and not has_revisions:
        raise ConfigError(
            f"The trial of the task {task.title!r} needs a store that keeps revisions and scores, such as "
            "SqliteReflectionStore; a custom store with only store() and retrieve() doesn't."
        )
    named = next(
        (choice for choice in (config.model, task.model, model, settings.model) if choice is not None), None
    )
    reflecting = None if named is None or config.strategy is not None else model_of(named, settings)
    criteria = _criteria_of(task)
    if reflecting is None and config.strategy is None and has_checks(criteria):
        logger.warning(
            "The notes on the task %r contain the tests that failed, but no advice: %s",
            task.title,
            NO_MODEL,
        )
    return Learner(task, config, notebook, reflecting, listeners, criteria)


def _criteria_of(task: Task) -> tuple[QualityCriterion, ...]:
    """The criteria that judge a task's output; empty if it is not judged."""
    if not task.is_judged:
        return ()
    own, kind = (
        (None, "") if task.pattern is None else (task.pattern.quality_criteria, task.pattern.task_type)
    )
    return criteria_of(own if task.criteria is None else task.criteria, task.task_type or kind)
