import asyncio
import json
import os
import re
import signal
from contextlib import suppress
from datetime import datetime

import pytest

from redraft._tasks import end_tasks
from redraft.cycles.agent import CycleAgent
from redraft.cycles.agents import Agents
from redraft.cycles.cycle import CycleFinished, CycleStarted, SubstageFinished
from redraft.cycles.journal import JOURNAL
from redraft.cycles.mail import mail_signals, signal_mail, wait_for_mail
from redraft.errors import ConfigError, LeaseError
from redraft.loop.journal import STEP
from redraft.stores.base import Record
from redraft.stores.run_index import CYCLE
from redraft.stores.sqlite import MemoryStore
from support.memory_stores import copy_of
from support.monitor import MONITOR, World, abandoned, monitor, run
from support.redact_corpus import Maker, person


def without(*stages):
    """The text of the monitor's file without these stages."""
    kept, is_left_out = [], False
    for line in MONITOR.splitlines():
        if line.startswith("  ") and not line.startswith("   "):
            is_left_out = line.strip(" :") in stages
        kept += [] if is_left_out else [line]
    return "\n".join(kept)


def test_a_cycle_runs_all_stages_and_emits_events():
    events = []
    agent = monitor(on_event=events.append)
    result = agent.run_cycle_sync()
    assert (result.number, result.status, result.trigger, result.error) == (1, "finished", "manual", "")
    assert result.state["environmentalData"]["payload"]["rate"] == 3
    [action] = result.state["derivedData"]["execution"]["actions"]
    assert (action["status"], action["result"]) == ("succeeded", {"level": 1})
    assert result.state["memory"]["recentActions"] == list(agent.memory.of("recentActions")) != []
    assert list(result.stages) == ["sense", "reason", "actuate", "reflect"]
    assert result.metrics.anomalies == 0
    assert result.metrics.tokens > 0
    assert [type(event) for event in events] == [CycleStarted, *[SubstageFinished] * 8, CycleFinished]
    names = "sense rules thought planner acts checks learner keep"
    assert [event.substage for event in events[1:-1]] == names.split()


@pytest.mark.parametrize(
    "stages", [["reflect"], ["actuate"], ["reason"], ["sense"], ["reason", "actuate"], ["sense", "reason"]]
)
def test_stages_are_optional(stages):
    text = without(*stages)
    if stages == ["actuate"]:
        text = text.replace(
            'config: {rules: [{action: lower, params: {level: 1}, reason: "as always"}]}', "prompt: Plan."
        )
    result = monitor(text=text).run_cycle_sync()
    assert not set(stages) & set(result.stages)
    assert result.number == 1


@pytest.mark.parametrize(
    ("rate", "status", "skipped", "message"),
    [
        (ConnectionError("no route"), "failed", 5, "sense: OutputError: The source 'rates' is required"),
        (-1, "failed", 3, "reason/thought: ValueError: a rate is at least 0"),
    ],
)
def test_only_reflect_runs_after_a_failure(rate, status, skipped, message):
    world = World(rate)
    agent = monitor(world)
    result = agent.run_cycle_sync()
    assert result.status == status
    assert message in result.error
    assert repr(result) == "<CycleResult 1 failed: 0 changes to the memory, 1 failure>"
    assert len(result.metrics.skipped) == skipped
    assert world.levels == []
    assert result.metrics.failures
    assert "reflect" in result.stages
    world.rate = 3
    assert agent.run_cycle_sync().status == "finished"


def test_update_state_runs_after_a_failed_learn():
    agent = monitor(replies=lambda request: "")
    result = agent.run_cycle_sync()
    assert result.status == "failed"
    assert "reflect/learner" in result.error
    assert len(agent.memory.of("recentActions")) == 1


