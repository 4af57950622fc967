import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from redraft._codec import from_record
from redraft.approvals import ANSWER, HumanAnswer
from redraft.cycles import Agents
from redraft.cycles.cycle import CycleWaiting
from redraft.cycles.lease import LEASE
from redraft.cycles.mail import Feedback, mail_record
from redraft.cycles.memory import stamp_of
from redraft.cycles.records import CycleRecord, new_id, stored_cycle
from redraft.errors import ConfigError
from redraft.stores.base import Record
from redraft.stores.run_index import CYCLE
from redraft.stores.sqlite import MemoryStore
from support.kept_agents import CONTROLLED
from support.memory_stores import connection_of, copy_of, damage
from support.monitor import MONITOR, World, monitor, run, waiting_agent

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def named(name, text=MONITOR):
    return text.replace("name: monitor", f"name: {name}", 1)


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("storage", [None, "project", "given"])
async def test_finds_agents_in_every_storage(storage):
    kept = MemoryStore() if storage == "given" else storage
    async with monitor(text=named("seen"), storage=kept) as agent:
        for _ in range(4):
            await agent.run_cycle()
        await (await Agents().get("seen")).send_feedback("approve", "fine")
        view = await Agents().get("seen")
        [summary] = [one for one in await Agents().all() if one.name == "seen"]
        assert (summary.status, summary.last.number, summary.pending) == ("finished", 4, 1)
        assert (summary.card.description, summary.card.triggers) == ("Watches a rate.", ("manual",))
        assert [cycle.number for cycle in await view.cycles(limit=2)] == [4, 3]
        assert [cycle.number for cycle in await view.cycles(before=3)] == [2, 1]
        assert (await view.cycle(2)).derived_data["evaluation"]["success"] is True
        memory = await view.memory()
        assert [item["cycle"] for item in memory.of("recentActions")] == [2, 3, 4]
        earlier = await view.memory_at(2)
        assert [item["cycle"] for item in earlier.of("recentActions")] == [1, 2]
        changes = await view.diff(2, 3)
        assert [(change.before is None, change.after is None) for change in changes] == [(True, False)]
        assert [one.message for one in await view.pending()] == ["fine"]
        with pytest.raises(ConfigError, match="no cycle 9 here, or it was deleted"):
            await view.cycle(9)
        with pytest.raises(ConfigError, match="no cycle 9 here, so there are no cycles before it"):
            await view.cycles(before=9)
        await view.aclose()
        await agent.run_cycle()
        assert [one["message"] for one in agent.memory.of("feedbackHistory")] == ["fine"]


@pytest.mark.usefixtures("project")
async def test_an_unknown_name_is_an_error():
    async with monitor(text=named("boiler"), storage="project") as agent:
        await agent.run_cycle()
    with pytest.raises(ConfigError, match="no agent 'boilr' here; did you mean 'boiler'"):
        await Agents().get("boilr")


@pytest.mark.usefixtures("project")
async def test_feedback_and_messages_arrive_intact():
    mail = "m.lopez@telco-mail.net"
    async with monitor(text=named("shop"), storage="project") as agent:
        await (await Agents().get("shop")).send_message("orders", {"mail": mail})
        await (await Agents().get("shop")).send_feedback("modify", changes={"level": mail})
        result = await agent.run_cycle()
        payload, memory = result.state["environmentalData"]["payload"], result.state["memory"]
    assert mail in repr(payload)
    assert mail not in repr(memory)


async def test_agents_in_this_process_are_shown_redacted(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "correct-horse-battery")

    class Leaky(World):
        def lower(self, level):
            return "correct-horse-battery"

    async with monitor(Leaky(), text=named("leaky")) as agent:
        result = await agent.run_cycle()
        view = await Agents().get("leaky")
        cycles, memory = await view.cycles(), await view.memory()
    assert "correct-horse" in str(result.state["derivedData"])
    assert "correct-horse" not in str(cycles)
    assert "correct-horse" not in str(memory)


SUPERVISED = MONITOR.replace(
    "  actuate:",
    "      - {type: authorize, name: ok, config: {mode: controlled}}\n  actuate:",
    1,
)


