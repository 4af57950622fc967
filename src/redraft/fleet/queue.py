"""The queue of a fleet: its jobs and workers, the protocol, and the queue in a store of one machine."""

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
from redraft.stores.base import FencedStore, Record, intact, restored, warn_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from redraft.stores.base import Store

JobState: TypeAlias = Literal["queued", "running", "finished", "failed", "poisoned", "cancelled"]
ENDED: tuple[JobState, ...] = ("finished", "failed", "poisoned", "cancelled")
LIVE: tuple[JobState, ...] = ("queued", "running")
STATES: tuple[JobState, ...] = (*LIVE, *ENDED)
LEAST_PRIORITY, MOST_PRIORITY = -1000, 1000


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A run for a worker, under the id of the run."""

    run_id: str
    program: str
    """The name of the agent, workflow or cycle."""
    task: Any
    """The input of the program, as JSON data."""
    priority: int = 0
    """-1000 to 1000, the highest first; jobs of one priority go in the order of submission."""
    due: datetime | None = None
    """The earliest time to begin."""
    state: JobState = "queued"
    claim: int = 0
    """How often workers have claimed the job."""
    version: str = ""
    """The version of the code that began the job, the only one that continues it; empty until a worker hands
    the job back."""
    worker: str = ""
    tries: int = 0
    """Failures after which the job was tried again."""
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
        """Whether no worker will continue it, unless somebody retries it."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True)
class WorkerCard:
    """A worker's description of itself: where it runs, its programs, and its concurrency."""

    name: str
    host: str
    pid: int
    version: str
    programs: tuple[str, ...]
    concurrency: int
    pick_up_after: float = 6.0
    """Seconds of silence after which its jobs go to other workers."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A registered worker: its card, the number of its jobs, and its last heartbeat."""

    card: WorkerCard
    running: int
    seen_at: datetime
    seconds_silent: float

    @property
    def is_gone(self) -> bool:
        """Whether it was silent for so long that its jobs go to other workers."""
        return self.seconds_silent >= self.card.pick_up_after


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The queue's reply to the heartbeat of a worker."""

    now: datetime
    held: Mapping[str, int]
    """The claims that still hold: the number of the claim by the id of the run."""
    cancelling: frozenset[str]
    """The ids of the runs to cancel."""


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """The number of jobs in each state that was asked for, and the longest wait."""

    jobs: Mapping[JobState, int]
    waiting_for: Mapping[str, int]
    """Queued jobs by the version of the code that they wait for; empty: any version."""
    oldest_seconds: float | None = None
    """How long the oldest job that is due has waited; None if no job is due."""


