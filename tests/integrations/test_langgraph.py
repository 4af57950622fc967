"""Graphs of LangGraph, played by LangChain's own fake chat model, judged and revised."""

import asyncio
import itertools
import json
import re
import sys
from types import SimpleNamespace
from typing import TypedDict

import pytest
from genai_prices import Usage, calc_price
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, messages_from_dict
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from pydantic import BaseModel

from redraft import Agent, ConfigError, ModelError, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._steps import step_scope
from redraft.errors import UnfinishedError
from redraft.evaluate.evidence import tool_results
from redraft.events import TokenEvent
from redraft.integrations.langgraph import GraphCalls, reflecting
from redraft.loop import Retry
from redraft.loop.budget import Budget, StepBudget, Tally
from redraft.loop.triggers import NO_TRIGGERS, RunState
from redraft.stores.sqlite import MemoryStore
from redraft.types import ConvergenceReason
from support.pages import Page

NUMBER = QualityCriterion("number", "Says how many.", evaluator="regex", evaluator_config={"pattern": r"\d"})
QUICK = Retry(first_wait=0)


def pattern(*criteria, **options):
    options = {"max_iterations": 2, "retry": QUICK, "diversify": False, **options}
    return ReflectionPattern(quality_criteria=criteria or [NUMBER], **options)


def scored(*scores):
    left = iter(scores)
    return QualityCriterion(
        "score", evaluator="function", evaluator_config={"function": lambda _: next(left)}
    )


def says(text, **options):
    usage = {"input_tokens": 10, "output_tokens": 3, "total_tokens": 13}
    return AIMessage(text, usage_metadata=usage, **options)


def looks(number=1):
    return says("", tool_calls=[{"name": "stock", "args": {"item": "tea"}, "id": f"c{number}"}])


class Shop:
    """A graph with a model, which says these messages in turn, and a tool."""

    def __init__(self, *replies, saver=None):
        self.looked = []
        self.seen = []
        model = GenericFakeChatModel(messages=iter(replies))

        @tool
        def stock(item: str) -> int:
            """Say how many there are."""
            self.looked.append(item)
            return 7

        async def answer(state):
            self.seen.append(list(state["messages"]))
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("model", answer)
        graph.add_node("tools", ToolNode([stock]))
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", tools_condition)
        graph.add_edge("tools", "model")
        self.graph = graph.compile(checkpointer=saver, name="shop")


@pytest.fixture(params=[None, InMemorySaver], ids=["plain", "checkpoints"])
def saver(request):
    return request.param and request.param()


def test_a_revision_goes_on_and_calls_no_tool_again(saver):
    shop = Shop(looks(), says("Some."), says("There are 7."), saver=saver)
    result = reflecting(shop.graph, pattern=pattern(), keep=False).run_sync("How much tea is left?")
    assert [version.output for version in result.history.versions] == ["Some.", "There are 7."]
    assert shop.looked == ["tea"]
    assert [one.type for one in shop.seen[-1]] == ["human", "ai", "tool", "ai", "human"]
    [seen] = tool_results(result.history.versions[-1].conversation)  # what a judge is shown
    assert (seen.tool, json.loads(seen.arguments), seen.text) == ("stock", {"item": "tea"}, "7")
    used = result.token_usage
    assert (used.requests, used.input_tokens, used.output_tokens, used.cost_usd) == (3, 30, 9, None)


def test_a_reply_that_names_its_model_costs_what_the_price_list_says():
    named = {"response_metadata": {"model_provider": "openai", "model_name": "gpt-5-mini"}}
    shop = Shop(says("Some.", **named), says("There are 7.", **named))
    result = reflecting(shop.graph, pattern=pattern(), keep=False).run_sync("How much tea is left?")
    price = calc_price(
        Usage(input_tokens=10, output_tokens=3), "gpt-5-mini", provider_id="openai"
    ).total_price
    assert result.token_usage.cost_usd == pytest.approx(2 * float(price))


