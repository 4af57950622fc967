"""Limits: how calls are spread, shared and held back; by a clock that only waiting moves."""

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._codec import from_record
from redraft._steps import BlockedError, OutgoingCall
from redraft.errors import ConfigError, ModelError, StoreError
from redraft.fleet import Fleet, FleetWorker, Limit, StoreQueue
from redraft.fleet.gate import (
    HELD_FOR,
    KEY,
    LIMIT,
    SPENDING,
    DailyBudget,
    FleetGate,
    LimitState,
    SpendingState,
    limit_states,
    spending_state,
)
from redraft.fleet.overview import limit_document
from redraft.loop import Retry
from redraft.stores.base import Record
from redraft.types import TokenUsage


def spread(limit, waiting, now=1000.0, state=None, worker="a", running=0):
    return (state or LimitState()).reserve(limit, now, worker, waiting, running)


def test_requests_are_spread_evenly_and_a_second_ahead():
    limit = Limit("openai:*", requests_per_minute=240)
    state, times = spread(limit, [10] * 20)
    assert times == [1000.0, 1000.25, 1000.5, 1000.75, 1001.0]
    again, later = spread(limit, [10] * 20, now=1000.5, state=state, worker="b")
    assert later == [1001.25, 1001.5]
    assert spread(limit, [10], now=1000.5, state=again)[1] == []


def test_tokens_are_spread_by_the_expected_usage_of_calls():
    limit = Limit("*", tokens_per_minute=6000)
    assert spread(limit, [50, 10, 10])[1] == [1000.0, 1000.5, 1000.6]
    assert len(spread(limit, [50, 100, 10])[1]) == 2  # the third would begin in 1.5 s


def test_slots_are_shared_fairly_and_never_exceeded():
    limit = Limit("*", concurrency=4)
    state, times = spread(limit, [1] * 9, worker="a")
    assert len(times) == 4
    state, times = spread(limit, [1] * 9, worker="b", state=state)
    assert times == []  # all are taken, but it has said what it wants
    state, times = spread(limit, [1] * 6, worker="a", state=state, running=3)
    assert times == []  # one has ended, and a half is the others'
    state, times = spread(limit, [1] * 9, worker="b", state=state)
    assert len(times) == 1
    gone, times = spread(limit, [1] * 9, now=1011.0, worker="b", state=state, running=1)
    assert len(times) == 3  # nothing was heard of the other one for ten seconds
    assert set(gone.shares) == {"b"}