async def test_the_next_learn_sees_feedback_and_it_is_remembered_once():
    prompts = []

    def answer(request):
        prompts.append(request.messages[-1].content)
        return '{"newPatterns": []}'

    async with monitor(replies=answer) as agent:
        await agent.run_cycle()
        await agent.send_feedback("reject", "the rate was fine", cycle=1)
        await agent.run_cycle()
        await agent.run_cycle()
        memory = agent.memory
    assert "the rate was fine" not in prompts[0]
    assert "the rate was fine" in prompts[1]
    [item] = memory.of("feedbackHistory")
    assert (item["verdict"], item["cycle"]) == ("reject", 1)


async def test_feedback_stays_pending_without_update_state():
    text = "\n".join(
        line for line in MONITOR.splitlines() if "update-state" not in line and "learn" not in line
    )
    store = MemoryStore()
    async with monitor(text=text, storage=store) as agent:
        await agent.send_feedback("approve", "good")
        result = await agent.run_cycle()
        assert result.state["memory"]["feedbackHistory"] == []
        result = await agent.run_cycle()
        pending = await store.find("feedback", where={"status": "pending"})
    assert len(pending) == 1
    assert result.changes == ()


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ({"verdict": "perhaps"}, "Unknown verdict 'perhaps'; expected one of approve, reject, modify."),
        ({"verdict": "modify"}, "with the verdict 'modify', and only with it"),
        ({"verdict": "approve", "changes": {"a": 1}}, "with the verdict 'modify', and only with it"),
        ({"verdict": "approve", "message": "x" * 4_001}, "Feedback is limited to 4,000 characters"),
        ({"verdict": "approve", "message": None}, "message must be a string, got None."),
        ({"verdict": "approve", "message": b"fine"}, "message must be a string, got b'fine'."),
        ({"verdict": "approve", "by": None}, "by must be a string, got None."),
        ({"verdict": "approve", "action": 5}, "action must be a string, got 5."),
        ({"verdict": "modify", "changes": ["level"]}, "changes must be a mapping of parameters to values"),
        ({"verdict": "modify", "changes": {1: 2}}, "The action 'lower' takes no parameter '1'; expected "),
        ({"verdict": "modify", "changes": {"level": float("nan")}}, "changes is not JSON data: "),
        ({"verdict": "modify", "changes": {"level": object()}}, "changes is not JSON data: "),
    ],
)
def test_rejects_invalid_feedback(feedback, message):
    with pytest.raises(ConfigError, match=message):
        run(monitor().send_feedback(**feedback))


@pytest.mark.parametrize("cycle", [2, 999, 0, -1, True, 1.0, "1"])
@pytest.mark.parametrize("storage", [None, "project"])
async def test_rejects_feedback_on_a_cycle_that_the_agent_never_had(project, storage, cycle):
    async with monitor(storage=storage) as agent:
        with pytest.raises(ConfigError, match="but none has run yet"):
            await agent.send_feedback("approve", cycle=cycle)
        await agent.run_cycle()
        handle = await Agents().get("monitor")
        for sender in (agent, handle):
            with pytest.raises(ConfigError, match=f"has no cycle {cycle!r} .* from 1 to 1"):
                await sender.send_feedback("approve", cycle=cycle)
            assert (await sender.send_feedback("approve", cycle=1)).cycle == 1
        assert len(await handle.pending()) == 2


async def test_the_next_process_reads_the_stored_memory():
    store = MemoryStore()
    async with monitor(storage=store) as agent:
        for _ in range(5):
            await agent.run_cycle()
    async with monitor(storage=store) as agent:
        result = await agent.run_cycle()
        journals, steps = await store.find(JOURNAL), await store.find(STEP)
    assert result.number == 6
    assert [item["cycle"] for item in result.state["memory"]["recentActions"]] == [4, 5, 6]
    assert [record.data["cycle"] for record in journals] == [result.id]
    assert steps == []


