import asyncio
import json

import pytest

from redraft._steps import step_context
from redraft.cycles.cycle import SubstageFinished
from redraft.cycles.journal import JOURNAL, CycleSteps
from redraft.cycles.records import CycleRecord
from redraft.cycles.write_behind import WriteBehind
from redraft.stores.sqlite import MemoryStore
from support.cycles import NOON
from support.memory_stores import connection_of
from support.monitor import MONITOR, World, monitor


class Gate(MemoryStore):
    """A store whose writes end on request, or after a delay; that a cycle begins is written at once."""

    def __init__(self, *, delay=None):
        super().__init__()
        self.is_open = asyncio.Event()
        self.delay = delay

    async def put_all(self, records):
        if self.delay is None:
            if records[0].data["steps"]:
                await self.is_open.wait()
        else:
            await asyncio.sleep(self.delay)
        return await super().put_all(records)

    @property
    def steps(self):
        """The names of the steps that were written."""
        return [step["name"] for step in self._written["steps"].values()]

    @property
    def cycle(self):
        """The number of the cycle that wrote them."""
        return self._written["begun"]["number"]

    @property
    def _written(self):
        kept = "SELECT data FROM records WHERE kind = ? AND key = ?"
        return json.loads(connection_of(self).execute(kept, (JOURNAL, JOURNAL)).fetchone()[0])


def steps_of(store, answer_timeout=None):
    write_behind = WriteBehind(MemoryStore(), "a", remote=False)
    write_behind.answer_timeout = answer_timeout
    return CycleSteps(store, CycleRecord(1, NOON, id="A"), write_behind)


async def soon():
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("point", ["look", "think", "lower"])
async def test_the_id_of_a_cycle_is_written_before_a_function_gets_a_key(point):
    seen = []
    store, world = Gate(delay=0.01), World()

    def keyed(idempotency_key, **_given):
        seen.append((len(idempotency_key), store.cycle))
        return {"rate": 3}

    setattr(world, point, keyed)
    async with monitor(world, storage=store) as agent:
        assert (await agent.run_cycle()).success
        assert (await agent.run_cycle()).success
    assert seen == [(32, 1), (32, 2)]


async def test_a_cycle_without_side_effects_that_ends_immediately_is_written_once(monkeypatch):
    monkeypatch.setattr("redraft.cycles.journal.QUICK", 60)
    written = []

    class Counted(MemoryStore):
        async def put_all_if(self, kind, key, where, records):
            written.append([record.kind for record in records])
            return await super().put_all_if(kind, key, where, records)

    text = """\
name: idle
stages:
  sense: {substages: [{type: function, name: rates, config: {function: look}}]}
  reflect: {substages: [{type: update-state, name: keep}]}
"""
    async with monitor(text=text, storage=Counted()) as agent:
        written.clear()
        await agent.run_cycle()
    assert written == [["memory", "cycle"]]


@pytest.mark.parametrize("name", ["actuate/act/first", "sense/claim"])
async def test_a_step_with_side_effects_is_written_before_the_next_step_begins(name):
    begun = []

    async def effect(name):
        begun.append(name)

    store = Gate()
    step = steps_of(store).journal(resumes=False)
    await step(name, type(None), effect, "first")
    next_one = asyncio.ensure_future(step("reason/plan", type(None), effect, "next"))
    await soon()
    assert begun == ["first"]
    store.is_open.set()
    await next_one
    assert begun == ["first", "next"]
    assert store.steps == [name]


async def test_a_model_call_is_written_before_its_step_continues():
    went_on = []

    async def call():
        return "reply"

    async def thought():
        await step_context.get().step("chat", str, call)
        went_on.append(True)

    store = Gate()
    step = steps_of(store).journal(resumes=False)
    thinks = asyncio.ensure_future(step("reflect/learn", type(None), thought))
    await soon()
    assert went_on == []
    store.is_open.set()
    await thinks
    assert (went_on, store.steps[:1]) == ([True], ["chat"])


async def test_a_silent_store_is_awaited_once(caplog):
    async def effect():
        pass

    store = Gate()
    steps = steps_of(store, answer_timeout=0.01)
    step = steps.journal(resumes=False)
    for name in ("actuate/act/first", "actuate/act/second", "actuate/act/third"):
        await step(name, type(None), effect)
    store.is_open.set()
    await steps.settled()
    await soon()
    assert store.steps == ["actuate/act/first"]
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("The agent 'a' continues without its store")
    assert warning.endswith(": it has not answered for 0.01 s")


async def test_a_slow_store_is_awaited_without_a_warning(caplog):
    async def effect():
        pass

    store = Gate(delay=0.1)
    steps = steps_of(store, answer_timeout=60)
    step = steps.journal(resumes=False)
    names = ["actuate/act/first", "actuate/act/second"]
    for name in names:
        await step(name, type(None), effect)
    await steps.settled()
    assert store.steps == names
    assert caplog.records == []


async def test_the_steps_before_an_action_are_written_when_it_begins():
    written = []
    store = Gate(delay=0.01)

    class Looks(World):
        async def lower(self, level):
            written.append(store.steps)

    async with monitor(Looks(), storage=store) as agent:
        await agent.run_cycle()
    assert written == [["sense", "reason/thought"]]


async def test_the_steps_before_a_question_to_people_are_written_when_it_is_asked(monkeypatch):
    written = []
    authorize = "      - {type: authorize, name: people, config: {mode: supervised, timeoutMs: 1}}\n"
    store = Gate(delay=0.01)

    async def ask(_bus, _questions, _within):
        written.append(store.steps)
        return {}

    monkeypatch.setattr("redraft.cycles.bus.AgentBus.ask", ask)
    async with monitor(
        text=MONITOR.replace("  actuate:\n", f"{authorize}  actuate:\n"), storage=store
    ) as agent:
        await agent.run_cycle()
    assert written == [["sense", "reason/thought"]]


async def test_an_action_is_written_before_listeners_hear_of_it():
    heard = []
    store = Gate(delay=0.01)

    def hear(event):
        if isinstance(event, SubstageFinished) and event.substage == "acts":
            heard.append((store.cycle, "actuate/acts/lower" in store.steps))

    async with monitor(storage=store, on_event=hear) as agent:
        for _ in range(3):
            await agent.run_cycle()
    assert heard == [(1, True), (2, True), (3, True)]
