import asyncio
import os
import subprocess
import sys

import pytest

from redraft import Task
from redraft.loop.record import Origin, Process, own_start, start_of
from redraft.loop.runs import Runs
from redraft.stores.sqlite import MemoryStore
from support.kept_runs import record


def test_an_ended_process_is_gone():
    me = Process.this()
    assert not me.has_exited()
    assert Process(me.host, me.pid, "1").has_exited()
    assert Process(me.host, 2**22 + 1, me.started).has_exited()
    assert not Process("another-host", me.pid, "1").has_exited()
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


def test_an_ended_process_is_gone_without_proc(without_proc, sleeper):
    me = Process.this()
    assert bool(me.started) == (without_proc == "ps")
    assert me.has_exited() is False
    assert Process(me.host, 2**22 + 1, me.started).has_exited() is True
    other = Process(me.host, sleeper.pid, start_of(sleeper.pid))
    assert other.has_exited() is (False if without_proc == "ps" else None)
    assert Process(me.host, sleeper.pid, "Mon Jan  1 00:00:00 2001").has_exited() is (
        True if without_proc == "ps" else None
    )


@pytest.fixture
def zombie():
    """A process that was killed, and whose parent has not asked how it ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = Process(Process.this().host, process.pid, start_of(process.pid))
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield identity
    process.communicate()


def test_a_killed_process_that_is_not_reaped_has_exited(zombie):
    assert zombie.has_exited()


@pytest.mark.parametrize("without_proc", ["ps"], indirect=True)
def test_a_killed_process_that_is_not_reaped_has_exited_without_proc(without_proc, zombie):
    assert zombie.has_exited()


@pytest.mark.parametrize("without_proc", ["nothing"], indirect=True)
def test_the_state_is_unknown_without_proc_and_ps(without_proc, sleeper):
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
    os._exit(child.pid == parent.pid or child.started == parent.started or child.has_exited())
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


def test_the_origin_names_what_began_a_run():
    assert Origin().surface == "function"


@pytest.mark.parametrize(
    ("origin", "task", "call"),
    [
        (Origin("agent"), Task("x"), "await agent.run('x', run_id='r')  # or agent.run_sync"),
        (Origin("agent"), Task("x" * 300),
         ("from redraft import Runs\n\nawait agent.run((await Runs().get('r')).task, run_id='r')"
          "  # or agent.run_sync")),
        (Origin("reflected", "main.<locals>.answer"), Task("x"),
         "await answer.run_as('r', ...)  # or run_as_sync; the arguments of 'x'"),
        (Origin("reflected", "main.hang"), Task("hang\nticket: t\n\nnote: a\n  b"),
         "await hang.run_as('r', ...)  # or run_as_sync; the arguments of 'hang; ticket: t; note: a; b'"),
        (Origin("reflected", "main.total", arguments=("Sum 2",)), Task("total\nprompt: Sum 2"),
         "await total.run_as('r', 'Sum 2')  # or total.run_as_sync"),
        (Origin("command"), Task("x"), ""),
        (Origin("function", "reflect"), Task("x"),
         "await reflect('x', ..., step=Journalled(store, 'r'))  # or reflect_sync"),
    ],
)  # fmt: skip
def test_the_resuming_call_follows_from_the_origin(origin, task, call):
    assert record([], run_id="r", origin=origin, task=task).resuming_call() == call


@pytest.mark.parametrize("run_id", ["my.1", "my.12-3"])
def test_a_task_of_an_ensemble_is_resumed_by_the_ensemble(run_id):
    call = "await ensemble.run(..., run_id='my')  # or ensemble.run_sync"
    assert record([], run_id=run_id, origin=Origin("task", "write")).resuming_call() == call
