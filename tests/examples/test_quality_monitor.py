"""The example of an agent in cycles: two real sources, and a person who is listened to."""

import asyncio
import importlib.util
import json
import shutil
from pathlib import Path
from threading import Thread

import pytest

from redraft import ScriptedModel
from redraft.cycles import CycleAgent, CycleWaiting
from redraft.cycles.cli import load_functions
from support.commands import document, redraft

FOLDER = Path(__file__).parent.parent.parent / "examples" / "quality_monitor"
NORMAL = "press-2 was recalibrated, such readings are normal"


@pytest.fixture
def line(monkeypatch):
    """The line's server, and what it serves."""
    spec = importlib.util.spec_from_file_location("line", FOLDER / "line.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    server = module.server(0)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("LINE_URL", f"http://127.0.0.1:{server.server_port}")
    yield module.STATUS
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The example in a project of its own."""
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".redraft")
    (tmp_path / "redraft.toml").touch()
    return tmp_path


def answer(request):
    """Answer as a model does that heeds what it is shown."""
    prompt = request.messages[-1].content
    if prompt.startswith("You watch a production line."):
        if "defect-rate" not in prompt:
            return '{"actions": []}'
        name = "write_note" if "false-positive" in prompt else "hold_batch"
        return json.dumps({"actions": [{"action": name, "reason": "by what was learned"}]})
    if NORMAL in prompt and "false-positive" not in prompt:
        pattern = {"description": NORMAL, "type": "false-positive", "confidence": 0.8}
        return json.dumps({"newPatterns": [pattern | {"source": "operator-feedback"}]})
    return '{"newPatterns": [], "confidenceAdjustment": 0.1}'


def actions(result):
    return [
        (action["action"], action["status"]) for action in result.state["derivedData"]["execution"]["actions"]
    ]


def test_feedback_changes_the_next_decision(folder, line):
    verdicts = iter([("reject", NORMAL), ("approve", "yes")])
    said = []

    def hear(event):
        if isinstance(event, CycleWaiting):
            said.append(asyncio.ensure_future(agent.send_feedback(*next(verdicts), by="Ola")))

    agent = CycleAgent.from_file(
        "agent.yaml",
        functions=load_functions("agent.yaml", None),
        models={"local:qwen2.5-coder-0.5b": ScriptedModel(answer)},
        storage="project",
        on_event=hear,
    )

    async def main():
        async with agent:
            results = [await agent.run_cycle() for _ in range(2)]
            line["defectRate"] = 1.0
            return [*results, await agent.run_cycle()], agent.memory

    (first, second, third), memory = asyncio.run(main())
    assert first.state["environmentalData"]["payload"]["inspections"][-1]["defects"] == 4
    assert first.metrics.failures == ()
    assert first.metrics.anomalies == 1
    assert actions(first) == [("hold_batch", "blocked")]
    assert actions(second) == [("write_note", "succeeded")]
    assert actions(third) == []
    assert not (folder / "held.txt").exists()
    [pattern] = memory.of("qualityPatterns")
    assert (pattern["type"], pattern["source"]) == ("false-positive", "operator-feedback")
    assert pattern["confidence"] == pytest.approx(1.0)
    assert [item["verdict"] for item in memory.of("feedbackHistory")] == ["reject", "approve"]
    assert memory.of("feedbackHistory")[0]["by"] == "Ola"


def test_an_approved_batch_is_held_once(folder, line, monkeypatch):
    model = ScriptedModel(answer)
    monkeypatch.setattr("redraft.cycles.agent.model_of", lambda _name: model)
    text = (folder / "agent.yaml").read_text().replace("20000, default: reject", "1, default: approve")
    (folder / "agent.yaml").write_text(text)
    ran = redraft("cycle", "run", "agent.yaml", "--cycles", 2, "--json")
    assert ran.exit_code == 0, ran.stderr
    assert [cycle["status"] for cycle in document(ran)["cycles"]] == ["finished", "finished"]
    lines = (folder / "held.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["B-204", "B-204"]
    assert len({line.split()[1] for line in lines}) == 2


def test_an_unreachable_line_is_an_error_in_the_data(folder, monkeypatch):
    monkeypatch.setenv("LINE_URL", "http://127.0.0.1:9")
    model = ScriptedModel(answer)
    monkeypatch.setattr("redraft.cycles.agent.model_of", lambda _name: model)
    ran = redraft("cycle", "run", "agent.yaml", "--cycles", 1, "--json")
    [cycle] = document(ran)["cycles"]
    assert cycle["environmental_data"]["errors"][0]["source"] == "line"
    assert len(cycle["environmental_data"]["payload"]["inspections"]) == 6
