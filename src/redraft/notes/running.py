"""Running: one run of an ensemble under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any

from redraft.core.errors import EnsembleError
from redraft.core.steps import direct, inner_step
from redraft.core.texts import as_text
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.notes.ensemble_events import (
    EnsembleEvent,
    EnsembleFinished,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from redraft.notes.given import given_note
from redraft.notes.graph import Graph
from redraft.notes.keeping import Keeping
from redraft.notes.means import Means
from redraft.notes.reflecting import Reflecting, Run
from redraft.notes.result import BESIDE, EnsembleResult, TaskResult
from redraft.notes.task import Task
from redraft.notes.task_run import TaskRun


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Hold what all runs of an ensemble share: the order, what each task is done with, and learnt from."""

    graph: Graph
    means: Mapping[Task, Means]
    reflecting: Mapping[Task, Reflecting]


@dataclass(slots=True)
class Running:
    """Carry out the tasks of an ensemble in their order, those that may at once.

    `listener` hears of everything. `beside` begins a reflection that is not waited for; without it they are
    part of the run.
    """

    plan: Plan
    inputs: Mapping[str, Any]
    keeping: Keeping
    listener: Callable[[EnsembleEvent], None] | None = None
    beside: Callable[[Coroutine[Any, Any, None]], None] | None = None
    results: dict[Task, TaskResult] = field(default_factory=dict["Task", "TaskResult"])
    errors: dict[Task, Exception] = field(default_factory=dict["Task", Exception])
    lost: TokenUsage = NOTHING_USED
    _ended: dict[Task, asyncio.Event] = field(init=False)

    async def run(self) -> EnsembleResult:
        """Return what was made; raises `EnsembleError`, with that in it, where a task failed for good."""
        started = perf_counter()
        self._ended = {task: asyncio.Event() for task in self.plan.graph.tasks}
        async with asyncio.TaskGroup() as group:
            for number, task in enumerate(self.plan.graph.tasks, 1):
                group.create_task(self._follow(task, self.keeping.part(number), group))
        result = self._result(perf_counter() - started)
        self._emit(EnsembleFinished(self.keeping.run_id, result))
        if not self.errors:
            return result
        failed = "; ".join(
            f"{task.title!r}: {type(error).__name__}: {error}" for task, error in self.errors.items()
        )
        error = EnsembleError(f"Tasks of the ensemble failed: {failed}", result=result, errors=self.errors)
        error.usage = result.usage
        raise error from next(iter(self.errors.values()))

    async def _follow(self, task: Task, keeping: Keeping, group: asyncio.TaskGroup) -> None:
        """Carry out a task when those before it have ended, unless one that it needs has no output."""
        graph = self.plan.graph
        for before in graph.after[task]:
            await self._ended[before].wait()
        try:
            if all(needed in self.results for needed in graph.needs[task]):
                await self._carry_out(task, keeping, group)
        finally:
            self._ended[task].set()

    async def _carry_out(self, task: Task, keeping: Keeping, group: asyncio.TaskGroup) -> None:
        reflecting = self.plan.reflecting.get(task)
        choose_note = None
        if reflecting is not None:
            choose_note = partial(
                given_note, task, reflecting.config, reflecting.notebook, self.inputs, keeping.run_id
            )
        run = TaskRun(
            self.plan.means[task],
            self.inputs,
            {needed: self.results[needed].output for needed in self.plan.graph.needs[task]},
            keeping,
            choose_note,
            self.listener,
        )
        self._emit(TaskStarted(keeping.run_id, task))
        try:
            result = await run.carry_out()
        except asyncio.CancelledError as cancelled:
            if (current := asyncio.current_task()) is not None and current.cancelling():
                raise
            self._failed(task, run, RuntimeError(f"something in it was cancelled: {cancelled!r}"))
            return
        except Exception as error:  # noqa: BLE001 (whatever it is, what is independent goes on, and the error is told)
            self._failed(task, run, error)
            return
        self.results[task] = result if reflecting else replace(result, no_reflection="not asked for")
        self._emit(TaskFinished(keeping.run_id, self.results[task]))
        if reflecting is None:
            return
        learning = self._learn(reflecting, run, result)
        if self.beside is None:
            group.create_task(learning)
        else:
            self.results[task] = replace(result, no_reflection=BESIDE)
            self.beside(learning)

    def _failed(self, task: Task, run: TaskRun, error: Exception) -> None:
        self.errors[task] = error
        self.lost += run.used
        self._emit(TaskFailed(run.keeping.run_id, task, error))

    async def _learn(self, reflecting: Reflecting, run: TaskRun, result: TaskResult) -> None:
        inner_step.set(direct)  # the step around the ensemble, if there is one, ends without this
        evaluation = result.result.history.best_version.evaluation
        judged = None if evaluation.overall_score is None else evaluation
        accepted = Run(run.keeping, run.note, as_text(result.output), run.first_score, judged)
        learnt, event = await reflecting.learn(accepted)
        if self.beside is not None:
            return
        self.results[result.task] = replace(
            result,
            reflection=learnt.reflection,
            no_reflection=learnt.problem,
            usage=result.usage + learnt.usage,
        )
        if event is not None:
            self._emit(event)

    def _result(self, seconds: float) -> EnsembleResult:
        tasks = self.plan.graph.tasks
        results = tuple(self.results[task] for task in tasks if task in self.results)
        return EnsembleResult(
            results,
            self.keeping.run_id,
            sum((one.usage for one in results), self.lost),
            seconds,
            dict(self.errors),
            tuple(task for task in tasks if task not in self.results and task not in self.errors),
        )

    def _emit(self, event: EnsembleEvent) -> None:
        if self.listener is not None:
            self.listener(event)
