"""ProviderModel: chat models of providers, through Pydantic AI."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

from redraft._codec import from_json
from redraft._hints import keyword_hints
from redraft._texts import estimate_tokens, short_repr
from redraft._thoughts import ThoughtFilter
from redraft._validation import check_kind, checked_price, is_web_address
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.content import image_content
from redraft.models.local import PACKAGED, alternatives_of
from redraft.models.model_settings import innermost, settings_taken_by
from redraft.models.response import answered, no_answer, readable, reading, why_empty
from redraft.protocols import ChatReply
from redraft.settings import load_settings
from redraft.text.characters import well_formed
from redraft.text.replies import parsed_of
from redraft.types import NOTHING_USED, ImageMessage, Message, TokenUsage, cost_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from pydantic_ai.exceptions import AgentRunError, ModelAPIError
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.openai import OpenAIChatModelSettings

    from redraft.protocols import ChatRequest, TextListener

T = TypeVar("T")

EXTRAS = ("openai", "anthropic", "google")
"""The providers whose clients are extras of Redraft."""

ANSWERED_BY, LOST, USD = "redraft_model", "redraft_lost", "redraft_usd"
"""Keys in the metadata of a response: the model that answered, the usage of failed models before it, and what
the response cost."""
_RETRYABLE = frozenset({408, 409, 429})
_SERVER_ERROR = 500
_NO_STREAMS = frozenset({400, 403, 404, 405, 422})
"""The statuses with which a provider may refuse to stream."""
_REFUSES_SCHEMA = frozenset({400, 422, 501})
"""The statuses of a server that does not accept a schema, regardless of its message."""
_LEAST_RESPONSES_TOKENS = 16  # OpenAI's Responses API rejects fewer
_WITH_LOGPROBS = ("OpenAIResponsesModel", "OpenAIChatModel")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_GROUP = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")


@keyword_hints()
class ProviderModel:
    """Answers with a provider's model, named `provider:model`, or with a model object of Pydantic AI.

    Sends sampling settings only if a request has them and the model accepts them. A schema is sent natively
    to a model that is known to support it, else in the prompt; once a server rejects a schema, it always gets
    it in the prompt. The provider's client makes a single attempt per call; only `redraft._steps.retried`
    retries. The cost comes from an installed price list, never from the network, unless there is a `price`:
    US dollars for a million input tokens and for a million output tokens, by default the price in `[prices]`
    of `redraft.toml`. It is None for calls without reported usage, and for models without a price.

    Raises `ConfigError` for an unknown provider and a missing key, `MissingExtraError` if the provider's
    client is not installed, and `ModelError` if a call fails. The error is retryable for statuses 408, 409,
    429 and 5xx, failed connections and timeouts, and replies that are empty or can't be read.
    """

    def __init__(self, model: str | Model, *, price: tuple[float, float] | None = None) -> None:
        if price is not None:
            price = checked_price("price", price)
        if isinstance(model, str):
            self.name, self._instance = model, None
            self._fresh: Model | None = readable(_model_named(model))
        else:
            from pydantic_ai.models import Model  # noqa: PLC0415 (imported with the model)

            check_kind("model", model, Model, "the name of a model, or a Model of Pydantic AI")
            self.name, self._instance, self._fresh = model.model_id, readable(model), None
        inferred = self._instance or self._fresh
        self.takes_images = inferred is None or inferred.profile.get("supports_image_input", True)
        """Whether images may be sent: False if the model is known to reject them."""
        self.takes_temperature = inferred is None or _takes_temperature(inferred)
        """Whether a temperature is sent: False if the model is known to reject it."""
        self._streams = True
        self._price = load_settings().prices.get(self.name) if price is None else price
        self._origin = None if inferred is None else (inferred.model_name, inferred.system, inferred.base_url)
        profile: Mapping[str, Any] = {} if inferred is None else inferred.profile
        self.reasons = bool(
            profile.get("thinking_always_enabled") or profile.get("thinking_enabled_by_default")
        )
        """Whether the model is known to reason before it answers, in output tokens."""
        self.max_tokens = None if inferred is None else (inferred.settings or {}).get("max_tokens")
        """The limit on replies in the model's own settings."""

    @property
    def is_named(self) -> bool:
        """Whether the model was given by its name, not as an object of Pydantic AI."""
        return self._instance is None

    @property
    def known_settings(self) -> frozenset[str]:
        """The names of the settings that the model accepts."""
        return settings_taken_by(self._instance or self._fresh or _model_named(self.name))

    def cost_of(self, input_tokens: int, output_tokens: int, /) -> float | None:
        """What a call costs in US dollars; None if no price is known."""
        if self._price is not None:
            return cost_at(self._price, input_tokens, output_tokens)
        from pydantic_ai.messages import ModelResponse  # noqa: PLC0415 (loaded by now)
        from pydantic_ai.usage import RequestUsage  # noqa: PLC0415 (loaded by now)

        name, provider, url = self._origin or (None, None, None)
        usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        return _cost(
            ModelResponse([], usage=usage, model_name=name, provider_name=provider, provider_url=url)
        )

    def priced(self, usage: TokenUsage) -> TokenUsage:
        """Add the cost to the usage of a call, if the model has a `price`."""
        if self._price is None or not usage.total_tokens:
            return usage
        return replace(usage, cost_usd=self.cost_of(usage.input_tokens, usage.output_tokens))

    def __copy__(self) -> ProviderModel:
        return self

    def __deepcopy__(self, _memo: dict[int, Any]) -> ProviderModel:
        """Copies share the client, which has no state of a call."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        if self._instance is not None:
            raise ConfigError(
                f"The model {self.name!r} can't be pickled, since it was given as an object, whose client is "
                "open; give its name instead."
            )
        return partial(ProviderModel, price=self._price), (self.name,)

    @property
    def has_logprobs(self) -> bool:
        """Whether replies can have log probabilities, as far as is known before the first reply."""
        model = self._instance or self._fresh
        return model is None or _is_a(model, *_WITH_LOGPROBS)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer one request."""
        from pydantic_ai import direct  # noqa: PLC0415 (0.3 s, on first use)

        async def send(
            model: Model, request: ChatRequest, schema: ModelRequestParameters | None
        ) -> ChatReply:
            with provider_errors(self.name, model):
                response = await direct.model_request(
                    model,
                    messages_of(request),
                    model_settings=self.settings(model, request),
                    model_request_parameters=schema,
                )
            return self._reply(response, request)

        return await _with_schema(await self.model(), request, send)

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """Answer one request, after passing on its text as it comes, or whole if the model can't stream.

        A stream that ends before the reply is complete raises `ModelError`, which is retryable.
        """
        from pydantic_ai import direct  # noqa: PLC0415 (0.3 s, on first use)

        async def send(
            model: Model, request: ChatRequest, schema: ModelRequestParameters | None
        ) -> ChatReply | None:
            stream = direct.model_request_stream(
                model,
                messages_of(request),
                model_settings=self.settings(model, request),
                model_request_parameters=schema,
            )
            with provider_errors(self.name, model):
                response = await streamed_response(model, stream, on_text, self.priced)
            return None if response is None else self._reply(response, request)

        model = await self.model()
        if self._streams and can_stream(model):
            if (reply := await _with_schema(model, request, send)) is not None:
                return reply
            self._streams = False
        return await self(request)

    async def model(self) -> Model:
        """The model object of Pydantic AI that answers in this event loop."""
        if self._instance is not None:
            return self._instance
        return await _models.get(self.name, self._connect)

    def _connect(self) -> tuple[Model, Model]:
        model, self._fresh = self._fresh or readable(_model_named(self.name)), None
        return model, model

    def settings(self, model: Model, request: ChatRequest) -> OpenAIChatModelSettings:
        """The settings of a request; the client makes a single attempt."""
        settings = cast("OpenAIChatModelSettings", {**request.settings})
        if "max_retries" not in model.unsupported_settings:
            settings["max_retries"] = 0
        if request.temperature is not None and self.takes_temperature:
            settings["temperature"] = request.temperature
        if request.max_tokens is not None:
            least = _LEAST_RESPONSES_TOKENS if _is_a(model, "OpenAIResponsesModel") else 1
            settings["max_tokens"] = max(request.max_tokens, least)
        if request.logprobs:
            if not _is_a(model, *_WITH_LOGPROBS):
                raise ModelError(
                    f"{self.name} returns no log probabilities; OpenAI API models and local models do."
                )
            settings["openai_logprobs"] = True
            settings["openai_top_logprobs"] = request.logprobs
        return settings

    def _reply(self, response: ModelResponse, request: ChatRequest) -> ChatReply:
        used, logprobs = self.priced(usage_of(response)), tuple(_logprobs(response))
        if not logprobs:  # the log probabilities of a blank token are an answer, too
            response = answered(self.name, response, used)
        text, reason = well_formed(response.text or ""), response.finish_reason
        if not text.strip() and not logprobs:
            raise no_answer(self.name, why_empty(response), used)
        return ChatReply(
            text,
            parsed_of(text, request),
            logprobs,
            used,
            self.name,
            reason if reason in ("stop", "length") else "stop" if reason is None else "other",
        )