def test_an_earlier_best_is_revised_from_its_own_checkpoint(saver):
    numbers = itertools.count(1)
    shop = Shop(looks(), *[says(f"Draft {next(numbers)}") for _ in range(3)], saver=saver)
    result = reflecting(shop.graph, pattern=pattern(scored(0.5, 0.2, 0.9)), keep=False).run_sync("How much?")
    assert result.best_output == "Draft 3"
    texts = [one.text for one in shop.seen[-1]]
    assert "Draft 1" in texts
    assert "Draft 2" not in texts
    if saver is not None:
        threads = {version.memo["thread_id"] for version in result.history.versions}
        points = {version.memo["checkpoint_id"] for version in result.history.versions}
        assert (len(threads), len(points)) == (1, 3)
        for version in result.history.versions:
            stored = shop.graph.get_state({"configurable": version.memo}).values["messages"]
            assert [one.text for one in stored] == [
                one.text for one in messages_from_dict(version.conversation.messages)
            ]


class Killed(BaseException):
    """Stands for the death of the process."""


def test_a_run_goes_on_in_another_process_that_has_no_checkpoints():
    deaths = [Killed()]

    def judge(text):
        if deaths:
            raise deaths.pop()
        return "7" in text

    number = QualityCriterion("number", evaluator="function", evaluator_config={"function": judge})
    loop, store = pattern(number), MemoryStore()
    first = Shop(looks(), says("Some."), saver=InMemorySaver())
    with pytest.raises(Killed):
        reflecting(first.graph, pattern=loop, keep=store).run_sync("How much?", run_id="r1")
    second = Shop(says("There are 7."), saver=InMemorySaver())
    result = reflecting(second.graph, pattern=loop, keep=store).run_sync("How much?", run_id="r1")
    assert [version.output for version in result.history.versions] == ["Some.", "There are 7."]
    assert (first.looked, second.looked) == (["tea"], [])
    assert [one.type for one in second.seen[0]] == ["human", "ai", "tool", "ai", "human"]


def die(_):
    raise Killed


def test_a_killed_version_starts_over_in_a_thread_of_its_own(saver):
    store = MemoryStore()
    first = Shop(looks(), saver=saver)
    first.looked = SimpleNamespace(append=die)
    with pytest.raises(Killed):
        reflecting(first.graph, pattern=pattern(), keep=store).run_sync("How much?", run_id="r1")
    second = Shop(says("There are 7."), saver=saver)
    result = reflecting(second.graph, pattern=pattern(), keep=store).run_sync("How much?", run_id="r1")
    assert result.best_output == "There are 7."
    assert [one.type for one in second.seen[0]] == ["human"]


def replied(*messages):
    """A graph without a reducer, whose only node ends with these messages."""
    graph = StateGraph(TypedDict("Plain", {"messages": list}))
    graph.add_node("answer", lambda state: {"messages": [*state["messages"], *messages]})
    graph.add_edge(START, "answer")
    return reflecting(graph.compile(), pattern=pattern(), keep=False)


def test_messages_may_be_in_any_form_of_langchain():
    result = replied({"role": "assistant", "content": "There are 7."}).run_sync("How much?")
    assert result.best_output == "There are 7."
    assert [one["type"] for one in result.history.versions[0].conversation.messages] == ["human", "ai"]
    with pytest.raises(UnfinishedError, match="came to no answer"):
        replied(7).run_sync("How much?")


def test_text_and_the_events_of_the_graph_pass_through(saver):
    shop = Shop(says("Some tea."), says("There are 7."), saver=saver)
    theirs, texts = [], {}

    async def watch():
        agent = reflecting(shop.graph, pattern=pattern(), keep=False)
        agent = agent.with_options(on_event=lambda mode, data: theirs.append(mode))
        stream = agent.stream("How much?")
        async for event in stream:
            if isinstance(event, TokenEvent):
                texts[event.version] = texts.get(event.version, "") + event.text
        return stream.result

    assert asyncio.run(watch()).best_output == "There are 7."
    assert texts == {1: "Some tea.", 2: "There are 7."}
    assert {"values", "messages", "updates"} <= set(theirs)


class Order(BaseModel):
    drink: str
    cups: int


class OrderState(MessagesState):
    structured_response: Order


