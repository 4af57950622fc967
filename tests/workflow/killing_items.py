"""Kill a workflow with a `map` again and again; print as JSON which finished items ran once more.

    python killing_items.py FOLDER ITEMS KILLS

The first of the two calls of each item is recorded before the item has finished, so it must not be repeated
either. Each process is a fork of this one, which has no threads yet.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path

from loop.killing import Killer, WatchedStore, ended
from redraft import ChatReply, TokenUsage
from redraft.stores.sqlite import SqliteStore
from redraft.workflow import Workflow

TEXT = """
name: items
nodes:
  - name: ask
    map: state.them
    at_once: 4
    uses: llm.call
    retries: {times: 1, wait: 0}
    with: {model: m, prompt: "Say {{ item }}"}
    output: said
  - name: judge
    map: state.them
    at_once: 4
    uses: reflection.loop
    with:
      generator:
        action: llm.call
        model: m
        prompt: "Write {{ item }}, try {{ state.reflection_iteration }}"
      evaluator: {type: schema, schema: {minLength: 99}}
      max_iterations: 2
    output: judged
"""


def log_line(folder, line):
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{line}\n".encode())
    os.close(log)


def program(folder, items, point):
    killer = Killer(point)

    async def model(request):
        log_line(folder, request.messages[0].content.partition("\n")[0])
        await asyncio.sleep(random.uniform(0, 0.004))  # noqa: S311 (chance, not secrecy)
        killer.passes()
        return ChatReply("said", usage=TokenUsage(3, 2, requests=1))

    async def run():
        store = WatchedStore(folder / "redraft.db", killer)
        workflow = Workflow.from_text(TEXT, models={"m": model}, keep=store)
        try:
            result = await workflow.run({"them": [f"item {at}" for at in range(items)]}, run_id="killed")
        finally:
            await store.aclose()
        return [len(result.state["said"]), len(result.state["judged"]), result.usage.total_tokens]

    return run()


def fork(folder, items, point):
    pid = os.fork()
    if pid == 0:
        (folder / "result.json").write_text(json.dumps(asyncio.run(program(folder, items, point))))
        os._exit(0)
    return ended(pid)


async def finished_calls(folder):
    """Return the prompts of the calls that the store has."""
    store = SqliteStore(folder / "redraft.db")
    found = await store.find("step", prefix="killed")
    await store.aclose()
    calls = [one for one in found if one.data["name"].startswith("model ") and "result" in one.data]
    return [call.data["given"][0]["messages"][0]["content"].partition("\n")[0] for call in calls]


def in_child(work):
    """Return what a function returns in a fork: the parent must not get threads."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(work()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def main(folder, items, kills):
    dice, repeated, killed = random.Random(7), [], 0  # noqa: S311 (as above)
    log = folder / "log"
    while True:
        known = set(in_child(lambda: asyncio.run(finished_calls(folder)))) if log.exists() else set()
        before = len(log.read_text().splitlines()) if log.exists() else 0
        has_ended = fork(folder, items, dice.randint(5, 5 + 18 * items // kills) if killed < kills else 0)
        lines = log.read_text().splitlines()[before:] if log.exists() else []
        repeated += [line for line in lines if line in known]
        if has_ended:
            break
        killed += 1
    result = json.loads((folder / "result.json").read_text())
    calls = len(log.read_text().splitlines())
    sys.stdout.write(json.dumps({"killed": killed, "repeated": repeated, "calls": calls, "result": result}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
