import json
import os
from pathlib import Path

import pytest

from redraft._steps import answer
from redraft.cycles import journal
from redraft.cycles.agents import Agents, spent_document, spent_text
from redraft.cycles.journal import trace_record
from redraft.errors import ModelError
from redraft.models.testing import ScriptedModel
from redraft.protocols import ChatReply, ChatRequest, Message
from redraft.stores.run_index import Totals
from redraft.stores.sqlite import MemoryStore, SqliteStore
from redraft.types import TokenUsage
from support.commands import document, redraft
from support.kept_agents import project, ran_cycles, visited  # noqa: F401 (a fixture)
from support.monitor import MONITOR, NOTHING_LEARNED, World, monitor, run


async def traced(agent, number):
    async with await Agents().get(agent) as handle:
        return await handle.trace(number)


def said(found):
    """The step, the last message and the reply of each call."""
    return [(call.step, call.exchange.request[-1].text, call.exchange.reply[0].text) for call in found.calls]


@pytest.mark.parametrize("storage", ["process", "memory", "sqlite"])
async def test_a_cycle_keeps_the_prompts_and_replies_of_its_model_calls(tmp_path, storage):
    stores = {"process": None, "memory": MemoryStore(), "sqlite": SqliteStore(tmp_path / "a.db")}
    async with monitor(storage=stores[storage]) as agent:
        await agent.run_cycle()
        await agent.send_feedback("approve", "well done")
        await agent.run_cycle()
        first, second, none = [await traced("monitor", number) for number in (1, 2, 3)]
    assert said(first) == [("reflect/learner", "Learn of []", NOTHING_LEARNED)]
    assert "well done" in said(second)[0][1]
    assert (none.number, none.calls) == (3, ())
    assert first.calls[0].exchange.usage.requests == 1


async def test_a_call_that_failed_is_in_the_trace_with_its_error():
    def fails(request):
        raise ModelError("it is down")

    async with monitor(replies=fails, storage=MemoryStore()) as agent:
        result = await agent.run_cycle()
        found = await traced("monitor", 1)
    assert result.status == "failed"
    assert all("it is down" in reply for _, _, reply in said(found))
    assert found.calls


SCHEMA = "{type: object, properties: {newPatterns: {type: array}}}"


async def test_a_second_attempt_is_in_the_trace():
    replies = iter(["no JSON", NOTHING_LEARNED])
    text = MONITOR.replace('json }}"}', f'json }}}}", outputSchema: {SCHEMA}}}', 1)
    async with monitor(text=text, replies=lambda request: next(replies), storage=MemoryStore()) as agent:
        await agent.run_cycle()
        found = await traced("monitor", 1)
    assert [reply for _, _, reply in said(found)] == ["no JSON", NOTHING_LEARNED]
    assert "can't be used" in said(found)[1][1]


async def test_a_resumed_cycle_has_the_calls_of_the_process_that_was_killed():
    store = MemoryStore()

    class Killed(BaseException):
        pass

    def dies(event):
        if getattr(event, "substage", "") == "learner":
            raise Killed

    agent = monitor(storage=store, on_event=dies)
    with pytest.raises(Killed):
        await agent.run_cycle()
    await agent.aclose()
    async with monitor(storage=store, replies=["never asked"]) as agent:
        result = await agent.run_cycle()
        found = await traced("monitor", 1)
    assert result.number == 1
    assert said(found) == [("reflect/learner", "Learn of []", NOTHING_LEARNED)]


async def test_secrets_are_withheld_before_anything_is_stored():
    secret = "sk-" + os.urandom(24).hex()  # made here, so that no scanner finds one
    store = MemoryStore()
    async with monitor(replies=lambda request: json.dumps({"insights": [secret]}), storage=store) as agent:
        await agent.run_cycle()
        await agent.send_feedback("reject", "fine")
        [record] = await store.find("trace")
    assert secret not in json.dumps(dict(record.data))
    assert "Learn of" in json.dumps(dict(record.data))