def test_structured_responses_keep_their_type_also_in_a_stored_run():
    cups = iter([0, 2])

    def answer(state):
        return {"messages": [AIMessage("Done.")], "structured_response": Order(drink="tea", cups=next(cups))}

    graph = StateGraph(OrderState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    graph.add_edge("answer", END)
    some = QualityCriterion(
        "some", evaluator="function", evaluator_config={"function": lambda one: one.cups > 0}
    )
    agent = reflecting(graph.compile(), pattern=pattern(some), keep=MemoryStore())
    for _ in range(2):
        assert agent.run_sync("Order.", run_id="r1").best_output == Order(drink="tea", cups=2)


def test_a_token_budget_ends_the_graph_between_two_of_its_calls(saver):
    shop = Shop(*[looks(number) for number in range(9)], saver=saver)
    with pytest.raises(UnfinishedError) as raised:
        reflecting(shop.graph, pattern=pattern(budget_tokens=60), keep=False).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TOKEN_BUDGET
    assert 0 < raised.value.usage.total_tokens <= 60
    assert raised.value.conversation.messages[-1]["type"] == "tool"


def test_a_model_that_fails_is_a_model_error_with_what_was_used():
    shop = Shop(looks(), RuntimeError("broken"))
    with pytest.raises(ModelError) as raised:
        reflecting(shop.graph, pattern=pattern(), keep=False).run_sync("How much?")
    assert raised.value.usage.input_tokens == 10
    assert shop.looked == ["tea"]


def test_a_graph_that_comes_to_no_answer_is_paid_for():
    shop = Shop(*[looks(number) for number in range(9)])
    agent = reflecting(shop.graph, pattern=pattern(), keep=False)
    with pytest.raises(UnfinishedError, match="GraphRecursionError") as raised:
        agent.with_options(config={"recursion_limit": 4}).run_sync("How much?")
    assert raised.value.usage.requests == 2


@pytest.mark.parametrize("changes", [{}, {"messages": []}])
def test_the_prompt_of_a_graph_is_not_its_answer(saver, changes):
    graph = StateGraph(MessagesState)
    graph.add_node("answer", lambda _: changes)
    graph.add_edge(START, "answer")
    agent = reflecting(graph.compile(checkpointer=saver), criteria=[re.compile(r"\d")], keep=False)
    with pytest.raises(UnfinishedError, match="added no message after the prompt"):
        agent.run_sync("How much tea is left? There were 9.")


def test_an_output_function_that_finds_no_answer_ends_the_run():
    agent = reflecting(
        Shop(says("7")).graph, output=lambda state: state.get("answer"), pattern=pattern(), keep=False
    )
    with pytest.raises(UnfinishedError, match="returned None") as caught:
        agent.run_sync("How much tea is left?")
    assert caught.value.usage.requests == 1


def test_a_model_that_fails_without_a_word_is_named():
    with pytest.raises(ModelError, match=r"failed: (StopIteration|RuntimeError)"):
        reflecting(Shop().graph, pattern=pattern(), keep=False).run_sync("How much tea is left?")


def test_a_graph_that_waits_for_a_person_has_no_answer():
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {"messages": [AIMessage(interrupt("Really?"))]})
    graph.add_edge(START, "ask")
    agent = reflecting(graph.compile(checkpointer=InMemorySaver()), pattern=pattern(), keep=False)
    with pytest.raises(UnfinishedError, match="waiting for a person"):
        agent.run_sync("Pay.")


def test_the_spent_budget_of_a_run_inside_a_node_is_an_error_of_the_graph():
    def node(state):
        if len(state["messages"]) == 1:
            return {"messages": [AIMessage("None.")]}
        inner = Agent(ScriptedModel(["never"]), criteria=["Is clear."], budget_tokens=1)
        return {"messages": [AIMessage(inner.run_sync("Q?").best_output)]}

    graph = StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").add_edge("node", END)
    result = reflecting(graph.compile(), pattern=pattern(budget_tokens=10_000)).run_sync("How many?")
    assert result.convergence_reason is ConvergenceReason.ERROR
    assert "budget_tokens=1 leaves 1 tokens" in result.stop.detail


def test_an_earlier_conversation_precedes_the_query():
    shop = Shop(says("7"))
    history = [HumanMessage("Hello."), AIMessage("Hello!")]
    reflecting(shop.graph, pattern=pattern(), keep=False).with_options(history=history).run_sync("How much?")
    assert [one.text for one in shop.seen[0]][:2] == ["Hello.", "Hello!"]
    assert shop.seen[0][2].text.startswith("How much?")
    assert "Says how many." in shop.seen[0][2].text