@pytest.mark.parametrize(
    ("verdict", "changes", "levels"),
    [("approve", None, [1]), ("reject", None, []), ("modify", {"level": 4}, [4])],
)
async def test_a_verdict_decides_on_a_waiting_plan(verdict, changes, levels):
    world, text = World(), named("controlled", SUPERVISED)
    async with waiting_agent(world, text=text, storage=MemoryStore()) as (_, cycle):
        view = await Agents().get("controlled")
        assert (await view.summary()).status == "waiting"
        waiting = await view.cycle(1)
        assert [action["action"] for action in waiting.derived_data["plan"]["actions"]] == ["lower"]
        assert waiting.waits_until is None
        sent = await view.send_feedback(verdict, "so", changes=changes)
        assert sent.cycle == 1
        result = await cycle
        status = (await view.summary()).status
    assert [int(level) for level in world.levels] == levels
    assert (result.status, status) == ("finished", "finished")
    assert result.state["memory"]["feedbackHistory"][0]["verdict"] == verdict


@pytest.mark.parametrize("default", ["approve", "reject"])
async def test_an_expired_question_is_answered_by_its_default(default):
    class Seen(MemoryStore):
        async def put_if_absent(self, record, /):
            if record.kind == ANSWER:
                answers.append(from_record(HumanAnswer, record.data))
            return await super().put_if_absent(record)

    answers, world = list[HumanAnswer](), World()
    mode = f"mode: supervised, timeoutMs: 50, default: {default}"
    text = named("patient", SUPERVISED).replace("mode: controlled", mode)
    async with monitor(world, text=text, storage=Seen()) as agent:
        result = await agent.run_cycle()
    assert result.state["derivedData"]["governance"]["authority"]["decision"] == "default"
    [answer] = answers
    assert (answer.approved, answer.timed_out, answer.by) == (default == "approve", True, "")
    assert [int(level) for level in world.levels] == [1] * answer.approved


async def test_the_record_of_a_waiting_cycle_has_its_deadline():
    text = named("supervised", SUPERVISED).replace("mode: controlled", "mode: supervised, timeoutMs: 60000")
    async with waiting_agent(text=text, storage=MemoryStore()) as (_, cycle):
        view = await Agents().get("supervised")
        waiting = await view.cycle(1)
        await view.send_feedback("approve")
        await cycle
        ended = await view.cycle(1)
    assert 59 < (waiting.waits_until - waiting.started_at).total_seconds() < 65
    assert ended.waits_until is None


@pytest.mark.parametrize(("later", "decision"), [(50, "approved"), (61, "default")])
@pytest.mark.parametrize("ended", ["cancelled", "killed"])
async def test_a_resumed_wait_keeps_its_deadline(later, decision, ended):
    text = named("patient", SUPERVISED).replace("mode: controlled", "mode: supervised, timeoutMs: 60000")
    now, store = NOON, MemoryStore()
    waits, withins = asyncio.Event(), []

    def hear(event):
        if isinstance(event, CycleWaiting):
            withins.append(event.within)
            waits.set()

    async with waiting_agent(hear=hear, text=text, storage=store, clock=lambda: now):
        left = copy_of(store, without=["lease"])
    if ended == "killed":
        store = left
    now += timedelta(seconds=later)
    waits.clear()
    async with monitor(text=text, storage=store, on_event=hear, clock=lambda: now) as agent:
        going = asyncio.ensure_future(agent.run_cycle())
        if decision == "approved":
            await waits.wait()
            await (await Agents().get("patient")).send_feedback("approve")
        result = await asyncio.wait_for(going, 60)
    assert result.number == 1
    assert result.state["derivedData"]["governance"]["authority"]["decision"] == decision
    assert withins == pytest.approx([60, 60 - later][: 1 + (later < 60)], abs=0.5)
    async with await Agents().get("patient") as handle:
        assert (await handle.cycle(1)).waits_until is None


