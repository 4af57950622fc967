"""ProviderModel: chat models of providers, through Pydantic AI."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

from redraft._codec import from_json
from redraft._hints import keyword_hints
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.content import image_content
from redraft.models.local import PACKAGED
from redraft.models.reply import alternatives_of, parsed_of
from redraft.protocols import ChatReply
from redraft.text.characters import well_formed
from redraft.types import NOTHING_USED, ImageMessage, TokenUsage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager

    from pydantic_ai.exceptions import AgentRunError, ModelAPIError
    from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.models.openai import OpenAIChatModelSettings

    from redraft.protocols import ChatRequest, TextListener

T = TypeVar("T")

EXTRAS = ("openai", "anthropic", "google")
"""The providers whose clients are extras of Redraft."""

ANSWERED_BY, LOST = "redraft_model", "redraft_lost"
"""Where the metadata of a response say which of several models gave it, and what the others used before."""
_RETRYABLE = frozenset({408, 409, 429})
_SERVER_ERROR = 500
_NO_STREAMS = frozenset({400, 403, 404, 405, 422})
"""The statuses by which a provider may refuse to stream."""
_LEAST_RESPONSES_TOKENS = 16  # fewer are refused by OpenAI's Responses API
_WITH_LOGPROBS = ("OpenAIResponsesModel", "OpenAIChatModel")
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_GROUP = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")


@keyword_hints()
class ProviderModel:
    """Answers with a provider's model, named `provider:model`, or with a model object of Pydantic AI.

    Sends sampling settings only if a request has them. A schema is sent natively if the model is known to
    support it, else in the prompt. The provider's client makes one attempt per call; only
    `redraft._steps.retried` retries. The cost comes from an installed price list, never from the network; it
    is None for models that are not on it.

    Raises `ConfigError` for an unknown provider and a missing key, `MissingExtraError` if the provider's
    client is not installed, and `ModelError` if a call fails; that is retryable for statuses 408, 409, 429
    and 5xx, failed connections and timeouts.
    """

    def __init__(self, model: str | Model) -> None:
        if isinstance(model, str):
            self.name, self._given = model, None
            self._fresh: Model | None = _model_named(model)
        else:
            self.name, self._given, self._fresh = model.model_id, model, None
        known = self._given or self._fresh
        self.takes_images = known is None or known.profile.get("supports_image_input", True)
        """Whether images may be sent: False if the model is known to take none."""
        self._streams = True

    @property
    def has_logprobs(self) -> bool:
        """Whether replies can have log probabilities, as far as is known before the first reply."""
        model = self._given or self._fresh
        return model is None or _is_a(model, *_WITH_LOGPROBS)

    async def __call__(self, request: ChatRequest, /) -> ChatReply:
        """Answer one request."""
        from pydantic_ai import direct, exceptions  # noqa: PLC0415 (0.3 s, on first use)

        model = await self.model()
        settings = self.settings(model, request)
        try:
            response = await direct.model_request(
                model,
                messages_of(request),
                model_settings=settings,
                model_request_parameters=_parameters(model, request),
            )
        except exceptions.AgentRunError as error:
            raise model_error(self.name, error) from error
        except exceptions.UserError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        return self._reply(response, request)

    async def stream(self, request: ChatRequest, on_text: TextListener, /) -> ChatReply:
        """Answer one request, after passing on its text as it comes: all at once if the model can't stream.

        A stream that ends before the reply is complete raises `ModelError`, which is retryable.
        """
        from pydantic_ai import direct, exceptions  # noqa: PLC0415 (0.3 s, on first use)

        model = await self.model()
        if not self._streams or not can_stream(model):
            return await self(request)
        stream = direct.model_request_stream(
            model,
            messages_of(request),
            model_settings=self.settings(model, request),
            model_request_parameters=_parameters(model, request),
        )
        try:
            response = await streamed_response(model, stream, on_text)
        except exceptions.AgentRunError as error:
            raise model_error(self.name, error) from error
        except exceptions.UserError as error:
            raise ConfigError(f"{self.name}: {error}") from error
        if response is None:
            self._streams = False
            return await self(request)
        return self._reply(response, request)

    async def model(self) -> Model:
        """Return the model object of Pydantic AI that answers in this event loop."""
        if self._given is not None:
            return self._given
        return await _models.get(self.name, self._connect)

    def _connect(self) -> tuple[Model, Model]:
        model, self._fresh = self._fresh or _model_named(self.name), None
        return model, model

    def settings(self, model: Model, request: ChatRequest) -> OpenAIChatModelSettings:
        """Return the settings of a request; the client is told to make a single attempt."""
        settings: OpenAIChatModelSettings = {}
        if "max_retries" not in model.unsupported_settings:
            settings["max_retries"] = 0
        if request.temperature is not None:
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
        text = well_formed(response.text or "")
        reason = response.finish_reason
        return ChatReply(
            text,
            parsed_of(text, request),
            tuple(_logprobs(response)),
            usage_of(response),
            self.name,
            reason if reason in ("stop", "length") else "stop" if reason is None else "other",
        )


def can_stream(model: Model) -> bool:
    """Return whether a model object has streams; a `FunctionModel` needs a function for them."""
    from pydantic_ai.models import Model  # noqa: PLC0415 (loaded by now)

    while (inner := getattr(model, "wrapped", None)) is not None:
        model = inner
    is_implemented = type(model).request_stream is not Model.request_stream
    return is_implemented and getattr(model, "stream_function", ...) is not None


async def streamed_response(
    model: Model, stream: AbstractAsyncContextManager[StreamedResponse], on_text: TextListener
) -> ModelResponse | None:
    """Return the response of a stream, and pass on its text; None if the provider refuses to stream.

    If the stream breaks off, `on_text` gets what the provider said of its usage. Raises `AgentRunError`, also
    for a stream that ended before the reply was complete.
    """
    from pydantic_ai import exceptions  # noqa: PLC0415 (loaded by now)

    try:
        async with stream as events:
            try:
                await _pass_on(events, on_text)
            except BaseException:
                if events.usage.input_tokens or events.usage.output_tokens:
                    on_text("", replace(usage_of(events.get()), requests=0))
                raise
            response = events.get()
    except exceptions.ModelHTTPError as error:
        # OpenAI has models that only verified organizations may stream.
        if error.status_code in _NO_STREAMS and "stream" in str(error).lower():
            return None
        raise
    if _broke_off(model, response):
        raise exceptions.UnexpectedModelBehavior("the stream ended before the reply was complete")
    return response


async def _pass_on(events: StreamedResponse, on_text: TextListener) -> None:
    """Pass on the text of a stream; joined, it is the `text_of` its response."""
    from pydantic_ai import messages as m  # noqa: PLC0415 (loaded by now)

    outputs = _output_tools(events.model_request_parameters)
    joined, held, arguments = TextJoin(), "", set[int]()
    async for event in events:
        match event:
            case m.PartStartEvent(index=index, part=part):
                text = joined.add(_text_in(part, outputs))
                if isinstance(part, m.ToolCallPart) and part.tool_name in outputs:
                    arguments.add(index)
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
            on_text(text)


def text_of(response: ModelResponse, parameters: ModelRequestParameters) -> str:
    """Return the text of a response; of a typed answer, what it calls the output tool with."""
    joined, outputs = TextJoin(), _output_tools(parameters)
    return well_formed("".join(joined.add(_text_in(part, outputs)) for part in response.parts))


class TextJoin:
    """Joins the texts of a response as `ModelResponse.text` does: with a gap around what is not text."""

    def __init__(self) -> None:
        self._begun = self._adjacent = False

    def add(self, text: str | None) -> str:
        """Return a text as it is joined to those before; None for a part that has none."""
        gap = "\n\n" if self._begun and not self._adjacent else ""
        self._adjacent = text is not None
        self._begun = self._begun or self._adjacent
        return "" if text is None else gap + text


def _output_tools(parameters: ModelRequestParameters) -> frozenset[str]:
    return frozenset(tool.name for tool in parameters.output_tools)


def _text_in(part: ModelResponsePart, outputs: frozenset[str]) -> str | None:
    """Return the text of a part, or the arguments of an output tool; None if it has none."""
    from pydantic_ai.messages import TextPart, ToolCallPart  # noqa: PLC0415 (loaded by now)

    if isinstance(part, TextPart):
        return part.content
    if isinstance(part, ToolCallPart) and part.tool_name in outputs:
        # As the provider sent it: a beginning is not JSON yet.
        return part.args if isinstance(part.args, str) else part.args_as_json_str() if part.args else ""
    return None


def _broke_off(model: Model, response: ModelResponse) -> bool:
    """Return whether a stream ended too early: chat completions end with a reason, or at least with usage."""
    if _is_a(model, "OpenAIChatModel"):
        has_reason = "finish_reason" in (response.provider_details or {})
        return not has_reason and not response.usage.output_tokens
    return response.state != "complete"


def usage_of(response: ModelResponse) -> TokenUsage:
    """Return the usage of a response; its cost is None if no price is known.

    What was lost on other models before this one answered is part of it.
    """
    used = response.usage
    lost = (response.metadata or {}).get(LOST)
    return (NOTHING_USED if lost is None else from_json(TokenUsage, lost)) + TokenUsage(
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cached_tokens=used.cache_read_tokens,
        requests=1,
        cost_usd=_cost(response),
    )


def with_list_price(used: TokenUsage, provider: str, model: str) -> TokenUsage:
    """Return the usage of one call with its cost by a provider's price list; None if the list lacks it."""
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
    """Return the `ModelError` for a failed request; it says whether a retry can help."""
    from pydantic_ai import exceptions  # noqa: PLC0415 (loaded by now)

    # Not a reply at all, such as a body that is not JSON.
    if not isinstance(error, exceptions.ModelAPIError):
        return ModelError(f"{name} sent an invalid reply: {error}", retryable=True)
    status = error.status_code if isinstance(error, exceptions.ModelHTTPError) else None
    retryable = status is None or status in _RETRYABLE or status >= _SERVER_ERROR
    # An exhausted quota is a 429, too, but waiting does not help.
    if isinstance(error, exceptions.ModelQuotaExceededError | exceptions.ModelRequestRejectedError):
        retryable = False
    return ModelError(
        f"{name} failed{_reason(error)}",
        status=status,
        retryable=retryable,
        retry_after=error.retry_after,
        over_quota=isinstance(error, exceptions.ModelQuotaExceededError),
    )


