"""What the dashboard takes with 100,000 runs kept: each page on the server, and a run that is watched."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from html import unescape
from importlib.util import find_spec
from math import comb
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from time import perf_counter, sleep
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

from _measure import options, publish, table, verdict
from _project import fill, made_run

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from playwright.sync_api import Browser

    from redraft.stores.base import Record, Store


TARGET = 300.0
"""Milliseconds of CPU of the server for a page, at the median."""
REPEATS = 9
NEW_RUNS = 5
PAIRS = 20
PAGES = {
    "runs": "/runs",
    "runs of an agent and a reason": "/runs?name=agent%2007&reason=plateau",
    "runs that failed": "/runs?status=failed",
    "a run": "/runs/{run}",
    "a run of 200 versions": "/runs/a-long-run",
    "a workflow": "/workflows/a-real-workflow",
    "diff": "/runs/{run}/diff?view=side",
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
    """Return all tables about a dashboard."""
    paths = {name: path.format(**kept) for name, path in PAGES.items()}
    pages = pages_table(folder, server, paths)
    memory = f"With {runs:,} runs, each of which used a note and three lessons, the server has"
    parts = (
        pages,
        f"{memory} {server.mebibytes():.0f} MiB.",
        first_paint(server, paths),
        watched_table(folder, server, pairs),
    )
    return "\n\n".join(parts)


def pages_table(folder: Path, server: Server, paths: dict[str, str]) -> str:
    """Ask for each page again and again: as it is, and each time after one more run has ended."""
    from redraft.stores.sqlite import SqliteStore

    firsts = {name: server.cost(path) for name, path in paths.items()}
    rng, store = random.Random(11), SqliteStore(folder / ".redraft" / "redraft.db")
    rows: list[tuple[object, ...]] = []
    slowest = 0.0
    for at, (name, path) in enumerate(paths.items()):
        costs = [server.cost(path) for _ in range(REPEATS)]
        changed: list[float] = []
        for number in range(NEW_RUNS):
            asyncio.run(keep(store, made_run(rng, 10**6 + at * NEW_RUNS + number)))
            changed.append(server.cost(path))
        cpu, after = median(costs), median(changed)
        shown = (firsts[name], cpu, after)
        rows.append((name, *(f"{value:.0f}" for value in shown)))
        slowest = max(slowest, cpu, after)
    head = ("page, milliseconds", "CPU, first time", "CPU", "CPU after a run")
    held = f"The target is {TARGET:.0f} ms for the medians of CPU time: {verdict(slowest, TARGET)}."
    return f"{table(head, rows)}\n\n{held}"


async def keep(store: Store, run: Record) -> None:
    """Store one more run that has ended."""
    await store.put(run)
    await store.aclose()


TOKEN = "of-the-benchmark"  # noqa: S105 (of a server that lives for minutes)


@contextmanager
def served(folder: Path) -> Generator[Server]:
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

    def text(self, path: str) -> str:
        """Return a page."""
        with self.open(path) as answer:
            return answer.read().decode()

    def cost(self, path: str) -> float:
        """Return the milliseconds of CPU that a page takes the server."""
        before = self.cpu()
        self.text(path)
        return (self.cpu() - before) * 1e3

    def cpu(self) -> float:
        """Return the seconds of CPU that its threads took until now."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def mebibytes(self) -> float:
        """Return how much memory it has."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def watch(self, run_id: str, ends: Event, times: list[float]) -> None:
        """Do what a browser does with the page of a run until that is over: listen, and read it again.

        Adds to `times` the seconds of each reading.
        """
        while not ends.is_set():  # until the run is kept
            try:
                page = self._read(run_id, times)
                break
            except HTTPError:
                sleep(0.01)
        else:
            return
        found = re.search(r'data-events="([^"]+)" data-fingerprint="([^"]*)"', page)
        if found is None:
            return
        events, fingerprint = map(unescape, found.groups())
        with self.open(f"{events}?since={quote(fingerprint)}") as stream:
            for line in stream:
                if line.startswith(b"event: change") and "data-events" not in self._read(run_id, times):
                    return

    def _read(self, run_id: str, times: list[float]) -> str:
        started = perf_counter()
        page = self.text(f"/runs/{run_id}")
        times.append(perf_counter() - started)
        return page


LOADS = 7
PAINTED = """async () => {
    while (performance.getEntriesByType("paint").length < 2) await new Promise((on) => setTimeout(on, 10));
    return performance.getEntriesByName("first-contentful-paint")[0].startTime;
}"""


def first_paint(server: Server, paths: Mapping[str, str]) -> str:
    """Open each page several times in Chromium, each time in a new window, and say when it was painted."""
    chromium = (
        os.environ.get("REDRAFT_TEST_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if chromium is None or find_spec("playwright") is None:
        return "There is no Chromium here, or no Playwright, so the first paint was not measured."
    from playwright.sync_api import sync_playwright

    painted: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, path in paths.items():
            painted[name] = [_load(browser, server.address, path) for _ in range(LOADS)]
        version = browser.version
        browser.close()
    medians = {name: median(times) for name, times in painted.items()}
    latest = max(medians, key=lambda name: medians[name])
    return (
        f"First paint in Chromium {version}: {min(medians.values()):.0f} to {medians[latest]:.0f} ms "
        f"(medians of {LOADS} loads, nothing cached; the latest is {latest!r})."
    )


def _load(browser: Browser, address: str, path: str) -> float:
    """Return the milliseconds until the first paint of a page."""
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
    page = context.new_page()
    page.goto(address + path, wait_until="load")
    painted = page.evaluate(PAINTED)
    context.close()
    return painted


SHARE = 1.0
"""Percent of its time that a run may spend on being watched."""
VERSIONS = 200
FEWEST = 6
"""Pairs of which no fewer can tell anything: of five, all on one side is what chance does in one of 16."""
PROGRAM = """
import asyncio, random, sys
from time import perf_counter, process_time
from redraft import Agent, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.loop import EventLog
from redraft.stores.sqlite import SqliteStore

