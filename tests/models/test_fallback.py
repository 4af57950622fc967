"""Fallback models: which failures pass a call on, what it cost, and that a resumed run replays the same."""

from __future__ import annotations

import asyncio
import logging

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._steps import answer, call_gate
from redraft.cycles.agent import CycleAgent
from redraft.errors import ConfigError, ModelError
from redraft.events import TokenEvent
from redraft.fleet.gate import FleetGate, Limit
from redraft.loop import Retry
from redraft.models import fallback
from redraft.models.fallback import FallbackModel, providers_of
from redraft.models.names import model_named, model_of, resolve_model
from redraft.models.provider import ProviderModel
from redraft.protocols import ChatReply, ChatRequest
from redraft.settings import load_settings
from redraft.types import Message, TokenUsage
from redraft.workflow.workflow import Workflow
from support.openai_server import Stream, completion, serving
from support.tool_agents import Actor, call

ASKED = ChatRequest((Message("user", "Hello"),))
DOWN = ModelError("one is down", status=503, retryable=True)
KEPT = ReflectionPattern(
    max_iterations=0,
    retry=Retry(attempts=2, first_wait=0),
    quality_criteria=[QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 9})],
)


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not" + "-a-" + "key")


def named(name, replies):
    model = ScriptedModel(replies)
    model.name = name
    return model


def pair(first, second=("two",)):
    models = named("a:one", first), named("b:two", list(second))
    return FallbackModel(models), *models


@pytest.mark.parametrize(
    "error",
    [
        DOWN,
        ModelError("429", status=429, retryable=True, retry_after=7.0),
        ModelError("the quota is spent", status=429),
        ModelError("no credit is left", status=400, over_quota=True),
        ModelError("pay first", status=402),
        ModelError("no connection", retryable=True),
        TimeoutError(),
        ConnectionResetError("reset"),
    ],
)
def test_a_model_that_is_down_or_over_its_limit_is_passed_over(error, caplog):
    model, _, second = pair([error])
    with caplog.at_level(logging.WARNING):
        reply = asyncio.run(model(ASKED))
    assert (reply.text, reply.model) == ("two", "scripted")
    assert reply.usage.requests == 1
    assert reply.usage.failed_requests == 1
    assert len(second.requests) == 1
    assert caplog.messages[-1].endswith("Asking b:two instead.")


@pytest.mark.parametrize(
    "error",
    [
        ModelError("the prompt is too long", status=400),
        ModelError("no such model", status=404),
        ModelError("a wrong key", status=401),
        ConfigError("no images, please"),
        ValueError("a bug"),
    ],
)
def test_a_mistake_is_raised_without_asking_another_model(error):
    model, _, second = pair([error])
    with pytest.raises(type(error), match=str(error)):
        asyncio.run(model(ASKED))
    assert second.requests == []


