"""The daily budget of a fleet: how calls reserve and settle, and what becomes of runs when it is spent."""

import asyncio
import re
import struct
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft._codec import from_record
from redraft._steps import OutgoingCall
from redraft.errors import ConfigError, ModelError
from redraft.fleet import Fleet, FleetWorker, Limit, StoreQueue
from redraft.fleet.gate import (
    HELD_FOR,
    KEY,
    SPENDING,
    DailyBudget,
    FleetGate,
    SpendingState,
    spending_state,
)
from redraft.fleet.overview import FleetOverview, spending_document
from redraft.loop.budget import Budget, StepBudget, Tally
from redraft.loop.record import RUN, RunRecord
from redraft.loop.runs import Runs
from redraft.protocols import ChatReply
from redraft.stores.postgres import PostgresStore
from redraft.types import TokenUsage
from support.fleet_load import PROJECT, FleetLoad

NOON = 1_795_435_200.0  # 2026-11-23 12:00 UTC


def state(**more):
    return SpendingState(day="2026-11-23", budget=1.0, **more)


class Priced:
    """A model whose input is free, and whose output tokens cost a tenth of a cent each."""

    name = "m"
    max_tokens = None

    def cost_of(self, _input_tokens, output_tokens):
        return output_tokens * 0.001


class Metered:
    """A model that only reports what its replies cost."""

    name = "metered"


def reserved(before, model, count=1, limit=None, *, cost=0.0, longest=0):
    """The state and the reservations after a call that cost `cost` and had `longest` output tokens."""

    async def main():
        step = StepBudget(Tally(Budget(usd=1.0)), "day")
        if cost or longest:
            step.tally.observe("generation", TokenUsage(0, longest, requests=1, cost_usd=cost))
        return before.reserve([step.call("generation", 10, limit, model) for _ in range(count)])

    return asyncio.run(main())


def test_calls_reserve_their_input_and_the_longest_reply_that_they_may_have():
    after, found = reserved(state(spent=0.5), Priced(), 3, 200)
    assert found == [(0.2, 200), (0.2, 200)]
    assert after.refused == 0  # both may turn out cheaper
    after, found = reserved(state(spent=0.9), Priced(), 1, 200)
    assert (found, after.refused) == ([], 0.2)
    assert after.is_reached
    assert not reserved(state(spent=0.5, reserved={"b": (0.4, NOON)}), Priced(), 1, 200)[0].is_reached


@pytest.mark.parametrize(
    ("longest", "count", "limits"), [(100, 4, [250] * 4), (200, 4, [300] * 3), (9999, 1, [1000])]
)
def test_calls_share_the_rest_of_the_budget_unless_their_replies_would_be_cut_off(longest, count, limits):
    assert [one.limit for one in reserved(state(), Priced(), count, longest=longest)[1]] == limits


@pytest.mark.parametrize(
    ("cost", "spent", "usd"),
    [(None, 0.25, [0.1]), (0.2, 0, [0.4, 0.4]), (0.9, 0, [1.0]), (0, 0, [0, 0, 0])],
)
def test_a_model_without_a_price_reserves_the_cost_of_its_earlier_calls(cost, spent, usd):
    after, found = reserved(state(spent=spent), Metered(), 3, cost=cost or 0.0, longest=cost is not None)
    assert [one.usd for one in found] == usd
    assert not after.is_reached


def test_a_new_day_in_the_zone_starts_afresh_and_keeps_the_calls_under_way():
    budget = DailyBudget(1.0, "Asia/Tokyo")
    assert budget.day(NOON + 3 * 3600 - 1) == "2026-11-23"
    assert budget.day(NOON + 3 * 3600) == "2026-11-24"
    assert budget.next_day(NOON).isoformat() == "2026-11-24T00:00:00+09:00"
    yesterday = state(spent=1.0, refused=0.1, unpriced=3, reserved={"a": (0.2, NOON * 2)})
    today = yesterday.on(budget, NOON + 3 * 3600)
    assert (today.day, today.spent, today.under_way, today.refused) == ("2026-11-24", 0.0, 0.2, 0.0)
    assert today.earlier == {"2026-11-23": 1.0}
    assert not today.is_reached


def test_the_reservations_of_a_dead_worker_count_as_spent():
    found = state(reserved={"a": (0.2, NOON + 5), "b": (0.1, NOON - 1)}).on(DailyBudget(1.0), NOON)
    assert (found.spent, found.reserved) == (0.1, {"a": (0.2, NOON + 5)})


def test_a_larger_budget_counts_immediately():
    spent = state(spent=0.95, refused=0.1)
    assert spent.is_reached
    assert not spent.on(DailyBudget(2.0), NOON).is_reached


