"""The verbs: protocols with one call, the thing itself first and the context last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

    from redraft.core.chat import ChatReply, ChatRequest, ModelRole
    from redraft.core.context import RunContext
    from redraft.core.evaluation import ReflectionEvaluation
    from redraft.core.result import ConvergenceReason, ReflectionResult
    from redraft.core.task import Advice, Task
    from redraft.core.usage import TokenUsage
    from redraft.core.version import Draft, Output, ReflectionVersion

P = ParamSpec("P")
R = TypeVar("R")


class Generator(Protocol):
    """Make a draft for a prompt."""

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft: ...


class Evaluator(Protocol):
    """Judge an output. An output that could not be judged has a score of None; it does not raise."""

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation: ...


class Reviser(Protocol):
    """Make a better draft out of an output and what was said about it."""

    async def __call__(
        self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
    ) -> Draft: ...


class Stopper(Protocol):
    """Say why the run should stop now, or None. Pure: the same versions always get the same answer."""

    def __call__(self, versions: Sequence[ReflectionVersion], /) -> ConvergenceReason | None: ...


@runtime_checkable
class AgentPattern(Protocol):
    """Decide how an agent comes from a query to its answer: what `ReflectionPattern` is one of."""

    __slots__ = ()  # a pattern with slots must not get a dict from here

    async def execute(self, agent: Any, query: str | Task, /) -> ReflectionResult:
        """Let an agent answer a query."""
        ...


class ChatModel(Protocol):
    """Answer one request. Raises `ModelError` when the provider failed."""

    async def __call__(self, request: ChatRequest, /) -> ChatReply: ...


class Embedder(Protocol):
    """Turn texts into vectors that are near where the texts mean the like: one row a text, of unit length.

    Raises `ModelError` when a provider failed, and `OutputError` for rows that can't be used.
    """

    async def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[float]]: ...


class Advisor(Protocol):
    """Give advice before a run, and learn from how it went."""

    async def recall(self, task: Task, /) -> list[Advice]: ...

    async def observe(self, result: ReflectionResult, /) -> None: ...


@runtime_checkable
class Learner(Advisor, Protocol):
    """An advisor that needs a model to learn, and takes the one of the agent where it has none of its own."""

    def with_model(self, model: ChatModel, /) -> Advisor: ...


@runtime_checkable
class FailureObserver(Advisor, Protocol):
    """An advisor that learns from runs that raised before there was anything to return, too."""

    async def observe_failure(self, task: Task, run_id: str, error: Exception, /) -> None: ...


class Step(Protocol):
    """Carry out one effect of a run: the one seam through which everything that is not pure goes.

    Retrying, observing, recording and replaying are steps that wrap steps. A step is at-least-once; its
    result is JSON by `returns`.

    A step that wraps another passes on all that it is called with, and says what it wraps, so that a journal
    inside is found: a function is decorated with `functools.wraps(inner)`, an object has the attribute
    `__wrapped__`. Nothing asks for the class of a step.
    """

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...


class Allowance(Protocol):
    """Say what the step under way may still use of its run's budget.

    What it does not allow raises `UnfinishedError` with the reason, before anything is spent.
    """

    @property
    def bounds_time(self) -> bool:
        """Whether the step is cancelled at a certain time."""
        ...

    def call(self, role: ModelRole, input_tokens: int, max_tokens: int | None = None, /) -> ModelCall:
        """Return what a model call of about so many input tokens is carried out by."""
        ...

    async def in_time(self, check: Awaitable[R], /) -> R:
        """Wait for a check that is free, and cancel it when the time for those is spent."""
        ...


class ModelCall(Protocol):
    """Carry out one model call within a budget. Entered before the call, and left when it has ended."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call when it fits into the budget, and cancel it when the time is spent."""
        ...

    def used(self, usage: TokenUsage, /) -> None:
        """Say what the call has used, also where its reply was recorded before."""
        ...


@runtime_checkable
class TimedStep(Step, Protocol):
    """A step that outlives the process: it knows its run's id, and tells the time as it was when it replays.

    Between two steps its clock stands still at the end of the last one, so that whatever a run decides by
    the clock is decided alike when the run is started again.
    """

    run_id: str

    def elapsed(self) -> float:
        """Return the seconds that the run has been at work, in all processes that worked on it."""
        ...

    def at(self) -> datetime:
        """Return the time of day, in UTC."""
        ...


class CommandRunner(Protocol):
    """Run a command beside files in a jail: what the `command` evaluator needs of `sandbox/`."""

    async def __call__(self, command: Command, /) -> CommandOutcome: ...


class ScriptRunner(Protocol):
    """Run a script in a sandbox: what workflows need of `sandbox/`. Raises `SandboxError`."""

    async def __call__(self, script: Script, /) -> ScriptOutcome: ...


if TYPE_CHECKING:
    from redraft.core.command import Command, CommandOutcome
    from redraft.core.script import Script, ScriptOutcome
