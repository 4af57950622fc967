from __future__ import annotations

import asyncio
import re
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    UserPromptPart,
)
from pydantic_ai.models import CompletedStreamedResponse
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from redraft._sync import run_sync
from redraft.errors import ConfigError, MissingExtraError, ModelError
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatRequest, Message
from support.openai_server import Stream, completion, serving

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def asked(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


def function_model(answer, **profile):
    """A model that answers with `answer`, and the list of what it was told."""
    told = []

    def respond(messages, info):
        told.append((messages, info))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ModelResponse) else ModelResponse([TextPart(answer)])

    return ProviderModel(FunctionModel(respond, profile=profile or None)), told


def test_message_roles():
    model, told = function_model("fine")
    turns = (Message("system", "S"), Message("user", "U"), Message("assistant", "A"), Message("user", "V"))
    assert run_sync(model(ChatRequest(turns))).text == "fine"
    messages, _ = told[0]
    assert [(type(message), type(message.parts[0]), message.parts[0].content) for message in messages] == [
        (ModelRequest, SystemPromptPart, "S"),
        (ModelRequest, UserPromptPart, "U"),
        (ModelResponse, TextPart, "A"),
        (ModelRequest, UserPromptPart, "V"),
    ]


@pytest.mark.parametrize(
    ("more", "sent"),
    [
        ({}, {}),
        ({"temperature": 0.0}, {"temperature": 0.0}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"temperature": 0.7, "max_tokens": 9}, {"temperature": 0.7, "max_tokens": 9}),
    ],
)
def test_settings_are_sent_only_if_requested(more, sent):
    model, told = function_model("x")
    run_sync(model(asked(**more)))
    settings = {
        key: value for key, value in (told[0][1].model_settings or {}).items() if key != "max_retries"
    }
    assert settings == sent


@pytest.mark.parametrize("native", [True, False])
def test_schema_is_sent_natively_or_in_the_prompt(native):
    model, told = function_model('{"a": 1}', supports_json_schema_output=native)
    assert run_sync(model(asked(schema=SCHEMA))).parsed == {"a": 1}
    parameters = told[0][1].model_request_parameters
    assert parameters.output_mode == ("native" if native else "prompted")
    assert parameters.output_object.json_schema["properties"] == SCHEMA["properties"]
    assert ("additionalProperties" in (told[0][1].instructions or "")) is not native


@pytest.mark.parametrize("native", [True, False])
def test_a_schema_that_the_prompt_describes_is_only_sent_natively(native):
    model, told = function_model('{"a": 1}', supports_json_schema_output=native)
    assert run_sync(model(asked(schema=SCHEMA, schema_in_prompt=True))).parsed == {"a": 1}
    assert (told[0][1].model_request_parameters.output_object is not None) is native
    assert "additionalProperties" not in (told[0][1].instructions or "")


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), (None, "stop"), ("length", "length"), ("content_filter", "other")]
)
def test_finish_reason(reason, told):
    model, _ = function_model(ModelResponse([TextPart("x")], finish_reason=reason))
    assert run_sync(model(asked())).finish_reason == told


def test_unsupported_logprobs_fail_before_the_call():
    model, told = function_model("yes")
    with pytest.raises(ModelError, match="returns no log probabilities"):
        run_sync(model(asked(logprobs=5)))
    assert not told


def test_user_error_of_the_library_is_a_config_error():
    with pytest.raises(ConfigError, match="no such setting"):
        run_sync(function_model(UserError("no such setting"))[0](asked()))