def test_a_state_of_an_earlier_version_is_read():
    data = {**asdict(state(spent=0.5, reserved={"a": (0.2, NOON)})), "rates": {"m": 0.001}}
    assert from_record(SpendingState, data) == state(spent=0.5, reserved={"a": (0.2, NOON)})


def usage(reply):
    return reply


def call_of(model, input_tokens=10, max_tokens=None, **more):
    return OutgoingCall(model, input_tokens, max_tokens, **more)


async def test_failed_and_cancelled_calls():
    store = MemoryStore()
    gate = FleetGate([], DailyBudget(1.0), store, "w", lambda: NOON)

    async def fails(_limit):
        raise ModelError("no", usage=TokenUsage(output_tokens=5, cost_usd=0.1))

    async def cheap(_limit):
        return TokenUsage(requests=1, cost_usd=0.1)

    async def unknown(_limit):
        return TokenUsage(requests=1, cost_usd=None)

    with pytest.raises(ModelError):
        await gate(call_of(Metered()), fails, usage)
    await gate(call_of(Metered()), cheap, usage)
    await gate(call_of(SimpleNamespace(name="local")), unknown, usage)
    hanging = asyncio.create_task(gate(call_of(Metered()), lambda _limit: asyncio.sleep(9), usage))
    await asyncio.sleep(0.05)
    assert (await spending_state(store, NOON)).under_way == pytest.approx(0.2)
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    await gate.close()
    found = await spending_state(store, NOON)
    assert found.spent == pytest.approx(0.4)  # nobody knows what a cancelled call has cost
    assert (found.unpriced, found.under_way) == (1, 0.0)
    assert spending_document(found)["spent_usd"] == pytest.approx(0.4)


async def test_a_worker_that_dies_in_its_first_call_uses_up_a_share_of_the_day():
    store, now = MemoryStore(), [NOON]
    dead = FleetGate([], DailyBudget(1.0), store, "dead", lambda: now[0])
    gate = FleetGate([], DailyBudget(1.0), store, "w", lambda: now[0])
    sent = []

    async def never(_limit):
        await asyncio.Event().wait()

    async def quick(_limit):
        sent.append(len(sent))
        return TokenUsage(requests=1, cost_usd=0.05)

    died = asyncio.create_task(dead(call_of(Metered()), never, usage))
    await asyncio.sleep(0.05)
    now[0] += 2 * HELD_FOR
    for _ in range(4):
        await gate(call_of(Metered()), quick, usage)
    await gate.close()
    spent = (await spending_state(store, now[0])).spent
    died.cancel()
    await asyncio.gather(died, return_exceptions=True)
    assert spent == pytest.approx(0.1 + 4 * 0.05)
    assert len(sent) == 4


async def test_a_call_that_enters_while_another_is_settled_reserves_only_its_own():
    class SlowToAnswer(MemoryStore):
        """Tells that it has stored a settled call only when the next call has read it."""

        async def get(self, kind, key, /):
            record = await super().get(kind, key)
            read.set()
            return record

        async def replace(self, record, /):
            stored = await super().replace(record)
            if record.data["spent"] and not entering.is_set():
                entering.set()
                read.clear()
                await asyncio.wait([asyncio.ensure_future(read.wait())], timeout=0.1)
                await asyncio.sleep(0)
            return stored

    store = SlowToAnswer()
    read = entering = None
    read, entering = asyncio.Event(), asyncio.Event()
    gate = FleetGate([], DailyBudget(1.0), store, "w", lambda: NOON)

    async def send(_limit):
        return TokenUsage(output_tokens=50, requests=1, cost_usd=0.05)

    await gate(call_of(Priced(), max_tokens=100), send, usage)
    await entering.wait()
    await gate(call_of(Priced(), max_tokens=100), send, usage)
    await gate.close()
    await asyncio.sleep(0.05)
    found = await spending_state(store, NOON)
    assert (found.spent, found.under_way) == (pytest.approx(0.1), 0.0)


async def test_a_call_that_ends_while_another_is_settled_is_settled_after_it():
    class Slow(MemoryStore):
        async def replace(self, record, /):
            if record.data["spent"]:
                settling.set()
                await going_on.wait()
            return await super().replace(record)

    settling, going_on = asyncio.Event(), asyncio.Event()
    store, ends, sent = Slow(), (asyncio.Event(), asyncio.Event()), asyncio.Queue()
    gate = FleetGate([], DailyBudget(1.0), store, "w", lambda: NOON)

    async def call(end):
        async def send(_limit):
            sent.put_nowait(1)
            await end.wait()
            return TokenUsage(output_tokens=50, requests=1, cost_usd=0.05)

        await gate(call_of(Priced(), max_tokens=100), send, usage)

    calls = [asyncio.create_task(call(end)) for end in ends]
    for _ in calls:
        await sent.get()
    ends[0].set()
    await settling.wait()
    ends[1].set()
    await asyncio.gather(*calls)
    going_on.set()
    while (await spending_state(store, NOON)).under_way:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert (await spending_state(store, NOON)).spent == pytest.approx(0.1)


