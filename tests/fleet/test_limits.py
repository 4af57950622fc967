"""Limits: how calls are spread, shared and held back; by a clock that only waiting moves."""

import asyncio
import random
from contextlib import suppress
from types import SimpleNamespace

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._steps import BlockedError, OutgoingCall
from redraft.errors import ConfigError, ModelError, StoreError
from redraft.fleet import Fleet, FleetWorker, Limit, StoreQueue
from redraft.fleet.limits import LIMIT, LimitState, SharedLimits, limit_states, reserve
from redraft.fleet.overview import limit_document
from redraft.loop import Retry
from redraft.stores.base import Record
from redraft.types import TokenUsage


def spread(limit, waiting, now=1000.0, state=None, worker="a", running=0):
    return reserve(limit, state or LimitState(), now, worker, waiting, running)


def test_requests_are_spread_evenly_and_a_second_ahead():
    limit = Limit("openai:*", requests_per_minute=240)
    state, times = spread(limit, [10] * 20)
    assert times == [1000.0, 1000.25, 1000.5, 1000.75, 1001.0]
    again, later = spread(limit, [10] * 20, now=1000.5, state=state, worker="b")
    assert later == [1001.25, 1001.5]
    assert spread(limit, [10], now=1000.5, state=again)[1] == []


def test_tokens_are_spread_by_what_calls_are_expected_to_use():
    limit = Limit("*", tokens_per_minute=6000)
    assert spread(limit, [50, 10, 10])[1] == [1000.0, 1000.5, 1000.6]
    assert len(spread(limit, [50, 100, 10])[1]) == 2  # the third would begin in 1.5 s


def test_a_retry_after_holds_for_all():
    limit = Limit("*", at_once=4)
    blocked = LimitState(blocked_until=1000.5)
    assert spread(limit, [1, 1], state=blocked)[1] == [1000.5, 1000.5]
    assert spread(limit, [1, 1], state=LimitState(blocked_until=1002))[1] == []


def test_calls_at_once_are_shared_fairly_and_never_exceeded():
    limit = Limit("*", at_once=4)
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


