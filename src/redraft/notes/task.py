"""Tasks: how they are defined, answered, accepted and reflected on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol

from redraft._hints import keyword_hints
from redraft._validation import check_count, check_kind, check_list, check_model, check_text
from redraft.errors import ConfigError
from redraft.notes.note import TaskReflection
from redraft.notes.trial import Trial
from redraft.protocols import ModelChoice
from redraft.types import Criterion, Output, PlainTask, QualityCriterion, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.loop.pattern import ReflectionPattern  # noqa: TC004 (a task is no reason to load the loop)

MAX_TOKENS = 600
ENSEMBLE_OPTIONS = (
    "context",
    "reflect",
    "model",
    "handler",
    "criteria",
    "max_iterations",
    "quality_threshold",
    "budget_usd",
    "budget_tokens",
    "budget_seconds",
    "judge",
    "pattern",
    "input_guardrails",
    "guardrails",
    "review",
)
"""The options of a task that only an ensemble carries out."""


# Compared by identity: two steps of an ensemble may have the same text.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class Task(PlainTask):
    """A task, defined once in code; the notes on it are stored separately and never change it.

    `{placeholders}` in `description` and `expected_output` are filled from the `inputs` of a run.

    Without `max_iterations` and `pattern`, the first version is scored and returned; with either, it is
    revised until `quality_threshold` is reached or another rule says stop. The budgets bound the run. An
    argument given here overrides the pattern's. A task without a pattern, criteria and judge is not scored.

    Guardrails and `review` are functions with a single argument, sync or async. They return None or True to
    accept; or False, a number, `(False, "why")`, a dict or an evaluation, as evaluators do. A rejected output
    is made again with the reasons, at most `retries` times.
    """

    tools: Sequence[Callable[..., Any] | str] = ()  # pyright: ignore[reportIncompatibleVariableOverride] (`plain` gives their names)
    """Functions that the model may call before it answers."""
    context: Sequence[Task] | str = ()  # pyright: ignore[reportIncompatibleVariableOverride] (`plain` gives a text)
    """The tasks whose outputs this task needs."""
    _: KW_ONLY
    name: str = ""
    """A name for people; by default the beginning of the description."""
    reflect: bool | ReflectionConfig = False
    """Whether to ask, after each accepted output, for better instructions for the next run."""
    model: ModelChoice | None = None
    """The model that answers; by default the ensemble's."""
    handler: Callable[[TaskContext], Any] | None = None
    """A function that answers instead of a model, sync or async."""
    criteria: Sequence[Criterion] | None = None
    """The criteria that score the output."""
    max_iterations: int | None = None
    quality_threshold: float | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_seconds: float | None = None
    judge: ModelChoice | None = None
    """The model for criteria that need a model; by default the task's own."""
    pattern: ReflectionPattern | None = None
    input_guardrails: Sequence[Callable[[Mapping[str, Any]], Any]] = ()
    """Check the inputs before money is spent."""
    guardrails: Sequence[Callable[[Output], Any]] = ()
    """Check the output."""
    review: Callable[[Output], Any] | None = None
    """Has the last word on the output: a person, or another program."""
    retries: int = 2

    # With eq=False alone these would be inherited, and compare the texts.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __post_init__(self) -> None:
        for name in ("description", "expected_output", "task_type", "name"):
            check_text(f"The {name} of a task", getattr(self, name))
        if not self.description.strip():
            raise ConfigError("A task needs a description of what to do.")
        for name in ("tools", "input_guardrails", "guardrails"):
            check_list(name, getattr(self, name))
        if not isinstance(self.context, str):
            check_list("context", self.context)
        if self.criteria is not None:
            from redraft.evaluate.criteria import criteria_of  # noqa: PLC0415 (many tasks have none)

            criteria_of(self.criteria, self.task_type)
        self._check_parts()
        check_count("retries", self.retries, 0)
        if self.handler is not None and self.tools:
            raise ConfigError(
                f"The task {self.title!r} has a handler, so `tools` can't be used; call them from "
                "the handler."
            )
        if not isinstance(self.reflect, bool | ReflectionConfig):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"reflect must be True, False or a ReflectionConfig, got {self.reflect!r}.")

    def _check_parts(self) -> None:
        """Require functions where something is called, and Tasks or a text as the context."""
        single = (("handler", self.handler), ("review", self.review))
        called: list[tuple[str, object]] = [(name, value) for name, value in single if value is not None]
        called += [("input_guardrails", function) for function in self.input_guardrails]
        called += [("guardrails", function) for function in self.guardrails]
        for name, function in called:
            if not callable(function):
                raise ConfigError(f"{name} of the task {self.title!r} must be a function, got {function!r}.")
        for needed in () if isinstance(self.context, str) else self.context:
            if not isinstance(needed, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (people try names)
                raise ConfigError(f"context of the task {self.title!r} must hold Tasks, got {needed!r}.")

    @property
    def title(self) -> str:
        """The task's name, or the beginning of its description."""
        first = self.description.strip().splitlines()[0]
        return self.name or (first if len(first) <= 60 else f"{first[:57]}...")  # noqa: PLR2004 (fits a column)

    @property
    def label(self) -> str:
        """The task's name, or the id that `redraft notes` shows: its text is not for traces and metrics."""
        return self.name or TaskIdentity.of(self)[:8]

    @property
    def is_judged(self) -> bool:
        """Whether the output is scored, by default by the criteria of the task's type."""
        judging = (self.criteria, self.max_iterations, self.quality_threshold, self.judge, self.pattern)
        return any(option is not None for option in judging)

    @property
    def config(self) -> ReflectionConfig | None:
        """How the task is reflected on; None if it is not."""
        if isinstance(self.reflect, ReflectionConfig):
            return self.reflect
        return DEFAULT_CONFIG if self.reflect else None

    @property
    def ensemble_options(self) -> tuple[str, ...]:
        """The names of its options that only an `Ensemble` carries out."""
        defaults = {option.name: option.default for option in fields(self)}
        names = (name for name in ENSEMBLE_OPTIONS if getattr(self, name) not in (defaults[name], []))
        return tuple(name for name in names if name != "context" or not isinstance(self.context, str))

    def plain(self) -> PlainTask:
        """The task as plain data: tools by name, without the outputs of other tasks."""
        names = tuple(tool if isinstance(tool, str) else _name_of(tool) for tool in self.tools)
        context = self.context if isinstance(self.context, str) else ""
        return PlainTask(
            self.description,
            self.expected_output,
            self.task_type,
            names,
            context,
            self.messages,
            self.images,
        )


def _name_of(tool: Callable[..., Any]) -> str:
    """The name of a function or of a Pydantic AI tool, else the name of the class."""
    name: object = getattr(tool, "__name__", None) or getattr(tool, "name", None)
    return name if isinstance(name, str) else type(tool).__name__


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The argument of a task's handler."""

    task: PlainTask
    prompt: str
    """The whole prompt, including the notes of earlier runs."""
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[Output, ...] = ()
    """The outputs of the tasks in `context`, in that order."""
    feedback: str = ""
    """Why the previous output was rejected; empty at first."""


class TaskIdentity:
    """Identifies a task by its description, the same in every process and on every machine."""

    @staticmethod
    def of(task: PlainTask | str) -> str:
        """The SHA-256 of a task's description, in lowercase hexadecimal.

        The description is taken as written, before inputs are filled in, so that all runs of a template share
        their notes. A task with another description starts anew.
        """
        check_kind("task", task, (PlainTask, str), "a Task, or its description")
        description = task if isinstance(task, str) else task.description
        return sha256(description.encode("utf-8", "surrogatepass")).hexdigest()


# Compared by identity, as functions are.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class ReflectionConfig:
    """How a task is reflected on after an accepted run.

    Raises `ConfigError` for invalid values.
    """

    model: ModelChoice | None = None
    """The model that reflects; by default the task's, else the ensemble's. A small model is often enough."""
    strategy: ReflectionStrategy | None = None
    """Writes the note, without `model`.

    By default `CheckReflectionStrategy` for a task with criteria that need no model, else
    `LlmReflectionStrategy`.
    """
    max_tokens: int = MAX_TOKENS
    """The most tokens of a note."""
    trial: Trial | Literal[False] | None = None
    """A trial of whether the notes help; False for none.

    By default `Trial(min_runs=1)`, if there are criteria and a store that keeps revisions.
    """

    def __post_init__(self) -> None:
        check_model("model", self.model)
        check_count("max_tokens", self.max_tokens, 50)
        if self.strategy is not None and (not callable(self.strategy) or isinstance(self.strategy, type)):
            raise ConfigError(f"strategy must be a function of a ReflectionInput, got {self.strategy!r}.")
        if self.trial not in (None, False) and not isinstance(self.trial, Trial):  # pyright: ignore[reportUnnecessaryIsInstance] (people try True)
            raise ConfigError(f"trial must be a Trial(...), False or None, got {self.trial!r}.")


DEFAULT_CONFIG = ReflectionConfig()


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """The argument of a reflection strategy."""

    task: PlainTask
    """The definition as written, without the inputs of the run."""
    task_output: str
    """The accepted output as text."""
    prior_reflection: TaskReflection | None = None
    """The note in force; None before the first."""
    evaluation: ReflectionEvaluation | None = None
    """The evaluation of the output, if the task has criteria."""
    max_tokens: int = MAX_TOKENS
    """The most tokens of the note."""
    first_evaluation: ReflectionEvaluation | None = None
    """The evaluation of the first version, which only the note can improve."""
    criteria: tuple[QualityCriterion, ...] = ()
    """The criteria that the writer may know."""


class ReflectionStrategy(Protocol):
    """A function, sync or async, that says how a task's instructions could be better.

    An exception leaves the note as it was. The store counts the runs and ignores `run_count`.
    """

    def __call__(self, subject: ReflectionInput, /) -> TaskReflection | Awaitable[TaskReflection]:
        """Improve the instructions; parts that can't be improved stay as in the task."""
        ...
