"""Ensembles: run tasks in their order, and learn from every accepted output."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from redraft._hints import keyword_hints
from redraft._steps import direct, step_scope, uncancelled
from redraft._sync import run_sync
from redraft._telemetry import traced
from redraft._texts import counted
from redraft._validation import check_list, named_error, nearest
from redraft.errors import ConfigError, EnsembleError
from redraft.loop.journal import RunKey, check_keep
from redraft.loop.stream import EventStream, StreamEvent
from redraft.notes.learner import Learner, learner_of
from redraft.notes.note import (
    ReflectedListener,
    TaskReflectedEvent,
    fill,
    placeholders_of,
)
from redraft.notes.store import notebook_of, project_notes
from redraft.notes.task import Task
from redraft.notes.task_run import TaskResult, TaskRun, TaskRunner, runner_of
from redraft.redact.log import logger
from redraft.settings import load_settings
from redraft.types import NOTHING_USED, Output, TokenUsage, render_usage

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redraft.notes.store import ReflectionStore
    from redraft.protocols import ModelChoice
    from redraft.stores.base import Store


@keyword_hints()
class Ensemble:
    """Runs tasks, and learns from each accepted output how to improve the instructions of its task.

    Tasks run in the order of the list, one after another. If any task names other tasks as its `context`,
    each task starts as soon as the outputs it needs are accepted. `model` answers for tasks without their own
    model, and reflects unless a task or its `ReflectionConfig` names another model; by default, the model of
    the settings (REDRAFT_MODEL).

    Notes are stored in `reflection_store`, else in the project's store; if the settings store nothing, they
    are kept in memory. `on_task_reflected`, a function (sync or async) or a list of functions, is called with
    each stored note. The run of each task is stored under the task's title, depending on `keep` (see
    `Agent`).

    An ensemble can serve many runs in parallel. Raises `ConfigError` for every mistake that can be detected
    before money is spent.
    """

    def __init__(
        self,
        model: ModelChoice | None = None,
        tasks: Sequence[Task] = (),
        reflection_store: ReflectionStore | None = None,
        on_task_reflected: ReflectedListener | Sequence[ReflectedListener] | None = None,
        *,
        keep: bool | Store = True,
        name: str = "ensemble",
    ) -> None:
        if isinstance(model, list | tuple | Task):
            raise ConfigError("The first argument is the model; give the tasks as tasks=[...].")
        check_list("tasks", tasks)
        for task in tasks:
            if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
                raise ConfigError(f"tasks must be a list of Tasks, but it contains {task!r}.")
        check_keep(keep)
        settings = load_settings()
        self._keep: bool | Store = keep
        self._name = name
        notebook = project_notes() if reflection_store is None else notebook_of(reflection_store)
        listeners = _listeners(on_task_reflected)
        self._graph = graph_of(tasks)
        self._runners = {
            task: runner_of(task, model, learner_of(task, model, notebook, listeners, settings), settings)
            for task in tasks
        }
        self._pending: set[Future[None]] = set()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in the order of the list."""
        return self._graph.tasks

    @keyword_hints()
    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleResult:
        """Run all tasks; return their accepted outputs, what was learned, and the cost.

        `inputs` fill the placeholders of the tasks. With `wait_for_reflections=False` the result does not
        wait for the reflections: they go on in the background (`drain` waits for them), and a program that
        exits normally waits for them, too. With a custom `run_id`, the same call resumes an interrupted run,
        and returns the outputs of finished tasks without another call of a model.

        Raises `ConfigError` for missing or unknown inputs, before money is spent, and `EnsembleError`, with
        all results, if a task fails after its retries; tasks that do not depend on it still run.
        """
        return await self._new_run(inputs, run_id, wait=wait_for_reflections).run()

    @keyword_hints()
    def run_sync(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleResult:
        """Like `run`, for code that is not async; also works inside a running event loop."""
        return run_sync(self.run(inputs, wait_for_reflections=wait_for_reflections, run_id=run_id))

    @keyword_hints()
    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleStream:
        """Run all tasks, and return a stream of events as they happen.

        Yields the events of the ensemble (`TaskStarted`, `TaskFinished`, `TaskReflectedEvent`, ...) and of
        the tasks' runs, with a `TokenEvent` for each piece of text that a model writes. Reflections in the
        background only reach their listeners.
        """

        def start(listener: Callable[[EnsembleEvent], None]) -> Coroutine[Any, Any, EnsembleResult]:
            return self._new_run(inputs, run_id, wait=wait_for_reflections, listener=listener).run()

        return EnsembleStream(start)

    async def drain(self) -> None:
        """Wait until all reflections on earlier runs are stored, or have failed."""
        if pending := [asyncio.wrap_future(future) for future in tuple(self._pending)]:
            await asyncio.wait(pending)  # cancelling the wait does not cancel the reflections

    def _new_run(
        self,
        inputs: Mapping[str, Any] | None,
        run_id: str | None,
        *,
        wait: bool,
        listener: Callable[[EnsembleEvent], None] | None = None,
    ) -> EnsembleRun:
        return EnsembleRun(
            self._graph,
            self._runners,
            checked_inputs(self.tasks, inputs),
            RunKey.of(self._keep, run_id, f"the ensemble {self._name}"),
            listener,
            None if wait else self._learn_in_background,
            self._name,
        )

    def _learn_in_background(self, learning: Coroutine[Any, Any, None]) -> None:
        future = background.start(learning)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)


