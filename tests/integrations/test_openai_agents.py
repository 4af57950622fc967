"""Agents of the OpenAI Agents SDK, played by the SDK's own scripted model, judged and revised."""

import asyncio
import itertools
import json
from types import SimpleNamespace

import agents
import httpx
import pytest
from agents import Runner, Usage, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from openai import APIConnectionError, AsyncOpenAI
from pydantic import BaseModel

import redraft
from redraft import ConfigError, Draft, ModelError, QualityCriterion, ReflectionPattern, reflected
from redraft._steps import call_gate, step_scope
from redraft.errors import UnfinishedError
from redraft.evaluate.evidence import tool_results
from redraft.events import TokenEvent
from redraft.fleet.gate import DailyBudget, FleetGate
from redraft.integrations.openai_agents import ModelCalls, reflecting
from redraft.loop import Retry
from redraft.loop.budget import Budget, StepBudget, Tally
from redraft.stores.sqlite import MemoryStore
from redraft.types import ConvergenceReason, TokenUsage
from support.counting_server import INPUT_USD, OUTPUT_USD, provider
from support.pages import Page

NUMBER = QualityCriterion("number", "Says how many.", evaluator="regex", evaluator_config={"pattern": r"\d"})
QUICK = Retry(first_wait=0)
USAGE = Usage(requests=1, input_tokens=10, output_tokens=3, total_tokens=13)


@pytest.fixture(autouse=True)
def _no_traces():
    set_tracing_disabled(True)


def pattern(**options):
    return ReflectionPattern(
        quality_criteria=[NUMBER], **{"max_iterations": 2, "retry": QUICK, "diversify": False, **options}
    )


def shop(answer, **options):
    """An agent whose model looks at the stock unless the conversation has it, then answers by `answer`."""
    looked = []

    @function_tool
    def stock(item: str) -> int:
        """Say how many there are."""
        looked.append(item)
        return 7

    def reply(call):
        kinds = [item.get("type") for item in call.input]
        if "function_call_output" not in kinds:
            return ModelStep([function_call("stock", {"item": "tea"}, call_id="c1")], USAGE)
        return ModelStep([assistant_message(answer(call))], USAGE)

    model = ScriptedModel([ModelStep.respond(reply) for _ in range(12)])
    return agents.Agent(name="shop", model=model, tools=[stock], **options), model, looked


def number_when_asked(call):
    """Answer vaguely, and with the number once a critique asks for one."""
    asked = [item for item in call.input if item.get("role") == "user"]
    return "There are 7." if r"\d" in asked[-1]["content"] else "Some."


def test_a_revision_goes_on_and_calls_no_tool_again():
    agent, model, looked = shop(number_when_asked)
    result = reflecting(agent, pattern=pattern(), keep=False).run_sync("How much tea is left?")
    assert [version.output for version in result.history.versions] == ["Some.", "There are 7."]
    assert result.success
    assert looked == ["tea"]
    assert len(model.calls) == 3
    assert (result.token_usage.requests, result.token_usage.input_tokens) == (3, 30)
    assert result.token_usage.output_tokens == 9
    assert result.token_usage.cost_usd is None
    roles = [item.get("role") or item["type"] for item in model.calls[-1].input]
    assert roles == ["user", "function_call", "function_call_output", "assistant", "user"]
    assert "requirements" in model.calls[0].input[0]["content"]
    assert result.history.versions[0].model == "ScriptedModel"
    [seen] = tool_results(result.history.versions[-1].conversation)  # what a judge is shown
    assert (seen.tool, json.loads(seen.arguments), seen.text) == ("stock", {"item": "tea"}, "7")


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


def test_a_plain_function_knows_less_and_calls_more():
    agent, model, looked = shop(number_when_asked)

    @reflected(criteria=[NUMBER], max_iterations=2)
    async def answer(question: str, feedback: str = "") -> str:
        return (await Runner.run(agent, f"{question}\n\n{feedback}")).final_output

    result = asyncio.run(answer.run("How much tea is left?"))
    assert result.best_output == "There are 7."
    assert len(looked) == 2
    assert len(model.calls) == 4
    assert result.token_usage.input_tokens == 0


def test_an_earlier_best_is_revised_in_its_own_conversation():
    numbers = itertools.count(1)
    agent, model, _ = shop(lambda call: f"Draft {next(numbers)}")
    scores = iter([0.5, 0.2, 0.9])
    criterion = QualityCriterion(
        "score", evaluator="function", evaluator_config={"function": lambda _: next(scores)}
    )
    loop = ReflectionPattern(quality_criteria=[criterion], max_iterations=2, retry=QUICK, diversify=False)
    result = reflecting(agent, pattern=loop, keep=False).run_sync("How much?")
    first, second, third = (version.conversation.messages for version in result.history.versions)
    assert second[: len(first)] == first
    assert third[: len(first)] == first
    assert third[: len(second)] != second
    assert result.best_output == "Draft 3"
    assert len(model.calls) == 4


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
    loop = ReflectionPattern(quality_criteria=[criterion], retry=QUICK)
    waiter = reflecting(agent, pattern=loop, keep=MemoryStore())
    result = waiter.run_sync("Order tea.", run_id="r1")
    assert result.best_output == Order(drink="tea", cups=2)
    again = waiter.run_sync("Order tea.", run_id="r1")
    assert again.best_output == Order(drink="tea", cups=2)
    assert again.token_usage == result.token_usage
    model.assert_complete()