async def main(database, versions):
    store, calls, rng = SqliteStore(database), 0, random.Random(3)
    words = [f"word{rng.randrange(500)}" for _ in range(400)]

    async def answer(request):
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.01)
        for _ in range(20):
            words[rng.randrange(len(words))] = f"change{rng.randrange(900)}"
        return " ".join(words)

    better = QualityCriterion(
        "better", evaluator="function", evaluator_config={"function": lambda output: calls / 1_000}
    )
    with EventLog(database + ".jsonl") as log:
        pattern = ReflectionPattern(
            max_iterations=versions - 1, plateau_iterations=versions, improvement_threshold=0, on_event=log,
            detect_oscillation=False, revision_strategy="full_rewrite", quality_criteria=[better],
        )
        agent = Agent(ScriptedModel(answer), pattern=pattern, keep=store)
        for run_id in map(str.strip, sys.stdin):
            calls, cpu, clock = 0, process_time(), perf_counter()
            result = await agent.run("Be watched.", run_id=run_id)
            assert len(result.history.versions) == versions, result.convergence_reason
            print(process_time() - cpu, perf_counter() - clock, flush=True)
    await store.aclose()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Took(NamedTuple):
    """Hold the seconds that a run took, of CPU and by the clock, and what its watching took meanwhile."""

    cpu: float
    clock: float
    dashboard: float = 0.0
    readings: int = 0


@contextmanager
def running(folder: Path) -> Generator[tuple[IO[str], IO[str]]]:
    """Start a process that carries out a run for each id that is written to it, and tells what it took."""
    command = [sys.executable, "-c", PROGRAM, str(folder / ".redraft" / "redraft.db"), str(VERSIONS)]
    process = subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=60)


def run_of(pipes: tuple[IO[str], IO[str]], run_id: str, server: Server | None) -> Took:
    """Carry out a run, with its page open where there is a server for that."""
    ends, times = Event(), list[float]()
    watcher, before = None, 0.0
    if server is not None:
        before = server.cpu()
        watcher = Thread(target=server.watch, args=(run_id, ends, times), daemon=True)
        watcher.start()
    pipes[0].write(f"{run_id}\n")
    cpu, clock = map(float, pipes[1].readline().split())
    ends.set()
    if server is None or watcher is None:
        return Took(cpu, clock)
    watcher.join(60)
    return Took(cpu, clock, server.cpu() - before, len(times))


def watched_table(folder: Path, server: Server, pairs: int) -> str:
    """Measure so many pairs of runs, and say what the one costs more than the other."""
    alone: list[Took] = []
    watched: list[Took] = []
    with running(folder) as pipes:
        for warming in (None, server):
            run_of(pipes, f"warming-{warming is None}", warming)
        for pair in range(pairs):
            for is_watched in (False, True) if pair % 2 else (True, False):
                took = run_of(pipes, f"at-work-{pair}-{is_watched}", server if is_watched else None)
                (watched if is_watched else alone).append(took)
    readings = median(one.readings for one in watched)
    rows = [
        ("the run alone", _milliseconds(alone, "cpu"), _milliseconds(alone, "clock"), "", ""),
        (
            f"the run, its page open and read {readings:.0f} times",
            _milliseconds(watched, "cpu"),
            _milliseconds(watched, "clock"),
            *(_more(watched, alone, what) for what in ("cpu", "clock")),
        ),
        ("the dashboard meanwhile", _milliseconds(watched, "dashboard"), "", "", ""),
    ]
    head = (f"a run of {VERSIONS} versions, milliseconds", "CPU", "clock", "more CPU", "more time")
    told = (
        f"Medians of {pairs} pairs; what the watched run takes more is the median of the pairs' ratios, with "
        f"its 95 % interval by the signs. The target is {SHARE:.0f} %."
    )
    return f"{table(head, rows)}\n\n{told}"


def _milliseconds(took: Sequence[Took], what: str) -> str:
    return f"{median(getattr(one, what) for one in took) * 1e3:,.0f}"


def _more(watched: Sequence[Took], alone: Sequence[Took], what: str) -> str:
    pairs = zip(watched, alone, strict=True)
    ratios = [100 * (getattr(one, what) / getattr(other, what) - 1) for one, other in pairs]
    low, high = sign_interval(ratios)
    said = "met" if high <= SHARE else "**missed**" if low > SHARE else "not distinguishable"
    if len(ratios) < FEWEST:
        said = "too few pairs"
    return f"{median(ratios):+.1f} % ({low:+.1f} to {high:+.1f}): {said}"


def sign_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of values that has the true median between in at least 95 of 100 cases.

    It supposes nothing about how values are distributed. It takes at least six of them.
    """
    ordered, count = sorted(values), len(values)
    beyond, out = 0.0, 0
    while (beyond := beyond + comb(count, out) / 2**count) <= 0.025:
        out += 1
    at = max(0, out - 1)
    return ordered[at], ordered[-1 - at]


if __name__ == "__main__":
    main()
