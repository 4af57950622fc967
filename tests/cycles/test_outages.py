"""Agents on a real PostgreSQL server that is stopped, killed, hangs, or is down at the start."""

import asyncio
import json
import logging
import signal
from collections import Counter

import pytest

from redraft.cycles import write_behind
from redraft.cycles.agent import CycleAgent
from redraft.cycles.agents import AgentHandle
from redraft.cycles.cycle import CycleWaiting
from redraft.cycles.outbox import stored_outbox
from redraft.cycles.records import stored_memory
from redraft.cycles.spec import AgentSpec
from redraft.cycles.storage import LongTermStorage, storage_of
from redraft.errors import ConfigError
from support.http_server import of_json, serving
from support.postgres_server import Place

AGENTS, CYCLES = 5, 24
KEPT = 10
"""Items that the retention leaves of a memory."""


@pytest.fixture
def place(own_postgres):
    own_postgres.start()
    place = Place(own_postgres.url())
    yield place
    place.drop()


@pytest.fixture
def server(own_postgres):
    """A server that is stopped, until `place` starts it."""
    own_postgres.stop()
    return own_postgres


def by_agent(caplog, level, text):
    """How often each agent logged a text."""
    lines = [record.getMessage() for record in caplog.records if record.levelno == level]
    return Counter(line.split("'")[1] for line in lines if text in line)


@pytest.fixture(autouse=True)
def _heard(caplog, monkeypatch):
    """Capture all log messages, and leave the network without a storage."""
    monkeypatch.setattr(write_behind, "OPEN_TIMEOUT", 60.0)  # on a busy machine, late is not away
    caplog.set_level(logging.INFO, "redraft")
    yield
    if (storage := storage_of()) is not None:  # left by a test that failed
        asyncio.run(storage.aclose())


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 (what is waited for has no event)
            await asyncio.sleep(0.02)


async def undelivered_in(store):
    """The undelivered notices and messages."""
    return [one for one in await stored_outbox(store, "") if not one.is_over]


async def is_back(agent):
    await until(lambda: not agent.is_storage_away)


STAGES = {
    "sense": [{"type": "function", "name": "look", "config": {"function": "look"}}],
    "reason": [{"type": "plan", "name": "plan", "config": {"rules": [{"action": "adjust"}]}}],
    "actuate": [
        {
            "type": "execute",
            "name": "act",
            "config": {"actions": [{"name": "adjust", "type": "function", "function": "adjust"}]},
        }
    ],
    "reflect": [
        {
            "type": "update-state",
            "name": "keep",
            "config": {"retention": {"memory.recentActions": {"policy": "max_items", "maxItems": KEPT}}},
        }
    ],
}


def cycle_agent(name, storage):
    """An agent of all four stages, whose functions take no time."""
    stages = {stage: {"substages": substages} for stage, substages in STAGES.items()}

    async def look():
        return {"rate": 6}

    async def adjust():
        return {"done": True}

    functions = {"look": look, "adjust": adjust}
    spec = AgentSpec.model_validate({"name": name, "stages": stages})
    return CycleAgent(spec, functions=functions, storage=storage)


async def assert_cycles_are_complete(storage, name):
    """Check that the memory after each cycle of an agent can be reconstructed."""
    store = storage.store_for(name)
    cycles = await store.find("cycle")
    assert [record.data["number"] for record in cycles] == [*range(1, CYCLES + 1)]
    assert {record.data["status"] for record in cycles} == {"finished"}
    for number, record in enumerate(cycles, 1):
        gone, new = number - KEPT, []
        for change in record.data["changes"]:
            if change.get("after") is None:
                assert (change["key"], change["before"]["cycle"]) == ("recentActions", gone)
            else:
                new.append((change["key"], change["after"]["cycle"]))
        assert new == [("recentActions", number)]
    memory = await stored_memory(store)
    assert memory.cycle == CYCLES
    assert [item["cycle"] for item in memory.of("recentActions")] == [*range(CYCLES - KEPT + 1, CYCLES + 1)]


