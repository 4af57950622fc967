"""Workers of a fleet in real processes, under load: start, kill, stop and wake them, and read their log."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import psycopg

from redraft._codec import from_record
from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import ENDED, FleetJob
from redraft.loop.record import RUN, RunRecord
from redraft.stores.postgres import PostgresStore
from redraft.stores.postgres_session import Database
from support.processes import Processes

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

PROJECT = "load"


class Call(NamedTuple):
    """One model call in the log: when it began, in which process, for which run, and which it is."""

    at: float
    pid: int
    item: str
    number: int


class Report(NamedTuple):
    """What became of the runs.

    `repeated` counts calls that were made again after a later one of their run, so after their result was in
    the journal; `interrupted` those that were made again because they were under way at a death. `written`
    counts the rows of runs and steps that were written, and `wrong` those that were not written by the worker
    which held the claim on the run at that time.
    """

    finished: int
    calls: int
    repeated: int
    interrupted: int
    longest_wait: float
    pids: int
    written: int
    wrong: int


class PickUp(NamedTuple):
    """How long a run waited between its last call in a worker that was killed and the next one, in seconds.

    `before` passed until the worker died, `unnoticed` until its job was queued again, `queued` until another
    worker claimed it, and `beginning` until that one made a call. `again` is the time that further workers
    took, from claiming it to having their own deaths noticed.
    """

    item: str
    before: float
    unnoticed: float
    queued: float
    beginning: float
    again: float

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self[1:])


_WRITTEN = """
CREATE TABLE written (kind text, key text, writer text, holder text);
CREATE FUNCTION log_written() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO written SELECT NEW.kind, NEW.key, current_setting('application_name'), (
        SELECT substring(data::jsonb->>'worker' FROM ':([0-9]+)-') FROM redraft_records
        WHERE space = NEW.space AND kind = 'claim' AND key = split_part(NEW.key, '/', 1));
    RETURN NULL;
END $$;
CREATE TRIGGER log_written AFTER INSERT OR UPDATE ON redraft_records
    FOR EACH ROW WHEN (NEW.kind IN ('run', 'step')) EXECUTE FUNCTION log_written();
