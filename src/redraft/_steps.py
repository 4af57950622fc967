"""Steps: the context of an effect, retries, gates, and model calls."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from inspect import isawaitable
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, ParamSpec, Protocol, TypeAlias, TypeVar, cast

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._texts import estimate_tokens, short_repr
from redraft._thoughts import without_thoughts
from redraft._validation import check_count, is_number, named_error, repr_of
from redraft._verdicts import usage_of
from redraft.errors import ConfigError, ModelError, UnfinishedError, unusable_reply
from redraft.protocols import ChatReply, ModelRole, StreamingModel
from redraft.types import NOT_REPORTED, images_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft._tokens import ReplyText, VersionText
    from redraft.protocols import Allowance, ChatModel, ChatRequest, ModelCall, Step, TextListener
    from redraft.types import TokenUsage

P = ParamSpec("P")
R = TypeVar("R")

OnFailure: TypeAlias = "Callable[[Exception, float | None], float | None]"
"""Called after a failure with the seconds to wait (None after the last); returns them, or None to give up."""

OBSERVE = "observe"
"""The name of the steps in which advisors observe a run that has ended."""


async def direct(
    _name: str, _returns: type[R], fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Carry out an effect."""
    return await fn(*args, **kwargs)


class StepContext(NamedTuple):
    """The step under way, for the code inside its effect."""

    step: Step = direct
    """The step for effects inside the effect, such as the model and tool calls of a journalled step.

    A step that records or replays sets it while it carries out an effect. Inner effects may run concurrently
    and are identified by name, so within one outer step the same name must mean the same effect.
    """
    budget: Allowance | None = None
    """The budget left for the step, if its run has one; consulted before each model call."""
    text: VersionText | None = None
    """The text of the version that the step writes, for a listener; without it, models don't stream."""
    calls: list[TokenUsage] | None = None
    """Usage of one concurrent part of the step, which may finish before the step."""


NO_STEP = StepContext()
"""The context outside of any step."""
step_context: ContextVar[StepContext] = ContextVar("step_context", default=NO_STEP)
"""The context of the step under way."""


async def unexited(call: Awaitable[R], what: str) -> R:
    """Await a call of a user's function; raises `RuntimeError` if it raised `SystemExit`.

    That would end the event loop and everything in it. Parsers of arguments raise it. A handler of signals
    may: it runs inside the function, but ends the program.
    """
    try:
        return await call
    except SystemExit as error:
        _raise_ended(error, what)


async def uncancelled(call: Awaitable[R], what: str, caller: str) -> R:
    """Await a call of a user's function; raises what `unexited` does.

    Raises `RuntimeError`, too, if it was cancelled, but not by its caller.
    """
    try:
        return await call
    except (asyncio.CancelledError, SystemExit) as error:
        _raise_ended(error, what, caller)


def _raise_ended(error: asyncio.CancelledError | SystemExit, what: str, caller: str = "") -> NoReturn:
    ended = f"was cancelled, and {caller} was not"
    if isinstance(error, SystemExit):
        handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
        if any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__)):
            raise error
        ended = f"raised {named_error(error)}"
    elif (task := asyncio.current_task()) is not None and task.cancelling():
        raise error
    raise RuntimeError(f"{what} {ended}") from error


async def user_call(call: Awaitable[R], what: str, caller: str = "the run") -> R:
    """Await a call of a user's function; raises what `uncancelled` does.

    If a run inside the function has spent its budget, that is an error of the function: the `UnfinishedError`
    then names no budget.
    """
    try:
        return await call
    except (asyncio.CancelledError, SystemExit) as error:
        _raise_ended(error, what, caller)
    except UnfinishedError as error:
        budget = step_context.get().budget
        if error.reason is None or (budget is not None and budget.is_over):
            raise
        raise UnfinishedError(str(error), conversation=error.conversation, usage=error.usage) from error


class step_scope:  # noqa: N801 (used like a function)
    """Change the context of the step under way while the block runs."""

    __slots__ = ("_changes", "_outside")

    def __init__(self, **changes: Any) -> None:
        self._changes = changes

    def __enter__(self) -> None:
        self._outside = step_context.set(step_context.get()._replace(**self._changes))

    def __exit__(self, *_: object) -> None:
        step_context.reset(self._outside)


async def in_time(effect: Awaitable[R], what: str = "a check") -> R:
    """Await a part of the step under way; raises `UnfinishedError` when the time of the step is spent."""
    budget = step_context.get().budget
    return await (effect if budget is None else budget.in_time(effect, what))


