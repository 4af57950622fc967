"""FleetWorker: claim jobs, run them, and take over the jobs of dead workers."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from redraft import _telemetry
from redraft._clock import uptime
from redraft._hints import keyword_hints
from redraft._signals import StopRequest
from redraft._steps import MOST_DOUBLINGS, call_gate
from redraft._tasks import PATIENCE, Isolation, end_tasks, first_of, unless
from redraft._telemetry import count, traced
from redraft._validation import check_count, check_flag, check_kind, is_number, named_error
from redraft.errors import (
    ChangedRunError,
    ClaimLostError,
    ConfigError,
    DamagedRecordError,
    StoreError,
    StoreSettingsError,
)
from redraft.fleet.fleet import Fleet
from redraft.fleet.gate import FleetGate
from redraft.fleet.overview import fleet_gauges
from redraft.fleet.programs import JobOutcome, failure
from redraft.fleet.queue import FleetJob, Heartbeat, JobState, WorkerCard
from redraft.fleet.schedule import submit_due
from redraft.loop.journal import Claim, claim_under_way
from redraft.redact.log import logger, warn_once
from redraft.types import render_usd

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from redraft.fleet.gate import SharedSpending
    from redraft.fleet.monitor import Monitor

POLL = 1.0
"""Seconds after which a worker looks for jobs without a notification: delayed jobs become due."""
POISONED = (
    "Its worker died {} times in a row without a new step in the journal of the run, the last time while it "
    "ran nothing else."
)
STOPPED = "Its worker was stopped; the run goes on when another worker claims it."
STORE_TRIES = 20
"""The most retries of a job after errors of the store."""
FIRST_DELAY, LONGEST_DELAY = 1.0, 60.0
"""Seconds before a failed job is retried; they double with each try."""
BUSY_DELAY = 2.0
"""Seconds before a job is claimed again that waits for another run of its program."""
ANSWER_DELAY = 10.0
"""Seconds before a job is claimed again that waits for the answer of a person."""
OUTAGE_WAIT = 0.5
"""Seconds between attempts to reach the queue."""
HAND_BACK_WAIT = 10.0
"""Seconds for handing back cancelled jobs when a worker ends."""
MEASURE_EVERY = 15.0
"""Seconds between measurements of the queue for OpenTelemetry; `/metrics` measures at each request."""
TICK = 1.0
"""Seconds between checks of the schedules."""
LATE = 60.0
"""Seconds after which a time of a schedule counts as missed."""


@dataclass(slots=True)
class _Running:
    """A job under way."""

    job: FleetJob
    task: asyncio.Task[None]
    claimed_at: float = field(default_factory=uptime)
    claim: Claim | None = None
    is_cancelled: bool = False
    """Whether the queue has asked to cancel the job."""
    is_lost: bool = False
    """Whether another worker has claimed the job."""
    is_ending: bool = False
    """Whether the end of the job is being reported."""
    cancelled_at: float = -PATIENCE

    def cancel(self, pause: str = "") -> None:
        """Cancel the job, unless its end is being reported; again only if it had time to clean up.

        `pause` says when a job that is handed back goes on.
        """
        if self.claim is not None:
            self.claim.pause = pause
        if not self.is_ending and uptime() - self.cancelled_at >= PATIENCE:
            self.cancelled_at = uptime()
            self.task.cancel()


@keyword_hints()
class FleetWorker:
    """Runs the jobs of a fleet, at most `concurrency` in parallel, until `stop` is called.

    While the queue can't be reached, a worker claims nothing, and its runs wait to be recorded. If it dies,
    other workers continue its jobs after the fleet's `pick_up_after` seconds.

    If two workers in a row die in a job without a new step, the job runs alone: its worker claims nothing
    else meanwhile. If that worker dies, too, the job is poisoned.

    The first `stop` ends claiming; jobs under way have `grace` seconds to finish, and are then handed back.
    The second `stop` hands them back immediately. With `any_version`, the worker also continues jobs that
    other versions of the code began. `listen` is the address of the HTTP endpoint (`Monitor`), as `HOST:PORT`
    or as a port on loopback.

    Each worker needs its own queue object: pass a fleet to a single worker.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        concurrency: int = 10,
        grace: float = 30.0,
        any_version: bool = False,
        listen: str | None = None,
    ) -> None:
        check_kind("fleet", fleet, Fleet, "a Fleet")
        check_count("concurrency", concurrency, 1)
        check_flag("any_version", any_version)
        if not is_number(grace) or grace < 0:
            raise ConfigError(f"grace must be a number of seconds from 0, got {grace!r}.")
        self.fleet = fleet
        self.card = WorkerCard(
            f"{socket.gethostname()}:{os.getpid()}-{uuid4().hex[:4]}",
            socket.gethostname(),
            os.getpid(),
            fleet.version,
            tuple(fleet.programs),
            concurrency,
            fleet.pick_up_after,
        )
        self.done = 0
        """The number of jobs that this worker has ended, successfully or not."""
        self._concurrency = concurrency
        self._grace = grace
        self._any_version = any_version
        self._queue = fleet.queue
        self._running: dict[str, _Running] = {}
        self._isolation = Isolation()
        self._stop = StopRequest()
        self._freed = asyncio.Event()
        self._has_begun = False
        self._is_reachable = True
        self._reached_since = 0.0
        self._heard_at = 0.0
        self._is_claiming = False
        self._unknown: dict[str, int] = {}
        self._clock_offset = 0.0
        self._retries_until = 0.0
        """The end of the longest delay before a job is tried again, by `uptime`."""
        self._monitor = None if listen is None else _monitor(self, listen)
        self._gate = FleetGate(fleet.limits, fleet.budget, fleet.store, self.card.name, self._clock)
        self._stuck: frozenset[str] = frozenset()
        self._was_spent = False

    @property
    def running(self) -> int:
        """The number of jobs under way."""
        return len(self._running)

    @property
    def problem(self) -> str:
        """Why the worker claims no jobs; empty if it claims them, or is only at its `concurrency`."""
        if self._stop.requested.is_set():
            return "The worker is stopping."
        if not self._has_begun:
            return "The worker has not reached the queue yet."
        if not self._is_reachable:
            return "The queue can't be reached."
        return "The daily budget is spent." if self._is_spent else ""

    @property
    def _is_spent(self) -> bool:
        return self._gate.spending is not None and self._gate.spending.state.is_reached

    def stop(self) -> None:
        """First call: stop gracefully. Second: stop immediately."""
        self._stop.escalate()

    async def measure(self) -> None:
        """Measure the worker and its queue for the metrics; an unreachable queue is left out."""
        gauges: _telemetry.Gauges = {"redraft.queue_up": [(0, {})]}
        with suppress(StoreError):
            gauges = await fleet_gauges(self.fleet)
        _telemetry.gauges = {
            **gauges,
            "redraft.worker_running": [(self.running, {})],
            "redraft.worker_concurrency": [(self._concurrency, {})],
        }

    async def run(self, jobs: int | None = None, *, until_idle: bool = False) -> int:
        """Work until `stop` is called, `jobs` jobs were claimed, or, with `until_idle`, none is due.

        It waits for the jobs that it tries again itself. Returns the number of ended jobs. SIGTERM and SIGINT
        call `stop`, and so does the first SIGHUP. A queue that can't be reached is waited for, even at the
        start. Raises `ConfigError` for a queue that can't be used.
        """
        if jobs is not None:
            check_count("jobs", jobs, 0)
        async with AsyncExitStack() as stack:
            if self._monitor is not None:
                await stack.enter_async_context(self._monitor.serving())
            return await self._run(jobs, until_idle=until_idle)

    async def _run(self, jobs: int | None, *, until_idle: bool) -> int:
        try:
            with self._stop.on_signals():
                if await self._begin_beating():
                    await self._work_beating(jobs, until_idle=until_idle)
        finally:
            await self._gate.close()
            _telemetry.gauges = {}
            await self._queue.leave()
        return self.done

    async def _begin_beating(self) -> bool:
        """Register and send the first heartbeat, once the queue can be reached; False if stopped first."""
        for act in (self._queue.open, lambda: self._queue.register(self.card), self._beat):
            self._heard_at = uptime()
            while True:
                if self._stop.requested.is_set():
                    return False
                try:
                    await act()
                except StoreSettingsError:
                    raise
                except StoreError as error:
                    self._unreachable(error)
                    await first_of(asyncio.sleep(OUTAGE_WAIT), self._stop.requested.wait())
                else:
                    break
        self._has_begun = True
        return True

    async def _work_beating(self, jobs: int | None, *, until_idle: bool) -> None:
        every = self.fleet.pick_up_after / 4
        beating = [
            asyncio.create_task(self._repeat(self._pulse, every), name="redraft-heart"),
            asyncio.create_task(self._repeat(self._submit_due, TICK), name="redraft-scheduler"),
        ]
        if _telemetry.current is not None:
            measuring = self._repeat(self.measure, MEASURE_EVERY)
            beating.append(asyncio.create_task(measuring, name="redraft-measuring"))
        for task in beating:  # a worker without heartbeats must stop
            task.add_done_callback(lambda _ended: self._stop.requested.set())
        try:
            await self._work(jobs, until_idle=until_idle)
            await self._finish_running()
            for task in beating:
                if task.done():
                    task.result()
        finally:
            # All of this can be repeated, so the tasks need no time to clean up.
            await end_tasks(beating, within=1.0)

    async def _work(self, jobs: int | None, *, until_idle: bool) -> None:
        begun = 0
        while not self._stop.requested.is_set() and (jobs is None or begun < jobs):
            self._freed.clear()
            if len(self._running) >= self._concurrency or self._isolation.suspects:
                await first_of(self._freed.wait(), self._stop.requested.wait())
                continue
            if self._is_spent:
                if until_idle and not self._running:
                    return
                await first_of(asyncio.sleep(POLL), self._stop.requested.wait())
                continue
            try:
                self._is_claiming = True
                claiming = self._queue.claim(any_version=self._any_version)
                job = await unless(self._stop.urgent, claiming, within=1.0)
                self._reached()
            except StoreError as error:
                self._unreachable(error)
                self._is_claiming = False  # the claim may have succeeded in the queue
                await first_of(asyncio.sleep(OUTAGE_WAIT), self._stop.requested.wait())
                continue
            self._is_claiming = False
            if job is not None:
                self._begin(job)
                begun += 1
            elif until_idle and not self._running and uptime() > self._retries_until:
                return
            else:
                await first_of(self._queue.wait(POLL), self._freed.wait(), self._stop.requested.wait())

    async def _finish_running(self) -> None:
        """Wait for the jobs under way, for at most `grace` seconds, and hand back the others."""
        tasks = [running.task for running in self._running.values()]
        if not tasks:
            return
        await first_of(asyncio.wait(tasks), self._stop.requested.wait())
        await first_of(asyncio.wait(tasks), self._stop.urgent.wait(), asyncio.sleep(self._grace))
        for running in self._running.values():
            running.cancel(STOPPED)
        await asyncio.wait(tasks, timeout=HAND_BACK_WAIT)
        self._stop.urgent.set()  # other workers pick up the jobs that are not handed back by now
        await end_tasks(tasks)

    def _begin(self, job: FleetJob) -> None:
        task = asyncio.create_task(self._run_job(job), name=f"redraft-job-{job.run_id}")
        running = self._running[job.run_id] = _Running(job, task)

        def end(task: asyncio.Task[None]) -> None:
            if self._running.get(job.run_id) is running:
                del self._running[job.run_id]
            self._freed.set()
            if not task.cancelled() and (error := task.exception()) is not None:
                logger.error("The job %s could not be reported: %s", job.run_id, error)

        task.add_done_callback(end)

    async def _run_job(self, job: FleetJob) -> None:
        """Run a job, and report its end to the queue."""
        running = self._running[job.run_id]
        outcome, is_of_store = JobOutcome(), False
        try:
            outcome = await self._claimed_outcome(running)
        except asyncio.CancelledError as error:
            outcome = failure(error)  # of the program itself, unless the task was cancelled: see below
        except ClaimLostError as error:
            logger.info("%s", error)
            return
        except StoreError as error:  # finished steps are in the journal
            is_passing = not isinstance(error, ChangedRunError | DamagedRecordError)
            outcome = JobOutcome(named_error(error), may_pass=is_passing)
            is_of_store = True
        running.is_ending = True
        if running.task.cancelling():
            await self._give_up(running)
            return
        if running.claim is not None and running.claim.is_poison:
            await self._report(running, "poisoned", POISONED.format(running.claim.deaths))
            self.done += 1
            return
        if outcome.is_busy or outcome.is_waiting:
            logger.info("The job %s waits: %s", job.run_id, outcome.error)
            delay = BUSY_DELAY if outcome.is_busy else ANSWER_DELAY
            await self._hand_back(running, delay=delay, any_version=outcome.is_busy)
            return
        tries, most = (job.store_tries, STORE_TRIES) if is_of_store else (job.tries, self.fleet.tries)
        if outcome.error and outcome.may_pass and tries < most:
            delay = min(FIRST_DELAY * 2 ** min(tries, MOST_DOUBLINGS), LONGEST_DELAY)
            counted = {"store_tries": tries + 1} if is_of_store else {"tries": tries + 1}
            running.job = replace(job, **counted)
            logger.warning("The job %s is tried again in %g s: %s", job.run_id, delay, outcome.error)
            count("redraft.retries", program=job.program)
            self._retries_until = max(self._retries_until, uptime() + delay + POLL)
            await self._hand_back(running, delay=delay, error=outcome.error)
            return
        await self._report(running, "failed" if outcome.error else "finished", outcome.error, outcome.reason)
        self.done += 1

    async def _claimed_outcome(self, running: _Running) -> JobOutcome:
        """Take the claim and run the job; alone if two workers in a row have died in it."""
        job = running.job
        async with self._isolation.together():
            running.claim = claim = await Claim.take(
                self.fleet.store,
                job.run_id,
                job.claim,
                self.card.name,
                valid_for=self.fleet.pick_up_after / 2,
            )
            if claim.is_poison:
                return JobOutcome()
            if not claim.is_suspect:
                return await self._outcome(running)
        async with self._isolation.alone():
            logger.warning("The job %s runs by itself: its worker died %d times.", job.run_id, claim.deaths)
            await claim.run_alone()
            return await self._outcome(running)

    async def _outcome(self, running: _Running) -> JobOutcome:
        outside, outer_gate = claim_under_way.set(running.claim), call_gate.set(self._gate)
        try:
            program, job = self.fleet.programs[running.job.program], running.job
            if self.fleet.budget is not None:
                program.check(job.task, priced=True)
            return await traced(
                "job", job.program, job.run_id, lambda: program.run(job.task, job.run_id), job.trace
            )
        except (ClaimLostError, StoreError, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 (a program may raise anything; the job says what)
            return failure(error)
        finally:
            claim_under_way.reset(outside)
            call_gate.reset(outer_gate)

    async def _give_up(self, running: _Running) -> None:
        """End a job whose task was cancelled: by a person, by another worker's claim, or by `stop`."""
        if running.is_lost:
            return
        if running.is_cancelled:
            await self._report(running, "cancelled")
        else:
            await self._hand_back(running)

    async def _hand_back(
        self, running: _Running, *, delay: float = 0.0, error: str = "", any_version: bool = False
    ) -> None:
        async def hand_back() -> None:
            if running.claim is not None:
                await running.claim.release()
            await self._queue.hand_back(running.job, delay=delay, error=error, any_version=any_version)

        await self._report_until_stored(running.job, hand_back)

    async def _report(self, running: _Running, state: JobState, error: str = "", reason: str = "") -> None:
        async def finish() -> None:
            if running.claim is not None and state != "finished":  # the job may be retried
                await running.claim.release(acquit=True)
            if await self._queue.finish(running.job, state, error):
                program = running.job.program
                count("redraft.ended_jobs", program=program, state=state, reason=reason)
                count("redraft.run_seconds", uptime() - running.claimed_at, program=program)

        await self._report_until_stored(running.job, finish)

    async def _report_until_stored(self, job: FleetJob, report: Callable[[], Awaitable[None]]) -> None:
        """Repeat a report to the queue until it is stored, unless the worker stops immediately."""
        while True:
            try:
                await report()
            except StoreError as error:
                self._unreachable(error)
                if self._stop.urgent.is_set():
                    logger.warning(
                        "The end of the job %s could not be reported; another worker picks it up.", job.run_id
                    )
                    return
                await asyncio.sleep(OUTAGE_WAIT)
            else:
                return

    async def _repeat(self, act: Callable[[], Awaitable[None]], every: float) -> None:
        while True:
            try:
                await act()
            except StoreError as error:
                self._unreachable(error)
                await asyncio.sleep(min(every, OUTAGE_WAIT))
            else:
                await asyncio.sleep(every)

    async def _pulse(self) -> None:
        # Others are judged right after a heartbeat: a reaper that had to wait would misjudge them.
        await self._beat()
        if not self._is_reachable or uptime() - self._reached_since < self.fleet.pick_up_after:
            return  # during an outage, all workers were silent
        reaped = await self._queue.reap(self.fleet.pick_up_after)
        count("redraft.pickups", len(reaped))
        for run_id in reaped:
            logger.warning("The worker of the job %s is gone; another one picks it up.", run_id)

    async def _beat(self) -> None:
        """Send a heartbeat, and cancel the jobs that the queue reports as cancelled or lost."""
        before, sent_at = dict(self._running), uptime()
        heartbeat = await self._queue.heartbeat()
        self._reached()
        now = uptime()
        offset = heartbeat.now.timestamp() - (sent_at + now) / 2
        # Calls may have waited for the queue, or its clock was set: other workers seem silent then.
        changes = now - self._heard_at, abs(offset - (self._clock_offset or offset))
        if max(changes) > self.fleet.pick_up_after / 2:
            self._reached_since = now
        self._heard_at, self._clock_offset = now, offset
        for run_id, running in before.items():
            if running.is_ending or running.task.done():
                continue
            if heartbeat.held.get(run_id) != running.job.claim:
                running.is_lost = True
                running.cancel()
            elif run_id in heartbeat.cancelling:
                running.is_cancelled = True
                running.cancel()
            elif running.claim is not None:
                running.claim.renew()
        await self._return_unknown(heartbeat)
        await self._gate.renew()
        if self._gate.spending is not None:
            self._hand_back_stuck(self._gate.spending)

    async def _return_unknown(self, heartbeat: Heartbeat) -> None:
        """Hand back jobs that this worker holds but does not run, since the reply to its claim was lost.

        They must be held at two heartbeats in a row, since a job may end during a heartbeat.
        """
        before, self._unknown = self._unknown, {}
        if self._is_claiming:
            return
        unknown = {run_id: claim for run_id, claim in heartbeat.held.items() if run_id not in self._running}
        for run_id, claim in unknown.items():
            job = await self._queue.get(run_id) if before.get(run_id) == claim else None
            if job is not None and job.claim == claim:
                logger.warning(
                    "The answer to the claim of the job %s was lost; the job is handed back.", run_id
                )
                await self._queue.hand_back(job, any_version=not job.version)
        self._unknown = unknown

    def _hand_back_stuck(self, spending: SharedSpending) -> None:
        """Hand back the runs that wait for money, once their last replies are recorded."""
        was_spent, self._was_spent = self._was_spent, self._is_spent
        next_day = f"{spending.budget.next_day(self._clock()):%Y-%m-%d %H:%M %Z}"
        spent = f"The daily budget of {render_usd(spending.budget.usd)} is spent"
        if self._is_spent and not was_spent:
            logger.warning("%s; runs wait until %s.", spent, next_day)
        stuck = spending.stuck()
        for run_id in stuck & self._stuck:  # stuck since the last heartbeat, so the journal has all replies
            if running := self._running.get(run_id):
                running.cancel(f"{spent}; the run goes on from {next_day}.")
        self._stuck = stuck

    async def _submit_due(self) -> None:
        """Submit the due jobs of the schedules, by the clock of the queue."""
        late = timedelta(seconds=LATE)
        for schedule in self.fleet.schedules:
            now = datetime.fromtimestamp(self._clock(), UTC)
            program = self.fleet.programs[self.fleet.name_of(schedule.program)]
            try:
                await submit_due(
                    schedule,
                    program.name,
                    self._queue,
                    self.fleet.store,
                    now,
                    late,
                    skip_while_queued=program.runs_alone,
                )
            except DamagedRecordError as error:
                warn_once(f"{error} Until then, the schedule submits no jobs.")

    def _clock(self) -> float:
        """The time of the queue, by its clock at the last heartbeat."""
        return uptime() + self._clock_offset

    def _reached(self) -> None:
        if not self._is_reachable:
            self._is_reachable, self._reached_since = True, uptime()
            logger.warning("The queue can be reached again.")

    def _unreachable(self, error: StoreError) -> None:
        if self._is_reachable:
            self._is_reachable = False
            logger.warning("The queue can't be reached; this worker waits for it: %s", error)


def _monitor(worker: FleetWorker, listen: str) -> Monitor:
    from redraft.fleet.monitor import Monitor  # noqa: PLC0415 (needs an extra)

    return Monitor(worker, listen)