async def cycles_of(storage, name):
    """The stored cycles of an agent, the newest first."""
    return await AgentHandle(storage.location_of(name)).cycles()


async def test_the_server_is_stopped_and_killed_during_cycles(server, place, caplog):
    storage = LongTermStorage(place.url)
    agents = [cycle_agent(f"agent {number}", storage) for number in range(AGENTS)]

    async def goes_round(agent, until):
        while (number := agent.memory.cycle) < until:
            result = await agent.run_cycle()
            assert (result.number, result.error) == (number + 1, "")

    async def all_go_round(until):
        await asyncio.gather(*(goes_round(agent, until) for agent in agents))

    for begins, ends, how in ((6, 12, signal.SIGINT), (16, 20, signal.SIGKILL)):
        await all_go_round(begins)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop, how))
        await all_go_round(ends)
        await stopping
        await all_go_round(ends + 1)
        server.start()  # not in a thread: the server would end with it
        await asyncio.gather(*map(is_back, agents))
    await all_go_round(CYCLES)
    await asyncio.gather(*(agent.aclose() for agent in agents))
    for agent in agents:
        await assert_cycles_are_complete(storage, agent.name)
    async with cycle_agent("agent 3", storage) as again:
        assert (await again.run_cycle()).number == CYCLES + 1
    await storage.aclose()
    expected = {f"agent {number}": 2 for number in range(AGENTS)}
    assert by_agent(caplog, logging.WARNING, "continues without its store") == expected
    assert by_agent(caplog, logging.INFO, "is reachable again") == expected


async def test_a_hanging_server_stops_no_cycle(server, place, caplog, monkeypatch):
    monkeypatch.setattr(write_behind, "ANSWER_TIMEOUT", 0.3)
    storage = LongTermStorage(place.url)
    async with cycle_agent("monitor", storage) as agent:
        await agent.run_cycle()
        await is_back(agent)
        server.pause()
        try:
            results = [await agent.run_cycle() for _ in range(5)]  # none waits for the server
        finally:
            server.resume()
        assert [result.success for result in results] == [True] * 5
        await is_back(agent)
        result = await agent.run_cycle()
    cycles = await cycles_of(storage, "monitor")
    assert [cycle.number for cycle in cycles] == [*range(result.number, 0, -1)]
    await storage.aclose()
    assert "has not answered for 0.3 s" in caplog.text
    assert "can't be reached" not in caplog.text


async def test_a_hanging_server_does_not_hold_up_the_end(server, place):
    storage = LongTermStorage(place.url)
    agent = cycle_agent("monitor", storage)
    await agent.run_cycle()
    server.pause()
    try:
        async with asyncio.timeout(30):
            await agent.aclose()
    finally:
        server.resume()
    await storage.aclose()


@pytest.mark.parametrize("hangs", [False, True])
async def test_learnings_of_an_outage_at_the_start_are_added_later(server, place, caplog, monkeypatch, hangs):
    storage = LongTermStorage(place.url)
    async with cycle_agent("monitor", storage) as first:
        for _ in range(8):
            await first.run_cycle()
    if hangs:
        monkeypatch.setattr(write_behind, "OPEN_TIMEOUT", 0.3)
        server.pause()
    else:
        server.stop()
    agent = cycle_agent("monitor", storage)
    try:
        for number in (1, 2, 3):
            assert (await agent.run_cycle()).number == number
        assert len(agent.memory.of("recentActions")) == 3
    finally:
        _ = server.resume() if hangs else server.start()
    await is_back(agent)
    memory = await stored_memory(storage.store_for("monitor"))
    # Eight are stored and three are added, of which the retention leaves the newest ten.
    cycles = [item["cycle"] for item in memory.of("recentActions")]
    assert (memory.cycle, cycles) == (9, [*range(2, 9), 9, 9, 9])
    assert len({item["id"] for item in memory.of("recentActions")}) == 10
    result = await agent.run_cycle()
    assert (result.number, len(agent.memory.of("recentActions"))) == (10, KEPT)
    await agent.aclose()
    found = await cycles_of(storage, "monitor")
    assert [(one.number, one.trigger) for one in found[:3]] == [
        (10, "manual"),
        (9, "outage"),
        (8, "manual"),
    ]
    handle = AgentHandle(storage.location_of("monitor"))
    before = (await handle.memory_at(8)).of("recentActions")
    assert [item["cycle"] for item in before] == [*range(1, 9)]
    await storage.aclose()
    assert by_agent(caplog, logging.WARNING, "continues without its store") == {"monitor": 1}
    assert by_agent(caplog, logging.INFO, "is reachable again") == {"monitor": 1}


