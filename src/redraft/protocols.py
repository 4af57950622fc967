"""The protocols to implement, most of them a single `__call__`, with their arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, runtime_checkable

from redraft._hints import keyword_hints
from redraft._prompts import prompt_of
from redraft.types import (
    NOT_REPORTED,
    Advice,
    Conversation,
    Message,
    Output,
    PlainTask,
    ReflectionEvaluation,
    ReflectionVersion,
    TokenUsage,
    Way,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType
    from typing import Self

    from redraft.types import ConvergenceReason, Draft, QualityCriterion, ReflectionResult, Stop

__all__ = [
    "Advisor",
    "AgentLike",
    "AgentPattern",
    "Attempt",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "CriteriaAdvisor",
    "Embedder",
    "Evaluator",
    "FailureObserver",
    "Generator",
    "LearningAdvisor",
    "Mistake",
    "MistakeAdvisor",
    "Preference",
    "ReflectionCallbacks",
    "ReflectionDecision",
    "Reviser",
    "RunContext",
    "Step",
    "Stopper",
    "StreamingModel",
    "TextListener",
]

P = ParamSpec("P")
R = TypeVar("R")


class Generator(Protocol):
    """Write a draft for a prompt."""

    async def __call__(self, prompt: str, run: RunContext, /) -> Draft: ...


class Evaluator(Protocol):
    """Judge an output. An output that cannot be judged gets a score of None instead of an exception."""

    async def __call__(self, output: Output, run: RunContext, /) -> ReflectionEvaluation: ...


class Preference(Protocol):
    """Compare an output with another: 1.0 if it is better, 0.0 if it is worse, 0.5 if neither, else None."""

    async def __call__(self, output: Output, other: Output, run: RunContext, /) -> ReflectionEvaluation: ...


class Reviser(Protocol):
    """Write a better draft from an output and its evaluation."""

    async def __call__(
        self, output: Output, evaluation: ReflectionEvaluation, run: RunContext, /
    ) -> Draft: ...


class Stopper(Protocol):
    """Decide whether to stop: the reason, or None. Pure: the same versions always get the same answer."""

    def __call__(self, versions: Sequence[ReflectionVersion], /) -> Stop | ConvergenceReason | None: ...


@runtime_checkable
class AgentPattern(Protocol):
    """A way for an agent to answer a query; `ReflectionPattern` implements it."""

    __slots__ = ()  # so that a pattern with slots has no `__dict__`

    async def execute(self, agent: Any, query: str | PlainTask, /) -> ReflectionResult:
        """Have `agent` answer a query: the best answer, why the run stopped, and its cost."""
        ...


@runtime_checkable
class AgentLike(Protocol):
    """An agent, as a `ReflectionPattern` sees it; `Agent` implements it."""

    @property
    def model(self) -> ChatModel | None:
        """The model that drafts and revises; None if the agent has none of its own."""
        ...

    @property
    def system_prompt(self) -> str:
        """The system prompt of every call that drafts or revises."""
        ...

    @property
    def pattern(self) -> AgentPattern:
        """The default pattern of runs."""
        ...

    async def run(self, query: str | PlainTask, *, pattern: Any = None) -> ReflectionResult:
        """Answer `query`; `pattern` overrides the agent's own."""
        ...


class ChatModel(Protocol):
    """Answer one request. Raises `ModelError` if the provider fails.

    A model with a false attribute `takes_images` is never sent an `ImageMessage`.
    """

    async def __call__(self, request: ChatRequest, /) -> ChatReply: ...


ModelChoice: TypeAlias = str | ChatModel | Sequence[str | ChatModel]
"""A model or its name. A list adds fallbacks, for when a model is down or over its limit."""


class TextListener(Protocol):
    """Take the next piece of a reply; `usage` is the usage of the call so far, if the provider reports it."""

    def __call__(self, text: str, usage: TokenUsage | None = None, /) -> None: ...


@runtime_checkable
class StreamingModel(ChatModel, Protocol):
    """A chat model that can stream its reply."""

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """Answer one request as a call does, after passing each piece of the text to `on_text`.

        `on_text` returns immediately. It is called in the thread of the event loop.
        """
        ...


class Embedder(Protocol):
    """Embed texts as vectors of unit length, a row for each text; similar meanings give near vectors.

    None in place of a row means that the embedder does not know the text's language; its words decide then.
    Raises `ModelError` if a provider fails, and `OutputError` for rows that cannot be used.
    """

    async def __call__(self, texts: Sequence[str], /) -> Sequence[Sequence[float] | None]: ...


class Advisor(Protocol):
    """Give advice before a run, and learn from its result."""

    async def recall(self, task: PlainTask, /) -> list[Advice]:
        """Advice on a task, for the prompt of each draft; may be empty."""
        ...

    async def observe(self, result: ReflectionResult, /) -> None:
        """Learn from a run that has ended; `result.task` is its task."""
        ...


