"""What the adapters of frameworks have in common: a scripted agent with a tool is judged and revised."""

import asyncio
import json

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from redraft import ConfigError, Draft, QualityCriterion, ScriptedModel
from redraft.errors import UnfinishedError
from redraft.evaluate.evidence import tool_results
from redraft.events import TokenEvent
from redraft.stores.sqlite import MemoryStore
from redraft.types import ConvergenceReason
from support.framework_shops import LOOK, GraphShop, OpenAIShop, pattern

MANY = [LOOK] * 9


def with_checkpoints(*steps):
    return GraphShop(*steps, saver=InMemorySaver())


@pytest.fixture(params=[OpenAIShop, GraphShop, with_checkpoints], ids=["openai", "graph", "checkpoints"])
def shop_of(request):
    """Make a shop whose model does these steps in turn."""
    return request.param


def reflecting(shop, *criteria, keep=False, **options):
    return shop.reflecting(shop.agent, pattern=pattern(*criteria, **options), keep=keep)


def outputs(result):
    return [version.output for version in result.history.versions]


def test_a_revision_goes_on_and_calls_no_tool_again(shop_of):
    shop = shop_of(LOOK, "Some.", "There are 7.")
    result = reflecting(shop).run_sync("How much tea is left?")
    assert (result.success, outputs(result)) == (True, ["Some.", "There are 7."])
    assert shop.looked == ["tea"]
    assert tuple(kind for kind, _ in shop.seen[-1]) == shop.kinds
    assert "Says how many." in shop.seen[0][0][1]
    [seen] = tool_results(result.history.versions[-1].conversation)  # what a judge is shown
    assert (seen.tool, json.loads(seen.arguments), seen.text) == ("stock", LOOK, "7")
    used = result.token_usage
    assert (used.requests, used.input_tokens, used.output_tokens, used.cost_usd) == (3, 30, 9, None)


def test_an_earlier_best_is_revised_in_its_own_conversation(shop_of):
    scores = iter([0.5, 0.2, 0.9])
    scored = QualityCriterion(
        "score", evaluator="function", evaluator_config={"function": lambda _: next(scores)}
    )
    shop = shop_of(LOOK, "Draft one", "Draft two", "Draft three")
    result = reflecting(shop, scored).run_sync("How much?")
    assert result.best_output == "Draft three"
    texts = " ".join(text for _, text in shop.seen[-1])
    assert ("Draft one" in texts, "Draft two" in texts) == (True, False)
    first, second, third = (version.conversation.messages for version in result.history.versions)
    assert second[: len(first)] == third[: len(first)] == first


class Killed(BaseException):
    """Stands for the death of the process."""


def test_a_killed_run_goes_on_without_the_tools_of_finished_versions(shop_of):
    deaths, store = [Killed()], MemoryStore()

    def judge(text):
        if deaths:
            raise deaths.pop()
        return "7" in text

    number = QualityCriterion("number", evaluator="function", evaluator_config={"function": judge})
    first, second = shop_of(LOOK, "Some."), shop_of("There are 7.")
    with pytest.raises(Killed):
        reflecting(first, number, keep=store).run_sync("How much?", run_id="r1")
    result = reflecting(second, number, keep=store).run_sync("How much?", run_id="r1")
    assert outputs(result) == ["Some.", "There are 7."]
    assert (first.looked, second.looked) == (["tea"], [])
    assert tuple(kind for kind, _ in second.seen[0]) == second.kinds


def test_text_and_the_events_of_the_framework_pass_through(shop_of):
    shop = shop_of("Some tea.", "There are 7.")
    theirs, texts = [], {}

    async def watch():
        agent = reflecting(shop).with_options(on_event=lambda *event: theirs.append(event))
        stream = agent.stream("How much?")
        async for event in stream:
            if isinstance(event, TokenEvent):
                texts[event.version] = texts.get(event.version, "") + event.text
        return stream.result

    result = asyncio.run(watch())
    assert result.best_output == "There are 7."
    assert (texts, result.token_usage.requests) == ({1: "Some tea.", 2: "There are 7."}, 2)
    assert theirs


