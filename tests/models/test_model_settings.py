"""Settings of an agent's model: where they are sent, what is refused, and what identifies a run."""

import asyncio

import pytest
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider

from redraft import Agent, ConfigError, MemoryStore, QualityCriterion, ReflectionPattern, Runs, ScriptedModel
from redraft._codec import fingerprint
from redraft.errors import ChangedRunError
from redraft.fleet.programs import program_of
from redraft.loop.strategy import HIGHEST_TEMPERATURE
from redraft.models import FallbackModel, ProviderModel
from redraft.protocols import FRESH_TEMPERATURE

OPENAI = ProviderModel(OpenAIChatModel("gpt-4o-mini", provider=OpenAIProvider(api_key="-")))
REASONING = ProviderModel(OpenAIChatModel("o3", provider=OpenAIProvider(api_key="-")))
SETTINGS = {"temperature": 0.2, "max_tokens": 800, "top_p": 0.9, "timeout": 30, "extra_body": {"x": 1}}
REWRITING = ReflectionPattern(revision_strategy="full_rewrite")
DONE = QualityCriterion("done", evaluator="regex", evaluator_config={"pattern": "done"})
VERDICT = '{"criteria": {"clear": {"reason": "so", "score": 1}}, "issues": [], "suggestions": []}'


def lookup(name: str) -> str:
    """Look up a name."""
    return name


def provider(*replies):
    """A provider's model that gives these replies in turn, and the settings that it was sent."""
    seen, left = [], list(replies)

    def answer(_messages, info):
        seen.append(info.model_settings)
        return ModelResponse([TextPart(left.pop(0))])

    return ProviderModel(FunctionModel(answer)), seen


@pytest.mark.parametrize("tools", [(), (lookup,)])
def test_drafts_and_revisions_are_sent_with_the_settings_and_judgements_are_not(tools):
    model, seen = provider("draft", VERDICT, "done", VERDICT)
    criteria = [DONE, QualityCriterion("clear", "Is it clear?")]
    agent = Agent(
        model, tools=tools, pattern=REWRITING, criteria=criteria, model_settings=SETTINGS, keep=False
    )
    assert agent.run_sync("Write.").success
    drafted, judged = seen[0::2], seen[1::2]
    assert [{**one, "max_retries": 0} for one in drafted] == [{**SETTINGS, "max_retries": 0}] * 2
    assert all(one.keys().isdisjoint(SETTINGS) for one in judged)


@pytest.mark.parametrize("tools", [(), (lookup,)])
def test_the_smaller_limit_of_the_reply_counts(tools):
    for budget, within in ((100_000, False), (300, True)):
        model, seen = provider("done")
        options = {"criteria": [DONE], "budget_tokens": budget, "model_settings": {"max_tokens": 800}}
        Agent(model, tools=tools, **options, keep=False).run_sync("Write.")
        assert (seen[0]["max_tokens"] < 300) is within
        assert within or seen[0]["max_tokens"] == 800


def test_a_custom_model_reads_them_from_the_request():
    model = ScriptedModel(["draft", "done"])
    Agent(model, pattern=REWRITING, criteria=[DONE], model_settings=SETTINGS, keep=False).run_sync("Write.")
    others = {name: SETTINGS[name] for name in ("top_p", "timeout", "extra_body")}
    assert [(request.temperature, request.max_tokens, request.settings) for request in model.requests] == [
        (0.2, 800, others)
    ] * 2


def test_what_has_to_differ_keeps_its_own_temperature():
    model = ScriptedModel(["same", "same again", "same", "done"])
    pattern = ReflectionPattern(candidates=2)
    options = {"criteria": [DONE], "model_settings": {"temperature": 0.2}, "pattern": pattern, "keep": False}
    Agent(model, **options).run_sync("Write.")
    assert [request.temperature for request in model.requests][:2] == [0.2, FRESH_TEMPERATURE]
    assert {request.temperature for request in model.requests[2:]} <= {
        0.2,
        FRESH_TEMPERATURE,
        HIGHEST_TEMPERATURE,
    }


