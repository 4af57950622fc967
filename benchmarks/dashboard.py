"""What the dashboard takes with 100,000 runs kept: each page on the server, and a run that is watched."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import TYPE_CHECKING, Any

from _dashboard import served
from _measure import options, publish, table, verdict
from _paint import paint_table
from _watched import watched_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _dashboard import Server

    from redraft.stores.base import Record, Store

TARGET = 300.0
"""Milliseconds that the server may take for a page at the median."""
REPEATS, RUNS = 9, 5
EACH = 1.0
"""Seconds for which the dashboard takes what it has read of the runs as new enough."""
DAYS = 60
AGENTS = tuple(f"agent {number:02}" for number in range(20))
TASKS = 2_000
CRITERIA = ("facts", "style", "length", "tone")
CYCLES = 100
"""Cycles of an agent; the first has ten times as many."""
PAIRS, LONG = 20, 200
PAGES = {
    "runs": "/runs",
    "runs of an agent and a reason": "/runs?name=agent%2007&reason=plateau",
    "runs that failed": "/runs?status=failed",
    "a run": "/runs/{run}",
    "a run of 200 versions": "/runs/a-long-run",
    "a workflow": "/workflows/a-real-workflow",
    "diff": "/runs/{run}/diff?view=side",
    "compare by agent": "/compare",
    "compare by day": "/compare?by=day",
    "compare by task": "/compare?by=task",
    "compare runs of a task": "/compare?by=run&of={run},{other}",
    "spend of 30 days": "/spend",
    "spend of all time": "/spend?days=all",
    "tasks": "/tasks",
    "a task": "/tasks/{task}",
    "lessons": "/lessons",
    "a lesson": "/lessons/{lesson}",
    "agents": "/agents",
    "an agent": "/agents/agent%2000",
    "its memory over 100 cycles": "/agents/agent%2000?from=400&to=500",
}


def made_run(rng: random.Random, number: int) -> Record:
    """Return the record of a run with one to four versions of 60 words."""
    from redraft.stores.base import Record

    words = [f"word{rng.randrange(500)}" for _ in range(60)]
    versions = [made_version(rng, iteration, words) for iteration in range(1, rng.randint(1, 4) + 1)]
    best = max(versions, key=lambda one: one["evaluation"]["overall_score"])["iteration"]
    name, task = rng.choice(AGENTS), rng.randrange(TASKS)
    roles = ("generation", "evaluation", "revision")[: 3 if len(versions) > 1 else 2]
    data = {
        "run_id": f"run-{number:06}",
        "task": {"description": f"Write down what belongs to subject {task}, and in which order."},
        "origin": {"surface": "agent", "name": name, "model": f"some:model-{rng.randrange(4)}"},
        "options": {"max_iterations": 3, "quality_threshold": 0.8, "revision_strategy": "hybrid",
                    "criteria": [{"name": one} for one in CRITERIA]},
        "started_at": "2026-11-22T03:45:00+00:00",
        "finished_at": "2026-11-22T03:45:22+00:00",
        "process": {"host": "benchmark", "pid": 1, "started": "1"},
        "status": "failed" if rng.random() < 0.01 else "finished",
        "versions": versions,
        "best": best,
        "final": len(versions),
        "revisions": len(versions) - 1,
        "reason": rng.choice(("quality_met", "plateau", "max_iterations")),
        "usage_by_role": {role: made_usage(rng) for role in roles},
        "execution_time": rng.uniform(3, 60),
        "inner": rng.random() < 0.1,
        "name": name,
    }  # fmt: skip
    return Record("run", data["run_id"], data)


def made_version(rng: random.Random, iteration: int, words: list[str]) -> dict[str, Any]:
    words[rng.randrange(len(words))] = f"change{iteration}"
    scores = {name: round(min(1.0, rng.uniform(0.3, 0.7) + 0.1 * iteration), 3) for name in CRITERIA}
    return {
        "iteration": iteration,
        "output": " ".join(words),
        "evaluation": {"overall_score": sum(scores.values()) / len(scores), "criteria_scores": scores,
                       "issues": [{"message": "Too long.", "criterion": "length"}]},
        "timestamp": f"2026-11-22T03:45:0{iteration}+00:00",
        "token_usage": made_usage(rng),
        "strategy": "generate" if iteration == 1 else "targeted_edit",
    }  # fmt: skip


def made_usage(rng: random.Random) -> dict[str, Any]:
    cost = None if rng.random() < 0.02 else rng.uniform(0.001, 0.01)
    failed = {"failed_requests": 1} if rng.random() < 0.02 else {}
    return {
        "input_tokens": rng.randrange(2_000),
        "output_tokens": 300,
        "requests": 1,
        "cost_usd": cost,
        **failed,
    }


async def fill(folder: Path, count: int) -> dict[str, str]:
    """Keep so many runs, begun over 60 days, and what they taught; return what the pages measured are of."""
    from _agents import write_agents
    from _learnt import fill as fill_learnt
    from _learnt import learn_lessons

    from redraft.stores.sqlite import SqliteStore

    place, rng = folder / ".redraft" / "redraft.db", random.Random(7)
    store = SqliteStore(place)
    for start in range(0, count, 1_000):
        await store.put_all([made_run(rng, number) for number in range(start, min(count, start + 1_000))])
    lessons = learn_lessons(folder / "memory")
    task = await fill_learnt(store, count, lessons)
    await make_run(store, "a-real-run", (0.2, 0.4, 0.6, 0.9))
    await make_run(store, "a-long-run", [number / 1_000 for number in range(LONG)])
    await store.put_all([made_workflow(rng, number) for number in range(count // 50)])
    await make_workflow(store)
    await store.aclose()
    await write_agents(place, list(AGENTS), CYCLES)
    first = (datetime.now(UTC) - timedelta(days=DAYS)).timestamp() * 1e6
    with sqlite3.connect(place) as connection:
        connection.execute(
            "UPDATE records SET created_at = ? + CAST(substr(key, 5) AS INTEGER) * ? "
            "WHERE kind = 'run' AND key LIKE 'run-%'",
            (int(first), int(DAYS * 86_400 * 1e6 / count)),
        )
        connection.execute(
            "UPDATE records SET created_at = ? + CAST(substr(key, 6) AS INTEGER) * ? "
            "WHERE kind = 'workflow' AND key LIKE 'flow-%'",
            (int(first), int(DAYS * 86_400 * 1e6 / (count // 50))),
        )
    connection.close()
    return {"run": "a-real-run", "other": f"run-{count - 2:06}", "task": task, "lesson": lessons[0]}


async def make_run(store: Store, run_id: str, scores: Sequence[float]) -> None:
    """Carry out a run of a version for each score, whose page is measured."""
    from redraft import ReflectionPattern, reflect
    from redraft.loop.journal import Journalled

    rng = random.Random(3)
    words = [f"word{rng.randrange(500)}" for _ in range(400)]
    score = iter(scores)

    def generate(_prompt: str) -> str:
        for _ in range(20):
            words[rng.randrange(len(words))] = f"change{rng.randrange(900)}"
        return " ".join(words)

    pattern = ReflectionPattern(
        max_iterations=len(scores) - 1, plateau_iterations=len(scores), improvement_threshold=0
    )
    step = Journalled(store, run_id)
    await reflect(
        "Say it at length.", generate=generate, evaluate=lambda _: next(score), pattern=pattern, step=step
    )


def made_workflow(rng: random.Random, number: int) -> Record:
    """Return the record of a workflow of three nodes."""
    from redraft.stores.base import Record

    data = {
        "run_id": f"flow-{number:06}",
        "name": f"workflow {rng.randrange(9)}",
        "file": "orders.yaml",
        "given": {"subject": f"subject {rng.randrange(TASKS)}"},
        "started_at": "2026-11-22T03:45:00+00:00",
        "finished_at": "2026-11-22T03:45:22+00:00",
        "status": "failed" if rng.random() < 0.01 else "finished",
        "state": {"text": " ".join(f"word{rng.randrange(500)}" for _ in range(200))},
        "nodes": ["draft", "check", "send"],
        "usage": made_usage(rng),
        "execution_time": rng.uniform(3, 60),
    }
    return Record("workflow", data["run_id"], data)


async def make_workflow(store: Store) -> None:
    """Carry out a workflow of a loop and a function whose page is measured."""
    from redraft import ScriptedModel
    from redraft.workflow import Workflow

    replies = [f'{{"a": "{"word " * 400}", "tries": {number}}}' for number in range(3)]
    text = """
