"""Many loops at once: wall time over the ideal and memory per loop, beside a bare asyncio loop."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CALL = 0.05
"""Seconds that each model call sleeps."""
SCORES = {"first": 0.3, "second": 0.6, "third": 0.9}
NEXT = {"first": "second", "second": "third"}
IDEAL = CALL * 2 * len(SCORES)
"""Seconds that the calls of one loop sleep: each version is made by one call and judged by another."""
LOOPS_AT_ONCE = (1_000, 10_000)
TARGETS = {1_000: 1.3}
"""How many times the ideal that many loops may take."""


async def generate(_prompt: str) -> str:
    await asyncio.sleep(CALL)
    return "first"


async def revise(output: str, _evaluation: object) -> str:
    await asyncio.sleep(CALL)
    return NEXT[output]


async def judge(output: str) -> tuple[float, str]:
    await asyncio.sleep(CALL)
    return SCORES[output], f"{output} could be better"


async def bare() -> list[tuple[str, float, str]]:
    """Run a loop as one writes it by hand, which keeps its versions."""
    versions: list[tuple[str, float, str]] = []
    draft = await generate("task")
    while True:
        score, why = await judge(draft)
        versions.append((draft, score, why))
        if score >= 0.8:
            return versions
        draft = await revise(draft, why)


async def redrafted() -> object:
    """Run the same with `reflect`."""
    from redraft import reflect

    return await reflect("task", generate=generate, evaluate=judge, revise=revise)


LOOPS = {"bare": bare, "redrafted": redrafted}


def run_child(name: str, loops: int) -> None:
    """Run so many loops at once in this process, all results kept, and print what it took as JSON."""
    loop = LOOPS[name]
    asyncio.run(at_once(loop, 10))  # what is imported and allocated once is not a loop's
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = asyncio.run(at_once(loop, loops))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "kib": (peak - before) / loops}))


async def at_once(loop: Callable[[], Awaitable[object]], loops: int) -> float:
    """Return the wall time of so many loops started together."""
    started = perf_counter()
    results = await asyncio.gather(*(loop() for _ in range(loops)))
    seconds = perf_counter() - started
    assert len(results) == loops
    return seconds


def measure(loops: int, repeats: int) -> dict[str, dict[str, float]]:
    """Return the medians of fresh child processes, bare and redrafted by turns."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in LOOPS}
    for _ in range(repeats):
        for name, found in runs.items():
            argv = [sys.executable, str(Path(__file__)), "--child", name, "--loops", str(loops)]
            found.append(json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout))
    return {
        name: {key: median(run[key] for run in found) for key in ("seconds", "kib")}
        for name, found in runs.items()
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="child processes for each figure")
    parser.add_argument("--loops", type=int, nargs="+", default=LOOPS_AT_ONCE, help="how many at once")
    parser.add_argument("--child", choices=LOOPS, help="measure in this process and print JSON")
    given = parser.parse_args()
    if given.child:
        run_child(given.child, given.loops[0])
        return
    rows: list[tuple[object, ...]] = []
    for loops in given.loops:
        found = measure(loops, given.repeats)
        floor, ours = found["bare"], found["redrafted"]
        ratio, target = ours["seconds"] / IDEAL, TARGETS.get(loops)
        rows.append(
            (
                f"{loops:,} loops",
                f"{floor['seconds']:.2f} s",
                f"{ours['seconds']:.2f} s",
                f"{floor['seconds'] / IDEAL:.2f}",
                f"{ratio:.2f}",
                "" if target is None else f"{target:.1f} {verdict(ratio, target)}",
                f"{floor['kib']:.1f}",
                f"{ours['kib']:.1f}",
            )
        )
    head = (
        f"ideal {IDEAL:.2f} s",
        "bare",
        "reflect",
        "bare / ideal",
        "reflect / ideal",
        "target",
        "bare KiB a loop",
        "reflect KiB a loop",
    )
    note = "Memory is the growth of the peak resident set of a fresh child process, all results kept."
    publish("concurrency", f"{table(head, rows)}\n\n{note}", write=given.write)


if __name__ == "__main__":
    main()
