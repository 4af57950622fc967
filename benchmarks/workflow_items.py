"""What a workflow costs for each item that it records: many nodes, and a `map` over many items, on SQLite."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import tempfile
from statistics import median
from time import process_time
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict

from redraft import TokenUsage
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.workflow import Workflow

if TYPE_CHECKING:
    from redraft.protocols import ChatRequest

NODE = '  - {{name: node_{0}, uses: llm.call, with: {{model: any, prompt: "Write about {0}."}}}}\n'
MAP = """
name: map
nodes:
  - name: written
    map: state.topics
    uses: llm.call
    with: {model: any, prompt: "Write about {{ item }}."}
"""
NODES, FEW, MANY = 200, 100, 1_000
CPU_TARGET, MEMORY_TARGET = 2.0, 1.2
"""Milliseconds of CPU an item at most; the peak of many items beside that of few."""


async def model(_request: ChatRequest) -> ChatReply:
    return ChatReply("A sentence about it.", usage=TokenUsage(20, 8, requests=1))


async def measured(text: str, count: int) -> tuple[float, int]:
    """Return the CPU milliseconds an item, of all threads, and the peak memory of the process in MB."""
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(f"{folder}/redraft.db")
        warm = Workflow.from_text(MAP, models={"any": model}, keep=store)
        await warm.run({"topics": ["tea", "milk"]})
        workflow = Workflow.from_text(text, models={"any": model}, keep=store)
        topics = {"topics": [f"topic {at}" for at in range(count)]}
        started = process_time()
        result = await workflow.run(topics, run_id="measured")  # as the command does: it can be resumed
        taken = process_time() - started
        await store.aclose()
    assert result.usage.requests == count, "a node or an item did not run"
    return taken / count * 1e3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def in_fork(text: str, count: int) -> tuple[float, int]:
    """Measure in a process of its own, so that each peak is its own."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        cpu, memory = asyncio.run(measured(text, count))
        os.write(write, f"{cpu} {memory}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    if os.waitpid(pid, 0)[1]:
        sys.exit("a measurement failed")
    cpu, memory = told.split()
    return float(cpu), int(memory)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--times", type=int, default=5, help="processes for each figure")
    given = parser.parse_args()
    nodes = "name: nodes\nnodes:\n" + "".join(NODE.format(at) for at in range(NODES))
    subjects = {
        f"{NODES} nodes": (nodes, NODES),
        f"a map over {FEW}": (MAP, FEW),
        f"a map over {MANY}": (MAP, MANY),
    }
    figures: dict[str, list[tuple[float, int]]] = {name: [] for name in subjects}
    for _ in range(given.times):
        for name, (text, count) in subjects.items():
            figures[name].append(in_fork(text, count))
    memory = {name: median(peak for _, peak in found) for name, found in figures.items()}
    rows: list[tuple[str, str, str, str, str]] = []
    for name, found in figures.items():
        cpu = median(taken for taken, _ in found)
        ratio = memory[name] / memory[f"a map over {FEW}"]
        is_many = name == f"a map over {MANY}"
        beside = f"{ratio:.2f} (at most {MEMORY_TARGET:g} {verdict(ratio, MEMORY_TARGET)})" if is_many else ""
        rows.append(
            (name, f"{cpu:.2f}", f"{CPU_TARGET:g} {verdict(cpu, CPU_TARGET)}", f"{memory[name]:.0f}", beside)
        )
    head = ("scripted model, SQLite", "CPU ms an item", "target", "peak MB", f"beside {FEW} items")
    publish("workflow_items", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
