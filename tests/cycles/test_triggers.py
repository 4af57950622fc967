import asyncio
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest

from redraft.cycles.spec import (
    CronTrigger,
    IntervalTrigger,
    ManualTrigger,
    MessageTrigger,
)
from redraft.cycles.triggers import RETRIGGER_AFTER, Triggers, next_time
from redraft.errors import AgentFileError, ConfigError
from support.monitor import MONITOR, Clock, monitor, run


async def none(topic):
    return None


async def fires(triggers, seconds=0.05):
    """The trigger that fires soon, or None."""
    try:
        return await asyncio.wait_for(triggers.next(), seconds)
    except TimeoutError:
        return None


async def test_intervals_that_pass_during_a_cycle_count_as_one():
    now = [100.0]
    triggers = Triggers(
        "a", [IntervalTrigger(type="interval", interval_ms=1_000)], none, clock=lambda: now[0]
    )
    fired = [await fires(triggers)]
    for busy in (0.5, 0.5, 3.7, 0.2, 0.1):
        now[0] += busy
        fired.append(await fires(triggers))
    assert fired == ["interval", None, "interval", "interval", None, "interval"]


async def test_an_interval_that_ends_while_the_machine_sleeps_fires_when_it_wakes(monkeypatch):
    monkeypatch.setattr("redraft.cycles.triggers.MAX_WAIT", 0.01)
    now = [100.0]
    hourly = [IntervalTrigger(type="interval", interval_ms=3_600_000)]
    triggers = Triggers("a", hourly, none, clock=lambda: now[0])
    fired = [await fires(triggers)]
    next_one = asyncio.ensure_future(fires(triggers, 10))
    await asyncio.sleep(0.02)
    now[0] += 3_600  # the timers of the event loop did not run meanwhile
    assert [*fired, await next_one] == ["interval", "interval"]


async def test_triggers_that_fire_together_count_as_one():
    now = [100.0]
    intervals = [IntervalTrigger(type="interval", interval_ms=ms) for ms in (1_000, 2_000)]
    triggers = Triggers("a", intervals, none, clock=lambda: now[0])
    assert [await fires(triggers), await fires(triggers)] == ["interval", None]


CRON = [
    ("30 7 * * mon-fri", "UTC", "2026-11-20T08:00", "2026-11-23T07:30"),
    ("30 7 * * mon-fri", "Europe/Vienna", "2026-11-20T08:00", "2026-11-23T06:30"),
    ("0 0 1 * *", "America/New_York", "2026-11-20T08:00", "2026-12-01T05:00"),
    ("30 2 * * *", "Europe/Vienna", "2026-03-28T12:00", "2026-03-29T01:00"),  # 2:30 does not exist
    ("30 2 * * *", "Europe/Vienna", "2026-10-25T00:30", "2026-10-26T01:30"),  # 2:30 comes again
    ("30 2 * * *", "Europe/Vienna", "2026-10-25T01:10", "2026-10-26T01:30"),  # during the repetition
    ("30 * * * *", "Europe/Vienna", "2026-10-25T00:30", "2026-10-25T01:30"),
    ("*/30 2 * * *", "Europe/Vienna", "2026-03-29T00:30", "2026-03-30T00:00"),
    ("*/15 * * * * *", "UTC", "2026-11-20T08:00", "2026-11-20T08:00:15"),
    ("0 12 * * 5L", "UTC", "2026-11-20T08:00", "2026-11-27T12:00"),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), CRON)
def test_times_of_cron_expressions(expression, zone, after, expected):
    after, expected = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (after, expected))
    assert next_time(expression, zone, after) == expected


