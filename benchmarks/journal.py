"""What storing a run costs: CPU time a step, and steps a second of concurrent runs beside raw inserts."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from argparse import SUPPRESS
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter, process_time, sleep, time
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict

from redraft import Draft, ReflectionPattern, reflect
from redraft._steps import direct
from redraft._verdicts import evaluation_of
from redraft.loop.journal import STEP, Journalled, StepRecords
from redraft.stores.sqlite import SqliteStore
from redraft.types import ReflectionEvaluation, TokenUsage
from stores import INSERT, raw_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.stores import Record

REVISIONS = 9
STEPS = 2 * (REVISIONS + 1)
IN_A_ROW = 5
"""Runs, one after the other, for one figure of what a run alone takes: one is over in ten milliseconds."""
RUNS = 100
PROCESSES = 8
REPEATS = 7
ALONE, TOGETHER = 800.0, 200.0
"""Microseconds of CPU that a journalled step may cost: of one journal, and of 100 runs at once."""

TEXT = "All work and no play makes a dull draft. " * 36
PATTERN = ReflectionPattern(max_iterations=REVISIONS, until=lambda _: None)
USED = TokenUsage(900, 380, requests=1, cost_usd=0.004)


async def generate(_prompt: str) -> Draft:
    return Draft(f"{TEXT}1", USED)


async def evaluate(output: str) -> tuple[float, str]:
    return 0.5, f"Not good enough, says the judge of a draft that has {len(output)} characters."


async def revise(output: str, _evaluation: object) -> Draft:
    return Draft(f"{output}1", USED, ("Made longer.",), "full_rewrite")


async def run(store: SqliteStore | None, run_id: str, *, resumes: bool = False) -> None:
    step = None if store is None else Journalled(store, run_id, resumes=resumes)
    await reflect("Write.", generate=generate, evaluate=evaluate, revise=revise, pattern=PATTERN, step=step)


async def judged(output: str) -> ReflectionEvaluation:
    return evaluation_of(await evaluate(output))


async def steps_of_run(store: SqliteStore | None, run_id: str) -> None:
    """Take the steps of such a run, without the run: no loop, and no record of its own."""
    if store is None:
        step = direct
    else:
        step = Journalled(store, run_id, resumes=False, log=StepRecords(store, run_id))
    draft = await step("generate", Draft, generate, "Write.")
    evaluation = await step("evaluate", ReflectionEvaluation, judged, draft.output)
    for _ in range(REVISIONS):
        draft = await step("revise", Draft, revise, draft.output, evaluation)
        evaluation = await step("evaluate", ReflectionEvaluation, judged, draft.output)


async def many(store: SqliteStore, name: str) -> None:
    await asyncio.gather(*(run(store, f"{name}-{number}") for number in range(RUNS)))


def raw_inserts(folder: Path, records: list[Record]) -> tuple[float, float]:
    """Write the same rows into the same table, plainly, `RUNS` to a commit, and then some one by one.

    Returns the rows a second of the former, and the CPU microseconds a row of the latter.
    """
    database = raw_connection(str(folder))
    started = perf_counter()
    for first in range(0, len(records), RUNS):
        database.execute("BEGIN IMMEDIATE")
        for record in records[first : first + RUNS]:
            database.execute(INSERT, (record.key, json.dumps(record.data)))
        database.execute("COMMIT")
    rate = len(records) / (perf_counter() - started)
    rows = [(f"alone/{record.key}", json.dumps(record.data)) for record in records[:STEPS]]
    started = process_time()
    for row in rows:
        database.execute(INSERT, row)
    alone = (process_time() - started) * 1e6 / STEPS
    database.close()
    return rate, alone


def hop_cpu(milliseconds: float) -> float:
    """Return the CPU microseconds of going to another thread and back, where both have been idle for so long.

    What to sleep itself takes is not counted.
    """
    inbox: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()

    def answer() -> None:
        while (asked := inbox.get()) is not None:
            sleep(milliseconds / 1000)
            asked.get_loop().call_soon_threadsafe(asked.set_result, None)

    async def ask() -> None:
        for _ in range(STEPS):
            asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            inbox.put(asked)
            await asked
        inbox.put(None)

    thread = Thread(target=answer)
    thread.start()
    started = process_time()
    asyncio.run(ask())
    thread.join()
    middle = process_time()
    for _ in range(STEPS):
        sleep(milliseconds / 1000)
    return (middle - started - (process_time() - middle)) * 1e6 / STEPS


def fsync_milliseconds(folder: Path) -> float:
    """Return how long this machine waits for its disk: the median of writes of 4 KiB."""
    waits: list[float] = []
    with (folder / "fsync").open("wb") as file:
        for _ in range(50):
            file.write(b"x" * 4096)
            file.flush()
            started = perf_counter()
            os.fsync(file.fileno())
            waits.append((perf_counter() - started) * 1000)
    return median(waits)


def cpu_of(
    store: SqliteStore | None, name: str, work: Callable[[SqliteStore | None, str], Awaitable[None]] = run
) -> float:
    """Return the CPU microseconds a step of runs that follow one another, with all threads of the process."""

    async def one_by_one() -> None:
        for number in range(IN_A_ROW):
            await work(store, f"{name}-{number}")

    gc.collect()  # what the figures before have left behind is not these runs'
    started = process_time()
    asyncio.run(one_by_one())
    return (process_time() - started) * 1e6 / (IN_A_ROW * STEPS)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long eight processes keep runs at once"
    )
    parser.add_argument("--child", nargs=4, help=SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(asyncio.run(keep_runs(*given.child))))
        return
    publish("journal", f"{cost_table()}\n\n{crowd_table(given.seconds)}", write=given.write)


def cost_table() -> str:
    with TemporaryDirectory() as name:
        folder = Path(name)
        store = SqliteStore(folder / "redraft.db")
        cpu_of(store, "warm")
        steps: list[float] = []
        alone: list[float] = []
        bare: list[float] = []
        together: list[float] = []
        raw: list[tuple[float, float]] = []
        hops: list[float] = []
        cpu_together: list[float] = []
        fsync = fsync_milliseconds(folder)
        for repeat in range(REPEATS):
            steps.append(cpu_of(store, f"steps-{repeat}", steps_of_run) - cpu_of(None, "", steps_of_run))
            alone.append(cpu_of(store, f"alone-{repeat}"))
            bare.append(cpu_of(None, ""))
            started, cpu = perf_counter(), process_time()
            asyncio.run(many(store, f"many-{repeat}"))
            together.append(RUNS * STEPS / (perf_counter() - started))
            cpu_together.append((process_time() - cpu) * 1e6 / (RUNS * STEPS))
            records = asyncio.run(store.find(STEP, prefix=f"many-{repeat}-"))
            with TemporaryDirectory() as other:
                raw.append(raw_inserts(Path(other), records))
            hops.append(hop_cpu(fsync))
        replay_cpu_of(store, "warm-0")  # which builds what reads the records
        replay = median(replay_cpu_of(store, f"alone-{repeat}-0") for repeat in range(REPEATS))
        asyncio.run(store.aclose())
    step = median(steps)
    own, own_together = median(alone) - median(bare), median(cpu_together) - median(bare)
    ratio = median(one / other for one, (other, _) in zip(together, raw, strict=True))
    rate = median(together)
    rows_of_table = [
        [
            "one journal, CPU microseconds a step",
            f"{step:.0f}",
            f"{ALONE:.0f} {verdict(step, ALONE)}",
        ],
        [f"one stored run, CPU microseconds a step: {STEPS} steps, its record twice", f"{own:.0f}", ""],
        [
            "one such row, inserted and committed with plain sqlite3, CPU microseconds",
            f"{median(cpu for _, cpu in raw):.0f}",
            "",
        ],
        ["a round trip to another thread and nothing else, CPU microseconds", f"{median(hops):.0f}", ""],
        [
            f"{RUNS} runs at once, CPU microseconds a step",
            f"{own_together:.0f}",
            f"{TOGETHER:.0f} {verdict(own_together, TOGETHER)}",
        ],
        ["a replayed step, CPU microseconds", f"{replay:.0f}", ""],
        [f"{RUNS} runs at once, steps a second", f"{rate:,.0f}", ""],
        [f"raw inserts, {RUNS} to a commit, rows a second", f"{median(rate for rate, _ in raw):,.0f}", ""],
        ["ratio", f"{ratio:.2f}", ""],
        ["a wait for this disk (fsync), milliseconds", f"{fsync:.1f}", ""],
    ]
    return table(["storing a run", "figure", "target"], rows_of_table)


async def keep_runs(path: str, name: str, begin: str, seconds: str) -> dict[str, float]:
    """Keep one run after the other from a moment on; return how many, and the longest in seconds."""
    store, kept, longest = SqliteStore(path), 0, 0.0
    await asyncio.sleep(max(0.0, float(begin) - time()))
    end = perf_counter() + float(seconds)
    while (started := perf_counter()) < end:
        await run(store, f"{name}-{kept}")
        kept += 1
        longest = max(longest, perf_counter() - started)
    await store.aclose()
    return {"kept": kept, "longest": longest}


def crowd_table(seconds: float) -> str:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "redraft.db")
        begin = time() + 4
        argv = [sys.executable, __file__, "--child", path]
        processes = [
            subprocess.Popen(
                [*argv, f"p{number}", str(begin), str(seconds)], stdout=subprocess.PIPE, text=True
            )
            for number in range(PROCESSES)
        ]
        found = [json.loads(process.communicate()[0]) for process in processes]
        steps, runs = asyncio.run(counted(path))
    kept = [each["kept"] for each in found]
    lost = sum(kept) * STEPS - steps + sum(kept) - runs
    share = min(kept) / max(kept)
    head = [f"{PROCESSES} processes store runs, {seconds:g} s", "runs", "steps a second", "records lost"]
    row = [
        "`Journalled(SqliteStore)`",
        f"{sum(kept):,}",
        f"{sum(kept) * STEPS / seconds:,.0f}",
        f"{lost:,.0f}",
    ]
    head += ["slowest / fastest", "target", "longest run"]
    row += [f"{share:.2f}", f"0.33 {'met' if share >= 1 / 3 and not lost else '**missed**'}"]
    row += [f"{max(each['longest'] for each in found):.1f} s"]
    return table(head, [row])


async def counted(path: str) -> tuple[int, int]:
    """Return how many steps and finished runs a store holds."""
    store = SqliteStore(path)
    steps = len(await store.find(STEP))
    runs = len(await store.find("run", where={"status": "finished"}))
    await store.aclose()
    return steps, runs


def replay_cpu_of(store: SqliteStore, run_id: str) -> float:
    """Return the CPU microseconds a step of a run that was kept, when all its steps are replayed."""
    asyncio.run(store.delete("run", run_id))  # which would give the result at once
    gc.collect()
    started = process_time()
    asyncio.run(run(store, run_id, resumes=True))
    return (process_time() - started) * 1e6 / STEPS


if __name__ == "__main__":
    main()