async def test_a_cancelled_cycle_resumes_and_repeats_nothing():
    world, world_again, store = World(), World(), MemoryStore()
    await abandoned(store, world=world)
    [record] = await store.find("cycle")
    assert record.data["status"] == "abandoned"
    async with monitor(world_again, storage=store) as agent:
        result = await agent.run_cycle()
    assert (result.number, result.status) == (1, "finished")
    assert world.keys != []
    assert (world_again.looks, world_again.levels) == (0, [])
    assert len(result.state["memory"]["recentActions"]) == 1


async def test_an_unfinished_cycle_is_finished_at_the_start_and_uses_up_no_trigger():
    waits = "triggers: [{type: message, topic: news}]\nstages:"
    text = MONITOR.replace("stages:", waits, 1)
    store = MemoryStore()
    await abandoned(store, "message", text=text)
    ended = asyncio.Event()
    async with monitor(
        text=text,
        storage=store,
        on_event=lambda event: ended.set() if isinstance(event, CycleFinished) else None,
    ) as agent:
        running = asyncio.ensure_future(agent.run_forever(cycles=2))
        await ended.wait()  # no message has come
        await agent.deliver("news", {"rate": 9}, "first")
        await running
    cycles = [(record.data["trigger"], record.data["status"]) for record in await store.find("cycle")]
    assert cycles == [("message", "finished")] * 2


async def test_a_cycle_that_was_killed_early_resumes_under_its_id_and_trigger():
    store, left = MemoryStore(), []

    class Killed(World):
        def lower(self, level, idempotency_key):
            left.append(copy_of(store, without=["lease"]))  # as a process leaves them that is killed here
            return super().lower(level, idempotency_key)

    first, second = Killed(), World()
    async with monitor(first, storage=store) as agent:
        killed = await agent.run_cycle("message")
    async with monitor(second, storage=left[0]) as agent:
        assert (await agent.open()).unfinished.trigger == "message"
        result = await agent.run_cycle()
    assert (result.id, result.number, result.trigger) == (killed.id, 1, "message")
    assert first.keys == second.keys


async def test_an_unfinished_cycle_of_an_earlier_version_is_begun_anew():
    store, world = MemoryStore(), World()
    old = {"started_at": "2026-11-01T10:00:00+00:00", "trigger": "cron"}
    await store.put_all(
        [
            Record(CYCLE, "0000000001", {"number": 1, "status": "finished", **old}),
            Record(CYCLE, "0000000002", {"number": 2, "status": "running", **old}),
            Record(JOURNAL, JOURNAL, {"cycle": 2, "steps": {"00001": {"name": "sense"}}}),
        ]
    )
    async with monitor(world, storage=store) as agent:
        result = await agent.run_cycle()
    async with await Agents().get("monitor") as handle:
        assert [(cycle.number, cycle.status) for cycle in await handle.cycles()] == [
            (3, "finished"),
            (2, "failed"),
            (1, "finished"),
        ]
        assert "an earlier version of Redraft began it" in (await handle.cycle(2)).error
        assert (await handle.cycle(result.id)).number == 3
        assert [cycle.number for cycle in await handle.cycles(before=3)] == [2, 1]
    assert (world.looks, len(world.keys)) == (1, 1)


async def test_an_unfinished_cycle_of_another_file_is_given_up():
    store = MemoryStore()
    await abandoned(store)
    async with monitor(storage=store, text=without("sense")) as agent:
        result = await agent.run_cycle()
    statuses = [record.data["status"] for record in await store.find("cycle")]
    assert result.number == 2
    assert statuses == ["failed", "finished"]


async def test_cycles_of_one_agent_never_overlap():
    running = []

    class Busy(World):
        async def look(self):
            running.append(1)
            assert len(running) == 1
            await asyncio.sleep(0.01)
            running.pop()
            return {"rate": 1}

    agent = monitor(Busy())
    results = await asyncio.gather(*(agent.run_cycle() for _ in range(5)))
    assert [result.number for result in results] == [1, 2, 3, 4, 5]