CLOCK_CHANGES = {
    "Europe/Vienna": ("2026-03-29", "2026-10-25"),
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Australia/Lord_Howe": ("2026-04-05", "2026-10-04"),  # by half an hour
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),  # at midnight
}
ALL_MINUTES, ALL_HOURS = range(60), range(24)
FIXED_TIMES = {
    "30 2 * * *": ([30], [2]),
    "0 0 * * *": ([0], [0]),
    "@daily": ([0], [0]),
    "15,45 1 * * *": ([15, 45], [1]),
    "5-10 1-3 * * *": (range(5, 11), [1, 2, 3]),
    "10/20 0-23/2 * * *": ([10, 30, 50], range(0, 24, 2)),
    "0 59 23 * * *": ([59], [23]),
    "0 20 2 * * *": ([20], [2]),
}
"""Expressions with their minutes and hours; the hour of a change counts once."""
TIMES_BY_THE_CLOCK = {
    "* * * * *": (ALL_MINUTES, ALL_HOURS),
    "0 * * * *": ([0], ALL_HOURS),
    "@hourly": ([0], ALL_HOURS),
    "45 * * * *": ([45], ALL_HOURS),
    "*/15 2 * * *": ([0, 15, 30, 45], [2]),
    "*/15 0 * * *": ([0, 15, 30, 45], [0]),
    "* 1,3 * * *": (ALL_MINUTES, [1, 3]),
    "30 */2 * * *": ([30], range(0, 24, 2)),
}
"""Expressions that match whatever the clock shows."""
MOMENTS = 3_072 // (len(CLOCK_CHANGES) * 2 * (len(FIXED_TIMES) + len(TIMES_BY_THE_CLOCK)))


@pytest.mark.parametrize("name", CLOCK_CHANGES)
def test_times_around_changes_of_the_clock_equal_a_search_through_all_minutes(name):
    zone, choose = ZoneInfo(name), Random(name)  # noqa: S311 (test data)
    for date in CLOCK_CHANGES[name]:
        begin = datetime.fromisoformat(date).replace(tzinfo=UTC) - timedelta(days=2)
        minutes = [begin + timedelta(minutes=number) for number in range(5 * 24 * 60)]
        clock = {minute: minute.astimezone(zone) for minute in minutes}
        walls = [shown.replace(tzinfo=None) for shown in clock.values()]
        steps = [later - earlier for earlier, later in pairwise(walls)]
        change = next(number for number, step in enumerate(steps, 1) if step != timedelta(minutes=1))
        first = dict(zip(reversed(walls), reversed(minutes), strict=True))
        times: dict[str, list[datetime]] = {}
        for expression, (of_hour, of_day) in FIXED_TIMES.items():
            days = [walls[0].replace(hour=0, minute=0) + timedelta(days=number) for number in (1, 2, 3, 4)]
            times[expression] = sorted(
                # What the gap skips becomes the first minute after it.
                first.get(day.replace(hour=hour, minute=minute)) or minutes[change]
                for day in days
                for hour in of_day
                for minute in of_hour
            )
        for expression, (of_hour, of_day) in TIMES_BY_THE_CLOCK.items():
            times[expression] = [
                minute for minute, shown in clock.items() if shown.hour in of_day and shown.minute in of_hour
            ]
        for expression, expected in times.items():
            for minute in choose.sample(minutes[change - 480 : change + 480], MOMENTS):
                after = minute + timedelta(seconds=choose.choice([0, 0, 1, 59.5]))
                found = next_time(expression, name, after)
                assert found == expected[bisect_right(expected, after)], (expression, after)


