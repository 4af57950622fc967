"""Means: what a task is carried out with, checked before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from redraft.core import adapt
from redraft.core.calls import awaited
from redraft.core.errors import ConfigError
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.feedback import render_feedback
from redraft.core.protocols import ChatModel
from redraft.loop.agent import performer_with
from redraft.loop.parts import Judges, Parts
from redraft.loop.pattern import ReflectionPattern, variant_of
from redraft.loop.record import Origin
from redraft.loop.wire import judges_of, live_run, parts_of_model, reflecting
from redraft.models.names import model_of
from redraft.notes.task import Task, TaskContext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from redraft.core.context import RunContext
    from redraft.core.result import ConvergenceReason
    from redraft.core.settings import Settings
    from redraft.core.version import Output, ReflectionVersion
    from redraft.loop.acting.performer import Performer  # noqa: TC004 (it loads Pydantic AI, and no field is looked up)


@dataclass(frozen=True, slots=True, eq=False)
class Means:
    """Hold what a task is carried out with: one for all its runs.

    `model` is the one that answers, None where a handler does; `performer` acts with the task's tools.
    """

    task: Task
    pattern: ReflectionPattern
    judges: Judges
    origin: Origin
    model: ChatModel | None = None
    performer: Performer | None = None

    def parts(self, inputs: Mapping[str, Any], outputs: tuple[Output, ...]) -> Parts:
        """Return the verbs of one run."""
        task, pattern, judges = self.task, self.pattern, self.judges
        if task.handler is not None:
            generate = adapt.generator(_handled(task.handler, inputs, outputs))
            live = live_run(pattern, None, "a plain function")
            return reflecting(
                Parts(generate, judges.evaluate, adapt.regenerating(generate), judges.signals), live
            )
        if self.performer is not None:
            from redraft.loop.acting.verbs import acting_parts  # noqa: PLC0415 (only who acts pays for it)

            live = live_run(pattern, self.model)
            return reflecting(acting_parts(self.performer, judges, live), live)
        if self.model is None:
            raise AssertionError("a task without a handler has a model")
        return parts_of_model(pattern, self.model, "", judges, live_run(pattern, self.model, "a text agent"))


def means_of(task: Task, model: str | ChatModel | None, settings: Settings) -> Means:
    """Return what a task is carried out with; `model` is the ensemble's.

    Raises `ConfigError` for a model, tool, trigger or criterion that can't work.
    """
    named = model if task.model is None else task.model
    answers = model_of(named, settings) if task.handler is None else None
    judging = answers or (None if named is None else model_of(named, settings))
    pattern = _pattern_of(task)
    means = Means(
        task,
        pattern,
        _judges_of(task, pattern, judging),
        Origin("task", task.title, _name_of(answers, named, settings)),
        answers,
        None if answers is None or not task.tools else performer_with(answers, "", _functions(task)),
    )
    means.parts({}, ())  # what is wrong with its triggers shows here
    if means.performer is not None:
        means.performer.check(pattern.triggers)
    return means


async def nothing_judges(_output: Output, _run: RunContext, /) -> ReflectionEvaluation:
    """Leave an output as it is: nothing is there to judge it by, so it has no score, and nothing is amiss."""
    return ReflectionEvaluation(None, satisfactory=True)


def never(_versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None:
    """Leave it to the maximum when to stop."""
    return None


def _pattern_of(task: Task) -> ReflectionPattern:
    """Return a task's pattern; without one, a version is made, and scored where there are criteria."""
    if task.pattern is not None:
        return (
            task.pattern
            if task.criteria is None
            else variant_of(task.pattern, quality_criteria=task.criteria)
        )
    if task.criteria is not None:
        return ReflectionPattern(0, task.criteria, task_type=task.task_type)
    # Nothing is measured, so that no rule but the maximum has anything to say.
    return ReflectionPattern(0, until=never)


def _judges_of(task: Task, pattern: ReflectionPattern, model: ChatModel | None) -> Judges:
    if task.pattern is None and task.criteria is None:
        return Judges(nothing_judges)
    judges = judges_of(pattern, model, task.task_type)
    if task.handler is None:
        return judges
    return replace(judges, signals=replace(judges.signals, self_judged=False))  # it did not write it


def _functions(task: Task) -> list[Callable[..., Any]]:
    functions: list[Callable[..., Any]] = []
    for tool in task.tools:
        if isinstance(tool, str):
            raise ConfigError(
                f"The task {task.title!r} names the tool {tool!r}, which an ensemble can't call: give the "
                "function itself."
            )
        functions.append(tool)
    return functions


def _handled(
    handler: Callable[[TaskContext], Any], inputs: Mapping[str, Any], outputs: tuple[Output, ...]
) -> Callable[..., Any]:
    call = awaited(handler)

    async def handle(prompt: str, run: RunContext) -> Any:
        return await call(TaskContext(run.task, prompt, inputs, outputs, render_feedback(run.attempt)))

    return handle


def _name_of(answers: ChatModel | None, named: str | ChatModel | None, settings: Settings) -> str:
    if answers is None:
        return ""
    if named is None:
        return settings.model or ""
    return named if isinstance(named, str) else type(named).__name__
