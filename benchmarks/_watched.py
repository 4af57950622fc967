"""What a run pays for being watched: the same run by turns with its page open and without."""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from math import comb
from statistics import median
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, NamedTuple

from _measure import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from _dashboard import Server

SHARE = 1.0
"""Percent of its time that a run may spend on being watched."""
VERSIONS = 200
FEWEST = 6
"""Pairs of which no fewer can tell anything: of five, all on one side is what chance does in one of 16."""
RUNS = """
import asyncio, random, sys
from time import perf_counter, process_time
from redraft import Agent, EventLog, QualityCriterion, ReflectionPattern, ScriptedModel
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
def running(folder: Path) -> Iterator[tuple[IO[str], IO[str]]]:
    """Start a process that carries out a run for each id that is written to it, and tells what it took."""
    command = [sys.executable, "-c", RUNS, str(folder / ".redraft" / "redraft.db"), str(VERSIONS)]
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
    said = "met" if high <= SHARE else "**missed**" if low > SHARE else "not told apart"
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
