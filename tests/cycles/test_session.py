import asyncio
import gc
from threading import Event, Thread

import pytest

from redraft.cycles.agents import Agents
from redraft.errors import ConfigError
from support.monitor import MONITOR, World, monitor, run

TWO = MONITOR.replace(
    'actions: [{type: function, name: lower, function: lower, with: {level: "{{ params.level }}"}}]',
    """actions:
            - {type: function, name: lower, function: lower, with: {level: "{{ params.level }}"}}
            - {type: function, name: more, function: think, when: derivedData.execution.actions}""",
)
KEPT = pytest.mark.parametrize("storage", [None, "project"])


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "redraft.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")


async def _status_of(name):
    """An agent's status and last cycle; this process may still have agents of other tests."""
    return next((one.status, one.last.number) for one in await Agents().all() if one.name == name)


@KEPT
def test_an_open_agent_closes_with_its_loop_and_continues_in_the_next(storage):
    agent = monitor(storage=storage)
    for number in (1, 2, 3):
        assert run(agent.run_cycle()).number == number
        assert len(agent.memory.of("recentActions")) == number
    another = monitor(storage=storage)  # no lease is left
    assert run(another.run_cycle()).number == (4 if storage else 1)


async def test_an_open_agent_that_nothing_refers_to_is_closed():
    agent = monitor(storage="project")
    await agent.run_cycle()
    del agent
    gc.collect()
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.01)
    assert (await monitor(storage="project").run_cycle()).number == 2


@KEPT
def test_sync_cycles_are_bounded_too(storage):
    agent = monitor(text=MONITOR.replace("stages:", "memory: {cycles: 2}\nstages:", 1), storage=storage)
    assert [agent.run_cycle_sync().number for _ in range(5)] == [1, 2, 3, 4, 5]

    async def kept():
        async with await Agents().get("monitor") as handle:
            return [cycle.number for cycle in await handle.cycles()]

    assert run(kept()) == [5, 4]


@KEPT
async def test_concurrent_first_uses_open_the_agent_once(storage):
    async with monitor(storage=storage) as other:
        await other.aclose()
        results = await asyncio.gather(
            other.run_cycle(), other.send_feedback("approve"), other.run_cycle(), other.aclose()
        )
        numbers = [results[0].number, results[2].number]
    assert numbers == [1, 2]


@KEPT
async def test_a_second_event_loop_is_refused(storage):
    agent = monitor(storage=storage)
    await agent.run_cycle()
    with pytest.raises(ConfigError, match="'monitor' is open in another event loop"):
        agent.run_cycle_sync()
    await agent.aclose()
    assert agent.run_cycle_sync().number == 2


def test_two_threads_never_run_the_same_agent_in_parallel():
    world, is_in, goes_on = World(), Event(), Event()

    def look():
        is_in.set()
        goes_on.wait(10)
        return {"rate": 3}

    world.look = look
    agent = monitor(world)
    first = Thread(target=agent.run_cycle_sync)
    first.start()
    assert is_in.wait(10)
    with pytest.raises(ConfigError, match="another event loop"):
        agent.run_cycle_sync()
    goes_on.set()
    first.join()
    assert agent.run_cycle_sync().number == 2


@pytest.mark.parametrize("ended_by", [asyncio.CancelledError, KeyboardInterrupt])
@KEPT
def test_a_cancelled_cycle_resumes_in_the_same_process(storage, ended_by):
    world, raised = World(), []

    async def think(state):
        if state["derivedData"]["execution"].get("actions") and not raised:
            raised.append(True)
            if ended_by is not asyncio.CancelledError:
                raise ended_by
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
        return {}

    world.think = think
    agent = monitor(world, text=TWO, storage=storage)
    with pytest.raises(ended_by):
        asyncio.run(agent.run_cycle())
    result = run(agent.run_cycle())
    assert result.status == "finished"
    if storage:  # the journal repeats nothing that was finished
        assert (result.number, world.levels) == (1, [1])
    else:  # without a journal it is a new cycle with new actions
        assert (result.number, world.levels, len(set(world.keys))) == (2, [1, 1], 2)
    assert run(_status_of("monitor")) == ("finished", result.number)
    assert [item["cycle"] for item in agent.memory.of("recentActions")] == [result.number] * 2


def test_an_async_function_that_exits_fails_as_any_other():
    world = World()

    async def think():
        raise SystemExit(3)

    world.think = think
    result = run(monitor(world).run_cycle())
    assert result.status == "failed"
    assert "raised SystemExit: 3" in result.error
