"""What the dashboard takes with 100,000 runs kept: each page on the server, and a run that is watched."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from _measure import median_gap, options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redraft.stores.base import Record, Store

TOKEN = "of-the-benchmark"  # noqa: S105 (of a server that lives for minutes)
TARGET = 150.0
"""Milliseconds that the server may take for a page at the median."""
SHARE = 1.0
"""Percent of its CPU time that a run may spend on being watched."""
REPEATS = 9
DAYS = 60
AGENTS = tuple(f"agent {number:02}" for number in range(20))
TASKS = 2_000
CRITERIA = ("facts", "style", "length", "tone")
CYCLES = 100
"""Cycles of an agent; the first has ten times as many."""
REVISIONS, PAIRS = 40, 4
PAGES = {
    "runs": "/runs",
    "runs of an agent and a reason": "/runs?name=agent%2007&reason=plateau",
    "runs that failed": "/runs?status=failed",
    "a run": "/runs/{run}",
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
WATCHED = """
import asyncio, sys
from time import process_time
from redraft import ReflectionPattern, reflect
from redraft.loop.journal import Journalled
from redraft.stores.sqlite import SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    score = iter(range(1, 1_000))

    async def generate(prompt, feedback=""):
        await asyncio.sleep(0.1)
        return " ".join(f"word {number} of draft {next(score)}" for number in range(300))

    before = process_time()
    pattern = ReflectionPattern(
        max_iterations=int(sys.argv[3]), plateau_iterations=100, improvement_threshold=0
    )
    await reflect("Be watched.", generate=generate, evaluate=lambda output: next(score) / 1_000,
                  pattern=pattern, step=Journalled(store, sys.argv[2]))
    print(process_time() - before)
    await store.aclose()

asyncio.run(main())
"""


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
    await make_run(store)
    await store.aclose()
    await write_agents(place, list(AGENTS), CYCLES)
    first = (datetime.now(UTC) - timedelta(days=DAYS)).timestamp() * 1e6
    with sqlite3.connect(place) as connection:
        connection.execute(
            "UPDATE records SET created_at = ? + CAST(substr(key, 5) AS INTEGER) * ? "
            "WHERE kind = 'run' AND key LIKE 'run-%'",
            (int(first), int(DAYS * 86_400 * 1e6 / count)),
        )
    connection.close()
    return {"run": "a-real-run", "other": f"run-{count - 2:06}", "task": task, "lesson": lessons[0]}


async def make_run(store: Store) -> None:
    """Carry out a run of four versions whose page is measured."""
    from redraft import ReflectionPattern, reflect
    from redraft.loop.journal import Journalled

    rng = random.Random(3)
    words = [f"word{rng.randrange(500)}" for _ in range(400)]
    score = iter((0.2, 0.4, 0.6, 0.9))

    def generate(_prompt: str) -> str:
        for _ in range(20):
            words[rng.randrange(len(words))] = f"change{rng.randrange(900)}"
        return " ".join(words)

    pattern, step = ReflectionPattern(max_iterations=3), Journalled(store, "a-real-run")
    await reflect(
        "Say it at length.", generate=generate, evaluate=lambda _: next(score), pattern=pattern, step=step
    )


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Run the dashboard of a folder."""
    command = [sys.executable, "-m", "redraft", "ui", "--no-open", "--port", "0", "--token", TOKEN]
    environment = {**os.environ, "REDRAFT_HOME": ".redraft"}
    process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(r"http://[0-9.:]+", line)))
        yield Server(address, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)