"""
"""Log who writes a row of a run, and who holds the claim on the run then: a writer fenced off writes none."""


class FleetLoad(Processes):
    """Run workers on the database of a URL; `folder` gets their log."""

    def __init__(self, url: str, folder: Path, **environment: object) -> None:
        self.url = url
        self.log = folder / "calls.log"
        self.log.touch()
        super().__init__(
            folder,
            REDRAFT_DATABASE_URL=url,
            REDRAFT_PROJECT=PROJECT,
            REDRAFT_HOME=folder / "home",
            FLEET_LOG=self.log,
        )
        self.set(**environment)
        self.killed: dict[int, float] = {}
        """When workers were killed, by the ids of their processes."""
        with closing(Database(url, 30.0).connect()) as connection:  # which creates the tables
            if connection.execute("SELECT to_regclass('written')").fetchone() == (None,):
                connection.execute(_WRITTEN)

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        """Start one more worker."""
        return self.run("worker", "support.fleet_app:fleet", *options)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a worker as a machine dies, and note when."""
        self.killed[process.pid] = time.time()
        super().kill(process)

    def wait_for_workers(self, number: int, seconds: float = 60) -> None:
        """Wait until so many workers are registered."""
        deadline = time.monotonic() + seconds

        async def main() -> None:
            queue = ProcrastinateQueue(self.url, PROJECT)
            try:
                while len(await queue.workers()) < number:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"the workers do not come: {self.said()}")
                    await asyncio.sleep(0.05)
            finally:
                await queue.leave()

        asyncio.run(main())

    def submit(self, ids: list[str]) -> None:
        """Submit a run for each id."""

        async def main() -> None:
            queue = ProcrastinateQueue(self.url, PROJECT)
            for one in ids:
                await queue.submit(FleetJob(one, "clerk", f"Write {one}."))
            await queue.leave()

        asyncio.run(main())

    def wait(self, seconds: float) -> dict[str, int]:
        """Wait until all jobs have ended; return how many are in each state."""
        deadline = time.monotonic() + seconds

        async def main() -> dict[str, int]:
            queue = ProcrastinateQueue(self.url, PROJECT)
            try:
                while True:
                    jobs = dict((await queue.depth()).jobs)
                    if time.monotonic() > deadline or not jobs["queued"] + jobs["running"]:
                        return jobs
                    await asyncio.sleep(0.1)
            finally:
                await queue.leave()

        return asyncio.run(main())

    def jobs(self) -> list[FleetJob]:
        """All jobs."""

        async def main() -> list[FleetJob]:
            queue = ProcrastinateQueue(self.url, PROJECT)
            try:
                return await queue.find(("queued", "running", *ENDED), limit=100_000)
            finally:
                await queue.leave()

        return asyncio.run(main())

    def calls(self) -> list[Call]:
        """The calls that were made, in order."""
        lines = [line.split() for line in self.log.read_text("utf-8").splitlines()]
        return [Call(float(at), int(pid), item, int(number)) for at, pid, _, item, number in lines]

    def wait_for_calls(self, number: int, seconds: float = 60) -> None:
        """Wait until so many calls were made."""
        deadline = time.monotonic() + seconds
        while len(self.calls()) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {len(self.calls())} calls: {self.said()}")
            time.sleep(0.02)

    def pick_ups(self) -> list[PickUp]:
        """The pick-ups of runs whose workers were killed, the longest first."""
        rows = self.ask(
            """SELECT j.args->>'run_id', e.type::text, extract(epoch FROM e.at)::float8
            FROM procrastinate_events e JOIN procrastinate_jobs j ON j.id = e.job_id
            WHERE e.type IN ('started', 'deferred_for_retry') ORDER BY e.at"""
        )
        by_item: dict[str, list[Call]] = defaultdict(list)
        for call in self.calls():
            by_item[call.item].append(call)
        found: list[PickUp] = []
        for item, calls in by_item.items():
            for before, call in pairwise(calls):
                died = self.killed.get(before.pid)
                if before.pid == call.pid or died is None:
                    continue
                parts = dict.fromkeys(("unnoticed", "queued", "again"), 0.0)
                since, part = died, "unnoticed"
                for _, kind, at in [row for row in rows if row[0] == item and died < row[2] < call.at]:
                    parts[part] += at - since
                    since, part = at, "queued" if kind == "deferred_for_retry" else "again"
                found.append(PickUp(item, died - before.at, beginning=call.at - since, **parts))
        return sorted(found, key=lambda one: -one.seconds)

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        """Run SQL; return the rows of what returns some."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            cursor = connection.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def report(self) -> Report:
        """Say what became of the runs, from the store and the log."""
        calls = self.calls()
        by_item: dict[str, list[Call]] = defaultdict(list)
        for call in calls:
            by_item[call.item].append(call)
        repeated = interrupted = 0
        longest = 0.0
        for found in by_item.values():
            furthest = 0
            for before, call in zip([None, *found], found, strict=False):
                repeated += call.number < furthest
                interrupted += call.number == furthest
                furthest = max(furthest, call.number)
                if before is not None and before.pid != call.pid:
                    longest = max(longest, call.at - before.at)
        rows = self.ask("SELECT writer, holder FROM written")
        finished = [run for run in self._runs() if run.status == "finished" and len(run.versions) == 6]
        return Report(
            len(finished),
            len(calls),
            repeated,
            interrupted,
            longest,
            len({call.pid for call in calls}),
            len(rows),
            sum(writer != holder for writer, holder in rows),
        )

    def _runs(self) -> list[RunRecord]:
        async def main() -> list[RunRecord]:
            store = PostgresStore(self.url, PROJECT)
            try:
                return [from_record(RunRecord, record.data) for record in await store.find(RUN)]
            finally:
                await store.aclose()

        return asyncio.run(main())