def test_random_workers_never_hold_more_than_the_limit():
    chance = random.Random(3)  # noqa: S311 (chance, not secrecy)
    limit, state, running = Limit("*", concurrency=5), LimitState(), dict.fromkeys("abcd", 0)
    most = 0
    for step in range(2000):
        worker = chance.choice("abcd")
        running[worker] = chance.randint(0, running[worker])
        state, times = spread(
            limit,
            [1] * chance.randint(0, 6),
            now=1000 + step / 100,
            state=state,
            worker=worker,
            running=running[worker],
        )
        running[worker] += len(times)
        most = max(most, sum(running.values()))
        assert sum(running.values()) <= 5
    assert most == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "has no bounds"),
        ({"models": " ", "concurrency": 1}, "must be a pattern"),
        ({"requests_per_minute": 0}, "requests_per_minute must be"),
        ({"requests_per_minute": True}, "requests_per_minute must be"),
        ({"tokens_per_minute": float("inf")}, "tokens_per_minute must be"),
        ({"concurrency": 0}, "concurrency must be"),
        ({"concurrency": 1.5}, "concurrency must be"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Limit(**{"models": "openai:*", **options})


async def test_a_clock_that_is_set_back_holds_nothing_back():
    limit = Limit("*", requests_per_minute=60)
    state, times = spread(limit, [1], state=LimitState(4602.0, written_at=4600.0))  # a clock an hour ahead
    assert (state.requests_at, times) == (1002.0, [])
    assert spread(limit, [1], now=1002.0, state=state)[1] == [1002.0]
    ahead, provider = [3600.0], Provider()
    gate = FleetGate(
        [Limit("*", requests_per_minute=600)], None, MemoryStore(), "a", lambda: time.time() + ahead[0]
    )
    calls = [asyncio.create_task(provider.call(gate)) for _ in range(2)]
    await calls[0]
    ahead[0] = 0.0
    async with asyncio.timeout(20):
        await calls[1]


class Provider:
    """Counts the calls of all workers by the time at which they begin."""

    def __init__(self, error=None):
        self.times, self.running, self.most, self.error = [], 0, 0, error

    async def call(self, gate, model="openai:gpt", tokens=10):
        async def send(_limit):
            self.times.append(asyncio.get_running_loop().time())
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                await asyncio.sleep(0.02)
                if self.error is not None and len(self.times) == 1:
                    raise self.error
            finally:
                self.running -= 1
            return "reply"

        call = OutgoingCall(SimpleNamespace(name=model), tokens - 1, 1)
        return await gate(call, send, lambda _reply: TokenUsage(tokens, 0, requests=1))


def gates(store, *limits, workers=3):
    return [FleetGate(limits, None, store, f"worker-{number}") for number in range(workers)]


async def test_workers_together_keep_the_requests_of_a_minute():
    store, provider = MemoryStore(), Provider()
    workers, began = gates(store, Limit("openai:*", requests_per_minute=1800)), time.time()
    await asyncio.gather(*(provider.call(gate) for gate in workers for _ in range(10)))
    times = sorted(provider.times)
    assert len(times) == 30
    state = (await limit_states(store))["openai:*"]
    assert state.requests_at >= began + 1  # 30 calls at 30 a second
    for first in range(30):
        for last in range(first, 30):
            assert last - first + 1 <= 30 * (times[last] - times[first] + 1)


@pytest.mark.parametrize(
    ("limit", "end", "expected", "used"),
    [
        (None, TokenUsage(40, 70, requests=1), 600, 110),
        (10, TokenUsage(40, 5, requests=1), 110, 45),
        (9_000, TokenUsage(100, 900, requests=1), 600, 1_000),
        (None, ModelError("cut off", usage=TokenUsage(100, 50, requests=1)), 600, 150),
        (None, ModelError("refused", status=400), 600, 600),
    ],
)
async def test_tokens_are_expected_and_then_corrected(limit, end, expected, used):
    async def send(_limit):
        if isinstance(end, ModelError):
            raise end
        return end

    store = MemoryStore()
    gate = FleetGate([Limit("*", tokens_per_minute=60_000)], None, store, "worker", lambda: 1000.0)
    with suppress(ModelError):
        await gate(OutgoingCall(SimpleNamespace(name="m"), 100, limit), send, lambda reply: reply)
    before = (await limit_states(store))["*"].tokens_at
    await gate.limits[0].settle()
    assert (before, (await limit_states(store))["*"].tokens_at) == pytest.approx(
        (1000 + expected / 1000, 1000 + used / 1000)
    )


async def test_a_correction_survives_an_outage_of_the_store(monkeypatch):
    monkeypatch.setattr("redraft.fleet.gate.RETRY", 0.05)

    class Away(MemoryStore):
        is_away = False

        async def replace(self, record, /):
            if self.is_away:
                self.is_away = False
                raise StoreError("The store is away.")
            return await super().replace(record)

    def clock():
        nonlocal now
        now += 0.01
        return now

    now = 1000.0
    store = Away()
    gate = FleetGate([Limit("*", tokens_per_minute=60_000)], None, store, "worker", clock)
    call = OutgoingCall(SimpleNamespace(name="m"), 100, 10)

    async def send(_limit):
        return TokenUsage(200, 10, requests=1)

    await gate(call, send, lambda reply: reply)
    now, store.is_away = 1060, True
    await gate(call, send, lambda reply: reply)
    assert 0.21 < (await limit_states(store))["*"].tokens_at - 1060 < 0.4


async def test_workers_together_keep_the_concurrency():
    store, provider = MemoryStore(), Provider()
    workers = gates(store, Limit("openai:*", concurrency=2))
    await asyncio.wait_for(asyncio.gather(*(provider.call(gate) for gate in workers for _ in range(4))), 20)
    assert (len(provider.times), provider.most) == (12, 2)
    await asyncio.gather(*(provider.call(workers[0], "local:small") for _ in range(5)))
    assert provider.most == 5  # no limit matches that model


async def test_a_rate_limit_of_the_provider_holds_for_every_worker():
    store = MemoryStore()
    provider = Provider(ModelError("Slow down.", status=429, retryable=True, retry_after=0.5))
    one, two = gates(store, Limit("openai:*", concurrency=50), workers=2)
    with pytest.raises(ModelError):
        await provider.call(one)
    assert (await limit_states(store))["openai:*"].blocked["openai"] > 0
    await asyncio.gather(provider.call(one), provider.call(two))
    first, *others = provider.times
    assert min(others) - first >= 0.5


async def test_a_retry_after_holds_for_the_models_of_its_provider_alone():
    refused = ModelError("Slow down.", status=429, retryable=True, retry_after=600.0)
    store, provider = MemoryStore(), Provider(refused)
    one, two = gates(store, Limit("*", concurrency=2), workers=2)
    with pytest.raises(ModelError):
        await provider.call(one, "a:large")
    waiting = [asyncio.create_task(provider.call(one, "a:small")) for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(provider.call(one, "b"), provider.call(two, "b:large")), 60)
    assert (len(provider.times), [call.done() for call in waiting]) == (3, [False] * 3)
    blocked = limit_document((await limit_states(store))["*"])
    assert 500 < blocked["blocked_seconds"] < 600
    for call in waiting:
        call.cancel()


async def blocked_by_another_limit(gate, store):
    await store.put(Record(LIMIT, "a:*", asdict(LimitState(blocked_until=1060.0))))
    with pytest.raises(BlockedError, match="wait 60 s"):
        await gate(OutgoingCall(SimpleNamespace(name="a:large"), 100, 10, waits_out=False), None, None)


async def blocked_inside_the_model(gate, _store):
    async def send(_limit):
        raise BlockedError("Wait 60 s.", status=429, retry_after=60.0)

    with pytest.raises(BlockedError):
        await gate(OutgoingCall(SimpleNamespace(name="a:large"), 100, 10), send, None)


async def cancelled_in_another_limit(gate, store):
    await store.put(Record(LIMIT, "a:*", asdict(LimitState(blocked_until=1060.0))))
    await cancelled_in(gate.limits[1], gate)


async def cancelled_without_money(gate, store):
    state = SpendingState(gate.spending.budget.day(1000.0), spent=1.0, budget=1.0)
    await store.put(Record(SPENDING, KEY, asdict(state)))
    await cancelled_in(gate.spending, gate)
    await store.put(Record(SPENDING, KEY, asdict(replace(state, spent=0.0))))


async def cancelled_in(bound, gate):
    call = asyncio.create_task(gate(OutgoingCall(SimpleNamespace(name="a:large"), 100, 10), None, None))
    while not bound._line:  # noqa: ASYNC110
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize(
    "held_back",
    [
        blocked_by_another_limit,
        blocked_inside_the_model,
        cancelled_in_another_limit,
        cancelled_without_money,
    ],
)
async def test_a_call_that_is_not_sent_costs_a_limit_nothing(held_back):
    limits, store = [Limit("*", tokens_per_minute=60_000), Limit("a:*", concurrency=4)], MemoryStore()
    gate = FleetGate(limits, DailyBudget(1.0), store, "worker", lambda: 1000.0)
    await asyncio.wait_for(held_back(gate, store), 60)
    assert (await limit_states(store))["*"].blocked == {}
    used = TokenUsage(100, 10, requests=1)

    async def send(_limit):
        return used

    call = OutgoingCall(SimpleNamespace(name="b"), 100, 10)
    await asyncio.wait_for(gate(call, send, lambda reply: reply), 60)
    state = (await limit_states(store))["*"]
    assert state.tokens_at == pytest.approx(1000.11)


async def test_a_change_that_admits_no_calls_leaves_the_share_of_admitted_calls():
    """Calls are admitted up to a second ahead; another worker must not get their slots in between."""
    store, ended, begun = MemoryStore(), asyncio.Event(), asyncio.Queue()
    one, two = gates(store, Limit("m", requests_per_minute=600, concurrency=4), workers=2)

    async def send(_limit):
        begun.put_nowait(1)
        await ended.wait()
        return TokenUsage()

    def call(gate):
        model = SimpleNamespace(name="m")
        return asyncio.create_task(gate(OutgoingCall(model, 1, 1), send, lambda reply: reply))

    async def slots():
        return [share[0] for share in (await limit_states(store))["m"].shares.values()]

    calls = [call(one) for _ in range(3)]
    await begun.get()
    calls += [call(two) for _ in range(4)]
    while len(await slots()) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await one.limits[0].block("m", 0.0)
    for _ in range(3):
        await begun.get()
    assert await slots() == [3, 1]
    ended.set()
    await asyncio.gather(*calls)
    await one.close()
    await two.close()
    assert await slots() == []  # free at once when a worker ends


def test_a_limit_of_an_earlier_version_is_read():
    data = {
        "requests_at": 1,
        "tokens_at": 2.5,
        "blocked_until": 0.0,
        "shares": {"a": [2, 3, 9.5]},
        "old": 1,
    }
    assert from_record(LimitState, data) == LimitState(1.0, 2.5, 0.0, {"a": (2, 3, 9.5)})


async def test_a_limit_that_cannot_be_renewed_does_not_keep_the_budget_from_it():
    class Away(MemoryStore):
        async def get(self, kind, key, /):
            if kind == LIMIT and is_away.is_set():
                raise StoreError("The store is away.")
            return await super().get(kind, key)

    now, is_away = [1000.0], asyncio.Event()
    store = Away()
    gate = FleetGate([Limit("*", concurrency=4)], DailyBudget(1.0), store, "w", lambda: now[0])

    async def send(_limit):
        is_away.set()
        now[0] += HELD_FOR * 0.9
        await gate.renew()
        now[0] += HELD_FOR * 0.9
        state = await spending_state(store, now[0])
        return TokenUsage(requests=1, cost_usd=state.spent)

    assert (
        await gate(OutgoingCall(SimpleNamespace(name="m"), 1, 1), send, lambda reply: reply)
    ).cost_usd == 0.0


async def test_a_retry_after_is_noted_while_a_call_is_being_admitted():
    class Slow(MemoryStore):
        async def replace(self, record, /):
            replacing.set()
            await going_on.wait()
            return await super().replace(record)

    replacing, going_on = asyncio.Event(), asyncio.Event()
    store = Slow()
    gate = FleetGate([Limit("*", requests_per_minute=6000)], None, store, "w", lambda: 1000.0)
    await store.put(Record(LIMIT, "*", asdict(LimitState())))
    call = asyncio.create_task(Provider().call(gate, "b"))
    await replacing.wait()
    block = asyncio.create_task(gate.limits[0].block("a", 60.0))
    await asyncio.sleep(0)
    going_on.set()
    await asyncio.gather(call, block)
    assert (await limit_states(store))["*"].blocked == {"a": 1060.0}
    with pytest.raises(BlockedError):
        await gate(OutgoingCall(SimpleNamespace(name="a"), 1, 1, waits_out=False), None, None)


async def test_a_cancelled_call_takes_no_place():
    store, provider = MemoryStore(), Provider()
    [gate] = gates(store, Limit("openai:*", concurrency=1), workers=1)
    calls = [asyncio.create_task(provider.call(gate)) for _ in range(6)]
    await asyncio.sleep(0.01)
    for call in calls[1:5]:
        call.cancel()
    await asyncio.wait_for(asyncio.gather(calls[0], calls[5]), 60)
    assert len(provider.times) == 2


async def test_calls_wait_while_the_store_is_away(monkeypatch):
    monkeypatch.setattr("redraft.fleet.gate.RETRY", 0.05)

    class Away(MemoryStore):
        failures = 3

        async def get(self, kind, key, /):
            if kind == LIMIT and self.failures:
                self.failures -= 1
                raise StoreError("The store is away.")
            return await super().get(kind, key)

    provider = Provider()
    [gate] = gates(Away(), Limit("openai:*", requests_per_minute=6000), workers=1)
    await asyncio.wait_for(provider.call(gate), 60)
    assert len(provider.times) == 1


async def test_a_storm_of_rate_limits_loses_no_run():
    store, calls = MemoryStore(), []

    async def answer(_request):
        calls.append(1)
        if len(calls) % 3:
            raise ModelError("Slow down.", status=429, retryable=True, retry_after=0.05)
        return "one two three"

    long = QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 3})
    pattern = ReflectionPattern(quality_criteria=[long], retry=Retry(3, 0.01))
    clerk = Agent(ScriptedModel(answer), pattern=pattern, keep=store, name="clerk")
    limit = Limit("ScriptedModel", requests_per_minute=60_000, concurrency=5)
    fleet = Fleet([clerk], limits=[limit], store=store, queue=StoreQueue(store))
    handles = [await fleet.submit(clerk, f"Write {number}.") for number in range(12)]
    await FleetWorker(fleet, concurrency=12).run(until_idle=True)
    results = [await handle.result(within=1) for handle in handles]
    assert all(result.success for result in results)