# Results and events.

IN_BACKGROUND = "reflected on in the background"
"""Why a result has no reflection yet if the run did not wait for it."""


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """The outcome of an ensemble's run."""

    results: tuple[TaskResult, ...]
    """The results of accepted tasks, in the order of the ensemble's list."""
    run_id: str = ""
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    """In seconds."""
    errors: Mapping[Task, Exception] = field(default_factory=dict[Task, Exception])
    """The errors of failed tasks."""
    not_run: tuple[Task, ...] = ()
    """The tasks that needed the output of a failed task."""

    @property
    def outputs(self) -> dict[Task, Output]:
        """The accepted outputs, by task."""
        return {result.task: result.output for result in self.results}

    @property
    def output(self) -> Output:
        """The output of the last task with a result; None without results."""
        return self.results[-1].output if self.results else None

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        not_run = f", {len(self.not_run)} not run" if self.not_run else ""
        tasks = f"{counted(len(self.results), 'task')} accepted{failed}{not_run}"
        return f"<{type(self).__name__} {self.run_id!r}: {tasks}>"

    def __getitem__(self, task: Task) -> TaskResult:
        for result in self.results:
            if result.task is task:
                return result
        raise KeyError(
            f"The task {task.title!r} has no result: it failed, was not run, or is not in the ensemble."
        )

    def summary(self) -> str:
        """Summarize the run in a few lines: each task with its score and note, failures, and the cost."""
        lines = [_line(result) for result in self.results]
        lines += [f"{task.title}: failed, {named_error(error)}" for task, error in self.errors.items()]
        lines += [f"{task.title}: not run, because a task it needs failed" for task in self.not_run]
        lines.append(f"Used: {render_usage(self.usage)}, {self.execution_time:.1f} s.")
        return "\n".join(lines)


