"""An evaluation of 1,000 cases at once: wall time over the ideal, by how long a model's call takes.

A case takes two calls, a draft that does not pass and a revision that does, so the ideal is two calls for any
number of cases. What each case costs this process is the same however long the calls are.
"""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict

from redraft import Agent, QualityCriterion, ReflectionPattern
from redraft.evals import EvalCase, Evaluation
from redraft.protocols import ChatReply
from redraft.stores.sqlite import SqliteStore
from redraft.types import PlainTask

if TYPE_CHECKING:
    from redraft.protocols import ChatRequest
    from redraft.stores.base import Store

CALLS = 2
TARGET = 1.3
GOOD = QualityCriterion("good", evaluator="regex", evaluator_config={"pattern": "good"})


async def evaluate(cases: int, seconds: float, store: Store) -> tuple[float, float]:
    """Evaluate so many cases at once with calls of some seconds; return the wall and the CPU time."""

    async def model(request: ChatRequest) -> ChatReply:
        await asyncio.sleep(seconds)
        return ChatReply("bad" if request.role == "generation" else "good")

    tasks = [EvalCase(f"case-{number}", PlainTask(f"Task {number}."), (GOOD,)) for number in range(cases)]
    agent = Agent(model, pattern=ReflectionPattern(CALLS - 1), keep=False, name="writer")
    wall, cpu = perf_counter(), process_time()
    report = await Evaluation(tasks, agent, concurrency=cases, store=store).run()
    wall, cpu = perf_counter() - wall, process_time() - cpu
    assert report.figures[0].passed_tries == cases
    return wall, cpu


async def measured(cases: int, seconds: float) -> tuple[float, float]:
    """Evaluate in a new SQLite store."""
    gc.collect()
    with TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "redraft.db")
        try:
            return await evaluate(cases, seconds, store)
        finally:
            await store.aclose()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cases", type=int, default=1_000, help="how many at once")
    parser.add_argument("--calls", type=float, nargs="+", default=[0.05, 1, 10], help="seconds of a call")
    given = parser.parse_args()
    asyncio.run(measured(10, 0))  # imports happen here, not in the first case
    rows: list[tuple[object, ...]] = []
    for seconds in given.calls:
        wall, cpu = asyncio.run(measured(given.cases, seconds))
        ratio = wall / (CALLS * seconds)
        rows.append(
            (
                f"{seconds:g} s",
                f"{CALLS * seconds:g} s",
                f"{wall:.2f} s",
                f"{ratio:.2f}",
                f"{TARGET} {verdict(ratio, TARGET)}",
                f"{1e3 * cpu / given.cases:.2f}",
            )
        )
    head = (f"{given.cases:,} cases, calls of", "ideal", "took", "took / ideal", "target", "CPU ms a case")
    publish("cases-at-once", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
