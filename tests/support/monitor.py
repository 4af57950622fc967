"""An agent for the tests: its file, its functions, and what they did."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from redraft import ScriptedModel
from redraft.cycles.agent import CycleAgent
from redraft.cycles.cycle import CycleWaiting
from redraft.cycles.spec import AgentFile, parse_agent_file

MONITOR = """\
name: monitor
description: Watches a rate.
model: scripted
stages:
  sense:
    substages:
      - {type: function, name: rates, config: {function: look, required: true}}
      - {type: agent-messages, name: mail, config: {into: mail}}
  reason:
    substages:
      - type: analyze
        name: rules
        config:
          rules: [{name: high, when: environmentalData.payload.rate > 5, message: "rate is high"}]
      - {type: analyze, name: thought, config: {function: think}}
      - type: plan
        name: planner
        config: {rules: [{action: lower, params: {level: 1}, reason: "as always"}]}
  actuate:
    substages:
      - type: execute
        name: acts
        config:
          actions: [{type: function, name: lower, function: lower, with: {level: "{{ params.level }}"}}]
      - type: evaluate
        name: checks
        config: {checks: [{name: done, require: derivedData.execution.actions}]}
  reflect:
    substages:
      - {type: learn, name: learner, prompt: "Learn of {{ memory.feedbackHistory | json }}"}
      - {type: update-state, name: keep, config: {retention: {memory.recentActions: {maxItems: 3}}}}
      - type: capture-metrics
        name: count
        config: {trackCycleDuration: true, trackLLMTokens: true, trackAnomalyCount: true}
"""
NOTHING_LEARNED = '{"newPatterns": []}'


class World:
    """What the monitor looks at and acts on."""

    def __init__(self, rate=3):
        self.rate = rate
        self.looks = 0
        self.levels = []
        self.keys = []

    def look(self):
        self.looks += 1
        if isinstance(self.rate, Exception):
            raise self.rate
        return {"rate": self.rate}

    def think(self, state):
        if state["environmentalData"]["payload"].get("rate", 0) < 0:
            raise ValueError("a rate is at least 0")
        return {}

    def lower(self, level, idempotency_key=""):
        self.levels.append(level)
        self.keys.append(idempotency_key)
        return {"level": level}

    @property
    def functions(self):
        return {"look": self.look, "lower": self.lower, "think": self.think}


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = datetime(2026, 11, 22, 12, tzinfo=UTC)

    def __call__(self):
        return self.now

    def passes(self, **time):
        self.now += timedelta(**time)


def monitor(world=None, *, text=MONITOR, replies=None, **given):
    """The agent of a file; its model answers with `replies`, by default that it learned nothing."""
    source = AgentFile(text, "monitor.yaml")
    model = ScriptedModel(replies or (lambda request: NOTHING_LEARNED))
    return CycleAgent(
        parse_agent_file(source),
        functions=(world or World()).functions,
        models={"scripted": model},
        source=source,
        **given,
    )


def run(coroutine, seconds=20):
    """Run a coroutine with a time limit."""
    return asyncio.run(asyncio.wait_for(coroutine, seconds))


async def abandoned(store, trigger="manual", *, world=None, **given):
    """Run an agent until its model is asked, and cancel its cycle."""
    asked = asyncio.Event()

    async def answer(request):
        asked.set()
        await asyncio.Event().wait()

    async with monitor(world, storage=store, replies=answer, **given) as agent:
        cycle = asyncio.ensure_future(agent.run_cycle(trigger))
        await asked.wait()
        cycle.cancel()
        await asyncio.wait([cycle])


@asynccontextmanager
async def waiting_agent(world=None, hear=lambda event: None, **given):
    """Run an agent until it waits for a person; yield it and the task of its cycle, and cancel that."""
    waits = asyncio.Event()

    def on_event(event):
        if isinstance(event, CycleWaiting):
            hear(event)
            waits.set()

    async with monitor(world, on_event=on_event, **given) as agent:
        cycle = asyncio.ensure_future(agent.run_cycle())
        await waits.wait()
        yield agent, cycle
        cycle.cancel()
        await asyncio.wait([cycle])
