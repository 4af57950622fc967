"""What records cost in a local PostgreSQL beside a file: puts, gets, nearest vectors."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random
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
VECTORS, DIMENSIONS = 5_000, 384


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


async def near_ms(store: Store) -> float:
    """Return the milliseconds in which the three nearest of many vectors are found."""
    from redraft.stores.base import Record

    chance = Random(1)
    vectors = [[chance.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(VECTORS)]
    records = [Record("lesson", str(number), {}, vector=vector) for number, vector in enumerate(vectors)]
    await asyncio.gather(*map(store.put, records))
    found: list[float] = []
    for _ in range(5):
        started = perf_counter()
        assert len(await store.near("lesson", vectors[0])) == 3
        found.append((perf_counter() - started) * 1e3)
    await store.aclose()
    return median(found)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs for each figure but that of the nearest")
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
    place = Place(server.url())
    plain = asyncio.run(near_ms(PostgresStore(place.url)))
    place.ask(f"CREATE EXTENSION vector SCHEMA {place.schema}")
    with_extension = asyncio.run(near_ms(PostgresStore(place.url)))
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
    nearest = (f"the 3 nearest of {VECTORS:,}, {DIMENSIONS} dimensions", "milliseconds")
    vectors = [("PostgresStore with pgvector", f"{with_extension:.0f}"), ("without", f"{plain:.0f}")]
    publish("postgres", f"{table(head, rows)}\n\n{table(nearest, vectors)}", write=given.write)


if __name__ == "__main__":
    main()