def _reason(error: ModelAPIError) -> str:
    """Return the provider's own message, without its wrapping if possible."""
    from pydantic_ai.exceptions import ModelHTTPError  # noqa: PLC0415 (loaded by now)

    message: Any = error.body
    for key in ("error", "message"):  # some clients have unwrapped `error` already
        message = cast("dict[str, Any]", message).get(key, message) if isinstance(message, dict) else None
    if not isinstance(error, ModelHTTPError) or not isinstance(message, str) or not message.strip():
        return f": {error}"
    hint = f"Did you mean {error.suggested_model_id!r}?" if error.suggested_model_id else ""
    sentences = (message.strip().rstrip(".") + ".", hint, error.hint)
    return f" with status {error.status_code}: {' '.join(filter(None, sentences))}"


class LoopClients(Generic[T]):
    """Clients by name, one for each event loop: connections belong to the loop that opened them."""

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[
            asyncio.AbstractEventLoop, dict[str, tuple[T, AsyncGenerator[None]]]
        ] = WeakKeyDictionary()

    async def get(self, name: str, connect: Callable[[], tuple[T, AbstractAsyncContextManager[Any]]]) -> T:
        """Return the running loop's client.

        `connect` makes it, together with the context that is left, which closes it, when the loop ends.
        """
        clients = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        if name not in clients:
            client, connection = connect()
            clients[name] = client, _close_with_loop(connection)
            await anext(clients[name][1])
        return clients[name][0]


