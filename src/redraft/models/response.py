"""Responses of providers: read odd forms, count usage once, and recognise empty replies."""

from __future__ import annotations

import json
import warnings
from codecs import BOM_UTF8
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from os import urandom
from typing import TYPE_CHECKING, Any, cast, get_args

from redraft._thoughts import without_blank_start, without_thoughts
from redraft._validation import MOST, named_error
from redraft.errors import ModelError, unusable_reply
from redraft.models.model_settings import innermost
from redraft.text.characters import well_formed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Sequence

    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, StreamedResponse
    from pydantic_ai.usage import RequestUsage

    from redraft.types import TokenUsage

_READABLE = "redraft_readable"
_REPLAYED_TAGS = ("<assistant_thinking>", "</assistant_thinking>")
"""Tags that no reply contains, since Pydantic AI removes `<think>` anywhere in a text, even in code."""
_STATUSES = range(400, 600)
_ANSWER_KEYS = ("choices", "output", "content", "candidates", "promptFeedback")
"""The keys of the answer in the four APIs, or with Google, of the reason for its absence."""


# Reading.


def readable(model: Model) -> Model:
    """Copy a model so that it also reads the odd replies of compatible servers; its client is shared.

    Null and missing fields get their defaults, unknown items are left out, and an error sent with status 200
    is raised. Usage that a stream reports repeatedly counts once. Texts stay as they are; `answered` removes
    reasoning.
    """
    if getattr(model, _READABLE, False):
        return model
    copied = cast("Any", object.__new__(type(model)))
    copied.__dict__.update(vars(model))
    if "wrapped" in vars(model):
        copied.wrapped = readable(copied.wrapped)
    elif "models" in vars(model):
        copied.models = [readable(inner) for inner in copied.models]
    else:
        _read_leniently(copied)
    setattr(copied, _READABLE, True)
    return copied


def _read_leniently(model: Any) -> None:
    name = getattr(model, "model_name", "")
    vars(model)["profile"] = {**model.profile, "thinking_tags": _REPLAYED_TAGS}
    # Google's client warns about each name that is newer than the client, such as a finish reason.
    warnings.filterwarnings("ignore", ".* is not a valid ", UserWarning, r"google\.genai\._common")
    if (process := getattr(model, "_process_response", None)) is not None:

        def read_response(reply: Any, *args: Any, **more: Any) -> Any:
            response = process(repaired(reply, name), *args, **more)
            _add_message(response)
            return response

        # Pydantic AI has no other hook between the client and its own parser, and this model is our copy.
        model._process_response = read_response  # noqa: SLF001 (see the comment)
    if (process_stream := getattr(model, "_process_streamed_response", None)) is not None:

        async def read_stream(*args: Any, **more: Any) -> StreamedResponse:
            events = await process_stream(*args, **more)
            if hasattr(events, "_response"):
                events._response = _Chunks(events._response, events, name)  # noqa: SLF001 (as above)
            if hasattr(events, "_add_usage"):
                events._add_usage = _UsageOfStream(events).add  # noqa: SLF001 (as above)
            return events

        model._process_streamed_response = read_stream  # noqa: SLF001 (as above)


class _Chunks:
    """The chunks of a stream, repaired."""

    def __init__(self, source: Any, events: StreamedResponse, model: str) -> None:
        self._source = source
        self._events = events
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        is_blank_reason = False
        async for chunk in self._source:
            if getattr(chunk, "choices", None):
                is_blank_reason = getattr(chunk.choices[0], "finish_reason", None) == ""
            if (reply := repaired(chunk, self._model, self._events.usage.output_tokens)) is not None:
                yield reply
        _add_message(self._events)
        if is_blank_reason:  # the last chunk has a reason, though an empty one, so the reply is complete
            self._events.provider_details = {"finish_reason": ""} | (self._events.provider_details or {})


def _add_message(response: Any) -> None:
    """Add Google's `finishMessage` to the details of a response or a stream."""
    if (call := _call.get()) is not None and call.message:
        response.provider_details = {**(response.provider_details or {}), _MESSAGE: call.message}