def test_only_the_newest_traces_are_stored(monkeypatch):
    monkeypatch.setattr(journal, "MAX_TRACES", 3)
    store = MemoryStore()

    async def main():
        async with monitor(storage=store) as agent:
            for _ in range(5):
                await agent.run_cycle()
            return [len((await traced("monitor", number)).calls) for number in range(1, 6)]

    assert run(main()) == [0, 0, 1, 1, 1]
    assert len(run(store.find("trace"))) == 3


def call(text):
    return {"step": "reason/plan", "name": "model 1", "given": [text], "began": 1.0, "elapsed": 2.0}


def test_a_trace_is_bounded(monkeypatch):
    monkeypatch.setattr(journal, "MAX_TRACE", 1_000)
    record = trace_record(7, [call("a" * 500), call("b" * 5_000), call("c" * 100)])
    assert [one["given"][0][0] for one in record.data["calls"]] == ["a", "c"]
    assert record.data["left_out"] == 1


@pytest.mark.parametrize("storage", [None, MemoryStore()], ids=["process", "store"])
async def test_what_a_function_asks_a_model_is_in_the_trace(storage):
    class Asking(World):
        async def look(self):
            reply = await answer(ScriptedModel(["inside"]), ChatRequest((Message("user", "outside?"),)))
            return {"rate": len(reply.text)}

    async with monitor(Asking(), storage=storage) as agent:
        await agent.run_cycle()
        trace = await traced("monitor", 1)
    assert said(trace)[0] == ("sense", "outside?", "inside")


def test_the_command_and_the_page_show_them(project):  # noqa: F811 (the fixture)
    def reply(request):
        return ChatReply(NOTHING_LEARNED, usage=TokenUsage(1_000, 50, requests=1, cost_usd=0.25))

    async def main():
        await ran_cycles(2, replies=reply)
        async with visited() as client:
            page = await client.get("/agents/monitor?cycle=1")
            agents = await client.get("/agents")
            data = (await client.get("/agents/monitor.json?cycle=1")).json()
        return page.text, agents.text, data

    page, agents, data = run(main())
    assert "prompts and replies" in page
    assert "Learn of []" in page
    assert "its stored cycles used $0.5000, 2,100 tokens" in page
    assert "$0.5000, 2,100 tokens" in agents
    assert data["trace"]["calls"][0]["step"] == "reflect/learner"
    assert data["spent"] == {"cycles": 2, "tokens": 2_100, "cost_usd": 0.5, "cycles_of_unknown_cost": 0}
    Path("redraft.toml").touch()
    output = redraft("cycle", "trace", "monitor").stdout
    assert output.splitlines()[1].startswith("reflect/learner: model, ")
    assert "--- user\nLearn of []\n=== reply\n" in output
    found = document(redraft("cycle", "trace", "monitor", "--cycle", 1, "--json"))
    assert (found["agent"], found["cycle"], found["left_out"]) == ("monitor", 1, 0)
    assert found["calls"][0]["reply"] == [{"role": "assistant", "text": NOTHING_LEARNED}]
    missing = redraft("cycle", "trace", "monitor", "--cycle", 9)
    assert (missing.exit_code, "has no cycle 9" in missing.stderr) == (2, True)
    assert "$0.5000, 2,100 tokens" in redraft("cycle", "status").stdout
    assert document(redraft("cycle", "status", "--json"))["agents"][0]["spent"]["cost_usd"] == 0.5


@pytest.mark.parametrize(
    ("totals", "text"),
    [
        (Totals(), ""),
        (Totals(runs=2, input_tokens=1_000, unknown=2), "cost unknown, 1,000 tokens"),
        (Totals(runs=2, input_tokens=10, cost_usd=0.5, unknown=1), "$0.5000+, 10 tokens"),
        (Totals(runs=2, input_tokens=10, cost_usd=0.0), "$0.0000, 10 tokens"),
    ],
)
def test_an_unknown_cost_is_not_zero(totals, text):
    assert spent_text(spent_document(totals)) == text