def _line(result: TaskResult) -> str:
    score = result.result.history.best_version.evaluation.overall_score
    parts = ["accepted" if score is None else f"accepted with {score:.2f}"]
    if result.attempts > 1:
        parts.append(f"on attempt {result.attempts}")
    if result.note is not None:
        parts.append(f"given note v{result.note}")
    if result.reflection is not None:
        parts.append(f"reflected (run {result.reflection.run_count})")
    elif result.no_reflection and result.task.config is not None:
        parts.append(
            result.no_reflection
            if result.no_reflection == IN_BACKGROUND
            else f"not reflected: {result.no_reflection}"
        )
    return f"{result.task.title}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A task has started."""

    run_id: str
    task: Task
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task's output was accepted; its reflection, if any, follows later."""

    run_id: str
    result: TaskResult
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task has failed, after all its retries."""

    run_id: str
    task: Task
    error: Exception
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class EnsembleFinished:
    """An ensemble has finished, perhaps with failed tasks."""

    run_id: str
    result: EnsembleResult
    schema_version: int = 1


EnsembleEvent: TypeAlias = (
    TaskStarted | TaskFinished | TaskFailed | TaskReflectedEvent | EnsembleFinished | StreamEvent
)
"""An event of an ensemble's stream: of the ensemble itself, or of a task's run."""


class EnsembleStream(EventStream["EnsembleEvent", "EnsembleResult"]):
    """The events of an ensemble's run as they happen; the last is `EnsembleFinished`.

    The run starts with the iteration, or on entering `async with`. Leaving either early cancels it. Errors of
    the run are raised by the iteration, after the last event.
    """

    def _on_event(self, event: EnsembleEvent) -> None:
        if isinstance(event, EnsembleFinished):
            self._result = event.result
        super()._on_event(event)


# A run.


@dataclass(slots=True)
class EnsembleRun:
    """A run of an ensemble: each task starts as soon as its predecessors have ended."""

    graph: Graph
    runners: Mapping[Task, TaskRunner]
    inputs: Mapping[str, Any]
    key: RunKey
    listener: Callable[[EnsembleEvent], None] | None = None
    """Gets all events."""
    in_background: Callable[[Coroutine[Any, Any, None]], None] | None = None
    """Starts a reflection in the background; without it, reflections are part of the run."""
    name: str = ""
    results: dict[Task, TaskResult] = field(default_factory=dict["Task", "TaskResult"])
    errors: dict[Task, Exception] = field(default_factory=dict["Task", Exception])
    lost: TokenUsage = NOTHING_USED
    _ended: dict[Task, asyncio.Event] = field(init=False)

    async def run(self) -> EnsembleResult:
        """Run all tasks; raises `EnsembleError`, with the result in it, if a task fails after its retries."""
        return await traced("ensemble", self.name, self.key.run_id, self._run)

    async def _run(self) -> EnsembleResult:
        started = perf_counter()
        self._ended = {task: asyncio.Event() for task in self.graph.tasks}
        async with asyncio.TaskGroup() as group:
            for number, task in enumerate(self.graph.tasks, 1):
                group.create_task(self._run_in_turn(task, self.key.derived(f".{number}"), group))
        result = self._result(perf_counter() - started)
        self._emit(EnsembleFinished(self.key.run_id, result))
        if not self.errors:
            return result
        failed = "; ".join(f"{task.title!r}: {named_error(error)}" for task, error in self.errors.items())
        error = EnsembleError(f"Tasks of the ensemble failed: {failed}", result=result, errors=self.errors)
        error.usage = result.usage
        raise error from next(iter(self.errors.values()))

    async def _run_in_turn(self, task: Task, key: RunKey, group: asyncio.TaskGroup) -> None:
        """Run a task once its predecessors have ended, unless a task that it needs has no output."""
        for before in self.graph.after[task]:
            await self._ended[before].wait()
        try:
            if all(needed in self.results for needed in self.graph.needs[task]):
                await self._run_task(task, key, group)
        finally:
            self._ended[task].set()

    async def _run_task(self, task: Task, key: RunKey, group: asyncio.TaskGroup) -> None:
        outputs = {needed: self.results[needed].output for needed in self.graph.needs[task]}
        run = TaskRun(self.runners[task], self.inputs, outputs, key, self.listener)
        self._emit(TaskStarted(key.run_id, task))
        try:
            result = await uncancelled(run.run(), "the task", "the ensemble")
        except Exception as error:  # noqa: BLE001 (reported; independent tasks go on)
            self._failed(task, run, error)
            return
        self.results[task] = result
        self._emit(TaskFinished(key.run_id, result))
        if (learner := run.runner.learner) is None:
            return
        learning = self._learn(learner, run, result)
        if self.in_background is None:
            group.create_task(learning)
        else:
            self.results[task] = replace(result, no_reflection=IN_BACKGROUND)
            self.in_background(learning)

    def _failed(self, task: Task, run: TaskRun, error: Exception) -> None:
        self.errors[task] = error
        self.lost += run.used
        self._emit(TaskFailed(run.key.run_id, task, error))

    async def _learn(self, learner: Learner, run: TaskRun, result: TaskResult) -> None:
        with step_scope(step=direct):  # a step around the ensemble does not include this
            learned, event = await learner.learn(run.accepted(result))
        if self.in_background is not None:
            return
        self.results[result.task] = replace(
            result,
            reflection=learned.reflection,
            no_reflection=learned.problem,
            usage=result.usage + learned.usage,
        )
        if event is not None:
            self._emit(event)

    def _result(self, seconds: float) -> EnsembleResult:
        tasks = self.graph.tasks
        results = tuple(self.results[task] for task in tasks if task in self.results)
        return EnsembleResult(
            results,
            self.key.run_id,
            sum((result.usage for result in results), self.lost),
            seconds,
            dict(self.errors),
            tuple(task for task in tasks if task not in self.results and task not in self.errors),
        )

    def _emit(self, event: EnsembleEvent) -> None:
        if self.listener is not None:
            self.listener(event)


@dataclass(frozen=True, slots=True)
class Graph:
    """The order of an ensemble's tasks."""

    tasks: tuple[Task, ...]
    needs: Mapping[Task, tuple[Task, ...]]
    """The tasks whose outputs a task uses."""
    after: Mapping[Task, tuple[Task, ...]]
    """The tasks that must end before a task starts.

    If no task names another, these are the previous tasks of the list.
    """


