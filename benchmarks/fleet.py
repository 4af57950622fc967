"""What a fleet costs and gains: throughput of 1, 2 and 4 workers, CPU per run, and the wait for a claim."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time, time

from _measure import PROJECT, options, publish, table

PLAIN = """
import asyncio, sys
from support.fleet_app import clerk
async def main():
    line = list(range(int(sys.argv[1])))
    async def work():
        while line:
            number = line.pop()
            await clerk.run(f"Write item-p{number}.", run_id=f"item-p{number}")
    await asyncio.gather(*(work() for _ in range(int(sys.argv[2]))))
asyncio.run(main())
"""
FINISHED, WAITING = 20_000, 5_000
CONCURRENCY = 10


def throughput(url: str, workers: int, runs: int) -> float:
    """Return runs a second of calls of 0.5 s, from the first call on, with workers that do one at a time."""
    from support.fleet_load import FleetLoad

    with TemporaryDirectory() as folder:
        load = FleetLoad(url, Path(folder), FLEET_LATENCY=0.5)
        try:
            for _ in range(workers):
                load.start("--concurrency", "1")
            load.wait_for_workers(workers)
            load.submit([f"item-{workers}x{number}" for number in range(runs)])
            load.wait(600)
            ended = time()
        finally:
            load.stop()
        calls = load.calls()
        assert len(calls) == 6 * runs
        return runs / (ended - calls[0].at)


def children_cpu() -> float:
    """Return the CPU seconds of child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cpu_of_worker(url: str, runs: int) -> float:
    """Return the CPU seconds of a worker that carries out some runs."""
    from support.fleet_load import FleetLoad

    with TemporaryDirectory() as folder:
        load = FleetLoad(url, Path(folder))
        load.submit([f"item-c{runs}x{number}" for number in range(runs)])
        before = children_cpu()
        load.start("--concurrency", str(CONCURRENCY), "--until-idle").wait()
        load.running.clear()
        assert len(load.calls()) == 6 * runs, load.said()
        return children_cpu() - before


def cpu_of_plain(url: str, runs: int) -> float:
    """Return the CPU seconds of a process that carries out the same runs without a fleet."""
    with TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": str(PROJECT / "tests"),
            "REDRAFT_DATABASE_URL": url,
            "REDRAFT_PROJECT": f"plain-{runs}",
            "FLEET_LOG": f"{folder}/log",
        }
        before = children_cpu()
        argv = [sys.executable, "-c", PLAIN, str(runs), str(CONCURRENCY)]
        subprocess.run(argv, env=environment, cwd=folder, check=True)
        return children_cpu() - before


async def cpu_of_queue(url: str, jobs: int) -> float:
    """Return the CPU seconds of claiming and finishing a job, without any run."""
    from redraft.fleet.postgres_queue import ProcrastinateQueue
    from redraft.fleet.queue import FleetJob, WorkerCard

    queue = ProcrastinateQueue(url, "queue-only")
    await queue.register(WorkerCard("bench", "here", 1, "v", ("clerk",), 1))
    for number in range(jobs):
        await queue.submit(FleetJob(f"j{number}", "clerk", "x"))
    before = process_time()
    while (job := await queue.claim()) is not None:
        await queue.finish(job, "finished")
    used = process_time() - before
    await queue.leave()
    return used / jobs


