"""A complete agent with real sources: what its stages pass on, and that no secret leaves it."""

# ruff: noqa: E501 (a line of the agent file is one line)
import asyncio
import json
import logging

import pytest

from redraft import ScriptedModel
from redraft.cycles.agent import CycleAgent
from redraft.cycles.cycle import CycleWaiting
from redraft.stores.sqlite import MemoryStore
from support.cycles import run
from support.http_server import of_json, serving

FILE = """\
name: line-7
model: scripted
env: [LINE_KEY, LINE_URL]
stages:
  sense:
    substages:
      - type: api
        name: rate
        config: {url: "{{ env.LINE_URL }}/rate", headers: {X-Key: "{{ env.LINE_KEY }}"}}
      - {type: api, name: broken, config: {url: "{{ env.LINE_URL }}/echo", headers: {X-Key: "{{ env.LINE_KEY }}"}}}
      - {type: csv, name: batches, config: {path: batches.csv, last: 2}}
      - {type: agent-messages, name: mail, config: {into: mail}}
  reason:
    substages:
      - type: analyze
        name: thought
        prompt: "Say what this means: {{ environmentalData | json }}"
        outputSchema: {type: object, properties: {trend: {type: string}}, required: [trend]}
        config: {rules: [{name: high, when: environmentalData.payload.rate > 5}]}
      - {type: plan, name: planner, prompt: "Plan for {{ derivedData.analysis | json }}"}
      - type: govern
        name: bounds
        config:
          constraints:
            - {name: gentle, require: "action.params.level | default(0) <= 3", message: "{{ action.params.level }}"}
      - {type: authorize, name: shift, config: {mode: supervised, timeoutMs: 10000, when: derivedData.analysis.anomalies}}
  actuate:
    substages:
      - type: execute
        name: acts
        config:
          actions:
            - type: api_call
              name: lower
              url: "{{ env.LINE_URL }}/lower"
              headers: {X-Key: "{{ env.LINE_KEY }}"}
              body: {level: "{{ params.level }}"}
            - {type: alert, name: tell, when: derivedData.analysis.anomalies, message: "{{ derivedData.analysis.trend }}"}
      - type: evaluate
        name: seen
        prompt: "Did it work? {{ derivedData.execution | json }}"
        outputSchema: {type: object, properties: {success: {type: boolean}}, required: [success]}
  reflect:
    substages:
      - {type: update-state, name: keep}
      - {type: capture-metrics, name: count, config: {trackLLMTokens: true, trackAlertCount: true}}
"""
KEY = "line-key-for-the-test-4711"


def echo(handler):
    handler.reply(500, {}, f"you sent {handler.headers['x-key']}".encode())


def lower(level):
    return {"action": "lower", "params": {"level": level}}


@pytest.mark.parametrize("verdict", ["approve", "reject", "modify"])
def test_a_cycle_over_real_sources(verdict, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    (tmp_path / "batches.csv").write_text("batch,scrap\n1,0\n2,3\n3,{{ env.LINE_KEY }}\n")
    (tmp_path / "line.yaml").write_text(FILE)
    replies = [
        "up",
        {"trend": "up \x1b[31m{{ env.LINE_KEY }}"},
        {"actions": [lower(2), lower(9), {"action": "explode"}]},
        {"actions": [lower(2), lower(9)]},
        {"success": True},
    ]
    model, store = ScriptedModel(replies), MemoryStore()
    sending = []

    async def main(url):
        monkeypatch.setenv("LINE_URL", url)
        monkeypatch.setenv("LINE_KEY", KEY)

        def hears(event):
            if isinstance(event, CycleWaiting) and not sending:
                changes = {"level": 1} if verdict == "modify" else None
                feedback = agent.send_feedback(verdict, "so be it", cycle=1, action="1-1", changes=changes)
                sending.append(asyncio.ensure_future(feedback))
                rest = agent.send_feedback("approve", "fine", cycle=1)
                sending.append(asyncio.ensure_future(rest))

        agent = CycleAgent.from_file(
            tmp_path / "line.yaml", models={"scripted": model}, storage=store, on_event=hears
        )
        async with agent:
            result = await agent.run_cycle()
            await asyncio.gather(*sending)
            return result

    routes = {"/rate": of_json({"rate": 6}), "/echo": echo, "/lower": of_json({"ok": True})}
    with serving(routes) as server:
        result = run(main(server.url))
        sent = [json.loads(request.body) for request in server.requests if request.path == "/lower"]

    data, derived = result.state["environmentalData"], result.state["derivedData"]
    assert data["payload"] == {
        "rate": 6,
        "batches": [{"batch": 2, "scrap": 3}, {"batch": 3, "scrap": "{{ env.LINE_KEY }}"}],
        "mail": [],
    }
    assert [error["source"] for error in data["errors"]] == ["broken"]
    assert [one["rule"] for one in derived["analysis"]["anomalies"]] == ["high"]
    assert [
        (violation["action"], violation["blocked"]) for violation in derived["governance"]["violations"]
    ] == [("lower", True)]
    decision = {"approve": "approved", "reject": "approved", "modify": "modified"}[verdict]
    assert derived["governance"]["authority"]["decision"] == decision
    statuses = [(action["action"], action["status"]) for action in derived["execution"]["actions"]]
    first = "blocked" if verdict == "reject" else "succeeded"
    assert statuses == [("lower", first), ("lower", "blocked"), ("tell", "succeeded")]
    assert sent == {"approve": [{"level": 2}], "reject": [], "modify": [{"level": 1}]}[verdict]
    assert derived["evaluation"]["success"] is True
    assert result.metrics.alerts == 1
    assert result.usage.requests == len(replies)

    async def kept():
        return [(await store.find(kind)) for kind in ("memory", "cycle", "feedback", "message", "step")]

    lines = [record.getMessage() for record in caplog.records]
    prompts = [request.messages[-1].content for request in model.requests]
    assert not [text for text in (*lines, *prompts, str(run(kept())), str(result)) if KEY in text]
    assert "up \\x1b[31m{{ env.LINE_KEY }}" in "\n".join(lines)
    assert "\x1b" not in "".join(lines)