@contextmanager
def provider_errors(name: str, model: Model) -> Generator[None]:
    """Turn errors of Pydantic AI and of a provider's client into `ModelError` and `ConfigError`."""
    from pydantic_ai import exceptions  # noqa: PLC0415 (loaded by now)

    try:
        with reading(name, model):
            yield
    except exceptions.AgentRunError as error:
        raise model_error(name, error) from error
    except exceptions.UserError as error:
        raise ConfigError(f"{name}: {error}") from error


_without_schemas: set[tuple[str | None, str]] = set()
"""The servers, by base URL and model, that have rejected a schema in this process."""


async def _with_schema(
    model: Model,
    request: ChatRequest,
    send: Callable[[Model, ChatRequest, ModelRequestParameters | None], Awaitable[T]],
) -> T:
    """Send a request with its schema, or with the schema in the prompt if the server rejects it."""
    if request.schema is None:
        return await send(model, request, None)
    in_prompt = request if request.schema_in_prompt else _schema_in_prompt(request)
    server = model.base_url, model.model_name
    if server in _without_schemas or (request.schema_in_prompt and not _takes_schema(model)):
        return await send(model, in_prompt, None)
    try:
        return await send(model, request, _parameters(model, request.schema))
    except ModelError as error:
        if not _may_refuse_schema(error):
            raise
        refusal = error
    try:
        reply = await send(model, in_prompt, None)
    except ModelError as error:
        if _may_refuse_schema(error):  # so the schema was not the reason
            raise refusal from error
        _without_schemas.add(server)
        raise
    _without_schemas.add(server)
    return reply


