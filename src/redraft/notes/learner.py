"""Learn from an accepted run: reflect on it, store the note, and evaluate its trial."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

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
from redraft.notes.store import Notebook
from redraft.notes.strategy import LlmReflectionStrategy, storable
from redraft.notes.task import ReflectionConfig, ReflectionInput, ReflectionStrategy, Task, TaskIdentity
from redraft.notes.task_run import InjectedNote
from redraft.protocols import ChatModel
from redraft.redact.log import logger
from redraft.types import NOT_REPORTED, NOTHING_USED, ReflectionEvaluation, TokenUsage

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
        """Reflect on a run, store the note and notify the listeners; return what was learned, and the event.

        A resumed run is reflected on only once. Never raises an `Exception`: a failure leaves the notes as
        they were and logs a warning, unless the run has already warned that its note can't be read. After
        each stored note, the trial of the notes is evaluated.
        """
        new: Learned | None = None
        metered = None if self.model is None else MeteredModel(self.model)

        async def learn() -> Learned:
            nonlocal new
            new = await self._learn(run, metered)
            return new

        try:
            learned = await run.key.once("reflection", Learned, learn)
        except Exception as error:  # noqa: BLE001 (the output is accepted already, and the note before it stands)
            problem = str(error) if isinstance(error, RedraftError) else f"{type(error).__name__}: {error}"
            level = logging.INFO if run.injected.unread else logging.WARNING
            logger.log(level, "No note was made on the task %r: %s", self.task.title, problem)
            return Learned(problem=problem, usage=NOTHING_USED if metered is None else metered.used), None
        if new is None or new.reflection is None:
            return learned, None
        event = TaskReflectedEvent(
            self.task.description,
            new.reflection,
            new.is_first,
            TaskIdentity.of(self.task),
            new.version,
            run.key.run_id,
            new.rollback,
        )
        for listener in self.listeners:
            try:
                await awaited(listener)(event)
            except Exception:
                logger.exception("A listener of reflections failed on the task %r.", self.task.title)
        return learned, event

    async def _learn(self, run: AcceptedRun, metered: MeteredModel | None) -> Learned:
        identity, injected, config = TaskIdentity.of(self.task), run.injected, self.config
        use = NoteUse(run.key.run_id, injected.version, injected.arm, run.score)
        await self.notebook.used(identity, use)
        strategy, task = self._strategy(metered), self.task.plain()
        prior = await self.notebook.current(identity)
        subject = ReflectionInput(
            task, run.output, None if prior is None else prior.reflection, run.evaluation, config.max_tokens
        )
        reflection = storable(await awaited(strategy)(subject), subject)
        note, is_first = await self.notebook.append(
            task,
            reflection,
            run_id=run.key.run_id,
            based_on=injected.in_force,
            name=self.task.name,
            trial=config.trial,
        )
        used = NOT_REPORTED if config.strategy is not None or metered is None else metered.used
        return Learned(note.reflection, note.version, is_first, await self._settle_trial(identity), used)

    def _strategy(self, metered: MeteredModel | None) -> ReflectionStrategy:
        if self.config.strategy is not None:
            return self.config.strategy
        if metered is None:
            raise ConfigError(NO_MODEL)
        return LlmReflectionStrategy(metered)

    async def _settle_trial(self, identity: str) -> Rollback | None:
        """Roll the note back if its trial says so. A failure here does not undo the note just stored."""
        if self.config.trial is None:
            return None
        try:
            return await self.notebook.settle(identity, self.config.trial)
        except Exception as error:  # noqa: BLE001 (see above)
            logger.warning("The trial of the notes on %r was not evaluated: %s", self.task.title, error)
            return None


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
    """What was stored and what it cost; if nothing was, `problem` says why."""

    reflection: TaskReflection | None = None
    version: int = 0
    is_first: bool = False
    rollback: Rollback | None = None
    usage: TokenUsage = NOTHING_USED
    problem: str = ""
