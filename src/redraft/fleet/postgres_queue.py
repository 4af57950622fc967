"""ProcrastinateQueue: the queue for many machines, in PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from redraft._codec import from_record, to_record
from redraft._tasks import end_tasks
from redraft.errors import ConfigError, MissingExtraError, StoreError
from redraft.fleet.queue import (
    STATES,
    FleetJob,
    Heartbeat,
    JobState,
    QueueDepth,
    WorkerCard,
    WorkerState,
    registered,
)
from redraft.redact.log import logger
from redraft.stores.base import json_text
from redraft.text.characters import visible

try:
    import procrastinate
    import psycopg
    from procrastinate.exceptions import ConnectorException, UniqueViolation
    from procrastinate.jobs import Job, Status
    from procrastinate.schema import SchemaManager
    from psycopg.rows import dict_row
    from psycopg.types.json import Jsonb
    from psycopg_pool import AsyncConnectionPool
except ImportError as missing:
    raise MissingExtraError("A fleet on PostgreSQL", "fleet") from missing

from redraft.stores.postgres_session import USE_SETTINGS, Database, explained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

T = TypeVar("T")

TASK = "redraft"
"""The name of our task in Procrastinate, whose tables other applications may share."""
_REAPER = 0x52444654
"""The advisory lock of the reaping process ("RDFT")."""
_SESSION = 0x52444657
"""The class of the advisory locks that workers hold during their sessions ("RDFW")."""
_SESSION_GRACE = 0.5
"""The fraction of `pick_up_after` after which a worker without a session counts as dead: a worker that has
only lost its connection sends a heartbeat before that."""
_LATELY = 1.0
"""A worker reaps only if its own heartbeat is at most this many seconds old: if its statement had to wait for
the server, the other workers were silent, too, and have lost their sessions."""
_PING = 10.0
"""Seconds without a notification after which a session is tested."""
_ECHO_WAIT = 5.0
"""Seconds within which a session hears its own notification."""
_RECONNECT, _RECONNECT_LATER = 0.2, 1.0
"""Seconds until the next session, after a lost connection and after a failed one."""
_AFTER_FAULT = 10.0
"""Seconds until the next session, after an unexpected error."""
_CONNECTIONS = 2
_CONNECT_TIMEOUT = 5.0
_VERSION = 1
_STATES: dict[str, JobState] = {
    "todo": "queued",
    "doing": "running",
    "succeeded": "finished",
    "failed": "failed",
    "cancelled": "cancelled",
    "aborted": "cancelled",
}
_STATUS = {
    "finished": Status.SUCCEEDED,
    "failed": Status.FAILED,
    "poisoned": Status.FAILED,
    "cancelled": Status.ABORTED,
}

# Procrastinate stores the jobs, their order, their events and the heartbeats; `args` holds the rest.
_TABLES = """
CREATE TABLE redraft_fleet (version integer NOT NULL);
INSERT INTO redraft_fleet VALUES (1);
CREATE TABLE redraft_workers (
    id          bigint PRIMARY KEY REFERENCES procrastinate_workers (id) ON DELETE CASCADE,
    space       text NOT NULL,
    version     text NOT NULL,
    begun_queue text NOT NULL,
    card        jsonb NOT NULL
);
CREATE UNIQUE INDEX redraft_jobs_by_run ON procrastinate_jobs ((args->>'space'), (args->>'run_id'))
    WHERE task_name = 'redraft';
CREATE INDEX redraft_jobs_by_status ON procrastinate_jobs ((args->>'space'), status, id)
    WHERE task_name = 'redraft';
"""
_OURS = "j.task_name = 'redraft' AND j.args->>'space' = %(space)s"
_HELD = f"""{_OURS} AND j.args->>'run_id' = %(run_id)s AND j.status = 'doing' AND j.attempts = %(attempts)s
    AND j.worker_id = %(worker)s RETURNING j.id"""
_JOB = f"""
SELECT j.id, j.status::text, j.priority, j.scheduled_at, j.attempts, j.abort_requested, j.args,
    coalesce(w.card->>'name', '') AS worker, e.submitted_at, e.started_at, e.ended_at