CRON_FORMS = [
    ("0 9 1 * *", ["2026-02-01", "2026-03-01", "2026-04-01"]),
    ("0 9 13 * fri", ["2026-01-02", "2026-01-09", "2026-01-13"]),  # the 13th, and each Friday
    ("0 9 */13 * fri", ["2026-02-27", "2026-03-27", "2026-05-01"]),  # begins with a star: both must match
    ("0 9 l * *", ["2026-01-31", "2026-02-28", "2026-03-31"]),
    ("0 9 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31"]),
    ("0 9 * * 5L", ["2026-01-30", "2026-02-27", "2026-03-27"]),
    ("0 9 * * fri#2", ["2026-01-09", "2026-02-13", "2026-03-13"]),
    ("0 9 1 jan-Mar/2 *", ["2026-03-01", "2027-01-01", "2027-03-01"]),
    ("0 9 10-20/5,28 2 *", ["2026-02-10", "2026-02-15", "2026-02-20"]),
    ("0 9 * * 0", ["2026-01-04", "2026-01-11", "2026-01-18"]),
    ("0 9 * * 7", ["2026-01-04", "2026-01-11", "2026-01-18"]),
    ("0 9 * * fri-7", ["2026-01-02", "2026-01-03", "2026-01-04"]),
    ("0 9 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
    ("@weekly", ["2026-01-04", "2026-01-11", "2026-01-18"]),
    ("@Monthly", ["2026-02-01", "2026-03-01", "2026-04-01"]),
    ("@yearly", ["2027-01-01", "2028-01-01", "2029-01-01"]),
]


@pytest.mark.parametrize(("expression", "expected"), CRON_FORMS)
def test_forms_of_cron_expressions(expression, expected):
    days, moment = [], datetime(2026, 1, 1, 12, tzinfo=UTC)
    for _ in expected:
        moment = next_time(expression, "UTC", moment)
        days.append(f"{moment:%Y-%m-%d}")
    assert days == expected


REFUSED_EXPRESSIONS = [
    ("@reboot", r"Invalid cron expression '@reboot' \(wrong number of fields\)"),
    ("0 9 * * * * 2026", "wrong number of fields"),
    ("", "wrong number of fields"),
    ("0 24 * * *", "bad hour"),
    ("*/0 * * * *", "bad minute"),
    ("0 9 ? * mon", "bad day-of-month"),
    ("0 9 15W * *", "bad day-of-month"),
    ("0 9 L-3 * *", "bad day-of-month"),
    ("0 9 31 jun *", "bad day-of-month"),
    ("0 9 30 2 *", "bad day-of-month"),
    ("0 9 * 13 *", "bad month"),
    ("0 9 * * L", "bad day-of-week"),
    ("0 9 * * fri-mon", "bad day-of-week"),
    ("0 9 * * monday", "bad day-of-week"),
    ("0 9 * * fri#6", "bad day-of-week"),
    ("0 9 * * mon,", "bad day-of-week"),
    ("0 9 * * ٣", "bad day-of-week"),
    ("0 " + "9" * 5_000 + " * * *", "at most 200 characters"),
    (None, "at most 200 characters, got None"),
]