def _may_refuse_schema(error: ModelError) -> bool:
    return (error.status in _REFUSES_SCHEMA and not error.refuses_temperature) or (
        error.status is not None and _ABOUT_SCHEMA.search(str(error)) is not None
    )


_ABOUT_SCHEMA = re.compile(
    r"response_?(?:format|schema|mime)|json.?(?:schema|object|mode)|structured.?output|output_?(?:format|config)"
    r"|guided|grammar",
    re.IGNORECASE,
)


def _schema_in_prompt(request: ChatRequest) -> ChatRequest:
    """A request that asks for its schema in the first system message."""
    instructions = f"{ASK_FOR_JSON}\n{json.dumps(request.schema, ensure_ascii=False)}"
    first, *others = request.messages
    if first.role == "system":
        return replace(request, messages=(Message("system", f"{first.content}\n\n{instructions}"), *others))
    return replace(request, messages=(Message("system", instructions), *request.messages))


ASK_FOR_JSON = "Reply with one JSON value, and nothing else, that fits this JSON Schema:"


def _takes_temperature(model: Model) -> bool:
    """Whether a model accepts a temperature; if not, Pydantic AI leaves it out with a warning."""
    model = innermost(model)
    profile: dict[str, Any] = {**model.profile}
    if "temperature" in model.unsupported_settings:
        return False
    if any(profile.get(f"{family}_disallows_sampling_settings") for family in ("anthropic", "bedrock")):
        return False
    if not profile.get("openai_supports_reasoning"):
        return True
    efforts = profile.get("openai_reasoning_efforts")
    is_optional = (
        profile.get("openai_supports_reasoning_effort_none") if efforts is None else "none" in efforts
    )
    return bool(is_optional) and not profile.get("thinking_enabled_by_default")


