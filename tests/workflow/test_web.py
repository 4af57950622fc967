"""Workflows in the dashboard: their rows among the runs, and the page of each."""

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape

import pytest

from redraft import MemoryStore
from redraft._codec import to_record
from redraft.history import runs_page
from redraft.loop.record import Process
from redraft.stores.base import Record
from redraft.stores.sqlite import SqliteStore
from redraft.web.page import PageRequest
from redraft.web.project import Project
from redraft.workflow import Workflow
from redraft.workflow.history import LAUNCH, Launch, WorkflowRecord
from redraft.workflow.web import SLICE
from support.dashboards import HOSTILE, Seen, described, pages, put
from support.kept_workflows import kept


def test_the_page_of_runs_lists_a_workflow_above_its_loops():
    client = pages(kept("w"))
    seen = Seen(client.get("/runs").text)
    assert "Workflow two nodes" in seen.words
    assert "3 nodes" in seen.words
    assert "/workflows/w" in seen.links
    loop, flow = client.get("/runs.json").json()["runs"]
    assert (flow["kind"], flow["name"], flow["status"], flow["nodes"]) == (
        "workflow",
        "two nodes",
        "finished",
        3,
    )
    assert (loop["kind"], loop["parent"]) == ("run", "w")


@pytest.mark.parametrize(
    ("query", "kinds"),
    [
        ("", {"run", "workflow"}),
        ("?status=finished", {"run", "workflow"}),
        ("?status=failed", set()),
        ("?name=two+nodes", {"run", "workflow"}),
        ("?name=another", set()),
        ("?reason=quality_met", {"run"}),
    ],
)
def test_filters_apply_to_workflows(query, kinds):
    found = pages(kept("w")).get(f"/runs.json{query}").json()["runs"]
    assert {row["kind"] for row in found} == kinds


@pytest.mark.parametrize("query", ["?inner=1", "?name=two+nodes", "?status=finished"])
def test_paging_shows_each_row_once(tmp_path, monkeypatch, query):
    monkeypatch.setattr("redraft.history.runs_page.MOST", 3)
    store = kept(*(f"w{number}" for number in range(4)), store=SqliteStore(tmp_path / "r.db"))
    client, seen, older = pages(store), [], ""
    while older is not None:
        answer = client.get(f"/runs.json{query}&before={older}").json()
        seen += [row["run_id"] for row in answer["runs"]]
        older = answer["older"]
    assert len(seen) == 8
    assert [run_id for run_id in seen if "." not in run_id] == ["w3", "w2", "w1", "w0"]
    assert [run_id.partition(".")[0] for run_id in seen] == [
        f"w{number}" for number in (3, 3, 2, 2, 1, 1, 0, 0)
    ]
    asyncio.run(store.aclose())


def test_the_page_shows_nodes_loops_and_values():
    client = pages(kept("w", inputs={"who": "Ada"}))
    page = client.get("/workflows/w").text
    seen = Seen(page)
    for words in ("Workflow two nodes", "✓ valid", "after 2 attempts", "✗ RuntimeError: the disk is full"):
        assert words in seen.words
    for words in ('"who": "Ada"', "it worked", '"last": "it worked"', "quality_met"):
        assert words in seen.words
    (loop,) = [row["run_id"] for row in client.get("/runs.json?reason=quality_met").json()["runs"]]
    assert f"/runs/{loop}" in seen.links
    assert '<a href="/runs" aria-current="page">Runs</a>' in page
    assert "/workflows/w" in Seen(client.get(f"/runs/{loop}").text).links


def test_the_json_page_has_inputs_and_nodes():
    document = pages(kept("w", inputs={"who": "Ada"})).get("/workflows/w.json").json()
    assert (document["kind"], document["inputs"], document["status"]) == (
        "workflow",
        {"who": "Ada"},
        "finished",
    )
    assert [node["node"] for node in document["nodes"]] == ["draft", "shaky", "use"]
    assert [node["error"] for node in document["nodes"]] == ["", "RuntimeError: the disk is full", ""]
    assert [len(node["runs"]) for node in document["nodes"]] == [1, 0, 0]
    assert document["graph"].startswith("flowchart")
    assert document["graph"] in unescape(pages(kept("w")).get("/workflows/w").text)


def test_failed_workflows_show_the_error():
    words = Seen(pages(kept("w", failing=2)).get("/workflows/w").text).words
    assert "RuntimeError: the disk is full" in words


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/workflows/unknown", 404, "There is no workflow &#39;unknown&#39; here"),
        ("/workflows/a-run", 404, "There is no workflow"),
        ("/workflows/unknown.json", 404, "There is no workflow"),
        ("/runs?before=unknown", 404, "Can&#39;t page from the run"),
    ],
)
def test_missing_workflows_are_reported(path, status, message):
    store = MemoryStore()
    put(store, described("a-run"))
    answer = pages(store).get(path)
    assert (answer.status_code, message in answer.text) == (status, True), answer.text