@pytest.mark.parametrize(("expression", "error"), REFUSED_EXPRESSIONS)
def test_other_cron_expressions_are_refused(expression, error):
    with pytest.raises(ConfigError, match=error):
        next_time(expression, "UTC", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("zone", ["Vienna", "../etc", "", "/etc/localtime", None])
def test_unknown_time_zones_are_refused(zone):
    with pytest.raises(ConfigError, match="Unknown time zone"):
        next_time("0 9 * * *", zone, datetime(2026, 1, 1, tzinfo=UTC))


async def test_a_cron_trigger_fires_at_its_times_however_the_clock_is_set():
    clock = Clock()  # noon
    triggers = Triggers(
        "a", [CronTrigger(type="cron", expression="0 * * * *")], none, now=clock, since=clock.now
    )
    fired = [await fires(triggers)]
    for time in ({"minutes": 59}, {"minutes": 1}, {"minutes": 1}, {"hours": 5}, {}):
        clock.passes(**time)
        fired.append(await fires(triggers))
    assert fired == [None, None, "cron", None, "cron", None]


@pytest.mark.parametrize(
    ("hours", "expected"), [(2, "cron"), (0.5, None), (None, None)], ids=["missed", "in time", "never ran"]
)
def test_a_time_that_passed_without_a_process_fires_at_the_start(hours, expected):
    clock = Clock()
    clock.passes(minutes=45)
    since = None if hours is None else clock.now - timedelta(hours=hours)
    triggers = Triggers("a", [CronTrigger(type="cron", expression="0 * * * *")], none, now=clock, since=since)
    assert run(fires(triggers)) == expected


async def test_a_new_process_knows_when_the_last_cycle_began(tmp_path):
    from redraft.stores.sqlite import MemoryStore

    clock, store, events = Clock(), MemoryStore(), []
    text = MONITOR.replace("stages:", 'triggers: [{type: cron, expression: "0 13 * * *"}]\nstages:', 1)
    async with monitor(text=text, storage=store, clock=clock) as agent:
        await agent.run_cycle()
    clock.passes(hours=3)
    async with monitor(text=text, storage=store, clock=clock, on_event=events.append) as agent:
        await agent.run_forever(1)
    assert [event.trigger for event in events if hasattr(event, "trigger")] == ["cron"]


BAD = [
    ("{type: cron, expression: '61 * * * *'}", r"Invalid cron expression '61 \* \* \* \*' \(bad minute\)"),
    ("{type: cron, expression: hourly}", "expected minute, hour, day of month, month and day of week"),
    ("{type: cron, expression: '0 0 31 2 *'}", "Invalid cron expression '0 0 31 2"),
    ("{type: cron, expression: '0 7 * * *', timezone: Vienna}", "Unknown time zone 'Vienna'"),
    ("{type: cron, expression: '0 7 * * *', timezone: ../etc}", "Unknown time zone '../etc'"),
    ("{type: cron}", "expression"),
    ("{type: interval, intervalMs: 0}", "expected at least 1, got 0"),
    ("{type: interval, intervalMs: 1%s}" % ("0" * 400), "expected at most 1000000000000000, got "),
    ("{type: webhook, secret: A}", "topic"),
    ("{type: webhook, topic: a}", "secret"),
    ("{type: webhook, topic: a, secret: not-a-name}", "secret"),
    (
        "{type: webhook, topic: a, secret: A}, {type: webhook, topic: a, secret: B}",
        "two webhooks of the topic",
    ),
    ("{type: file, path: a.csv}", "the type 'file' no longer exists; use 'interval' and a function"),
]


@pytest.mark.parametrize(("trigger", "error"), BAD)
def test_a_bad_trigger_is_an_error_at_its_line(trigger, error):
    text = MONITOR.replace("stages:", f"triggers: [{trigger}]\nstages:", 1)
    with pytest.raises(AgentFileError, match=error) as found:
        monitor(text=text)
    assert found.value.line == 4


def test_a_webhook_needs_a_source_that_takes_its_messages():
    text = MONITOR.replace("stages:", "triggers: [{type: webhook, topic: a, secret: A}]\nstages:", 1)
    text = text.replace("      - {type: agent-messages, name: mail, config: {into: mail}}\n", "")
    with pytest.raises(AgentFileError, match="nothing reads these messages"):
        monitor(text=text)


@pytest.mark.parametrize("triggers", [[], [ManualTrigger(type="manual")]])
def test_manual_cycles_start_immediately(triggers):
    assert run(Triggers("a", triggers, None).next()) == "manual"


def test_message_triggers_of_any_topic():
    asked = []

    async def is_there(topic):
        asked.append(topic)
        return "m1"

    triggers = Triggers("a", [MessageTrigger(type="message")], is_there)
    assert run(triggers.next()) == "message"
    assert asked == [None]


async def test_an_untaken_message_does_not_start_cycle_after_cycle():
    now, newest = [100.0], ["m1"]

    async def there(topic):
        return newest[0]

    async def begins():
        try:
            return await asyncio.wait_for(triggers.next(), 0.05)
        except TimeoutError:
            return None

    triggers = Triggers("a", [MessageTrigger(type="message")], there, clock=lambda: now[0])
    begun = [await begins(), await begins()]
    newest[0] = "m2"  # a new one, or an older one that was not taken
    begun += [await begins(), await begins()]
    now[0] += RETRIGGER_AFTER
    assert [*begun, await begins(), await begins()] == ["message", None, "message", None, "message", None]
