import asyncio
import os
from dataclasses import replace

import pytest

from redraft.cycles.egress import Egress
from redraft.cycles.mail import AgentMessage
from redraft.cycles.sense import read_csv, sense
from redraft.errors import LeaseError, OutputError
from redraft.stores.sqlite import MemoryStore
from support.cycles import ScriptedBus, begun, cycle_of, run, spec_of, unsaved
from support.http_server import of_json, serving

NEWS = AgentMessage("m1", "news", {"text": "{{ env.KEY }}"}, "2026-11-22T12:00:00.000Z", "other")


def source(kind, name, **config):
    return {"type": kind, "name": name, "config": config}


def function(name, **config):
    return source("function", name, function=name, **config)


def sensed(*sources, **options):
    cycle, _ = cycle_of(spec_of(sense=list(sources)), **options)
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
            {"two": "'rate' was already set by an earlier source; give this one an 'into'"},
        ),
        (
            [function("broken"), function("one")],
            {"rate": 5},
            {"broken": r"ValueError: the \x1b[31mline is down"},
        ),
    ],
)
def test_sources_are_merged_in_order(sources, payload, errors):
    data = sensed(*sources, functions={**FUNCTIONS, "broken": fails}).state.environmental_data
    assert data["payload"] == payload
    assert {error["source"]: error["error"] for error in data["errors"]} == errors
    assert data["at"] == "2026-11-22T12:00:00.000Z"


def test_all_source_types(tmp_path, monkeypatch):
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


def test_a_source_with_side_effects_is_read_once_under_its_key_and_within_its_limit():
    store, hourly = MemoryStore(), {"maxRuns": 1, "perMs": 3_600_000}
    with serving({"/claim": of_json({"job": 7}), "/look": of_json({"rate": 5})}) as server:
        spec = spec_of(
            sense=[
                source("api", "claim", url=server.url + "/claim", method="POST", limit=hourly),
                source("api", "look", url=server.url + "/look"),
            ]
        )

        def resumed(**more):
            cycle, _ = cycle_of(spec, step=begun(store, "cycle-7", **more))
            run(sense(spec.stages.sense, cycle))
            return cycle

        cycle = resumed()
        assert resumed(resumes=True).state.environmental_data == cycle.state.environmental_data
        assert cycle.state.environmental_data["payload"] == {"job": 7, "rate": 5}
        assert [request.path for request in server.requests] == ["/look", "/claim"]
        keys = [request.headers["idempotency-key"] for request in server.requests]
        assert keys == [None, cycle.idempotency_key("sense/claim")]

        later, _ = cycle_of(spec)
        later.id, later.runtime = "8", cycle.runtime
        run(sense(spec.stages.sense, later))
        [error] = later.state.environmental_data["errors"]
        assert error["source"] == "claim"
        assert error["error"].startswith("the limit of 'sense/claim' is reached")


def test_no_source_with_side_effects_is_read_once_another_process_runs_the_agent():
    async def lost():
        raise LeaseError("another process")

    with serving({}) as server:
        spec = spec_of(sense=[source("api", "claim", url=server.url, method="POST")])
        cycle, _ = cycle_of(spec)
        cycle.runtime = replace(cycle.runtime, egress=Egress(lost, cycle.runtime.clock, unsaved))
        with pytest.raises(LeaseError):
            run(sense(spec.stages.sense, cycle))
        assert server.requests == []


def test_a_message_in_two_sources_is_taken_once():
    inboxes = [{"type": "agent-messages", "name": name} for name in ("a", "b")]
    assert sensed(*inboxes, bus=ScriptedBus([NEWS])).taken == [NEWS]


def test_a_failed_required_source_takes_no_messages():
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


def test_sources_are_read_concurrently():
    together = asyncio.Barrier(3)

    async def meet():
        await asyncio.wait_for(together.wait(), 60)

    names = ["a", "b", "c"]
    cycle = sensed(*(function(name) for name in names), functions=dict.fromkeys(names, meet))
    assert cycle.state.environmental_data["errors"] == []


