"""Cycles on a fleet: scheduled jobs that hold the agent's lease, and a worker killed in the middle of one."""

import json
import time
from collections import Counter

from support.killed_agent import AGENT, ORDER
from support.processes import Processes

APP = """
import asyncio, json, os, time
from pathlib import Path
from redraft import ScriptedModel
from redraft.cycles import CycleAgent
from redraft.fleet import Fleet, Schedule

log = os.open("done.jsonl", os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)

def note(what, key=""):
    os.write(log, (json.dumps({"what": what, "key": key, "pid": os.getpid()}) + "\\n").encode())

def look():
    note("look")
    return {"rate": 9}

def first(idempotency_key):
    note("first", idempotency_key)

def second(idempotency_key):
    note("second", idempotency_key)
    time.sleep(0.3)
    lines = map(json.loads, Path("done.jsonl").read_text().splitlines())
    is_second_cycle = len({line["key"] for line in lines if line["what"] == "second"}) == 2
    if is_second_cycle and not Path("reached").exists():
        Path("reached").write_text(str(os.getpid()))
        time.sleep(60)

async def answer(request):
    note("plan" if request.messages[-1].content.startswith("Plan") else "learn")
    await asyncio.sleep(0.1)
    if request.messages[-1].content.startswith("Plan"):
        return '{"actions": ["first", "second"]}'
    return '{"newPatterns": [{"description": "rates are high", "confidence": 0.5}]}'

agent = CycleAgent.from_file(
    "agent.yaml",
    functions={"look": look, "first": first, "second": second},
    models={"scripted": ScriptedModel(answer)},
    storage="project",
)
fleet = Fleet(
    cycles=[agent], schedules=[Schedule("beat", "*/2 * * * * *", agent)], version="one", pick_up_after=2
)
"""


def wait_until(is_so, workers):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, workers.said()
        assert all(worker.poll() is None for worker in workers.running), workers.said()
        time.sleep(0.05)


def test_a_cycle_of_a_killed_worker_goes_on_elsewhere_and_none_overlap(postgres, tmp_path):
    (tmp_path / "beat.py").write_text(APP)
    (tmp_path / "agent.yaml").write_text(AGENT)
    log = tmp_path / "done.jsonl"
    log.touch()
    (tmp_path / "redraft.toml").touch()
    workers = Processes(
        tmp_path,
        REDRAFT_DATABASE_URL=postgres.url,
        REDRAFT_PROJECT="beating",
        REDRAFT_HOME=tmp_path / "home",
    )

    def done():
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    try:
        for _ in range(2):
            workers.run("worker", "beat:fleet", "--concurrency", "2")
        wait_until((tmp_path / "reached").exists, workers)
        # In the second action of the second cycle: its job holds the lease.
        pid = int((tmp_path / "reached").read_text() or done()[-1]["pid"])
        workers.kill(next(worker for worker in workers.running if worker.pid == pid))
        before = len(done())
        wait_until(lambda: Counter(one["what"] for one in done())["learn"] >= 4, workers)
    finally:
        workers.stop()
    found = done()
    # The call that was under way is not known to have happened: it is made again, by the same key. On a busy
    # machine, this can also happen to a worker that was silent for two seconds. No earlier call is repeated,
    # all cycles are whole, and they follow one another, although two jobs are carried out at once.
    calls = [(one["what"], one["key"]) for one in found]
    steps = [call for call, before in zip(calls, [None, *calls], strict=False) if call != before]
    assert [what for what, _ in steps] == (ORDER * len(steps))[: len(steps)]
    firsts = [key for what, key in steps if what == "first"]
    assert len(set(firsts)) == len(firsts)
    assert pid not in {one["pid"] for one in found[before:]}
    assert any((one["what"], one["key"]) == steps[8] and one["pid"] != pid for one in found)