async def test_a_second_agent_of_the_same_name_gets_a_lease_error():
    store = MemoryStore()
    async with monitor(storage=store) as first:
        await first.run_cycle()
        with pytest.raises(LeaseError, match="'monitor' is run by this process"):
            await monitor(storage=store).run_cycle()
    async with monitor(storage=store) as second:
        result = await second.run_cycle()
    assert result.number == 2


async def test_cycle_records_are_bounded_and_redacted(monkeypatch):
    monkeypatch.setenv("SERVICE_TOKEN", "correct-horse-battery")
    text = MONITOR.replace("stages:", "memory: {cycles: 3}\nstages:", 1)

    class Leaky(World):
        def lower(self, level):
            return {"said": "it is correct-horse-battery", "much": "x" * 60_000}

    store = MemoryStore()
    async with monitor(Leaky(), storage=store, text=text) as agent:
        for _ in range(6):
            result = await agent.run_cycle()
    cycles, memory = await store.find("cycle"), await store.find("memory")
    assert [record.data["number"] for record in cycles] == [4, 5, 6]
    assert "correct-horse-battery" in str(result.state["derivedData"])
    assert "correct-horse" not in str(cycles) + str(memory)
    assert len(str(cycles[0].data)) < 30_000


async def test_memory_and_records_hold_no_personal_data():
    sentence, personal = person(Maker())
    number = int(personal[1].replace(" ", ""))
    learned = {"newPatterns": [{"description": sentence, "caller": {"first_name": "Kwame"}, "card": number}]}
    acted = []

    class Leaky(World):
        def lower(self, level):
            acted.append(level)
            return {"said": sentence, "customerName": "Kwame Asante", "card": number}

    store = MemoryStore()
    text = MONITOR.replace("{level: 1}", "{level: m.lopez@telco-mail.net}")
    async with monitor(
        Leaky(), storage=store, text=text, replies=lambda request: json.dumps(learned)
    ) as agent:
        await agent.send_feedback("approve", sentence, by="Maria Lopez")
        await agent.run_cycle()
        memory, cycles, stored = agent.memory, await store.find("cycle"), await store.find("memory")
    assert acted == ["m.lopez@telco-mail.net"]  # actions get the real value
    assert memory.of("recentActions")
    assert memory.of("patterns")
    assert memory.of("feedbackHistory")
    kept = repr(memory) + repr(cycles) + repr(stored)
    assert not any(value in kept for value in (*personal, "Lopez", "Kwame", str(number), "telco-mail"))


def test_sync_cycles_continue_from_each_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    agent = monitor(storage="project")
    assert [agent.run_cycle_sync().number for _ in range(2)] == [1, 2]
    assert monitor(storage="project").run_cycle_sync().number == 3


def test_rejects_an_unusable_storage_first(monkeypatch):
    with pytest.raises(ConfigError, match="REDRAFT_HOME"):
        monitor(storage="project")
    with pytest.raises(ConfigError, match="Unknown storage 'else'"):
        monitor(storage="else")


def test_an_agent_from_a_file_or_a_spec(tmp_path):
    (tmp_path / "agent.yaml").write_text(MONITOR)
    world = World()
    agent = CycleAgent.from_file(
        tmp_path / "agent.yaml", functions=world.functions, models={"scripted": monitor()._model_for(None)}
    )
    assert agent.run_cycle_sync().success
    spec = agent.spec.model_copy(update={"stages": replace_reflect(agent.spec.stages)})
    assert CycleAgent(spec, functions=world.functions).run_cycle_sync().success


def replace_reflect(stages):
    return stages.model_copy(update={"reflect": None})


class UnreadableError(Exception):
    """An error whose message can't be read."""

    def __str__(self):
        raise ValueError(self)


@pytest.mark.parametrize("where", ["look", "lower", "think"])
def test_an_error_without_a_readable_message_is_a_failure(where):
    def fails(**_arguments):
        raise UnreadableError

    world = World()
    setattr(world, where, fails)
    result = run(monitor(world).run_cycle())
    assert len(result.metrics.failures) == 1
    assert "UnreadableError: <UnreadableError, whose str() raises" in result.metrics.failures[0]
    assert result.state["derivedData"]["learnings"] == {"newPatterns": []}