name: two nodes
nodes:
  - name: draft
    uses: reflection.loop
    with:
      generator: {action: llm.call, model: scripted, prompt: Draft.}
      evaluator: {type: schema, schema: {properties: {tries: {minimum: 2}}}}
  - name: send
    uses: send
"""

    async def send(state: dict[str, Any]) -> dict[str, Any]:
        return {"sent": state["reflection_output"]}

    model = ScriptedModel(replies)
    flow = Workflow.from_text(text, actions={"send": send}, models={"scripted": model}, keep=store)
    await flow.run({"who": "Ada"}, run_id="a-real-workflow")


def pages_table(folder: Path, server: Server, paths: dict[str, str]) -> str:
    """Ask for each page again and again: as it is, and each time after one more run has ended."""
    from redraft.stores.sqlite import SqliteStore

    firsts = {name: server.milliseconds(path) for name, path in paths.items()}
    rng, store = random.Random(11), SqliteStore(folder / ".redraft" / "redraft.db")
    rows: list[tuple[object, ...]] = []
    for at, (name, path) in enumerate(paths.items()):
        before = server.cpu()
        times = [server.milliseconds(path) for _ in range(REPEATS)]
        cpu = (server.cpu() - before) / REPEATS * 1e3
        new = [made_run(rng, 10**6 + at * RUNS + number) for number in range(RUNS)]
        changed = [after_a_run(server, store, path, run) for run in new]
        shown = (firsts[name], median(times), cpu, median(changed))
        met = verdict(max(median(times), median(changed)), TARGET)
        rows.append((name, *(f"{value:.0f}" for value in shown), f"{TARGET:.0f} {met}"))
    head = (
        "page, milliseconds",
        "first time",
        "median",
        "CPU, mean",
        "after a run, median",
        "target of the medians",
    )
    return table(head, rows)


def after_a_run(server: Server, store: Store, path: str, run: Record) -> float:
    """Return how long a page takes when one more run has ended: what was remembered has to be made anew."""

    async def keep() -> None:
        await store.put(run)
        await store.aclose()

    asyncio.run(keep())
    sleep(EACH + 0.1)
    return server.milliseconds(path)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="runs that are kept")
    parser.add_argument(
        "--pairs", type=int, default=PAIRS, help="runs that are watched, and as many that are not"
    )
    chosen = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".redraft").mkdir()
        (folder / "redraft.toml").touch()
        kept = asyncio.run(fill(folder, chosen.runs))
        with served(folder) as server:
            text = measured(folder, server, kept, chosen.runs, chosen.pairs)
    publish("dashboard", text, write=chosen.write)


def measured(folder: Path, server: Server, kept: dict[str, str], runs: int, pairs: int) -> str:
    """Measure all that a dashboard is measured by."""
    seconds = server.read_ahead()
    paths = {name: path.format(**kept) for name, path in PAGES.items()}
    pages = pages_table(folder, server, paths)
    memory = server.mebibytes()
    ahead = f"To look through {runs:,} runs took {seconds:.0f} s; the server then had {memory:.0f} MiB."
    parts = (pages, ahead, paint_table(server, paths), watched_table(folder, server, pairs))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
