"""A fleet under deaths and outages, for as long as that takes: `make soak`."""

import random
import signal
import time

import pytest

from support.fleet_load import FleetLoad
from support.postgres_server import Server


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
        load.start("--at-once", "1")
    try:
        while True:
            jobs = load.wait(5)
            if not jobs["queued"] + jobs["running"]:
                break
            assert time.monotonic() - began < 1500, load.errors()
            load.kill(chance.choice(load.workers))
            load.start("--at-once", "1")
            kills += 1
    finally:
        load.stop()
    report = load.report()
    told("killed every five seconds", report, kills=kills, seconds=round(time.monotonic() - began, 1))
    assert (jobs["finished"], report.finished) == (400, 400), load.errors()
    assert report.repeated == 0
    assert kills >= 10
    assert report.interrupted <= kills
    assert report.longest_wait <= 10


def test_the_database_dies_and_a_worker_sleeps(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_PICK_UP=3, FLEET_LATENCY=0.5)
    load.submit([f"item-{number}" for number in range(60)])
    workers = [load.start("--at-once", "4") for _ in range(3)]
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
    assert (jobs["finished"], report.finished) == (60, 60), load.errors()
    assert report.repeated == 0


def test_four_processes_keep_one_limit(server, tmp_path):
    load = FleetLoad(server.url(), tmp_path, FLEET_LIMIT=1200, FLEET_LATENCY=0.05)
    for _ in range(4):
        load.start("--at-once", "20")
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
    assert (jobs["finished"], report.finished) == (100, 100), load.errors()
    assert most <= 1
    assert used >= 0.9