EVERY_20_MS = MONITOR.replace("stages:", "triggers: [{type: interval, intervalMs: 20}]\nstages:", 1)
ON_MESSAGE = MONITOR.replace("stages:", "triggers: [{type: message, topic: news}]\nstages:", 1)


def test_an_interval_runs_the_requested_number_of_cycles():
    events = []
    agent = monitor(text=EVERY_20_MS, on_event=events.append)
    assert run(agent.run_forever(3)) == 3
    assert {event.trigger for event in events if type(event).__name__ == "CycleStarted"} == {"interval"}


def test_manual_triggers_need_a_number_of_cycles():
    agent = monitor()
    assert run(agent.run_forever(2)) == 2
    with pytest.raises(ConfigError, match="has only manual triggers"):
        run(agent.run_forever())


async def test_a_message_starts_a_cycle_and_is_taken():
    store = MemoryStore()
    agent = monitor(text=ON_MESSAGE, storage=store)
    async with agent:
        going = asyncio.ensure_future(agent.run_forever(1))
        await asyncio.sleep(0.05)
        assert not going.done()
        await (await Agents().get("monitor")).send_message("other", 1)
        await asyncio.sleep(0.05)
        assert not going.done()
        await (await Agents().get("monitor")).send_message("news", {"a": 1}, sender="me")
        await going
    assert await store.find("message") == []


async def test_signalled_mail_wakes_waiters_immediately():
    seen = mail_signals("someone")
    asyncio.get_running_loop().call_later(0.01, signal_mail, "someone")
    assert await wait_for_mail("someone", seen, 10)
    assert not await wait_for_mail("someone", mail_signals("someone"), 0.01)
    assert await wait_for_mail("someone", seen, None)


@pytest.mark.parametrize(("grace", "signals", "ended"), [(10, 1, 1), (0.05, 1, 0), (10, 2, 0)])
async def test_a_signal_finishes_or_abandons_the_cycle(grace, signals, ended):
    class Slow(World):
        async def look(self):
            self.looks += 1
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            return {"rate": 1}

    before = signal.getsignal(signal.SIGTERM)
    store = MemoryStore()
    agent = monitor(Slow(), text=EVERY_20_MS, storage=store)
    async with agent:
        count = await agent.run_forever(grace=grace)
    [record] = await store.find("cycle")
    assert (count, record.data["status"]) == (ended, "finished" if ended else "abandoned")
    assert signal.getsignal(signal.SIGTERM) is before


async def test_a_cycle_that_ignores_its_cancellation_holds_up_no_end_and_acts_no_more(monkeypatch):
    monkeypatch.setattr(end_tasks, "__defaults__", (0.05,))
    monkeypatch.setattr("redraft._tasks.LAST_PATIENCE", 0.05)

    class Stubborn(World):
        is_over = asyncio.Event()

        async def look(self):
            os.kill(os.getpid(), signal.SIGTERM)
            while not self.is_over.is_set():
                with suppress(asyncio.CancelledError):
                    await self.is_over.wait()
            return {"rate": 9}

    world, store = Stubborn(), MemoryStore()
    agent = monitor(world, text=EVERY_20_MS, storage=store)
    try:
        async with agent:
            count = await agent.run_forever(grace=0)
    finally:
        world.is_over.set()
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=5)
    assert (count, world.levels) == (0, [])
    world.look = lambda: {"rate": 9}
    resumed = await monitor(world, text=EVERY_20_MS, storage=store).run_cycle()
    assert (resumed.number, resumed.status, world.levels) == (1, "finished", [1])


async def test_a_signal_between_cycles_ends_the_run():
    text = EVERY_20_MS.replace("20}", "60000}")
    agent = monitor(text=text)
    asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
    assert await agent.run_forever() == 1


