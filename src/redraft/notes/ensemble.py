"""Ensemble: tasks that are carried out together, and get a better brief from run to run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from redraft.core.check import check_list
from redraft.core.errors import ConfigError
from redraft.core.settings import load_settings
from redraft.core.sync import run_sync
from redraft.loop.keep import check_keep
from redraft.models.names import model_of
from redraft.notes.background import background
from redraft.notes.given_inputs import checked_inputs
from redraft.notes.graph import graph_of
from redraft.notes.keeping import keeping_of
from redraft.notes.means import means_of
from redraft.notes.own_store import notebook_of
from redraft.notes.project_notes import project_notes
from redraft.notes.reflecting import Reflecting
from redraft.notes.running import Plan, Running
from redraft.notes.stream import EnsembleStream
from redraft.notes.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from concurrent.futures import Future

    from redraft.core.protocols import ChatModel
    from redraft.core.settings import Settings
    from redraft.notes.config import ReflectionConfig
    from redraft.notes.ensemble_events import EnsembleEvent
    from redraft.notes.events import ReflectedListener
    from redraft.notes.notebook import Notebook
    from redraft.notes.result import EnsembleResult
    from redraft.notes.store import ReflectionStore
    from redraft.stores.base import Store


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
            keeping_of(self._keep, run_id, self._name),
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
