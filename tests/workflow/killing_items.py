"""Kill a workflow with a `map` again and again; print as JSON which finished calls were made once more.

    python killing_items.py KIND FOLDER ITEMS KILLS

The items of the kind `inside` are workflows in another file, each of which asks a person. Each process is a
fork of this one, which has no threads yet.
"""

import asyncio
import json
import os
import random
import sys
from pathlib import Path

from loop.killing import Killer, WatchedStore, ended
from redraft import TokenUsage
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.workflow import Workflow
from redraft.workflow.approval import Approvals

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

OUTER = """
name: outer
outputs: {letters: array}
nodes:
  - name: letters
    map: state.them
    at_once: 3
    uses: ./inner.yaml
    with: {x: "{{ item }}"}
"""
INNER = """
inputs: {x: string}
outputs: {sent: {type: string}, by: {value: "{{ state.decision.by }}"}}
nodes:
  - {name: write, uses: llm.call, with: {model: m, prompt: "Write {{ state.x }}"}, output: text}
  - {name: check, uses: human.approve, with: {message: "Send {{ state.x }}?"}, output: decision}
  - name: send
    when: state.decision.approved
    uses: llm.call
    with: {model: m, prompt: "Send {{ state.x }}"}
    output: sent
"""


def log_line(folder, line):
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, f"{line}\n".encode())
    os.close(log)


def program(kind, folder, items, point):
    killer = Killer(point)

    async def model(request):
        log_line(folder, request.messages[0].content.partition("\n")[0])
        await asyncio.sleep(random.uniform(0, 0.004))  # noqa: S311 (chance, not secrecy)
        killer.passes()
        return ChatReply("said", usage=TokenUsage(3, 2, requests=1))

    async def run():
        store = WatchedStore(folder / "redraft.db", killer)
        if kind == "inside":
            workflow = Workflow.from_file(folder / "outer.yaml", models={"m": model}, keep=store)
        else:
            workflow = Workflow.from_text(TEXT, models={"m": model}, keep=store)
        try:
            result = await workflow.run({"them": [f"item {at}" for at in range(items)]}, run_id="killed")
        finally:
            await store.aclose()
        found = result.outputs.get("letters") or [result.state.get(key) for key in ("said", "judged")]
        return [result.status, found, result.usage.total_tokens]

    return run()


def fork(kind, folder, items, point):
    pid = os.fork()
    if pid == 0:
        (folder / "result.json").write_text(json.dumps(asyncio.run(program(kind, folder, items, point))))
        os._exit(0)
    return ended(pid)


async def finished_calls(folder):
    """Return the prompts of the calls that the store has."""
    store = SqliteStore(folder / "redraft.db")
    found = await store.find("step", prefix="killed")
    await store.aclose()
    calls = [one for one in found if one.data["name"].startswith("model ") and "result" in one.data]
    return [call.data["given"][0]["messages"][0]["content"].partition("\n")[0] for call in calls]


async def answer_one(folder):
    """Approve what has waited longest; return how many questions there have been."""
    store = SqliteStore(folder / "redraft.db")
    approvals = Approvals(store)
    if waiting := await approvals.waiting():
        await approvals.answer(waiting[0], approved=True, by="Ada")
    asked = await store.find("approval")
    await store.aclose()
    return len(asked)


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


def main(kind, folder, items, kills):
    dice, repeated, killed, asked = random.Random(7), [], 0, 0  # noqa: S311 (as above)
    (folder / "outer.yaml").write_text(OUTER)
    (folder / "inner.yaml").write_text(INNER)
    log = folder / "log"
    while True:
        known = set(in_child(lambda: asyncio.run(finished_calls(folder)))) if log.exists() else set()
        before = len(log.read_text().splitlines()) if log.exists() else 0
        has_ended = fork(
            kind, folder, items, dice.randint(5, 5 + 18 * items // kills) if killed < kills else 0
        )
        lines = log.read_text().splitlines()[before:] if log.exists() else []
        repeated += [line for line in lines if line in known]
        if not has_ended:
            killed += 1
        elif json.loads((folder / "result.json").read_text())[0] != "waiting":
            break
        if kind == "inside":
            asked = in_child(lambda: asyncio.run(answer_one(folder)))
    _, found, tokens = json.loads((folder / "result.json").read_text())
    report = {"killed": killed, "repeated": repeated, "asked": asked, "found": found, "tokens": tokens}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
