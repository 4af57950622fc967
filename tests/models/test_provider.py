from __future__ import annotations

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from redraft.core.chat import ChatRequest, Message
from redraft.core.errors import ConfigError, MissingExtraError, ModelError
from redraft.core.sync import run_sync
from redraft.models.provider import ProviderModel

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


def asked(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


def function_model(answer, **profile):
    """Return a model that answers with `answer`, and the list of what it was told."""
    told = []

    def respond(messages, info):
        told.append((messages, info))
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ModelResponse) else ModelResponse([TextPart(answer)])

    return ProviderModel(FunctionModel(respond, profile=profile or None)), told


def test_messages_keep_their_roles():
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
def test_settings_are_sent_only_when_asked(more, sent):
    model, told = function_model("x")
    run_sync(model(asked(**more)))
    settings = {
        key: value for key, value in (told[0][1].model_settings or {}).items() if key != "max_retries"
    }
    assert settings == sent


@pytest.mark.parametrize("native", [True, False])
def test_a_schema_goes_out_natively_or_in_the_prompt(native):
    model, told = function_model('{"a": 1}', supports_json_schema_output=native)
    assert run_sync(model(asked(schema=SCHEMA))).parsed == {"a": 1}
    parameters = told[0][1].model_request_parameters
    assert parameters.output_mode == ("native" if native else "prompted")
    assert parameters.output_object.json_schema["properties"] == SCHEMA["properties"]
    assert ("additionalProperties" in (told[0][1].instructions or "")) is not native


def test_a_reply_that_does_not_follow_the_schema_is_parsed_to_none():
    model, _ = function_model("not valid at all")
    reply = run_sync(model(asked(schema=SCHEMA)))
    assert (reply.text, reply.parsed) == ("not valid at all", None)


@pytest.mark.parametrize(
    ("reason", "told"), [("stop", "stop"), (None, "stop"), ("length", "length"), ("content_filter", "other")]
)
def test_why_a_reply_ended(reason, told):
    model, _ = function_model(ModelResponse([TextPart("x")], finish_reason=reason))
    assert run_sync(model(asked())).finish_reason == told


def test_log_probabilities_are_refused_before_the_call_where_there_are_none():
    model, told = function_model("yes")
    with pytest.raises(ModelError, match="gives no log probabilities"):
        run_sync(model(asked(logprobs=5)))
    assert not told


def test_a_request_that_the_library_refuses_is_a_mistake_of_ours():
    with pytest.raises(ConfigError, match="no such setting"):
        run_sync(function_model(UserError("no such setting"))[0](asked()))


def test_pydantic_ais_own_fake_answers():
    assert run_sync(ProviderModel(TestModel(custom_output_text="hello"))(asked())).text == "hello"


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("openai:gpt-5-mini", ConfigError, "needs the environment variable OPENAI_API_KEY to be set"),
        ("opnai:gpt-5-mini", ConfigError, r"no provider 'opnai'.* Did you mean 'openai:gpt-5-mini'\?"),
        ("zzz:x", ConfigError, r"no provider 'zzz'.* Providers are openai, anthropic, google, local"),
    ],
)
def test_a_name_that_cannot_work_is_refused_before_any_call(name, error, says, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(error, match=says):
        ProviderModel(name)


@pytest.mark.parametrize(
    ("missing", "name", "error", "says"),
    [
        ("pydantic_ai.providers", "anthropic:x", MissingExtraError, r"pip install 'redraft\[anthropic\]'"),
        ("pydantic_ai.providers", "groq:x", MissingExtraError, r"pip install 'redraft\[providers\]'"),
        ("openai", "openai:x", MissingExtraError, r"pip install 'redraft\[openai\]'"),
        ("groq", "groq:x", ConfigError, r"pip install 'pydantic-ai-slim\[groq\]'"),
    ],
)
def test_a_client_that_is_not_installed_names_the_command(missing, name, error, says, monkeypatch):
    import sys

    for module in [each for each in sys.modules if each.startswith("pydantic_ai.providers.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(error, match=says):
        ProviderModel(name)