@dataclass(frozen=True, slots=True)
class OutgoingCall:
    """A model call that is about to be sent, as a gate sees it."""

    model: object
    """The model; limits match its name."""
    input_tokens: int
    """The estimated tokens of the input."""
    max_tokens: int | None = None
    """The limit on the reply in the request."""
    role: ModelRole = "generation"
    """The purpose of the call."""
    is_limit_fixed: bool = False
    """Whether the limit on the reply, or its absence, can't be changed any more."""
    waits_out: bool = True
    """Whether to wait for a provider's Retry-After; otherwise the gate raises `BlockedError`."""

    @property
    def name(self) -> str:
        """The name of the model."""
        return name_of_model(cast("ChatModel", self.model))


class CallGate(Protocol):
    """Let a model call through once the limits allow it; a fleet's workers share limits this way."""

    async def __call__(
        self,
        call: OutgoingCall,
        send: Callable[[int | None], Awaitable[R]],
        usage: Callable[[R], TokenUsage],
        /,
    ) -> R:
        """Wait until `call` may be sent, call `send` with the limit on the reply, and return the reply.

        The limit is `call.max_tokens`, or lower. `usage` returns the usage of a reply.
        """
        ...


class BlockedError(ModelError):
    """The provider asked to wait, so the call was not sent."""


call_gate: ContextVar[CallGate | None] = ContextVar("call_gate", default=None)
"""The gate for model calls, if any; replies from a journal do not pass it."""


async def gated(
    call: OutgoingCall, send: Callable[[int | None], Awaitable[R]], usage: Callable[[R], TokenUsage]
) -> R:
    """Send a call through the gate, if any."""
    gate = call_gate.get()
    return await (send(call.max_tokens) if gate is None else gate(call, send, usage))


