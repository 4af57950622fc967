"""Agents of the OpenAI Agents SDK, played by the SDK's own scripted model, judged and revised."""

import asyncio
from types import SimpleNamespace

import agents
import httpx
import pytest
from agents import Usage, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from openai import APIConnectionError, AsyncOpenAI
from pydantic import BaseModel

from redraft import ConfigError, ModelError, QualityCriterion, ReflectionPattern
from redraft._steps import call_gate, step_scope
from redraft.errors import UnfinishedError
from redraft.fleet.gate import DailyBudget, FleetGate
from redraft.integrations.openai_agents import ModelCalls, reflecting
from redraft.loop import Retry
from redraft.loop.budget import Budget, StepBudget, Tally
from redraft.stores.sqlite import MemoryStore
from redraft.types import ConvergenceReason, TokenUsage
from support.counting_server import INPUT_USD, OUTPUT_USD, provider
from support.framework_shops import LOOK, USED, OpenAIShop, pattern

USAGE = Usage(requests=1, **USED)


@pytest.fixture(autouse=True)
def _no_traces():
    set_tracing_disabled(True)


def response(text):
    """A reply of OpenAI's Responses API."""
    return {
        "id": "r1", "object": "response", "created_at": 1, "model": "gpt-5-mini", "status": "completed",
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "output": [{"id": "m1", "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]}],
        "usage": {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 200}, "output_tokens": 100,
                  "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1100},
    }  # fmt: skip


def test_a_model_of_openai_costs_what_the_price_list_says():
    texts = iter(["Some.", "There are 7."])
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=response(next(texts))))
    client = AsyncOpenAI(api_key="none", http_client=httpx.AsyncClient(transport=transport))
    config = agents.RunConfig(model_provider=agents.MultiProvider(openai_client=client))
    agent = reflecting(agents.Agent(name="shop", model="gpt-5-mini"), pattern=pattern(), keep=False)
    result = agent.with_options(run_config=config).run_sync("How much tea is left?")
    assert result.best_output == "There are 7."
    price = calc_price(
        PricedUsage(input_tokens=1000, cache_read_tokens=200, output_tokens=100), "gpt-5-mini"
    ).total_price
    assert result.token_usage.cost_usd == pytest.approx(2 * float(price))
    assert result.token_usage.cached_tokens == 400


class Order(BaseModel):
    drink: str
    cups: int


def test_outputs_keep_their_type_also_in_a_stored_run():
    steps = [[assistant_message(f'{{"drink": "tea", "cups": {cups}}}')] for cups in (0, 2)]
    model = ScriptedModel(steps, default_usage=USAGE)
    agent = agents.Agent(name="waiter", model=model, output_type=Order)
    criterion = QualityCriterion(
        "some", evaluator="function", evaluator_config={"function": lambda order: order.cups > 0}
    )
    loop = ReflectionPattern(quality_criteria=[criterion], retry=Retry(first_wait=0))
    waiter = reflecting(agent, pattern=loop, keep=MemoryStore())
    result = waiter.run_sync("Order tea.", run_id="r1")
    assert result.best_output == Order(drink="tea", cups=2)
    again = waiter.run_sync("Order tea.", run_id="r1")
    assert again.best_output == Order(drink="tea", cups=2)
    assert again.token_usage == result.token_usage
    model.assert_complete()


@pytest.mark.parametrize("handing", [lambda agent: agent, agents.handoff])
def test_a_revision_goes_on_with_the_agent_that_answered(handing):
    looks = [assistant_message("Some.")], [assistant_message("There are 7.")]
    clerk = agents.Agent(name="clerk", model=ScriptedModel(looks, default_usage=USAGE))
    handoff = [function_call("transfer_to_clerk", {}, call_id="h1")]
    model = ScriptedModel([handoff], default_usage=USAGE)
    desk = agents.Agent(name="desk", model=model, handoffs=[handing(clerk)])
    clerk.handoffs = [handing(desk)]
    result = reflecting(desk, pattern=pattern(), keep=False).run_sync("How much?")
    assert result.best_output == "There are 7."
    assert result.token_usage.requests == 3
    clerk.model.assert_complete()


def test_the_context_and_an_earlier_conversation_reach_the_agent():
    seen = []

    def instructions(wrapper, agent):
        seen.append(wrapper.context)
        return "Be brief."

    shop = OpenAIShop("7")
    shop.agent.instructions = instructions
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
    reflected = reflecting(shop.agent, pattern=pattern(), keep=False)
    assert reflected.definition["tools"] == ("stock",)
    reflected.with_options(context="shop 3", history=history).run_sync("How much?")
    assert set(seen) == {"shop 3"}
    [call] = shop.model.calls
    assert [item["content"] for item in call.input][:2] == ["Hello.", "Hello!"]
    assert call.system_instructions == "Be brief."


def test_a_token_budget_ends_a_streamed_agent_between_two_of_its_calls():
    shop = OpenAIShop(*[LOOK] * 9)
    reflected = reflecting(shop.agent, pattern=pattern(budget_tokens=100), keep=False)
    with pytest.raises(UnfinishedError) as raised:
        reflected.with_options(on_event=repr).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TOKEN_BUDGET
    assert len(shop.looked) == raised.value.usage.requests > 0


@pytest.mark.parametrize("on_event", [None, repr])
def test_a_time_budget_cancels_an_agent_at_work(on_event):
    async def hang(call):
        await asyncio.sleep(60)

    agent = agents.Agent(name="slow", model=ScriptedModel([ModelStep.respond(hang)]))
    reflected = reflecting(agent, pattern=pattern(budget_seconds=0.2), keep=False)
    with pytest.raises(UnfinishedError) as raised:
        reflected.with_options(on_event=on_event).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TIME_BUDGET


