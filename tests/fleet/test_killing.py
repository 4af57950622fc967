"""Workers in real processes that are killed and stopped, on a real PostgreSQL; longer in `tests/soak`."""

import signal

import pytest

from support.fleet_load import FleetLoad


@pytest.fixture
def load(postgres, tmp_path):
    found = FleetLoad(postgres.url, tmp_path, FLEET_PICK_UP=2)
    yield found
    found.stop()


def test_runs_of_killed_and_stopped_workers_are_continued_elsewhere(load):
    load.submit([f"item-{number}" for number in range(12)])
    killed, stopped, _ = [load.start("--at-once", "3") for _ in range(3)]
    load.wait_for_calls(15)
    stopped.send_signal(signal.SIGSTOP)
    load.kill(killed)
    load.wait_for_calls(40)
    stopped.send_signal(signal.SIGCONT)
    jobs = load.wait(60)
    report = load.report()
    assert (jobs["finished"], report.finished) == (12, 12), load.errors()
    assert report.repeated == 0
    assert report.calls == 72 + report.interrupted
    assert report.interrupted <= 6  # those under way in the two workers
    assert report.longest_wait < 20