def can_stream(model: Model) -> bool:
    """Whether a model object can stream; a `FunctionModel` needs a function for it."""
    from pydantic_ai.models import Model  # noqa: PLC0415 (loaded by now)

    model = innermost(model)
    is_implemented = type(model).request_stream is not Model.request_stream
    return is_implemented and getattr(model, "stream_function", ...) is not None


async def streamed_response(
    model: Model,
    stream: AbstractAsyncContextManager[StreamedResponse],
    on_text: TextListener,
    priced: Callable[[TokenUsage], TokenUsage],
) -> ModelResponse | None:
    """Pass on the text of a stream and return its response; None if the provider refuses to stream.

    If the stream breaks off, `on_text` gets the usage so far, which `priced` completes. Raises
    `AgentRunError`, also for a stream that ends before the reply is complete.
    """
    from pydantic_ai import exceptions  # noqa: PLC0415 (loaded by now)

    try:
        async with stream as events:
            try:
                await _pass_on(events, on_text, model)
            except BaseException:
                on_text("", priced(_used_so_far(events.get())))
                raise
            response = events.get()
    except exceptions.ModelHTTPError as error:
        # OpenAI has models that only verified organizations may stream.
        if error.status_code in _NO_STREAMS and "stream" in str(error).lower():
            return None
        raise
    if _broke_off(model, response):
        raise exceptions.ModelAPIError(model.model_name, "the stream ended before the reply was complete")
    return response


def _used_so_far(response: ModelResponse) -> TokenUsage:
    """Usage of a stream that breaks off: as reported, else estimated from all text, reasoning included."""
    used = replace(usage_of(response), requests=0)
    if used.total_tokens:
        return used
    texts = [str(getattr(part, "content", "")) for part in response.parts]
    return replace(used, output_tokens=estimate_tokens("".join(texts)))


_unopened_thoughts: set[tuple[str | None, str]] = set()
"""Models, by base URL and name, whose replies close a reasoning tag that they did not open."""


async def _pass_on(events: StreamedResponse, on_text: TextListener, model: Model) -> None:
    """Pass on the text of a stream; joined, it equals `text_of` its response, without reasoning."""
    from pydantic_ai import messages as m  # noqa: PLC0415 (loaded by now)

    outputs = _output_tools(events.model_request_parameters)
    joined, held, arguments = TextJoin(), "", set[int]()
    server = model.base_url, model.model_name
    thoughts = ThoughtFilter(on_text, held=server in _unopened_thoughts)
    async for event in events:
        match event:
            case m.PartStartEvent(index=index, part=part):
                text = joined.add(_text_in(part, outputs))
                if isinstance(part, m.ToolCallPart) and part.tool_name in outputs:
                    arguments.add(index)
                thoughts.reasoned = thoughts.reasoned or isinstance(part, m.ThinkingPart)
            case m.PartDeltaEvent(delta=m.TextPartDelta(content_delta=text)):
                pass
            case m.PartDeltaEvent(index=index, delta=m.ToolCallPartDelta(args_delta=str(text))):
                text = text if index in arguments else ""
            case _:
                continue
        # A surrogate pair may be cut in two.
        text = held + text
        held = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        if text := well_formed(text[:-1] if held else text):
            thoughts.add(text)
    thoughts.finish()
    if thoughts.unopened:
        _unopened_thoughts.add(server)