@pytest.mark.parametrize("limit", [Limit("*", tokens_per_minute=60), Limit("*", concurrency=1)])
@pytest.mark.parametrize("back", [60.0, 3600.0, 100_000.0])
def test_a_worker_waits_no_longer_after_the_clock_was_set_back(limit, back):
    state, times = spread(limit, [30], now=1000.0 + back)
    state, more = spread(limit, [30], state=state, worker="b")
    assert (times, more) == ([1000.0 + back], [])
    now = 1000.0 + 30.0  # the tokens are worked off, and the slot of the silent worker has expired
    assert spread(limit, [30], now=now, state=state, worker="b")[1] == [now]


async def test_a_retry_after_lasts_no_longer_after_the_clock_was_set_back():
    refused = ModelError("Slow down.", status=429, retryable=True, retry_after=60.0)
    store, provider, now = MemoryStore(), Provider(refused), 100_000.0
    limits = [Limit("*", concurrency=2)]
    one, two = (FleetGate(limits, None, store, name, lambda: now) for name in ("a", "b"))
    with pytest.raises(ModelError):
        await provider.call(one)
    for now in (1000.0, 1059.0):
        for gate in (one, two):
            await gate.limits[0].settle()
            call = OutgoingCall(SimpleNamespace(name="openai:x"), 1, 1, waits_out=False)
            with pytest.raises(BlockedError, match=f"wait {1060 - now:.0f} s"):
                await gate(call, None, None)
    now = 1061.0
    for gate in (one, two):
        await asyncio.wait_for(provider.call(gate), 20)


def test_times_from_a_wrong_clock_hold_nothing_back():
    ahead = 90_000_000.0
    state = LimitState(ahead, ahead, ahead, {"gone": (4, 4, ahead)})
    limit = Limit("*", requests_per_minute=60, tokens_per_minute=600, concurrency=4)
    assert spread(limit, [1, 1], state=state)[1] == [1000.0, 1001.0]
    assert limit_document(state, 1000.0) == {"slots": 0, "wait_seconds": 0.0, "blocked_seconds": 0.0}