def test_the_config_of_a_run_reaches_the_graph():
    seen = []

    class Watcher(BaseCallbackHandler):
        def on_chat_model_start(self, *_args, **_options):
            seen.append("model")

    def answer(state, config):
        seen.append(config["configurable"]["shop"])
        return {"messages": [GenericFakeChatModel(messages=iter([says("7")])).invoke("How much?", config)]}

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    agent = reflecting(graph.compile(), pattern=pattern(), keep=False)
    config = {"configurable": {"shop": 3}, "callbacks": [Watcher()]}
    result = agent.with_options(config=config).run_sync("How much?")
    assert seen == [3, "model"]
    assert result.token_usage.requests == 1  # of a node that is no coroutine, too


def test_a_later_call_of_with_options_changes_only_what_it_names():
    shop = Shop(says("7"), says("7"), *[looks(number) for number in range(9)])
    seen = []
    agent = reflecting(shop.graph, pattern=pattern(), keep=False)
    agent = agent.with_options(config={"recursion_limit": 4}, history=[HumanMessage("Hello.")])
    agent = agent.with_options(on_event=lambda mode, data: seen.append(mode))
    agent.run_sync("How much?")
    assert seen
    seen.clear()
    agent.with_options(history=None, on_event=None).run_sync("How much?")
    assert not seen
    assert [messages[0].text.startswith("How much?") for messages in shop.seen] == [False, True]
    with pytest.raises(UnfinishedError, match="GraphRecursionError"):
        agent.with_options(on_event=None).run_sync("How much?")


def test_impossible_options_are_refused_before_anything_is_spent():
    shop = Shop()
    agent = reflecting(shop.graph, pattern=pattern(), keep=False)
    assert agent.name == "shop"
    with pytest.raises(ConfigError, match="takes a compiled graph"):
        reflecting("shop")
    with pytest.raises(ConfigError, match="'thread_id' can't be set"):
        agent.with_options(config={"configurable": {"thread_id": "mine"}})
    assert agent.with_options(config={"configurable": None}).name == "shop"
    with pytest.raises(ConfigError, match="output must be a function that is not async"):
        reflecting(shop.graph, output=asyncio.sleep)
    with pytest.raises(ConfigError, match="on_event must be a function that is not async"):
        agent.with_options(on_event=asyncio.sleep)
    with pytest.raises(ConfigError, match="history must be a list"):
        agent.with_options(history="Hello.")
    with pytest.raises(ConfigError, match="its framework takes by itself"):
        reflecting(shop.graph, pattern=pattern(reflect_on_error=True))
    with pytest.raises(ConfigError, match="prompts of their own"):
        agent.variant(system_prompt="Be rude.")
    graph = StateGraph(dict)
    graph.add_node("nothing", lambda state: state)
    graph.add_edge(START, "nothing")
    with pytest.raises(ConfigError, match="has no 'messages'"):
        reflecting(graph.compile())


def test_the_page_runs():
    page = Page("docs/frameworks.md")
    page.run(page.files("python")["graph.py"])


def test_a_call_that_cannot_fit_does_not_start(saver):
    shop = Shop(looks(), saver=saver)
    with pytest.raises(UnfinishedError, match="the next call takes about"):
        reflecting(shop.graph, pattern=pattern(budget_tokens=100), keep=False).run_sync(
            "How? " + "tea " * 300
        )
    assert shop.looked == []


@pytest.mark.parametrize("budget", [None, 10**9])
def test_calls_of_nodes_in_threads_all_count(budget):
    reply = AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
    response = LLMResult(generations=[[ChatGeneration(message=reply)]])

    async def main():
        calls = GraphCalls(RunState(NO_TRIGGERS), "generation")
        step = StepBudget(Tally(Budget(tokens=budget)), "generate")

        def work():
            for _ in range(300):
                calls.on_llm_end(response)

        with step_scope(budget=None if budget is None else step):
            await asyncio.gather(*(asyncio.to_thread(work) for _ in range(6)))
        return calls.used.total_tokens, step.used.total_tokens

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        used = asyncio.run(main())
    finally:
        sys.setswitchinterval(before)
    assert used == (6 * 300 * 2, 0 if budget is None else 6 * 300 * 2)
