"""Ensemble: tasks that run together, and whose briefs get better."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from redraft._calls import awaited
from redraft._steps import Retry, direct, inner_step, retried
from redraft._sync import run_sync
from redraft._texts import as_text
from redraft._validation import check_list, nearest
from redraft.errors import ConfigError, EnsembleError, RedraftError
from redraft.loop.keeper import RunKey, check_keep
from redraft.loop.stream import EventStream
from redraft.models.names import model_of
from redraft.notes.note import (
    NoteUse,
    ReflectedListener,
    Rollback,
    TaskReflectedEvent,
    TaskReflection,
    fill,
    placeholders_of,
)
from redraft.notes.store import GivenNote, Notebook, given_note, notebook_of, project_notes
from redraft.notes.strategy import LlmReflectionStrategy, storable
from redraft.notes.task import ReflectionConfig, ReflectionInput, ReflectionStrategy, Task, TaskIdentity
from redraft.notes.task_run import (
    BESIDE,
    EnsembleEvent,
    EnsembleFinished,
    EnsembleResult,
    Means,
    TaskFailed,
    TaskFinished,
    TaskResult,
    TaskRun,
    TaskStarted,
    means_of,
)
from redraft.protocols import ChatModel, ChatReply
from redraft.redact.log import logger
from redraft.settings import load_settings
from redraft.types import NOT_REPORTED, NOTHING_USED, ReflectionEvaluation, TokenUsage

if TYPE_CHECKING:
    from concurrent.futures import Future

    from redraft.notes.store import ReflectionStore
    from redraft.protocols import ChatRequest
    from redraft.settings import Settings
    from redraft.stores.base import Store
    from redraft.types import Task as Asked


@dataclass(frozen=True, slots=True)
class Graph:
    """Order the tasks of an ensemble.

    `after` names the tasks that must have ended before one begins, `needs` those without whose outputs it
    can't be carried out. Where no task names another, each comes after the one before it in the list and
    needs nothing of it.
    """

    tasks: tuple[Task, ...]
    needs: Mapping[Task, tuple[Task, ...]]
    after: Mapping[Task, tuple[Task, ...]]


def graph_of(tasks: Sequence[Task]) -> Graph:
    """Order tasks by the context that they name.

    Raises `ConfigError` where there is no task, one comes twice, needs one that is not among them, or needs
    itself by any way.
    """
    if not tasks:
        raise ConfigError("An ensemble needs at least one task.")
    for task, times in Counter(tasks).items():
        if times > 1:
            raise ConfigError(f"The task {task.title!r} is in the ensemble {times} times; make a second one.")
    needs = {task: _needed(task) for task in tasks}
    for task, needed in needs.items():
        for other in needed:
            if other not in needs:
                raise ConfigError(
                    f"The task {task.title!r} needs {other.title!r}, which is not among the ensemble's tasks."
                )
    if any(needs.values()):
        _check_ends(needs)
        return Graph(tuple(tasks), needs, needs)
    before = [(), *((task,) for task in tasks)]
    return Graph(tuple(tasks), needs, dict(zip(tasks, before, strict=False)))


def _needed(task: Task) -> tuple[Task, ...]:
    return () if isinstance(task.context, str) else tuple(dict.fromkeys(task.context))


def _check_ends(needs: Mapping[Task, tuple[Task, ...]]) -> None:
    """Refuse tasks that wait for each other: a list given as context may have changed since."""
    left = dict(needs)
    while ready := [task for task, needed in left.items() if not any(each in left for each in needed)]:
        for task in ready:
            del left[task]
    if left:
        waiting = ", ".join(repr(task.title) for task in left)
        raise ConfigError(f"These tasks need each other, so none of them can begin: {waiting}.")


class EnsembleStream(EventStream["EnsembleEvent", "EnsembleResult"]):
    """Iterate over the events of an ensemble's run as they happen; the last is `EnsembleFinished`.

    The run begins with the iteration, or on entering `async with`. Leaving the iteration early cancels it,
    and so does leaving the `async with`. What the run raises comes out of the iteration, after its last
    event.
    """

    @property
    def result(self) -> EnsembleResult:
        """What the run came to, as soon as it has; raises `LookupError` before."""
        if self._result is None:
            raise LookupError("The ensemble has no result (yet): iterate over its events to the end.")
        return self._result

    def _listen(self, event: EnsembleEvent) -> None:
        if isinstance(event, EnsembleFinished):
            self._result = event.result
        super()._listen(event)


class Background:
    """Carry out coroutines beside the program, also when the event loop that asked for them has ended.

    The thread begins with the first one and ends with the last. The interpreter waits for it before it ends;
    an interrupt (Ctrl-C) then gives up what is still under way.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _Thread | None = None

    def start(self, job: Coroutine[Any, Any, None]) -> Future[None]:
        """Begin a job, which must not raise; return what says when it is done. Callable from any thread."""
        with self._lock:
            if self._thread is None:
                self._thread = _Thread()
                self._thread.start()
            thread = self._thread
            thread.jobs += 1
            future = asyncio.run_coroutine_threadsafe(job, thread.loop)
        future.add_done_callback(lambda _: self._ended(thread))
        return future

    def _ended(self, thread: _Thread) -> None:
        with self._lock:
            thread.jobs -= 1
            if thread.jobs:
                return
            if self._thread is thread:
                self._thread = None
        thread.loop.call_soon_threadsafe(thread.loop.stop)

    def finish(self) -> None:
        """Wait until everything is done; raises `KeyboardInterrupt` where that interrupts it."""
        # A job that ends may have begun another.
        while (thread := self._thread) is not None and thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                logger.warning("%d reflections were given up: the program was interrupted.", thread.jobs)
                raise

    def forget(self) -> None:
        """Know of nothing any more: what a forked child has to do, whose threads are its parent's."""
        self._lock = threading.Lock()
        self._thread = None


