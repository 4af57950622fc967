"""Workers in real processes that are killed and stopped, on a real PostgreSQL; longer in `tests/soak`."""

import signal

import psycopg
import pytest

from support.fleet_load import FleetLoad
from support.postgres_server import Distant


@pytest.fixture
def load(postgres, tmp_path):
    found = FleetLoad(postgres.url, tmp_path, FLEET_PICK_UP=2)
    yield found
    found.stop()


def test_runs_of_killed_and_stopped_workers_are_continued_elsewhere(load):
    load.submit([f"item-{number}" for number in range(12)])
    killed, stopped, _ = [load.start("--concurrency", "3") for _ in range(3)]
    load.wait_for_calls(15)
    stopped.send_signal(signal.SIGSTOP)
    load.kill(killed)
    load.wait_for_calls(40)
    stopped.send_signal(signal.SIGCONT)
    jobs = load.wait(60)
    report = load.report()
    assert (jobs["finished"], report.finished) == (12, 12), load.said()
    assert report.repeated == 0
    assert report.calls == 72 + report.interrupted
    assert report.interrupted <= 6  # those under way in the two workers
    assert report.longest_wait < 20
    assert report.wrong == 0
    assert report.written >= 12 * 20  # 18 steps a run, and its record at both ends


def test_runs_survive_connections_that_are_cut(postgres, postgres_server, tmp_path):
    network = Distant(postgres_server, 0.002)
    load = FleetLoad(postgres.url, tmp_path, FLEET_PICK_UP=2, REDRAFT_DATABASE_URL=network.url(postgres))
    try:
        load.submit([f"item-{number}" for number in range(6)])
        for _ in range(2):
            load.start("--concurrency", "3")
        cut = 0
        for number in range(4):
            load.wait_for_calls(5 + 6 * number)
            cut += network.cut()
        jobs = load.wait(60)
    finally:
        load.stop()
        network.close()
    report = load.report()
    assert (jobs["finished"], report.finished) == (6, 6), load.said()
    assert (report.repeated, report.wrong) == (0, 0)
    assert cut > 4


def test_a_row_of_the_wrong_worker_would_be_counted(load):
    load.submit(["item-a"])
    load.start("--until-idle").wait(60)
    before = load.report()
    with psycopg.connect(load.url, application_name="1") as connection:
        connection.execute("UPDATE redraft_records SET revision = revision + 1 WHERE kind = 'step'")
    after = load.report()
    assert (before.wrong, after.wrong, after.written) == (0, 18, before.written + 18)
