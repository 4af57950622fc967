"""Schedules: jobs that workers submit at fixed times, each exactly once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from redraft._clock import is_future
from redraft._hints import keyword_hints
from redraft.cycles.triggers import next_time
from redraft.errors import ConfigError
from redraft.fleet.programs import Runnable
from redraft.fleet.queue import FleetJob, check_priority
from redraft.loop.journal import check_run_id
from redraft.redact.log import logger
from redraft.stores.base import Record, reading

if TYPE_CHECKING:
    from redraft.fleet.queue import Queue
    from redraft.stores.base import Store

SCHEDULE = "schedule"
"""The kind of the records of schedules, whose keys are the names."""
MOST_MISSED = 100
"""Catch up on at most this many missed times, the latest ones."""
LONGEST_NAME = 100


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Schedule:
    """Submit a task at the times of a cron expression.

    Each time is a job, whose id is the name and the time: `nightly-20261123T0200Z`. A new schedule begins
    with its next time.
    """

    name: str
    cron: str
    """An expression as in the `cron` trigger of an agent file."""
    program: Runnable | str
    task: Any = None
    zone: str = "UTC"
    """The time zone of the expression, a name of the IANA database."""
    missed: Literal["one", "all", "none"] = "one"
    """The times at which no worker ran become `one` job, `all` of them (the latest 100) or `none`."""
    priority: int = 0

    def __post_init__(self) -> None:
        check_run_id(self.name)
        if len(self.name) > LONGEST_NAME:
            raise ConfigError(
                f"The name of a schedule may have at most {LONGEST_NAME} characters, got {self.name!r}."
            )
        if self.missed not in ("one", "all", "none"):
            raise ConfigError(
                f"Schedule {self.name!r}: missed must be 'one', 'all' or 'none', got {self.missed!r}."
            )
        try:
            check_priority(self.priority)
            self.next_after(datetime.now(UTC))
        except ConfigError as error:
            raise ConfigError(f"Schedule {self.name!r}: {error}") from error

    def next_after(self, moment: datetime) -> datetime:
        """The next time after a moment, in UTC."""
        return next_time(self.cron, self.zone, moment)

    def due(self, since: datetime, now: datetime, late: timedelta) -> list[datetime]:
        """The times after `since` whose jobs are to be submitted now.

        A time that is more than `late` ago counts as missed.
        """
        # After months without a worker, only the latest times matter.
        times: list[datetime] = []
        window = timedelta(hours=1)
        start = now
        while start > since and len(times) < MOST_MISSED:
            start, window = max(since, now - window), window * 8
            times = []
            at = self.next_after(start)
            while at <= now:
                times.append(at)
                at = self.next_after(at)
        del times[:-MOST_MISSED]
        if self.missed == "all":
            return times
        if self.missed == "none":
            return [time for time in times if now - time <= late]
        return times[-1:]

    def job(self, at: datetime, program: str) -> FleetJob:
        """The job of a time."""
        form = "%Y%m%dT%H%MZ" if at.second == 0 else "%Y%m%dT%H%M%SZ"
        return FleetJob(f"{self.name}-{at:{form}}", program, self.task, self.priority)


async def submit_due(
    schedule: Schedule,
    program: str,
    queue: Queue,
    store: Store,
    now: datetime,
    late: timedelta,
    *,
    skip_while_queued: bool = False,
) -> list[str]:
    """Submit the jobs of a schedule that are due; return their ids.

    With `skip_while_queued`, a time gets no job while the job of an earlier time is still queued. Any number
    of workers may do this at the same time, and die halfway: the id of a job follows from its time, and the
    last time is recorded after the submission.
    """
    record, is_new = await store.put_if_absent(Record(SCHEDULE, schedule.name, {"until": now.isoformat()}))
    if is_new:
        return []
    with reading(record):
        since = datetime.fromisoformat(record.data["until"])
        is_ahead = is_future(since, now)
    if is_ahead:  # the clock was set back
        await store.replace(replace(record, data={**record.data, "until": now.isoformat()}))
        return []
    if schedule.next_after(since) > now:
        return []
    ids: list[str] = []
    latest = str(record.data.get("latest", ""))
    for at in schedule.due(since, now, late):
        before = await queue.get(latest) if skip_while_queued and latest else None
        if before is not None and before.state == "queued":
            logger.info("The schedule %s skips a time: its job %s is still waiting.", schedule.name, latest)
            break
        job, was_added = await queue.submit(schedule.job(at, program))
        latest = job.run_id
        if was_added:
            ids.append(job.run_id)
    await store.replace(replace(record, data={"until": now.isoformat(), "latest": latest}))
    return ids