def text_of(response: ModelResponse, parameters: ModelRequestParameters) -> str:
    """The text of a response; for a typed answer, the arguments of its output tool."""
    joined, outputs = TextJoin(), _output_tools(parameters)
    return well_formed("".join(joined.add(_text_in(part, outputs)) for part in response.parts))


class TextJoin:
    """Joins the texts of a response like `ModelResponse.text`: with a gap around other parts."""

    def __init__(self) -> None:
        self._begun = self._adjacent = False

    def add(self, text: str | None) -> str:
        """The next piece of the joined text; `text` is None for a part without text."""
        gap = "\n\n" if self._begun and not self._adjacent else ""
        self._adjacent = text is not None
        self._begun = self._begun or self._adjacent
        return "" if text is None else gap + text


def _output_tools(parameters: ModelRequestParameters) -> frozenset[str]:
    return frozenset(tool.name for tool in parameters.output_tools)


def _text_in(part: ModelResponsePart, outputs: frozenset[str]) -> str | None:
    """The text of a part, or the arguments of an output tool; None for other parts."""
    from pydantic_ai.messages import TextPart, ToolCallPart  # noqa: PLC0415 (loaded by now)

    if isinstance(part, TextPart):
        return part.content
    if isinstance(part, ToolCallPart) and part.tool_name in outputs:
        # As the provider sent it: a beginning is not JSON yet.
        return part.args if isinstance(part.args, str) else part.args_as_json_str() if part.args else ""
    return None


def _broke_off(model: Model, response: ModelResponse) -> bool:
    """Whether a stream ended too early: chat completions end with a reason, or at least with usage."""
    if _is_a(model, "OpenAIChatModel"):
        details = response.provider_details or {}
        has_reason = "finish_reason" in details or "refusal" in details
        return not has_reason and not response.usage.output_tokens
    return response.state != "complete"


