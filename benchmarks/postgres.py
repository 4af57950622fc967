"""What puts and gets of records cost in a local PostgreSQL, compared with a file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from _measure import PROJECT, options, publish, table

from stores import TASKS, record

if TYPE_CHECKING:
    from redraft.stores.base import Store

ALONE = 300
EACH = 30
"""Records that each of many tasks writes, one after the other."""


async def rates(store: Store) -> tuple[float, float, float]:
    """Return milliseconds of a put alone and a get alone, and records a second of many tasks that put."""
    await store.put(record("first"))
    await store.get("step", "first")
    started = perf_counter()
    for number in range(ALONE):
        await store.put(record(f"alone/{number}"))
    put = (perf_counter() - started) / ALONE * 1e3
    started = perf_counter()
    for number in range(ALONE):
        assert await store.get("step", f"alone/{number}") is not None
    got = (perf_counter() - started) / ALONE * 1e3

    async def write(task: int) -> None:
        for number in range(EACH):
            await store.put(record(f"{task}/{number}"))

    started = perf_counter()
    await asyncio.gather(*map(write, range(TASKS)))
    many = TASKS * EACH / (perf_counter() - started)
    await store.aclose()
    return put, got, many


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs for each figure")
    given = parser.parse_args()
    sys.path.insert(0, str(PROJECT / "tests"))
    from redraft.stores.postgres import PostgresStore
    from redraft.stores.sqlite import SqliteStore
    from support.postgres_server import Place, Server

    server = Server(durable=True)
    server.start()
    found: dict[str, list[tuple[float, float, float]]] = {"SqliteStore": [], "PostgresStore": []}
    for _ in range(given.repeats):
        with TemporaryDirectory() as folder:
            found["SqliteStore"].append(asyncio.run(rates(SqliteStore(Path(folder) / "redraft.db"))))
        place = Place(server.url())
        found["PostgresStore"].append(asyncio.run(rates(PostgresStore(place.url))))
        place.drop()
    server.remove()
    rows = [
        (
            name,
            *(
                f"{median(column):,.{digits}f}"
                for column, digits in zip(zip(*times, strict=True), (2, 2, 0), strict=True)
            ),
        )
        for name, times in found.items()
    ]
    head = ("1500 bytes, durable", "put alone, ms", "get alone, ms", f"{TASKS} tasks, records a second")
    publish("postgres", table(head, rows), write=given.write)


if __name__ == "__main__":
    main()