async def test_a_signal_stops_all_agents_of_a_process():
    texts = [EVERY_20_MS.replace("20}", f"{every}}}") for every in (60000, 20, 60000)]
    before = signal.getsignal(signal.SIGTERM)
    agents = [monitor(text=text.replace("name: monitor", f"name: m{at}", 1)) for at, text in enumerate(texts)]
    going = [
        asyncio.ensure_future(agent.run_forever(cycles))
        for agent, cycles in zip(agents, (1, 2, None), strict=True)
    ]
    await asyncio.wait(going[:2])  # an agent that ends leaves the signals to the others
    another = asyncio.ensure_future(agents[0].run_forever())
    await asyncio.sleep(0.1)
    os.kill(os.getpid(), signal.SIGTERM)
    assert [await each for each in (*going, another)] == [1, 2, 1, 1]
    assert signal.getsignal(signal.SIGTERM) is before


NOT_A_COUNT = "must be a whole number of at least"
WRONG_ARGUMENTS = [
    ("run_forever", {"cycles": "x"}, f"cycles {NOT_A_COUNT} 0, got 'x'"),
    ("run_forever", {"cycles": 1.5}, f"cycles {NOT_A_COUNT} 0, got 1.5"),
    ("run_forever", {"cycles": True}, f"cycles {NOT_A_COUNT} 0, got True"),
    ("run_forever", {"cycles": 1, "immediately": "no"}, "immediately must be True or False, got 'no'"),
    ("run_forever", {"cycles": 1, "grace": "x"}, "grace must be a number of seconds, 0 or more; got 'x'"),
    ("run_cycle", {"trigger": 5}, "trigger must be a string, got 5"),
]


@pytest.mark.parametrize(("method", "options", "message"), WRONG_ARGUMENTS)
def test_rejects_arguments_of_the_wrong_type_by_name(method, options, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(getattr(monitor(), method)(**options))


@pytest.mark.parametrize("clock", [datetime.now, lambda: 5, lambda: None, 5])
def test_rejects_a_clock_without_a_zone_before_a_cycle_begins(clock):
    world = World()
    agent = monitor(world, clock=clock)
    for start in (agent.run_cycle_sync, lambda: run(agent.run_forever(1))):
        with pytest.raises(ConfigError, match="clock must be a function that returns the time with its zone"):
            start()
    assert agent.latest is None


def test_changing_the_cycle_under_way_does_not_change_it():
    def tamper(event):
        if agent.latest is not None:
            agent.latest.derived_data.clear()
            agent.latest.number = 99

    agent = monitor(on_event=tamper)
    result = agent.run_cycle_sync()
    assert (result.number, result.status) == (1, "finished")
    assert result.state["derivedData"]["execution"]["actions"]


@pytest.mark.parametrize("storage", ["process", "given"])
def test_changing_what_an_agent_returns_does_not_change_its_memory(storage):
    def damage(data):
        for value in data.values() if isinstance(data, dict) else data:
            if isinstance(value, dict | list):
                damage(value)
        data.clear()

    async def main():
        agent = monitor(storage=None if storage == "process" else MemoryStore(), on_event=hear)
        async with agent:
            first = await agent.run_cycle()
            before, record = json.dumps(agent.memory.items), agent.latest
            damage(agent.latest.derived_data)
            for change in agent.latest.changes:
                damage(change.after)
            damage(first.state)
            first.stages.clear()
            for change in first.changes:
                damage(change.after)
            damage(agent.memory.items)
            damage((await (await Agents().get("monitor")).memory()).items)
            assert agent.latest == record
            assert record.stages
            return before, json.dumps(agent.memory.items), await agent.run_cycle()

    def hear(event):
        if isinstance(event, CycleFinished) and event.number > 1:
            damage(event.result.state)

    before, after, second = run(main())
    assert before == after
    assert [change.before for change in second.changes] == [None]