class _Thread(threading.Thread):
    """The thread of a background: its loop takes jobs from the moment it is made."""

    def __init__(self) -> None:
        # Not as a daemon: should nobody wait for it before, the interpreter does.
        super().__init__(name="redraft-background", daemon=False)
        self.loop = asyncio.new_event_loop()
        self.jobs = 0

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()


background = Background()


def _before_the_end(finish: Callable[[], None]) -> None:
    """Have something done before the interpreter refuses new work to its executors.

    What `atexit` calls comes too late: by then no thread pool takes a job, and name look-ups, files and
    whatever else an event loop gives to its pool fail. `concurrent.futures` has a hook for its own end, and
    whoever came later in it is called earlier.
    """
    import_module("concurrent.futures.thread")  # so that its own end is in the hook before ours
    hook: Any = getattr(threading, "_register_atexit", None)  # private, and there since Python 3.9
    (atexit.register if hook is None else hook)(finish)


_before_the_end(background.finish)
os.register_at_fork(after_in_child=background.forget)


def checked_inputs(tasks: Sequence[Task], inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs of a run.

    Raises `ConfigError` for a placeholder without an input, and for an input that no task knows; where a
    handler or an input guardrail sees all inputs, it may know any.
    """
    if inputs is not None and not isinstance(inputs, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
        raise ConfigError(f'inputs must be a dict such as {{"topic": "tea"}}, got {inputs!r}.')
    given = dict(inputs or {})
    known: dict[str, None] = {}
    for task in tasks:
        for text in (task.description, task.expected_output):
            fill(text, given, task.title)
            known |= dict.fromkeys(placeholders_of(text))
    if any(task.handler is not None or task.input_guardrails for task in tasks):
        return given
    for name in given:
        if name not in known:
            raise ConfigError(f"No task has a placeholder for the input {name!r}; {nearest(name, known)}")
    return given


@dataclass(slots=True)
class Metered:
    """Ask a model, again where its failure may pass, and add up what all calls used; a `ChatModel`.

    `failed` is the part of `used` that went into calls which failed.
    """

    model: ChatModel
    used: TokenUsage = NOTHING_USED
    failed: TokenUsage = NOTHING_USED
    retry: Retry = Retry()  # noqa: RUF009 (frozen, so sharing it is safe)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Return the reply; raises what the model raised for good."""
        reply = await retried(direct, self.retry, self._failed)("reflect", ChatReply, self.model, request)
        self.used += reply.usage
        return reply

    def _failed(self, _name: str, error: Exception, wait: float | None) -> float | None:
        lost = TokenUsage(failed_requests=1)
        if isinstance(error, RedraftError) and error.usage is not None:
            lost += error.usage
        self.failed += lost
        self.used += lost
        return wait


NO_MODEL = (
    "there is no model for it: give ReflectionConfig.model, Task.model, or the ensemble's model (or set "
    "REDRAFT_MODEL)"
)


@dataclass(frozen=True, slots=True)
class Run:
    """Tell what there is to learn from: an accepted output, what the run was given and how well it began.

    `score` is the first version's; `evaluation` is that of the output, where anything judged it.
    """

    key: RunKey
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
            learnt = await run.key.once("reflection", Learnt, make)
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
        use = NoteUse(run.key.run_id, given.version, given.arm, run.score)
        await self.notebook.used(identity, use)
        asked = self.task.asked()
        reflection = await self._reflection(run, asked, metered)
        note, is_first = await self.notebook.append(
            asked,
            reflection,
            run_id=run.key.run_id,
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
            run.key.run_id,
            learnt.rollback,
        )

    async def _tell(self, event: TaskReflectedEvent) -> None:
        for listener in self.listeners:
            try:
                await awaited(listener)(event)
            except Exception:
                logger.exception("A listener of reflections failed on the task %r.", self.task.title)


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
    key: RunKey
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
                group.create_task(self._follow(task, self.key.derived(f".{number}"), group))
        result = self._result(perf_counter() - started)
        self._emit(EnsembleFinished(self.key.run_id, result))
        if not self.errors:
            return result
        failed = "; ".join(
            f"{task.title!r}: {type(error).__name__}: {error}" for task, error in self.errors.items()
        )
        error = EnsembleError(f"Tasks of the ensemble failed: {failed}", result=result, errors=self.errors)
        error.usage = result.usage
        raise error from next(iter(self.errors.values()))

    async def _follow(self, task: Task, key: RunKey, group: asyncio.TaskGroup) -> None:
        """Carry out a task when those before it have ended, unless one that it needs has no output."""
        graph = self.plan.graph
        for before in graph.after[task]:
            await self._ended[before].wait()
        try:
            if all(needed in self.results for needed in graph.needs[task]):
                await self._carry_out(task, key, group)
        finally:
            self._ended[task].set()

    async def _carry_out(self, task: Task, key: RunKey, group: asyncio.TaskGroup) -> None:
        reflecting = self.plan.reflecting.get(task)
        choose_note = None
        if reflecting is not None:
            choose_note = partial(
                given_note, task, reflecting.config, reflecting.notebook, self.inputs, key.run_id
            )
        run = TaskRun(
            self.plan.means[task],
            self.inputs,
            {needed: self.results[needed].output for needed in self.plan.graph.needs[task]},
            key,
            choose_note,
            self.listener,
        )
        self._emit(TaskStarted(key.run_id, task))
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
        self._emit(TaskFinished(key.run_id, self.results[task]))
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
        self._emit(TaskFailed(run.key.run_id, task, error))

    async def _learn(self, reflecting: Reflecting, run: TaskRun, result: TaskResult) -> None:
        inner_step.set(direct)  # the step around the ensemble, if there is one, ends without this
        evaluation = result.result.history.best_version.evaluation
        judged = None if evaluation.overall_score is None else evaluation
        accepted = Run(run.key, run.note, as_text(result.output), run.first_score, judged)
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
            self.key.run_id,
            sum((one.usage for one in results), self.lost),
            seconds,
            dict(self.errors),
            tuple(task for task in tasks if task not in self.results and task not in self.errors),
        )

    def _emit(self, event: EnsembleEvent) -> None:
        if self.listener is not None:
            self.listener(event)