def usage_of(response: ModelResponse) -> TokenUsage:
    """The usage of a response, with the usage of models that failed before it; its cost may be None."""
    used, metadata = response.usage, response.metadata or {}
    lost, cost = metadata.get(LOST), metadata.get(USD)
    if cost is None and (used.input_tokens or used.output_tokens):
        cost = _cost(response)
    return (NOTHING_USED if lost is None else from_json(TokenUsage, lost)) + TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        requests=1,
        cost_usd=cost,
    )


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that a framework calls, with the price in the settings, else in the price list."""

    provider: str
    model: str

    @property
    def name(self) -> str:
        """The full name, as in the settings."""
        return f"{self.provider}:{self.model}"

    def cost_of(self, input_tokens: int, output_tokens: int, /) -> float | None:
        """What a call costs in US dollars; None if no price is known."""
        return self.priced(TokenUsage(input_tokens, output_tokens, requests=1)).cost_usd

    def priced(self, used: TokenUsage) -> TokenUsage:
        """Add the cost to the usage of a call; None if no price is known."""
        if (price := load_settings().prices.get(self.name)) is None:
            return _with_list_price(used, self.provider, self.model)
        return replace(used, cost_usd=cost_at(price, used.input_tokens, used.output_tokens))


def _with_list_price(used: TokenUsage, provider: str, model: str) -> TokenUsage:
    from genai_prices import Usage, calc_price  # noqa: PLC0415 (reads its data)

    tokens = Usage(
        input_tokens=used.input_tokens,
        cache_read_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
    )
    try:
        price = calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        return used
    return replace(used, cost_usd=float(price.total_price))


def model_error(name: str, error: AgentRunError) -> ModelError:
    """The `ModelError` for a failed request; it says whether a retry can help."""
    from pydantic_ai import exceptions  # noqa: PLC0415 (loaded by now)

    cause: BaseException | None = error
    while (
        cause := cause.__cause__
    ) is not None:  # an error body that OpenAI's client mistakes for a lost connection
        error = cause if isinstance(cause, exceptions.ModelAPIError) else error
    # No reply at all, such as a body that is not JSON.
    if not isinstance(error, exceptions.ModelAPIError):
        return ModelError(f"{name} sent an invalid reply: {error}", retryable=True, unusable_reply=True)
    if (redirect := _redirect_in(error)) is not None:
        status, place = redirect
        return ModelError(
            f"{name} failed with status {status}: the server redirects{place}, which is not followed. "
            "Correct the base URL.",
            status=status,
            retryable=False,
        )
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    retryable = status is None or status in _RETRYABLE or status >= _SERVER_ERROR
    # An exhausted quota is a 429, too, but waiting does not help.
    if isinstance(error, exceptions.ModelQuotaExceededError | exceptions.ModelRequestRejectedError):
        retryable = False
    return ModelError(
        f"{name} failed{_reason(error)}{_other_protocol(name, error)}",
        status=status,
        retryable=retryable,
        retry_after=error.retry_after,
        over_quota=isinstance(error, exceptions.ModelQuotaExceededError),
    )


def _redirect_in(error: BaseException) -> tuple[int, str] | None:
    """The status of a redirect behind an error, and where it leads, in words."""
    cause: BaseException | None = error
    while cause is not None:
        status: object = getattr(cause, "status_code", None)
        if isinstance(status, int) and _REDIRECTS <= status < _CLIENT_ERROR:
            location = getattr(getattr(cause, "response", None), "headers", {}).get("location")
            return status, f" to {short_repr(location)}" if location else ""
        cause = cause.__cause__
    return None


_REDIRECTS, _CLIENT_ERROR = 300, 400


def _reason(error: ModelAPIError) -> str:
    """The provider's own message, without its wrapping if possible."""
    from pydantic_ai.exceptions import ModelHTTPError  # noqa: PLC0415 (loaded by now)

    message: Any = error.body
    for key in ("error", "message"):  # some clients unwrap `error`
        message = cast("dict[str, Any]", message).get(key, message) if isinstance(message, dict) else message
    if not isinstance(message, str) or not message.strip():
        return f": {error}"
    if not isinstance(error, ModelHTTPError):
        return f": {message.strip()}"
    if message is error.body and message.lstrip().startswith("<"):  # a page, not a message
        return f": {error}"
    hint = f"Did you mean {error.suggested_model_id!r}?" if error.suggested_model_id else ""
    sentences = (message.strip().rstrip(".") + ".", hint, error.hint)
    return f" with status {error.status_code}: {' '.join(filter(None, sentences))}"


def _other_protocol(name: str, error: ModelAPIError) -> str:
    """A hint for a server without OpenAI's Responses API."""
    provider, _, model = name.partition(":")
    is_missing = (
        getattr(error, "status_code", None) in (404, 405) and error.provider_error_code != "model_not_found"
    )
    if provider not in ("openai", "openai-responses") or not (is_missing or "/responses" in str(error)):
        return ""
    return (
        " 'openai:' uses the Responses API (/v1/responses); for a server that only has chat completions, "
        f"name the model 'openai-chat:{model}'."
    )