def test_pydantic_ai_test_model():
    assert run_sync(ProviderModel(TestModel(custom_output_text="hello"))(asked())).text == "hello"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("openai:gpt-5-mini", ConfigError, "needs the environment variable OPENAI_API_KEY to be set"),
        ("opnai:gpt-5-mini", ConfigError, r"Unknown provider 'opnai'.* Did you mean 'openai:gpt-5-mini'\?"),
        (
            "zzz:x",
            ConfigError,
            r"Unknown provider 'zzz'.* Known providers are openai, anthropic, google, local",
        ),
    ],
)
def test_invalid_name(name, error, message, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(error, match=message):
        ProviderModel(name)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com", "127.0.0.1:8000", "http:///v1", "http://[::1", "http://127.0.0.1:99999/v1"),
        *("   ", "http://127.0.0.1:x/v1", "localhost"),
    ],
)
def test_an_invalid_base_url_is_named(url, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")
    with pytest.raises(ConfigError, match="The base URL of the model 'openai-chat:m'"):
        ProviderModel("openai-chat:m")


@pytest.mark.parametrize(
    ("missing", "name", "error", "message"),
    [
        ("pydantic_ai.providers", "anthropic:x", MissingExtraError, r"pip install 'redraft\[anthropic\]'"),
        ("pydantic_ai.providers", "groq:x", MissingExtraError, r"pip install 'redraft\[providers\]'"),
        ("pydantic_ai.providers", "openai-chat:x", MissingExtraError, r"pip install 'redraft\[providers\]'"),
        (
            "pydantic_ai.providers",
            "opnai:x",
            ConfigError,
            "Unknown provider 'opnai'.* Did you mean 'openai:x'",
        ),
        ("openai", "openai:x", MissingExtraError, r"pip install 'redraft\[openai\]'"),
        ("groq", "groq:x", ConfigError, r"pip install 'pydantic-ai-slim\[groq\]'"),
    ],
)
def test_missing_client_names_the_extra(missing, name, error, message, monkeypatch):
    import sys

    for module in [each for each in sys.modules if each.startswith("pydantic_ai.providers.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(error, match=message):
        ProviderModel(name)


@pytest.fixture
def server(monkeypatch):
    with serving(monkeypatch) as server:
        yield server


def test_call_over_http(server):
    server.answers = [(200, {}, completion('{"a": 1}'))]
    reply = run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked(schema=SCHEMA, temperature=0.2)))
    assert (reply.parsed, reply.model) == ({"a": 1}, "openai-chat:gpt-4o-mini")
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.cached_tokens) == (12, 3, 8)
    path, body = server.asked[0]
    assert path == "/v1/chat/completions"
    assert (body["model"], body["temperature"]) == ("gpt-4o-mini", 0.2)
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["response_format"]["json_schema"]["schema"]["properties"]["a"] == {"type": "integer"}
    assert "max_tokens" not in body


def test_lone_surrogates_are_replaced(server):
    server.answers = [(200, {}, completion("tea \ud83c"))]
    assert run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked("\udf75?"))).text == "tea \ufffd"
    assert server.asked[0][1]["messages"] == [{"role": "user", "content": "\ufffd?"}]


@pytest.mark.parametrize(("model", "cost"), [("gpt-4o", 0.0007), ("a-model-of-next-year", None)])
def test_cost_from_the_price_list_or_unknown(server, model, cost):
    usage = {
        "prompt_tokens": 200,
        "completion_tokens": 30,
        "total_tokens": 230,
        "prompt_tokens_details": {"cached_tokens": 80},
    }
    server.answers = [(200, {}, completion() | {"model": model, "usage": usage})]
    told = run_sync(ProviderModel(f"openai-chat:{model}")(asked())).usage.cost_usd
    assert told is None if cost is None else told == pytest.approx(cost)


def test_logprobs_over_http(server):
    tokens = [
        {
            "token": "Yes",
            "logprob": -0.1,
            "bytes": None,
            "top_logprobs": [
                {"token": "Yes", "logprob": -0.1, "bytes": None},
                {"token": "No", "logprob": -2.5, "bytes": None},
            ],
        }
    ]
    server.answers = [(200, {}, completion("Yes", logprobs={"content": tokens, "refusal": None}))]
    reply = run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked(logprobs=2, max_tokens=1)))
    assert reply.logprobs == ({"Yes": -0.1, "No": -2.5},)
    body = server.asked[0][1]
    assert (body["logprobs"], body["top_logprobs"], body["max_completion_tokens"]) == (True, 2, 1)


