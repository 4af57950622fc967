"""EnsembleResult and TaskResult: what a run of an ensemble made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redraft.core.result import ReflectionResult
from redraft.core.summary import render_usage
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.core.version import Output
from redraft.notes.note import Arm
from redraft.notes.reflection import TaskReflection
from redraft.notes.task import Task

BESIDE = "reflected on in the background"
"""Why there is no reflection (yet) where nobody waits for it."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Hold what became of a task: its accepted output, and how it came about.

    `result` is the run that made the output, the last of `attempts`; `run_id` that of the first. `note` is
    the version of the note that it was given, None without one, and `arm` says why (`NoteUse`). `reflection`
    is what was stored for next time; where there is none, `no_reflection` says why. `usage` covers all
    attempts, and the reflection where that was waited for.
    """

    task: Task
    output: Output
    result: ReflectionResult
    run_id: str
    attempts: int = 1
    note: int | None = None
    arm: Arm = "none"
    reflection: TaskReflection | None = None
    no_reflection: str = ""
    usage: TokenUsage = NOTHING_USED


@dataclass(frozen=True, slots=True)
class EnsembleResult:
    """Hold what an ensemble made, task by task in the order of its list.

    `errors` says what a task that failed raised, `not_run` which ones needed its output. `execution_time` is
    in seconds.
    """

    results: tuple[TaskResult, ...]
    run_id: str = ""
    usage: TokenUsage = NOTHING_USED
    execution_time: float = 0.0
    errors: Mapping[Task, Exception] = field(default_factory=dict[Task, Exception])
    not_run: tuple[Task, ...] = ()

    @property
    def outputs(self) -> dict[Task, Output]:
        """The accepted outputs, by task."""
        return {one.task: one.output for one in self.results}

    @property
    def output(self) -> Output:
        """The output of the last task that has one, None where none has."""
        return self.results[-1].output if self.results else None

    def __getitem__(self, task: Task) -> TaskResult:
        for one in self.results:
            if one.task is task:
                return one
        raise KeyError(f"The task {task.title!r} has no result.")

    def summary(self) -> str:
        """Tell the run in a few lines: each task with its score and note, what failed, the cost."""
        lines = [_line(one) for one in self.results]
        lines += [
            f"{task.title}: failed, {type(error).__name__}: {error}" for task, error in self.errors.items()
        ]
        lines += [f"{task.title}: not run, what it needs failed" for task in self.not_run]
        lines.append(f"Used: {render_usage(self.usage)}, {self.execution_time:.1f} s.")
        return "\n".join(lines)


def _line(one: TaskResult) -> str:
    score = one.result.history.best_version.evaluation.overall_score
    said = ["accepted" if score is None else f"accepted with {score:.2f}"]
    if one.attempts > 1:
        said.append(f"at attempt {one.attempts}")
    if one.note is not None:
        said.append(f"given note v{one.note}")
    if one.reflection is not None:
        said.append(f"reflected (run {one.reflection.run_count})")
    elif one.no_reflection and one.task.config is not None:
        said.append(
            one.no_reflection if one.no_reflection == BESIDE else f"not reflected: {one.no_reflection}"
        )
    return f"{one.task.title}: {', '.join(said)}"
