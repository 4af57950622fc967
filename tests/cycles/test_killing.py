"""Processes that are killed right after an action, or at the end of a cycle, near a database and far away."""

import json
import subprocess
import sys

import pytest

from support.postgres_server import Distant

PROGRAM = """
import asyncio, json, os, signal, sys
from redraft.cycles import CycleAgent, LongTermStorage, write_behind
from redraft.cycles.spec import AgentSpec

# On a busy machine, a database that is late is not away.
write_behind.OPEN_TIMEOUT = write_behind.ANSWER_TIMEOUT = 60.0
action = {"type": "function", "name": "order", "function": "order"}
execute = {"type": "execute", "name": "act", "config": {"actions": [action]}}
keep = {"type": "update-state", "name": "keep"}
stages = {"actuate": {"substages": [execute]}, "reflect": {"substages": [keep]}}

def note(**fields):
    with open("done.jsonl", "a") as file:
        file.write(json.dumps(fields) + "\\n")

def run(point):
    def order(idempotency_key):
        note(key=idempotency_key)
        if point == "action":
            os.kill(os.getpid(), signal.SIGKILL)

    async def main():
        spec = AgentSpec.model_validate({"name": "shop", "stages": stages})
        agent = CycleAgent(spec, functions={"order": order}, storage=LongTermStorage(sys.argv[1]))
        result = await agent.run_cycle()
        note(ended=result.number)
        os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())

for point in sys.argv[2:]:
    pid = os.fork()
    if not pid:
        try:
            run(point)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
"""


def killed(folder, postgres, url, points):
    """Run a cycle for each point at which its process is killed; return what went wrong."""
    command = [sys.executable, "-c", PROGRAM, url, *points]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ended, keys = [], [set()]
    for line in (folder / "done.jsonl").read_text().splitlines():
        fields = json.loads(line)
        if "key" in fields:
            keys[-1].add(fields["key"])
        else:
            ended.append(fields["ended"])
            keys.append(set())
    assert len(ended) == points.count("end")
    rows = postgres.ask("SELECT data FROM redraft_agent_records WHERE kind = 'cycle'")
    cycles = [json.loads(data) for (data,) in rows]
    stored = [cycle["number"] for cycle in cycles if cycle["status"] == "finished"]
    used = [key for of_cycle in keys for key in of_cycle]
    return {
        "lost cycles": sorted({*range(1, len(ended) + 1)}.difference(stored)),
        "keys of two cycles": len(used) - len(set(used)),
        "cycles whose action has two keys": sum(len(of_cycle) > 1 for of_cycle in keys),
    }


NOTHING = {"lost cycles": [], "keys of two cycles": 0, "cycles whose action has two keys": 0}


@pytest.mark.parametrize("milliseconds", [0, 20])
def test_no_finished_cycle_is_lost_and_each_key_belongs_to_one_cycle(
    tmp_path, postgres, postgres_server, milliseconds
):
    there = Distant(postgres_server, milliseconds / 2000)
    url = there.url(postgres) if milliseconds else postgres.url
    try:
        assert killed(tmp_path, postgres, url, ["end", "action", "end"]) == NOTHING
    finally:
        there.close()