def test_responses_api_over_http(server):
    part = {
        "type": "output_text",
        "text": "Yes",
        "annotations": [],
        "logprobs": [
            {
                "token": "Yes",
                "logprob": -0.1,
                "bytes": [],
                "top_logprobs": [{"token": "No", "logprob": -2.5, "bytes": []}],
            }
        ],
    }
    answer = {
        "id": "r1", "object": "response", "created_at": 1, "model": "gpt-4o-mini", "status": "completed",
        "output": [
            {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        ],
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": {
            "input_tokens": 12, "output_tokens": 3, "total_tokens": 15,
            "input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip
    server.answers = [(200, {}, answer)]
    reply = run_sync(ProviderModel("openai:gpt-4o-mini")(asked(logprobs=1, max_tokens=1)))
    assert (reply.text, reply.logprobs) == ("Yes", ({"No": -2.5, "Yes": -0.1},))
    assert (reply.usage.input_tokens, reply.usage.cached_tokens) == (12, 8)
    path, body = server.asked[0]
    assert path == "/v1/responses"
    assert body["max_output_tokens"] == 16  # the least that this protocol accepts


BUSY = {"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}
NO_QUOTA = {"error": {"message": "You are out.", "type": "insufficient_quota", "code": "insufficient_quota"}}
FAR = 1_000_000


def in_(seconds):
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("status", "headers", "body", "retryable", "retry_after"),
    [
        (429, {"Retry-After": "7"}, BUSY, True, 7),
        (429, {"Retry-After": FAR}, BUSY, True, FAR),
        (429, {"retry-after-ms": "250"}, BUSY, True, 0.25),
        (429, {"Retry-After": "soon"}, BUSY, True, None),
        (429, {}, BUSY, True, None),
        (429, {}, NO_QUOTA, False, None),
        (408, {}, {}, True, None),
        (409, {}, {}, True, None),
        (500, {}, {"error": {"message": "Sorry."}}, True, None),
        (503, {"Retry-After": "3"}, "<html>busy</html>", True, 3),
        (400, {}, {"error": {"message": "Bad schema."}}, False, None),
        (401, {}, {"error": {"message": "Wrong key."}}, False, None),
        (404, {}, {"error": {"message": "No such model."}}, False, None),
        (301, {"Location": "https://api.example.com/v1"}, "", False, None),
        (307, {}, "", False, None),
    ],
)
def test_failure_is_one_attempt_and_says_whether_to_retry(
    server, status, headers, body, retryable, retry_after
):
    if headers.get("Retry-After") == FAR:
        headers = {"Retry-After": in_(FAR)}  # from now on, not from when the tests were collected
    server.answers = [(status, headers, body), (200, {}, completion())]
    with pytest.raises(ModelError, match="openai-chat:gpt-4o-mini failed") as caught:
        run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked()))
    assert (caught.value.status, caught.value.retryable) == (status, retryable)
    told = caught.value.retry_after
    assert told == (
        None if retry_after is None else pytest.approx(retry_after, abs=600 if retry_after == FAR else 0)
    )
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, {"error": {"message": "Wrong key"}}, " failed with status 401: Wrong key."),
        (401, {"error": {"code": 7}}, " failed: status_code: 401"),
        (503, "<html>busy</html>", " failed: status_code: 503"),
        (
            308,
            "",
            " failed with status 308: the server redirects, which is not followed. Correct the base URL.",
        ),
        (
            404,
            {"error": {"message": "There is no gpt-6-lunar.", "code": "model_not_found"}},
            " failed with status 404: There is no gpt-6-lunar. Did you mean 'openai:gpt-6-luna'?",
        ),
    ],
)
def test_failure_quotes_the_provider(server, status, body, message):
    server.answers = [(status, {}, body)]
    with pytest.raises(ModelError, match=re.escape(f"openai-chat:gpt-6-lunar{message}")):
        run_sync(ProviderModel("openai-chat:gpt-6-lunar")(asked()))


@pytest.mark.parametrize(
    "body", ["{not JSON", "<html>hello</html>", "", {"object": "something else"}, "[" * 100_000]
)
def test_invalid_http_reply(server, body):
    server.answers = [(200, {}, body)]
    with pytest.raises(ModelError) as caught:
        run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked()))
    assert caught.value.retryable


def test_connection_failure_is_retryable(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(ModelError) as caught:
        run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked()))
    assert (caught.value.status, caught.value.retryable) == (None, True)


def test_slow_reply_is_cancelled_immediately(server):
    async def main():
        server.answers = [(None, {}, "")]
        model = ProviderModel("openai-chat:gpt-4o-mini")
        started = time.perf_counter()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(model(asked()), 0.3)
        assert time.perf_counter() - started < 30  # the server would take 60

    run_sync(main())


def test_model_is_shared_by_calls_and_event_loops(server):
    model = ProviderModel("openai-chat:gpt-4o-mini")

    async def many():
        return [reply.text for reply in await asyncio.gather(*(model(asked()) for _ in range(3)))]

    for _ in range(3):
        server.answers = [(200, {}, completion())] * 3
        assert asyncio.run(many()) == ["hello"] * 3


# Streams, from a server on loopback.


def stream_of(*answers, monkeypatch, name="openai-chat:gpt-4o-mini", **more):
    """Ask a model for a stream; return the reply or the error, the pieces, and what was asked."""
    pieces, said = [], []

    def on_text(text, usage=None):
        pieces.append(text)
        said.append(usage)

    with serving(monkeypatch) as server:
        server.answers += [(200, {}, each) if isinstance(each, Stream) else each for each in answers]
        try:
            reply = run_sync(ProviderModel(name).stream(asked(**more), on_text))
        except ModelError as error:
            reply = error
        return reply, pieces, [body for _, body in server.asked]


