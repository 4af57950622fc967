"""A process that is killed in the middle of a cycle, for real."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path
from redraft import ScriptedModel
from redraft.cycles import CycleAgent

done = Path("done.jsonl")
stop_at = sys.argv[1] if len(sys.argv) > 1 else ""

def note(what, **more):
    with done.open("a") as file:
        file.write(json.dumps({"what": what, **more}) + "\\n")
    if what == stop_at:
        Path("reached").touch()
        time.sleep(60)

def look():
    note("look")
    return {"rate": 9}

def first(idempotency_key):
    note("first", key=idempotency_key)

def second(idempotency_key):
    note("second", key=idempotency_key)

async def answer(request):
    text = request.messages[-1].content
    what = "plan" if text.startswith("Plan") else "learn"
    await asyncio.to_thread(note, what)
    if what == "plan":
        return '{"actions": ["first", "second"]}'
    return '{"newPatterns": [{"description": "rates are high", "confidence": 0.5}]}'

agent = CycleAgent.from_file(
    "agent.yaml",
    functions={"look": look, "first": first, "second": second},
    models={"scripted": ScriptedModel(answer)},
    storage="project",
)

async def main():
    async with agent:
        result = await agent.run_cycle()
        print(json.dumps({"number": result.number, "status": result.status,
                          "tokens": result.metrics.tokens,
                          "patterns": len(agent.memory.of("patterns")),
                          "actions": [one["action"] for one in agent.memory.of("recentActions")]}))

asyncio.run(main())
"""
AGENT = """
name: killed
model: scripted
stages:
  sense:
    substages: [{type: function, name: look, config: {function: look}}]
  reason:
    substages:
      - type: plan
        name: plan
        prompt: Plan for {{ environmentalData.payload.rate }}
        outputSchema: {type: object, properties: {actions: {type: array, items: {type: string}}}}
  actuate:
    substages:
      - type: execute
        name: act
        config: {actions: [{type: function, name: first, function: first},
                           {type: function, name: second, function: second}]}
  reflect:
    substages:
      - type: learn
        name: learn
        prompt: Learn of {{ derivedData.execution | json }}
        outputSchema: {type: object, properties: {newPatterns: {type: array}}}
      - {type: update-state, name: keep}
      - {type: capture-metrics, name: count, config: {trackLLMTokens: true}}
"""
ORDER = ["look", "plan", "first", "second", "learn"]


@pytest.fixture
def program(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "redraft.toml").touch()
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "program.py", *words],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.mark.parametrize("at", ["first", "second", "learn"])
def test_a_killed_cycle_goes_on_without_repeating_what_was_finished(program, tmp_path, at):
    killed = program(at)
    deadline = time.monotonic() + 30
    while not (tmp_path / "reached").exists():
        assert time.monotonic() < deadline
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    out, err = program().communicate(timeout=30)
    done = [json.loads(line) for line in Path(tmp_path / "done.jsonl").read_text().splitlines()]
    assert [one["what"] for one in done] == [*ORDER[: ORDER.index(at) + 1], *ORDER[ORDER.index(at) :]], err
    keys = {one["what"]: set() for one in done}
    for one in done:
        keys[one["what"]].add(one.get("key"))
    assert [len(keys[what]) for what in ("first", "second")] == [1, 1]
    result = json.loads(out)
    assert (result["number"], result["status"]) == (1, "finished")
    assert result["tokens"] > 0
    assert (result["patterns"], result["actions"]) == (1, ["first", "second"])
    again = json.loads(program().communicate(timeout=30)[0])
    assert (again["number"], len(again["actions"])) == (2, 4)


KILLS = 25
AGAIN_AND_AGAIN = """
import asyncio, json, os, random, signal, sys, time
from redraft.cycles import CycleAgent

notes = os.open("done.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def note(*words):
    os.write(notes, json.dumps(words).encode() + b"\\n")

async def look():
    return {"rate": 9}

async def first(idempotency_key):
    note("first", idempotency_key)

async def second(idempotency_key):
    note("second", idempotency_key)

functions = {"look": look, "first": first, "second": second}
agent = CycleAgent.from_file("agent.yaml", functions=functions, storage="project")

async def main():
    async with agent:
        note("begins")
        for _ in range(3):
            result = await agent.run_cycle()
            note("cycle", result.number, result.status, len(agent.memory.of("recentActions")))

chance = random.Random(7)
kills = 0
while kills < int(sys.argv[1]):
    size = os.fstat(notes).st_size
    child = os.fork()
    if not child:
        asyncio.run(main())
        os._exit(0)
    while os.fstat(notes).st_size == size:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    kills += os.waitpid(child, 0)[1] == signal.SIGKILL
asyncio.run(main())
"""
WITHOUT_MODEL = """
name: killed
stages:
  sense:
    substages: [{type: function, name: look, config: {function: look}}]
  actuate:
    substages:
      - type: execute
        name: act
        config: {actions: [{type: function, name: first, function: first},
                           {type: function, name: second, function: second}]}
  reflect:
    substages: [{type: update-state, name: keep}]
"""


def test_killed_again_and_again_it_does_each_action_once_and_loses_no_cycle(program, tmp_path):
    (tmp_path / "agent.yaml").write_text(WITHOUT_MODEL)
    (tmp_path / "program.py").write_text(AGAIN_AND_AGAIN)
    _, err = program(str(KILLS)).communicate(timeout=120)
    assert err == ""
    done = [json.loads(line) for line in (tmp_path / "done.jsonl").read_text().splitlines()]
    seen, last = set(), ("begins",)
    for now in map(tuple, done):
        if now[0] in ("first", "second"):
            # Only the action that was under way, the last thing that the killed process did, comes twice.
            assert now not in seen or last == ("begins", now)
            seen.add(now)
        if now[0] != "begins":
            last = now
        elif last[0] != "begins":
            last = ("begins", last)
    cycles = [one[1:] for one in done if one[0] == "cycle"]
    numbers = [number for number, _, _ in cycles]
    assert numbers == sorted(set(numbers))
    assert cycles == [[number, "finished", 2 * number] for number in numbers]
    assert len(seen) == 2 * numbers[-1]