async def test_a_resumed_cycle_reuses_its_readings():
    hostile = {"$is": "subprocess:Popen", "value": {"args": "id"}, "lone": "\ud800", "nul": "\0"}
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
            step=begun(store, "monitor-7"),
        )
        await sense(spec.stages.sense, cycle)
        payload = cycle.state.environmental_data["payload"]
        assert payload["seen"] == 1
        assert payload["text"] == [hostile, "{{ env.KEY }}"]
        assert cycle.taken == [NEWS]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"path": "missing.csv"}, "no file 'missing.csv'"),
        ({"path": "{{ env.PLACE }}/x.csv"}, "PLACE"),
        ({"path": "{{ memory.nothing.x }}"}, "nothing"),
    ],
)
def test_a_missing_source_is_an_error_in_the_data(config, message):
    [error] = sensed(source("csv", "scrap", **config)).state.environmental_data["errors"]
    assert message in error["error"]


def read(folder, content, **options):
    path = folder / "rates.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_csv(path, **options)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("0", 0),
        ("2.50", 2.5),
        ("1e3", 1000.0),
        (" 7 ", 7),
        ("", None),
        ("  ", None),
        ("007", "007"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("NaN", "NaN"),
        ("inf", "inf"),
        ("1e999", "1e999"),
        ("٣", "٣"),
        ("1234567890123456789012", "1234567890123456789012"),
        ("true", "true"),
        ("=cmd()", "=cmd()"),
        ("{{ env.KEY }}", "{{ env.KEY }}"),
        ('"a, ""b""\nc"', 'a, "b"\nc'),
    ],
)
def test_csv_cells(tmp_path, cell, value):
    [row] = read(tmp_path, f"name,rate\nx,{cell}\n")
    assert row == {"name": "x", "rate": value}
    assert type(row["rate"]) is type(value)


@pytest.mark.parametrize(
    ("content", "options", "rows"),
    [
        ("a,b\r\n1,2\r\n\r\n3,4", {}, [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
        ("\ufeffa;b\n1;2\n", {"delimiter": ";"}, [{"a": 1, "b": 2}]),
        ("a\n1\n2\n3\n", {"last": 2}, [{"a": 2}, {"a": 3}]),
        ("a\n", {}, []),
        (" a , b \n1,2\n", {}, [{"a": 1, "b": 2}]),
    ],
)
def test_csv_rows(tmp_path, content, options, rows):
    assert read(tmp_path, content, **options) == rows


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 0: expected a header line"),
        ("\n", "line 1: expected a header line"),
        ("a,,c\n", "line 1: column 2 has no name"),
        ("a,b,a\n", "line 1: two columns are named 'a'"),
        ("a,b\n1,2\n3\n", "line 3: expected 2 cells, got 1"),
        ("a,b\n1,2,3\n", "line 2: expected 2 cells, got 3"),
        ('a,b\n1,"2\n3\n', "line 3: unexpected end of data"),
        ('a,b\n"1"x,2\n', "line 2: ',' expected after '\"'"),
        (b"a,b\n1,\xff\n", "line 2: 'utf-8' codec"),
        ("a\n1\n".encode("utf-16"), "line 1: 'utf-8' codec"),
        ("a,b\n1," + "x" * 200_000 + "\n", "line 2: field larger than field limit"),
        ("a\n" + "1\n" * 100_001, "line 100002: more than 100,000 rows"),
    ],
)
def test_a_malformed_csv_names_file_and_line(tmp_path, content, message):
    with pytest.raises(OutputError, match="^'rates.csv', " + message):
        read(tmp_path, content)


def test_the_last_rows_of_a_long_csv(tmp_path):
    assert len(read(tmp_path, "a\n" + "1\n" * 150_000, last=10)) == 10


def test_a_missing_csv_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing.csv", "pipe", "."):
        with pytest.raises(OutputError, match="There is no file"):
            read_csv(tmp_path / name)
    with (tmp_path / "huge.csv").open("wb") as file:
        file.truncate(200_000_001)
    with pytest.raises(OutputError, match="200,000,001 bytes"):
        read_csv(tmp_path / "huge.csv")