def test_revising_outside_of_a_run_takes_them_too():
    model = ScriptedModel(["done"])
    agent = Agent(model, criteria=[DONE], model_settings={"temperature": 0.2}, keep=False)

    async def main():
        evaluation = await agent.pattern.reflect("draft")
        return await agent.pattern.revise("draft", evaluation, agent=agent)

    assert asyncio.run(main()) == "done"
    assert model.requests[0].temperature in (0.2, FRESH_TEMPERATURE)


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (OPENAI, {"temprature": 0.2}, r"'openai:.*' does not take 'temprature'\. Did you mean 'temperature'"),
        (OPENAI, {"openai_reasoning_efort": "low"}, "Did you mean 'openai_reasoning_effort'"),
        (ProviderModel(TestModel()), {"openai_user": "a"}, "does not take 'openai_user'"),
        (ProviderModel(WrapperModel(TestModel())), {"brush": 1}, "does not take 'brush'"),
        (FallbackModel([OPENAI, ProviderModel(TestModel())]), {"openai_user": "a"}, "does not take"),
        (REASONING, {"temperature": 0.2}, "'openai:o3' does not take a temperature"),
        (ScriptedModel([]), {"temprature": 0.1}, r"'temprature' is no setting\. Did you mean 'temperature'"),
        (ScriptedModel([]), {"max_token": 9}, r"Did you mean 'max_tokens'\?"),
        (OPENAI, {"max_retries": 3}, r"Redraft retries failed calls by itself: ReflectionPattern\(retry="),
        (OPENAI, {"temperature": -1}, "temperature must be a number of at least 0"),
        (OPENAI, {"max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        (OPENAI, {"extra_body": {"x": object()}}, "model_settings is not JSON data"),
        (OPENAI, [("temperature", 0.2)], "model_settings must be a mapping, such as"),
    ],
)  # fmt: skip
def test_settings_that_can_not_work_are_refused_before_the_first_call(model, settings, message):
    with pytest.raises(ConfigError, match=message):
        Agent(model, model_settings=settings, keep=False)


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (OPENAI, {**SETTINGS, "openai_reasoning_effort": "low", "seed": 3, "stop_sequences": ["x"]}),
        (ProviderModel(TestModel()), SETTINGS),
        (FallbackModel([OPENAI, ProviderModel(TestModel())]), SETTINGS),
        (OPENAI, {"temperature": None, "brush": None}),
        (OPENAI, None),
    ],
)
def test_settings_that_the_model_takes_are_accepted(model, settings):
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    assert Agent(model, model_settings=settings, keep=False).model_settings == given


def agent_with(settings, keep=False, replies=("done",)):
    return Agent(ScriptedModel(replies), criteria=[DONE], model_settings=settings, keep=keep)


@pytest.mark.parametrize(
    ("settings", "recorded"),
    [
        ({"temperature": 0.2, "timeout": 30, "extra_headers": {"x-key": "abc"}}, {"temperature": 0.2}),
        ({"timeout": 30}, None),
        (None, None),
    ],
)
def test_settings_that_shape_the_answers_are_recorded(settings, recorded):
    keep = MemoryStore()
    agent = agent_with(settings, keep)
    agent.run_sync("Write.")
    assert asyncio.run(Runs(keep).get()).origin.model_settings == recorded
    assert agent.definition["model_settings"] == recorded


def test_a_run_is_resumed_with_the_settings_that_it_had():
    keep = MemoryStore()
    agent_with({"temperature": 0.2, "timeout": 30}, keep).run_sync("Write.", run_id="a")
    again = agent_with({"temperature": 0.2, "timeout": 60}, keep, []).run_sync("Write.", run_id="a")
    assert again.best_output == "done"
    with pytest.raises(
        ChangedRunError, match=r"had other model settings \({'temperature': 0\.2}\) than those"
    ):
        agent_with({"temperature": 0.7}, keep).run_sync("Write.", run_id="a")


def test_agents_with_other_settings_are_other_programs():
    prints = {
        fingerprint(program_of(agent_with({"temperature": one})).definition()) for one in (0.2, 0.2, 0.7)
    }
    assert len(prints) == 2


def test_copies_keep_the_settings():
    agent = Agent(OPENAI, tools=[lookup], model_settings={"top_p": 0.9}, keep=False)
    for copy in (agent.variant(system_prompt="Be brief."), agent.for_evaluation()):
        assert copy.model_settings == {"top_p": 0.9}
        assert copy._tool_agent.settings == {"top_p": 0.9}


def test_a_framework_keeps_its_own():
    model, seen = provider("done")
    inner = PydanticAgent(model._instance, model_settings={"temperature": 0.4})
    assert Agent.from_pydantic_ai(inner, criteria=[DONE], keep=False).run_sync("Write.").success
    assert seen[0]["temperature"] == 0.4
