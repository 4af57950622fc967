import asyncio
import os
import signal

import pytest

from agents import MONITOR, World, monitor, run
from redraft.core.errors import ConfigError
from redraft.cycles.agents import send_message
from redraft.cycles.bell import heard, ring, rung
from redraft.cycles.spec import IntervalTrigger, ManualTrigger, MessageTrigger
from redraft.cycles.triggers import AGAIN, Triggers
from redraft.stores.memory import MemoryStore

EVERY_20_MS = MONITOR.replace("stages:", "triggers: [{type: interval, intervalMs: 20}]\nstages:", 1)
ON_MESSAGE = MONITOR.replace("stages:", "triggers: [{type: message, topic: news}]\nstages:", 1)


def test_an_interval_goes_on_until_there_were_enough():
    events = []
    agent = monitor(text=EVERY_20_MS, on_event=events.append)
    assert run(agent.run_forever(3)) == 3
    assert {event.trigger for event in events if type(event).__name__ == "CycleStarted"} == {"interval"}


def test_with_manual_triggers_alone_a_number_is_needed():
    agent = monitor()
    assert run(agent.run_forever(2)) == 2
    with pytest.raises(ConfigError, match="has only manual triggers"):
        run(agent.run_forever())


def test_triggers_that_pass_meanwhile_count_as_one():
    now = [100.0]
    interval = IntervalTrigger(type="interval", interval_ms=1_000)

    async def none(topic):
        return None

    async def main():
        triggers = Triggers("a", [interval], none, clock=lambda: now[0])
        begun = []
        for busy in (0.5, 3.7, 0.1):
            await asyncio.wait_for(triggers.next(), 1)
            begun.append(now[0])
            now[0] += busy
            if not triggers._is_due([interval]):
                now[0] = triggers._due[id(interval)]
            else:
                triggers._due[id(interval)] = now[0]
        return begun

    assert run(main()) == [100.0, 101.0, 104.7]


@pytest.mark.parametrize("triggers", [[], [ManualTrigger(type="manual")]])
def test_by_hand_each_begins_at_once(triggers):
    assert run(Triggers("a", triggers, None).next()) == "manual"


def test_a_message_begins_a_cycle_and_is_taken():
    async def main():
        store = MemoryStore()
        agent = monitor(text=ON_MESSAGE, storage=store)
        async with agent:
            going = asyncio.ensure_future(agent.run_forever(1))
            await asyncio.sleep(0.05)
            assert not going.done()
            await send_message("monitor", "other", 1)
            await asyncio.sleep(0.05)
            assert not going.done()
            await send_message("monitor", "news", {"a": 1}, sender="me")
            await going
        return await store.find("message")

    assert run(main()) == []


def test_who_waits_is_woken_at_once():
    async def main():
        seen = rung("someone")
        asyncio.get_running_loop().call_later(0.01, ring, "someone")
        assert await heard("someone", seen, 10)
        assert not await heard("someone", rung("someone"), 0.01)
        assert await heard("someone", seen, None)

    run(main(), 5)


@pytest.mark.parametrize(("grace", "signals", "ended"), [(10, 1, 1), (0.05, 1, 0), (10, 2, 0)])
def test_a_process_that_is_told_to_end_finishes_or_abandons_the_cycle(grace, signals, ended):
    class Slow(World):
        async def look(self):
            self.looks += 1
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGTERM)
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.2)
            return {"rate": 1}

    async def main():
        store = MemoryStore()
        agent = monitor(Slow(), text=EVERY_20_MS, storage=store)
        async with agent:
            count = await agent.run_forever(grace=grace)
        return count, [record.data["status"] for record in await store.find("cycle")]

    before = signal.getsignal(signal.SIGTERM)
    assert run(main()) == (ended, ["finished" if ended else "abandoned"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_told_to_end_between_two_cycles_it_ends():
    text = EVERY_20_MS.replace("20}", "60000}")

    async def main():
        agent = monitor(text=text)
        asyncio.get_running_loop().call_later(0.3, os.kill, os.getpid(), signal.SIGINT)
        return await agent.run_forever()

    assert run(main(), 10) == 1


def test_all_agents_of_a_process_are_told_to_end():
    texts = [EVERY_20_MS.replace("20}", f"{every}}}") for every in (60000, 20, 60000)]

    async def main():
        agents = [
            monitor(text=text.replace("name: monitor", f"name: m{at}", 1)) for at, text in enumerate(texts)
        ]
        going = [
            asyncio.ensure_future(agent.run_forever(cycles))
            for agent, cycles in zip(agents, (1, 2, None), strict=True)
        ]
        await asyncio.wait(going[:2])  # those that end before leave the signals to the others
        another = asyncio.ensure_future(agents[0].run_forever())
        await asyncio.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)
        return [await each for each in (*going, another)]

    before = signal.getsignal(signal.SIGTERM)
    assert run(main()) == [1, 2, 1, 1]
    assert signal.getsignal(signal.SIGTERM) is before


def test_message_triggers_may_be_of_any_topic():
    asked = []

    async def is_there(topic):
        asked.append(topic)
        return "m1"

    triggers = Triggers("a", [MessageTrigger(type="message")], is_there)
    assert run(triggers.next()) == "message"
    assert asked == [None]


def test_a_message_that_no_cycle_takes_does_not_begin_one_after_the_other():
    now, newest = [100.0], ["m1"]

    async def there(topic):
        return newest[0]

    async def begins():
        try:
            return await asyncio.wait_for(triggers.next(), 0.05)
        except TimeoutError:
            return None

    triggers = Triggers("a", [MessageTrigger(type="message")], there, clock=lambda: now[0])

    async def main():
        begun = [await begins(), await begins()]
        newest[0] = "m2"  # another one, or one that is left when the newest were taken
        begun += [await begins(), await begins()]
        now[0] += AGAIN
        return [*begun, await begins(), await begins()]

    assert run(main()) == ["message", None, "message", None, "message", None]
