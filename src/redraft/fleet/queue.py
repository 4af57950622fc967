"""The queue of a fleet: jobs, workers, the `Queue` protocol, and a queue in a store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable
from uuid import uuid4

from redraft._clock import is_future
from redraft._codec import from_record, to_record
from redraft._hints import keyword_hints
from redraft.errors import ConfigError, DamagedRecordError, StoreError
from redraft.redact.log import warn_once
from redraft.stores.base import FencedStore, Record, intact, reading, restored

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.stores.base import Store

JobState: TypeAlias = Literal["queued", "running", "finished", "failed", "poisoned", "cancelled"]
ENDED: tuple[JobState, ...] = ("finished", "failed", "poisoned", "cancelled")
LIVE: tuple[JobState, ...] = ("queued", "running")
STATES: tuple[JobState, ...] = (*LIVE, *ENDED)
LEAST_PRIORITY, MOST_PRIORITY = -1000, 1000


def check_priority(priority: object) -> None:
    """Raise `ConfigError` unless this is the priority of a job."""
    if type(priority) is not int or not LEAST_PRIORITY <= priority <= MOST_PRIORITY:
        raise ConfigError(
            f"priority must be a whole number from {LEAST_PRIORITY} to {MOST_PRIORITY}, got {priority!r}."
        )


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A run that a worker carries out. Its id is the id of the run."""

    run_id: str
    program: str
    """The name of the agent, workflow or cycle."""
    task: Any
    """The input of the program, as JSON data."""
    priority: int = 0
    """-1000 to 1000, the highest first; jobs of the same priority run in the order of submission."""
    due: datetime | None = None
    """The earliest time to begin."""
    state: JobState = "queued"
    claim: int = 0
    """The number of claims so far."""
    version: str = ""
    """The version of the code that began the job, and that alone continues it; empty until a worker hands the
    job back."""
    worker: str = ""
    tries: int = 0
    """The number of retries after failures."""
    store_tries: int = 0
    """The number of retries after errors of the database."""
    error: str = ""
    """Why the job failed."""
    is_cancelling: bool = False
    """Whether its worker has been asked to cancel it."""
    trace: str = ""
    """The W3C `traceparent` of the span in which the job was submitted, if there was one."""
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether no worker will continue the job, unless it is retried."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """A worker's description of itself."""

    name: str
    host: str
    pid: int
    version: str
    programs: tuple[str, ...]
    concurrency: int
    pick_up_after: float = 6.0
    """Seconds of silence after which the jobs of the worker go to others."""


def registered(card: WorkerCard | None) -> WorkerCard:
    """The card of a worker that has registered, as each has before it claims jobs."""
    if card is None:
        raise AssertionError("register a worker first")
    return card


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A registered worker as the queue sees it."""

    card: WorkerCard
    running: int
    """The number of its jobs under way."""
    seen_at: datetime
    """The time of its last heartbeat."""
    seconds_silent: float

    @property
    def is_gone(self) -> bool:
        """Whether the worker counts as dead, so that its jobs go to others."""
        return self.seconds_silent >= self.card.pick_up_after


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The queue's reply to the heartbeat of a worker."""

    now: datetime
    """The time of the queue."""
    held: Mapping[str, int]
    """The worker's valid claims: the number of the claim by the id of the run."""
    cancelling: frozenset[str]
    """The ids of the runs to cancel."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The number of jobs, and the longest wait."""

    jobs: Mapping[JobState, int]
    """By each requested state: the number of jobs."""
    waiting_for: Mapping[str, int]
    """By the version of the code that they wait for (empty: any version): the number of queued jobs."""
    oldest_seconds: float | None = None
    """Seconds that the oldest due job has waited; None if no job is due."""