def test_a_model_that_failed_rests_and_is_asked_again(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(fallback, "monotonic", lambda: now[0])
    model, first, second = pair([DOWN, "one", "one"], ["two", "two"])

    def ask():
        return asyncio.run(model(ASKED)).text

    assert [ask(), ask()] == ["two", "two"]
    assert len(first.requests) == 1
    now[0] += fallback.REST
    assert [ask(), ask()] == ["one", "one"]
    assert (len(first.requests), len(second.requests)) == (3, 2)


def test_a_retry_after_is_respected_and_the_shortest_is_reported(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(fallback, "monotonic", lambda: now[0])
    limits = [ModelError("429", status=429, retryable=True, retry_after=wait) for wait in (30.0, 20.0)]
    model, first, second = pair([limits[0], "one"], [limits[1], "two"])
    with pytest.raises(ModelError, match=r"No model answered \(a:one, b:two\)\. 429\. 429\.") as caught:
        asyncio.run(model(ASKED))
    assert (caught.value.status, caught.value.retryable, caught.value.retry_after) == (429, True, 20.0)
    assert caught.value.usage.failed_requests == 1  # the run counts the last one
    now[0] += 5
    with pytest.raises(ModelError, match="All providers asked to wait") as caught:
        asyncio.run(model(ASKED))
    assert caught.value.retry_after == 15.0
    now[0] += 15
    assert asyncio.run(model(ASKED)).text == "two"
    assert (len(first.requests), len(second.requests)) == (1, 2)


def test_all_models_may_be_asked_again_if_none_said_how_long_to_wait():
    model, first, second = pair([DOWN, "one"], [ModelError("two is down", status=500, retryable=True)])
    with pytest.raises(ModelError, match=r"one is down\. two is down") as caught:
        asyncio.run(model(ASKED))
    assert caught.value.retryable
    assert caught.value.status is None
    assert asyncio.run(model(ASKED)).text == "one"
    assert (len(first.requests), len(second.requests)) == (2, 1)


def test_a_mistake_of_the_second_keeps_what_the_first_used():
    model, *_ = pair([DOWN], [ModelError("too long", status=400)])
    with pytest.raises(ModelError, match="too long") as caught:
        asyncio.run(model(ASKED))
    assert caught.value.usage == TokenUsage(failed_requests=1)


def test_streams_pass_on_the_text_of_the_model_that_answers():
    model, *_ = pair([DOWN], ["two words"])
    pieces = []
    reply = asyncio.run(model.stream(ASKED, lambda text, _usage=None: pieces.append(text)))
    assert "".join(pieces) == reply.text == "two words"


def test_a_broken_stream_is_begun_anew_by_the_next_model(monkeypatch):
    with serving(monkeypatch) as server:
        server.answers += [(200, {}, Stream(["Begun", " and"], "drops")), (200, {}, completion("Whole."))]
        agent = Agent("openai-chat:one, openai-chat:two", pattern=KEPT, keep=False)

        async def main():
            stream = agent.stream("Say something.")
            events = [event async for event in stream]
            return events, stream.result

        events, result = asyncio.run(main())
    told = [event for event in events if isinstance(event, TokenEvent)]
    assert "".join(event.text for event in told if event.attempt == told[-1].attempt) == "Whole."
    assert [body["model"] for _, body in server.asked] == ["one", "two"]
    assert (result.best_output, result.history.versions[0].model) == ("Whole.", "openai-chat:two")


def test_a_resumed_run_replays_the_reply_of_the_fallback():
    store = MemoryStore()
    answers = iter([DOWN])
    first, second = (
        named("a:one", lambda _request: next(answers)),
        named("b:two", [ChatReply("Fine.", model="b:two")]),
    )
    agent = Agent([first, second], pattern=KEPT, keep=store, name="clerk")
    result = agent.run_sync("Write.", run_id="r1")
    version = result.history.versions[0]
    assert (result.best_output, version.model) == ("Fine.", "b:two")
    assert result.token_usage.failed_requests == 1
    again = Agent([first, second], pattern=KEPT, keep=store, name="clerk").run_sync("Write.", run_id="r1")
    assert again.history.versions[0].model == "b:two"
    assert again.token_usage == result.token_usage
    assert (len(first.requests), len(second.requests)) == (1, 1)


def test_a_run_that_no_model_answers_names_each_failure():
    agent = Agent(
        [named("a:one", lambda _request: DOWN), named("b:two", [DOWN, DOWN])], pattern=KEPT, keep=False
    )
    with pytest.raises(ModelError, match=r"No model answered \(a:one, b:two\)\. one is down\. one is down\."):
        agent.run_sync("Write.")


def test_tools_are_called_by_whichever_model_answers(monkeypatch):
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models.function import FunctionModel

    first = Actor([call("add", a=2, b=3), ModelHTTPError(503, "one", "overloaded")])
    second = Actor(["It is 5."])
    models = [
        ProviderModel(FunctionModel(actor, model_name=name))
        for actor, name in ((first, "one"), (second, "two"))
    ]

    def add(a: int, b: int) -> int:
        return a + b

    store = MemoryStore()
    for _ in range(2):
        agent = Agent(models, tools=[add], pattern=KEPT, keep=store)
        result = agent.run_sync("Add 2 and 3.", run_id="sum")
        assert result.best_output == "It is 5."
        assert result.history.versions[0].model == models[1].name
        assert (result.token_usage.requests, result.token_usage.failed_requests) == (2, 1)
    assert (len(first.requests), len(second.requests)) == (2, 1)


@pytest.mark.parametrize("patterns", [["a:*", "b:*"], ["*"], ["*", "a:*"]])
def test_a_retry_after_of_a_fleet_passes_calls_on_instead_of_holding_them(patterns):
    store = MemoryStore()
    limits = [Limit(pattern, requests_per_minute=6000) for pattern in patterns]
    refused = ModelError("429", status=429, retryable=True, retry_after=600.0)
    model, first, _ = pair([refused])
    other, unasked, second = pair(["never"], ["of the other worker"])

    async def main():
        for worker, one in (("w1", model), ("w2", other)):
            outside = call_gate.set(FleetGate(limits, None, store, worker))
            yield await asyncio.wait_for(answer(one, ASKED), 60)
            call_gate.reset(outside)

    async def collected():
        return [reply async for reply in main()]

    replies = asyncio.run(collected())
    assert [reply.text for reply in replies] == ["two", "of the other worker"]
    assert [reply.usage.failed_requests for reply in replies] == [1, 0]  # the second one was not even sent
    assert (len(first.requests), len(unasked.requests), len(second.requests)) == (1, 0, 1)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "model must be the name of a model"),
        ([None], "model must be the name of a model"),
        (["openai:one", 3], "got 3"),
        (["openai:one", " "], "got ' '"),
        ("openai:one,", "'' is not the name of a model"),
        (["openai:one", "opnai:two"], "Did you mean 'openai:two'"),
        (["openai:one", "openai:one"], "'openai:one' is listed twice"),
        ("fast, fast", "'openai:one' is listed twice"),
    ],
)
def test_lists_that_mean_nothing(models, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").write_text('[models]\nfast = "openai:one"\n')
    with pytest.raises(ConfigError, match=message):
        Agent(models)


def test_one_model_in_a_list_needs_no_fallback():
    assert isinstance(model_of(["openai:one"]), ProviderModel)
    with pytest.raises(ConfigError, match="at least two"):
        FallbackModel([ScriptedModel([])])


def test_settings_name_several_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "redraft.toml").write_text(
        'model = ["fast", "openai-chat:c"]\nreflection_model = ["openai:j", "openai-chat:j"]\n'
        '[models]\nfast = ["openai:a", "openai:b"]\n'
    )
    settings = load_settings()
    assert model_of(None, settings).name == "openai:a, openai:b, openai-chat:c"
    assert model_named(settings.reflection_model).name == "openai:j, openai-chat:j"
    assert Agent().definition["model"] == "fast, openai-chat:c"
    monkeypatch.setenv("REDRAFT_MODEL", "openai:x,openai-chat:y")
    assert model_of(None).name == "openai:x, openai-chat:y"
    (tmp_path / "redraft.toml").write_text("model = [1]\n")
    monkeypatch.delenv("REDRAFT_MODEL")
    with pytest.raises(ConfigError, match="model must be a str"):
        load_settings()