@pytest.mark.parametrize("on_event", [None, repr])
def test_a_provider_that_fails_is_a_model_error_with_what_was_used(on_event):
    shop = OpenAIShop(LOOK, APIConnectionError(request=None))
    reflected = reflecting(shop.agent, pattern=pattern(), keep=False)
    with pytest.raises(ModelError, match="Connection error") as raised:
        reflected.with_options(on_event=on_event).run_sync("How much?")
    assert raised.value.usage.input_tokens == 10
    assert len(shop.model.calls) == 2  # the agent's run does not start over


def test_a_call_that_waits_for_an_approval_is_no_answer():
    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")]], default_usage=USAGE)
    agent = agents.Agent(name="payer", model=model, tools=[pay])
    with pytest.raises(UnfinishedError, match="approval") as raised:
        reflecting(agent, pattern=pattern(), keep=False).run_sync("Pay.")
    assert raised.value.usage.requests == 1


def chat(server, query="How much tea is left?", model="gpt-4o-mini", max_tokens=None, **options):
    """Run an agent whose model, one of OpenAI's by its name, is played by a server that counts."""

    async def main():
        url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            models = agents.MultiProvider(openai_client=client, openai_use_responses=False)
            settings = agents.ModelSettings(max_tokens=max_tokens)
            agent = agents.Agent(name="shop", model=model, model_settings=settings)
            wrapped = reflecting(agent, pattern=pattern(**options), keep=False)
            return await wrapped.with_options(run_config=agents.RunConfig(model_provider=models)).run(query)

    return asyncio.run(main())


@pytest.fixture
def server(monkeypatch):
    with provider(monkeypatch) as server:
        yield server


@pytest.mark.parametrize("budget", [{"budget_tokens": 1_500}, {"budget_usd": 0.0006}])
def test_a_reply_has_a_limit_that_fits_into_the_budget(budget, server):
    server.wanted = lambda: 900
    result = chat(server, **budget)
    assert 0 < server.limits[0] < 1_500
    if "budget_usd" in budget:
        assert server.usd <= 0.0006 + sum(server.error) * INPUT_USD
    else:
        assert server.tokens <= 1_500 + sum(server.error)
    assert result.token_usage.total_tokens == server.tokens


@pytest.mark.parametrize("budget", [{}, {"budget_tokens": 10_000}])
def test_a_lower_limit_of_the_agent_stays(budget, server):
    chat(server, max_tokens=50, **budget)
    assert set(server.limits) == {50}


def chat_through(gate, server, **options):
    outside = call_gate.set(gate)
    try:
        return chat(server, **options)
    finally:
        call_gate.reset(outside)


def test_the_calls_pass_the_gate_of_a_fleet(server):
    passed = []

    async def gate(call, send, usage):
        reply = await send(call.max_tokens)
        passed.append((call.name, call.is_limit_fixed, usage(reply)))
        return reply

    result = chat_through(gate, server)
    assert [(name, fixed) for name, fixed, _ in passed] == [("openai:gpt-4o-mini", True)] * len(server.usage)
    used = sum((used for _, _, used in passed), TokenUsage())
    assert (used.cost_usd, result.token_usage.cost_usd) == (pytest.approx(server.usd),) * 2


@pytest.mark.parametrize(("max_tokens", "reserved"), [(None, 65_536), (50, 50)])
def test_a_call_starts_only_if_the_day_can_pay_for_its_longest_reply(max_tokens, reserved, server):
    def gate(tokens):
        return FleetGate([], DailyBudget(tokens * OUTPUT_USD), MemoryStore(), "w", lambda: 0.0)

    with pytest.raises(ModelError, match=r"is too small for it on any day"):
        chat_through(gate(reserved), server, max_tokens=max_tokens)
    assert server.limits == []
    chat_through(gate(2 * reserved + 1_000), server, max_tokens=max_tokens)
    assert set(server.limits) == {max_tokens}


def test_without_a_budget_no_limit_is_sent(server):
    chat(server)
    assert set(server.limits) == {None}


@pytest.mark.parametrize("budget", [{"budget_tokens": 100}, {"budget_usd": 0.00001}])
def test_a_call_that_cannot_fit_does_not_start(budget, server):
    with pytest.raises(UnfinishedError, match="the next call takes about"):
        chat(server, "How much? " + "tea " * 300, **budget)
    assert server.limits == []


def test_a_call_that_the_budget_of_a_workflow_refuses_leaves_nothing_reserved_in_its_step():
    async def main():
        workflow = StepBudget(Tally(Budget(tokens=10)), "workflow")
        step = StepBudget(Tally(Budget(tokens=100_000), outer=workflow), "generate")
        agent = agents.Agent("clerk", model=ScriptedModel([]))
        calls = ModelCalls(SimpleNamespace(spent=lambda *_: None), "generation", None, [], None)
        with step_scope(budget=step):
            with pytest.raises(UnfinishedError, match="leaves 10 tokens"):
                await calls.on_llm_start(calls.context, agent, "Write.", [])
            calls.end()
        assert (step.under_way, workflow.under_way) == (set(), set())

    asyncio.run(main())


def test_an_unknown_price_is_refused_before_the_first_call(server):
    with pytest.raises(ConfigError, match=r"'openai:my-own' is not known.*\[prices\]"):
        chat(server, model="my-own", budget_usd=1.0)
    assert server.limits == []
