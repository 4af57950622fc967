"""Clocks that were wrong for one cycle: what it stored does no harm once they are right."""

from datetime import timedelta

import pytest

from redraft.cycles.agent import CycleAgent
from redraft.cycles.egress import Egress, LimitError
from redraft.cycles.lease import Lease, live_holder
from redraft.cycles.memory import past_stamps, retained, stamp_of
from redraft.cycles.spec import ActionLimit, AgentFile, CronTrigger, parse_agent_file
from redraft.cycles.triggers import Triggers
from redraft.stores.sqlite import MemoryStore
from support.cycles import NOON, no_lease, run
from support.memory_stores import copy_of
from support.monitor import Clock, World, monitor

WATCHER = """\
name: watcher
stages:
  reason:
    substages: [{type: plan, name: planner, config: {rules: [{action: note}]}}]
  actuate:
    substages:
      - type: execute
        name: act
        config:
          actions: [{type: function, name: note, function: note, limit: {maxRuns: 2, perMs: 3600000}}]
  reflect:
    substages: [{type: update-state, name: keep, config: {retention: {memory.recentActions: RETENTION}}}]
"""
YEARS = timedelta(days=1_129)
DAY_MS = 86_400_000


def watcher(clock, store, retention):
    source = AgentFile(WATCHER.replace("RETENTION", retention))
    return CycleAgent(
        parse_agent_file(source), functions={"note": lambda: None}, storage=store, clock=clock, source=source
    )


async def actions_after(clock, hours, wrong, retention, *, restarts):
    """The times (in hours since noon) of the actions in memory after each cycle.

    One cycle runs each hour; the clock of the tenth is `wrong` by that much.
    """
    store, seen = MemoryStore(), []
    agent = watcher(clock, store, retention)
    for hour in range(hours):
        clock.now = NOON + timedelta(hours=hour) + (wrong if hour == 10 else timedelta())
        await agent.run_cycle()
        seen.append([one["cycle"] - 1 for one in agent.memory.of("recentActions")])
        if restarts:
            await agent.aclose()
            agent = watcher(clock, store, retention)
    await agent.aclose()
    return seen


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a process each"])
@pytest.mark.parametrize("wrong", [YEARS, -YEARS, timedelta(hours=6), timedelta(hours=-6)], ids=str)
def test_one_cycle_with_a_wrong_clock_costs_no_item_and_no_ttl(wrong, restarts):
    seen = run(actions_after(Clock(), 40, wrong, f"{{policy: ttl, ttlMs: {DAY_MS}}}", restarts=restarts))
    assert seen[9] == list(range(10))
    assert set(range(10)) <= set(seen[10])
    assert set(seen[11]) >= {*range(10), 11}
    # A day later, at most what the wrong clock stamped is still there too early or too late.
    assert set(seen[39]) ^ set(range(15, 40)) <= {10}
    assert all(len(items) <= 26 for items in seen)


@pytest.mark.parametrize("wrong", [YEARS, timedelta(hours=6)], ids=str)
def test_the_newest_items_stay_after_a_clock_from_the_future(wrong):
    seen = run(actions_after(Clock(), 20, wrong, "{policy: max_items, maxItems: 3}", restarts=False))
    assert seen[11:] == [[hour - 2, hour - 1, hour] for hour in range(11, 20)]


def test_an_item_from_the_future_has_the_age_of_the_next_item():
    def item(place, hours):
        return {"id": str(place), "timestamp": stamp_of(NOON + timedelta(hours=hours))}

    items = [item(0, -3), item(1, 90_000), item(2, -2), item(3, 80_000)]
    assert past_stamps(items, NOON) == [stamp_of(NOON + timedelta(hours=hours)) for hours in (-3, -2, -2, 0)]
    assert retained(items, 2, None, NOON) == items[2:]
    assert retained(items, None, NOON - timedelta(hours=1), NOON) == items[3:]


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "another process"])
async def test_effects_of_a_clock_in_the_future_count_from_now(restarts):
    clock, hourly, stored = Clock(), ActionLimit(max_runs=1, per_ms=3_600_000), []

    async def save(records):
        stored[:] = records

    egress = Egress(no_lease, clock, save)

    async def done():
        return True

    async def act(key):
        return await egress.act(key, done, {"refunds": hourly})

    egress.load(None)
    clock.passes(days=YEARS.days)
    await act("a")
    clock.passes(days=-YEARS.days)
    for minutes in (0, 30):
        clock.passes(minutes=minutes)
        if restarts:
            stored[:] = egress.take_record() or stored
            egress = Egress(no_lease, clock, save)
            egress.load(stored[0])
        with pytest.raises(LimitError, match=f"allowed in {3_600 - 60 * minutes:,} s"):
            await act("b")
    clock.passes(minutes=31)
    assert await act("b")


@pytest.mark.parametrize("expression", ["0 * * * *", "@hourly"])
@pytest.mark.parametrize("ahead", [YEARS, timedelta(days=3), timedelta(minutes=90)], ids=str)
def test_an_hourly_cron_fires_every_hour_after_a_clock_from_the_future(expression, ahead):
    clock = Clock()
    trigger = CronTrigger(type="cron", expression=expression)

    async def fires(triggers):
        [(_, watch)] = triggers._watches or [("", None)]
        return await watch.fires()

    async def main():
        triggers = Triggers("a", [trigger], None, now=clock, since=clock.now + ahead)
        triggers._watches = [("cron", triggers._watch(trigger))]
        fired = 0
        for hour in range(48):
            clock.now = NOON + timedelta(hours=hour) + (ahead if hour == 20 else timedelta())
            fired += await fires(triggers)
        return fired

    assert run(main()) in (46, 47)  # the first hour begins, and the one after the wrong clock may


@pytest.mark.parametrize("jump", [timedelta(hours=1), timedelta(hours=-1), YEARS], ids=str)
def test_a_clock_that_is_set_during_a_cycle_does_not_change_its_duration(jump):
    clock = Clock()

    class Jumping(World):
        def look(self):
            clock.now += jump
            return super().look()

    result = monitor(Jumping(), clock=clock).run_cycle_sync()
    assert 0 < result.metrics.duration_ms < 60_000


@pytest.mark.parametrize(("passed", "least"), [(timedelta(hours=2), 7_200), (timedelta(hours=-2), 1_000)])
def test_a_resumed_cycle_took_the_time_between_but_at_least_the_work(passed, least, monkeypatch):
    clock, store, left, spent = Clock(), MemoryStore(), [], [0.0]
    monkeypatch.setattr("redraft.loop.journal.monotonic", lambda: spent[0])

    class Killed(World):
        def look(self):
            spent[0] += 1_000
            return super().look()

        def lower(self, level, idempotency_key):
            left.append(copy_of(store, without=["lease"]))  # as a process leaves them that is killed here
            return super().lower(level, idempotency_key)

    monitor(Killed(), storage=store, clock=clock).run_cycle_sync()
    clock.now += passed
    result = monitor(storage=left[0], clock=clock).run_cycle_sync()
    assert least <= result.metrics.duration_ms / 1_000 < least + 60


def test_a_lease_from_the_future_does_not_last_until_then():
    data = Lease(MemoryStore(), "a")._data(1) | {"machine": "another"}
    assert live_holder(data)
    assert not live_holder(data | {"until": (NOON + YEARS * 9).isoformat()})
