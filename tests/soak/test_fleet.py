"""A fleet under deaths and outages, for as long as that takes: `make soak`."""

import os
import random
import signal
import time
from contextlib import closing
from threading import Lock

import psycopg
import pytest

from support.fleet_load import FleetLoad
from support.http_server import serving
from support.postgres_server import Distant, Place, Server


def told(name, report, **more):
    """Print what a test has measured, for benchmarks/README.md."""
    print(f"\n{name}: {report._asdict()} {more}")


@pytest.fixture
def server():
    found = Server(durable=True)
    found.start()
    yield found
    found.remove()


def test_a_worker_is_killed_every_five_seconds(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_PICK_UP=4)
    chance, kills = random.Random(7), 0  # noqa: S311 (chance, not secrecy)
    began = time.monotonic()
    load.submit([f"item-{number}" for number in range(400)])
    for _ in range(4):
        load.start("--concurrency", "1")
    try:
        while True:
            jobs = load.wait(5)
            if not jobs["queued"] + jobs["running"]:
                break
            assert time.monotonic() - began < 1500, load.said()
            load.kill(chance.choice(load.running))
            load.start("--concurrency", "1")
            kills += 1
    finally:
        load.stop()
    report = load.report()
    told("killed every five seconds", report, kills=kills, seconds=round(time.monotonic() - began, 1))
    for one in load.pick_ups()[:5]:
        print({name: round(value, 1) for name, value in one._asdict().items() if name != "item"})
    print("load average", os.getloadavg()[0])
    assert report.wrong == 0
    assert (jobs["finished"], report.finished) == (400, 400), load.said()
    assert report.repeated == 0
    assert kills >= 10
    assert report.interrupted <= kills
    assert report.longest_wait <= 10


def test_three_jobs_kill_their_workers(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_PICK_UP=2, FLEET_LATENCY=0.3)
    innocent, killers = (
        [f"item-{number}" for number in range(40)],
        [f"item-kill{number}" for number in range(3)],
    )
    load.submit([*innocent[:10], *killers, *innocent[10:]])
    for _ in range(3):
        load.start("--concurrency", "5")
    began, deaths = time.monotonic(), 0
    try:
        while (jobs := load.wait(0.5))["queued"] + jobs["running"]:
            for worker in [one for one in load.running if one.poll() is not None]:
                assert worker.returncode == -signal.SIGKILL, load.said()
                load.running.remove(worker)
                load.start("--concurrency", "5")
                deaths += 1
            assert time.monotonic() - began < 600, load.said()
    finally:
        load.stop()
    report, by_id = load.report(), {job.run_id: job.state for job in load.jobs()}
    alone = load.said().count("runs by itself")
    told(
        "three jobs that kill their workers",
        report,
        deaths=deaths,
        alone=alone,
        seconds=round(time.monotonic() - began),
    )
    assert [by_id[name] for name in killers] == ["poisoned"] * 3, load.said()
    assert {by_id[name] for name in innocent} == {"finished"}, load.said()
    assert (report.finished, report.repeated, report.wrong) == (40, 0, 0)
    assert deaths <= 9  # three a killer, if no two of them ever share a worker


def test_the_database_dies_and_a_worker_sleeps(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_PICK_UP=3, FLEET_LATENCY=0.5)
    load.submit([f"item-{number}" for number in range(60)])
    workers = [load.start("--concurrency", "4") for _ in range(3)]
    try:
        load.wait_for_calls(40)
        for _ in range(3):
            server.stop(signal.SIGKILL)
            time.sleep(2)
            server.start()
            load.wait_for_calls(len(load.calls()) + 20)
        workers[0].send_signal(signal.SIGSTOP)
        time.sleep(8)
        workers[0].send_signal(signal.SIGCONT)
        jobs = load.wait(300)
    finally:
        load.stop()
    report = load.report()
    told("the database killed three times, a worker asleep", report)
    assert report.wrong == 0
    assert (jobs["finished"], report.finished) == (60, 60), load.said()
    assert report.repeated == 0


def test_connections_are_cut_again_and_again(server, tmp_path):
    """Half of the cuts are those of a network, half those of an administrator: pg_terminate_backend."""
    place = Place(server.url())
    network = Distant(server.url(), 0.002)
    load = FleetLoad(place.url, tmp_path, FLEET_PICK_UP=3, REDRAFT_DATABASE_URL=network.url(place))
    load.submit([f"item-{number}" for number in range(100)])
    for _ in range(3):
        load.start("--concurrency", "4")
    cuts = 0
    try:
        load.wait_for_workers(3)
        while (jobs := load.wait(0.7))["queued"] + jobs["running"]:
            if cuts % 2:
                network.cut()
            else:
                place.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                )
            cuts += 1
            assert cuts < 400, load.said()
    finally:
        load.stop()
        network.close()
    report = load.report()
    told("connections cut", report, cuts=cuts, jobs=jobs)
    assert (jobs["finished"], report.finished) == (100, 100), load.said()
    assert (report.repeated, report.wrong) == (0, 0)
    assert cuts >= 10


