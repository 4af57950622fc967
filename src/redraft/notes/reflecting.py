"""Reflecting: learn from an accepted output for the next run, without harm to this one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft.core.calls import awaited
from redraft.core.errors import ConfigError, RedraftError
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.protocols import ChatModel
from redraft.core.usage import NOT_REPORTED, NOTHING_USED, TokenUsage
from redraft.notes.config import ReflectionConfig
from redraft.notes.events import ReflectedListener, TaskReflectedEvent
from redraft.notes.given import GivenNote
from redraft.notes.identity import TaskIdentity
from redraft.notes.keeping import Keeping
from redraft.notes.llm_strategy import LlmReflectionStrategy
from redraft.notes.metered import Metered
from redraft.notes.note import NoteUse, Rollback
from redraft.notes.notebook import Notebook
from redraft.notes.reflection import TaskReflection
from redraft.notes.storable import storable
from redraft.notes.strategy import ReflectionInput, ReflectionStrategy
from redraft.notes.task import Task
from redraft.redact.log import logger

if TYPE_CHECKING:
    from redraft.core.task import Task as Asked

NO_MODEL = (
    "there is no model for it: give ReflectionConfig.model, Task.model, or the ensemble's model (or set "
    "REDRAFT_MODEL)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """Tell what there is to learn from: an accepted output, what the run was given and how well it began.

    `score` is the first version's; `evaluation` is that of the output, where anything judged it.
    """

    keeping: Keeping
    given: GivenNote
    output: str
    score: float | None = None
    evaluation: ReflectionEvaluation | None = None


@dataclass(frozen=True, slots=True)
class Learnt:
    """Say what was stored of a reflection, or with which `problem` nothing was, and what it cost."""

    reflection: TaskReflection | None = None
    version: int = 0
    is_first: bool = False
    rollback: Rollback | None = None
    usage: TokenUsage = NOTHING_USED
    problem: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Reflecting:
    """Reflect on the runs of one task.

    `model` is the one that the three steps lead to (the config's, the task's, the ensemble's), None where
    they lead to none.
    """

    task: Task
    config: ReflectionConfig
    notebook: Notebook
    model: ChatModel | None = None
    listeners: Sequence[ReflectedListener] = ()

    async def learn(self, run: Run) -> tuple[Learnt, TaskReflectedEvent | None]:
        """Reflect, store, and tell the listeners; return what they were told.

        Under a run id that was given, only once. Never raises an `Exception`: what fails leaves the notes as
        they were, with one warning that names the task and the reason; a run whose note could not be read
        had its warning. A trial is looked at when a note was stored: what else changes its scores, a run
        whose reflection failed, counts at the next one.
        """
        made: Learnt | None = None
        metered = None if self.model is None else Metered(self.model)

        async def make() -> Learnt:
            nonlocal made
            made = await self._learn(run, metered)
            return made

        try:
            learnt = await run.keeping.once("reflection", Learnt, make)
        except Exception as error:  # noqa: BLE001 (whatever it is, the output is there, and so is the note before)
            why = str(error) if isinstance(error, RedraftError) else f"{type(error).__name__}: {error}"
            level = logging.INFO if run.given.unread else logging.WARNING
            logger.log(level, "No note was made on the task %r: %s", self.task.title, why)
            return Learnt(problem=why, usage=NOTHING_USED if metered is None else metered.used), None
        if made is None or made.reflection is None:
            return learnt, None
        event = self._event(run, made, made.reflection)
        await self._tell(event)
        return learnt, event

    async def _learn(self, run: Run, metered: Metered | None) -> Learnt:
        identity, given = TaskIdentity.of(self.task), run.given
        use = NoteUse(run.keeping.run_id, given.version, given.arm, run.score)
        await self.notebook.used(identity, use)
        asked = self.task.asked()
        reflection = await self._reflection(run, asked, metered)
        note, is_first = await self.notebook.append(
            asked,
            reflection,
            run_id=run.keeping.run_id,
            based_on=given.in_force,
            name=self.task.name,
            trial=self.config.trial,
        )
        used = NOT_REPORTED if self.config.strategy is not None or metered is None else metered.used
        return Learnt(note.reflection, note.version, is_first, await self._settled(identity), used)

    async def _reflection(self, run: Run, asked: Asked, metered: Metered | None) -> TaskReflection:
        strategy = self._strategy(metered)
        prior = await self.notebook.current(TaskIdentity.of(asked))
        before = None if prior is None else prior.reflection
        given = ReflectionInput(asked, run.output, before, run.evaluation, self.config.max_tokens)
        return storable(await awaited(strategy)(given), given)

    def _strategy(self, metered: Metered | None) -> ReflectionStrategy:
        if self.config.strategy is not None:
            return self.config.strategy
        if metered is None:
            raise ConfigError(NO_MODEL)
        return LlmReflectionStrategy(metered)

    async def _settled(self, identity: str) -> Rollback | None:
        """Roll the note back if its trial says so; a failure takes nothing from the note just stored."""
        if self.config.trial is None:
            return None
        try:
            return await self.notebook.settle(identity, self.config.trial)
        except Exception as error:  # noqa: BLE001 (as said)
            logger.warning("The trial of the notes on %r was not looked at: %s", self.task.title, error)
            return None

    def _event(self, run: Run, learnt: Learnt, reflection: TaskReflection) -> TaskReflectedEvent:
        return TaskReflectedEvent(
            self.task.description,
            reflection,
            learnt.is_first,
            TaskIdentity.of(self.task),
            learnt.version,
            run.keeping.run_id,
            learnt.rollback,
        )

    async def _tell(self, event: TaskReflectedEvent) -> None:
        for listener in self.listeners:
            try:
                await awaited(listener)(event)
            except Exception:
                logger.exception("A listener of reflections failed on the task %r.", self.task.title)
