"""What an agent tells people reaches them, whatever happens in between."""

import asyncio
import json
import logging

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles import outbox as outbox_module
from redraft.cycles.spec import AgentSpec
from redraft.stores.memory import MemoryStore
from support.cycles import run
from support.http_server import of_json, serving
from support.monitor import Clock

ALERT = {"name": "tell", "type": "alert", "message": "cycle {{cycle}}", "severity": "critical"}


def spec_of(url, *, actions=(ALERT,), mode=None, name="teller", **told):
    stages = {"actuate": [{"type": "execute", "name": "act", "config": {"actions": list(actions)}}]}
    if mode is not None:
        rules = {"rules": [{"action": one["name"], "reason": "why not"} for one in actions]}
        plan = {"type": "plan", "name": "plan", "config": rules}
        stages["reason"] = [plan, {"type": "authorize", "name": "ask", "config": mode}]
    notify = [{"type": "webhook", "url": f"{url}/hook", **told}]
    parts = {stage: {"substages": parts} for stage, parts in stages.items()}
    return AgentSpec.model_validate({"name": name, "notify": notify, "stages": parts})


@pytest.fixture
def hook():
    """A server whose `/hook` takes what it is sent, unless `status` says otherwise."""

    def answer(handler):
        handler.reply(*of_json({}, handler.server.status))

    with serving({"/hook": answer}) as server:
        server.status = 200
        yield server


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(outbox_module, "MIN_RETRY", 0.05)


def told(server, status=200):
    """Return what was told: event, title and cycle, in order; each with its key."""
    return [
        (body["type"].removeprefix("agent."), body["data"]["title"], request.headers["webhook-id"])
        for request in server.requests
        for body in [json.loads(request.body)]
    ]


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 (a poll, as a person would)
            await asyncio.sleep(0.01)


def test_an_alert_is_told_once_and_the_record_goes_with_the_next_cycle(hook):
    store = MemoryStore()

    async def main():
        async with CycleAgent(spec_of(hook.url), storage=store) as agent:
            await agent.run_cycle()
            await agent.run_cycle()
            await agent.run_cycle()
        return len(await store.find("notice"))

    left = run(main())
    assert [title for _, title, _ in told(hook)] == ["teller: cycle 1", "teller: cycle 2", "teller: cycle 3"]
    assert len({key for _, _, key in told(hook)}) == 3
    assert left == 0
    assert json.loads(hook.requests[0].body)["data"]["severity"] == "critical"


def test_what_is_refused_is_told_again_under_the_same_key(hook, caplog):
    hook.status = 503
    caplog.set_level(logging.INFO, "redraft")

    async def main():
        async with CycleAgent(spec_of(hook.url)) as agent:
            await agent.run_cycle()
            await until(lambda: len(hook.requests) >= 3)
            hook.status = 200
            count = len(hook.requests)
            await until(lambda: len(hook.requests) > count)
            await until(lambda: "after a retry" in caplog.text)

    run(main())
    assert len(set(told(hook))) == 1
    assert caplog.text.count("will retry") == 1


def test_what_was_not_delivered_is_delivered_by_the_next_process(hook):
    hook.status = 500
    store = MemoryStore()

    async def first():
        async with CycleAgent(spec_of(hook.url), storage=store) as agent:
            await agent.run_cycle()

    async def second():
        async with CycleAgent(spec_of(hook.url), storage=store):
            await until(lambda: len(hook.requests) > failed)

    run(first())
    failed = len(hook.requests)
    assert failed >= 1
    hook.status = 200
    run(second())
    assert len(set(told(hook))) == 1


def test_a_limit_postpones_what_is_beyond_it(hook):
    store = MemoryStore()
    spec = spec_of(hook.url, limit={"maxRuns": 1, "perMs": 3_600_000})

    async def main():
        async with CycleAgent(spec, storage=store) as agent:
            await agent.run_cycle()
            await agent.run_cycle()
        [kept] = [one.data for one in await store.find("notice") if not one.data.get("is_over")]
        return kept

    kept = run(main())
    assert [title for _, title, _ in told(hook)] == ["teller: cycle 1"]
    assert "the limit of" in kept["error"]