class Killed(BaseException):
    """Stands for the death of the process."""


def test_a_killed_run_goes_on_without_the_tools_of_finished_versions():
    dead = [True]

    def reply(call):
        if r"\d" in call.input[-1].get("content", "") and dead.pop():
            raise Killed
        return number_when_asked(call)

    agent, _, looked = shop(reply)
    assistant = reflecting(agent, pattern=pattern(), keep=MemoryStore())
    with pytest.raises(Killed):
        asyncio.run(assistant.run("How much?", run_id="r1"))
    dead.append(False)
    result = asyncio.run(assistant.run("How much?", run_id="r1"))
    assert result.best_output == "There are 7."
    assert looked == ["tea"]


def test_text_and_the_events_of_the_sdk_pass_through():
    agent, _, looked = shop(number_when_asked)
    theirs, ours = [], []

    async def watch():
        reflected = reflecting(agent, pattern=pattern(), keep=False).with_options(on_event=theirs.append)
        stream = reflected.stream("How much?")
        ours.extend([event async for event in stream])
        return stream.result

    result = asyncio.run(watch())
    texts = {}
    for event in ours:
        if isinstance(event, TokenEvent):
            texts[event.version, event.role] = texts.get((event.version, event.role), "") + event.text
    assert texts == {(1, "draft"): "Some.", (2, "revision"): "There are 7."}
    names = [event.name for event in theirs if event.type == "run_item_stream_event"]
    assert names == ["tool_called", "tool_output", "message_output_created", "message_output_created"]
    assert result.token_usage.requests == 3
    assert looked == ["tea"]


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

    agent, model, _ = shop(lambda call: "7", instructions=instructions)
    history = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
    reflected = reflecting(agent, pattern=pattern(), keep=False)
    reflected.with_options(context="shop 3", history=history).run_sync("How much?")
    assert set(seen) == {"shop 3"}
    assert [item["content"] for item in model.calls[0].input][:2] == ["Hello.", "Hello!"]
    assert model.calls[0].system_instructions == "Be brief."


def test_a_misspelled_option_is_named():
    agent, _, _ = shop(lambda call: "7")
    with pytest.raises(TypeError, match=r"Did you mean 'max_turns'\?"):
        reflecting(agent, pattern=pattern(), keep=False).with_options(max_turn=2)


def test_a_later_call_of_with_options_changes_only_what_it_names():
    seen = []

    def instructions(wrapper, agent):
        seen.append(wrapper.context)
        return "Be brief."

    agent, model, _ = shop(lambda call: "7", instructions=instructions)
    history = [{"role": "user", "content": "Hello."}]
    reflected = reflecting(agent, pattern=pattern(), keep=False).with_options(
        context="shop 3", history=history
    )
    reflected.with_options(max_turns=2).run_sync("How much?")
    reflected.with_options(context="shop 4", history=None).run_sync("How much?")
    reflected.with_options(context=None).run_sync("How much?")
    assert list(dict.fromkeys(seen)) == ["shop 3", "shop 4", None]
    firsts = [call.input[0]["content"] == "Hello." for call in model.calls]
    assert firsts == [True, True, False, False, True, True]  # two calls a run


def test_an_option_of_an_earlier_call_can_be_removed():
    agent, _, _ = shop(number_when_asked)
    limited = reflecting(agent, pattern=pattern(), keep=False).with_options(max_turns=1)
    with pytest.raises(UnfinishedError, match="MaxTurnsExceeded"):
        limited.with_options(context="shop 3").run_sync("How much?")
    assert limited.with_options(max_turns=None).run_sync("How much?").success


@pytest.mark.parametrize("on_event", [None, repr])  # called plainly, and streamed
@pytest.mark.parametrize("tokens", [20, 100])
def test_a_token_budget_ends_the_agent_between_two_of_its_calls(tokens, on_event):
    spent = Usage(requests=1, input_tokens=60, output_tokens=tokens, total_tokens=60 + tokens)
    agent, _, looked = shop(number_when_asked)
    agent.model = ScriptedModel(
        [ModelStep([function_call("stock", {"item": "tea"}, call_id=f"c{n}")], spent) for n in range(9)]
    )
    reflected = reflecting(agent, pattern=pattern(budget_tokens=130), keep=False)
    with pytest.raises(UnfinishedError) as raised:
        reflected.with_options(on_event=on_event).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TOKEN_BUDGET
    assert len(agent.model.calls) == len(looked) == raised.value.usage.requests
    assert raised.value.usage.total_tokens == len(looked) * spent.total_tokens
    assert raised.value.usage.total_tokens < 130 + spent.total_tokens
    assert raised.value.conversation.messages[-1]["type"] == "function_call_output"


