from datetime import timedelta

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles.actuate import execute
from redraft.cycles.egress import Egress, LimitError
from redraft.cycles.spec import ActionLimit, AgentSpec
from redraft.errors import LeaseError
from redraft.stores.sqlite import MemoryStore
from support.cycles import NOON, begun, cycle_of, no_lease, run, spec_of, unsaved
from support.monitor import Clock

HOUR = 3_600_000
TWO_AN_HOUR = {"maxRuns": 2, "perMs": HOUR}


async def act(egress, key, **limits):
    async def perform():
        return key

    return await egress.act(key, perform, limits)


async def test_a_limit_counts_the_effects_within_its_period():
    clock = Clock()
    egress = Egress(no_lease, clock, unsaved)
    hourly, never = ActionLimit(max_runs=2, per_ms=HOUR), ActionLimit(max_runs=0, per_ms=1)
    assert await act(egress, "a", refunds=hourly) == "a"
    clock.passes(minutes=10)
    await act(egress, "b", refunds=hourly)
    with pytest.raises(LimitError, match=r"'refunds' is reached: 2 runs in 3,600 s; .* in 3,000 s$"):
        await act(egress, "c", refunds=hourly)
    await act(egress, "a", refunds=hourly)  # again, by a process that resumes the cycle
    await act(egress, "c", others=hourly)
    clock.passes(minutes=50, milliseconds=1)
    await act(egress, "c", refunds=hourly)
    with pytest.raises(LimitError, match=r"0 runs in 0\.001 s$"):
        await act(egress, "d", stopped=never)


async def test_counters_outlive_the_process_until_their_period_ends():
    clock, hourly = Clock(), ActionLimit(max_runs=1, per_ms=HOUR)
    saved = []

    async def save(records):
        saved[:] = records

    first, second = Egress(no_lease, clock, unsaved), Egress(no_lease, clock, save)
    await act(first, "a", refunds=hourly)
    assert first.take_record() == []  # the stored counters are not loaded yet
    first.load(None)
    [record] = first.take_record()
    assert first.take_record() == []
    second.load(record)
    with pytest.raises(LimitError):
        await act(second, "b", refunds=hourly)
    clock.passes(hours=2)
    await act(second, "b", others=hourly)
    assert [list(record.data["runs"]) for record in saved] == [["others"]]


def test_an_effect_is_counted_even_if_it_kills_the_process():
    saved = []

    async def save(records):
        saved.extend(records)

    egress, hourly = Egress(no_lease, Clock(), save), ActionLimit(max_runs=1, per_ms=HOUR)

    async def perform():
        assert [list(record.data["runs"]) for record in saved] == [["refunds"]]
        raise SystemExit

    egress.load(None)
    with pytest.raises(SystemExit):
        run(egress.act("a", perform, {"refunds": hourly}))


async def test_a_period_beyond_the_calendar_never_ends():
    egress, ever = Egress(no_lease, Clock(), unsaved), ActionLimit(max_runs=1, per_ms=10**15)
    await act(egress, "a", once=ever)
    with pytest.raises(LimitError):
        await act(egress, "b", once=ever)


def test_nothing_happens_once_another_process_runs_the_agent():
    async def lost():
        raise LeaseError("another process")

    egress, limit = Egress(lost, lambda: NOON, unsaved), ActionLimit(max_runs=1, per_ms=HOUR)
    with pytest.raises(LeaseError):
        run(act(egress, "a", refunds=limit))
    assert egress.take_record() == []


def acting(**of_all):
    actions = [
        {"name": "one", "type": "function", "function": "work", "limit": {"maxRuns": 1, "perMs": HOUR}},
        {"name": "two", "type": "function", "function": "work"},
        {"name": "three", "type": "function", "function": "work"},
    ]
    return {"type": "execute", "name": "act", "config": {"actions": actions, **of_all}}


def test_actions_beyond_a_limit_are_blocked_and_reported_in_the_cycle():
    done = []

    def work(idempotency_key):
        done.append(idempotency_key)

    spec = spec_of(actuate=[acting(limit=TWO_AN_HOUR)])
    cycle, _ = cycle_of(spec, functions={"work": work})
    run(execute(spec.stages.actuate.substages[0], cycle))
    outcomes = cycle.state.derived_data["execution"]["actions"]
    assert [outcome["status"] for outcome in outcomes] == ["succeeded", "succeeded", "blocked"]
    assert len(done) == 2
    [failure] = cycle.failures
    assert failure.startswith("actuate/act/three: the limit of 'act' is reached: 2 runs in 3,600 s")


def test_a_resumed_cycle_decides_as_before():
    store, done = MemoryStore(), []

    def work(idempotency_key):
        done.append(idempotency_key)

    spec = spec_of(actuate=[acting()])

    def resumed(**more):
        step = begun(store, "cycle-7", **more)
        cycle, _ = cycle_of(spec, functions={"work": work}, step=step)
        run(execute(spec.stages.actuate.substages[0], cycle))
        return cycle

    first = resumed()
    again = resumed(resumes=True)
    assert len(done) == 3
    assert again.state.derived_data == first.state.derived_data


def test_the_key_of_an_action_does_not_depend_on_the_actions_before_it():
    actions = [
        {"name": "first", "type": "function", "function": "work", "when": "memory.feedbackHistory"},
        {"name": "second", "type": "function", "function": "work"},
    ]
    spec = spec_of(actuate=[{"type": "execute", "name": "act", "config": {"actions": actions}}])
    keys = []
    for feedback in ([], [{"verdict": "approve"}]):
        cycle, _ = cycle_of(spec, functions={"work": lambda: None}, memory={"feedbackHistory": feedback})
        run(execute(spec.stages.actuate.substages[0], cycle))
        outcomes = cycle.state.derived_data["execution"]["actions"]
        keys.append({one["action"]: one["idempotencyKey"] for one in outcomes})
    assert keys[0]["second"] == keys[1]["second"] != keys[1]["first"]


def test_a_restarted_agent_goes_on_counting(project):
    clock = Clock()
    stages = {"actuate": {"substages": [acting()]}}
    spec = AgentSpec.model_validate({"name": "limited", "stages": stages})

    def statuses():
        agent = CycleAgent(spec, functions={"work": lambda: None}, storage="project", clock=clock)
        derived = agent.run_cycle_sync().state["derivedData"]
        return [action["status"] for action in derived["execution"]["actions"]]

    assert statuses() == ["succeeded"] * 3
    assert statuses() == ["blocked", "succeeded", "succeeded"]
    clock.now += timedelta(hours=1)
    assert statuses() == ["succeeded"] * 3
