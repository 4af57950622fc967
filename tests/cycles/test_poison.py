"""Steps that kill their process: the third death is the last, and counts against no other step."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from redraft.stores.sqlite import MemoryStore
from support.dying_cycles import agent_named
from support.memory_stores import copy_of
from support.monitor import MONITOR, World, monitor, run, waiting_agent

TWO_ACTIONS = MONITOR.replace(
    "actions: [{", "actions: [{type: log, name: say, when: memory, message: said, severity: info}, {"
)


class Dying(World):
    """A world in which processes die: `died` is what the last one leaves, without its lease."""

    def __init__(self, store, point):
        super().__init__()
        self.store, self.point, self.died = store, point, None

    async def at(self, point):
        if point == self.point:
            await asyncio.sleep(0.03)  # the start of a step is written within 20 ms
            self.died = copy_of(self.store, without=["lease"])

    async def look(self):
        await self.at("look")
        return super().look()

    async def think(self, state):
        await self.at("think")
        return super().think(state)

    async def lower(self, level, idempotency_key=""):
        await self.at("lower")
        return super().lower(level, idempotency_key)


async def lives(deaths, point, text=MONITOR):
    """Run a cycle in processes that die at a point; return the result of the last, and its world."""
    store = MemoryStore()
    for _ in range(deaths):
        world = Dying(store, point)
        async with monitor(world, storage=store, text=text) as agent:
            await agent.run_cycle()
        store = world.died
    world = Dying(store, "")
    async with monitor(world, storage=store, text=text) as agent:
        return await agent.run_cycle(), world


def test_an_action_that_killed_three_processes_fails_and_the_cycle_goes_on():
    result, world = run(lives(3, "lower", TWO_ACTIONS))
    killer, other = sorted(result.state["derivedData"]["execution"]["actions"], key=lambda one: one["action"])
    assert (killer["action"], killer["status"], world.levels) == ("lower", "failed", [])
    assert "3 processes in a row died in 'actuate/acts/lower'" in killer["error"]
    assert (other["action"], other["status"]) == ("say", "succeeded")
    assert (result.number, result.status) == (1, "finished")
    assert result.metrics.failures == (f"actuate/acts/lower: {killer['error']}",)
    assert [one["status"] for one in result.state["memory"]["recentActions"]] == ["failed", "succeeded"]


def test_an_action_whose_name_has_a_slash_fails_as_others_do():
    result, world = run(lives(3, "lower", MONITOR.replace("acts", "an/act")))
    assert (result.status, world.levels) == ("finished", [])
    assert "3 processes in a row died in 'actuate/an/act/lower'" in result.metrics.failures[0]


def test_an_action_that_killed_two_processes_runs_by_itself(caplog):
    result, world = run(lives(2, "lower"))
    assert (result.status, result.metrics.failures, world.levels) == ("finished", (), [1])
    assert "The agent 'monitor' runs 'actuate/acts/lower' by itself: its process died 2 times." in caplog.text


@pytest.mark.parametrize(
    ("point", "name", "step"),
    [("look", "rates", "sense"), ("think", "thought", "reason/thought"), ("think", "a/b/c", "reason/a/b/c")],
)
def test_a_substage_that_killed_three_processes_fails_and_reflect_runs(point, name, step):
    result, world = run(lives(3, point, MONITOR.replace("thought", name)))
    assert (result.number, result.status, world.levels) == (1, "failed", [])
    assert f"3 processes in a row died in '{step}'" in result.error
    assert result.metrics.tokens is not None


async def test_processes_that_died_while_the_cycle_waited_for_a_person_count_for_nothing():
    asks = "- {type: authorize, name: ask, config: {mode: controlled}}"
    text = MONITOR.replace("  actuate:", f"      {asks}\n  actuate:")
    store, world = MemoryStore(), World()
    for _ in range(4):
        async with waiting_agent(world, storage=store, text=text) as (agent, cycle):
            await asyncio.sleep(0.03)
            store = copy_of(store, without=["lease"])
            await agent.send_feedback("approve")
            result = await cycle
    assert (result.status, result.metrics.failures, world.levels) == ("finished", (), [1] * 4)


async def failures_of(name):
    """The failures of the next cycle of an agent whose action kills no process any more."""
    async with agent_named(name, lambda: None) as agent:
        return (await agent.run_cycle()).metrics.failures


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("die", [7, 7, 7, 0]),
        ("kill", [-signal.SIGKILL] * 3 + [0]),
        ("look", [7, 7, 7, 7, 0]),  # the first death came before the start of the cycle was written
        ("linger", [-signal.SIGKILL] * 4),
        ("together", [7, 7, 7, 0]),
    ],
)
def test_an_agent_gets_past_an_action_that_kills_its_process(name, codes, tmp_path, monkeypatch):
    """Not past one that is asked to end; and what ran next to the action is not blamed."""
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "support.dying_cycles", name, str(len(codes))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [int(line) for line in ended.stdout.splitlines()] == codes, ended.stderr
    assert (tmp_path / "worked").exists() == (name == "together")
    assert run(failures_of({"together": "work"}.get(name, name))) == ()
