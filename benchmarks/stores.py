"""What storing records costs: CPU time of a put and a get; many tasks and processes writing at once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time, time
from typing import TYPE_CHECKING

from _measure import options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redraft.stores.base import Record, Store

SIZE = 1500
"""Bytes of the JSON text of a record."""
TASKS = 100
WRITES = 50
"""Records that each task writes, one after the other."""
COUNT = 500
"""Puts and gets for each figure of CPU time."""
PROCESSES = 8
SHARE_TARGET = 1 / 3
"""The least share of the fastest process's writes that the slowest one has."""
FIELDS = {"name": "generate", "at": "2026-11-22T03:47:00+00:00", "usage": {"input": 812, "output": 331}}


def record(key: str) -> Record:
    from redraft.stores.base import Record

    filling = SIZE - len(json.dumps({**FIELDS, "text": ""}))
    return Record("step", key, {**FIELDS, "text": "x" * filling})


async def cpu_ms(store: Store, count: int) -> tuple[float, float, float]:
    """Return the CPU milliseconds of a put alone, of one among many at once, and of a get alone."""
    await asyncio.gather(*(store.put(record(f"warm/{number}")) for number in range(count)))
    started = process_time()
    for number in range(count):
        await store.put(record(f"alone/{number}"))
    alone = process_time() - started
    started = process_time()
    await asyncio.gather(*(store.put(record(f"many/{number}")) for number in range(count)))
    many = process_time() - started
    started = process_time()
    for number in range(count):
        assert await store.get("step", f"alone/{number}") is not None
    got = process_time() - started
    await store.aclose()
    return alone / count * 1e3, many / count * 1e3, got / count * 1e3


INSERT = "INSERT INTO records VALUES ('', 'step', ?, ?, 1, 1, 1, 1, 0)"
"""A row of the store's table, by its key and its data."""