def test_what_runs_ask_of_the_database(server, tmp_path):
    """Commits, write-ahead log, tables and CPU of a run of six calls, and the connections of a worker."""

    def asked():
        with closing(psycopg.connect(server.url(), autocommit=True)) as connection:
            row = connection.execute(
                """SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()),
                    pg_current_wal_lsn() - '0/0', (
                        SELECT sum(pg_total_relation_size(oid)) FROM pg_class
                        WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace)"""
            ).fetchone()
        return [*map(float, row), server.cpu()]

    load = FleetLoad(server.url(), tmp_path, FLEET_LATENCY=0.2)
    load.ask("DROP TRIGGER log_written ON redraft_records")  # it is no part of a run
    runs = 60
    load.submit([f"item-{number}" for number in range(runs)])
    before = asked()
    worker = load.start("--concurrency", "50", "--until-idle")
    try:
        load.wait_for_calls(100)
        [(connections,)] = load.ask(
            f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{worker.pid}'"  # noqa: S608 (a number)
        )
        worker.wait(300)
    finally:
        load.stop()
    names = ("commits", "log_bytes", "table_bytes", "cpu_seconds")
    each = {name: (now - then) / runs for name, now, then in zip(names, asked(), before, strict=True)}
    print(f"\nof the database, per run: {each}, connections of a worker: {connections}")
    assert len(load.calls()) == 6 * runs
    assert connections <= 5
    assert each["commits"] < 30


class Provider:
    """Answer 20 calls a second, and none in the first three seconds; refuse the others with a 429."""

    PER_SECOND = 20

    def __init__(self, retry_after):
        self.answered, self.refused = 0, 0
        self._headers = {"retry-after": "1"} if retry_after else {}
        self._lock = Lock()
        self._second, self._in_second, self._opens = 0, 0, 0.0

    def __call__(self, request):
        with self._lock:
            now = time.monotonic()
            self._opens = self._opens or now + 3
            if int(now) != self._second:
                self._second, self._in_second = int(now), 0
            self._in_second += 1
            is_refused = now < self._opens or self._in_second > self.PER_SECOND
            self.refused += is_refused
            self.answered += not is_refused
        request.reply(*((429, self._headers, b"") if is_refused else (200, {}, b"")))


@pytest.mark.parametrize("retry_after", [True, False])
@pytest.mark.parametrize("limited", [True, False])
def test_no_run_is_lost_in_a_storm_of_rate_limits(server, tmp_path, limited, retry_after):
    provider = Provider(retry_after)
    with serving({f"/item-{number}": provider for number in range(60)}) as service:
        more = {"FLEET_LIMIT": 6000} if limited else {}  # more than the provider answers
        load = FleetLoad(server.url(), tmp_path, FLEET_PROVIDER=service.url, **more)
        try:
            for _ in range(4):
                load.start("--concurrency", "15")
            load.wait_for_workers(4)
            load.submit([f"item-{number}" for number in range(60)])
            jobs = load.wait(400)
        finally:
            load.stop()
    report = load.report()
    what = f"storm, {'a' if limited else 'no'} limit, {'with' if retry_after else 'without'} Retry-After"
    told(what, report, refused=provider.refused, retried=load.said().count("is tried again"))
    assert (jobs["finished"], report.finished) == (60, 60), load.said()
    assert (report.repeated, report.wrong) == (0, 0)
    assert report.calls == 360 + report.interrupted  # by a worker that this machine has stopped for long
    assert provider.refused >= 20  # a limit that shares a Retry-After keeps it low


def test_four_processes_keep_one_limit(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_LIMIT=1200, FLEET_LATENCY=0.05)
    for _ in range(4):
        load.start("--concurrency", "20")
    try:
        load.wait_for_workers(4)
        load.submit([f"item-{number}" for number in range(100)])
        jobs = load.wait(200)
    finally:
        load.stop()
    report = load.report()
    times = sorted(call.at for call in load.calls())
    most = max(
        (last - first + 1) / (20 * (times[last] - times[first] + 1))
        for first in range(len(times))
        for last in range(first, len(times))
    )
    # While there is more to do than the limit lets through: without the start and the last runs.
    middle = times[40:-60]
    used = (len(middle) - 1) / (middle[-1] - middle[0]) / 20
    told("1,200 requests a minute", report, most_of_a_window=round(most, 3), used=round(used, 3))
    assert (jobs["finished"], report.finished) == (100, 100), load.said()
    assert most <= 1
    assert used >= 0.9
