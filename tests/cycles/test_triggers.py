import asyncio
from datetime import UTC, datetime, timedelta

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
    """Return the trigger that fires soon, or None."""
    try:
        return await asyncio.wait_for(triggers.next(), seconds)
    except TimeoutError:
        return None


def test_intervals_that_pass_during_a_cycle_count_as_one():
    now = [100.0]
    triggers = Triggers(
        "a", [IntervalTrigger(type="interval", interval_ms=1_000)], none, clock=lambda: now[0]
    )

    async def main():
        fired = [await fires(triggers)]
        for busy in (0.5, 0.5, 3.7, 0.2, 0.1):
            now[0] += busy
            fired.append(await fires(triggers))
        return fired

    assert run(main()) == ["interval", None, "interval", "interval", None, "interval"]


def test_triggers_that_fire_together_count_as_one():
    now = [100.0]
    intervals = [IntervalTrigger(type="interval", interval_ms=ms) for ms in (1_000, 2_000)]
    triggers = Triggers("a", intervals, none, clock=lambda: now[0])

    async def main():
        return [await fires(triggers), await fires(triggers)]

    assert run(main()) == ["interval", None]


CRON = [
    ("30 7 * * mon-fri", "UTC", "2026-11-20T08:00", "2026-11-23T07:30"),
    ("30 7 * * mon-fri", "Europe/Vienna", "2026-11-20T08:00", "2026-11-23T06:30"),
    ("0 0 1 * *", "America/New_York", "2026-11-20T08:00", "2026-12-01T05:00"),
    ("30 2 * * *", "Europe/Vienna", "2026-03-28T12:00", "2026-03-29T01:00"),  # 2:30 does not exist
    ("30 2 * * *", "Europe/Vienna", "2026-10-25T00:30", "2026-10-26T01:30"),  # 2:30 comes again
    ("*/15 * * * * *", "UTC", "2026-11-20T08:00", "2026-11-20T08:00:15"),
    ("0 12 * * 5L", "UTC", "2026-11-20T08:00", "2026-11-27T12:00"),
]


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), CRON)
def test_times_of_cron_expressions(expression, zone, after, expected):
    after, expected = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (after, expected))
    assert next_time(expression, zone, after) == expected


def test_a_cron_trigger_fires_at_its_times_however_the_clock_is_set():
    clock = Clock()  # noon
    triggers = Triggers(
        "a", [CronTrigger(type="cron", expression="0 * * * *")], none, now=clock, since=clock.now
    )

    async def main():
        fired = [await fires(triggers)]
        for time in ({"minutes": 59}, {"minutes": 1}, {"minutes": 1}, {"hours": 5}, {}):
            clock.passes(**time)
            fired.append(await fires(triggers))
        return fired

    assert run(main()) == [None, None, "cron", None, "cron", None]


@pytest.mark.parametrize(
    ("hours", "expected"), [(2, "cron"), (0.5, None), (None, None)], ids=["missed", "in time", "never ran"]
)
def test_a_time_that_passed_without_a_process_fires_at_the_start(hours, expected):
    clock = Clock()
    clock.passes(minutes=45)
    since = None if hours is None else clock.now - timedelta(hours=hours)
    triggers = Triggers("a", [CronTrigger(type="cron", expression="0 * * * *")], none, now=clock, since=since)
    assert run(fires(triggers)) == expected


def test_a_new_process_knows_when_the_last_cycle_began(tmp_path):
    from redraft.stores.memory import MemoryStore

    clock, store, events = Clock(), MemoryStore(), []
    text = MONITOR.replace("stages:", 'triggers: [{type: cron, expression: "0 13 * * *"}]\nstages:', 1)

    async def main():
        async with monitor(text=text, storage=store, clock=clock) as agent:
            await agent.run_cycle()
        clock.passes(hours=3)
        async with monitor(text=text, storage=store, clock=clock, on_event=events.append) as agent:
            await agent.run_forever(1)

    run(main())
    assert [event.trigger for event in events if hasattr(event, "trigger")] == ["cron"]


BAD = [
    ("{type: cron, expression: '61 * * * *'}", r"Invalid cron expression '61 \* \* \* \*' \(bad minute\)"),
    ("{type: cron, expression: hourly}", "expected minute, hour, day of month, month and day of week"),
    ("{type: cron, expression: '0 0 31 2 *'}", "Invalid cron expression '0 0 31 2"),
    ("{type: cron, expression: '0 7 * * *', timezone: Vienna}", "Unknown time zone 'Vienna'"),
    ("{type: cron, expression: '0 7 * * *', timezone: ../etc}", "Unknown time zone '../etc'"),
    ("{type: cron}", "expression"),
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


def test_an_expression_without_a_time_is_refused():
    with pytest.raises(ConfigError, match="Invalid cron expression"):
        next_time("0 0 30 2 *", "UTC", datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("triggers", [[], [ManualTrigger(type="manual")]])
def test_manual_cycles_start_at_once(triggers):
    assert run(Triggers("a", triggers, None).next()) == "manual"


def test_message_triggers_of_any_topic():
    asked = []

    async def is_there(topic):
        asked.append(topic)
        return "m1"

    triggers = Triggers("a", [MessageTrigger(type="message")], is_there)
    assert run(triggers.next()) == "message"
    assert asked == [None]


def test_an_untaken_message_does_not_start_cycle_after_cycle():
    now, newest = [100.0], ["m1"]

    async def there(topic):
        return newest[0]

    async def begins():
        try:
            return await asyncio.wait_for(triggers.next(), 0.05)
        except TimeoutError:
            return None

    triggers = Triggers("a", [MessageTrigger(type="message")], there, clock=lambda: now[0])

    async def main():
        begun = [await begins(), await begins()]
        newest[0] = "m2"  # a new one, or an older one that was not taken
        begun += [await begins(), await begins()]
        now[0] += RETRIGGER_AFTER
        return [*begun, await begins(), await begins()]

    assert run(main()) == ["message", None, "message", None, "message", None]