async def test_people_can_answer_when_they_hear_of_a_wait_and_hear_of_none_that_they_have_ended():
    heard, store = [], MemoryStore()

    def hear(event):
        if isinstance(event, CycleWaiting):
            stored = connection_of(store).execute("SELECT data FROM records WHERE kind = 'cycle'")
            heard.append([json.loads(data)["status"] for (data,) in stored])

    text = named("patient", CONTROLLED)
    async with waiting_agent(World(9), hear, text=text, storage=store):
        pass
    async with await Agents().get("patient") as handle:
        await handle.send_feedback("approve")
    async with monitor(World(9), text=text, storage=store, on_event=hear) as agent:
        result = await agent.run_cycle()
    assert result.state["derivedData"]["governance"]["authority"]["decision"] == "approved"
    assert heard == [["waiting"]]


async def test_a_verdict_decides_on_no_other_cycle_of_the_same_number():
    store = MemoryStore()
    lost = CycleRecord(1, NOON, status="waiting", id=new_id())
    verdict = Feedback("f1", "approve", "go on", stamp_of(NOON), 1, cycle_id=lost.id)
    await store.put(mail_record(verdict))  # the database was restored, or the record was never stored
    text = CONTROLLED.replace("mode: controlled", "mode: supervised, timeoutMs: 50, default: reject", 1)
    async with monitor(World(9), text=text, storage=store) as agent:
        result = await agent.run_cycle()
    assert result.number == 1
    assert result.state["derivedData"]["governance"]["authority"]["decision"] == "default"


async def test_agents_receive_the_topics_they_listen_to():
    listener = named("listener")
    teller = named("teller").replace(
        "{type: function, name: lower, function: lower,", '{type: alert, name: lower, message: "It is high",'
    )
    teller = teller.replace(', with: {level: "{{ params.level }}"}}', "}")
    async with monitor(text=listener) as hears:
        await hears.run_cycle()
        async with monitor(text=teller) as tells:
            result = await tells.run_cycle()
            assert result.metrics.failures == ()
        first = await hears.run_cycle()
        await (await Agents().get("listener")).send_message("note", {"a": 1}, sender="me")
        second, third = await hears.run_cycle(), await hears.run_cycle()
    mails = [one.state["environmentalData"]["payload"]["mail"] for one in (first, second, third)]
    assert [[(mail["topic"], mail["sender"]) for mail in mails_of] for mails_of in mails] == [
        [("alerts", "teller")],
        [("note", "me")],
        [],
    ]


async def test_a_cycle_without_its_process_is_shown_as_killed():
    store = MemoryStore()
    async with monitor(text=named("gone"), storage=store) as agent:
        await agent.run_cycle()
        record = CycleRecord(2, NOON, status="running")
        await store.put(stored_cycle(record))
        view = await Agents().get("gone")
        alive = (await view.summary()).status
    assert (alive, (await view.summary()).status) == ("running", "killed")


async def test_a_cycle_that_ends_while_its_agent_is_read_is_not_shown_as_killed(monkeypatch):
    store = MemoryStore()
    async with monitor(text=named("ended"), storage=store) as agent:
        await agent.run_cycle()
        await store.put(stored_cycle(CycleRecord(2, NOON, status="running")))
        view = await Agents().get("ended")
        read = view._store.get

        async def get(kind, key):
            """End the cycle, and with it the lease, just before the lease is read."""
            if kind == "lease":
                await store.put(stored_cycle(CycleRecord(2, NOON, status="finished")))
                return None
            return await read(kind, key)

        monkeypatch.setattr(view._store, "get", get)
        summary = await view.summary()
        statuses = summary.status, summary.last.status
    assert statuses == ("finished", "finished")


WRONG_ARGUMENTS = [
    ("cycle", (1.5,), "name must be a whole number of at least 0, got 1.5"),
    ("cycle", (None,), "name"),
    ("cycles", {"before": "x"}, "before"),
    ("cycles", {"limit": 1.5}, "limit"),
    ("memory_at", ("x",), "cycle"),
    ("memory_at", (-1,), "cycle"),
    ("diff", ("x", 1), "older"),
    ("diff", (1, None), "newer"),
    ("trace", ("x",), "number"),
    ("prune", ("x",), "cycles"),
]


@pytest.mark.parametrize(("method", "arguments", "message"), WRONG_ARGUMENTS)
def test_rejects_arguments_of_the_wrong_type_by_name(method, arguments, message):
    async def main():
        async with monitor(text=named("typed"), storage=MemoryStore()) as agent:
            await agent.run_cycle()
            call = getattr(await Agents().get("typed"), method)
            await (call(**arguments) if isinstance(arguments, dict) else call(*arguments))

    with pytest.raises(ConfigError, match=rf"^{message}"):
        run(main())