def test_a_token_budget_ends_the_agent_between_two_of_its_calls(shop_of):
    shop = shop_of(*MANY)
    with pytest.raises(UnfinishedError) as raised:
        reflecting(shop, budget_tokens=100).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TOKEN_BUDGET
    assert 0 < raised.value.usage.total_tokens <= 100
    assert len(shop.looked) == raised.value.usage.requests
    assert "7" in json.dumps(raised.value.conversation.messages[-1])


def test_a_call_that_cannot_fit_does_not_start(shop_of):
    shop = shop_of(LOOK)
    with pytest.raises(UnfinishedError, match="the next call takes about"):
        reflecting(shop, budget_tokens=100).run_sync("How? " + "tea " * 300)
    assert shop.looked == []


def test_a_revision_that_fails_loses_nothing(shop_of):
    result = reflecting(shop_of("Some.", RuntimeError("broken"))).run_sync("How much?")
    assert (result.best_output, result.stop.reason) == ("Some.", ConvergenceReason.ERROR)
    assert result.token_usage.input_tokens == 10


def test_an_agent_that_comes_to_no_answer_is_paid_for(shop_of):
    shop = shop_of(*MANY)
    with pytest.raises(UnfinishedError, match=shop.over_limit) as raised:
        reflecting(shop).with_options(**shop.limit).run_sync("How much?")
    assert raised.value.usage.requests == 1


def test_a_later_call_of_with_options_changes_only_what_it_names(shop_of):
    shop, seen = shop_of("7", "7", *MANY), []
    agent = reflecting(shop).with_options(history=[shop.greeting], **shop.limit)
    agent = agent.with_options(on_event=lambda *event: seen.append(event))
    agent.run_sync("How much?")
    assert seen
    seen.clear()
    agent.with_options(history=None, on_event=None).run_sync("How much?")
    assert not seen
    assert ["Hello." in messages[0][1] for messages in shop.seen] == [True, False]
    assert "How much?" in shop.seen[0][1][1]
    with pytest.raises(UnfinishedError, match=shop.over_limit):
        agent.with_options(on_event=None).run_sync("How much?")


def test_a_starting_draft_is_revised_in_a_new_conversation(shop_of):
    shop = shop_of(LOOK, "There are 7.")
    result = reflecting(shop).run_sync("How much?", draft=Draft("Some."))
    assert result.best_output == "There are 7."
    assert "Some." in shop.seen[0][-1][1]


def test_a_model_of_redraft_judges(shop_of):
    def judge(request):
        good = "There are 7." in request.messages[-1].content
        critique = [] if good else [{"criterion": "clear", "problem": "Say a number.", "quote": "Some."}]
        score = {"reason": "so", "score": 0.9 if good else 0.2}
        return {"criteria": {"clear": score}, "issues": critique, "suggestions": [], "confidence": 0.9}

    shop, clear = shop_of(LOOK, "Some.", "There are 7."), QualityCriterion("clear", "It is clear.")
    agent = reflecting(shop, clear, reflection_model=ScriptedModel(judge))
    assert agent.run_sync("How much?").best_output == "There are 7."
    assert shop.looked == ["tea"]
    with pytest.raises(ConfigError, match="model"):
        reflecting(shop, clear)


def test_impossible_options_are_refused_before_anything_is_spent(shop_of):
    shop = shop_of("7")
    agent = reflecting(shop)
    assert agent.name == "shop"
    with pytest.raises(ConfigError, match=shop.refused):
        shop.reflecting("shop")
    with pytest.raises(ConfigError, match="its framework takes by itself"):
        reflecting(shop, reflect_on_error=True)
    with pytest.raises(ConfigError, match="has prompts of its own"):
        agent.variant(system_prompt="Be rude.")
    with pytest.raises(ConfigError, match="history must be a list"):
        agent.with_options(history="Hello.")
    with pytest.raises(ConfigError, match="on_event must be a function that is not async"):
        agent.with_options(on_event=asyncio.sleep)
    with pytest.raises(TypeError, match=r"Did you mean 'history'\?"):
        agent.with_options(histori=[])
    assert not shop.seen
