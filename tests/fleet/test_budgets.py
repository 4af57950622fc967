"""The daily budget of a fleet, against a server that counts what is spent."""

import asyncio
import random
from contextlib import contextmanager

import pytest

from redraft import Agent, ConfigError, MemoryStore, QualityCriterion, ReflectionPattern
from redraft._steps import answer, call_gate, call_model
from redraft.errors import ModelError, RedraftError
from redraft.fleet import Fleet, FleetWorker, StoreQueue
from redraft.fleet import gate as fleet_gate
from redraft.fleet.gate import DailyBudget, FleetGate, spending_state
from redraft.loop.budget import LONGEST_REPLY
from redraft.models import ProviderModel
from redraft.models.fallback import FallbackModel
from redraft.models.metered import MeteredModel
from redraft.protocols import ChatReply, ChatRequest
from redraft.types import Message, TokenUsage
from redraft.workflow import Workflow
from support.counting_server import INPUT_USD, OUTPUT_USD, provider

NOON = 1_795_435_200.0  # 2026-11-23 12:00 UTC
MODEL, UNPRICED = "openai-chat:gpt-4o-mini", "openai-chat:my-own"
WORDS = QualityCriterion("words", evaluator="words", evaluator_config={"at_least": 1})
CHECKED = ReflectionPattern(0, quality_criteria=[WORDS])
THOUSAND = 1_000 * OUTPUT_USD
"""The price of a thousand output tokens."""


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fleet_gate, "RETRY", 0.01)
    with provider(monkeypatch) as server:
        yield server


@contextmanager
def passing(gate):
    outside = call_gate.set(gate)
    try:
        yield
    finally:
        call_gate.reset(outside)


def asking(prompt="Write.", **more):
    return ChatRequest((Message("user", prompt),), **more)


def gate_of(usd, store=None, worker="w"):
    return FleetGate([], DailyBudget(usd), store or MemoryStore(), worker, lambda: NOON)


def spent_by(call, gate):
    """Make a call by way of a gate; return what the day has cost then."""

    async def main():
        with passing(gate):
            await call()
        await gate.close()
        assert not gate.spending.state.under_way
        return gate.spending.state.spent

    return asyncio.run(main())


async def spend(gates, prompts, store):
    """Send prompts by way of the gates, until all are answered or the others wait for the next day."""
    model, quiet = ProviderModel(MODEL), 0

    async def send(gate, prompt):
        with passing(gate):
            await answer(model, asking(prompt))

    calls = [asyncio.create_task(send(gates[number % len(gates)], one)) for number, one in enumerate(prompts)]
    async with asyncio.timeout(60):
        while quiet < 10 and not all(call.done() for call in calls):
            await asyncio.sleep(0.01)
            state = await spending_state(store, NOON)
            quiet = quiet + 1 if state is not None and state.is_reached and not state.under_way else 0
    for call in calls:
        call.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(end is None or isinstance(end, asyncio.CancelledError) for end in ends)
    for gate in gates:
        await gate.close()


@pytest.mark.parametrize("seed", range(8))
async def test_a_day_costs_its_budget_and_the_error_of_its_input_estimates_at_most(seed, server):
    dice, store = random.Random(seed), MemoryStore()  # noqa: S311 (chance, not secrecy)
    server.wanted = lambda: dice.choice([5, 60, 300, 2_000])
    usd = OUTPUT_USD * 10 ** dice.uniform(2.5, 4)
    prompts = ["word " * dice.choice([1, 10, 400]) for _ in range(dice.choice([5, 15]))]
    gates = [gate_of(usd, store, f"w{number}") for number in range(dice.choice([1, 3, 5]))]
    await spend(gates, prompts, store)
    state = await spending_state(store, NOON)
    assert server.usd <= usd + (sum(server.error) + len(server.error)) * INPUT_USD
    assert (state.spent, state.under_way) == (pytest.approx(server.usd), 0)
    assert len(server.usage) == len(prompts) or state.is_reached


def tools_agent(model):
    def add(a: int, b: int) -> int:
        return a + b

    return Agent(model, tools=[add], keep=False, pattern=CHECKED)


@pytest.mark.parametrize(
    "call",
    [
        lambda: answer(ProviderModel(MODEL), asking()),
        lambda: answer(MeteredModel(ProviderModel(MODEL)), asking()),
        lambda: answer(FallbackModel([ProviderModel(MODEL), ProviderModel("openai-chat:gpt-4o")]), asking()),
        lambda: tools_agent(MODEL).run("Write."),
        lambda: tools_agent([MODEL, "openai-chat:gpt-4o"]).run("Write."),
    ],
    ids=["model", "metered", "fallback", "tools", "tools_fallback"],
)
def test_each_call_is_sent_with_a_limit_that_fits(call, server):
    server.wanted = lambda: 5_000
    spent = spent_by(call, gate_of(2 * THOUSAND))
    assert 1_500 < server.limits[0] < 2_000
    assert spent == pytest.approx(server.usd)
    assert server.usd <= 2 * THOUSAND + (sum(server.error) + 1) * INPUT_USD


