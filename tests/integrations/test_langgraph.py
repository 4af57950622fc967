"""Graphs of LangGraph, played by LangChain's own fake chat model, judged and revised."""

import asyncio
import re
import sys
from types import SimpleNamespace
from typing import TypedDict

import pytest
from genai_prices import Usage, calc_price
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, messages_from_dict
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from redraft import Agent, ConfigError, ModelError, QualityCriterion, ScriptedModel
from redraft._steps import step_scope
from redraft.errors import UnfinishedError
from redraft.integrations.langgraph import GraphCalls, reflecting
from redraft.loop.budget import Budget, StepBudget, Tally
from redraft.loop.triggers import NO_TRIGGERS, RunState
from redraft.stores.sqlite import MemoryStore
from redraft.types import ConvergenceReason
from support.framework_shops import LOOK, USED, GraphShop, pattern


@pytest.fixture(params=[None, InMemorySaver], ids=["plain", "checkpoints"])
def saver(request):
    return request.param and request.param()


def test_a_reply_that_names_its_model_costs_what_the_price_list_says():
    named = {"response_metadata": {"model_provider": "openai", "model_name": "gpt-5-mini"}}
    shop = GraphShop(*(AIMessage(text, usage_metadata=USED, **named) for text in ("Some.", "There are 7.")))
    result = reflecting(shop.agent, pattern=pattern(), keep=False).run_sync("How much tea is left?")
    price = calc_price(
        Usage(input_tokens=10, output_tokens=3), "gpt-5-mini", provider_id="openai"
    ).total_price
    assert result.token_usage.cost_usd == pytest.approx(2 * float(price))


def test_a_version_is_a_checkpoint_of_the_same_thread():
    left = iter([0.5, 0.2, 0.9])
    scored = QualityCriterion(
        "score", evaluator="function", evaluator_config={"function": lambda _: next(left)}
    )
    shop = GraphShop(LOOK, "Draft 1", "Draft 2", "Draft 3", saver=InMemorySaver())
    result = reflecting(shop.agent, pattern=pattern(scored), keep=False).run_sync("How much?")
    threads = {version.memo["thread_id"] for version in result.history.versions}
    points = {version.memo["checkpoint_id"] for version in result.history.versions}
    assert (len(threads), len(points)) == (1, 3)
    for version in result.history.versions:
        stored = shop.agent.get_state({"configurable": version.memo}).values["messages"]
        assert [one.text for one in stored] == [
            one.text for one in messages_from_dict(version.conversation.messages)
        ]


class Killed(BaseException):
    """Stands for the death of the process."""


def die(_):
    raise Killed


def test_a_killed_version_starts_over_in_a_thread_of_its_own(saver):
    store = MemoryStore()
    first = GraphShop(LOOK, saver=saver)
    first.looked = SimpleNamespace(append=die)
    with pytest.raises(Killed):
        reflecting(first.agent, pattern=pattern(), keep=store).run_sync("How much?", run_id="r1")
    second = GraphShop("There are 7.", saver=saver)
    result = reflecting(second.agent, pattern=pattern(), keep=store).run_sync("How much?", run_id="r1")
    assert result.best_output == "There are 7."
    assert [kind for kind, _ in second.seen[0]] == ["human"]


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


def test_a_model_that_fails_is_a_model_error_with_what_was_used():
    shop = GraphShop(LOOK, RuntimeError("broken"))
    with pytest.raises(ModelError) as raised:
        reflecting(shop.agent, pattern=pattern(), keep=False).run_sync("How much?")
    assert raised.value.usage.input_tokens == 10
    assert shop.looked == ["tea"]


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
        GraphShop("7").agent, output=lambda state: state.get("answer"), pattern=pattern(), keep=False
    )
    with pytest.raises(UnfinishedError, match="returned None") as caught:
        agent.run_sync("How much tea is left?")
    assert caught.value.usage.requests == 1


def test_a_model_that_fails_without_a_word_is_named():
    with pytest.raises(ModelError, match=r"failed: (StopIteration|RuntimeError)"):
        reflecting(GraphShop().agent, pattern=pattern(), keep=False).run_sync("How much tea is left?")


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


def test_the_config_of_a_run_reaches_the_graph():
    seen = []

    class Watcher(BaseCallbackHandler):
        def on_chat_model_start(self, *_args, **_options):
            seen.append("model")

    def answer(state, config):
        seen.append(config["configurable"]["shop"])
        return {
            "messages": [
                GenericFakeChatModel(messages=iter([AIMessage("7", usage_metadata=USED)])).invoke(
                    "How much?", config
                )
            ]
        }

    graph = StateGraph(MessagesState)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    agent = reflecting(graph.compile(), pattern=pattern(), keep=False)
    config = {"configurable": {"shop": 3}, "callbacks": [Watcher()]}
    result = agent.with_options(config=config).run_sync("How much?")
    assert seen == [3, "model"]
    assert result.token_usage.requests == 1  # of a node that is no coroutine, too


def test_impossible_options_are_refused_before_anything_is_spent():
    shop = GraphShop()
    agent = reflecting(shop.agent, pattern=pattern(), keep=False)
    with pytest.raises(ConfigError, match="'thread_id' can't be set"):
        agent.with_options(config={"configurable": {"thread_id": "mine"}})
    assert agent.with_options(config={"configurable": None}).name == "shop"
    with pytest.raises(ConfigError, match="output must be a function that is not async"):
        reflecting(shop.agent, output=asyncio.sleep)
    graph = StateGraph(dict)
    graph.add_node("nothing", lambda state: state)
    graph.add_edge(START, "nothing")
    with pytest.raises(ConfigError, match="has no 'messages'"):
        reflecting(graph.compile())


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