class Server(NamedTuple):
    """Ask a dashboard, and say what it takes."""

    address: str
    pid: int

    def open(self, path: str) -> Any:
        """Return the answer to a request, to be read."""
        request = Request(self.address + path, headers={"Authorization": f"Bearer {TOKEN}"})  # noqa: S310 (always http)
        return urlopen(request, timeout=60)  # noqa: S310 (always http)

    def milliseconds(self, path: str) -> float:
        """Return how long it takes until a page is here."""
        started = perf_counter()
        with self.open(path) as answer:
            answer.read()
        return (perf_counter() - started) * 1e3

    def read_ahead(self) -> float:
        """Wait until all runs were looked through; return the seconds."""
        started = perf_counter()
        while True:
            with self.open("/spend.json") as answer:
                if json.load(answer)["read"] is None:
                    break
            sleep(0.5)
        seconds = perf_counter() - started
        while self._cpu_within(1.0) > 0.05:  # what else it reads ahead
            pass
        return seconds

    def _cpu_within(self, seconds: float) -> float:
        before = self.cpu()
        sleep(seconds)
        return self.cpu() - before

    def cpu(self) -> float:
        """Return the seconds of CPU that it took until now."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mebibytes(self) -> float:
        """Return how much memory it has."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def watch(self, run_id: str, ends: Event) -> None:
        """Do what a browser does with the page of a run that is at work."""
        while not ends.is_set():  # until the run is kept
            try:
                self.milliseconds(f"/runs/{run_id}")
                break
            except HTTPError:
                sleep(0.05)
        with self.open(f"/runs/{run_id}.events?since=") as stream:
            for line in stream:
                if ends.is_set():
                    return
                if line.startswith(b"event: change"):
                    self.milliseconds(f"/runs/{run_id}")


def pages_table(server: Server, kept: dict[str, str]) -> str:
    paths = {name: path.format(**kept) for name, path in PAGES.items()}
    firsts = {name: server.milliseconds(path) for name, path in paths.items()}
    rows: list[tuple[object, ...]] = []
    for name, path in paths.items():
        before = server.cpu()
        times = [server.milliseconds(path) for _ in range(REPEATS)]
        cpu = (server.cpu() - before) / REPEATS * 1e3
        met = f"{TARGET:.0f} {verdict(median(times), TARGET)}"
        rows.append((name, *(f"{value:.0f}" for value in (firsts[name], median(times), cpu)), met))
    return table(("page, milliseconds", "first time", "median", "CPU, mean", "target of the median"), rows)


def run_at_work(folder: Path, run_id: str, server: Server | None) -> tuple[float, float]:
    """Carry out a run, watched or not; return the CPU seconds that it and the dashboard took for it."""
    command = [sys.executable, "-c", WATCHED, str(folder / ".redraft" / "redraft.db"), run_id, str(REVISIONS)]
    before = server.cpu() if server else 0.0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ends = Event()
    watcher = None if server is None else Thread(target=server.watch, args=(run_id, ends), daemon=True)
    if watcher is not None:
        watcher.start()
    took = float(process.communicate(timeout=120)[0])
    watched = server.cpu() - before if server else 0.0
    ends.set()
    return took, watched


def live_table(folder: Path, server: Server) -> str:
    alone: list[float] = []
    watched: list[float] = []
    dashboard: list[float] = []
    for pair in range(PAIRS):
        for is_watched in (False, True) if pair % 2 else (True, False):
            took, other = run_at_work(folder, f"at-work-{pair}-{is_watched}", server if is_watched else None)
            (watched if is_watched else alone).append(took)
            dashboard += [other] if is_watched else []
    share = 100 * median_gap(watched, alone) / median(alone)
    met = f"{SHARE:.0f} % {verdict(share, SHARE)}"
    rows = [
        ("the run alone", f"{median(alone) * 1e3:.0f}", "", ""),
        ("the run, its page open", f"{median(watched) * 1e3:.0f}", f"{share:+.1f} %", met),
        ("the dashboard meanwhile", f"{median(dashboard) * 1e3:.0f}", "", ""),
    ]  # fmt: skip
    return table(("CPU milliseconds", "median", "over the run alone", "target"), rows)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=100_000, help="runs that are kept")
    chosen = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / ".redraft").mkdir()
        (folder / "redraft.toml").touch()
        kept = asyncio.run(fill(folder, chosen.runs))
        with served(folder) as server:
            seconds = server.read_ahead()
            pages = pages_table(server, kept)
            memory = server.mebibytes()
            live = live_table(folder, server)
    ahead = (
        f"To look through {chosen.runs:,} runs took {seconds:.0f} s; the server then had {memory:.0f} MiB."
    )
    publish("dashboard", f"{pages}\n\n{ahead}.\n\n{live}", write=chosen.write)


if __name__ == "__main__":
    main()