def test_a_lower_limit_of_the_request_stays(server):
    spent_by(lambda: answer(ProviderModel(MODEL), asking(max_tokens=50)), gate_of(2 * THOUSAND))
    spent_by(lambda: answer(ProviderModel(MODEL), asking()), gate_of(1.0))
    assert server.limits == [50, LONGEST_REPLY]


def test_a_limit_that_the_model_refuses_is_lowered(server):
    server.most = 4_096
    spent = spent_by(lambda: answer(ProviderModel(MODEL), asking()), gate_of(1.0))
    assert server.limits == [16_384, 8_192, 4_096]
    assert spent == pytest.approx(server.usd)


def test_a_reply_without_usage_is_settled_by_an_estimate(server):
    server.silent = True
    spent = spent_by(lambda: answer(ProviderModel(MODEL), asking()), gate_of(1.0))
    assert spent == pytest.approx(server.usd, rel=0.5)


class Stream:
    """A model with a known price that streams its reply, and may break off."""

    name = "stream"

    def __init__(self, error=None):
        self.error, self.limits = error, []

    def cost_of(self, input_tokens, output_tokens):
        return (input_tokens + output_tokens) / 1_000

    async def __call__(self, request):
        raise AssertionError("it is called in a stream")

    async def stream(self, request, on_text):
        self.limits.append(request.max_tokens)
        on_text("one two three")
        if self.error is not None:
            raise self.error
        return ChatReply("one two three", usage=TokenUsage(10, 30, requests=1))


def test_a_stream_is_limited_and_settled():
    model = Stream()
    assert spent_by(lambda: call_model(model, asking(), lambda *_: None), gate_of(2.0)) == 0.04
    assert 1_900 < model.limits[0] < 2_000


def test_a_broken_stream_costs_the_tokens_that_arrived():
    agent = Agent(Stream(ModelError("gone")), keep=False, pattern=CHECKED)

    async def listen():
        with pytest.raises(ModelError, match="gone"):
            async for _ in agent.stream("Write."):
                pass

    assert 0 < spent_by(listen, gate_of(100.0)) < 1


def test_a_call_that_no_day_can_pay_for_is_refused(server):
    gate = gate_of(THOUSAND)
    with pytest.raises(
        ModelError, match=r"budget_usd_per_day=0\.0006 is too small for it on any day\. Raise it"
    ):
        spent_by(lambda: answer(ProviderModel(MODEL), asking("word " * 9_000)), gate)
    assert server.limits == []


WORKFLOW = f"""
name: writer
nodes:
  - name: write
    uses: llm.call
    with: {{model: "{UNPRICED}", prompt: Write.}}
"""


def unpriced_judge(store):
    pattern = ReflectionPattern(quality_criteria=["so"], reflection_model=UNPRICED)
    return Agent(MODEL, name="clerk", keep=store, pattern=pattern)


@pytest.mark.parametrize(
    ("programs", "task"),
    [
        (lambda store: {"agents": [Agent(UNPRICED, name="clerk", keep=store)]}, "Write."),
        (lambda store: {"agents": [unpriced_judge(store)]}, "Write."),
        (lambda store: {"workflows": [Workflow.from_text(WORKFLOW, keep=store)]}, None),
    ],
    ids=["writer", "judge", "workflow"],
)
async def test_a_model_without_a_known_price_is_refused_before_the_first_call(programs, task, server):
    store = MemoryStore()
    fleet = Fleet(**programs(store), store=store, queue=StoreQueue(store), budget_usd_per_day=1)
    [name] = fleet.programs
    with pytest.raises(RedraftError, match=r"'openai-chat:my-own' is not known.*\[prices\] in redraft.toml"):
        await fleet.submit(name, task)
    free = Fleet(**programs(store), store=store, queue=StoreQueue(store))
    handle = await free.submit(name, task)
    await FleetWorker(fleet).run(until_idle=True)
    job = await handle.job()
    assert job.state == "failed"
    assert "'openai-chat:my-own' is not known" in job.error
    assert server.limits == []


def test_the_gate_refuses_a_model_without_a_known_price(server):
    with pytest.raises(ConfigError, match="'openai-chat:my-own' is not known"):
        spent_by(lambda: answer(ProviderModel(UNPRICED), asking()), gate_of(1.0))
    assert server.limits == []