@runtime_checkable
class Queue(Protocol):
    """Jobs for workers, safely for many processes at once.

    A job is claimed by one worker at a time. A claim ends when its worker finishes the job, hands it back, or
    has not been heard of for a while, after which `reap` makes it available again; whatever the worker then
    says about the job is ignored. Times are those of the queue, so workers need no exact clocks.

    Every method raises `StoreError` if the queue can't be reached; it works again once it can.
    """

    async def open(self) -> None:
        """Connect, and create what is missing; raises `ConfigError` for a queue that can't be used."""
        ...

    async def submit(self, job: FleetJob, /) -> tuple[FleetJob, bool]:
        """Add a job unless there is one with its id; return the one in the queue, and whether it is new."""
        ...

    async def register(self, card: WorkerCard, /) -> None:
        """Announce a worker, which this object then speaks for."""
        ...

    async def claim(self, *, any_version: bool = False) -> FleetJob | None:
        """Claim the next job that is due and that the worker can run, if there is one.

        Jobs that another version of the code has begun are left alone, unless `any_version`.
        """
        ...

    async def heartbeat(self) -> Heartbeat:
        """Say that the worker is alive."""
        ...

    async def finish(self, job: FleetJob, state: JobState, error: str = "", /) -> bool:
        """End a claimed job; return whether the claim still held."""
        ...

    async def hand_back(
        self, job: FleetJob, /, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> bool:
        """Make a claimed job available again after `delay` seconds; return whether the claim still held.

        With an `error`, one more try of the job is counted. With `any_version`, other code may take it.
        """
        ...

    async def cancel(self, run_id: str, /) -> FleetJob | None:
        """Cancel a job that waits, and ask the worker of one that runs; None if there is no such job."""
        ...

    async def retry(self, run_id: str, /) -> FleetJob | None:
        """Queue a job again that failed, was poisoned or cancelled; None if there is no such job."""
        ...

    async def erase(self, run_id: str, /) -> bool:
        """Delete a job that has ended; return whether there was one."""
        ...

    async def reap(self, silent: float, /) -> list[str]:
        """Make the jobs of workers available that were silent for that many seconds; return their ids.

        A queue that can tell that the process of a worker has ended need not wait that long. One process at a
        time does this; the others get an empty list.
        """
        ...

    async def get(self, run_id: str, /) -> FleetJob | None:
        """Return a job, None if there is none."""
        ...

    async def find(self, states: Sequence[JobState] = STATES, /, *, limit: int = 100) -> list[FleetJob]:
        """Return the jobs in these states: live ones in their order, then ended ones, newest first."""
        ...

    async def depth(self, states: Sequence[JobState] = STATES, /) -> QueueDepth:
        """Return how many jobs there are in each of these states, and how late the queue is."""
        ...

    async def workers(self) -> list[WorkerState]:
        """Return the workers that are registered, the most recently heard of first."""
        ...

    async def wait(self, seconds: float, /) -> None:
        """Return when there may be something new to claim or cancel, and after `seconds` at the latest."""
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

    Each job is a record, and each waiting one another, whose key sorts by priority and submission.
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
        """Add a job unless there is one with its id; return the one in the queue, and whether it is new."""
        now = _now()
        job = replace(job, state="queued", claim=0, submitted_at=now)
        # A job is not complete before its second record is there; whoever submits it again adds that.
        stored, is_new = await self._store.put_if_absent(_job_record(job, "incomplete"))
        there = _job_of(stored)
        if stored.data["state"] == "incomplete":
            where = {"state": "incomplete"}
            await self._store.put_all_if(JOB, job.run_id, where, [_job_record(there), _waiting_record(there)])
        return there, is_new

    async def register(self, card: WorkerCard, /) -> None:
        """Announce a worker, which this object then speaks for."""
        self._worker, self._card = f"{card.name}-{uuid4().hex[:8]}", card
        await self._store.put(Record(WORKER, self._worker, to_record(card)))

    async def claim(self, *, any_version: bool = False) -> FleetJob | None:
        """Claim the next job that is due and that the worker can run, if there is one."""
        card = self._required_card()
        after: Record | None = None
        while page := await self._store.find(WAITING, after=after, limit=_SCANNED):
            for waiting in intact(page):
                data = waiting.data
                fits = data["program"] in card.programs and (
                    any_version or data["version"] in ("", card.version)
                )
                if fits and (data["due"] is None or _is_due(waiting)):
                    job = await self._claim(waiting)
                    if job is not None:
                        return job
            after = page[-1]
        return None

    async def _claim(self, waiting: Record) -> FleetJob | None:
        try:
            before = await self.get(waiting.data["run_id"])
        except DamagedRecordError as error:
            warn_once(f"{error} Until then, the job is not claimed.")
            return None
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
        """Say that the worker is alive."""
        await self._store.put(Record(WORKER, self._worker, to_record(self._required_card())))
        held = await self._jobs({"state": "running", "worker": self._worker})
        cancelling = frozenset(job.run_id for job in held if job.is_cancelling)
        return Heartbeat(_now(), {job.run_id: job.claim for job in held}, cancelling)

    async def finish(self, job: FleetJob, state: JobState, error: str = "", /) -> bool:
        """End a claimed job; return whether the claim still held."""

        def ended(there: FleetJob) -> FleetJob:
            return replace(there, state=state, error=error, is_cancelling=False, ended_at=_now())

        return await self._change_claimed(job, ended)

    async def hand_back(
        self, job: FleetJob, /, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> bool:
        """Make a claimed job available again after `delay` seconds; return whether the claim still held."""
        version = "" if any_version else self._required_card().version
        due = _now() + timedelta(seconds=delay) if delay else None

        def waiting(there: FleetJob) -> FleetJob:
            if there.is_cancelling:
                return replace(there, state="cancelled", is_cancelling=False, ended_at=_now())
            return replace(
                there, state="queued", version=version, due=due, error=error, tries=there.tries + bool(error)
            )

        return await self._change_claimed(job, waiting)

    async def cancel(self, run_id: str, /) -> FleetJob | None:
        """Cancel a job that waits, and ask the worker of one that runs; None if there is no such job."""

        def cancelled(there: FleetJob) -> FleetJob | None:
            if there.state == "queued":
                return replace(there, state="cancelled", ended_at=_now())
            return replace(there, is_cancelling=True) if there.state == "running" else None

        return (await self._change(run_id, cancelled))[0]

    async def retry(self, run_id: str, /) -> FleetJob | None:
        """Queue a job again that failed, was poisoned or cancelled; None if there is no such job."""

        def queued(there: FleetJob) -> FleetJob | None:
            if there.state not in ("failed", "poisoned", "cancelled"):
                return None
            return replace(
                there, state="queued", claim=there.claim + 1, tries=0, error="", due=None, ended_at=None
            )

        return (await self._change(run_id, queued))[0]

    async def erase(self, run_id: str, /) -> bool:
        """Delete a job that has ended; return whether there was one."""
        job = await self.get(run_id)
        return job is not None and job.has_ended and await self._store.delete(JOB, run_id)

    async def reap(self, silent: float, /) -> list[str]:
        """Make the jobs of workers available that were silent for that many seconds; return their ids."""
        workers = intact(await self._store.find(WORKER))
        now, deadline = _now(), _now() - timedelta(seconds=silent)
        # A sign of life from the future came before the clock was set back; a live worker soon sends another.
        alive = {
            one.key
            for one in workers
            if one.updated_at is None or (one.updated_at > deadline and not is_future(one.updated_at, now))
        }
        versions = {one.key: str(one.data["version"]) for one in workers}
        reaped: list[str] = []
        for job in await self._jobs({"state": "running"}):
            if job.worker in alive:
                continue

            def waiting(there: FleetJob) -> FleetJob:
                if there.is_cancelling:
                    return replace(there, state="cancelled", is_cancelling=False, ended_at=_now())
                return replace(there, state="queued", version=versions.get(there.worker, ""), due=None)

            if await self._change_claimed(job, waiting):
                reaped.append(job.run_id)
        for gone in versions.keys() - alive:
            await self._store.delete(WORKER, gone)
        return reaped

    async def get(self, run_id: str, /) -> FleetJob | None:
        """Return a job, None if there is none."""
        record = await self._store.get(JOB, run_id)
        return None if record is None else _job_of(record)

    async def find(self, states: Sequence[JobState] = STATES, /, *, limit: int = 100) -> list[FleetJob]:
        """Return the jobs in these states: live ones in their order, then ended ones, newest first."""
        return in_order(await self._jobs({"state": tuple(states)}))[:limit]

    async def depth(self, states: Sequence[JobState] = STATES, /) -> QueueDepth:
        """Return how many jobs there are in each of these states, and how late the queue is."""
        now = _now()
        found: dict[JobState, int] = dict.fromkeys(states, 0)
        versions: dict[str, int] = {}
        waits: list[float] = []
        for job in await self._jobs({"state": tuple(states)}):
            found[job.state] += 1
            if job.state == "queued":
                versions[job.version] = versions.get(job.version, 0) + 1
                since = max(one for one in (job.submitted_at, job.due) if one is not None)
                if since <= now:
                    waits.append((now - since).total_seconds())
        return QueueDepth(found, versions, max(waits, default=None))

    async def workers(self) -> list[WorkerState]:
        """Return the workers that are registered, the most recently heard of first."""
        running: dict[str, int] = {}
        for job in await self._jobs({"state": "running"}):
            running[job.worker] = running.get(job.worker, 0) + 1
        now = _now()

        def state_of(record: Record) -> WorkerState:
            seen = record.updated_at or now
            silent = max(0.0, (now - seen).total_seconds())
            return WorkerState(from_record(WorkerCard, record.data), running.get(record.key, 0), seen, silent)

        found = restored(await self._store.find(WORKER), state_of).values()
        return sorted(found, key=lambda one: one.seconds_silent)

    async def wait(self, seconds: float, /) -> None:
        """Return after a moment: a store does not say when something changes."""
        await asyncio.sleep(min(seconds, _POLL))

    async def leave(self) -> None:
        """Unregister the worker; the store stays open for others."""
        if self._worker:
            await self._store.delete(WORKER, self._worker)
            self._worker, self._card = "", None

    def _required_card(self) -> WorkerCard:
        if self._card is None:
            raise AssertionError("register a worker first")
        return self._card

    async def _jobs(self, where: Mapping[str, Any]) -> list[FleetJob]:
        return [*restored(await self._store.find(JOB, where=where), _job_of).values()]

    async def _change_claimed(self, job: FleetJob, change: Callable[[FleetJob], FleetJob]) -> bool:
        """Change a job if its claim still holds; return whether it did."""

        def changed(there: FleetJob) -> FleetJob | None:
            holds = there.state == "running" and there.claim == job.claim
            return change(there) if holds else None

        return (await self._change(job.run_id, changed))[1]

    async def _change(
        self, run_id: str, change: Callable[[FleetJob], FleetJob | None]
    ) -> tuple[FleetJob | None, bool]:
        """Change a job atomically unless `change` returns None; return it, and whether it was changed."""
        while (record := await self._store.get(JOB, run_id)) is not None:
            there = _job_of(record)
            job = change(there)
            if job is None:
                return there, False
            records = [_job_record(job), *([_waiting_record(job)] if job.state == "queued" else [])]
            same = {name: record.data[name] for name in ("state", "claim", "is_cancelling")}
            if await self._store.put_all_if(JOB, run_id, same, records):
                if there.state == "queued":
                    await self._store.delete(WAITING, _waiting_record(there).key)
                return job, True
        return None, False


def in_order(jobs: Sequence[FleetJob]) -> list[FleetJob]:
    """Sort jobs: running and waiting ones as they come, then those that have ended, newest first."""
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
    # With the claim, a worker that still sees an old record never deletes the one of a later claim.
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
    """Whether the delay of a job is over, or was counted by a clock from the future."""
    now, queued_at = _now(), waiting.updated_at
    is_delayed = datetime.fromisoformat(waiting.data["due"]) > now
    return not is_delayed or (queued_at is not None and is_future(queued_at, now))


def _now() -> datetime:
    return datetime.now(UTC)
