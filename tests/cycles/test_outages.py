"""Agents on a real PostgreSQL server that is stopped, killed, hangs, or is down at the start."""

import asyncio
import json
import logging
import signal
from collections import Counter
from datetime import UTC, datetime
from statistics import median, quantiles
from time import perf_counter

import pytest

from redraft.cycles.agent import CycleAgent
from redraft.cycles.memory import Memory, MemoryChange
from redraft.cycles.records import PROVISIONAL, CycleRecord, memory_record, stored_cycle, stored_memory
from redraft.cycles.spec import AgentSpec, MemoryLimits
from redraft.cycles.storage import LongTermStorage, storage_of
from redraft.errors import ConfigError
from support.http_server import of_json, serving
from support.postgres_server import Place

AGENTS, CYCLES = 20, 200
KEPT = 30
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


class Agent:
    """Save what a cycle does, and measure how long the cycle waits for that."""

    def __init__(self, storage, name):
        self.name = name
        self.write_behind = storage.location_of(name).write_behind()
        self.waits = []
        self.items = []
        self.number = 0

    async def open(self):
        found = await self.write_behind.load()
        if found is not None:
            self.number, self.items = found.cycle, list(found.of("patterns"))

    async def cycle(self):
        self.number += 1
        item = {"id": f"{self.name}/{self.number}", "cycle": self.number, "text": "x" * 50}
        self.items = [*self.items, item][-KEPT:]
        records = [
            memory_record(Memory({"patterns": self.items}, self.number)),
            stored_cycle(
                CycleRecord(
                    self.number,
                    datetime.now(UTC),
                    status="finished",
                    changes=(MemoryChange("patterns", item["id"], None, item),),
                )
            ),
        ]
        started = perf_counter()
        await self.write_behind.save(records)
        self.waits.append((perf_counter() - started, self.write_behind.is_away))
        await asyncio.sleep(0.01)

    async def cycles(self, until):
        while self.number < until:
            await self.cycle()


async def assert_history_is_complete(storage, agents, cycles=CYCLES):
    """Check that the memory after each cycle of each agent can be reconstructed."""
    for agent in agents:
        store = storage.store_for(agent.name)
        found = await store.find("cycle", newest_first=True)
        assert [record.data["number"] for record in found] == [*range(cycles, 0, -1)]
        changed = [record.data["changes"][0]["after"]["cycle"] for record in found]
        assert changed == [*range(cycles, 0, -1)]
        assert await stored_memory(store) == Memory({"patterns": agent.items}, cycles)


def by_agent(caplog, level, text):
    """Return how often each agent logged a text."""
    lines = [record.getMessage() for record in caplog.records if record.levelno == level]
    return Counter(line.split("'")[1] for line in lines if text in line)


async def all_noticed_it_is_back(caplog, times):
    """Wait until each agent has noticed the end of the outage; else the next one is the same to it."""
    async with asyncio.timeout(20):
        while by_agent(caplog, logging.INFO, "is reachable again").total() < AGENTS * times:  # noqa: ASYNC110 (a poll, as a person would)
            await asyncio.sleep(0.05)


def each_said(caplog, times):
    expected = {f"agent {number}": times for number in range(AGENTS)}
    assert by_agent(caplog, logging.WARNING, "continues without its store") == expected
    assert by_agent(caplog, logging.INFO, "is reachable again") == expected


async def are_back(agents):
    async with asyncio.timeout(20):
        while any(agent.write_behind.is_away for agent in agents):  # noqa: ASYNC110 (a poll, as a person would)
            await asyncio.sleep(0.05)


async def are_written(agents):
    """Write all that was saved, again if a busy server was late once more meanwhile."""
    while True:
        await asyncio.gather(*(agent.write_behind.flush() for agent in agents))
        if not any(agent.write_behind.is_away for agent in agents):
            return
        await are_back(agents)


@pytest.fixture(autouse=True)
def _heard(caplog):
    """Capture all log messages, and leave the network without a storage."""
    caplog.set_level(logging.INFO, "redraft")
    yield
    if (storage := storage_of()) is not None:  # left by a test that failed
        asyncio.run(storage.aclose())


def assert_short(waits):
    """Check that no cycle waits for a dead server, which would take seconds."""
    usual = [wait for wait, is_away in waits if not is_away]
    away = [wait for wait, is_away in waits if is_away]
    assert len(away) > AGENTS
    assert median(away) <= median(usual) + 0.1
    assert quantiles(away, n=20)[-1] <= quantiles(usual, n=20)[-1] + 1.0


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
    """Return an agent of all four stages, whose functions take no time."""
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