async def test_reservations_are_renewed_while_calls_are_under_way():
    store, now = MemoryStore(), [NOON]
    gate = FleetGate([], DailyBudget(1.0), store, "w", lambda: now[0])
    ended = asyncio.Event()

    async def slow(_limit):
        await ended.wait()
        return TokenUsage(requests=1, cost_usd=0.3)

    call = asyncio.create_task(gate(call_of(Metered()), slow, usage))
    await asyncio.sleep(0.05)
    for _ in range(4):
        now[0] += HELD_FOR * 0.6
        await gate.renew()
    assert (await spending_state(store, now[0])).under_way == 0.1
    ended.set()
    await call
    await gate.close()
    assert (await spending_state(store, now[0])).spent == 0.3


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        ({"budget_usd_per_day": 0}, "budget_usd_per_day must be a number > 0, got 0"),
        ({"budget_usd_per_day": "5"}, "got '5'"),
        ({"budget_usd_per_day": float("nan")}, "got nan"),
        ({"budget_usd_per_day": 5, "budget_zone": "Mars"}, "budget_zone must be a time zone.*'Mars'"),
        ({"budget_usd_per_day": 5, "budget_zone": None}, "budget_zone must be a time zone"),
    ],
)
def test_a_budget_that_means_nothing(budget, message):
    with pytest.raises(ConfigError, match=message):
        Fleet([Agent(ScriptedModel([]), keep=False, name="a")], **budget)


def priced(request):
    number = str(request.messages).count("draft") + 1
    used = TokenUsage(input_tokens=10, requests=1, cost_usd=0.1)
    return ChatReply(f"draft {number}", usage=used)


async def test_runs_are_handed_back_and_go_on_the_next_day(caplog):
    store = MemoryStore()
    model = ScriptedModel(priced)
    clerk = Agent(
        model,
        name="clerk",
        keep=store,
        pattern=ReflectionPattern(
            max_iterations=3,
            plateau_iterations=50,
            quality_criteria=[QualityCriterion("n", evaluator="words", evaluator_config={"at_least": 99})],
        ),
    )

    def fleet():
        return Fleet(
            [clerk],
            store=store,
            queue=StoreQueue(store),
            pick_up_after=1,
            budget_usd_per_day=0.65,
            limits=[Limit("ScriptedModel", concurrency=4)],
        )

    handles = [await fleet().submit(clerk, f"Write {number}.") for number in range(4)]
    worker = FleetWorker(fleet(), concurrency=4)
    await asyncio.wait_for(worker.run(until_idle=True), 60)
    spent = len(model.requests)
    assert spent in (5, 6)  # 0.65 dollars, with twice the highest cost reserved for a call
    assert worker.problem
    assert caplog.text.count("is spent; runs wait until") == 1
    overview = await FleetOverview.of(fleet().queue, store)
    assert overview.spending.is_reached
    assert overview.document()["spending"]["is_reached"]
    assert {(await handle.job()).state for handle in handles} <= {"queued", "finished"}
    waiting = await Runs(store).find(status="waiting")
    assert waiting
    assert not await Runs(store).find(status="cancelled")
    for record in waiting:
        why = (await Runs(store).stored(record.run_id)).why
        assert why.headline == "the run goes on later"
        assert re.match(
            r"The daily budget of \$0.6500 is spent; the run goes on from \d{4}-\d\d-", why.detail
        )
    unwanted = await fleet().submit(clerk, "Write in vain.")
    record = from_record(RunRecord, (await store.get(RUN, waiting[0].run_id)).data)
    await store.put(replace(record, run_id=unwanted.run_id).stored())
    assert (await unwanted.cancel()).state == "cancelled"
    assert [run.run_id for run in await Runs(store).find(status="cancelled")] == [unwanted.run_id]
    for _ in range(2):  # two more days
        record = await store.get(SPENDING, KEY)
        record.data["day"] = "2020-01-01"
        await store.put(record)
        await asyncio.wait_for(FleetWorker(fleet(), concurrency=4).run(until_idle=True), 60)
    results = [await handle.result(5) for handle in handles]
    assert sum(len(result.history.versions) for result in results) == len(model.requests)  # none paid twice
    assert len(model.requests) > spent
    assert {(await handle.job()).tries for handle in handles} == {0}