def fill(url: str) -> None:
    """Put finished jobs of the worker's program into the tables, and waiting ones that it may not claim yet.

    Half of those are due in a year, and half wait for another version of the code.
    """
    import psycopg

    from redraft.fleet.postgres_queue import ProcrastinateQueue
    from redraft.fleet.queue import FleetJob

    async def queue_of_program() -> str:
        queue = ProcrastinateQueue(url, "load")
        await queue.submit(FleetJob("old-0", "clerk", "Write."))
        await queue.cancel("old-0")
        await queue.leave()
        with psycopg.connect(url) as connection:
            return connection.execute("SELECT queue_name FROM procrastinate_jobs").fetchall()[0][0]

    rows = """
        INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, scheduled_at)
        SELECT %s, 'redraft', jsonb_build_object(
            'space', 'load', 'run_id', %s || n, 'program', 'clerk', 'task', '"Write."'), %s, %s
        FROM generate_series(1, %s) n"""
    name = asyncio.run(queue_of_program())
    next_year = datetime.now(UTC) + timedelta(days=365)
    with psycopg.connect(url) as connection:
        connection.execute(rows, (name, "old-", "succeeded", None, FINISHED))
        connection.execute(rows, (name, "later-", "todo", next_year, WAITING // 2))
        connection.execute(rows, (f"{name}@other", "begun-", "todo", None, WAITING // 2))
        connection.commit()
        connection.autocommit = True
        connection.execute("ANALYZE")


def waits(url: str, jobs: int) -> tuple[list[float], list[float]]:
    """Return the seconds from submission, and from claim, to the first model call, of single jobs.

    The queue is full. A claim's time is that of its event in the database, on the clock of this machine.
    """
    from redraft.fleet.postgres_queue import ProcrastinateQueue
    from redraft.fleet.queue import FleetJob
    from support.fleet_load import FleetLoad

    fill(url)
    with TemporaryDirectory() as folder:
        load = FleetLoad(url, Path(folder), FLEET_LATENCY=0, FLEET_VERSIONS=1)
        load.start("--concurrency", "5")
        try:
            load.wait_for_workers(1)
            submitted: dict[str, float] = {}
            claimed: dict[str, float] = {}

            async def submit() -> None:
                queue = ProcrastinateQueue(url, "load")
                for number in range(jobs):
                    item = f"item-w{number}"
                    submitted[item] = time()
                    await queue.submit(FleetJob(item, "clerk", f"Write {item}."))
                    while (job := await queue.get(item)) is None or not job.has_ended:  # noqa: ASYNC110 (polled)
                        await asyncio.sleep(0.2)
                    assert job.started_at is not None
                    claimed[item] = job.started_at.timestamp()
                await queue.leave()

            asyncio.run(submit())
        finally:
            load.stop()
        first = {call.item: call.at for call in load.calls() if call.number == 1}
        return (
            sorted(first[item] - at for item, at in submitted.items()),
            sorted(first[item] - at for item, at in claimed.items()),
        )


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=8, help="runs for each worker")
    given = parser.parse_args()
    sys.path.insert(0, str(PROJECT / "tests"))
    from redraft._texts import counted
    from support.postgres_server import Place, Server

    server = Server(durable=True)
    server.start()

    def fresh() -> str:
        return Place(server.url()).url

    loads = [os.getloadavg()[0]]
    try:
        rates: dict[int, float] = {}
        for workers in (1, 2, 4):
            rates[workers] = throughput(fresh(), workers, given.runs * workers)
            loads.append(os.getloadavg()[0])
        plain_url, fleet_url = fresh(), fresh()
        few, many = 20, 120
        plain = (cpu_of_plain(plain_url, many) - cpu_of_plain(plain_url, few)) / (many - few)
        fleet = (cpu_of_worker(fleet_url, many) - cpu_of_worker(fleet_url, few)) / (many - few)
        engine = asyncio.run(cpu_of_queue(fresh(), 200))
        loads.append(os.getloadavg()[0])
        submitted, claimed = waits(fresh(), 60)
        loads.append(os.getloadavg()[0])
    finally:
        server.remove()
    rows = [
        [
            f"{counted(workers, 'worker')}: runs a second, times one worker",
            f"{rate:.2f}, {rate / rates[1]:.2f}",
        ]
        for workers, rate in rates.items()
    ]
    full = f"with {FINISHED:,} finished and {WAITING:,} waiting jobs"
    rows += [
        ["CPU per run, journalled without a fleet", f"{plain * 1e3:.1f} ms"],
        ["CPU per run in a worker, times without", f"{fleet * 1e3:.1f} ms, {fleet / plain:.2f}"],
        ["of it the queue: claim and finish", f"{engine * 1e3:.1f} ms"],
        [f"claim to first call, {full}, p50 / p90", _percentiles(claimed)],
        [f"submission to first call, {full}, p50 / p90", _percentiles(submitted)],
        [
            "load average: at first, after 1, 2 and 4 workers, before and after the last two rows",
            ", ".join(f"{load:.1f}" for load in loads),
        ],
    ]
    publish("fleet", table(["measured", "figure"], rows), write=given.write)


def _percentiles(seconds: list[float]) -> str:
    return f"{median(seconds) * 1e3:.0f} / {seconds[len(seconds) * 9 // 10] * 1e3:.0f} ms"


if __name__ == "__main__":
    main()