def test_the_server_is_stopped_and_killed_during_200_cycles_of_20_agents(server, place, caplog):
    async def main():
        storage = LongTermStorage(place.url)
        agents = [cycle_agent(f"agent {number}", storage) for number in range(AGENTS)]
        waits = []

        async def goes_round(agent, until, is_away):
            while (number := agent.memory.cycle) < until:
                started = perf_counter()
                result = await agent.run_cycle()
                waits.append((perf_counter() - started, is_away))
                assert (result.number, result.error) == (number + 1, "")
                await asyncio.sleep(0.02)

        async def all_go_round(until, *, is_away=False):
            await asyncio.gather(*(goes_round(agent, until, is_away) for agent in agents))

        outages = ((50, 90, signal.SIGINT), (130, 160, signal.SIGKILL))
        for earlier, (begins, ends, how) in enumerate(outages):
            await all_go_round(begins)
            await all_noticed_it_is_back(caplog, earlier)
            stopping = asyncio.create_task(asyncio.to_thread(server.stop, how))
            await all_go_round(ends, is_away=True)
            await stopping
            server.start()  # not in a thread: the server would end with it
        await all_go_round(CYCLES)
        await asyncio.gather(*(agent.aclose() for agent in agents))
        for agent in agents:
            await assert_cycles_are_complete(storage, agent.name)
        again = cycle_agent("agent 7", storage)
        assert (await again.run_cycle()).number == CYCLES + 1
        await again.aclose()
        await storage.aclose()
        assert_short(waits)

    asyncio.run(main())
    each_said(caplog, 2)


def test_a_hanging_server_stops_no_cycle(server, place, caplog):
    async def main():
        storage = LongTermStorage(place.url)
        agents = [Agent(storage, f"agent {number}") for number in range(AGENTS)]
        await asyncio.gather(*(agent.open() for agent in agents))
        await asyncio.gather(*(agent.cycles(20) for agent in agents))
        server.pause()
        try:
            async with asyncio.timeout(120):  # a test that hangs ends; a busy machine takes its time
                cycles = 20
                while not all(agent.write_behind.is_away for agent in agents):
                    cycles += 20
                    await asyncio.gather(*(agent.cycles(cycles) for agent in agents))
                await asyncio.gather(*(agent.cycles(cycles + 20) for agent in agents))
        finally:
            server.resume()
        await are_back(agents)
        await asyncio.gather(*(agent.cycles(cycles + 40) for agent in agents))
        await are_written(agents)
        await assert_history_is_complete(storage, agents, cycles + 40)
        await asyncio.gather(*(agent.write_behind.aclose() for agent in agents))
        await storage.aclose()
        assert_short([wait for agent in agents for wait in agent.waits])

    asyncio.run(main())
    # On a busy machine, the server may be late once more after it goes on.
    gone = by_agent(caplog, logging.WARNING, "continues without its store")
    assert gone.keys() == {f"agent {number}" for number in range(AGENTS)}
    assert gone == by_agent(caplog, logging.INFO, "is reachable again")
    assert "has not answered" in caplog.text
    assert "can't be reached" not in caplog.text


@pytest.mark.parametrize("hangs", [False, True])
def test_agents_started_in_an_outage_are_stored_later(server, place, caplog, hangs):
    async def main():
        storage = LongTermStorage(place.url)
        before = [Agent(storage, f"agent {number}") for number in range(AGENTS)]
        await asyncio.gather(*(agent.open() for agent in before))
        await asyncio.gather(*(agent.cycles(3) for agent in before))
        await asyncio.gather(*(agent.write_behind.aclose() for agent in before))
        if hangs:
            server.pause()
        else:
            server.stop()
        agents = [Agent(storage, agent.name) for agent in before]
        try:
            await asyncio.gather(*(agent.open() for agent in agents))
            assert all(agent.write_behind.is_away for agent in agents)
            for agent in agents:
                agent.number = agent.write_behind.last_provisional_number
            await asyncio.gather(*(agent.cycles(PROVISIONAL + 10) for agent in agents))
        finally:
            _ = server.resume() if hangs else server.start()
        await are_back(agents)
        await are_written(agents)
        for earlier, agent in zip(before, agents, strict=True):
            found = await stored_memory(storage.store_for(agent.name))
            later = [item | {"cycle": item["cycle"] - PROVISIONAL + 3} for item in agent.items]
            assert found.of("patterns") == [*earlier.items, *later]
            cycles = await storage.store_for(agent.name).find("cycle")
            assert [record.data["number"] for record in cycles] == [*range(1, 14)]
        await asyncio.gather(*(agent.write_behind.aclose() for agent in agents))
        await storage.aclose()

    asyncio.run(main())
    each_said(caplog, 1)