FROM procrastinate_jobs j
LEFT JOIN redraft_workers w ON w.id = j.worker_id
LEFT JOIN LATERAL (
    SELECT min(at) FILTER (WHERE type = 'deferred') AS submitted_at,
        max(at) FILTER (WHERE type = 'started') AS started_at,
        max(at) FILTER (WHERE type IN ('succeeded', 'failed', 'cancelled', 'aborted')) AS ended_at
    FROM procrastinate_events WHERE job_id = j.id
) e ON true
WHERE {_OURS}
"""  # noqa: S608 (of constants)
_REGISTER = "INSERT INTO redraft_workers VALUES (%(worker)s, %(space)s, %(version)s, %(begun)s, %(card)s)"
_HEARTBEAT = """
WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = %(worker)s RETURNING id)
SELECT now() AS now, (SELECT id FROM beat) AS worker, j.args->>'run_id' AS run_id, j.attempts,
    j.abort_requested
FROM (SELECT 1) single LEFT JOIN procrastinate_jobs j ON j.worker_id = %(worker)s AND j.status = 'doing'
"""
_FINISH = f"""
UPDATE procrastinate_jobs j
SET status = %(status)s::procrastinate_job_status, attempts = attempts + 1, abort_requested = false,
    args = args || %(more)s
WHERE {_HELD}
"""  # noqa: S608 (of constants)
_HAND_BACK = f"""
UPDATE procrastinate_jobs j
SET status = (CASE WHEN abort_requested THEN 'aborted' ELSE 'todo' END)::procrastinate_job_status,
    attempts = attempts + 1, abort_requested = false, scheduled_at = now() + %(delay)s,
    queue_name = split_part(queue_name, '@', 1) || %(begun_queue)s, args = args || %(more)s
WHERE {_HELD}
"""  # noqa: S608 (of constants)
# The row of the worker may be missing: every worker of Procrastinate deletes the rows of silent workers. A
# process that dies loses its session and its lock immediately; a stopped process or a dead machine does not.
_REAP = """
WITH turn AS (
    SELECT pg_try_advisory_xact_lock(%(lock)s) AND NOT EXISTS (
        SELECT 1 FROM procrastinate_workers WHERE id = %(worker)s AND last_heartbeat < now() - %(lately)s
    ) AS is_ours
),
silent AS (
    SELECT j.id, w.version, w.begun_queue
    FROM turn, procrastinate_jobs j
    LEFT JOIN procrastinate_workers p ON p.id = j.worker_id
    LEFT JOIN redraft_workers w ON w.id = j.worker_id
    WHERE turn.is_ours AND j.status = 'doing' AND j.task_name = 'redraft'
        AND CASE
            WHEN p.id IS NULL OR p.last_heartbeat < now() - %(silent)s THEN true
            WHEN p.last_heartbeat < now() - %(grace)s
                THEN pg_try_advisory_xact_lock(%(session)s, (p.id %% 2147483647)::int)
            ELSE false
        END
    FOR UPDATE OF j SKIP LOCKED
)
UPDATE procrastinate_jobs j
SET status = (CASE WHEN abort_requested THEN 'aborted' ELSE 'todo' END)::procrastinate_job_status,
    attempts = attempts + 1, abort_requested = false, scheduled_at = NULL,
    queue_name = split_part(queue_name, '@', 1) || coalesce(silent.begun_queue, ''),
    args = args || jsonb_build_object('version', coalesce(silent.version, ''))
FROM silent WHERE j.id = silent.id
RETURNING j.args->>'run_id' AS run_id
"""
_FORGET = """
DELETE FROM procrastinate_workers p USING redraft_workers w
WHERE w.id = p.id AND p.last_heartbeat < now() - %(silent)s
    AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs j WHERE j.worker_id = p.id AND j.status = 'doing')