def graph_of(tasks: Sequence[Task]) -> Graph:
    """Order tasks by the context that they name.

    Raises `ConfigError` for an empty list, a duplicate, a task that is needed but not in the list, and a task
    that needs itself, directly or not.
    """
    if not tasks:
        raise ConfigError("An ensemble needs at least one task.")
    for task, times in Counter(tasks).items():
        if times > 1:
            raise ConfigError(
                f"The task {task.title!r} is in the ensemble {times} times; make a second Task instead."
            )
    needs: dict[Task, tuple[Task, ...]] = {
        task: () if isinstance(task.context, str) else tuple(dict.fromkeys(task.context)) for task in tasks
    }
    for task, needed in needs.items():
        for other in needed:
            if other not in needs:
                raise ConfigError(
                    f"The task {task.title!r} needs {other.title!r}, which is not among the ensemble's tasks."
                )
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:  # from a list that changed after it was passed as context
        waiting = ", ".join(repr(task.title) for task in tasks if task in error.args[1])
        raise ConfigError(
            f"These tasks depend on each other, so none of them can start: {waiting}."
        ) from None
    if any(needs.values()):
        return Graph(tuple(tasks), needs, needs)
    before = [(), *((task,) for task in tasks)]
    return Graph(tuple(tasks), needs, dict(zip(tasks, before, strict=False)))


# Checks.


def _listeners(
    callbacks: ReflectedListener | Sequence[ReflectedListener] | None,
) -> tuple[ReflectedListener, ...]:
    if callbacks is None:
        return ()
    listeners = (
        tuple(cast("Sequence[object]", callbacks)) if isinstance(callbacks, list | tuple) else (callbacks,)
    )
    for listener in listeners:
        if not callable(listener):
            raise ConfigError(f"on_task_reflected must be a function or a list of them, got {listener!r}.")
    return cast("tuple[ReflectedListener, ...]", listeners)


def checked_inputs(tasks: Sequence[Task], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The inputs of a run.

    Raises `ConfigError` for a placeholder without an input, and for an input without a placeholder, unless
    there is a handler or an input guardrail, which see all inputs.
    """
    if inputs is not None and not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(f'inputs must be a dict such as {{"topic": "tea"}}, got {inputs!r}.')
    values = dict(inputs or {})
    placeholders: dict[str, None] = {}
    for task in tasks:
        for text in (task.description, task.expected_output):
            fill(text, values, task.title)
            placeholders |= dict.fromkeys(placeholders_of(text))
    if any(task.handler is not None or task.input_guardrails for task in tasks):
        return values
    for name in values:
        if name not in placeholders:
            raise ConfigError(
                f"No task has a placeholder for the input {name!r}; {nearest(name, placeholders)}"
            )
    return values


# Reflections in the background.


class Background:
    """Runs coroutines in a separate thread, so that they outlive the event loop that started them.

    The interpreter waits for them before it exits; an interrupt (Ctrl-C) then abandons them.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin without jobs, also in a forked child: the thread is the parent's."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._jobs: set[Future[None]] = set()

    def start(self, job: Coroutine[Any, Any, None]) -> Future[None]:
        """Start a job, which must not raise, from any thread; return a future that ends with the job."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=_run_forever, args=(self._loop,), name="redraft-background", daemon=True
                ).start()
            future = asyncio.run_coroutine_threadsafe(job, self._loop)
            self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return future

    def finish(self) -> None:
        """Wait until all jobs are done; raises `KeyboardInterrupt` if interrupted."""
        try:
            while self._jobs:  # the last job may have started another
                wait(tuple(self._jobs))
        except KeyboardInterrupt:
            logger.warning("%d reflections were abandoned: the program was interrupted.", len(self._jobs))
            raise


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        with suppress(SystemExit):  # ends its job alone
            loop.run_forever()


def _call_at_exit(finish: Callable[[], None]) -> None:
    """Call `finish` at exit, while thread pools still accept work.

    `atexit` would be too late: by then an event loop can no longer use its pool for files or name look-ups.
    `concurrent.futures` ends its pools in a hook of `threading`, which calls the latest entry first.
    """
    import_module("concurrent.futures.thread")  # registers its own hook before this one
    hook: Any = getattr(threading, "_register_atexit", None)  # private; exists since Python 3.9
    (atexit.register if hook is None else hook)(finish)


background = Background()
_call_at_exit(background.finish)
os.register_at_fork(after_in_child=background.forget)