class Ensemble:
    """Carry out tasks, and learn from each accepted output how its task could be put better next time.

    Tasks are carried out in the order of the list, one after another; where any names others as its
    `context`, each begins as soon as those it needs have their outputs accepted. `model` answers for tasks
    that have none, and reflects where neither a task's `ReflectionConfig` nor the task names another; without
    it the settings decide (REDRAFT_MODEL).

    Notes are kept in `reflection_store`, else in the project's store; where the settings keep nothing, as
    long as this object lives. `on_task_reflected` hears of each that was stored: a function, sync or async,
    or a list of them. Each task's run is kept under the task's title, by the rules of `keep` (`Agent`).

    One ensemble may serve many runs at once. Raises `ConfigError` for all that can be known to be wrong
    before anything is spent.
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
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
            if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
                raise ConfigError(f"tasks must be a list of Tasks, got {task!r} in it.")
        check_keep(keep)
        settings = load_settings()
        self._keep: bool | Store = keep
        self._name = name
        notebook = _notebook(reflection_store)
        listeners = _listeners(on_task_reflected)
        self._plan = Plan(
            graph_of(tasks),
            {task: means_of(task, model, settings) for task in tasks},
            {
                task: Reflecting(
                    task,
                    _checked(task, config, notebook),
                    notebook,
                    _reflecting_model(config, task, model, settings),
                    listeners,
                )
                for task in tasks
                if (config := task.config) is not None
            },
        )
        self._pending: set[Future[None]] = set()

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks, in the order of the list."""
        return self._plan.graph.tasks

    async def run(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleResult:
        """Carry out all tasks; return their accepted outputs, what was learnt and what it cost.

        `inputs` fill the placeholders of the tasks. With `wait_for_reflections=False` the answer does not
        wait for what is learnt from it: that goes on in the background (`drain` waits for it), and a program
        that ends normally ends after it. Under a `run_id` of yours the same call again goes on where a killed
        one stopped, and gives the outputs of finished tasks again, without a call.

        Raises `ConfigError` for inputs that are missing or not known, before anything is spent, and
        `EnsembleError`, with all that was made, where a task failed for good: what is independent of it is
        carried out to its end.
        """
        return await self._running(inputs, run_id, wait=wait_for_reflections).run()

    def run_sync(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleResult:
        """Do what `run` does, from code that is not async; also inside a running event loop."""
        return run_sync(self.run(inputs, wait_for_reflections=wait_for_reflections, run_id=run_id))

    def stream(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        wait_for_reflections: bool = True,
        run_id: str | None = None,
    ) -> EnsembleStream:
        """Carry out all tasks, and give a handle on the run: iterate over it for the events as they happen.

        They are those of the ensemble (`TaskStarted`, `TaskFinished`, `TaskReflectedEvent`, ...) and of its
        tasks' runs. Reflections that are not waited for tell their listeners only.
        """

        def start(listener: Callable[[EnsembleEvent], None]) -> Coroutine[Any, Any, EnsembleResult]:
            return self._running(inputs, run_id, wait=wait_for_reflections, listener=listener).run()

        return EnsembleStream(start)

    async def drain(self) -> None:
        """Wait until all that is still learnt from earlier runs has been stored, or has failed."""
        if pending := [asyncio.wrap_future(each) for each in tuple(self._pending)]:
            await asyncio.wait(pending)  # who gives up waiting does not give up what is waited for

    def _running(
        self,
        inputs: Mapping[str, Any] | None,
        run_id: str | None,
        *,
        wait: bool,
        listener: Callable[[EnsembleEvent], None] | None = None,
    ) -> Running:
        return Running(
            self._plan,
            checked_inputs(self.tasks, inputs),
            RunKey.of(self._keep, run_id, f"the ensemble {self._name}"),
            listener,
            None if wait else self._beside,
        )

    def _beside(self, learning: Coroutine[Any, Any, None]) -> None:
        future = background.start(learning)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)


def _notebook(store: ReflectionStore | None) -> Notebook:
    return notebook_of(store) if store is not None else project_notes()


def _listeners(
    given: ReflectedListener | Sequence[ReflectedListener] | None,
) -> tuple[ReflectedListener, ...]:
    if given is None:
        return ()
    listeners = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
    for listener in listeners:
        if not callable(listener):
            raise ConfigError(f"on_task_reflected must be a function or a list of them, got {listener!r}.")
    return cast("tuple[ReflectedListener, ...]", listeners)


def _checked(task: Task, config: ReflectionConfig, notebook: Notebook) -> ReflectionConfig:
    """Refuse a trial that could show nothing."""
    if config.trial is None:
        return config
    if task.criteria is None and task.pattern is None:
        raise ConfigError(
            f"The trial of the task {task.title!r} needs criteria: without a score it shows nothing."
        )
    if not notebook.keeps_revisions:
        raise ConfigError(
            f"The trial of the task {task.title!r} needs a store that keeps revisions and scores, such as "
            "SqliteReflectionStore; one with two methods can't."
        )
    return config


def _reflecting_model(
    config: ReflectionConfig, task: Task, model: str | ChatModel | None, settings: Settings
) -> ChatModel | None:
    """Return the model of the first of the three places that name one; a strategy needs none."""
    if config.strategy is not None:
        return None
    for named in (config.model, task.model, model, settings.model):
        if named is not None:
            return model_of(named, settings)
    return None
