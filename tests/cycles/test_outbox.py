"""What an agent sends reaches people and other agents, whatever happens in between."""

import asyncio
import json
import logging
from datetime import timedelta

import pytest

from redraft.cycles import CycleAgent
from redraft.cycles import outbox as outbox_module
from redraft.cycles.agents import AgentHandle, undelivered_document
from redraft.cycles.notices import FAILURES, Failures
from redraft.cycles.records import CycleMetrics, CycleRecord
from redraft.cycles.spec import AgentSpec
from redraft.errors import StoreError
from redraft.stores.base import Record
from redraft.stores.sqlite import MemoryStore
from support.cycles import NOON, run
from support.http_server import of_json, serving
from support.monitor import Clock

ALERT = {"name": "tell", "type": "alert", "message": "cycle {{cycle}}", "severity": "critical"}


def spec_of(url, *, actions=(ALERT,), mode=None, name="teller", **notify_config):
    stages = {"actuate": [{"type": "execute", "name": "act", "config": {"actions": list(actions)}}]}
    if mode is not None:
        rules = {"rules": [{"action": action["name"], "reason": "why not"} for action in actions]}
        plan = {"type": "plan", "name": "plan", "config": rules}
        stages["reason"] = [plan, {"type": "authorize", "name": "ask", "config": mode}]
    notify = {"url": f"{url}/hook", **notify_config}
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


def delivered(server, status=200):
    """The delivered notices, in order: event, title and key."""
    return [
        (body["type"].removeprefix("agent."), body["data"]["title"], request.headers["webhook-id"])
        for request in server.requests
        for body in [json.loads(request.body)]
    ]


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (a poll, as a person would)
            await asyncio.sleep(0.01)


async def test_an_alert_is_sent_once_and_its_record_is_deleted_with_the_next_cycle(hook):
    store = MemoryStore()
    async with CycleAgent(spec_of(hook.url), storage=store) as agent:
        await agent.run_cycle()
        await agent.run_cycle()
        await agent.run_cycle()
    left = len(await store.find("notice"))
    assert [title for _, title, _ in delivered(hook)] == [
        "teller: cycle 1",
        "teller: cycle 2",
        "teller: cycle 3",
    ]
    assert len({key for _, _, key in delivered(hook)}) == 3
    assert left == 0
    assert json.loads(hook.requests[0].body)["data"]["severity"] == "critical"


async def test_a_refused_notice_is_sent_again_under_the_same_key(hook, caplog):
    hook.status = 503
    caplog.set_level(logging.INFO, "redraft")
    async with CycleAgent(spec_of(hook.url)) as agent:
        await agent.run_cycle()
        await until(lambda: len(hook.requests) >= 3)
        hook.status = 200
        count = len(hook.requests)
        await until(lambda: len(hook.requests) > count)
        await until(lambda: "after a retry" in caplog.text)
    assert len(set(delivered(hook))) == 1
    assert caplog.text.count("will retry") == 1


def test_the_next_process_delivers_undelivered_notices(hook):
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
    assert len(set(delivered(hook))) == 1


LOG = {"name": "log", "type": "log", "message": "nothing"}
FAILING = {"name": "work", "type": "function", "function": "work"}
OTHER = {"name": "also", "type": "function", "function": "also"}


def notices_of(server, *cycles, **options):
    """Run cycles at these minutes, which fail with these texts ("": not), each in a process of its own.

    Return which notices were sent: the minute, the event and the title.
    """
    clock, store, sent = Clock(), MemoryStore(), []

    def failing(text):
        def function():
            if text:
                raise RuntimeError(text)

        return function

    async def main():
        now = 0
        for minute, work, also in cycles:
            clock.passes(minutes=minute - now)
            now, count = minute, len(server.requests)
            functions = {"work": failing(work), "also": failing(also)}
            spec = spec_of(server.url, actions=[FAILING, OTHER], **options)
            async with CycleAgent(spec, functions=functions, storage=store, clock=clock) as agent:
                await agent.run_cycle()
            sent.extend((minute, event, title) for event, title, _ in delivered(server)[count:])

    run(main())
    return sent


def test_a_failure_is_reported_when_it_begins_and_when_it_has_ended(hook):
    cycles = [(0, "9 left", ""), (1, "8 left", ""), (90, "no answer", ""), (95, "", ""), (101, "", "")]
    assert notices_of(hook, *cycles, (110, "", ""), (111, "again", "")) == [
        (0, "failure", "teller: actuate/act/work: RuntimeError: 9 left"),
        (101, "recovery", "teller has recovered: actuate/act/work"),
        (111, "failure", "teller: actuate/act/work: RuntimeError: again"),
    ]


def test_a_failure_that_comes_and_goes_is_reported_once(hook):
    cycles = [(minute, "busy" * (minute % 3 == 0), "") for minute in range(40)]
    assert [event for _, event, _ in notices_of(hook, *cycles)] == ["failure"]