def test_equal_failures_are_told_once_an_hour(hook):
    clock, store = Clock(), MemoryStore()
    failing = {"name": "work", "type": "function", "function": "work"}

    def work():
        raise RuntimeError(message)

    async def main():
        nonlocal message
        async with CycleAgent(
            spec_of(hook.url, actions=[failing]), functions={"work": work}, storage=store, clock=clock
        ) as agent:
            for minutes, text in ((0, "9 left"), (1, "8 left"), (1, "none left"), (61, "7 left")):
                message = text
                clock.passes(minutes=minutes)
                await agent.run_cycle()
                await agent._sessions.current.outbox.aclose()  # until it is told

    message = ""
    run(main())
    assert [title.rpartition(": ")[2] for _, title, _ in told(hook)] == ["9 left", "none left", "7 left"]


CONTROLLED = {"mode": "controlled"}


def test_a_plan_that_waits_is_told_with_its_page_and_deadline(hook, monkeypatch):
    monkeypatch.setenv("REDRAFT_DASHBOARD_URL", "https://redraft.example.org")
    events = []

    async def main():
        spec = spec_of(hook.url, mode={"mode": "supervised", "timeoutMs": 20_000, "default": "approve"})
        async with CycleAgent(spec, on_event=events.append) as agent:
            cycle = asyncio.create_task(agent.run_cycle())
            await until(lambda: hook.requests)
            await agent.send_feedback("approve")
            return await cycle

    assert run(main()).success
    body = json.loads(hook.requests[0].body)
    assert body["type"] == "agent.waiting"
    data = body["data"]
    assert data["title"] == "teller is waiting for you: tell"
    assert data["url"] == "https://redraft.example.org/agents/teller?cycle=1#waiting"
    assert [one["action"] for one in data["details"]["plan"]] == ["tell"]
    assert data["details"]["default"] == "approve"
    assert data["details"]["waits_until"] is not None
    assert "- tell: why not" in data["text"]
    assert [one.url for one in events if type(one).__name__ == "CycleWaiting"] == [data["url"]]


def test_a_plan_that_was_decided_on_is_not_told_any_more(hook):
    hook.status = 500
    store = MemoryStore()

    async def main():
        async with CycleAgent(spec_of(hook.url, mode=CONTROLLED, events=["waiting"]), storage=store) as agent:
            cycle = asyncio.create_task(agent.run_cycle())
            await until(lambda: hook.requests)
            await agent.send_feedback("reject")
            await cycle
            count = len(hook.requests)
            hook.status = 200
            await asyncio.sleep(0.3)
            return len(hook.requests) - count

    assert run(main()) <= 1  # one may have been under way


def test_a_resumed_wait_is_not_told_again(hook, project):
    async def main():
        spec = spec_of(hook.url, mode=CONTROLLED, events=["waiting"])
        async with CycleAgent(spec, storage="project") as agent:
            cycle = asyncio.create_task(agent.run_cycle())
            await until(lambda: hook.requests)
            cycle.cancel()
            await asyncio.wait([cycle])
        async with CycleAgent(spec, storage="project") as agent:
            cycle = asyncio.create_task(agent.run_cycle())
            await asyncio.sleep(0.3)
            await agent.send_feedback("approve")
            return await cycle

    assert run(main()).success
    assert len(hook.requests) == 1


def test_secrets_and_personal_data_are_withheld(hook):
    secret = "sk-" + "proj-" + "a1B2c3D4" * 5
    alert = {**ALERT, "message": f"key {secret} of jane.doe@acme-pumps.com"}

    async def main():
        async with CycleAgent(spec_of(hook.url, actions=[alert])) as agent:
            await agent.run_cycle()

    run(main())
    sent = hook.requests[0].body.decode()
    assert secret not in sent
    assert "jane.doe" not in sent


def test_a_channel_that_is_gone_from_the_file_is_said(hook, caplog):
    hook.status = 500
    store = MemoryStore()

    async def cycle(url):
        async with CycleAgent(spec_of(url, events=["alert"]), storage=store) as agent:
            await agent.run_cycle()

    run(cycle(hook.url))
    run(cycle(f"{hook.url}/other"))
    assert "its file no longer has that channel" in caplog.text