def test_a_stream_has_the_reply_and_the_usage_of_a_call(monkeypatch):
    reply, pieces, sent = stream_of(Stream(["hel", "", "lo"]), monkeypatch=monkeypatch)
    assert "".join(pieces) == "hello"
    assert len(pieces) == 2
    with serving(monkeypatch) as server:
        server.answers.append((200, {}, completion("hello")))
        assert run_sync(ProviderModel("openai-chat:gpt-4o-mini")(asked())) == reply
        assert server.asked[0][1] == {
            key: value for key, value in sent[0].items() if key != "stream_options"
        } | {"stream": False}
    assert reply.usage.cost_usd


def test_a_stream_of_json(monkeypatch):
    reply, pieces, _ = stream_of(Stream(['{"a"', ": 1}"]), monkeypatch=monkeypatch, schema=SCHEMA)
    assert pieces == ['{"a"', ": 1}"]
    assert reply.parsed == {"a": 1}


def test_a_surrogate_pair_cut_in_two_is_one_character(monkeypatch):
    reply, pieces, _ = stream_of(Stream(["a\ud83d", "\ude00b", "\ud83d"]), monkeypatch=monkeypatch)
    assert reply.text == "a😀b\ufffd"
    assert reply.text.startswith("".join(pieces))
    assert "".join(pieces) == "a😀b"


@pytest.mark.parametrize("ending", ["cut", "drops", "garbage", "error"])
def test_a_stream_that_breaks_off_is_a_retryable_error(ending, monkeypatch):
    error, pieces, sent = stream_of(Stream(["hel", "lo"], ending), monkeypatch=monkeypatch)
    assert isinstance(error, ModelError)
    assert error.retryable
    assert "openai-chat:gpt-4o-mini" in str(error)
    assert "".join(pieces) == "hello"
    assert len(sent) == 1


def test_a_page_instead_of_a_stream_is_an_error(monkeypatch):
    page = (200, {"Content-Type": "text/html"}, "<html>Sign in</html>")
    error, pieces, _ = stream_of(page, monkeypatch=monkeypatch)
    assert isinstance(error, ModelError)
    assert pieces == []


def test_an_account_without_streams_is_asked_without(monkeypatch):
    refusal = {"message": "Your organization must be verified to stream this model.", "param": "stream"}
    refused = 400, {}, {"error": refusal}
    with serving(monkeypatch) as server:
        model = ProviderModel("openai-chat:gpt-5")
        server.answers += [refused, (200, {}, completion("one")), (200, {}, completion("two"))]

        async def ask():
            return [(await model.stream(asked(), lambda *_: None)).text for _ in range(2)]

        assert run_sync(ask()) == ["one", "two"]
        assert [body["stream"] for _, body in server.asked] == [True, False, False]


def test_another_refusal_is_not_asked_again(monkeypatch):
    refused = 400, {}, {"error": {"message": "The prompt is too long."}}
    error, _, sent = stream_of(refused, monkeypatch=monkeypatch)
    assert (error.status, error.retryable, len(sent)) == (400, False, 1)


@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: WrapperModel(WrapperModel(model))])
def test_a_model_without_streams_is_asked_without(wrap):
    told = []

    def respond(messages, _info):
        told.append(messages)
        return ModelResponse([TextPart("fine")])

    model = ProviderModel(wrap(FunctionModel(respond)))
    pieces = []
    assert run_sync(model.stream(asked(), pieces.append)).text == "fine"
    assert (len(told), pieces) == (1, [])


def test_text_around_something_else_is_streamed_as_it_is_joined():
    parts = [TextPart("one"), TextPart(" two"), ThinkingPart("hm"), TextPart("three"), TextPart("")]
    response = ModelResponse(parts)

    class Whole(WrapperModel):
        @asynccontextmanager
        async def request_stream(self, messages, settings, parameters, run_context=None):
            yield CompletedStreamedResponse(response, model_request_parameters=parameters, replay_events=True)

    pieces = []
    model = ProviderModel(Whole(FunctionModel(stream_function=lambda *_: None)))
    reply = run_sync(model.stream(asked(), lambda text, usage=None: pieces.append(text)))
    assert "".join(pieces) == reply.text == response.text == "one two\n\nthree"


def test_a_cancelled_stream_says_what_it_used_so_far(monkeypatch):
    async def main():
        said, begun = [], asyncio.Event()

        def on_text(text, usage=None):
            said.append((text, usage))
            begun.set()

        task = asyncio.create_task(
            ProviderModel(FunctionModel(stream_function=write)).stream(asked(), on_text)
        )
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return said

    async def write(_messages, _info):
        yield "one two"
        await asyncio.sleep(60)

    (text, _), (rest, usage) = asyncio.run(main())
    assert (text, rest) == ("one two", "")
    assert usage.requests == 0
    assert usage.output_tokens
