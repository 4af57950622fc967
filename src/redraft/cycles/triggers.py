"""Triggers: wait for the events that start an agent's cycles: a time, a message, a webhook."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias
from zoneinfo import ZoneInfo

from redraft._clock import is_future, uptime
from redraft._texts import short_repr
from redraft.cycles.mail import POLL_SECONDS, mail_signals, wait_for_mail
from redraft.cycles.spec import (
    CronTrigger,
    IntervalTrigger,
    MessageTrigger,
    Trigger,
    WebhookTrigger,
)
from redraft.errors import ConfigError, MissingExtraError

RETRIGGER_AFTER = 60.0
"""Seconds after which a message starts another cycle if the previous one failed and did not take it."""
MAX_WAIT = 30.0
"""Seconds between two checks of the clocks: the time of day may be set, and the machine may sleep."""

NewestMessage: TypeAlias = Callable[[str | None], Awaitable[str | None]]
"""Returns the id of the newest message of a topic (None: any topic) that no cycle has taken yet."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Triggers:
    """The triggers of an agent. All that fire during a cycle start a single cycle, when it has ended.

    An interval fires immediately, then at fixed times. A message or webhook fires while its message waits to
    be taken. A cron expression fires at its times, and for a time that has passed after `since`. If all
    triggers are manual, every cycle starts immediately.
    """

    agent: str
    triggers: Sequence[Trigger]
    newest_message: NewestMessage
    clock: Callable[[], float] = uptime
    """A clock in seconds, for intervals."""
    now: Callable[[], datetime] = _utc_now
    """Returns the current time in UTC."""
    since: datetime | None = None
    """The start of the last cycle, if any."""
    _watches: list[tuple[str, Watch]] | None = None

    async def next(self) -> str:
        """Wait until a trigger fires; return its type, such as `interval`."""
        if self._watches is None:
            watches = ((trigger.type, self._watch(trigger)) for trigger in self.triggers)
            self._watches = [(kind, watch) for kind, watch in watches if watch is not None]
        if not self._watches:
            return "manual"
        while True:
            signals = mail_signals(self.agent)
            fired = [kind for kind, watch in self._watches if await watch.fires()]
            if fired:
                return fired[0]
            wait = min(watch.seconds() for _, watch in self._watches)
            await wait_for_mail(self.agent, signals, max(0.0, wait))

    def _watch(self, trigger: Trigger) -> Watch | None:
        match trigger:
            case IntervalTrigger():
                return IntervalWatch(trigger.interval_ms / 1000, self.clock)
            case CronTrigger():
                return CronWatch(trigger, self.now, self.since)
            case MessageTrigger() | WebhookTrigger():
                return MessageWatch(trigger.topic, self.newest_message, self.clock)
            case _:
                return None


