"""Kill a workflow at each of its points and resume it; prints a report as JSON for test_history.py.

Everything is imported once: each process under test is a fork of this one, which has no threads yet.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from loop.killing import Killer, WatchedStore, ended
from redraft import TokenUsage
from redraft.loop.runs import Runs
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.workflow import Workflow

TEXT = """
name: killed
nodes:
  - name: begin
    uses: effect
    with: {name: begin}
    output: begun
  - name: profile
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: gpt-4, prompt: "Draft for {{ state.begun }}"}
      evaluator: {type: schema, schema: {type: object, required: [a, b, c]}}
      corrector: {action: correct, apply: replace}
  - name: again
    uses: effect
    with: {name: "again {{ state.rounds | default(0) }}"}
    max_visits: 2
  - name: count
    uses: count
    output: rounds
    goto: [{if: state.rounds < 2, to: again}]
"""
ORDER = ["begin", "Draft for begin", "correct 2", "correct 3", "again 0", "count", "again 1", "count"]


class Program:
    """A workflow that logs each effect when it begins."""

    def __init__(self, folder, run_id, point=0):
        self.folder, self.run_id = folder, run_id
        self.killer = Killer(point)

    async def effect(self, state, name):
        log = os.open(self.folder / f"{self.run_id}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{name}\n".encode())
        os.close(log)
        self.killer.passes()
        await asyncio.sleep(0)
        self.killer.passes()
        return name

    async def model(self, request):
        await self.effect({}, request.messages[0].content)
        return ChatReply('{"a": 1}', usage=TokenUsage(3, 2, requests=1))

    async def correct(self, state):
        await self.effect(state, f"correct {state['reflection_iteration']}")
        return state["reflection_output"] | {"abc"[state["reflection_iteration"] - 1]: 1}

    async def count(self, state):
        await self.effect(state, "count")
        return state.get("rounds", 0) + 1

    async def run(self):
        store = WatchedStore(self.folder / "redraft.db", self.killer)
        actions = {"effect": self.effect, "correct": self.correct, "count": self.count}
        made = Workflow.from_text(TEXT, actions=actions, models={"gpt-4": self.model}, keep=store)
        try:
            result = await made.run({"asked": 1}, run_id=self.run_id)
        finally:
            await store.aclose()
        return [result.state, list(result.nodes), result.usage.total_tokens]


def fork(folder, run_id, point=0):
    """Run the workflow in a process that is killed at `point`; return its result, None if it was killed."""
    pid = os.fork()
    written = folder / f"{run_id}.json"
    if pid == 0:
        written.write_text(json.dumps(asyncio.run(Program(folder, run_id, point).run())))
        os._exit(0)
    return json.loads(written.read_text()) if ended(pid) else None


def repeated(log):
    """Return the effects that are out of order: only one that was interrupted may be repeated."""
    place, wrong = 0, []
    for name in log:
        if name == ORDER[place]:
            continue  # interrupted and repeated
        if place + 1 < len(ORDER) and name == ORDER[place + 1]:
            place += 1
        else:
            wrong.append(name)
    return wrong if place == len(ORDER) - 1 else [*wrong, "not the end"]


def main(folder):
    for _ in range(2):  # run and replay once here, so that every fork has what is loaded on first use
        expected = json.loads(json.dumps(asyncio.run(Program(folder, "warm").run())))
    wrong, point = [], 0
    while True:
        point += 1
        run_id = f"point-{point}"
        result = fork(folder, run_id, point)
        finished = result is not None
        result = result or fork(folder, run_id)
        if result != expected:
            wrong.append([run_id, result])
        wrong += [
            [run_id, name] for name in repeated((folder / f"{run_id}.log").read_text().split("\n")[:-1])
        ]
        if finished:
            break

    async def kept():
        store = SqliteStore(folder / "redraft.db")
        found = await Runs(store).find(limit=10_000)
        workflows = await store.find("workflow")
        await store.aclose()
        return [[run.status, len(run.versions), run.parent] for run in found], [
            [one.key, one.data["status"]] for one in workflows
        ]

    runs, workflows = asyncio.run(kept())
    report = {"points": point - 1, "wrong": wrong, "expected": expected, "runs": runs, "workflows": workflows}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