def test_random_workers_never_hold_more_than_there_is():
    chance = random.Random(3)  # noqa: S311 (chance, not secrecy)
    limit, state, running = Limit("*", at_once=5), LimitState(), dict.fromkeys("abcd", 0)
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
        ({"models": " ", "at_once": 1}, "must be a pattern"),
        ({"requests_per_minute": 0}, "requests_per_minute must be"),
        ({"requests_per_minute": True}, "requests_per_minute must be"),
        ({"tokens_per_minute": float("inf")}, "tokens_per_minute must be"),
        ({"at_once": 0}, "at_once must be"),
        ({"at_once": 1.5}, "at_once must be"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Limit(**{"models": "openai:*", **options})


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
    return [SharedLimits(limits, store, f"worker-{number}") for number in range(workers)]


def test_workers_together_keep_the_requests_of_a_minute():
    async def main():
        store, provider = MemoryStore(), Provider()
        workers = gates(store, Limit("openai:*", requests_per_minute=1800))
        await asyncio.gather(*(provider.call(gate) for gate in workers for _ in range(10)))
        times = sorted(provider.times)
        assert len(times) == 30
        assert times[-1] - times[0] >= 0.9  # 30 calls at 30 a second
        for first in range(30):
            for last in range(first, 30):
                assert last - first + 1 <= 30 * (times[last] - times[first] + 1)

    asyncio.run(main())


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
def test_tokens_are_expected_and_then_corrected(limit, end, expected, used):
    async def send(_limit):
        if isinstance(end, ModelError):
            raise end
        return end

    async def main():
        store = MemoryStore()
        gate = SharedLimits([Limit("*", tokens_per_minute=60_000)], store, "worker", lambda: 1000.0)
        with suppress(ModelError):
            await gate(OutgoingCall(SimpleNamespace(name="m"), 100, limit), send, lambda reply: reply)
        return (await limit_states(store))["*"].tokens_at, gate._limits[0]._correction

    assert asyncio.run(main()) == (pytest.approx(1000 + expected / 1000), used - expected)


def test_a_correction_is_kept_while_the_store_is_away(monkeypatch):
    monkeypatch.setattr("redraft.fleet.limits.REFUSED_WAIT", 0.05)

    class Away(MemoryStore):
        is_away = False

        async def replace(self, record, /):
            if self.is_away:
                self.is_away = False
                raise StoreError("The store is away.")
            return await super().replace(record)

    def clock():
        nonlocal now
        now += 0.001
        return now

    async def main():
        nonlocal now
        store = Away()
        gate = SharedLimits([Limit("*", tokens_per_minute=60_000)], store, "worker", clock)
        call = OutgoingCall(SimpleNamespace(name="m"), 100, 10)

        async def send(_limit):
            return TokenUsage(200, 10, requests=1)

        await gate(call, send, lambda reply: reply)
        now, store.is_away = 1060, True
        await gate(call, send, lambda reply: reply)
        return (await limit_states(store))["*"].tokens_at

    now = 1000.0
    assert 0.21 < asyncio.run(main()) - 1060 < 0.3  # 0.11 without the correction


def test_workers_together_keep_the_calls_at_once():
    async def main():
        store, provider = MemoryStore(), Provider()
        workers = gates(store, Limit("openai:*", at_once=2))
        await asyncio.wait_for(
            asyncio.gather(*(provider.call(gate) for gate in workers for _ in range(4))), 20
        )
        assert (len(provider.times), provider.most) == (12, 2)
        await asyncio.gather(*(provider.call(workers[0], "local:small") for _ in range(5)))
        assert provider.most == 5  # no limit matches that model

    asyncio.run(main())


def test_a_rate_limit_of_the_provider_holds_for_every_worker():
    async def main():
        store = MemoryStore()
        provider = Provider(ModelError("Slow down.", status=429, retryable=True, retry_after=0.5))
        one, two = gates(store, Limit("openai:*", at_once=50), workers=2)
        with pytest.raises(ModelError):
            await provider.call(one)
        await asyncio.gather(provider.call(one), provider.call(two))
        first, *others = provider.times
        assert min(others) - first >= 0.5
        assert (await limit_states(store))["openai:*"].blocked_until > 0

    asyncio.run(main())


async def blocked_by_the_second(gate):
    store, model = gate._limits[0]._store, SimpleNamespace(name="a:large")
    await store.put(Record(LIMIT, "a:*", LimitState(blocked_until=1060.0).data()))
    with pytest.raises(BlockedError, match="wait 60 s"):
        await gate(OutgoingCall(model, 100, 10, waits_out=False), None, None)


async def cancelled_in_the_second(gate):
    store, model = gate._limits[0]._store, SimpleNamespace(name="a:large")
    await store.put(Record(LIMIT, "a:*", LimitState(blocked_until=1060.0).data()))
    call = asyncio.create_task(gate(OutgoingCall(model, 100, 10), None, None))
    while await store.get(LIMIT, "*") is None or not gate._limits[1]._line:  # noqa: ASYNC110
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("refused", [blocked_by_the_second, cancelled_in_the_second])
def test_a_call_that_a_later_limit_holds_back_costs_an_earlier_limit_nothing(refused):
    async def main():
        limits = [Limit("*", tokens_per_minute=60_000), Limit("a:*", at_once=4)]
        gate = SharedLimits(limits, MemoryStore(), "worker", lambda: 1000.0)
        await asyncio.wait_for(refused(gate), 60)
        assert (await limit_states(gate._limits[0]._store))["*"].blocked_until == 0.0
        used = TokenUsage(100, 10, requests=1)

        async def send(_limit):
            return used

        call = OutgoingCall(SimpleNamespace(name="b"), 100, 10)
        await asyncio.wait_for(gate(call, send, lambda reply: reply), 60)
        state = (await limit_states(gate._limits[0]._store))["*"]
        assert state.tokens_at == pytest.approx(1000.11)

    asyncio.run(main())


def test_a_cancelled_call_takes_no_place():
    async def main():
        store, provider = MemoryStore(), Provider()
        [gate] = gates(store, Limit("openai:*", at_once=1), workers=1)
        calls = [asyncio.create_task(provider.call(gate)) for _ in range(6)]
        await asyncio.sleep(0.01)
        for call in calls[1:5]:
            call.cancel()
        await asyncio.wait_for(asyncio.gather(calls[0], calls[5]), 60)
        assert len(provider.times) == 2

    asyncio.run(main())


def test_calls_wait_while_the_store_is_away(monkeypatch):
    monkeypatch.setattr("redraft.fleet.limits.REFUSED_WAIT", 0.05)

    class Away(MemoryStore):
        failures = 3

        async def get(self, kind, key, /):
            if kind == LIMIT and self.failures:
                self.failures -= 1
                raise StoreError("The store is away.")
            return await super().get(kind, key)

    async def main():
        provider = Provider()
        [gate] = gates(Away(), Limit("openai:*", requests_per_minute=6000), workers=1)
        await asyncio.wait_for(provider.call(gate), 60)
        assert len(provider.times) == 1

    asyncio.run(main())


def test_a_storm_of_rate_limits_loses_no_run():
    async def main():
        store, calls = MemoryStore(), []

        async def answer(_request):
            calls.append(1)
            if len(calls) % 3:
                raise ModelError("Slow down.", status=429, retryable=True, retry_after=0.05)
            return "one two three"

        long = QualityCriterion("long", evaluator="words", evaluator_config={"at_least": 3})
        pattern = ReflectionPattern(quality_criteria=[long], retry=Retry(3, 0.01))
        clerk = Agent(ScriptedModel(answer), pattern=pattern, keep=store, name="clerk")
        limit = Limit("ScriptedModel", requests_per_minute=60_000, at_once=5)
        fleet = Fleet([clerk], limits=[limit], store=store, queue=StoreQueue(store))
        handles = [await fleet.submit(clerk, f"Write {number}.") for number in range(12)]
        await FleetWorker(fleet, at_once=12).run(until_idle=True)
        results = [await handle.result(within=1) for handle in handles]
        assert all(result.success for result in results)

    asyncio.run(main())


def test_times_from_a_wrong_clock_hold_nothing_back():
    ahead = 90_000_000.0
    state = LimitState(ahead, ahead, ahead, {"gone": (4, 4, ahead)})
    limit = Limit("*", requests_per_minute=60, tokens_per_minute=600, at_once=4)
    assert spread(limit, [1, 1], state=state)[1] == [1000.0, 1001.0]
    assert limit_document(state, 1000.0) == {"at_once": 0, "wait_seconds": 0.0, "blocked_seconds": 0.0}
