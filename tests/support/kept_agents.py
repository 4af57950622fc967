"""Agents that have run in a project, for the tests of pages and commands."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import httpx2 as httpx
import pytest

from redraft.cycles import storage as places
from redraft.dashboard import dashboard
from redraft.web.project import Project
from support.monitor import MONITOR, World, monitor, waiting_agent

CONTROLLED = MONITOR.replace(
    "  actuate:",
    "      - {type: authorize, name: ok, config: {mode: controlled}}\n  actuate:",
    1,
).replace(
    '[{action: lower, params: {level: 1}, reason: "as always"}]',
    '[{action: lower, params: {level: 1}, reason: "it is high"}, {action: lower, params: {level: 7}}]',
)
"""An agent that waits for a person with a plan of two actions."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project that stores its agents, without those of other tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    monkeypatch.setattr(places, "_in_process", WeakValueDictionary())
    monkeypatch.setattr(places, "_project_stores", {})
    return tmp_path


def learning(cycle):
    """Return what the model learns in a cycle; the fourth deprecates what the first one learned."""
    new = {"description": _description(cycle), "type": "drift", "confidence": 0.5}
    found = {"newPatterns": [new], "reinforcedPatterns": [_description(cycle - 1)]}
    return json.dumps(found | ({"deprecatedPatterns": [_description(1)]} if cycle == 4 else {}))


def _description(cycle):
    return (
        f"{['Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday'][cycle % 5]} has press {cycle * 37} idle"
    )


async def ran_cycles(cycles, name="monitor", *, world=None, text=MONITOR, replies=None, storage="project"):
    """Run an agent of this project for that many cycles."""
    count = iter(range(1, 1_000))
    replies = replies or (lambda request: learning(next(count)))
    named = text.replace("name: monitor", f"name: {json.dumps(name)}", 1)
    async with monitor(world, text=named, storage=storage, replies=replies) as agent:
        for _ in range(cycles):
            await agent.run_cycle()


@asynccontextmanager
async def waiting(name="controlled", world=None):
    """Run an agent until it waits for a person; yield the task of its cycle."""
    text = CONTROLLED.replace("name: monitor", f"name: {name}", 1)
    async with waiting_agent(world or World(9), text=text, storage="project") as (_, cycle):
        await asyncio.sleep(0.05)
        yield cycle


@asynccontextmanager
async def visited():
    """Yield a client of the project's pages, in the event loop of the agents."""
    project = Project.here()
    transport = httpx.ASGITransport(app=dashboard(project), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://pages") as client:
        yield client
    await project.store.aclose()
    for store in places._project_stores.values():
        await store.aclose()