def name_of_model(model: ChatModel) -> str:
    """The `name` of a model, or else the name of the function or of its class."""
    names: tuple[object, ...] = (getattr(model, "name", None), getattr(model, "__name__", None))
    return next((name for name in names if isinstance(name, str)), type(model).__name__)


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Retry:
    """How often to retry a failed step, and how long to wait before each retry.

    The wait before retry n (0-based) is uniform between half and all of `first_wait * 2**n` seconds, up to
    `longest_wait`, so that clients which failed together do not retry together. A provider's Retry-After is
    honoured; if it is longer than `longest_wait`, the step fails.

    Rate limits (status 429) do not count as attempts. They are retried until `patience` seconds have been
    spent waiting, unless `attempts` is 1. With a `patience` of 0, or waits of 0, they are ordinary failures.
    """

    attempts: int = 3
    """The number of tries, the first included; 1 means no retries."""
    first_wait: float = 0.5
    """Seconds before the first retry."""
    longest_wait: float = 60.0
    """The most seconds before a retry."""
    patience: float = 60.0
    """The most seconds to wait for rate limits, in total."""

    def __post_init__(self) -> None:
        check_count("Retry: attempts", self.attempts, 1)
        for name in ("first_wait", "longest_wait", "patience"):
            wait: object = getattr(self, name)
            if not is_number(wait) or wait < 0:
                raise ConfigError(f"Retry: {name} must be at least 0 seconds, got {wait!r}.")

    def wait_before(self, attempt: int, error: BaseException, waited: float = 0.0) -> float | None:
        """Seconds to wait before the next try, or None to give up.

        `attempt` is the 1-based number of this failure; rate limits and other failures are counted
        separately. `waited` is the number of seconds spent waiting for rate limits so far.
        """
        if self.attempts == 1 or not is_passing(error) or self.beyond_limit(error, waited):
            return None
        wait = self.backoff(attempt, error)
        if wait and self.waits_out(error):
            left = self.patience - waited
            return min(wait, left) if left > LEAST_WAIT and attempt < MOST_TRIES else None
        return wait if attempt < self.attempts else None

    def backoff(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after the 1-based failure `attempt`, at least the Retry-After."""
        wait = min(self.first_wait * 2 ** min(attempt - 1, MOST_DOUBLINGS), self.longest_wait)
        return max(wait * random.uniform(0.5, 1.0), _retry_after(error))  # noqa: S311 (spreads load, guards no secret)

    def waits_out(self, error: BaseException) -> bool:
        """Whether an error is a rate limit to wait out, which does not count as an attempt."""
        return self.patience > 0 and isinstance(error, ModelError) and error.status == RATE_LIMIT

    def beyond_limit(self, error: BaseException, waited: float = 0.0) -> str:
        """Explain a Retry-After that is longer than the limit; empty if it is not."""
        requested = _retry_after(error)
        if requested > self.longest_wait:
            limit = f"the {self.longest_wait:g} s of Retry(longest_wait={self.longest_wait:g})"
        elif self.waits_out(error) and requested > self.patience - waited:
            limit = f"the {self.patience - waited:.0f} s left of Retry(patience={self.patience:g})"
        else:
            return ""
        return f"The provider asks to wait {requested:g} s (Retry-After), more than {limit}."

    async def run(
        self,
        attempt: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        on_failure: OnFailure | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> R:
        """Call `attempt(*args)`, again after temporary failures; raises its last error.

        `on_failure(error, wait)` is called after every failure, with a `wait` of None after the last, and
        returns the seconds to wait, or None to give up. If a Retry-After exceeds the limit, the error says
        so.
        """
        attempts, rate_limits, waited = 0, 0, 0.0
        while True:
            try:
                return await attempt(*args)
            except Exception as error:
                is_limit = self.waits_out(error)
                attempts, rate_limits = attempts + (not is_limit), rate_limits + is_limit
                wait = self.wait_before(rate_limits if is_limit else attempts, error, waited)
                wait = wait if on_failure is None else on_failure(error, wait)
                if wait is None:
                    if is_passing(error) and isinstance(error, ModelError):
                        raise _with_sentence(error, self.beyond_limit(error, waited)) from error.__cause__
                    raise
                waited += wait if is_limit else 0.0
            await sleep(wait)


MOST_DOUBLINGS = 1_000
"""The most doublings of a wait that a float can hold."""
RATE_LIMIT = 429
LEAST_WAIT = 0.001
"""The shortest remaining patience, in seconds, that is worth another try."""
MOST_TRIES = 20
"""The most tries after rate limits, even if the waits are short; nine take a minute by default."""


def _retry_after(error: BaseException) -> float:
    return (error.retry_after or 0.0) if isinstance(error, ModelError) else 0.0


def is_passing(error: BaseException) -> bool:
    """Whether an error is temporary, so that a retry may succeed."""
    return isinstance(error, ConnectionError | TimeoutError) or (
        isinstance(error, ModelError) and error.retryable
    )


def _with_sentence(error: ModelError, sentence: str) -> ModelError:
    """Add a sentence to the message of an error, unless the message has it."""
    if not sentence or sentence in str(error):
        return error
    return ModelError(
        f"{str(error).rstrip('.')}. {sentence}",
        status=error.status,
        retryable=error.retryable,
        retry_after=error.retry_after,
        usage=error.usage,
    )


async def answer(model: ChatModel, request: ChatRequest, *, is_step: bool = True) -> ChatReply:
    """Call a model within the budget of the step under way, as a step inside it unless `is_step` is false.

    Raises the model's errors, and `ConfigError` if it is not async or does not return a `ChatReply`. The name
    of the step is a hash of the request, so that on replay each of several concurrent calls gets its own
    reply.
    """
    context = step_context.get()
    text = None if context.text is None else context.text.of_call(request.role)
    step, budget = context.step if is_step else direct, context.budget
    if budget is None:
        reply = await _in_step(step, request, partial(_send, model=model, text=text))
    else:
        with budget.call(request.role, _input_tokens(request), request.max_tokens, model) as call:
            if text is not None:
                text.pay = call.used
            # The budget is checked inside the journal's step: a recorded reply has already been paid for.

            async def send(request: ChatRequest) -> ChatReply:
                return await call.carry_out(_send_within, call, model, text, request)

            reply = await _in_step(step, request, send)
            call.used(reply.usage)
    if text is not None:
        text.finish(reply.text)
    return reply


async def _in_step(
    step: Step, request: ChatRequest, send: Callable[[ChatRequest], Awaitable[ChatReply]]
) -> ChatReply:
    if step is direct:
        return await send(request)
    content = json.dumps(to_json(request), sort_keys=True)
    return await step(f"model {sha256(content.encode()).hexdigest()[:16]}", ChatReply, send, request)


async def _send_within(
    call: ModelCall, model: ChatModel, text: ReplyText | None, request: ChatRequest
) -> ChatReply:
    """Call a model with the limit that the budget allows for its reply."""

    async def send(limit: int | None) -> ChatReply:
        return await _send(request if limit is None else replace(request, max_tokens=limit), model, text)

    reply = await call.limited(send)
    usage = call.counted(reply.usage, reply.text, cut_off=reply.finish_reason == "length")
    return reply if usage is reply.usage else replace(reply, usage=usage)


IMAGE_TOKENS = 1_000
"""The estimate for an image; providers count 85 to 2,500 tokens, by its size."""


def _input_tokens(request: ChatRequest) -> int:
    tokens = sum(estimate_tokens(message.content) for message in request.messages)
    tokens += IMAGE_TOKENS * len(images_in(request.messages))
    return tokens + (estimate_tokens(json.dumps(request.schema)) if request.schema else 0)


async def _send(request: ChatRequest, model: ChatModel, text: ReplyText | None) -> ChatReply:
    """Call a model; in a stream if its text has a listener and no stream has broken off before."""
    if text is None or not text.streams or not isinstance(model, StreamingModel):
        return await call_model(model, request)

    async def send(request: ChatRequest) -> ChatReply:
        return await text.follow(partial(_sent, request, model), request.role, _input_tokens(request))

    return await _through_gate(model, request, send)


async def call_model(
    model: ChatModel, request: ChatRequest, on_text: TextListener | None = None, *, waits_out: bool = True
) -> ChatReply:
    """Call a model through the gate, in a stream if it can and there is a listener; not as a step.

    A model with a true attribute `gates_calls` sends the calls of other models through the gate, and does not
    pass it itself.
    """
    listener = on_text if isinstance(model, StreamingModel) else None
    send = partial(_sent, model=model, on_text=listener)
    return await _through_gate(model, request, send, waits_out=waits_out)


async def _through_gate(
    model: ChatModel,
    request: ChatRequest,
    send: Callable[[ChatRequest], Awaitable[ChatReply]],
    *,
    waits_out: bool = True,
) -> ChatReply:
    if call_gate.get() is None or getattr(model, "gates_calls", False):
        return await send(request)
    tokens = _input_tokens(request)

    async def limited(limit: int | None) -> ChatReply:
        return await send(request if limit == request.max_tokens else replace(request, max_tokens=limit))

    def usage(reply: ChatReply) -> TokenUsage:
        return estimated_usage(reply.usage, tokens, reply.text)

    call = OutgoingCall(model, tokens, request.max_tokens, request.role, waits_out=waits_out)
    return await gated(call, limited, usage)


def estimated_usage(usage: TokenUsage, input_tokens: int, text: str) -> TokenUsage:
    """Usage of a call; estimated from its input and the text of its reply if the provider reported none."""
    if usage.total_tokens:
        return usage
    return replace(
        usage,
        input_tokens=input_tokens,
        output_tokens=estimate_tokens(text),
        requests=max(1, usage.requests),
        cost_usd=usage.cost_usd or None,
    )


async def _sent(request: ChatRequest, model: ChatModel, on_text: TextListener | None = None) -> ChatReply:
    if not getattr(model, "takes_images", True) and images_in(request.messages):
        raise ConfigError(f"The task has images, but the model {repr_of(model)} does not accept images.")
    if on_text is not None and isinstance(model, StreamingModel):
        returned: Any = _stream(model, request, on_text)
    else:
        returned = model(request)
    name = f"the model {name_of_model(model)!r}"
    reply = await user_call(returned, name) if isawaitable(returned) else returned
    if reply is returned or not isinstance(reply, ChatReply):
        raise ConfigError(
            f"The model {repr_of(model)} returned {short_repr(reply)}; expected an async function of a "
            "ChatRequest that returns a ChatReply."
        )
    return _answered(reply, model)


def _answered(reply: ChatReply, model: ChatModel) -> ChatReply:
    """Remove reasoning at the start of a reply; raises `ModelError` if nothing else is in it.

    Raises `ConfigError` for a text or a usage that can't be used.
    """
    if not isinstance(reply.text, str):  # pyright: ignore[reportUnnecessaryIsInstance] (a user's model may return anything)
        raise ConfigError(
            f"The model {repr_of(model)} returned the text {short_repr(reply.text)}; expected a string."
        )
    try:
        usage = usage_of(cast("object", reply.usage) or NOT_REPORTED)
    except (TypeError, ValueError) as error:
        got = short_repr(reply.usage)
        raise ConfigError(f"The model {repr_of(model)} returned the usage {got}; expected {error}.") from None
    text = without_thoughts(reply.text)
    if usage is not reply.usage:
        reply = replace(reply, usage=usage)
    if text.strip() or reply.logprobs or reply.parsed is not None:
        return reply if text == reply.text else replace(reply, text=text)
    after = " after its reasoning" if reply.text.strip() else ""
    cut = ": it was cut off at the limit of tokens" if reply.finish_reason == "length" else ""
    name = reply.model or name_of_model(model)
    raise unusable_reply(f"The model {name!r} returned an empty reply{after}{cut}.", reply.usage)


async def _stream(model: StreamingModel, request: ChatRequest, on_text: TextListener) -> ChatReply:
    streaming: Any = model.stream(request, on_text)
    if not isawaitable(streaming):
        raise ConfigError(
            f"The stream of the model {repr_of(model)} returned {short_repr(streaming)}; expected an async "
            "function of a ChatRequest and a listener, which calls the listener and returns a ChatReply."
        )
    return await streaming