FEWEST = 15
"""Calls for 20 cents, a cent each: one is reserved at the dearest token so far, so the last may not fit."""


def test_real_workers_stop_at_the_budget_and_go_on_with_a_larger_one(postgres, tmp_path):
    load = FleetLoad(postgres.url, tmp_path, FLEET_PICK_UP=2, FLEET_COST=0.01, FLEET_BUDGET=0.2)
    try:
        load.submit([f"item-{number}" for number in range(8)])
        workers = [load.start("--concurrency", "4") for _ in range(2)]
        load.wait_for_calls(FEWEST)
        store = PostgresStore(postgres.url, PROJECT)
        found = asyncio.run(_when_idle(store))
        calls = len(load.calls())
        assert FEWEST <= calls <= 21
        assert found.spent == pytest.approx(calls * 0.01)
        assert found.is_reached
        for worker in workers:
            load.kill(worker)
        load.set(FLEET_BUDGET=5)
        load.start("--concurrency", "4")
        jobs = load.wait(60)
    finally:
        load.stop()
    report = load.report()
    assert (jobs["finished"], report.finished) == (8, 8), load.said()
    assert (report.repeated, report.interrupted, report.calls) == (0, 0, 48)
    assert asyncio.run(spending_state(store)).spent == pytest.approx(0.48)


def test_real_workers_go_on_when_the_day_of_the_budget_is_over(postgres, tmp_path):
    """The clock is the database's; the zones are made for this test, so that their midnight is near."""
    now = datetime.now(UTC)
    noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
    _make_zone(tmp_path / "Noon", noon - now)
    load = FleetLoad(
        postgres.url,
        tmp_path,
        FLEET_PICK_UP=2,
        FLEET_COST=0.01,
        FLEET_BUDGET=0.2,
        FLEET_ZONE="Noon",
        PYTHONTZPATH=tmp_path,
    )
    store = PostgresStore(postgres.url, PROJECT)
    try:
        load.submit([f"item-{number}" for number in range(5)])
        load.start("--concurrency", "5")
        load.wait_for_calls(FEWEST)
        spent = asyncio.run(_when_idle(store)).spent
        first_day = len(load.calls())
        load.stop()
        midnight = datetime.now(UTC) + timedelta(seconds=8)  # after the workers are there, if they are quick
        _make_zone(tmp_path / "Midnight", noon + timedelta(hours=12) - midnight)
        load.set(FLEET_ZONE="Midnight")
        load.start("--concurrency", "5")
        jobs = load.wait(90)
    finally:
        load.stop()
    report = load.report()
    assert (jobs["finished"], report.finished) == (5, 5), load.said()
    assert (report.repeated, report.interrupted, report.calls) == (0, 0, 30)
    assert FEWEST <= first_day <= 21
    later = [call.at for call in load.calls()[first_day:]]
    assert min(later) > midnight.timestamp() - 2  # of which the workers know by a heartbeat
    found = asyncio.run(_stored(store))
    assert found.earlier == {noon.date().isoformat(): pytest.approx(spent)}
    assert found.day == (noon + timedelta(days=1)).date().isoformat()
    assert found.spent == pytest.approx(0.3 - spent)


def _make_zone(path, offset):
    """Write the file of a time zone that is so far ahead of UTC, always."""
    counts = (0, 0, 0, 0, 1, 4)
    kind = struct.pack(">lBB4s", round(offset.total_seconds()), 0, 0, b"TST\0")
    path.write_bytes(struct.pack(">4sc15x6l", b"TZif", b"\0", *counts) + kind)


async def _stored(store):
    record = await store.get(SPENDING, KEY)
    return None if record is None else from_record(SpendingState, record.data)


async def _when_idle(store):
    """The spending as soon as nothing is under way and the budget is reached, for two seconds."""
    quiet = 0
    for _ in range(900):
        found = await _stored(store)
        quiet = quiet + 1 if found is not None and found.is_reached and not found.under_way else 0
        if quiet == 20:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


def test_spending_counts_today_after_a_clock_from_the_future():
    budget, years = DailyBudget(1.0), 90_000_000.0
    before = state(spent=0.5, earlier={"2026-11-22": 0.2})
    wrong = replace(before.on(budget, NOON + years), spent=0.25)
    wrong = replace(wrong, reserved={"c": (0.05, NOON + years + HELD_FOR)})
    after = wrong.on(budget, NOON)
    assert (after.day, after.earlier) == ("2026-11-23", {"2026-11-22": 0.2})
    assert (after.spent, after.under_way) == (0.75, 0.05)
    assert after.on(budget, NOON + 3 * HELD_FOR).spent == pytest.approx(0.8)