class _UsageOfStream:
    """Adds up the usage in the chunks of a stream, only once if each chunk has the usage so far."""

    def __init__(self, events: Any) -> None:
        self._events = events
        self._add = events._add_usage  # noqa: SLF001 (as above)
        self._reports: list[RequestUsage] = []

    def add(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        """Add the usage of a chunk, like `StreamedResponse._add_usage`."""
        self._add(usage, reported=reported, cumulative=cumulative)
        if not reported or cumulative:
            return
        self._reports.append(usage)
        if len(self._reports) > 1 and is_cumulative(
            [report.input_tokens for report in self._reports],
            [report.output_tokens for report in self._reports],
        ):
            self._events._usage = _highest(self._reports)  # noqa: SLF001 (as above)


def is_cumulative(inputs: Sequence[int], outputs: Sequence[int]) -> bool:
    """Whether each report has all tokens so far, rather than the tokens since the previous report.

    A prompt is read once, so repeated input counts are cumulative. So are output counts that always grow, or
    that end with the sum of the earlier counts.
    """
    if sum(map(bool, inputs)) > 1:
        return True
    written = [tokens for tokens in outputs if tokens]
    is_growing = len(written) > 1 and all(before < after for before, after in pairwise(written))
    return is_growing or (len(written) > 2 and written[-1] == sum(written[:-1]))  # noqa: PLR2004 (two equal counts are no sum)


def _highest(reports: Sequence[RequestUsage]) -> RequestUsage:
    """The highest count of each kind of token among the reports."""
    highest, *others = reports
    numbers = {key: value for key, value in vars(highest).items() if isinstance(value, int)}
    details = dict(highest.details)
    for report in others:
        for key, value in vars(report).items():
            if isinstance(value, int):
                numbers[key] = max(value, numbers.get(key, 0))
        for key, value in report.details.items():
            details[key] = max(value, details.get(key, 0))
    merged = replace(reports[-1], details=details)
    vars(merged).update(numbers)
    return merged


def repaired(reply: Any, model: str, written: int = 0) -> Any:
    """Repair the reply of a provider's client in place; None for a chunk to skip.

    `written` is the number of output tokens of a stream so far, for a chunk that does not report it. Raises
    the error of `raise_error` if the server sent an error instead of a reply.
    """
    match type(reply).__module__.partition(".")[0]:
        case "openai":
            _repair_openai(reply, model)
        case "anthropic":
            return _repaired_anthropic(reply, written)
        case "google":
            _repair_google(reply)
        case _:
            pass
    return reply


def raise_error(error: Any, model: str) -> None:
    """Raise the error in a body with status 200, with the provider's message; None is no error."""
    from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError  # noqa: PLC0415 (loaded by now)

    if not error:
        return
    body = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    for key in ("code", "status", "status_code"):
        with suppress(TypeError, ValueError):
            if (status := int(body.get(key) or 0)) in _STATUSES:
                raise ModelHTTPError(status_code=status, model_name=model, body=body)
    raise ModelAPIError(model_name=model, message=str(body.get("message") or body), body=body)


@dataclass(slots=True)
class _Call:
    """A running call of a model, and the `finishMessage` in its reply, which Google's client drops."""

    model: str
    message: str = ""


_call: ContextVar[_Call | None] = ContextVar("_call", default=None)


async def _read_body(response: Any) -> None:
    """Read what the clients of providers ignore: errors sent with status 200, and Google's `finishMessage`.

    A hook of an HTTP client, which may be the caller's own; so it does nothing outside our calls.
    """
    call = _call.get()
    if call is None or not response.is_success:
        return
    match response.headers.get("content-type", "").partition(";")[0].strip():
        case "application/json":
            _read_json(await response.aread(), call)
        case "text/event-stream":  # only Google's client reads lines; other clients raise errors in streams
            response.aiter_bytes = partial(_without_mark, response.aiter_bytes)
            response.aiter_lines = partial(_read_lines, response.aiter_lines, call)
        case _:
            pass


async def _without_mark(pieces: Callable[..., AsyncGenerator[bytes]], *args: Any) -> AsyncGenerator[bytes]:
    """Remove a byte order mark at the start of a stream, with which clients would skip the first event."""
    start: bytes | None = b""
    async with aclosing(pieces(*args)) as source:
        async for piece in source:
            if start is None:
                yield piece
            elif not BOM_UTF8.startswith(start := start + piece):
                yield start.removeprefix(BOM_UTF8)
                start = None
    if start:
        yield start.removeprefix(BOM_UTF8)


async def _read_lines(lines: Callable[[], AsyncGenerator[str]], call: _Call) -> AsyncIterator[str]:
    async with aclosing(lines()) as source:
        async for line in source:
            if '"error"' in line or '"finishMessage"' in line:
                _read_json(line.removeprefix("data:"), call)
            yield line


def _read_json(text: str | bytes, call: _Call) -> None:
    with suppress(ValueError):
        body = json.loads(text)
        raise_error(_error_in(body), call.model)
        candidates: Any = cast("dict[str, Any]", body).get("candidates") if isinstance(body, dict) else None
        for candidate in candidates or ():
            if isinstance(candidate, dict):
                call.message = cast("dict[str, Any]", candidate).get("finishMessage") or call.message


def _error_in(body: Any) -> Any:
    """The error in the body of a reply; None if it has an answer."""
    if isinstance(body, list):
        body = next(iter(cast("list[Any]", body)), None)
    if not isinstance(body, dict):
        return None
    fields = cast("dict[str, Any]", body)
    if any(fields.get(key) for key in _ANSWER_KEYS):
        return None
    if error := fields.get("error"):
        return error
    return next(
        (
            {**fields, "message": text}
            for key in ("message", "detail")
            if isinstance(text := fields.get(key), str)
        ),
        None,
    )


def _read_bodies(model: Any) -> None:
    """Install `_read_body` as a hook of a model's HTTP client."""
    for inner in getattr(model, "models", ()):
        _read_bodies(inner)
    client = getattr(model, "client", None)
    http = getattr(client, "_client", None) or getattr(
        getattr(client, "_api_client", None), "_async_httpx_client", None
    )
    hooks = getattr(http, "event_hooks", {}).get("response")
    if hooks is not None and _read_body not in hooks:
        hooks.append(_read_body)


def _repair_openai(reply: Any, model: str) -> None:
    if hasattr(reply, "response") and hasattr(
        reply.response, "output"
    ):  # an event that contains the response
        reply = reply.response
    elif not hasattr(reply, "choices") and not hasattr(reply, "output"):
        return
    error = getattr(reply, "error", None)
    if hasattr(reply, "choices"):
        raise_error(error, model)
        if getattr(reply, "object", None) == "error":
            raise_error(vars(reply) | (reply.model_extra or {}), model)
        _repair_chat(reply, model)
        _repair_usage(reply, "prompt_tokens", "completion_tokens")
    else:
        if isinstance(error, str):
            raise_error(error, model)
        reply.output = [item for item in reply.output or () if _is_known(item)]
        for item in reply.output:
            _repair_item(item)
        _repair_usage(reply, "input_tokens", "output_tokens")


def _repair_chat(reply: Any, model: str) -> None:
    from openai.types.chat import ChatCompletion, ChatCompletionMessage  # noqa: PLC0415 (its client has loaded it)
    from openai.types.chat.chat_completion import Choice  # noqa: PLC0415 (as above)
    from openai.types.chat.chat_completion_chunk import ChoiceDelta  # noqa: PLC0415 (as above)

    reply.id, reply.model = reply.id or "", reply.model or model
    reply.choices = [choice for choice in reply.choices or () if choice is not None]
    is_whole = isinstance(reply, ChatCompletion)
    if is_whole:
        reply.object, reply.created = "chat.completion", _count(reply.created) or 0
        if not reply.choices:
            reply.choices = [Choice.model_construct(message=None, finish_reason=None, logprobs=None)]
    choices: list[Any] = reply.choices
    for index, choice in enumerate(choices):
        raise_error(getattr(choice, "error", None), model)
        choice.index = getattr(choice, "index", None) or index
        reason = getattr(choice, "finish_reason", None)
        choice.finish_reason = reason if reason and isinstance(reason, str) else None
        tokens = getattr(getattr(choice, "logprobs", None), "content", None)
        if not isinstance(tokens, list) or None in tokens:
            choice.logprobs = None
        kind: Any = ChatCompletionMessage if is_whole else ChoiceDelta
        key = "message" if is_whole else "delta"
        message: Any = getattr(choice, key, None)
        if message is None:
            setattr(choice, key, message := kind.model_construct(role="assistant", content=None))
        if is_whole:
            message.role = "assistant"
            message.annotations = _objects(getattr(message, "annotations", None))
        tool_calls: Any = message.tool_calls
        if isinstance(tool_calls, list) and tool_calls:
            calls: list[Any] = [
                call for call in cast("list[Any]", tool_calls) if getattr(call, "function", None) is not None
            ]
            for number, call in enumerate(calls):
                if is_whole:
                    call.id = call.id or f"call_{urandom(12).hex()}"
                    call.function.arguments = call.function.arguments or "{}"
                elif call.index is None:
                    call.index = number
                arguments: Any = call.function.arguments
                call.function.arguments = json.dumps(arguments) if isinstance(arguments, dict) else arguments
            tool_calls = calls
        message.tool_calls = tool_calls if isinstance(tool_calls, list) else None


def _repair_usage(reply: Any, read: str, written: str) -> None:
    """Complete the usage of a reply from its total; without both counts, there is no usage."""
    if (usage := reply.usage) is None:
        return
    tokens = {key: _count(getattr(usage, key, None)) for key in (read, written, "total_tokens")}
    total = tokens["total_tokens"]
    for key, other in ((read, written), (written, read)):
        if tokens[key] is None and total is not None and tokens[other] is not None:
            tokens[key] = max(0, total - tokens[other])
    if tokens[read] is None or tokens[written] is None:
        reply.usage = None
        return
    for key, value in tokens.items():
        setattr(usage, key, value)
    if total is None:
        usage.total_tokens = getattr(usage, read) + getattr(usage, written)
    for key in ("prompt_tokens_details", "completion_tokens_details"):
        if isinstance(getattr(usage, key, None), list):  # PHP writes an empty object so
            setattr(usage, key, None)


def _count(number: Any) -> Any:
    """A number of tokens, or of seconds; None for a value that means nothing, such as a negative number."""
    return round(number) if isinstance(number, int | float) and 0 <= number <= MOST else None


def _objects(items: Any) -> Any:
    """The objects of a list; None for anything else."""
    if not isinstance(items, list):
        return None
    return [item for item in cast("list[object]", items) if hasattr(item, "type")]


def _is_known(item: Any) -> bool:
    """Whether an object of a response has a type of its class; for unknown types, clients guess a class."""
    kind = cast("type[Any]", type(item))
    fields: dict[str, Any] = getattr(kind, "model_fields", {})
    return item is not None and ("type" not in fields or item.type in get_args(fields["type"].annotation))


def _repair_item(item: Any) -> None:
    """Repair an item of a response of OpenAI's Responses API."""
    if item.type == "message":
        item.content = [part for part in item.content or () if _is_known(part)]
        for part in item.content:
            if part.type == "output_text" and part.annotations is None:
                part.annotations = []


def _repaired_anthropic(reply: Any, written: int) -> Any:
    """Repair a message or an event of Anthropic's API; None for an event about an unknown block."""
    if not _is_known(reply):
        return None
    match reply.type:
        case "message":
            reply.content = [block for block in reply.content or () if _is_known(block)]
            _complete_usage(reply, written)
        case "message_start" if reply.message is not None:
            _complete_usage(reply.message, written)
        case "message_delta":
            _complete_usage(reply, written)
        case "content_block_start" if not _is_known(reply.content_block):
            return None
        case "content_block_delta" if not _is_known(reply.delta):
            return None
        case _:
            pass
    return reply


def _complete_usage(holder: Any, written: int) -> None:
    from anthropic.types.beta import BetaMessageDeltaUsage, BetaUsage  # noqa: PLC0415 (its client has loaded it)

    kind = BetaMessageDeltaUsage if holder.type == "message_delta" else BetaUsage
    usage: Any = holder.usage
    if usage is None:
        empty = dict.fromkeys(kind.model_fields)
        holder.usage = usage = kind.model_construct(**empty)
    if _count(usage.output_tokens) is None:
        usage.output_tokens = written
    if _count(usage.input_tokens) is None:
        usage.input_tokens = None if holder.type == "message_delta" else 0


def _repair_google(reply: Any) -> None:
    if not hasattr(reply, "candidates"):
        return
    reply.candidates = [candidate for candidate in reply.candidates or () if candidate is not None] or None
    for candidate in reply.candidates or ():
        if candidate.content is not None and candidate.content.parts:
            parts: list[Any] = candidate.content.parts
            candidate.content.parts = [
                part
                for part in parts
                if any(value is not None for value in cast("dict[str, Any]", vars(part)).values())
            ]
    counts = cast("dict[str, Any]", vars(reply.usage_metadata) if reply.usage_metadata is not None else {})
    if any(isinstance(tokens, int) and tokens < 0 for tokens in counts.values()):
        reply.usage_metadata = None


# Answers.


def answered(
    name: str, response: ModelResponse, used: TokenUsage, before: Sequence[ModelMessage] = ()
) -> ModelResponse:
    """Remove reasoning from the start of a response that has an answer or calls a tool.

    `used` is the usage of the call, and `before` the messages of an agent. Raises a retryable `ModelError`
    with the provider's reason for any other response.
    """
    from pydantic_ai import messages as m  # noqa: PLC0415 (loaded by now)

    parts, reasoned = list(response.parts), False
    for at, part in enumerate(parts):
        reasoned = reasoned or isinstance(part, m.ThinkingPart)
        if isinstance(part, m.TextPart) and part.content.strip():
            text = well_formed(without_thoughts(part.content))
            text = without_blank_start(text) if reasoned else text
            if text != part.content:
                parts[at] = replace(part, content=text)
                response = replace(response, parts=parts)
            if text.strip():
                return response
            reasoned = True
    silent = m.TextPart | m.ThinkingPart | m.NativeToolCallPart | m.NativeToolReturnPart | m.CompactionPart
    if response.state == "suspended" or not all(isinstance(part, silent) for part in parts):
        return response
    if _answered_with_tool_calls(before):
        return response
    raise no_answer(name, why_empty(response, reasoned=reasoned), used)


def _answered_with_tool_calls(messages: Sequence[ModelMessage]) -> bool:
    """Whether the agent has already answered: Pydantic AI accepts the text next to tool calls."""
    from pydantic_ai import messages as m  # noqa: PLC0415 (loaded by now)

    for message in reversed(messages):
        if isinstance(message, m.ModelResponse):
            return any(isinstance(part, m.TextPart) and part.content.strip() for part in message.parts)
        if not any(isinstance(part, m.ToolReturnPart) for part in message.parts):
            return False
    return False


def no_answer(name: str, why: str, used: TokenUsage) -> ModelError:
    """The error of a call without a usable answer."""
    return unusable_reply(f"{name} sent no answer: {why}.", used)


def why_empty(response: ModelResponse, *, reasoned: bool = False) -> str:
    """Say why a response has no answer, in the provider's words if possible."""
    from pydantic_ai.messages import ToolCallPart  # noqa: PLC0415 (loaded by now)

    details: dict[str, Any] = response.provider_details or {}
    reason = str(details.get("finish_reason") or "")
    reasoning = response.usage.details.get("reasoning_tokens") or response.usage.details.get(
        "thoughts_tokens"
    )
    if refusal := _sentence(details.get("refusal")):
        return f"it refused: {refusal}"
    if block := details.get("block_reason"):
        message = _sentence(details.get("block_reason_message"))
        return f"the prompt was blocked ({block}){f': {message}' if message else ''}"
    called = next((part.tool_name for part in response.parts if isinstance(part, ToolCallPart)), "")
    if response.finish_reason == "length":
        thoughts = "its reasoning used up the limit of tokens" if reasoned or reasoning else "it was cut off"
        what, reason = f"{thoughts} before the answer began", reason or "length"
    elif response.finish_reason == "content_filter":
        what, reason = "the provider withheld it", reason or "content_filter"
    elif called:
        what = f"it calls {called!r} instead of answering"
    else:
        what = "it holds only reasoning" if reasoned else "it is empty"
    category = details.get("refusal_category") if response.finish_reason == "content_filter" else None
    more = f", category {category!r}" if category else ""
    message = _sentence(details.get(_MESSAGE))
    return (
        f"{what}{f' (finish reason {reason!r}{more})' if reason else ''}{f': {message}' if message else ''}"
    )


_MESSAGE = "finish_message"


def _sentence(message: object) -> str:
    return str(message or "").strip().rstrip(".")


def unreadable(name: str, error: Exception) -> ModelError:
    """The error of a call whose reply is in another form."""
    what = f"{name} sent a reply that cannot be read ({named_error(error)})."
    return ModelError(what, retryable=True, unusable_reply=True)


UNREADABLE = (
    *(LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError),
    RecursionError,  # JSON that is nested too deeply
)


@contextmanager
def reading(name: str, model: Model) -> Generator[None]:
    """Raise errors that are sent with status 200, and a retryable `ModelError` for unreadable replies."""
    _read_bodies(model)
    token = _call.set(_Call(name))
    try:
        yield
    except UNREADABLE as error:
        if type(innermost(model)).__module__ in ("pydantic_ai.models.function", "pydantic_ai.models.test"):
            raise  # a bug in the caller's own function
        raise unreadable(name, error) from error
    finally:
        _call.reset(token)
