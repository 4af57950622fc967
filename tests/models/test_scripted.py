from __future__ import annotations

import asyncio

import pytest

from redraft.core.chat import ChatReply, ChatRequest, Message
from redraft.core.errors import ConfigError, ModelError
from redraft.core.sync import run_sync
from redraft.core.usage import TokenUsage
from redraft.models.scripted import ScriptedModel

OBJECT = {"type": "object"}


def asked(text="hi", **more):
    return ChatRequest((Message("user", text),), **more)


@pytest.mark.parametrize(
    ("reply", "schema", "text", "parsed"),
    [
        ("plain", None, "plain", None),
        ('{"a": 1}', None, '{"a": 1}', None),
        ('Here: {"a": 1}', OBJECT, 'Here: {"a": 1}', {"a": 1}),
        ("no JSON", OBJECT, "no JSON", None),
        ({"ä": [1]}, OBJECT, '{"ä": [1]}', {"ä": [1]}),
        ({"a": 1}, None, '{"a": 1}', {"a": 1}),
        ([1, 2], OBJECT, "[1, 2]", [1, 2]),
        (ChatReply('{"a": 1}'), OBJECT, '{"a": 1}', {"a": 1}),
        (ChatReply("x", parsed={"b": 2}), OBJECT, "x", {"b": 2}),
    ],
)
def test_a_reply_in_each_of_its_forms(reply, schema, text, parsed):
    for script in ([reply], lambda _: reply, lambda _: asyncio.sleep(0, reply)):
        answer = run_sync(ScriptedModel(script)(asked(schema=schema)))
        assert (answer.text, answer.parsed, answer.model) == (text, parsed, "scripted")


def test_replies_come_in_order_and_requests_are_kept():
    model = ScriptedModel(["one", "two"])
    first, second = asked("a"), asked("b", role="evaluation")
    assert [run_sync(model(request)).text for request in (first, second)] == ["one", "two"]
    assert model.requests == [first, second]


def test_the_end_of_the_script_says_which_call_and_what_it_asked():
    model = ScriptedModel(["one"])
    run_sync(model(asked()))
    with pytest.raises(
        ModelError, match=r"1 replies, and this is call 2 \(revision\), which asks 'Again'"
    ) as caught:
        run_sync(model(asked("Again", role="revision")))
    assert not caught.value.retryable


def test_an_exception_in_the_script_is_raised_and_the_script_goes_on():
    model = ScriptedModel([ModelError("busy", status=429, retryable=True), "fine"])
    with pytest.raises(ModelError, match="busy"):
        run_sync(model(asked()))
    assert run_sync(model(asked())).text == "fine"


def test_usage_is_estimated_unless_given():
    usage = run_sync(ScriptedModel(["a" * 36])(asked("b" * 72))).usage
    assert usage == TokenUsage(input_tokens=20, output_tokens=10, requests=1, cost_usd=0.0)
    given = TokenUsage(5, 6, requests=1, cost_usd=0.25)
    assert run_sync(ScriptedModel([ChatReply("x", usage=given)])(asked())).usage == given


@pytest.mark.parametrize("script", ["a text", {"a": "dict"}])
def test_a_script_that_is_no_list_is_refused(script):
    with pytest.raises(ConfigError, match="a list of replies or a function"):
        ScriptedModel(script)


def test_a_reply_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="A scripted reply must be a text"):
        run_sync(ScriptedModel([3.5])(asked()))
