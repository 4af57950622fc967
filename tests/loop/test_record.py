import asyncio
import os
import subprocess
import sys

import pytest

from redraft.loop.record import Origin, Process, own_start, start_of
from redraft.loop.runs import Runs
from redraft.stores.memory import MemoryStore
from support.kept_runs import record


def test_a_process_that_has_ended_is_known_to_be_gone():
    me = Process.this()
    assert not me.is_gone()
    assert Process(me.host, me.pid, "1").is_gone()
    assert Process(me.host, 2**22 + 1, me.started).is_gone()
    assert not Process("another-host", me.pid, "1").is_gone()
    assert Process.this().pid == os.getpid()


@pytest.fixture
def sleeper():
    """A process that is there until the test has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.communicate()


@pytest.fixture(params=["ps", "nothing"])
def without_proc(request, tmp_path, monkeypatch):
    """A machine such as macOS, without /proc: with ps, and with nothing that tells when a process began."""
    monkeypatch.setattr("redraft.loop.record.PROC", tmp_path / "proc")
    if request.param == "nothing":
        monkeypatch.setattr("redraft.loop.record.PS", str(tmp_path / "ps"))
    own_start.cache_clear()
    yield request.param
    own_start.cache_clear()


def test_without_proc_a_process_that_has_ended_is_gone_all_the_same(without_proc, sleeper):
    me = Process.this()
    assert bool(me.started) == (without_proc == "ps")
    assert me.is_gone() is False
    assert Process(me.host, 2**22 + 1, me.started).is_gone() is True
    other = Process(me.host, sleeper.pid, start_of(sleeper.pid))
    assert other.is_gone() is (False if without_proc == "ps" else None)
    assert Process(me.host, sleeper.pid, "Mon Jan  1 00:00:00 2001").is_gone() is (
        True if without_proc == "ps" else None
    )


@pytest.mark.parametrize("without_proc", ["nothing"], indirect=True)
def test_where_the_machine_can_not_tell_the_state_is_unknown(without_proc, sleeper):
    lost = Process(Process.this().host, sleeper.pid, "")
    run = record([], run_id="r", process=lost)
    assert run.state == "unknown"
    store = MemoryStore()

    async def main():
        await store.put(run.stored())
        runs = Runs(store)
        return [[one.run_id for one in await runs.find(status=state)] for state in ("unknown", "running")]

    assert asyncio.run(main()) == [["r"], []]


def test_a_forked_child_is_a_process_of_its_own():
    program = """
import os, time
from redraft.loop.record import Process
parent = Process.this()
time.sleep(0.05)
if os.fork() == 0:
    child = Process.this()
    os._exit(child.pid == parent.pid or child.started == parent.started or child.is_gone())
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_an_origin_says_what_began_a_run():
    assert Origin().surface == "function"