async def _close_with_loop(connection: AbstractAsyncContextManager[Any]) -> AsyncGenerator[None]:
    """Close a connection when the event loop ends, since a loop then finishes its async generators."""
    try:
        yield
    finally:
        async with connection:  # leaving its context closes it
            pass


_models: LoopClients[Model] = LoopClients()


def _model_named(name: str) -> Model:
    def infer() -> Model:
        from pydantic_ai.models import infer_model  # noqa: PLC0415 (loaded by now)

        return infer_model(name)

    return named(name, infer)


def named(name: str, infer: Callable[[], T]) -> T:
    """Return what `infer` finds for a name; raises `ConfigError` that says what is missing."""
    provider = name.partition(":")[0]
    try:
        from pydantic_ai.exceptions import UserError  # noqa: PLC0415 (0.3 s, on first use)
        from pydantic_ai.providers import infer_provider_class  # noqa: PLC0415 (likewise)
    except ImportError as error:
        if _is_misspelt(provider):
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


def _is_misspelt(provider: str) -> bool:
    """Whether a name is like that of a provider with an extra; a part of it, as in `openai-chat`, is fine."""
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
    """Return whether a model is of one of these classes, by name: their clients may not be installed."""
    return any(kind.__name__ in names for kind in type(model).__mro__)