class LoopClients(Generic[T]):
    """Clients by name, one for each event loop: connections belong to the loop that opened them."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, tuple[T, AsyncGenerator[None]]]
        ] = WeakKeyDictionary()

    async def get(self, name: str, connect: Callable[[], tuple[T, AbstractAsyncContextManager[Any]]]) -> T:
        """The running loop's client.

        `connect` makes it, together with a context manager that closes it when the loop ends.
        """
        clients = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        if name not in clients:
            client, connection = connect()
            clients[name] = client, _close_with_loop(connection)
            await anext(clients[name][1])
        return clients[name][0]


async def _close_with_loop(connection: AbstractAsyncContextManager[Any]) -> AsyncGenerator[None]:
    """Close a connection when the event loop ends, which then finishes its async generators."""
    try:
        yield
    finally:
        async with connection:  # leaving its context closes it
            pass


_models: LoopClients[Model] = LoopClients()


def _model_named(name: str) -> Model:
    def infer() -> Model:
        from pydantic_ai.models import infer_model  # noqa: PLC0415 (loaded by now)

        try:
            model = infer_model(name)
        except Exception as error:
            if type(error).__name__ != "InvalidURL":  # of whichever HTTP client the provider's client uses
                raise
            raise ConfigError(f"The base URL of the model {name!r} can't be read: {error}.") from error
        if _is_a(model, *_WITH_BASE_URL) and not is_web_address(model.base_url or ""):
            raise ConfigError(
                f"The base URL of the model {name!r} is {model.base_url!r}; expected one such as "
                "'http://127.0.0.1:8000/v1'."
            )
        return model

    return named(name, infer)


_WITH_BASE_URL = ("OpenAIChatModel", "OpenAIResponsesModel", "AnthropicModel")


def named(name: str, infer: Callable[[], T]) -> T:
    """Call `infer` for a name; raises `ConfigError` that names what is missing."""
    provider = name.partition(":")[0]
    try:
        from pydantic_ai.exceptions import UserError  # noqa: PLC0415 (0.3 s, on first use)
        from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415 (as above)
    except ImportError as error:
        if _is_misspelled(provider):
            raise _unknown_provider(name) from None
        raise MissingExtraError(
            f"The model {name!r}", provider if provider in EXTRAS else "providers"
        ) from error
    try:
        infer_provider_class(provider)
        return infer()
    except ImportError as error:
        raise _missing_part(name, str(error)) from error
    except UserError as error:
        variables = list(dict.fromkeys(_VARIABLE.findall(str(error))))
        if not variables:
            raise ConfigError(f"The model {name!r} cannot be used: {error}") from error
        raise ConfigError(
            f"The model {name!r} needs the environment variable {' or '.join(variables)} to be set."
        ) from error
    except ValueError as error:
        raise _unknown_provider(name) from error


def _is_misspelled(provider: str) -> bool:
    """Whether a name resembles a provider with an extra; compounds such as `openai-chat` are fine."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    is_compound = "-" in provider or "/" in provider
    return not is_compound and provider not in EXTRAS and bool(get_close_matches(provider, EXTRAS, 1))


def _unknown_provider(name: str) -> ConfigError:
    provider = name.partition(":")[0]
    return ConfigError(f"Unknown provider {provider!r} in the model name {name!r}.{similar_names(name)}")


def _missing_part(name: str, message: str) -> ConfigError:
    group = _GROUP.search(message)
    if group is None:
        return ConfigError(f"The model {name!r} cannot be used: {message}")
    if group[1] in EXTRAS:
        return MissingExtraError(f"The model {name!r}", group[1])
    return ConfigError(
        f"The model {name!r} needs an optional part: pip install 'pydantic-ai-slim[{group[1]}]'"
    )


def _is_a(model: Model, *names: str) -> bool:
    """Whether a model is an instance of these classes, by name: their clients may not be installed."""
    return any(kind.__name__ in names for kind in type(model).__mro__)


def messages_of(request: ChatRequest) -> list[ModelMessage]:
    """The messages of a request in the form of Pydantic AI."""
    from pydantic_ai import messages as m  # noqa: PLC0415 (loaded by now)

    history: list[ModelMessage] = []
    for message in request.messages:
        content = well_formed(message.content)  # what is sent is UTF-8
        if message.role == "assistant":
            history.append(m.ModelResponse([m.TextPart(content)]))
            continue
        if isinstance(message, ImageMessage):
            images = [image_content(image) for image in message.images]
            history.append(m.ModelRequest([m.UserPromptPart([content, *images])]))
            continue
        part = (m.SystemPromptPart if message.role == "system" else m.UserPromptPart)(content)
        history.append(m.ModelRequest([part]))
    return history