@runtime_checkable
class Queue(Protocol):
    """A queue of jobs, shared by many processes.

    A job is claimed by a single worker at a time. The claim ends when the worker finishes the job, hands it
    back, or is silent for too long: then `reap` requeues the job, and later reports of that worker are
    ignored. Times are by the clock of the queue, so workers need no exact clocks.

    Every method raises `StoreError` while the queue can't be reached, and works again afterwards.
    """

    async def open(self) -> None:
        """Connect, and create missing tables; raises `ConfigError` for a queue that can't be used."""
        ...

    async def submit(self, job: FleetJob, /) -> tuple[FleetJob, bool]:
        """Add a job unless its id is taken; return the queue's job with this id, and whether it is new."""
        ...

    async def register(self, card: WorkerCard, /) -> None:
        """Register the worker that uses this queue."""
        ...

    async def claim(self, *, any_version: bool = False) -> FleetJob | None:
        """Claim the next due job that the worker can run; None if there is none.

        Jobs that another version of the code began are skipped, unless `any_version`.
        """
        ...

    async def heartbeat(self) -> Heartbeat:
        """Report that the worker is alive."""
        ...

    async def finish(self, job: FleetJob, state: JobState, error: str = "", /) -> bool:
        """End a claimed job; return whether the claim was still valid."""
        ...

    async def hand_back(
        self, job: FleetJob, /, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> bool:
        """Requeue a claimed job after `delay` seconds; return whether the claim was still valid.

        The queue stores the `tries` of the job as they are here. With `any_version`, other versions of the
        code may claim it.
        """
        ...

    async def cancel(self, run_id: str, /) -> FleetJob | None:
        """Cancel a waiting job, or ask the worker of a running job to; None if there is no such job."""
        ...

    async def retry(self, run_id: str, /) -> FleetJob | None:
        """Requeue a failed, poisoned or cancelled job; None if there is no such job."""
        ...

    async def erase(self, run_id: str, /) -> bool:
        """Delete an ended job; return whether there was such a job."""
        ...

    async def reap(self, silent: float, /) -> list[str]:
        """Requeue the jobs of workers that were silent for `silent` seconds; return their ids.

        A queue that notices the death of a worker's process need not wait that long. A single process at a
        time reaps; the others get an empty list.
        """
        ...

    async def get(self, run_id: str, /) -> FleetJob | None:
        """The job of a run; None if there is none."""
        ...

    async def find(self, states: Sequence[JobState] = STATES, /, *, limit: int = 100) -> list[FleetJob]:
        """Jobs in some states: running and waiting ones in their order, then ended ones, newest first."""
        ...

    async def depth(self, states: Sequence[JobState] = STATES, /) -> QueueDepth:
        """The number of jobs in some states, and the longest wait."""
        ...

    async def workers(self) -> list[WorkerState]:
        """The registered workers, by their last heartbeats, latest first."""
        ...

    async def wait(self, seconds: float, /) -> None:
        """Wait until there may be a job to claim or cancel, for at most `seconds`."""
        ...

    async def leave(self) -> None:
        """Unregister the worker, and close connections; the next use reopens them."""
        ...


JOB, WAITING, WORKER = "job", "waiting job", "worker"
"""The kinds of the records of a `StoreQueue`."""
_POLL = 0.2
_SCANNED = 50


@keyword_hints()
class StoreQueue:
    """A `Queue` in a store: for the processes of one machine (`SqliteStore`) and for tests (`MemoryStore`).

    Each job is a record. A waiting job has a second record, whose key sorts by priority and submission.
    """

    def __init__(self, store: Store) -> None:
        if not isinstance(store, FencedStore):
            raise ConfigError(f"A StoreQueue needs a store that can fence writes, got {store!r}.")
        self._store = store
        self._worker = ""
        self._card: WorkerCard | None = None

    async def open(self) -> None:
        """Do nothing: a store opens itself."""

    async def submit(self, job: FleetJob, /) -> tuple[FleetJob, bool]:
        """Add a job unless its id is taken; return the queue's job with this id, and whether it is new."""
        now = _now()
        job = replace(job, state="queued", claim=0, submitted_at=now)
        # A job is incomplete until its second record is stored. After a crash in between, submitting it again
        # stores that record.
        record, is_new = await self._store.put_if_absent(_job_record(job, "incomplete"))
        stored = _job_of(record)
        if record.data["state"] == "incomplete":
            where = {"state": "incomplete"}
            records = [_job_record(stored), _waiting_record(stored)]
            await self._store.put_all_if(JOB, job.run_id, where, records)
        return stored, is_new

    async def register(self, card: WorkerCard, /) -> None:
        """Register the worker that uses this queue."""
        self._worker, self._card = f"{card.name}-{uuid4().hex[:8]}", card
        await self._store.put(Record(WORKER, self._worker, to_record(card)))

    async def claim(self, *, any_version: bool = False) -> FleetJob | None:
        """Claim the next due job that the worker can run; None if there is none."""
        card = registered(self._card)
        after: Record | None = None
        while page := await self._store.find(WAITING, after=after, limit=_SCANNED):
            for waiting in intact(page):
                data = waiting.data
                try:
                    with reading(waiting):
                        fits = data["program"] in card.programs and (
                            any_version or data["version"] in ("", card.version)
                        )
                        is_due = data["due"] is None or _is_due(waiting)
                    if fits and is_due and (job := await self._claim(waiting)) is not None:
                        return job
                except DamagedRecordError as error:
                    warn_once(f"{error} Until then, the job is not claimed.")
            after = page[-1]
        return None

    async def _claim(self, waiting: Record) -> FleetJob | None:
        before = await self.get(waiting.data["run_id"])
        job = None
        if before is not None and before.state == "queued" and before.claim == waiting.data["claim"]:
            taken = replace(
                before, state="running", claim=before.claim + 1, worker=self._worker, started_at=_now()
            )
            where = {"state": "queued", "claim": before.claim}
            if await self._store.put_all_if(JOB, before.run_id, where, [_job_record(taken)]):
                job = taken
        await self._store.delete(WAITING, waiting.key)
        return job

    async def heartbeat(self) -> Heartbeat:
        """Report that the worker is alive."""
        await self._store.put(Record(WORKER, self._worker, to_record(registered(self._card))))
        held = await self._jobs({"state": "running", "worker": self._worker})
        cancelling = frozenset(job.run_id for job in held if job.is_cancelling)
        return Heartbeat(_now(), {job.run_id: job.claim for job in held}, cancelling)

    async def finish(self, job: FleetJob, state: JobState, error: str = "", /) -> bool:
        """End a claimed job; return whether the claim was still valid."""

        def ended(stored: FleetJob) -> FleetJob:
            return replace(stored, state=state, error=error, is_cancelling=False, ended_at=_now())

        return await self._change_claimed(job, ended)

    async def hand_back(
        self, job: FleetJob, /, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> bool:
        """Requeue a claimed job after `delay` seconds; return whether the claim was still valid."""
        version = "" if any_version else registered(self._card).version
        due = _now() + timedelta(seconds=delay) if delay else None

        def waiting(stored: FleetJob) -> FleetJob:
            if stored.is_cancelling:
                return replace(stored, state="cancelled", is_cancelling=False, ended_at=_now())
            return replace(
                stored,
                state="queued",
                version=version,
                due=due,
                error=error,
                tries=job.tries,
                store_tries=job.store_tries,
            )

        return await self._change_claimed(job, waiting)

    async def cancel(self, run_id: str, /) -> FleetJob | None:
        """Cancel a waiting job, or ask the worker of a running job to; None if there is no such job."""

        def cancelled(stored: FleetJob) -> FleetJob | None:
            if stored.state == "queued":
                return replace(stored, state="cancelled", ended_at=_now())
            return replace(stored, is_cancelling=True) if stored.state == "running" else None

        return (await self._change(run_id, cancelled))[0]

    async def retry(self, run_id: str, /) -> FleetJob | None:
        """Requeue a failed, poisoned or cancelled job; None if there is no such job."""

        def queued(stored: FleetJob) -> FleetJob | None:
            if stored.state not in ("failed", "poisoned", "cancelled"):
                return None
            return replace(
                stored,
                state="queued",
                claim=stored.claim + 1,
                tries=0,
                store_tries=0,
                error="",
                due=None,
                ended_at=None,
            )

        return (await self._change(run_id, queued))[0]

    async def erase(self, run_id: str, /) -> bool:
        """Delete an ended job; return whether there was such a job."""
        job = await self.get(run_id)
        return job is not None and job.has_ended and await self._store.delete(JOB, run_id)

    async def reap(self, silent: float, /) -> list[str]:
        """Requeue the jobs of workers that were silent for `silent` seconds; return their ids."""
        workers = intact(await self._store.find(WORKER))
        now, deadline = _now(), _now() - timedelta(seconds=silent)
        # A heartbeat from the future predates a clock that was set back; a live worker soon sends another.
        alive = {
            worker.key
            for worker in workers
            if worker.updated_at is None
            or (worker.updated_at > deadline and not is_future(worker.updated_at, now))
        }
        versions = {worker.key: str(worker.data.get("version", "")) for worker in workers}
        reaped: list[str] = []
        for job in await self._jobs({"state": "running"}):
            if job.worker in alive:
                continue

            def waiting(stored: FleetJob) -> FleetJob:
                if stored.is_cancelling:
                    return replace(stored, state="cancelled", is_cancelling=False, ended_at=_now())
                return replace(stored, state="queued", version=versions.get(stored.worker, ""), due=None)

            if await self._change_claimed(job, waiting):
                reaped.append(job.run_id)
        for dead in versions.keys() - alive:
            await self._store.delete(WORKER, dead)
        return reaped

    async def get(self, run_id: str, /) -> FleetJob | None:
        """The job of a run; None if there is none."""
        record = await self._store.get(JOB, run_id)
        return None if record is None else _job_of(record)

    async def find(self, states: Sequence[JobState] = STATES, /, *, limit: int = 100) -> list[FleetJob]:
        """Jobs in some states: running and waiting ones in their order, then ended ones, newest first."""
        return in_order(await self._jobs({"state": tuple(states)}))[:limit]

    async def depth(self, states: Sequence[JobState] = STATES, /) -> QueueDepth:
        """The number of jobs in some states, and the longest wait."""
        now = _now()
        counts: dict[JobState, int] = dict.fromkeys(states, 0)
        versions: dict[str, int] = {}
        waits: list[float] = []
        for job in await self._jobs({"state": tuple(states)}):
            counts[job.state] += 1
            if job.state == "queued":
                versions[job.version] = versions.get(job.version, 0) + 1
                since = max(time for time in (job.submitted_at, job.due) if time is not None)
                if since <= now:
                    waits.append((now - since).total_seconds())
        return QueueDepth(counts, versions, max(waits, default=None))

    async def workers(self) -> list[WorkerState]:
        """The registered workers, by their last heartbeats, latest first."""
        running: dict[str, int] = {}
        for job in await self._jobs({"state": "running"}):
            running[job.worker] = running.get(job.worker, 0) + 1
        now = _now()

        def state_of(record: Record) -> WorkerState:
            seen = record.updated_at or now
            silent = max(0.0, (now - seen).total_seconds())
            return WorkerState(from_record(WorkerCard, record.data), running.get(record.key, 0), seen, silent)

        workers = restored(await self._store.find(WORKER), state_of).values()
        return sorted(workers, key=lambda worker: worker.seconds_silent)

    async def wait(self, seconds: float, /) -> None:
        """Wait a moment: a store does not notify of changes."""
        await asyncio.sleep(min(seconds, _POLL))

    async def leave(self) -> None:
        """Unregister the worker; the store stays open for others."""
        if self._worker:
            await self._store.delete(WORKER, self._worker)
            self._worker, self._card = "", None

    async def _jobs(self, where: Mapping[str, Any]) -> list[FleetJob]:
        return [*restored(await self._store.find(JOB, where=where), _job_of).values()]

    async def _change_claimed(self, job: FleetJob, change: Callable[[FleetJob], FleetJob]) -> bool:
        """Change a job if its claim is still valid; return whether it was."""

        def changed(stored: FleetJob) -> FleetJob | None:
            is_valid = stored.state == "running" and stored.claim == job.claim
            return change(stored) if is_valid else None

        return (await self._change(job.run_id, changed))[1]

    async def _change(
        self, run_id: str, change: Callable[[FleetJob], FleetJob | None]
    ) -> tuple[FleetJob | None, bool]:
        """Change a job atomically unless `change` returns None; return it, and whether it was changed."""
        while (record := await self._store.get(JOB, run_id)) is not None:
            stored = _job_of(record)
            job = change(stored)
            if job is None:
                return stored, False
            records = [_job_record(job), *([_waiting_record(job)] if job.state == "queued" else [])]
            same = {name: record.data[name] for name in ("state", "claim", "is_cancelling")}
            if await self._store.put_all_if(JOB, run_id, same, records):
                if stored.state == "queued":
                    await self._store.delete(WAITING, _waiting_record(stored).key)
                return job, True
        return None, False


def in_order(jobs: Sequence[FleetJob]) -> list[FleetJob]:
    """Sort jobs: running and waiting ones in their order, then ended ones, newest first."""
    start = datetime.min.replace(tzinfo=UTC)
    ended = [job for job in jobs if job.has_ended]
    ended.sort(key=lambda job: job.ended_at or start, reverse=True)
    live = [job for job in jobs if not job.has_ended]
    live.sort(key=lambda job: (job.state != "running", -job.priority, job.submitted_at or start))
    return [*live, *ended]


def _job_record(job: FleetJob, state: str = "") -> Record:
    searched = {
        "state": state or job.state,
        "worker": job.worker,
        "claim": job.claim,
        "is_cancelling": job.is_cancelling,
    }
    return Record(JOB, job.run_id, to_record(job) | searched)


def _job_of(record: Record) -> FleetJob:
    data = dict(record.data)
    if data["state"] == "incomplete":
        data["state"] = "queued"
    return from_record(FleetJob, data)


def _waiting_record(job: FleetJob) -> Record:
    if job.submitted_at is None:
        raise StoreError(f"The job {job.run_id!r} has no time of submission.")
    # The key contains the claim, so that a worker with an old record never deletes that of a later claim.
    key = f"{MOST_PRIORITY - job.priority:04d} {job.submitted_at:%Y%m%dT%H%M%S.%f} {job.run_id} {job.claim}"
    data = {
        "run_id": job.run_id,
        "program": job.program,
        "version": job.version,
        "claim": job.claim,
        "due": None if job.due is None else job.due.isoformat(),
    }
    return Record(WAITING, key, data)


def _is_due(waiting: Record) -> bool:
    """Whether the delay of a job is over, or was set by a clock that was ahead."""
    now, queued_at = _now(), waiting.updated_at
    is_delayed = datetime.fromisoformat(waiting.data["due"]) > now
    return not is_delayed or (queued_at is not None and is_future(queued_at, now))


def _now() -> datetime:
    return datetime.now(UTC)