class IntervalWatch:
    """Fires immediately, then at fixed times."""

    def __init__(self, interval: float, clock: Callable[[], float]) -> None:
        self._interval = interval
        self._clock = clock
        self._next_time = clock()

    async def fires(self) -> bool:
        """Whether a time has passed since the last call."""
        late = self._clock() - self._next_time
        if late < 0:
            return False
        self._next_time += self._interval * (late // self._interval + 1)
        return True

    def seconds(self) -> float:
        """Seconds until the next time, or until the next check of the clock."""
        return min(MAX_WAIT, self._next_time - self._clock())


class CronWatch:
    """Fires at the times of a cron expression, by the time of day."""

    def __init__(self, trigger: CronTrigger, now: Callable[[], datetime], since: datetime | None) -> None:
        self._trigger = trigger
        self._now = now
        self._last = since or now()
        self._next_time = self._next()

    async def fires(self) -> bool:
        """Whether a time has passed since the last call."""
        now = self._now()
        if is_future(self._last, now):  # the clock was set back
            self._last = now
            self._next_time = self._next()
        if now < self._next_time:
            return False
        self._last = now
        self._next_time = self._next()
        return True

    def seconds(self) -> float:
        """Seconds until the next time, or until the next check of the time of day."""
        return min(MAX_WAIT, (self._next_time - self._now()).total_seconds())

    def _next(self) -> datetime:
        return next_time(self._trigger.expression, self._trigger.timezone, self._last)


CRON_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
"""Names that can replace the fields of a cron expression, in lower case, with those fields."""
MAX_EXPRESSION = 200
"""The maximum length of a cron expression, in characters."""
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def next_time(expression: str, timezone: str, after: datetime) -> datetime:
    """The first time of a cron expression after a moment, in UTC.

    An expression is a name in `CRON_NICKNAMES`, or has five fields as in Debian's cron, or six with the
    seconds first. If neither minute nor hour begins with `*`, its times are fixed: when clocks are put
    forward, a skipped time moves to the end of the gap; when they are put back, only the first of two
    repeated times counts. Other expressions follow the clock: they match nothing in the gap, and both
    repetitions.

    Raises `ConfigError` for an unknown time zone, and for an expression that is invalid or has no such time.
    """
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 (loaded only for schedules)
    except ImportError as error:
        raise MissingExtraError("A cron trigger", "cycles") from error

    try:
        zone = ZoneInfo(timezone)
    except (TypeError, ValueError, OSError, KeyError) as error:
        raise ConfigError(
            f"Unknown time zone {timezone!r}; expected a name from the IANA database, such as "
            "'Europe/Vienna'."
        ) from error
    if not isinstance(expression, str) or len(expression) > MAX_EXPRESSION:  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
        raise ConfigError(
            f"A cron expression must be a text of at most {MAX_EXPRESSION} characters, got "
            f"{short_repr(expression)}."
        )
    fields = CRON_NICKNAMES.get(expression.strip().lower(), expression)
    is_fixed = not any(field.startswith("*") for field in fields.split()[-5:-3])
    # CronSim computes in wall-clock time, in which every day has 24 hours. Between two changes of the
    # offset from UTC, that differs from UTC by a constant.
    start = after.astimezone(UTC).replace(microsecond=0)
    offset = _utc_offset(start, zone)
    while True:
        try:
            wall = next(CronSim(fields, (start + offset).replace(tzinfo=None)))
        except CronSimError as error:
            raise ConfigError(
                f"Invalid cron expression {expression!r} ({str(error).lower()}); expected minute, hour, day "
                "of month, month and day of week, such as '30 7 * * mon-fri', or a name such as '@daily'."
            ) from error
        except StopIteration:
            raise ConfigError(
                f"The cron expression {expression!r} matches no time in the next 50 years."
            ) from None
        match = wall.replace(tzinfo=UTC) - offset
        change = _offset_change(zone, offset, start, match)
        if change is None:
            if not is_fixed or not match.astimezone(zone).fold:
                return match
            start = match
            continue
        next_offset = _utc_offset(change, zone)
        if is_fixed and match - change < next_offset - offset:  # the gap skips it
            return change
        start, offset = change - _SECOND, next_offset


def _utc_offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def _offset_change(zone: ZoneInfo, offset: timedelta, start: datetime, end: datetime) -> datetime | None:
    """The first moment after `start`, up to `end`, that has another offset from UTC."""
    while start < end:
        last = min(start + _DAY, end)
        if _utc_offset(last, zone) != offset:
            while last - start > _SECOND:
                middle = start + (last - start) // (2 * _SECOND) * _SECOND
                start, last = (middle, last) if _utc_offset(middle, zone) == offset else (start, middle)
            return last
        start = last
    return None


class MessageWatch:
    """Fires while a message waits to be taken."""

    def __init__(self, topic: str | None, newest: NewestMessage, clock: Callable[[], float]) -> None:
        self._topic = topic
        self._newest = newest
        self._clock = clock
        self._last, self._fired_at = "", 0.0

    async def fires(self) -> bool:
        """Whether there is a new message, or the last cycle for this message was a while ago."""
        newest, now = await self._newest(self._topic), self._clock()
        if newest is None or (newest == self._last and now - self._fired_at < RETRIGGER_AFTER):
            return False
        self._last, self._fired_at = newest, now
        return True

    def seconds(self) -> float:
        """Polling interval for messages from other processes."""
        return POLL_SECONDS


Watch: TypeAlias = IntervalWatch | CronWatch | MessageWatch
"""A trigger being watched: `fires` is whether it fires now, `seconds` the time until the next check."""