"""
_CANCEL = f"""
SELECT procrastinate_cancel_job_v1(j.id, true, false) FROM procrastinate_jobs j
WHERE {_OURS} AND j.args->>'run_id' = %(run_id)s
"""  # noqa: S608 (of constants)
_RETRY = f"""
UPDATE procrastinate_jobs j
SET status = 'todo', attempts = attempts + 1, abort_requested = false, scheduled_at = NULL,
    args = args - 'error' - 'tries' - 'store_tries' - 'state'
WHERE {_OURS} AND j.args->>'run_id' = %(run_id)s AND status IN ('failed', 'cancelled', 'aborted')
"""  # noqa: S608 (of constants)
_ERASE = f"""
DELETE FROM procrastinate_jobs j
WHERE {_OURS} AND j.args->>'run_id' = %(run_id)s AND j.status NOT IN ('todo', 'doing') RETURNING j.id
"""  # noqa: S608 (of constants)
_WAKE = """SELECT pg_notify('procrastinate_any_queue_v1', '{"type": "job_inserted", "job_id": 0}')"""
_DEPTH = f"""
SELECT j.status::text, coalesce(j.args->>'state', '') = 'poisoned' AS is_poisoned,
    CASE WHEN j.status = 'todo' THEN coalesce(j.args->>'version', '') ELSE '' END AS version, count(*)
FROM procrastinate_jobs j WHERE {_OURS} AND j.status = ANY(%(statuses)s::procrastinate_job_status[])
GROUP BY 1, 2, 3
"""  # noqa: S608 (of constants)
# Jobs without a due time have waited since their submission; the oldest of these has the lowest id.
_OLDEST = f"""
SELECT extract(epoch FROM now() - min(since))::float8 AS seconds FROM (
    (SELECT min(e.at) AS since FROM procrastinate_events e WHERE e.job_id = (
        SELECT min(j.id) FROM procrastinate_jobs j
        WHERE {_OURS} AND j.status = 'todo' AND j.scheduled_at IS NULL))
    UNION ALL
    (SELECT min(j.scheduled_at) FROM procrastinate_jobs j
        WHERE {_OURS} AND j.status = 'todo' AND j.scheduled_at <= now())
) waiting
"""  # noqa: S608 (of constants)
_WORKERS = """
SELECT w.card, p.last_heartbeat, extract(epoch FROM now() - p.last_heartbeat)::float8 AS silent,
    (SELECT count(*) FROM procrastinate_jobs j WHERE j.worker_id = w.id AND j.status = 'doing') AS running