@pytest.mark.parametrize("name", [5, None, ["x"]])
def test_the_name_of_an_agent_is_text(name):
    with pytest.raises(ConfigError, match="name must be a non-empty string"):
        run(Agents().get(name))


async def test_prune_keeps_the_newest_cycles():
    async with monitor(text=named("pruned"), storage=MemoryStore()) as agent:
        for _ in range(6):
            await agent.run_cycle()
        view = await Agents().get("pruned")
        counts = await view.prune(2)
        with pytest.raises(ConfigError, match="cycles must be a whole number of at least 1, got 0"):
            await view.prune(0)
        left = [cycle.number for cycle in await view.cycles()]
        with pytest.raises(ConfigError, match="The memory after cycle 3 is no longer known"):
            await view.memory_at(3)
    assert (counts["cycles"], left) == (4, [6, 5])


async def test_feedback_on_an_abandoned_plan_decides_when_it_resumes():
    text, store, world = named("asking", SUPERVISED), MemoryStore(), World()
    async with waiting_agent(world, text=text, storage=store):
        pass
    view = await Agents().get("asking")
    assert (await view.summary()).status == "abandoned"
    assert (await view.send_feedback("modify", changes={"level": 4})).cycle == 1
    async with monitor(world, text=text, storage=store) as agent:
        result = await agent.run_cycle()
    assert (result.number, world.levels) == (1, [4])


UNKNOWN = {
    "a parameter": (
        {"changes": {"levle": 4}},
        "The action 'lower' takes no parameter 'levle'; did you mean 'level'",
    ),
    "one of several": (
        {"changes": {"level": 4, "speed": 2}},
        "takes no parameter 'speed'; expected 'level'",
    ),
    "of one action": ({"changes": {"levle": 4}, "action": "lower"}, "did you mean 'level'"),
    "of one by its id": ({"changes": {"levle": 4}, "action": "1-1"}, "did you mean 'level'"),
    "an action": ({"changes": {"level": 4}, "action": "lowr"}, "has no action 'lowr'; did you mean 'lower'"),
}


async def rejects_unknown(agent):
    view = await Agents().get("asked")
    for feedback, message in UNKNOWN.values():
        for leave in (agent.send_feedback, view.send_feedback):
            with pytest.raises(ConfigError, match=message):
                await leave("modify", **feedback)
    assert await view.pending() == []
    await view.send_feedback("modify", changes={"level": 4})


async def test_rejects_feedback_on_unknown_actions_and_parameters_of_a_plan_that_waits():
    world, text = World(), named("asked", SUPERVISED)
    async with waiting_agent(world, text=text, storage=MemoryStore()) as (agent, cycle):
        await rejects_unknown(agent)
        await cycle
    assert [int(level) for level in world.levels] == [4]


async def test_rejects_feedback_on_unknown_actions_and_parameters_of_a_cycle_that_has_ended():
    async with monitor(text=named("asked"), storage=MemoryStore()) as agent:
        await agent.run_cycle()
        await rejects_unknown(agent)


async def test_a_lease_that_cannot_be_read_hides_no_agent(caplog):
    store = MemoryStore()
    await store.put_all([stored_cycle(CycleRecord(1, NOON, id=new_id())), Record(LEASE, LEASE, {})])
    agents = [monitor(text=named("newer"), storage=store), monitor(text=named("other"))]
    names = {agent.name for agent in agents}
    assert [one.status for one in await Agents().all() if one.name in names] == ["running", "new"]
    assert "Upgrade redraft if a newer version wrote it" in caplog.text


async def test_a_damaged_cycle_does_not_come_in_place_of_another():
    store = MemoryStore()
    async with monitor(text=named("hurt"), storage=store) as agent:
        first, second = await agent.run_cycle(), await agent.run_cycle()
    handle = await Agents().get("hurt")
    damage(store, CYCLE, CycleRecord(1, NOON, id=first.id).key)
    assert (await handle.cycle(second.id)).id == second.id