def test_a_path_may_have_a_comma(tmp_path):
    path = tmp_path / "own, small.gguf"
    path.write_bytes(b"GGUF")
    assert model_named(f"local:{path}").name == f"local:{path}"


def test_files_look_up_each_name():
    mine = ScriptedModel([])
    models = {"fast": "openai:a, slow", "slow": ["openai:b"], "mine": mine}
    assert resolve_model("fast", models) == "openai:a, openai:b"
    assert resolve_model(["slow", "mine"], models) == ["openai:b", mine]
    assert resolve_model("mine", models) is mine


WORKFLOW = """\
name: greet
models: {fast: [first, second]}
nodes:
  - name: hello
    uses: llm.call
    with: {prompt: Say hello., model: MODEL}
    output: text
"""


@pytest.mark.parametrize("model", ["[first, second]", "first, second", "fast", "'{{ state.chosen }}'"])
def test_workflows_name_several_models(model):
    models = {"first": named("a:one", [DOWN]), "second": named("b:two", ["Hello."])}
    source = WORKFLOW.replace("MODEL", f'"{model}"' if model == "first, second" else model)
    workflow = Workflow.from_text(source, models=models, keep=False)
    assert workflow.run_sync({"chosen": "first, second"}).state["text"] == "Hello."


CYCLE = """\
name: a
model: [openai:one, fast]
models: {fast: [openai-chat:two]}
stages:
  reason:
    substages:
      - {name: look, type: analyze, prompt: Look., outputSchema: {type: object}}
"""


def test_cycles_name_several_models(tmp_path):
    (tmp_path / "a.yaml").write_text(CYCLE)
    agent = CycleAgent.from_file(tmp_path / "a.yaml")
    assert agent.requirements()["models"] == ["openai:one, openai-chat:two"]


def test_which_models_can_call_tools():
    openai = ProviderModel("openai:one")
    assert providers_of(openai) == (openai,)
    assert providers_of(FallbackModel([openai, ScriptedModel([])])) == ()
    with pytest.raises(ConfigError, match="'openai:one, ScriptedModel' can't call tools"):
        Agent([openai, ScriptedModel([])], tools=[lambda: 1])


@pytest.mark.parametrize(
    ("models", "says"),
    [
        ("openai:one", "must be a list"),
        (iter([ScriptedModel([]), ScriptedModel([])]), "must be a list"),
        (["openai:one", "openai:two"], r"write ProviderModel\('openai:one'\)"),
        ([ScriptedModel, ScriptedModel([])], "or a ChatModel; got <class"),
        ([ScriptedModel([]), None], "each model must be a ChatModel; got None"),
    ],
)
def test_what_is_no_list_of_models_is_refused_when_it_is_made(models, says):
    with pytest.raises(ConfigError, match=says):
        FallbackModel(models)