def test_a_cycle_that_began_in_an_outage_goes_on_after_it(server, place):
    """The plan of such a cycle waits for a person, who sees it once the database is back."""
    waits = asyncio.Event()
    stages = {stage: {"substages": list(substages)} for stage, substages in STAGES.items()}
    stages["reason"]["substages"].append(
        {"type": "authorize", "name": "ask", "config": {"mode": "controlled"}}
    )
    spec = AgentSpec.model_validate({"name": "monitor", "stages": stages})

    async def look():
        return {"rate": 6}

    def agent(storage):
        return CycleAgent(
            spec,
            functions={"look": look, "adjust": look},
            storage=storage,
            on_event=lambda event: waits.set() if isinstance(event, CycleWaiting) else None,
        )

    async def main():
        storage = LongTermStorage(place.url)
        async with cycle_agent("monitor", storage) as first:
            await first.run_cycle()
        server.stop()
        async with agent(storage) as second:
            cycle = asyncio.ensure_future(second.run_cycle())
            await asyncio.wait_for(waits.wait(), 60)
            server.start()
            await is_back(second)
            handle = AgentHandle(storage.location_of("monitor"))
            assert [(one.number, one.status) for one in await handle.cycles()] == [
                (2, "waiting"),
                (1, "finished"),
            ]
            await handle.send_feedback("approve")
            result = await asyncio.wait_for(cycle, 60)
            assert (result.number, result.status) == (2, "finished")
            assert [item["cycle"] for item in second.memory.of("recentActions")] == [1, 2]
        assert [one.number for one in await cycles_of(storage, "monitor")] == [2, 1]
        await storage.aclose()

    asyncio.run(main())


async def test_cycles_of_a_process_that_ends_in_an_outage_are_lost(server, place, caplog):
    storage = LongTermStorage(place.url)
    keys = set()
    for outage in (False, True, False):
        if outage:
            server.stop()
        async with cycle_agent("monitor", storage) as agent:
            results = [await agent.run_cycle() for _ in range(2)]
        for result in results:
            [done] = result.state["derivedData"]["execution"]["actions"]
            keys.add(done["idempotencyKey"])
        if outage:
            server.start()
    assert [cycle.number for cycle in await cycles_of(storage, "monitor")] == [4, 3, 2, 1]
    assert len(keys) == 6
    await storage.aclose()
    assert by_agent(caplog, logging.WARNING, "its unsaved records are lost") == {"monitor": 1}


WRONG = {
    "no such database": (lambda place: place.url.replace("/postgres?", "/nobody?"), "does not exist"),
    "no rights": (lambda place: place.url.replace("postgres@", f"{place.schema}@"), "may create tables"),
    "no such user": (lambda place: place.url.replace("postgres@", "nobody_here@"), "rejects this user"),
}


@pytest.mark.parametrize(("url", "message"), WRONG.values(), ids=WRONG)
async def test_an_unusable_database_is_not_an_outage(server, place, caplog, url, message):
    place.ask(f"CREATE ROLE {place.schema} LOGIN")
    storage = LongTermStorage(url(place))
    agent = cycle_agent("monitor", storage)
    try:
        with pytest.raises(ConfigError, match=message):
            await agent.run_cycle()
    finally:
        await agent.aclose()
        await storage.aclose()
    place.ask(f"DROP ROLE {place.schema}")
    assert by_agent(caplog, logging.WARNING, "continues without its store") == {}