@runtime_checkable
class LearningAdvisor(Advisor, Protocol):
    """An advisor that needs a model to learn: its own, or else the agent's."""

    def with_model(self, model: ChatModel, /) -> Advisor:
        """The advisor with `model` to learn, or itself if it has a model."""
        ...


@runtime_checkable
class CriteriaAdvisor(Advisor, Protocol):
    """An advisor whose advice on a run depends on the criteria that judge it."""

    def with_criteria(self, criteria: Sequence[QualityCriterion], /, *, in_prompt: bool = True) -> Advisor:
        """The advisor for a run that these criteria judge.

        `in_prompt` says whether the prompt of the run states what the criteria ask for.
        """
        ...


@dataclass(frozen=True, slots=True)
class Mistake:
    """A failure in a run that has just happened, as far as the writer may know it."""

    errors: tuple[str, ...]
    """The messages of checks, a judge or a tool."""
    criteria: tuple[str, ...] = ()
    """The names of the criteria that were not met."""
    requirements: tuple[str, ...] = ()
    """The requirements of these criteria, as sentences."""
    tool: str = ""
    """The tool that failed; empty if a version failed."""
    stated: tuple[str, ...] = ()
    """Sentences that the prompt or the conversation already contains."""


@runtime_checkable
class MistakeAdvisor(Advisor, Protocol):
    """An advisor that also gives advice when something has failed in a run."""

    async def advise_on(self, task: PlainTask, mistake: Mistake, /) -> list[Advice]:
        """Advice on a mistake, for the next prompt; may be empty."""
        ...


@runtime_checkable
class FailureObserver(Advisor, Protocol):
    """An advisor that also learns from runs that raised before they had a result."""

    async def observe_failure(
        self, task: PlainTask, run_id: str, error: Exception, advice: Sequence[Advice], /
    ) -> None:
        """Learn from a run that raised `error` before it had a result; `advice` is that of all advisors."""
        ...