def raw_connection(folder: str) -> sqlite3.Connection:
    """Return a plain connection to a database of the same form, as durable as the store's."""
    from redraft._sync import run_sync
    from redraft.stores.sqlite import SqliteStore

    path = Path(folder) / "raw.db"
    store = SqliteStore(path)
    run_sync(store.put(record("first")))  # makes the tables
    run_sync(store.aclose())
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def raw_insert(connection: sqlite3.Connection, keys: Iterable[str]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for key in keys:
        connection.execute(INSERT, (key, json.dumps(record(key).data)))
    connection.execute("COMMIT")


def raw_cpu_ms(count: int) -> tuple[float, float, float]:
    """Return the same of plain sqlite3, in this thread."""
    with TemporaryDirectory() as folder:
        connection = raw_connection(folder)
        raw_insert(connection, (f"warm/{number}" for number in range(count)))
        started = process_time()
        for number in range(count):
            raw_insert(connection, [f"alone/{number}"])
        alone = process_time() - started
        started = process_time()
        raw_insert(connection, (f"many/{number}" for number in range(count)))
        many = process_time() - started
        started = process_time()
        for number in range(count):
            found = connection.execute(
                "SELECT data FROM records WHERE space = '' AND kind = 'step' AND key = ?",
                (f"alone/{number}",),
            )
            assert json.loads(found.fetchone()[0])
        got = process_time() - started
        connection.close()
    return alone / count * 1e3, many / count * 1e3, got / count * 1e3


def store_cpu_ms(name: str) -> tuple[float, float, float]:
    from redraft.stores.sqlite import MemoryStore, SqliteStore

    if name == "plain sqlite3":
        return raw_cpu_ms(COUNT)
    with TemporaryDirectory() as folder:
        store = MemoryStore() if name == "MemoryStore" else SqliteStore(Path(folder) / "redraft.db")
        return asyncio.run(cpu_ms(store, COUNT))


def cpu_table(repeats: int) -> str:
    names = ("plain sqlite3", "MemoryStore", "SqliteStore")
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            found[name].append(store_cpu_ms(name))
    rows: list[tuple[object, ...]] = []
    for name, times in found.items():
        medians = [median(column) for column in zip(*times, strict=True)]
        rows.append((name, *(f"{each:.3f}" for each in medians)))
    head = (f"CPU milliseconds, {SIZE} bytes", "put alone", f"put among {COUNT}", "get alone")
    return table(head, rows)


def raw_inserts(folder: str) -> float:
    """Return records a second of plain sqlite3, as many in a transaction as there are tasks."""
    connection = raw_connection(folder)
    started = perf_counter()
    for number in range(WRITES):
        raw_insert(connection, (f"{task}/{number}" for task in range(TASKS)))
    seconds = perf_counter() - started
    connection.close()
    return TASKS * WRITES / seconds


async def through_the_store(folder: str) -> float:
    """Return records a second of so many tasks that put one record after the other."""
    from redraft.stores.sqlite import SqliteStore

    store = SqliteStore(Path(folder) / "redraft.db")
    await store.put(record("first"))

    async def write(task: int) -> None:
        for number in range(WRITES):
            await store.put(record(f"{task}/{number}"))

    started = perf_counter()
    await asyncio.gather(*map(write, range(TASKS)))
    seconds = perf_counter() - started
    await store.aclose()
    return TASKS * WRITES / seconds


def throughput_table(repeats: int) -> str:
    plain: list[float] = []
    ours: list[float] = []
    for _ in range(repeats):
        with TemporaryDirectory() as folder:
            plain.append(raw_inserts(folder))
            ours.append(asyncio.run(through_the_store(folder)))
    ratio = median(mine / bare for mine, bare in zip(ours, plain, strict=True))
    head = (
        "records a second",
        f"plain sqlite3, {TASKS} a commit",
        f"{TASKS} tasks, SqliteStore",
        "ratio",
    )
    row = (
        f"{SIZE} bytes",
        f"{median(plain):,.0f}",
        f"{median(ours):,.0f}",
        f"{ratio:.2f}",
    )
    return table(head, [row])


async def write_for(path: str, name: str, begin: float, seconds: float) -> dict[str, float]:
    """Write with five tasks from one moment on for so long; return how many records, and the longest wait."""
    from redraft.stores.sqlite import SqliteStore

    store = SqliteStore(path)
    longest = 0.0

    async def write(task: int) -> int:
        nonlocal longest
        written = 0
        while (asked := time()) < begin + seconds:
            await store.put(record(f"{name}/{task}/{written}"))
            longest = max(longest, time() - asked)
            written += 1
        return written

    await asyncio.sleep(begin - time())
    written = sum(await asyncio.gather(*map(write, range(5))))
    await store.aclose()
    return {"written": written, "longest": longest}


def fairness_table(seconds: float) -> str:
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / "redraft.db")
        begin = time() + 3
        argv = [sys.executable, str(Path(__file__)), "--child", path, str(begin), str(seconds)]
        processes = [
            subprocess.Popen([*argv, str(number)], stdout=subprocess.PIPE, text=True)
            for number in range(PROCESSES)
        ]
        found = [json.loads(process.communicate()[0]) for process in processes]
        with sqlite3.connect(path) as connection:
            (kept,) = connection.execute("SELECT count(*) FROM records").fetchone()
        connection.close()
    written = [each["written"] for each in found]
    share = min(written) / max(written)
    head = (
        f"{PROCESSES} processes of 5 tasks, {seconds:g} s",
        "records a second",
        "lost",
        "slowest / fastest",
        "target",
        "longest wait",
    )
    row = (
        "SqliteStore",
        f"{sum(written) / seconds:,.0f}",
        f"{sum(written) - kept:.0f}",
        f"{share:.2f}",
        f"{SHARE_TARGET:.2f} {verdict(SHARE_TARGET, share)}",
        f"{max(each['longest'] for each in found):.2f} s",
    )
    return table(head, [row])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs for each figure but the last table's")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the processes write")
    parser.add_argument("--child", nargs=4, help="write in this process and print JSON")
    given = parser.parse_args()
    if given.child:
        path, begin, seconds, name = given.child
        print(json.dumps(asyncio.run(write_for(path, name, float(begin), float(seconds)))))
        return
    tables = (cpu_table(given.repeats), throughput_table(given.repeats), fairness_table(given.seconds))
    publish("stores", "\n\n".join(tables), write=given.write)


if __name__ == "__main__":
    main()