WARNS = {
    "name": "warner",
    "stages": {
        "actuate": {
            "substages": [
                {
                    "type": "execute",
                    "name": "act",
                    "config": {
                        "actions": [{"type": "alert", "name": "warn", "message": "cycle {{ cycle }}"}]
                    },
                }
            ]
        },
        "reflect": {
            "substages": [
                {"type": "update-state", "name": "keep"},
                {"type": "capture-metrics", "name": "count", "config": {"trackAlertCount": True}},
            ]
        },
    },
}
HEARS = {
    "name": "listener",
    "triggers": [{"type": "message", "topic": "alerts"}],
    "stages": {
        "sense": {"substages": [{"type": "agent-messages", "name": "heard", "config": {"topic": "alerts"}}]}
    },
}


def test_alerts_and_feedback_wait_for_the_end_of_an_outage(server, place):
    def alerts_of(listener):
        cycle = listener.state["environmentalData"]["payload"]["heard"]
        return [(one["data"]["message"], one["data"]["cycle"]) for one in cycle]

    async def main():
        storage = LongTermStorage(place.url)
        async with CycleAgent(AgentSpec.model_validate(HEARS), storage=storage) as listener:
            await listener.run_cycle()
        agent = CycleAgent(AgentSpec.model_validate(WARNS), storage=storage)
        assert (await agent.run_cycle()).metrics.alerts == 1
        server.stop()
        result = await agent.run_cycle()
        assert (result.status, result.metrics.alerts, result.metrics.failures) == ("finished", 0, ())
        [outcome] = result.state["derivedData"]["execution"]["actions"]
        assert outcome["result"]["queued"] is True
        sent = await agent.send_feedback("reject", "not at night", cycle=result.number)
        result = await agent.run_cycle()
        assert [item["message"] for item in result.state["memory"]["feedbackHistory"]] == ["not at night"]
        server.start()
        await is_back(agent)
        store = storage.store_for("warner")
        async with asyncio.timeout(60):
            while await undelivered_in(store):  # noqa: ASYNC110 (what is waited for has no event)
                await asyncio.sleep(0.05)
        result = await agent.run_cycle()
        assert (result.number, result.metrics.alerts) == (4, 1)
        assert [item["id"] for item in result.state["memory"]["feedbackHistory"]] == [sent.id]
        assert await store.find("feedback", where={"status": "pending"}) == []
        await agent.aclose()
        async with CycleAgent(AgentSpec.model_validate(HEARS), storage=storage) as listener:
            assert alerts_of(await listener.run_cycle()) == [(f"cycle {n}", n) for n in (1, 2, 3, 4)]
        await storage.aclose()

    asyncio.run(main())


def test_an_agent_that_starts_in_an_outage_delivers_the_notices_of_an_earlier_process(server, place):
    def answer(handler):
        handler.reply(*of_json({}, handler.server.status))

    async def main(hook):
        storage = LongTermStorage(place.url)
        spec = AgentSpec.model_validate(WARNS | {"notify": {"url": f"{hook.url}/hook"}})
        hook.status = 500
        async with CycleAgent(spec, storage=storage) as agent:
            await agent.run_cycle()
        server.stop()
        hook.status, refused = 200, len(hook.requests)
        async with CycleAgent(spec, storage=storage) as agent:
            await agent.run_cycle()
            assert agent.is_storage_away
            server.start()
            await is_back(agent)
            await agent.run_cycle()
            await until(lambda: len(hook.requests) >= refused + 3)
        await storage.aclose()
        sent = [json.loads(request.body)["data"] for request in hook.requests[refused:]]
        assert sorted(one["title"] for one in sent) == [
            "warner: cycle 1",
            "warner: cycle 1",
            "warner: cycle 3",
        ]
        assert len({one["cycle_id"] for one in sent}) == 3

    with serving({"/hook": answer}) as hook:
        asyncio.run(main(hook))
