"""Schedules: when their jobs are due, and that each time is one job."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from redraft import Agent, MemoryStore, QualityCriterion, ReflectionPattern, ScriptedModel
from redraft.errors import ConfigError
from redraft.fleet import Fleet, FleetWorker, Schedule, StoreQueue
from redraft.fleet.queue import WorkerCard
from redraft.fleet.schedule import SCHEDULE, submit_due
from redraft.stores.base import Record

LATE = timedelta(seconds=60)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(cron, since, now, **options):
    schedule = Schedule("nightly", cron, "clerk", "Sum up.", **options)
    return [f"{time:%d %H:%M}" for time in schedule.due(at(since), at(now), LATE)]


@pytest.mark.parametrize(
    ("since", "now", "expected"),
    [
        ("2026-03-28 00:30", "2026-03-28 01:00", ["28 01:00"]),  # winter time: 02:00 in Berlin
        ("2026-03-28 01:30", "2026-03-29 00:59", []),
        ("2026-03-28 01:30", "2026-03-29 01:00", ["29 01:00"]),  # 02:00 does not exist: the end of the gap
        ("2026-03-29 01:00", "2026-03-29 23:59", []),
        ("2026-03-29 01:00", "2026-03-30 00:00", ["30 00:00"]),  # summer time
        ("2026-10-24 00:30", "2026-10-25 00:00", ["25 00:00"]),  # 02:00 comes twice, and counts once
        ("2026-10-25 00:00", "2026-10-25 23:00", []),
    ],
)
def test_each_night_has_one_time_when_the_clocks_change(since, now, expected):
    assert due("0 2 * * *", since, now, zone="Europe/Berlin", missed="all") == expected


def test_missed_times_are_one_job_or_all_or_none():
    missed = "0 2 * * *", "2026-11-19 12:00", "2026-11-23 08:00"
    assert due(*missed) == ["23 02:00"]
    assert due(*missed, missed="all") == ["20 02:00", "21 02:00", "22 02:00", "23 02:00"]
    assert due(*missed, missed="none") == []
    on_time = "0 2 * * *", "2026-11-22 12:00", "2026-11-23 02:00"
    assert [due(*on_time, missed=missed) for missed in ("one", "all", "none")] == [["23 02:00"]] * 3


def test_months_without_a_worker_cost_no_time():
    times = due("* * * * *", "2020-01-01 00:00", "2026-11-23 08:00", missed="all")
    assert (len(times), times[-1]) == (100, "23 08:00")


async def test_ten_workers_submit_each_time_once():
    store = MemoryStore()
    queue = StoreQueue(store)
    schedule = Schedule("hourly", "0 * * * *", "clerk", "Sum up.", missed="all")
    begin = at("2026-11-23 08:30")

    async def submitted(now):
        results = await asyncio.gather(
            *(submit_due(schedule, "clerk", queue, store, now, LATE) for _ in range(10))
        )
        return sorted(one for ids in results for one in ids)

    assert await submitted(begin) == []
    assert await submitted(begin + timedelta(minutes=29)) == []
    assert await submitted(at("2026-11-23 09:00")) == ["hourly-20261123T0900Z"]
    assert await submitted(at("2026-11-23 09:00")) == []
    assert await submitted(at("2026-11-23 11:10")) == ["hourly-20261123T1000Z", "hourly-20261123T1100Z"]


async def test_a_worker_that_died_between_submitting_and_recording_costs_no_second_job():
    store = MemoryStore()
    queue = StoreQueue(store)
    schedule = Schedule("hourly", "0 * * * *", "clerk", "Sum up.")
    before = Record(SCHEDULE, "hourly", {"until": at("2026-11-23 08:30").isoformat()})
    now = at("2026-11-23 09:00")
    await store.put(before)
    assert await submit_due(schedule, "clerk", queue, store, now, LATE) != []
    await store.put(before)
    assert await submit_due(schedule, "clerk", queue, store, now, LATE) == []


async def test_while_a_job_of_a_program_that_runs_alone_waits_its_schedule_adds_none():
    store = MemoryStore()
    queue = StoreQueue(store)
    await queue.open()
    await queue.register(WorkerCard("w", "here", 1, "one", ("beat",), 2))
    schedule = Schedule("beat", "0 * * * *", "beat", missed="all")
    await store.put(Record(SCHEDULE, "beat", {"until": at("2026-11-23 08:30").isoformat()}))

    async def submit(now):
        return await submit_due(schedule, "beat", queue, store, at(now), LATE, skip_while_queued=True)

    assert await submit("2026-11-23 09:00") == ["beat-20261123T0900Z"]
    assert await submit("2026-11-23 10:00") == []
    first = await queue.claim()
    assert await submit("2026-11-23 11:00") == ["beat-20261123T1100Z"]
    assert await submit("2026-11-23 13:00") == []
    await queue.finish(first, "finished")
    assert (await queue.claim()).run_id == "beat-20261123T1100Z"
    assert await submit("2026-11-23 15:00") == ["beat-20261123T1400Z"]


@pytest.mark.parametrize("damaged", [{}, {"until": "soon"}, {"until": "2026-11-23T08:30:00"}])
async def test_a_worker_submits_and_runs_due_jobs_next_to_a_damaged_schedule(damaged, caplog):
    store = MemoryStore()
    short = QualityCriterion("short", evaluator="words", evaluator_config={"at_most": 3})
    pattern = ReflectionPattern(quality_criteria=[short])
    clerk = Agent(ScriptedModel(lambda _request: "Done."), pattern=pattern, keep=store, name="clerk")
    schedules = [Schedule(name, "* * * * * *", clerk, "Sum up.") for name in ("damaged", "often")]
    await store.put(Record(SCHEDULE, "damaged", damaged))
    fleet = Fleet([clerk], schedules=schedules, store=store, queue=StoreQueue(store), tries=0)
    worker = FleetWorker(fleet)
    assert await asyncio.wait_for(worker.run(jobs=1), 60) == 1
    [job] = await fleet.jobs(("finished", "failed"))
    assert job.run_id.startswith("often-20")
    assert "can't be reached" not in caplog.text
    assert "The record 'schedule' 'damaged' is damaged" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "0 25 * * *"}, "Schedule 'nightly': Invalid cron"),
        ({"cron": "whenever"}, "Invalid cron"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month"),
        ({"zone": "Europe/Atlantis"}, "Unknown time zone 'Europe/Atlantis'"),
        ({"missed": "some"}, "missed must be"),
        ({"name": "a/b"}, "run_id must be"),
        ({"name": "n" * 101}, "100 characters"),
        (
            {"priority": 1001},
            "Schedule 'nightly': priority must be a .* from -1000 to 1000, got 1001",
        ),
        ({"priority": "high"}, "got 'high'"),
    ],
)
def test_a_schedule_that_means_nothing_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Schedule(**{"name": "nightly", "cron": "0 2 * * *", "program": "clerk", **options})


def test_the_schedules_of_a_fleet_are_checked():
    store = MemoryStore()
    clerk = Agent(ScriptedModel([]), keep=store, name="clerk")

    def fleet(*schedules):
        return Fleet([clerk], schedules=schedules, store=store, queue=StoreQueue(store))

    for schedules, message in [
        ([Schedule("a", "0 2 * * *", "clark", "x")], "did you mean 'clerk'"),
        ([Schedule("a", "0 2 * * *", "clerk")], "must be a text"),
        ([Schedule("a", "0 2 * * *", "clerk", "x")] * 2, "Two of the schedules have the name 'a'"),
        (["a"], "got 'a'"),
    ]:
        with pytest.raises(ConfigError, match=message):
            fleet(*schedules)


async def test_a_schedule_goes_on_after_a_clock_from_the_future():
    store = MemoryStore()
    queue = StoreQueue(store)
    schedule = Schedule("hourly", "0 * * * *", "clerk", "Sum up.")

    async def submit(now):
        return await submit_due(schedule, "clerk", queue, store, at(now), LATE)

    assert await submit("2026-11-23 08:30") == []
    assert await submit("2029-11-23 08:30") == ["hourly-20291123T0800Z"]
    assert await submit("2026-11-23 08:31") == []
    assert await submit("2026-11-23 08:50") == []
    assert await submit("2026-11-23 09:00") == ["hourly-20261123T0900Z"]