class Step(Protocol):
    """Carry out one effect of a run, such as a model call.

    `name` identifies the effect, and `returns` is the type by which its result is stored as JSON. Delivery is
    at least once. A journal is a step: it records effects and replays them.

    A step that wraps another passes on all its arguments and refers to the wrapped step, so that Redraft can
    find a journal inside: decorate a function with `functools.wraps(inner)`, or give an object the attribute
    `__wrapped__`.
    """

    async def __call__(
        self, name: str, returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...


class Allowance(Protocol):
    """The part of the run's budget that is left for the current step.

    A call that does not fit raises `UnfinishedError` with the reason, before anything is spent.
    """

    def call(
        self,
        role: ModelRole,
        input_tokens: int,
        max_tokens: int | None = None,
        model: object = None,
        /,
        *,
        is_limit_fixed: bool = False,
    ) -> ModelCall:
        """Open a context in which to call `model` with about `input_tokens` tokens.

        With `is_limit_fixed`, the request already has the limit `max_tokens`, which can't be lowered.
        """
        ...

    async def reported(self, kind: str, fn: Callable[[], Awaitable[R]], /, *, is_revision: bool = False) -> R:
        """Call a function whose result reports its `usage`, if the costliest call of its kind would fit."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether a limit is reached, or a call was not allowed."""
        ...

    async def in_time(self, effect: Awaitable[R], what: str = "a check", /) -> R:
        """Await a free check, or one of several drafts, and cancel it at the deadline."""
        ...


class ModelCall(Protocol):
    """One model call within a budget: a context manager around the call."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    async def carry_out(self, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the call if it fits into the budget, and cancel it at the deadline."""
        ...

    @property
    def room(self) -> int | None:
        """The tokens of a reply that fit now; None if the budget bounds only time."""
        ...

    def check(self) -> None:
        """Raise `UnfinishedError` if the call does not fit now, for a call that can't wait for others."""
        ...

    async def limited(self, send: Callable[[int | None], Awaitable[R]], /) -> R:
        """Call `send` with the reply limit, and with lower ones while the provider refuses it as too high."""
        ...

    def counted(self, usage: TokenUsage, text: str, /, *, cut_off: bool = False) -> TokenUsage:
        """The usage of the call; estimates the tokens of the reply if the provider did not report them."""
        ...

    def used(self, usage: TokenUsage, /) -> None:
        """Report the usage of the call, even if its reply was replayed."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt:
    """The current task of a generator or reviser."""

    number: int = 1
    """The 1-based version that the attempt will become."""
    mode: Literal["draft", "revise", "fresh"] = "draft"
    """`draft` (the first one), `revise` (improve `previous` by `evaluation`) or `fresh` (start over).

    For a fresh start, `evaluation` lists what went wrong before, and `previous`, if shown at all, is only an
    example of what not to repeat.
    """
    previous: Output = None
    evaluation: ReflectionEvaluation | None = None
    strategy: str = "hybrid"
    """The revision strategy to use."""
    temperature: float | None = None
    """The temperature to ask for, which a model may ignore."""
    failed: ReflectionVersion | None = None
    """The last version that made things worse; its changes should not be tried again."""
    max_tokens: int | None = None
    """Limits the tokens of this attempt's output."""
    base: int | None = None
    """The iteration that `previous` comes from."""
    candidate: int = 1
    """Its 1-based number among the attempts at the same version, which run in parallel."""
    way: Way | None = None
    """The way of revising that was chosen among several; `strategy` has its name."""
    advice: tuple[Advice, ...] = ()
    """Advice on earlier failures."""


FIRST_ATTEMPT = Attempt()

FRESH_TEMPERATURE = 0.7
"""The temperature of a fresh start: high enough for a different answer, too low to hurt its quality."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """A read-only view of a run: its task and advice, the versions so far, and the current attempt.

    A writer's view of the run, and every attempt, leave out whatever a criterion's `shown` hides from the
    writer, and the reasons why criteria could not be judged.
    """

    task: PlainTask
    run_id: str
    iteration: int = 1
    """The 1-based number of the version that is being made or judged."""
    versions: tuple[ReflectionVersion, ...] = ()
    """The versions before it."""
    advice: tuple[Advice, ...] = ()
    attempt: Attempt = FIRST_ATTEMPT
    free_only: bool = False
    """Whether an evaluator must not call a model: the budget is spent, or a gate was not passed."""
    rubric: str = ""
    """The requirements of the criteria, as far as a writer may know them: a part of the `prompt`.

    The same in all calls of a run; empty if the run has no criteria, or if its writer can't see it.
    """
    rivals: Sequence[ReflectionEvaluation] = ()
    """The evaluations of other candidates for the same version; grows while they are judged."""
    state: Any = field(default=None, repr=False, compare=False)
    """The state of the run; internal."""
    conversation: Conversation | None = None
    """The conversation that led to the output under judgement, if its writer uses tools."""

    @property
    def base(self) -> ReflectionVersion | None:
        """The version that `attempt.previous` comes from, if there is one."""
        return next((version for version in self.versions if version.iteration == self.attempt.base), None)

    @property
    def prompt(self) -> str:
        """The prompt for a draft: the task with its advice, its expected output, and the rubric."""
        return prompt_of(self.task, self.advice, self.rubric)

    def for_writer(self) -> RunContext:
        """The part of the run that the writer may know."""
        return replace(self, versions=tuple(version.for_writer() for version in self.versions))


class ReflectionDecision(StrEnum):
    """What happens after an evaluation.

    `AUTO`: the convergence rules decide. `CONTINUE`: go on even if a rule says stop, but never past the
    maximum or a budget. `STOP`: end the run with its best version. `ACCEPT`: end it with this version.
    """

    AUTO = "auto"
    CONTINUE = "continue"
    STOP = "stop"
    ACCEPT = "accept"


class ReflectionCallbacks:
    """Watch and steer a run: override the methods that you need.

    An exception of a callback is logged, and the run goes on.
    """

    async def on_generation(self, output: Output, iteration: int) -> None:
        """Called after each new output, including the first draft; `iteration` is 1-based."""

    async def on_reflection(
        self,
        evaluation: ReflectionEvaluation,  # noqa: ARG002 (for overrides)
        iteration: int,  # noqa: ARG002
    ) -> ReflectionDecision:
        """Called after each evaluation; returns what to do next."""
        return ReflectionDecision.AUTO

    async def on_revision(self, old_output: Output, new_output: Output, iteration: int) -> None:
        """Called after each revision, fresh starts included; `iteration` is the number of the new output."""


ModelRole: TypeAlias = Literal["generation", "evaluation", "revision", "reflection"]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model."""

    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None = None
    """A JSON Schema for the reply, with an object at the top; the reply has the decoded value as `parsed`."""
    temperature: float | None = None
    """Sent only if it is not None, since newer models refuse sampling parameters."""
    max_tokens: int | None = None
    """Sent only if it is not None."""
    logprobs: int = 0
    """How many alternatives of each token to ask for, 0 to 20."""
    role: ModelRole = "generation"
    """The purpose of the call; a `reflection` is about a run, during the run or after it."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other settings of the agent's `model_settings`, named as in Pydantic AI's `ModelSettings`."""
    schema_in_prompt: bool = False
    """Whether the messages already describe the schema, for a server that does not support schemas."""


@keyword_hints()
@dataclass(frozen=True, slots=True)
class ChatReply:
    """A model's reply."""

    text: str
    parsed: Any = None
    """The decoded value if the request has a schema; None if the text could not be decoded."""
    logprobs: tuple[Mapping[str, float], ...] = ()
    """Natural log probabilities by token, a mapping for each generated token, if the provider has them."""
    usage: TokenUsage = NOT_REPORTED
    model: str = ""
    finish_reason: Literal["stop", "length", "other"] = "stop"
    """`length` if the reply was cut off."""
