"""A process that was stopped while another took its agent over."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest

from support.killed_agent import AGENT
from support.postgres_server import Distant

PROGRAM = """
import asyncio, json, os, sys, time
from pathlib import Path
from redraft import ScriptedModel
from redraft.cycles import CycleAgent
from redraft.cycles import lease, write_behind

lease.DURATION = float(os.environ.get("LEASE", lease.DURATION))
# On a busy machine, a database that is late is not away.
write_behind.OPEN_TIMEOUT = write_behind.ANSWER_TIMEOUT = 60.0
done = Path("done.jsonl")
stop_at, _, times = (sys.argv[1] if len(sys.argv) > 1 else "").partition(":")
noted = []

def note(what, **more):
    with done.open("a") as file:
        file.write(json.dumps({"what": what, **more}) + "\\n")
    noted.append(what)
    if what == stop_at and noted.count(what) == int(times or 1):
        Path("reached").touch()
        time.sleep(60 if len(sys.argv) < 3 else float(sys.argv[2]))

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
    storage=None if "REDRAFT_LONG_TERM_STORAGE" in os.environ else "project",
)

async def main():
    async with agent:
        for _ in range(int(os.environ.get("CYCLES", 1))):
            result = await agent.run_cycle()
        print(json.dumps({"number": result.number, "status": result.status,
                          "tokens": result.metrics.tokens,
                          "patterns": len(agent.memory.of("patterns")),
                          "actions": [one["action"] for one in agent.memory.of("recentActions")]}))

asyncio.run(main())
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "redraft.toml").touch()
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}

    started = []

    def start(*words, **more):
        process = subprocess.Popen(
            [sys.executable, "program.py", *words],
            cwd=tmp_path,
            env=environment | {name: str(value) for name, value in more.items()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()  # also if it is stopped
        process.communicate()


def reached(process, folder):
    """Wait until a program has reached the point where it stops."""
    deadline = time.monotonic() + 60
    while not (folder / "reached").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def done_in(folder):
    return [json.loads(line) for line in (folder / "done.jsonl").read_text().splitlines()]


@pytest.fixture
def distant(postgres_server, postgres):
    """The URL of a database with a latency in milliseconds."""
    links = []

    def distant(milliseconds):
        if not milliseconds:
            return postgres.url
        links.append(Distant(postgres_server, milliseconds / 1000))
        return links[-1].url(postgres)

    yield distant
    for link in links:
        link.close()


@pytest.mark.parametrize("milliseconds", [0, 25])
def test_a_process_that_wakes_up_after_a_takeover_does_nothing(
    program, tmp_path, postgres, distant, milliseconds
):
    where = {"REDRAFT_LONG_TERM_STORAGE": distant(milliseconds), "LEASE": 1}
    paused = program("first:2", "3", CYCLES=4, **where)
    reached(paused, tmp_path)
    paused.send_signal(signal.SIGSTOP)
    time.sleep(1.2)  # until its lease has expired
    out, err = program(CYCLES=3, **where).communicate(timeout=60)
    assert (json.loads(out)["number"], err) == (4, "")
    before = postgres.ask("SELECT kind, key, data FROM redraft_agent_records WHERE kind <> 'lease'")
    done = done_in(tmp_path)
    paused.send_signal(signal.SIGCONT)
    out, err = paused.communicate(timeout=60)
    assert out == ""
    assert "LeaseError" in err
    assert done_in(tmp_path) == done
    after = postgres.ask("SELECT kind, key, data FROM redraft_agent_records WHERE kind <> 'lease'")
    assert sorted(after) == sorted(before)


RELOADS = """
import asyncio, os, sys
from redraft.errors import LeaseError
from redraft.cycles import CycleAgent, lease

lease.DURATION = 1.0

def look():
    return {"rate": 9}

def act(idempotency_key):
    print("act", idempotency_key, flush=True)

agent = CycleAgent.from_file(
    "agent.yaml", functions={"look": look, "first": act, "second": act}, storage="project"
)

async def main():
    for line in sys.stdin:
        try:
            result = await agent.run_cycle()
        except LeaseError as error:
            print("refused", error, flush=True)
            continue
        if line.strip() == "ends":
            await agent.aclose()
        print("cycle", result.number, len(agent.memory.of("recentActions")), flush=True)

asyncio.run(main())
"""


def stop_between_writes(process, folder):
    """Stop a process while it holds no lock of its store, for which others would wait in vain."""
    while True:
        process.send_signal(signal.SIGSTOP)
        with suppress(BlockingIOError), ExitStack() as locks:
            for path in folder.rglob("*.lock"):
                fcntl.flock(locks.enter_context(path.open("ab")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.02)


def test_a_process_that_wakes_up_between_cycles_continues_from_the_other(program, tmp_path):
    (tmp_path / "agent.yaml").write_text(WITHOUT_MODEL)
    (tmp_path / "program.py").write_text(RELOADS)

    def cycle(process, word="goes on"):
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        lines = []
        while not lines or lines[-1].startswith("act"):
            lines.append(process.stdout.readline())
        return lines[-1].split(maxsplit=1)[0], lines[-1].strip(), len(lines) - 1

    first, second = program(), program()
    assert cycle(first)[1:] == ("cycle 1 2", 2)
    stop_between_writes(first, tmp_path / ".redraft")
    time.sleep(1.2)  # until its lease has expired
    assert cycle(second)[1:] == ("cycle 2 4", 2)
    first.send_signal(signal.SIGCONT)
    what, said, actions = cycle(first)
    assert (what, actions) == ("refused", 0)
    assert f"({second.pid} on " in said
    assert cycle(second, "ends")[1:] == ("cycle 3 6", 2)
    assert cycle(first)[1:] == ("cycle 4 8", 2)  # the lease is free
    for process in (first, second):
        _, err = process.communicate(timeout=30)
        assert err == ""


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