def test_starting_in_an_outage_erases_no_history(server, place, caplog):
    async def main():
        storage = LongTermStorage(place.url)

        def agent():
            usual = cycle_agent("monitor", storage)
            return CycleAgent(
                usual.spec.model_copy(update={"memory": MemoryLimits(cycles=8)}),
                functions=usual._functions,
                storage=storage,
            )

        async with agent() as first:
            for _ in range(6):
                await first.run_cycle()
        for outage in range(2):
            server.stop()
            async with agent() as second:
                for _ in range(2):
                    await second.run_cycle()
                server.start()
                await is_back(second)
                result = await second.run_cycle()
                assert result.number == 9 + 3 * outage
        async with agent() as last:
            assert (await last.run_cycle()).number == 13
            actions = last.memory.of("recentActions")
            assert [item["cycle"] for item in actions] == [*range(1, 14)]
            assert [item["id"] for item in actions] == [f"{number}-1" for number in range(1, 14)]
        # The last cycle is written behind it; an agent that is closed has written everything.
        store = storage.store_for("monitor")
        cycles = [record.data["number"] for record in await store.find("cycle")]
        assert cycles[-8:] == [*range(6, 14)]
        done = [
            one["execution"]["actions"][0]
            for one in (r.data["derived_data"] for r in await store.find("cycle"))
        ]
        assert len({one["idempotencyKey"] for one in done}) == len(done)
        await storage.aclose()

    asyncio.run(main())


WRONG = {
    "no such database": (lambda place: place.url.replace("/postgres?", "/nobody?"), "does not exist"),
    "no rights": (lambda place: place.url.replace("postgres@", f"{place.schema}@"), "may create tables"),
    "no such user": (lambda place: place.url.replace("postgres@", "nobody_here@"), "rejects this user"),
}


@pytest.mark.parametrize(("url", "message"), WRONG.values(), ids=WRONG)
def test_an_unusable_database_is_not_an_outage(server, place, caplog, url, message):
    async def main():
        storage = LongTermStorage(url(place))
        agent = cycle_agent("monitor", storage)
        try:
            with pytest.raises(ConfigError, match=message):
                await agent.run_cycle()
        finally:
            await agent.aclose()
            await storage.aclose()

    place.ask(f"CREATE ROLE {place.schema} LOGIN")
    asyncio.run(main())
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


async def is_back(agent):
    async with asyncio.timeout(20):
        while (await agent.open()).write_behind.is_away:  # noqa: ASYNC110 (a poll, as a person would)
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("ends_before", [False, True])
def test_alerts_and_feedback_wait_for_the_end_of_an_outage(server, place, tmp_path, ends_before):
    def alerts_of(listener):
        cycle = listener.state["environmentalData"]["payload"]["heard"]
        return [(one["data"]["message"], one["data"]["cycle"]) for one in cycle]

    async def main():
        storage = LongTermStorage(place.url, spool=tmp_path)

        def warner():
            return CycleAgent(AgentSpec.model_validate(WARNS), storage=storage)

        async with CycleAgent(AgentSpec.model_validate(HEARS), storage=storage) as listener:
            await listener.run_cycle()
        agent = warner()
        assert (await agent.run_cycle()).metrics.alerts == 1
        server.stop()
        result = await agent.run_cycle()
        assert (result.status, result.metrics.alerts, result.metrics.failures) == ("finished", 0, ())
        [outcome] = result.state["derivedData"]["execution"]["actions"]
        assert outcome["result"]["queued"] is True
        sent = await agent.send_feedback("reject", "not at night", cycle=result.number)
        result = await agent.run_cycle()
        assert [item["message"] for item in result.state["memory"]["feedbackHistory"]] == ["not at night"]
        if ends_before:
            await agent.aclose()
            agent = warner()
        server.start()
        await is_back(agent)
        await agent.open()
        store = storage.store_for("warner")
        async with asyncio.timeout(20):
            while await store.find("outbox") or not await store.get("cycle", "0000000003"):  # noqa: ASYNC110 (likewise)
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


def test_an_agent_that_starts_in_an_outage_delivers_what_an_earlier_process_could_not(server, place):
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
            async with asyncio.timeout(20):
                while len(hook.requests) < refused + 3:  # noqa: ASYNC110 (likewise)
                    await asyncio.sleep(0.05)
        await storage.aclose()
        sent = [json.loads(request.body)["data"]["title"] for request in hook.requests[refused:]]
        assert sent[0] == f"warner: cycle {PROVISIONAL + 1}"
        assert sorted(sent[1:]) == ["warner: cycle 1", "warner: cycle 3"]

    with serving({"/hook": answer}) as hook:
        asyncio.run(main(hook))