@pytest.mark.parametrize("on_event", [None, repr])
def test_a_time_budget_cancels_an_agent_at_work(on_event):
    async def hang(call):
        await asyncio.sleep(60)

    agent = agents.Agent(name="slow", model=ScriptedModel([ModelStep.respond(hang)]))
    reflected = reflecting(agent, pattern=pattern(budget_seconds=0.2), keep=False)
    with pytest.raises(UnfinishedError) as raised:
        reflected.with_options(on_event=on_event).run_sync("How much?")
    assert raised.value.reason is ConvergenceReason.TIME_BUDGET


def failing(error):
    model = ScriptedModel(
        [ModelStep([function_call("nothing", {}, call_id="c1")], USAGE), ModelStep.raise_error(error)]
    )

    @function_tool
    def nothing() -> str:
        """Do nothing."""
        return "done"

    return agents.Agent(name="unlucky", model=model, tools=[nothing]), model


@pytest.mark.parametrize("on_event", [None, repr])
def test_a_provider_that_fails_is_a_model_error_with_what_was_used(on_event):
    agent, model = failing(APIConnectionError(request=None))
    with pytest.raises(ModelError, match="Connection error") as raised:
        reflecting(agent, pattern=pattern(), keep=False).with_options(on_event=on_event).run_sync("How much?")
    assert raised.value.usage.input_tokens == 10
    assert len(model.calls) == 2  # the agent's run does not start over


def test_a_revision_that_fails_loses_nothing():
    agent, _, _ = shop(number_when_asked)
    steps = [ModelStep([assistant_message("Some.")], USAGE), ModelStep.raise_error(RuntimeError("broken"))]
    agent.model = ScriptedModel(steps)
    result = reflecting(agent, pattern=pattern(), keep=False).run_sync("How much?")
    assert result.best_output == "Some."
    assert result.stop.reason is ConvergenceReason.ERROR
    assert result.token_usage.input_tokens == 10


def test_too_many_turns_are_no_answer_but_paid_for():
    agent, _ = failing(RuntimeError("never reached"))
    with pytest.raises(UnfinishedError, match="MaxTurnsExceeded") as raised:
        reflecting(agent, pattern=pattern(), keep=False).with_options(max_turns=1).run_sync("How much?")
    assert raised.value.usage.requests == 1
    assert raised.value.conversation.messages[-1]["type"] == "function_call"


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


def test_the_page_runs():
    page = Page("docs/frameworks.md")
    page.run(page.files("python")["shop.py"])


def test_a_model_of_redraft_judges():
    agent, _, looked = shop(number_when_asked)

    def judge(request):
        good = "There are 7." in request.messages[-1].content
        critique = [] if good else [{"criterion": "clear", "problem": r"Say a number: \d", "quote": "Some."}]
        score = {"reason": "so", "score": 0.9 if good else 0.2}
        return {"criteria": {"clear": score}, "issues": critique, "suggestions": [r"\d"], "confidence": 0.9}

    loop = ReflectionPattern(
        quality_criteria=[QualityCriterion("clear", "It is clear.")],
        reflection_model=redraft.ScriptedModel(judge),
        retry=QUICK,
    )
    result = reflecting(agent, pattern=loop, keep=False).run_sync("How much?")
    assert result.best_output == "There are 7."
    assert looked == ["tea"]
    with pytest.raises(ConfigError, match="model"):
        reflecting(agent, pattern=ReflectionPattern(quality_criteria=loop.quality_criteria), keep=False)


def test_a_starting_draft_is_revised_in_a_new_conversation():
    agent, model, looked = shop(lambda call: "There are 7.")
    result = reflecting(agent, pattern=pattern(), keep=False).run_sync("How much?", draft=Draft("Some."))
    assert result.best_output == "There are 7."
    assert "Some." in model.calls[0].input[-1]["content"]
    assert looked == ["tea"]


def test_impossible_options_are_refused_before_anything_is_spent():
    agent, model, _ = shop(number_when_asked)
    with pytest.raises(ConfigError, match="takes an agent of the OpenAI Agents SDK"):
        reflecting("shop")
    with pytest.raises(ConfigError, match="its framework takes by itself"):
        reflecting(agent, pattern=pattern(reflect_on_error=True))
    with pytest.raises(ConfigError, match="instructions of its own"):
        reflecting(agent, pattern=pattern()).variant(system_prompt="Be rude.")
    with pytest.raises(ConfigError, match="history must be a list"):
        reflecting(agent, pattern=pattern()).with_options(history="Hello.")
    with pytest.raises(ConfigError, match="on_event must be a function that is not async"):
        reflecting(agent, pattern=pattern()).with_options(on_event=asyncio.sleep)
    assert reflecting(agent, pattern=pattern()).definition["tools"] == ("stock",)
    assert not model.calls


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
