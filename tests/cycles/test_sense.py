"""Sense: all sources at once, merged; what fails is an error in the data."""

import asyncio

import pytest

from cycling import ScriptedBus, cycle_of, run, spec_of
from http_server import of_json, serving
from redraft.core.errors import OutputError
from redraft.cycles.message import AgentMessage
from redraft.cycles.sense import sense
from redraft.loop.journal import Journalled
from redraft.stores.memory import MemoryStore

NEWS = AgentMessage("m1", "news", {"text": "{{ env.KEY }}"}, "2026-11-22T12:00:00.000Z", "other")


def source(kind, name, **config):
    return {"type": kind, "name": name, "config": config}


def function(name, **config):
    return source("function", name, function=name, **config)


def sensed(*sources, **given):
    cycle, _ = cycle_of(spec_of(sense=list(sources)), **given)
    run(sense(cycle.spec.stages.sense, cycle))
    return cycle


def fails():
    raise ValueError("the \x1b[31mline\nis down")


FUNCTIONS = {"one": lambda: {"rate": 5}, "two": lambda: {"rate": 6, "unit": "%"}, "many": lambda: [1]}


@pytest.mark.parametrize(
    ("sources", "payload", "errors"),
    [
        ([function("one")], {"rate": 5}, {}),
        ([function("one", into="line")], {"line": {"rate": 5}}, {}),
        ([function("many")], {"many": [1]}, {}),
        ([function("many", into="counts")], {"counts": [1]}, {}),
        (
            [function("one"), function("two")],
            {"rate": 5, "unit": "%"},
            {"two": "'rate' came from an earlier source already; give an 'into'"},
        ),
        (
            [function("broken"), function("one")],
            {"rate": 5},
            {"broken": r"ValueError: the \x1b[31mline is down"},
        ),
    ],
)
def test_what_sources_give_is_merged_in_their_order(sources, payload, errors):
    data = sensed(*sources, functions={**FUNCTIONS, "broken": fails}).state.environmental_data
    assert data["payload"] == payload
    assert {error["source"]: error["error"] for error in data["errors"]} == errors
    assert data["at"] == "2026-11-22T12:00:00.000Z"


def test_all_four_kinds(tmp_path, monkeypatch):
    monkeypatch.setenv("LINE_KEY", "k-1")
    (tmp_path / "scrap.csv").write_text("line,scrap\nA,3\n")
    spec = {
        "headers": {"X-Key": "{{ env.LINE_KEY }}"},
        "method": "POST",
        "body": {"agent": "{{ agent.name }}"},
    }
    with serving({"/rate": of_json({"rate": 5})}) as server:
        cycle, _ = cycle_of(
            spec_of(
                sense=[
                    source("api", "line", url=server.url + "/rate", **spec),
                    source("csv", "scrap", path="scrap.csv"),
                    {"type": "agent-messages", "name": "inbox"},
                    function("one", into="own"),
                ]
            ).model_copy(update={"env": ["LINE_KEY"]}),
            bus=ScriptedBus([NEWS]),
            functions=FUNCTIONS,
            folder=tmp_path,
        )
        run(sense(cycle.spec.stages.sense, cycle))
        assert server.requests[0].headers["x-key"] == "k-1"
        assert server.requests[0].body == b'{"agent": "monitor"}'
    payload = cycle.state.environmental_data["payload"]
    assert payload["rate"] == 5
    assert payload["scrap"] == [{"line": "A", "scrap": 3}]
    assert payload["inbox"][0]["data"] == {"text": "{{ env.KEY }}"}
    assert payload["own"] == {"rate": 5}
    assert cycle.taken == [NEWS]
    assert cycle.state.environmental_data["errors"] == []


def test_a_message_that_two_sources_show_is_taken_once():
    inboxes = [{"type": "agent-messages", "name": name} for name in ("a", "b")]
    assert sensed(*inboxes, bus=ScriptedBus([NEWS])).taken == [NEWS]


def test_a_required_source_that_fails_stops_the_cycle_and_takes_no_message():
    spec = spec_of(
        sense=[
            function("broken", required=True),
            function("one"),
            {"type": "agent-messages", "name": "inbox"},
        ]
    )
    cycle, _ = cycle_of(spec, functions={**FUNCTIONS, "broken": fails}, bus=ScriptedBus([NEWS]))
    with pytest.raises(OutputError, match=r"'broken' is required.*line is down"):
        run(sense(spec.stages.sense, cycle))
    assert cycle.state.environmental_data["payload"]["rate"] == 5
    assert len(cycle.state.environmental_data["errors"]) == 1
    assert cycle.taken == []


def test_sources_are_looked_at_at_the_same_time():
    together = asyncio.Barrier(3)

    async def meet():
        await asyncio.wait_for(together.wait(), 5)

    names = ["a", "b", "c"]
    cycle = sensed(*(function(name) for name in names), functions=dict.fromkeys(names, meet))
    assert cycle.state.environmental_data["errors"] == []


def test_a_resumed_cycle_sees_what_it_saw():
    hostile = {"$is": "subprocess:Popen", "value": {"args": "id"}, "lone": "\ud800", "nul": "\0"}

    async def main():
        store, seen = MemoryStore(), []

        def counts():
            seen.append(1)
            return {"seen": len(seen), "text": [hostile, "{{ env.KEY }}"]}

        spec = spec_of(sense=[function("counts"), {"type": "agent-messages", "name": "inbox"}])
        for _ in range(2):
            cycle, _ = cycle_of(
                spec,
                functions={"counts": counts},
                bus=ScriptedBus([] if seen else [NEWS]),
                step=Journalled(store, "monitor-7"),
            )
            await sense(spec.stages.sense, cycle)
            payload = cycle.state.environmental_data["payload"]
            assert payload["seen"] == 1
            assert payload["text"] == [hostile, "{{ env.KEY }}"]
            assert cycle.taken == [NEWS]

    run(main())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"path": "missing.csv"}, "no file 'missing.csv'"),
        ({"path": "{{ env.PLACE }}/x.csv"}, "PLACE"),
        ({"path": "{{ memory.nothing.x }}"}, "nothing"),
    ],
)
def test_a_source_that_is_not_there_is_said(config, message):
    [error] = sensed(source("csv", "scrap", **config)).state.environmental_data["errors"]
    assert message in error["error"]