def test_the_page_of_a_record_of_another_schema_answers_503():
    store = kept("w")
    asyncio.run(store.put(Record("workflow", "w", {"name": 3})))
    assert pages(store).get("/workflows/w").status_code == 503


async def put_everywhere(store, text):
    """Put a text into every field of a stored workflow that may hold one."""
    flow = await store.get("workflow", "w")
    fields = {"name": text, "file": text, "inputs": {text: text}, "state": {text: text}, "error": text}
    await store.put(replace(flow, data={**flow.data, **fields}))
    for step in await store.find("step", prefix="w/"):
        if "/" not in step.key.removeprefix("w/"):
            error = {"type": text, "message": text} if step.data.get("error") else None
            result = None if error else {"value": {"valid": text, text: text}}
            fields = {"name": f"node {text}", "result": result, "error": error}
            await store.put(replace(step, data={**step.data, **fields}))


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_of_a_workflow_are_escaped(text):
    store = kept("w")
    asyncio.run(put_everywhere(store, text))
    client = pages(store)
    for path in ("/runs", "/workflows/w"):
        answer = client.get(path)
        assert answer.status_code == 200
        seen = Seen(answer.text)
        assert {"script", "style", "iframe", "img"} & seen.tags <= {"script"}
        assert answer.text.count("<script") == 1  # ours
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
        assert not any(ord(char) < 32 and char not in "\n\t" for char in answer.text)
        assert client.get(f"{path}.json").json()


def test_secrets_are_withheld(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    client = pages(kept("w", inputs={"x": f"say {secret}"}, gave=f"{secret} it was"))
    for path in ("/workflows/w", "/workflows/w.json"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text


def test_fingerprints_change_until_the_process_is_gone():
    async def main():
        store = MemoryStore()
        project = Project(store, "a store")
        record = {
            "run_id": "w",
            "name": "slow",
            "file": "slow.yaml",
            "inputs": {},
            "started_at": "2026-11-22T03:45:00+00:00",
            "status": "running",
        }
        await store.put(Record("workflow", "w", record))
        await store.put(Record(LAUNCH, "w", to_record(Launch(("run",), "/", Process.this()))))
        page, table = PageRequest(project, {"run_id": "w"}, {}), PageRequest(project, {}, {})

        async def marks():
            return await SLICE.pages[0].fingerprint(page), await runs_page.PAGE.fingerprint(table)

        seen = [await marks()]
        step = {"name": "node one", "began": 0.0, "elapsed": 1.0, "at": "2026-11-22T03:45:01+00:00"}
        await store.put(Record("step", "w/00001", step))
        seen.append(await marks())
        assert len({one for one, _ in seen}) == len({one for _, one in seen}) == 2
        gone = Process(Process.this().host, 2**22 + 1, "0")
        await store.put(Record(LAUNCH, "w", to_record(Launch(("run",), "/", gone))))
        seen.append(await marks())
        assert seen[-1][0] == ""
        assert len({one for _, one in seen}) == 3

    asyncio.run(main())


def test_the_page_of_a_killed_workflow_of_a_program_has_the_call_that_resumes_it():
    store = MemoryStore()
    gone = Process(Process.this().host, 2**22 + 1, "0")
    record = WorkflowRecord("w", "slow", "slow.yaml", {}, datetime.now(UTC), process=gone)
    asyncio.run(store.put(record.stored()))
    text = pages(store).get("/workflows/w").text
    assert "with this call" in text
    assert "Workflow.from_file(" in text
    assert "redraft resume" not in text


FLOW = """
name: flow
nodes:
  - {name: begin, run: return 1}
  - {name: shaky, run: 'return state["nothing"]', on_error: leave, max_visits: 2}
  - {name: skipped, run: return 2, goto: [{if: state.more > 1, to: shaky}, {to: end}]}
  - {name: leave, run: return 3}
"""


def test_the_graph_is_a_mermaid_flowchart():
    text = pages(kept("w", text=FLOW)).get("/workflows/w").text
    (shown,) = re.findall(r"<pre[^>]*>(flowchart[^<]*)</pre>", text)
    assert unescape(shown) == Workflow.from_text(FLOW, keep=False).graph.mermaid()


def test_a_run_of_earlier_code_has_no_graph():
    store = kept("w", text=FLOW)

    async def forget():
        record = await store.get("workflow", "w")
        data = {key: value for key, value in record.data.items() if key != "graph"}
        await store.put(replace(record, data=data))

    asyncio.run(forget())
    page = pages(store).get("/workflows/w")
    assert page.status_code == 200
    assert "Flowchart" not in page.text
