"""Tasks: what is asked, how it is answered, accepted and reflected on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Protocol

from redraft._hints import keyword_hints
from redraft._validation import check_count, check_list
from redraft.errors import ConfigError
from redraft.notes.note import TaskReflection
from redraft.notes.trial import Trial
from redraft.protocols import ModelChoice
from redraft.types import Criterion, Output, PlainTask, QualityCriterion, ReflectionEvaluation

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from redraft.loop.pattern import ReflectionPattern  # noqa: TC004 (a task is no reason to load the loop)

MAX_TOKENS = 600


# Compared by identity: two tasks may say the same and be two steps of an ensemble.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class Task(PlainTask):
    """A task, defined once in code; what its runs teach is stored apart and never changes it.

    `{placeholders}` in `description` and `expected_output` are filled from the `inputs` of a run. A model
    answers: `model`, else the ensemble's; with `tools` (functions) it acts before it answers. Instead of a
    model, a `handler` can answer: a function of a `TaskContext`, sync or async. `context` names the tasks
    whose outputs it needs.

    `criteria` score the output, by `judge` or else the task's own model where they need a model. Without
    `max_iterations` and `pattern`, the first version is scored and returned; with either, it is revised until
    `quality_threshold` is reached or another rule says stop. The budgets bound the run. An argument given
    here overrides the pattern's. A task with neither a pattern nor anything that judges is not scored.

    `input_guardrails` check the inputs before money is spent, `guardrails` check the output, and `review` (a
    person, another program) has the last word. Each is a function of one argument, sync or async. It returns
    None or True to accept; or False, a number, `(False, "why")`, a dict or an evaluation, as evaluators do. A
    refused output is made again with the reasons, at most `retries` times.

    `reflect` asks after each accepted output how these instructions could be better, and puts the answer
    before them the next time. `name` is for people; the default is the beginning of the description.
    """

    tools: Sequence[Callable[..., Any] | str] = ()  # pyright: ignore[reportIncompatibleVariableOverride] (`plain` gives their names)
    context: Sequence[Task] | str = ()  # pyright: ignore[reportIncompatibleVariableOverride] (`plain` gives a text)
    _: KW_ONLY
    name: str = ""
    reflect: bool | ReflectionConfig = False
    model: ModelChoice | None = None
    handler: Callable[[TaskContext], Any] | None = None
    criteria: Sequence[Criterion] | None = None
    max_iterations: int | None = None
    quality_threshold: float | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_seconds: float | None = None
    judge: ModelChoice | None = None
    pattern: ReflectionPattern | None = None
    input_guardrails: Sequence[Callable[[Mapping[str, Any]], Any]] = ()
    guardrails: Sequence[Callable[[Output], Any]] = ()
    review: Callable[[Output], Any] | None = None
    retries: int = 2

    # With eq=False alone these would be inherited, and compare the texts.
    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __post_init__(self) -> None:
        if not self.description.strip():
            raise ConfigError("A task needs a description of what to do.")
        for name in ("tools", "input_guardrails", "guardrails"):
            check_list(name, getattr(self, name))
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
        if not isinstance(self.reflect, bool | ReflectionConfig):  # pyright: ignore[reportUnnecessaryIsInstance] (what callers pass is theirs)
            raise ConfigError(f"reflect must be True, False or a ReflectionConfig, got {self.reflect!r}.")

    def _check_parts(self) -> None:
        """Require functions where something is called, and Tasks or a text as the context."""
        one = (("handler", self.handler), ("review", self.review))
        called: list[tuple[str, object]] = [(name, value) for name, value in one if value is not None]
        called += [("input_guardrails", function) for function in self.input_guardrails]
        called += [("guardrails", function) for function in self.guardrails]
        for name, function in called:
            if not callable(function):
                raise ConfigError(f"{name} of the task {self.title!r} must be a function, got {function!r}.")
        for needed in () if isinstance(self.context, str) else self.context:
            if not isinstance(needed, Task):  # pyright: ignore[reportUnnecessaryIsInstance] (names are what people try)
                raise ConfigError(f"context of the task {self.title!r} must hold Tasks, got {needed!r}.")

    @property
    def title(self) -> str:
        """The task's name, or the beginning of its description."""
        first = self.description.strip().splitlines()[0]
        return self.name or (first if len(first) <= 60 else f"{first[:57]}...")  # noqa: PLR2004 (fits a column)

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

    def plain(self) -> PlainTask:
        """Return what is asked as plain data: tools by name, without the outputs of other tasks."""
        names = tuple(tool if isinstance(tool, str) else _name_of(tool) for tool in self.tools)
        context = self.context if isinstance(self.context, str) else ""
        return PlainTask(self.description, self.expected_output, self.task_type, names, context)