FROM redraft_workers w JOIN procrastinate_workers p ON p.id = w.id
WHERE w.space = %(space)s ORDER BY p.last_heartbeat DESC
"""


class ProcrastinateQueue:
    """A `Queue` in a PostgreSQL database, through Procrastinate. Needs `redraft[fleet]`.

    `url` is as for `PostgresStore`, and `space` separates the jobs of projects. The first use creates the
    tables, together with Redraft's own, in the first schema of the `search_path`. Each object takes up to two
    connections, and a registered worker a third, which listens for new jobs.
    """

    def __init__(self, url: str, space: str = "") -> None:
        self._url = url
        self._space = space
        self._database = Database(url, 30.0)
        self._app: procrastinate.App | None = None
        self._connector: procrastinate.PsycopgConnector | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._card: WorkerCard | None = None
        self._worker: int | None = None
        self._news = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._is_deaf = False

    def __repr__(self) -> str:
        return f"ProcrastinateQueue({self._database.name}, space {self._space!r})"

    async def open(self) -> None:
        """Connect, and create missing tables; raises `ConfigError` for a queue that can't be used."""
        await self._opened()

    async def submit(self, job: FleetJob, /) -> tuple[FleetJob, bool]:
        """Add a job unless its id is taken; return the queue's job with this id, and whether it is new."""
        args = {"space": self._space, "run_id": job.run_id, "program": job.program}
        if job.trace:
            args["trace"] = job.trace
        due = job.due
        if due is not None:  # by the clock of this process, which the server's may differ from
            [clocks] = await self._run("SELECT now() - %(here)s AS ahead", here=datetime.now(UTC))
            due += clocks["ahead"]
        new = Job(
            id=None,
            queue=self._queue_of(job.program),
            lock=None,
            queueing_lock=None,
            task_name=TASK,
            priority=job.priority,
            scheduled_at=due,
            # As text: PostgreSQL's JSON can't hold every string.
            task_kwargs={**args, "task": json_text(job.task)},
        )
        app = await self._opened()
        with suppress(UniqueViolation):
            async with self._explaining():
                await app.job_manager.defer_job_async(new)
            if (stored := await self.get(job.run_id)) is not None:
                return stored, True
        stored = await self.get(job.run_id)
        if stored is None:
            raise StoreError(f"The job {job.run_id!r} was deleted while it was submitted.")
        return stored, False

    async def register(self, card: WorkerCard, /) -> None:
        """Register the worker that uses this queue."""
        app = await self._opened()
        async with self._explaining():
            worker = await app.job_manager.register_worker()
            await self._run(
                _REGISTER,
                worker=worker,
                version=card.version,
                begun=_suffix(card.version),
                card=Jsonb(to_record(card)),
            )
        self._card, self._worker = card, worker
        await self._stop_listening()
        self._listening = asyncio.create_task(self._listen(worker), name="redraft-fleet-listener")

    async def claim(self, *, any_version: bool = False) -> FleetJob | None:
        """Claim the next due job that the worker can run; None if there is none."""
        app = await self._opened()
        card = registered(self._card)
        bases = [self._queue_of(name) for name in card.programs]
        queues = [*bases, *(f"{base}{_suffix(card.version)}" for base in bases)]
        if any_version:
            queues += await self._other_versions(bases)
        self._news.clear()
        async with self._explaining():
            job = await app.job_manager.fetch_job(queues, self._worker or 0)
        if job is None:
            return None
        return FleetJob(
            **_fields_in(job.task_kwargs),
            priority=job.priority,
            due=job.scheduled_at,
            state="running",
            claim=job.attempts + 1,
            worker=card.name,
        )

    async def heartbeat(self) -> Heartbeat:
        """Report that the worker is alive, and register it again if its row was deleted meanwhile."""
        rows = await self._run(_HEARTBEAT, worker=self._worker)
        if rows[0]["worker"] is None:
            await self.register(registered(self._card))
        jobs = [row for row in rows if row["run_id"] is not None]
        return Heartbeat(
            rows[0]["now"].astimezone(UTC),
            {row["run_id"]: row["attempts"] + 1 for row in jobs},
            frozenset(row["run_id"] for row in jobs if row["abort_requested"]),
        )

    async def finish(self, job: FleetJob, state: JobState, error: str = "", /) -> bool:
        """End a claimed job; return whether the claim was still valid."""
        return await self._change_claimed(_FINISH, job, error, {"state": state}, status=_STATUS[state].value)

    async def hand_back(
        self, job: FleetJob, /, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> bool:
        """Requeue a claimed job after `delay` seconds; return whether the claim was still valid."""
        version = "" if any_version else registered(self._card).version
        more = {"version": version, "tries": job.tries, "store_tries": job.store_tries}
        was_valid = await self._change_claimed(
            _HAND_BACK,
            job,
            error,
            more,
            delay=timedelta(seconds=delay),
            begun_queue=_suffix(version) if version else "",
        )
        await self._run(_WAKE)  # Procrastinate notifies only of inserted jobs
        return was_valid

    async def cancel(self, run_id: str, /) -> FleetJob | None:
        """Cancel a waiting job, or ask the worker of a running job to; None if there is no such job."""
        await self._run(_CANCEL, run_id=run_id)
        return await self.get(run_id)

    async def retry(self, run_id: str, /) -> FleetJob | None:
        """Requeue a failed, poisoned or cancelled job; None if there is no such job."""
        await self._run(_RETRY, run_id=run_id)
        await self._run(_WAKE)
        return await self.get(run_id)

    async def erase(self, run_id: str, /) -> bool:
        """Delete an ended job; return whether there was such a job."""
        return bool(await self._run(_ERASE, run_id=run_id))

    async def is_created(self) -> bool:
        """Whether a fleet has ever used this database; creates no tables."""

        def has_jobs() -> bool:
            with self._database.connect() as connection:
                return _has_table(connection, "procrastinate_jobs")

        async with self._explaining():
            return await asyncio.to_thread(has_jobs)

    async def reap(self, silent: float, /) -> list[str]:
        """Requeue the jobs of workers that were silent for `silent` seconds; return their ids."""
        rows = await self._run(
            _REAP,
            lock=_REAPER,
            session=_SESSION,
            worker=self._worker,
            lately=timedelta(seconds=_LATELY),
            silent=timedelta(seconds=silent),
            grace=timedelta(seconds=_SESSION_GRACE * silent),
        )
        if rows:
            await self._run(_WAKE)
        await self._run(_FORGET, silent=timedelta(seconds=10 * silent))
        return [row["run_id"] for row in rows]

    async def get(self, run_id: str, /) -> FleetJob | None:
        """The job of a run; None if there is none."""
        rows = await self._run(f"{_JOB} AND j.args->>'run_id' = %(run_id)s", run_id=run_id)
        return _job_of(rows[0]) if rows else None

    async def find(self, states: Sequence[JobState] = STATES, /, *, limit: int = 100) -> list[FleetJob]:
        """Jobs in some states: running and waiting ones in their order, then ended ones, newest first."""
        rows = await self._run(
            f"""{_JOB} AND j.status::text = ANY(%(statuses)s)
                AND coalesce(j.args->>'state', '') <> ALL(%(excluded)s)
                AND (j.status::text <> 'failed' OR %(failed)s OR j.args->>'state' = 'poisoned')
            ORDER BY array_position(ARRAY['doing', 'todo'], j.status::text) NULLS LAST,
                CASE WHEN j.status IN ('doing', 'todo') THEN -j.priority END,
                CASE WHEN j.status IN ('doing', 'todo') THEN j.id END, e.ended_at DESC
            LIMIT %(limit)s""",
            statuses=_statuses(states),
            excluded=[] if "poisoned" in states else ["poisoned"],
            failed="failed" in states,
            limit=limit,
        )
        return [_job_of(row) for row in rows]

    async def depth(self, states: Sequence[JobState] = STATES, /) -> QueueDepth:
        """The number of jobs in some states, and the longest wait."""
        rows = await self._run(_DEPTH, statuses=_statuses(states))
        counts: dict[JobState, int] = dict.fromkeys(states, 0)
        versions: dict[str, int] = {}
        for row in rows:
            state = "poisoned" if row["is_poisoned"] else _STATES[row["status"]]
            if state in counts:
                counts[state] += row["count"]
            if state == "queued":
                versions[row["version"]] = versions.get(row["version"], 0) + row["count"]
        oldest = await self._run(_OLDEST)
        return QueueDepth(counts, versions, oldest[0]["seconds"] if oldest else None)

    async def workers(self) -> list[WorkerState]:
        """The registered workers, by their last heartbeats, latest first."""
        return [
            WorkerState(
                from_record(WorkerCard, row["card"]),
                row["running"],
                row["last_heartbeat"].astimezone(UTC),
                row["silent"],
            )
            for row in await self._run(_WORKERS)
        ]

    async def wait(self, seconds: float, /) -> None:
        """Wait for a notification of the server, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def leave(self) -> None:
        """Unregister the worker, and close connections; the next use reopens them."""
        await self._stop_listening()
        app, self._app = self._app, None
        if app is None:
            return
        worker, self._worker = self._worker, None
        if worker is not None:
            unregistering = asyncio.ensure_future(app.job_manager.unregister_worker(worker))
            await asyncio.wait([unregistering], timeout=_CONNECT_TIMEOUT)
            if not unregistering.done():  # others will notice its silence
                await end_tasks([unregistering], within=1.0)
            elif error := unregistering.exception():
                logger.info("The worker could not be unregistered: %s", error)
        await app.close_async()

    async def _opened(self) -> procrastinate.App:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # connections belong to the loop that opened them
            self._loop, self._opening, self._news, self._app = loop, asyncio.Lock(), asyncio.Event(), None
        async with self._opening:
            if self._app is None:
                async with self._explaining():
                    await asyncio.to_thread(self._migrate)
                    connector = procrastinate.PsycopgConnector(
                        pool_factory=AsyncConnectionPool,
                        conninfo=self._database.conninfo_with({}),
                        min_size=1,
                        max_size=_CONNECTIONS,
                        timeout=_CONNECT_TIMEOUT,
                        configure=_configure,
                        kwargs={"prepare_threshold": None},
                    )
                    app = procrastinate.App(connector=connector)
                    await app.open_async()
                self._app, self._connector = app, connector
            return self._app

    def _migrate(self) -> None:
        connection = self._database.connect()  # also creates the tables of the store
        try:
            if _version(connection) == _VERSION:
                return
            with self._database.changing(connection):
                version = _version(connection)
                if version > _VERSION:
                    raise ConfigError(
                        f"The PostgreSQL database {self._database.name} has version {version} of the fleet's "
                        f"tables, and this Redraft knows {_VERSION}: upgrade redraft."
                    )
                if version == _VERSION:
                    return  # another process was faster
                if not _has_table(connection, "procrastinate_jobs"):
                    connection.execute(SchemaManager.get_schema().encode())
                connection.execute(_TABLES.encode())
        finally:
            connection.close()

    async def _listen(self, worker: int) -> None:
        """Listen for new jobs and cancellations, in a session whose lock shows that this process is alive.

        Without a connection, a worker polls every second, and only its heartbeats show that it is alive. Any
        other error than the database's is logged, unless it repeats, and a new session begins.
        """
        logged = ""
        while True:
            delay = _RECONNECT_LATER
            try:
                connection = await psycopg.AsyncConnection.connect(
                    self._database.conninfo_with({}), autocommit=True, prepare_threshold=None
                )
                delay = _RECONNECT
                await self._hear(connection, worker)
            except psycopg.Error:
                logged = ""
            except Exception as error:
                delay = _AFTER_FAULT
                if repr(error) != logged:
                    logger.exception(
                        "This worker can't listen for new jobs. It looks for them every second, and tries to "
                        "listen again every %g s.",
                        delay,
                    )
                logged = repr(error)
            await asyncio.sleep(delay)

    async def _hear(self, connection: psycopg.AsyncConnection[Any], worker: int) -> NoReturn:
        async with connection:
            await connection.execute("LISTEN procrastinate_any_queue_v1")
            if not await self._hears_itself(connection):
                await asyncio.sleep(_AFTER_FAULT)  # meanwhile, the worker polls every second
                raise psycopg.OperationalError("the session hears no notifications")
            # Shared, because the server may not have noticed yet that an earlier session has ended.
            await connection.execute(
                "SELECT pg_advisory_lock_shared(%s, (%s %% 2147483647)::int)", (_SESSION, worker)
            )
            while True:
                self._news.set()  # something may have happened before
                async for _ in connection.notifies(timeout=_PING):
                    self._news.set()
                await connection.execute("SELECT 1")

    async def _hears_itself(self, connection: psycopg.AsyncConnection[Any]) -> bool:
        """Whether notifications arrive. Behind a pooler that shares sessions, they don't.

        Such a pooler would also share the lock of the session with other clients.
        """
        await self._run(_WAKE)
        async for _ in connection.notifies(timeout=_ECHO_WAIT, stop_after=1):
            self._is_deaf = False
            return True
        if not self._is_deaf:
            logger.warning(
                "Notifications of the PostgreSQL database %s do not arrive, so this worker looks for jobs "
                "every second, and its death is noticed only by its silence. If the URL is that of a pooler "
                "in transaction mode, give workers a direct connection, or a pool in session mode.",
                self._database.name,
            )
        self._is_deaf = True
        return False

    async def _stop_listening(self) -> None:
        await end_tasks([self._listening], within=1.0)
        self._listening = None

    async def _other_versions(self, bases: list[str]) -> list[str]:
        rows = await self._run(
            """SELECT DISTINCT queue_name FROM procrastinate_jobs
            WHERE status = 'todo' AND task_name = 'redraft'
                AND split_part(queue_name, '@', 1) = ANY(%(bases)s)""",
            bases=bases,
        )
        return [row["queue_name"] for row in rows]

    async def _change_claimed(
        self, statement: str, job: FleetJob, error: str, more: Mapping[str, Any], **values: object
    ) -> bool:
        rows = await self._run(
            statement,
            run_id=job.run_id,
            attempts=job.claim - 1,
            worker=self._worker,
            more=Jsonb({"error": visible(error), **more}),  # its JSON can't hold every string
            **values,
        )
        return bool(rows)

    async def _run(self, statement: str, **values: object) -> list[dict[str, Any]]:
        """Run a statement; return its rows."""
        await self._opened()
        if self._connector is None:
            raise AssertionError("the connector is made with the app")
        async with self._explaining(), self._connector.pool.connection() as connection:
            cursor = connection.cursor(row_factory=dict_row)
            await cursor.execute(statement.encode(), {"space": self._space, **values})
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def _explaining(self) -> AsyncGenerator[None]:
        """Turn errors of the database into `StoreError`."""
        try:
            yield
        except UniqueViolation:
            raise
        except (ConnectorException, psycopg.Error) as error:
            cause = error if isinstance(error, psycopg.Error) else error.__cause__
            if not isinstance(cause, psycopg.Error):
                raise StoreError(f"The PostgreSQL database {self._database.name} does not answer.") from error
            raise explained(cause, self._database.name) from error

    def _queue_of(self, program: str) -> str:
        """The name of the queue of a program's new jobs. Begun jobs get a suffix for their version.

        The name is short because PostgreSQL limits the names of notification channels, which contain it.
        """
        return sha256(f"{self._space}\0{program}".encode()).hexdigest()[:16]


def _statuses(states: Sequence[JobState]) -> list[str]:
    """The statuses of jobs in some states; poisoned jobs have the status `failed`."""
    return [
        status
        for status, state in _STATES.items()
        if state in states or (state == "failed" and "poisoned" in states)
    ]


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)  # every change of a queue is one statement
    await connection.execute(USE_SETTINGS)


def _suffix(version: str) -> str:
    return f"@{sha256(version.encode()).hexdigest()[:16]}"


def _version(connection: psycopg.Connection[Any]) -> int:
    if not _has_table(connection, "redraft_fleet"):
        return 0
    row = connection.execute("SELECT version FROM redraft_fleet").fetchone()
    return row[0] if row else 0


def _has_table(connection: psycopg.Connection[Any], name: str) -> bool:
    query = "SELECT 1 FROM pg_class WHERE relname = %s AND pg_table_is_visible(oid)"
    return connection.execute(query, (name,)).fetchone() is not None


def _job_of(row: Mapping[str, Any]) -> FleetJob:
    args, state = row["args"], _STATES[row["status"]]
    return FleetJob(
        **_fields_in(args),
        priority=row["priority"],
        due=_utc(row["scheduled_at"]),
        state=args.get("state", state) if state == "failed" else state,
        claim=row["attempts"] + (state == "running"),
        worker=row["worker"],
        is_cancelling=row["abort_requested"] and state == "running",
        submitted_at=_utc(row["submitted_at"]),
        started_at=_utc(row["started_at"]),
        ended_at=_utc(row["ended_at"]) if state not in ("queued", "running") else None,
    )


def _fields_in(args: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job in the arguments of a Procrastinate job."""
    names = ("version", "trace", "tries", "store_tries", "error")
    optional = {name: args[name] for name in names if name in args}
    return {
        "run_id": args["run_id"],
        "program": args["program"],
        "task": json.loads(args["task"]),
        **optional,
    }


def _utc(time: datetime | None) -> datetime | None:
    return None if time is None else time.astimezone(UTC)
