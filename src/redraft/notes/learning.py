"""Learning from an accepted run: reflect on it, store the note, and look at its trial."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redraft._calls import awaited
from redraft.errors import ConfigError, RedraftError
from redraft.loop.keeper import RunKey
from redraft.models.metered import MeteredModel
from redraft.notes.note import (
    NoteUse,
    ReflectedListener,
    Rollback,
    TaskReflectedEvent,
    TaskReflection,
)
from redraft.notes.store import InjectedNote, Notebook
from redraft.notes.strategy import LlmReflectionStrategy, storable
from redraft.notes.task import ReflectionConfig, ReflectionInput, ReflectionStrategy, Task, TaskIdentity
from redraft.protocols import ChatModel
from redraft.redact.log import logger
from redraft.types import NOT_REPORTED, NOTHING_USED, ReflectionEvaluation, TokenUsage

if TYPE_CHECKING:
    from redraft.types import Task as Asked


NO_MODEL = (
    "there is no model for it: give ReflectionConfig.model, Task.model, or the ensemble's model (or set "
    "REDRAFT_MODEL)"
)


@dataclass(frozen=True, slots=True, eq=False)
class Learner:
    """Reflects on the accepted runs of one task.

    `model` is the config's, else the task's, else the ensemble's; None if there is none.
    """

    task: Task
    config: ReflectionConfig
    notebook: Notebook
    model: ChatModel | None = None
    listeners: Sequence[ReflectedListener] = ()

    async def learn(self, run: AcceptedRun) -> tuple[Learned, TaskReflectedEvent | None]:
        """Reflect on a run, store the note and tell the listeners; return what was learned and the event.

        A resumed run is reflected on once only. Never raises an `Exception`: a failure leaves the notes as
        they were and logs one warning (none if the run already warned that its note could not be read). The
        trial of the notes is looked at after each note that was stored.
        """
        made: Learned | None = None
        metered = None if self.model is None else MeteredModel(self.model)

        async def make() -> Learned:
            nonlocal made
            made = await self._learn(run, metered)
            return made

        try:
            learned = await run.key.once("reflection", Learned, make)
        except Exception as error:  # noqa: BLE001 (the output is accepted already, and the note before it stands)
            why = str(error) if isinstance(error, RedraftError) else f"{type(error).__name__}: {error}"
            level = logging.INFO if run.injected.unread else logging.WARNING
            logger.log(level, "No note was made on the task %r: %s", self.task.title, why)
            return Learned(problem=why, usage=NOTHING_USED if metered is None else metered.used), None
        if made is None or made.reflection is None:
            return learned, None
        event = self._event(run, made, made.reflection)
        await self._tell(event)
        return learned, event

    async def _learn(self, run: AcceptedRun, metered: MeteredModel | None) -> Learned:
        identity, injected = TaskIdentity.of(self.task), run.injected
        use = NoteUse(run.key.run_id, injected.version, injected.arm, run.score)
        await self.notebook.used(identity, use)
        asked = self.task.plain()
        reflection = await self._reflection(run, asked, metered)
        note, is_first = await self.notebook.append(
            asked,
            reflection,
            run_id=run.key.run_id,
            based_on=injected.in_force,
            name=self.task.name,
            trial=self.config.trial,
        )
        used = NOT_REPORTED if self.config.strategy is not None or metered is None else metered.used
        return Learned(note.reflection, note.version, is_first, await self._settled(identity), used)

    async def _reflection(
        self, run: AcceptedRun, asked: Asked, metered: MeteredModel | None
    ) -> TaskReflection:
        strategy = self._strategy(metered)
        prior = await self.notebook.current(TaskIdentity.of(asked))
        before = None if prior is None else prior.reflection
        given = ReflectionInput(asked, run.output, before, run.evaluation, self.config.max_tokens)
        return storable(await awaited(strategy)(given), given)

    def _strategy(self, metered: MeteredModel | None) -> ReflectionStrategy:
        if self.config.strategy is not None:
            return self.config.strategy
        if metered is None:
            raise ConfigError(NO_MODEL)
        return LlmReflectionStrategy(metered)

    async def _settled(self, identity: str) -> Rollback | None:
        """Roll the note back if its trial says so. A failure here does not undo the note just stored."""
        if self.config.trial is None:
            return None
        try:
            return await self.notebook.settle(identity, self.config.trial)
        except Exception as error:  # noqa: BLE001 (see above)
            logger.warning("The trial of the notes on %r was not looked at: %s", self.task.title, error)
            return None

    def _event(self, run: AcceptedRun, learned: Learned, reflection: TaskReflection) -> TaskReflectedEvent:
        return TaskReflectedEvent(
            self.task.description,
            reflection,
            learned.is_first,
            TaskIdentity.of(self.task),
            learned.version,
            run.key.run_id,
            learned.rollback,
        )

    async def _tell(self, event: TaskReflectedEvent) -> None:
        for listener in self.listeners:
            try:
                await awaited(listener)(event)
            except Exception:
                logger.exception("A listener of reflections failed on the task %r.", self.task.title)


@dataclass(frozen=True, slots=True)
class AcceptedRun:
    """What there is to learn from: an accepted output, and the note that the run was given.

    `score` is that of the first version, `evaluation` that of the output; None if nothing judged them.
    """

    key: RunKey
    injected: InjectedNote
    output: str
    score: float | None = None
    evaluation: ReflectionEvaluation | None = None


@dataclass(frozen=True, slots=True)
class Learned:
    """What was stored, or the `problem` because of which nothing was, and what it cost."""

    reflection: TaskReflection | None = None
    version: int = 0
    is_first: bool = False
    rollback: Rollback | None = None
    usage: TokenUsage = NOTHING_USED
    problem: str = ""