def _name_of(tool: Callable[..., Any]) -> str:
    """Return the name of a function or of a Pydantic AI tool, else the name of the class."""
    name: object = getattr(tool, "__name__", None) or getattr(tool, "name", None)
    return name if isinstance(name, str) else type(tool).__name__


@dataclass(frozen=True, slots=True)
class TaskContext:
    """What the handler of a task is asked.

    `prompt` is everything as one text, including the notes of earlier runs. `outputs` are those of the tasks
    named in `context`, in that order. `feedback` says why the previous output was refused; empty at first.
    """

    task: PlainTask
    prompt: str
    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    outputs: tuple[Output, ...] = ()
    feedback: str = ""


class TaskIdentity:
    """Identifies a task by its description, the same in every process and on every machine."""

    @staticmethod
    def of(task: PlainTask | str) -> str:
        """Return the SHA-256 of a task's description, in lowercase hexadecimal.

        The description is taken as written, before inputs are filled in, so that all runs of a template share
        their notes. A task with another description starts anew.
        """
        description = task if isinstance(task, str) else task.description
        return sha256(description.encode("utf-8", "surrogatepass")).hexdigest()


# Compared by identity, as functions are.
@keyword_hints()
@dataclass(frozen=True, slots=True, eq=False)
class ReflectionConfig:
    """How a task is reflected on after an accepted run.

    `model` reflects: a name or a `ChatModel`, by default the task's, else the ensemble's. A smaller and
    cheaper one is often enough. `strategy` replaces the default, which is `CheckReflectionStrategy` for a
    task with criteria that need no model, else `LlmReflectionStrategy`; it needs no model. `max_tokens`
    bounds a note. `trial` tests whether the notes help: None for the default `Trial` wherever there are
    criteria and a store that keeps revisions, False for none. Raises `ConfigError`.
    """

    model: ModelChoice | None = None
    strategy: ReflectionStrategy | None = None
    max_tokens: int = MAX_TOKENS
    trial: Trial | Literal[False] | None = None

    def __post_init__(self) -> None:
        check_count("max_tokens", self.max_tokens, 50)
        if self.strategy is not None and not callable(self.strategy):
            raise ConfigError(f"strategy must be a function of a ReflectionInput, got {self.strategy!r}.")
        if self.trial not in (None, False) and not isinstance(self.trial, Trial):  # pyright: ignore[reportUnnecessaryIsInstance] (True is what people try)
            raise ConfigError(f"trial must be a Trial(...), False or None, got {self.trial!r}.")


DEFAULT_CONFIG = ReflectionConfig()


@dataclass(frozen=True, slots=True)
class ReflectionInput:
    """What a strategy reflects on.

    `task` is the definition as written, without the inputs of the run; `task_output` is the accepted output
    as a text. `prior_reflection` is the note in force, None before the first. `evaluation` is what the task's
    criteria said about the output, if it has any, and `first_evaluation` what they said about the first
    version, which only the note can improve. `max_tokens` bounds the note. `criteria` are those that the
    writer may know.
    """

    task: PlainTask
    task_output: str
    prior_reflection: TaskReflection | None = None
    evaluation: ReflectionEvaluation | None = None
    max_tokens: int = MAX_TOKENS
    first_evaluation: ReflectionEvaluation | None = None
    criteria: tuple[QualityCriterion, ...] = ()


class ReflectionStrategy(Protocol):
    """A function, sync or async, that says how a task's instructions could be better.

    An exception leaves the note as it was. The store counts the runs, whatever `run_count` says.
    """

    def __call__(self, subject: ReflectionInput, /) -> TaskReflection | Awaitable[TaskReflection]:
        """Return the improved instructions; what can't be improved stays as in the task."""
        ...