def test_an_agent_that_rarely_runs_reports_its_recovery_immediately(hook):
    day = 24 * 60
    cycles = [(0, "busy", ""), (day, "busy", ""), (2 * day, "", ""), (3 * day, "", "")]
    assert [(at // day, event) for at, event, _ in notices_of(hook, *cycles)] == [
        (0, "failure"),
        (2, "recovery"),
    ]


def test_another_failure_is_reported_while_the_first_goes_on(hook):
    cycles = [(0, "busy", ""), (1, "busy", "gone"), (2, "busy", "gone"), (13, "busy", ""), (30, "", "")]
    assert notices_of(hook, *cycles) == [
        (0, "failure", "teller: actuate/act/work: RuntimeError: busy"),
        (1, "failure", "teller: actuate/act/also: RuntimeError: gone"),
        (13, "recovery", "teller has recovered: actuate/act/also"),
        (30, "recovery", "teller has recovered: actuate/act/work"),
    ]


def test_a_failure_that_goes_on_is_reported_once_the_file_asks_for_it(hook):
    assert notices_of(hook, (0, "busy", ""), events=["alert"]) == []
    [(_, event, _)] = notices_of(hook, (0, "busy", ""), events=["failure"])
    assert event == "failure"


def test_a_failed_cycle_ends_no_failure_of_a_step_that_it_did_not_reach():
    failures, now = Failures("a"), NOON

    def reported(status, *failures_of_cycle):
        nonlocal now
        now += timedelta(hours=1)
        metrics = CycleMetrics(failures=failures_of_cycle)
        record = CycleRecord(1, now, "manual", status=status, metrics=metrics)
        return [notice.event for notice in failures.report(record, now)[0]]

    failures.load(None)
    assert reported("finished", "actuate/act/work: busy") == ["failure"]
    assert reported("failed", "sense: no file") == ["failure"]
    assert reported("finished") == ["recovery"]


def test_a_clock_that_was_set_back_does_not_prevent_a_recovery():
    failures = Failures("a")
    failures.load(Record(FAILURES, FAILURES, {"last": {"sense": "2999-01-01T00:00:00.000Z"}}))
    events = [
        [one.event for one in failures.report(CycleRecord(1, NOON, "manual", status="finished"), at)[0]]
        for at in (NOON, NOON + timedelta(minutes=10))
    ]
    assert events == [[], ["recovery"]]


CONTROLLED = {"mode": "controlled"}


async def test_the_notice_of_a_waiting_plan_has_its_page_and_deadline(hook, monkeypatch):
    monkeypatch.setenv("REDRAFT_DASHBOARD_URL", "https://redraft.example.org")
    events = []
    spec = spec_of(hook.url, mode={"mode": "supervised", "timeoutMs": 20_000, "default": "approve"})
    async with CycleAgent(spec, on_event=events.append) as agent:
        cycle = asyncio.create_task(agent.run_cycle())
        await until(lambda: hook.requests)
        await agent.send_feedback("approve")
        result = await cycle
    assert result.success
    body = json.loads(hook.requests[0].body)
    assert body["type"] == "agent.waiting"
    data = body["data"]
    assert data["title"] == "teller is waiting for you: tell"
    assert data["url"] == f"https://redraft.example.org/agents/teller?cycle={data['cycle_id']}#waiting"
    assert [one["action"] for one in data["details"]["plan"]] == ["tell"]
    assert data["details"]["default"] == "approve"
    assert data["details"]["waits_until"] is not None
    assert "- tell: why not" in data["text"]
    assert [event.url for event in events if type(event).__name__ == "CycleWaiting"] == [data["url"]]


async def test_no_notice_of_a_decided_plan_is_sent(hook):
    hook.status = 500
    store = MemoryStore()
    async with CycleAgent(spec_of(hook.url, mode=CONTROLLED, events=["waiting"]), storage=store) as agent:
        cycle = asyncio.create_task(agent.run_cycle())
        await until(lambda: hook.requests)
        await agent.send_feedback("reject")
        await cycle
        count = len(hook.requests)
        hook.status = 200
        await asyncio.sleep(0.3)
        later = len(hook.requests) - count
    assert later <= 1  # one may have been under way


async def test_a_resumed_wait_sends_no_second_notice(hook, project):
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
        result = await cycle
    assert result.success
    assert len(hook.requests) == 1


async def test_secrets_and_personal_data_are_withheld(hook):
    secret = "sk-" + "proj-" + "a1B2c3D4" * 5
    alert = {**ALERT, "message": f"key {secret} of jane.doe@acme-pumps.com"}
    async with CycleAgent(spec_of(hook.url, actions=[alert])) as agent:
        await agent.run_cycle()
    sent = hook.requests[0].body.decode()
    assert secret not in sent
    assert "jane.doe" not in sent


def test_undelivered_notices_go_to_the_current_address_of_the_file(hook):
    hook.status = 500
    store = MemoryStore()

    async def cycle(url):
        async with CycleAgent(spec_of(url), storage=store) as agent:
            await agent.run_cycle()

    async def once_more():
        async with CycleAgent(spec_of(hook.url), storage=store):
            await until(lambda: any("cycle 1" in title for _, title, _ in delivered(hook)))

    run(cycle(f"{hook.url}/other"))
    hook.status = 200
    run(once_more())
    assert len(delivered(hook)) == 1


async def test_a_file_without_a_webhook_drops_undelivered_notices(hook, caplog):
    hook.status = 500
    store, spec = MemoryStore(), spec_of(hook.url)
    async with CycleAgent(spec, storage=store) as agent:
        await agent.run_cycle()
    for _ in range(2):
        async with CycleAgent(spec.model_copy(update={"notify": None}), storage=store) as agent:
            await agent.run_cycle()
    assert await store.find("notice") == []
    assert caplog.text.count("drops 1 notice that an earlier process could not deliver") == 1


async def test_variables_of_the_webhook_that_are_not_set_are_named_at_the_start(caplog):
    sense = {"substages": [{"type": "agent-messages", "name": "mail"}]}
    notify = {"url": "{{env.NO_URL}}", "secret": "{{env.NO_KEY}}"}
    spec = {
        "name": "a",
        "env": ["NO_URL", "NO_KEY", "OTHER"],
        "notify": notify,
        "stages": {"sense": sense},
    }
    async with CycleAgent(AgentSpec.model_validate(spec), storage=MemoryStore()) as agent:
        await agent.run_cycle()
    assert "The agent 'a' can't notify people: not set in the environment: 'NO_URL', 'NO_KEY'." in caplog.text


LISTENER = {
    "triggers": [{"type": "message", "topic": "alerts"}],
    "stages": {
        "sense": {"substages": [{"type": "agent-messages", "name": "heard", "config": {"topic": "alerts"}}]}
    },
}


class FailingStore(MemoryStore):
    """A store that refuses messages while it `fails`."""

    fails = False

    async def put_if_absent(self, record):
        if self.fails:
            raise StoreError("the disk is full")
        return await super().put_if_absent(record)


def listener(name, store):
    return CycleAgent(AgentSpec.model_validate(LISTENER | {"name": name}), storage=store)


async def heard(agent):
    """The messages that a cycle of a listener takes."""
    result = await agent.run_cycle()
    return [one["data"]["message"] for one in result.state["environmentalData"]["payload"]["heard"]]


async def test_a_message_that_an_agent_could_not_receive_reaches_each_agent_once_and_in_order():
    broken = FailingStore()
    silent = spec_of("http://127.0.0.1:9").model_copy(update={"notify": None})
    async with (
        listener("first", MemoryStore()) as first,
        listener("second", broken) as second,
        listener("third", MemoryStore()) as third,
        CycleAgent(silent) as agent,
    ):
        broken.fails = True
        await agent.run_cycle()
        before = [await heard(first), await heard(third)]
        await first.run_cycle()
        broken.fails = False
        await agent.run_cycle()
        await until(lambda: not agent._sessions.current.outbox._waiting())
        after = [await heard(one) for one in (first, second, third)]
    assert before == [["cycle 1"], ["cycle 1"]]
    assert after == [["cycle 2"], ["cycle 1", "cycle 2"], ["cycle 2"]]


def test_older_and_damaged_records_do_not_stop_others(hook):
    notice = {
        "event": "alert",
        "agent": "teller",
        "cycle": 1,
        "title": "old",
        "text": "t",
        "timestamp": "2026",
    }
    records = [
        Record("notice", "a", {"key": "a", "data": {"event": "alert"}, "cycle": 1}),
        Record("notice", "b", {"key": "b", "data": notice, "attempts": 3, "due": "2999", "cycle": 1}),
        Record("notice", "c", {"key": "c", "data": notice, "is_over": True, "cycle": 1}),
        Record("outbox", "20261101T120000000000-00", {"topic": "alerts"}),
        Record(
            "outbox", "20261101T120000000001-00", {"topic": "alerts", "data": {"message": "m"}, "key": "k"}
        ),
    ]

    async def main():
        store = MemoryStore()
        await store.put_all(records)
        async with listener("hears", MemoryStore()) as other:
            for _ in range(2):
                async with CycleAgent(spec_of(hook.url, actions=[LOG]), storage=store) as agent:
                    await until(lambda agent=agent: not agent._sessions.current.outbox._waiting())
                    await agent.run_cycle()
            return await heard(other), [
                record.key for kind in ("notice", "outbox") for record in await store.find(kind)
            ]

    got, left = run(main())
    assert [(title, key) for _, title, key in delivered(hook)] == [("old", "b")]
    assert got == ["m"]
    assert left == ["a", "20261101T120000000000-00"]


async def test_a_queued_message_is_listed_with_the_notices(hook):
    broken, store = FailingStore(), MemoryStore()
    hook.status = 500
    async with listener("second", broken), CycleAgent(spec_of(hook.url), storage=store) as agent:
        broken.fails = True
        result = await agent.run_cycle()
        await until(lambda: hook.requests)
        assert result.state["derivedData"]["execution"]["actions"][0]["result"]["queued"]
    shown = [undelivered_document(one) for one in (await AgentHandle(agent._location).undelivered())]
    assert [(one["event"], one["cycle"], one["title"]) for one in shown] == [
        ("alert", 1, "teller: cycle 1"),
        ("message", None, "alerts"),
    ]
    assert "StoreError: the disk is full" in shown[1]["error"]