def messages_of(request: ChatRequest) -> list[ModelMessage]:
    """Return the messages of a request as Pydantic AI has them."""
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


def _parameters(model: Model, request: ChatRequest) -> ModelRequestParameters | None:
    if request.schema is None:
        return None
    from pydantic_ai.models import ModelRequestParameters  # noqa: PLC0415 (loaded by now)
    from pydantic_ai.output import OutputObjectDefinition  # noqa: PLC0415 (loaded by now)

    native = model.profile.get("supports_json_schema_output", False)
    return ModelRequestParameters(
        output_mode="native" if native else "prompted",
        output_object=OutputObjectDefinition(dict(request.schema), name="reply"),
    )


def _cost(response: ModelResponse) -> float | None:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):  # not on the price list, or no usage reported
        return None


def _logprobs(response: ModelResponse) -> list[dict[str, float]]:
    from pydantic_ai.messages import TextPart  # noqa: PLC0415 (loaded by now)

    # Chat completions have them on the response, OpenAI's Responses API on each text part.
    for holder in (response, *(part for part in response.parts if isinstance(part, TextPart))):
        if holder.provider_details and "logprobs" in holder.provider_details:
            return [alternatives_of(token) for token in holder.provider_details["logprobs"]]
    return []


def similar_names(name: str) -> str:
    """Return a sentence that suggests the known names most similar to `name`."""
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    known = [*(f"local:{each}" for each in PACKAGED), *_provider_names()]
    provider, colon, model = name.partition(":")
    if colon:
        providers = [*EXTRAS, *(each.partition(":")[0] for each in known)]
        found = [f"{each}:{model}" for each in get_close_matches(provider, providers, 1)]
    else:
        ours = [each for each in known if each.partition(":")[0] in (*EXTRAS, "local")]
        found = _similar(name, ours) or _similar(name, known)
    if found:
        return f" Did you mean {' or '.join(repr(each) for each in found)}?"
    return f" Known providers are {', '.join(EXTRAS)}, local, and all others of Pydantic AI."


def _similar(name: str, known: list[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 (only an error needs it)

    by_model: dict[str, str] = {}
    for each in known:
        by_model.setdefault(each.partition(":")[2], each)
    return [by_model[model] for model in get_close_matches(name.lower(), by_model, 2, cutoff=0.5)]


def _provider_names() -> list[str]:
    try:
        from pydantic_ai.models import known_model_names  # noqa: PLC0415 (0.3 s, and only an error needs it)
    except ImportError:
        return []
    return [name for name in known_model_names() if ":" in name]
