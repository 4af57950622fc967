"""Fleet: submit work for agents, workflows and cycles; follow it, cancel it and get its results."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from redraft._codec import fingerprint, from_record
from redraft._hints import keyword_hints
from redraft._sync import run_sync
from redraft._telemetry import current_position
from redraft._validation import check_choice, check_list, is_number, named_error, nearest
from redraft.errors import ConfigError, JobError
from redraft.events import RunFinished, StepFailed, StepFinished
from redraft.fleet.gate import DailyBudget, Limit
from redraft.fleet.programs import Program, program_of
from redraft.fleet.queue import (
    STATES,
    FleetJob,
    JobState,
    Queue,
    StoreQueue,
    check_priority,
)
from redraft.fleet.schedule import Schedule
from redraft.loop.journal import STEP, check_run_id, new_run_id
from redraft.loop.record import RUN, RunRecord
from redraft.settings import load_settings
from redraft.stores.base import FencedStore, Record, Store, intact, json_text
from redraft.stores.location import project_place, required_project_store
from redraft.workflow.history import WORKFLOW, WorkflowRecord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from redraft.cycles.agent import CycleAgent
    from redraft.events import Event
    from redraft.fleet.programs import Runnable
    from redraft.loop.agent import Agent
    from redraft.workflow.workflow import Workflow

FIRST_POLL, LONGEST_POLL = 0.05, 1.0
"""Polling interval for the end of a job, in seconds; it grows."""
LONGEST_VERSION = 100
LONGEST_TASK = 1_000_000


@keyword_hints()
class Fleet:
    """The programs that workers on many machines run, and the queue of their jobs.

    Jobs refer to `agents`, `workflows` and `cycles` by name, so names must differ. The queue is in the
    project's store: a PostgreSQL database (`database_url`, with `redraft[fleet]`) for many machines, else the
    SQLite file for the processes of this machine. All programs must store their runs there, as they do by
    default. `queue` and `store` replace the project's, for tests.

    `limits` bound the model calls of all workers together, and `schedules` submit jobs at fixed times.
    `budget_usd_per_day` bounds the cost of all calls on a day of `budget_zone`; once it is spent, runs are
    handed back, and continue on the next day.

    `version` names the code: only workers of the same version continue a job. By default, it is a fingerprint
    of the agents, their criteria, the workflows and the cycles. `tries` is the number of retries after a
    failure that may pass, such as an outage of a provider. After `pick_up_after` seconds of silence, the jobs
    of a worker go to others.

    Raises `ConfigError` for a fleet that can't work, before any job is claimed.
    """

    def __init__(
        self,
        agents: Sequence[Agent[Any]] = (),
        workflows: Sequence[Workflow] = (),
        cycles: Sequence[CycleAgent] = (),
        *,
        limits: Sequence[Limit] = (),
        schedules: Sequence[Schedule] = (),
        budget_usd_per_day: float | None = None,
        budget_zone: str = "UTC",
        version: str = "",
        tries: int = 3,
        pick_up_after: float = 6.0,
        queue: Queue | None = None,
        store: Store | None = None,
    ) -> None:
        for name, programs in {"agents": agents, "workflows": workflows, "cycles": cycles}.items():
            check_list(name, programs)
        self.programs = _by_name([*agents, *workflows, *cycles])
        if not isinstance(version, str) or len(version) > LONGEST_VERSION or not version.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(
                f"version must be a text of at most {LONGEST_VERSION} characters, got {version!r}."
            )
        if isinstance(tries, bool) or not isinstance(tries, int) or tries < 0:  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
            raise ConfigError(f"tries must be a whole number from 0, got {tries!r}.")
        if not is_number(pick_up_after) or not pick_up_after >= 1:
            raise ConfigError(f"pick_up_after must be at least 1 second, got {pick_up_after!r}.")
        self.budget = None if budget_usd_per_day is None else DailyBudget(budget_usd_per_day, budget_zone)
        self.limits = tuple(limits)
        self.schedules = tuple(schedules)
        for item in (*self.limits, *self.schedules):
            if not isinstance(item, Limit | Schedule):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
                raise ConfigError(
                    f"limits must be Limit objects, and schedules Schedule objects; got {item!r}."
                )
        _check_distinct("limits", [limit.models for limit in self.limits])
        _check_distinct("schedules", [schedule.name for schedule in self.schedules])
        for schedule in self.schedules:
            name = self.name_of(schedule.program)
            _checked_task(name, schedule.task)
            self.programs[name].check(schedule.task, priced=self.budget is not None)
        self.version = version or fingerprint(
            {name: program.definition() for name, program in self.programs.items()}
        )
        self.tries = tries
        self.pick_up_after = float(pick_up_after)
        self._store = store
        self._queue = StoreQueue(store) if queue is None and store is not None else queue
        for program in self.programs.values():
            if program.keep is not True and program.keep is not store:
                raise ConfigError(
                    f"{program.name!r} must store its runs where the fleet does: leave keep=True, or give "
                    "the fleet the same store."
                )

    @property
    def store(self) -> FencedStore:
        """The store of the runs, which can fence writes."""
        if self._store is None:
            self._store = required_project_store("jobs")
        if not isinstance(self._store, FencedStore):
            raise ConfigError(f"A fleet needs a store that can fence writes; {self._store!r} can't.")
        return self._store

    @property
    def queue(self) -> Queue:
        """The queue of the jobs."""
        if self._queue is None:
            self._queue = project_queue()
        return self._queue

    async def submit(
        self,
        program: Runnable | str,
        task: Any = None,
        *,
        priority: int = 0,
        delay: float = 0.0,
        run_id: str | None = None,
    ) -> JobHandle:
        """Queue a task for an agent (a text), a workflow (its initial state) or a cycle (a trigger's name).

        Jobs with a higher `priority` (-1000 to 1000) go first. The job begins after `delay` seconds at the
        earliest. Submitting a `run_id` again returns the existing job in any state; raises `ConfigError` if
        its program or task differs, and for a task that is not JSON.
        """
        name = self.name_of(program)
        text = _checked_task(name, task)
        self.programs[name].check(task, priced=self.budget is not None)
        check_priority(priority)
        if not is_number(delay) or not 0 <= delay < timedelta.max.total_seconds() / 1e4:
            raise ConfigError(f"delay must be a number of seconds from 0, got {delay!r}.")
        if run_id is not None:
            check_run_id(run_id)
        due = datetime.now(UTC) + timedelta(seconds=delay) if delay else None
        job = FleetJob(run_id or new_run_id(), name, task, priority, due, trace=current_position())
        stored, is_new = await self.queue.submit(job)
        if not is_new and (stored.program != name or json_text(stored.task) != text):
            raise ConfigError(
                f"The id {stored.run_id!r} belongs to a job for {stored.program!r} with another task. Give a "
                "new task a new run_id."
            )
        return JobHandle(self, stored.run_id)

    def submit_sync(
        self,
        program: Runnable | str,
        task: Any = None,
        *,
        priority: int = 0,
        delay: float = 0.0,
        run_id: str | None = None,
    ) -> JobHandle:
        """Like `submit`, for code that is not async."""
        return run_sync(self.submit(program, task, priority=priority, delay=delay, run_id=run_id))

    def handle(self, run_id: str) -> JobHandle:
        """The handle of a job that this process or another has submitted."""
        return JobHandle(self, run_id)

    async def jobs(self, states: Sequence[JobState] = STATES, *, limit: int = 100) -> list[FleetJob]:
        """Jobs in some states: running and waiting ones in their order, then ended ones, newest first.

        Raises `ConfigError` for an unknown state.
        """
        for state in states:
            check_choice("states", state, STATES)
        return await self.queue.find(states, limit=limit)

    async def aclose(self) -> None:
        """Close the queue's connections; the next use reopens them."""
        await self.queue.leave()

    def name_of(self, program: Runnable | str) -> str:
        """The name of a program of this fleet; raises `ConfigError` for any other."""
        name = program if isinstance(program, str) else program_of(program).name
        if name not in self.programs:
            raise ConfigError(f"This fleet has no program {name!r}; {nearest(name, self.programs)}")
        return name


@dataclass(frozen=True, slots=True)
class JobHandle:
    """A job of a fleet: wait for its result, follow it, cancel it or try it again."""

    fleet: Fleet
    run_id: str

    async def job(self) -> FleetJob:
        """The current state of the job; raises `ConfigError` if there is none."""
        job = await self.fleet.queue.get(self.run_id)
        if job is None:
            raise ConfigError(f"There is no job {self.run_id!r}.")
        return job

    async def result(self, within: float | None = None) -> Any:
        """Wait for the result: a `ReflectionResult`, a `WorkflowResult`, or None for a cycle.

        Raises `JobError` if the job failed, was poisoned or cancelled, and `TimeoutError` if it does not end
        `within` this many seconds.
        """
        wait = FIRST_POLL
        async with asyncio.timeout(within):
            while not (job := await self.job()).has_ended:
                await asyncio.sleep(wait)
                wait = min(wait * 1.5, LONGEST_POLL)
        if job.state != "finished":
            reason = f": {job.error}" if job.error else "."  # a cancelled job has none
            raise JobError(f"The job {self.run_id!r} is {job.state}{reason}", state=job.state)
        return await self.fleet.programs[job.program].result(self.run_id, self.fleet.store)

    async def stream(self) -> AsyncGenerator[Event]:
        """Yield an event for each step as it is recorded, and `RunFinished` at the end of an agent's run.

        Recorded steps come first. The results of steps are JSON data. After the last event, raises the errors
        of `result`.
        """
        seen: set[str] = set()
        wait = FIRST_POLL
        while True:
            job = await self.job()
            records = await self.fleet.store.find(STEP, prefix=f"{self.run_id}/")
            for record in intact(records):
                if record.key.count("/") == 1 and record.key not in seen:
                    seen.add(record.key)
                    wait = FIRST_POLL
                    yield _event_of(self.run_id, record)
            if job.has_ended:
                break
            await asyncio.sleep(wait)
            wait = min(wait * 1.5, LONGEST_POLL)
        result = await self.result()
        if hasattr(result, "history"):
            yield RunFinished(self.run_id, result)

    async def cancel(self) -> FleetJob:
        """Cancel the job. Finished steps stay stored; an ended job does not change."""
        job = await cancel_job(self.fleet.queue, self.fleet.store, self.run_id)
        return job or await self.job()

    async def retry(self) -> FleetJob:
        """Requeue a failed, poisoned or cancelled job; it continues after its last step."""
        job = await self.fleet.queue.retry(self.run_id)
        return job or await self.job()


async def cancel_job(queue: Queue, store: Store, run_id: str) -> FleetJob | None:
    """Cancel a job, and its run if that waits to go on; None if there is no such job."""
    job = await queue.cancel(run_id)
    if job is not None and job.state == "cancelled":
        for kind, record_type in ((RUN, RunRecord), (WORKFLOW, WorkflowRecord)):
            stored = await store.get(kind, run_id)
            if stored is not None and stored.data["status"] == "waiting" and stored.data.get("error"):
                record = from_record(record_type, stored.data)
                record.status, record.error = "cancelled", ""
                await store.put(record.stored())
    return job


def _event_of(run_id: str, record: Record) -> Event:
    data = record.data
    if "error" in data:
        return StepFailed(run_id, data["name"], RuntimeError(data["error"].get("message", "")))
    return StepFinished(run_id, data["name"], data.get("result"), data["elapsed"] - data.get("began", 0.0))


def _by_name(runnables: Sequence[Runnable]) -> dict[str, Program]:
    if not runnables:
        raise ConfigError("A fleet needs at least one agent, workflow or cycle.")
    programs: dict[str, Program] = {}
    for program in map(program_of, runnables):
        if program.name in programs:
            raise ConfigError(f"Two programs of the fleet have the name {program.name!r}; jobs go by name.")
        programs[program.name] = program
    return programs


def _check_distinct(kind: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two of the {kind} have the name {name!r}.")


def _checked_task(name: str, task: Any) -> str:
    try:
        text = json_text(task)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"A task for {name!r} must be JSON data: {error}.") from error
    if json.loads(text) != task:
        raise ConfigError(f"A task for {name!r} must be JSON data, with text as keys and lists for tuples.")
    if len(text) > LONGEST_TASK:
        raise ConfigError(
            f"A task for {name!r} may have at most {LONGEST_TASK:,} characters, got {len(text):,}."
        )
    return text


def project_queue() -> Queue:
    """The queue of the project: in its PostgreSQL database, or in its SQLite file.

    Raises `ConfigError` if storage is turned off, or if the project has a database but no name.
    """
    return queue_for(required_project_store("jobs"))


def queue_for(store: Store) -> Queue:
    """The queue of the jobs whose runs are in `store`, the store of the project."""
    place = project_place()
    if place is None or not isinstance(place.database, str):
        return StoreQueue(store)
    if not load_settings().project:
        raise ConfigError(
            "A fleet on PostgreSQL needs a name for the project, which is the same on all machines: set "
            "`project` in redraft.toml (or REDRAFT_PROJECT)."
        )
    from redraft.fleet.postgres_queue import ProcrastinateQueue  # noqa: PLC0415 (needs an extra)

    return ProcrastinateQueue(place.database, place.space)


def load_fleet(name: str) -> Fleet:
    """Import a fleet by `module:object`, with the working directory first in the search path.

    Raises `ConfigError` if that fails.
    """
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ConfigError(f"A fleet is named MODULE:OBJECT, such as app:fleet; got {name!r}.")
    if (folder := os.getcwd()) not in sys.path:  # noqa: PTH109 (sys.path has strings)
        sys.path.insert(0, folder)
    try:
        fleet: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name == module.partition(".")[0] or error.name == module:
            raise ConfigError(
                f"There is no module {module!r} in {folder!r} or on the Python path."
            ) from error
        raise ConfigError(f"{module!r} can't be imported: {error}.") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{module!r} can't be imported: {named_error(error)}") from error
    for part in path.split("."):
        if not hasattr(fleet, part):
            raise ConfigError(f"The module {module!r} has no {path!r}.")
        fleet = getattr(fleet, part)
    if not isinstance(fleet, Fleet):
        raise ConfigError(f"{name!r} is not a Fleet but {fleet!r}.")
    return fleet