def _parameters(model: Model, schema: Mapping[str, Any]) -> ModelRequestParameters:
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 (loaded by now)
    from pydantic_ai.output import OutputObjectDefinition  # noqa: PLC0415 (loaded by now)

    return ModelRequestParameters(
        output_mode="native" if _takes_schema(model) else "prompted",
        output_object=OutputObjectDefinition(dict(schema), name="reply"),
    )


def _takes_schema(model: Model) -> bool:
    return bool(model.profile.get("supports_json_schema_output", False))


def _cost(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # not on the price list, or no usage reported
        return None


def _logprobs(response: ModelResponse) -> list[dict[str, float]]:
    from pydantic_ai.messages import TextPart  # noqa: PLC0415 (loaded by now)

    # In chat completions they are on the response, in OpenAI's Responses API on each text part.
    for holder in (response, *(part for part in response.parts if isinstance(part, TextPart))):
        if holder.provider_details and "logprobs" in holder.provider_details:
            return [alternatives_of(token) for token in holder.provider_details["logprobs"]]
    return []


def similar_names(name: str) -> str:
    """A sentence that suggests the known names most similar to `name`."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    names = [*(f"local:{candidate}" for candidate in PACKAGED), *_provider_names()]
    provider, colon, model = name.partition(":")
    if colon:
        providers = [*EXTRAS, *(candidate.partition(":")[0] for candidate in names)]
        matches = [f"{candidate}:{model}" for candidate in get_close_matches(provider, providers, 1)]
        if not matches and re.fullmatch(r"latest|\d+(?:\.\d+)?b\b.*", model):  # a model with its tag
            matches = [f"ollama:{name}"]
    else:
        ours = [candidate for candidate in names if candidate.partition(":")[0] in (*EXTRAS, "local")]
        matches = _with_provider(name, names) or _similar(name, ours) or _similar(name, names)
    if matches:
        return f" Did you mean {' or '.join(repr(candidate) for candidate in matches)}?"
    return f" Known providers are {', '.join(EXTRAS)}, local, and all others of Pydantic AI."


_FAMILIES = {
    "ollama": r"llama|phi-?\d|gpt-oss|deepseek-r1",
    "openai": r"gpt-?\d|chatgpt-|o\d(?:-|$)|codex-",
    "anthropic": r"claude-",
    "google": r"gemini-|gemma-",
    "mistral": r"(?:open-)?(?:mistral|mixtral|codestral|ministral|magistral|devstral|pixtral)-",
    "deepseek": r"deepseek-(?:chat|reasoner)",
    "xai": r"grok-",
    "cohere": r"command-",
}
"""The providers of models, by patterns of their names."""


def _with_provider(name: str, names: Sequence[str]) -> list[str]:
    """A model's name with its provider, if the name reveals it."""
    provider = next(
        (candidate for candidate, patterns in _FAMILIES.items() if re.match(patterns, name.lower())), None
    )
    if provider is None:
        return [candidate for candidate in names if candidate.partition(":")[2] == name][:1]
    return [f"{provider}:{name}"]


def _similar(name: str, names: list[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    by_model: dict[str, str] = {}
    for candidate in names:
        by_model.setdefault(candidate.partition(":")[2], candidate)
    return [by_model[model] for model in get_close_matches(name.lower(), by_model, 2, cutoff=0.5)]


def _provider_names() -> list[str]:
    try:
        from pydantic_ai.models import known_model_names  # noqa: PLC0415 (0.3 s, and only an error needs it)
    except ImportError:
        return []
    return [name for name in known_model_names() if ":" in name]
