"""Lessons and notes of two machines: real workers, each with a folder of its own, and a real PostgreSQL."""

import asyncio
import json
import signal
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from redraft.fleet.postgres_queue import ProcrastinateQueue
from redraft.fleet.queue import FleetJob
from support.commands import redraft
from support.lessons import DECISION, FAILURE
from support.machines import PROJECT, Machine

GENEROUS = 60.0
"""Seconds that a test waits on a busy machine; `benchmarks/fleet.py` measures what it takes."""


@contextmanager
def machines_at(url, root):
    a, b = Machine("a", root, url), Machine("b", root, url)
    try:
        yield a, b
    finally:
        a.stop()
        b.stop()


@pytest.fixture
def machines(postgres, tmp_path):
    with machines_at(postgres.url, tmp_path) as found:
        yield found


def until(condition, *machines):
    deadline = time.monotonic() + GENEROUS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(f"{one.name}: {one.said()}" for one in machines))
        time.sleep(0.05)
    return found


def submit(url, run_id, program, task):
    async def main():
        queue = ProcrastinateQueue(url, PROJECT)
        await queue.submit(FleetJob(run_id, program, task))
        await queue.leave()

    asyncio.run(main())


def finished(url, *run_ids):
    """Return a condition: that these jobs have ended."""

    async def main():
        queue = ProcrastinateQueue(url, PROJECT)
        try:
            return all([(await queue.get(run_id)).has_ended for run_id in run_ids])
        finally:
            await queue.leave()

    return lambda: asyncio.run(main())


def test_what_one_worker_learns_or_a_person_edits_is_in_force_on_the_other(machines, postgres):
    a, b = machines
    a.start()
    b.start()
    submit(postgres.url, "first", "clerk-a", "Fetch the price list of the shop.")
    submit(postgres.url, "first-order", "order-a", {"message": "A pack of tea, please."})
    until(finished(postgres.url, "first", "first-order"), a, b)
    until(lambda: len(b.texts()) == len(a.texts()) >= 1, a, b)
    submit(postgres.url, "second", "clerk-b", "Fetch the stock of the shop.")
    submit(postgres.url, "second-order", "order-b", {"message": "Two packs of tea, please."})
    until(finished(postgres.url, "second", "second-order"), a, b)
    assert [one["found"] for one in a.calls("clerk")] == [[]]
    assert [one["found"] for one in b.calls("clerk")] == [['The text consists of "all pages"']]
    assert [one["found"] for one in a.calls("order")] == [[]]
    assert [one["found"] for one in b.calls("order")] == [['The key "item" is required']]

    known = a.learn(DECISION, summary="Which one")
    until(lambda: a.texts() == b.texts(), a, b)
    path = b.lessons.path_of(known)
    with path.open("w") as file:  # in place, as editors write
        file.write(a.lessons.path_of(known).read_text().replace("SQLite", "PostgreSQL"))
    until(lambda: "PostgreSQL" in a.lessons.path_of(known).read_text(), a, b)
    path.unlink()
    until(lambda: len(a.texts()) == 1, a, b)


def test_what_changes_while_the_database_is_away_is_shared_later_and_a_conflict_keeps_both(
    own_postgres, tmp_path
):
    with machines_at(own_postgres.url(), tmp_path) as (a, b):
        known = a.learn()
        a.start()
        b.start()
        until(lambda: a.texts() == b.texts(), a, b)
        own_postgres.stop(signal.SIGKILL)
        a.learn(DECISION, summary="Which one")
        a.lessons.change(known, content=replace(FAILURE, why="Because of A."))
        b.lessons.change(known, content=replace(FAILURE, why="Because of B."))
        until(lambda: "Lessons are not shared between machines for now" in a.said(), a, b)
        own_postgres.start()
        until(lambda: len(b.texts()) == 3 and a.texts() == b.texts(), a, b)
        reasons = {one.content.why for one in a.lessons.lessons() if one.kind == "failure"}
        assert reasons == {"Because of A.", "Because of B."}
        assert a.said().count("Lessons are not shared between machines for now") == 1
        assert (a.said() + b.said()).count("is kept as") == 1


def test_killed_workers_two_of_them_on_one_machine_neither_lose_nor_double_a_lesson(machines):
    a, b = machines
    a.start()
    a.start()
    b.start()
    for number in range(20):
        why = f"For the reason {number}."
        (a, b)[number % 2].learn(replace(FAILURE, why=why), summary=f"Number {number}")
        if number in (9, 14):
            until(lambda: a.texts() and b.texts(), a, b)
            (a if number == 9 else b).die()
            (a if number == 9 else b).start()
    until(lambda: len(a.texts()) >= 20 and a.texts() == b.texts(), a, b)
    assert {one.content.why for one in a.lessons.lessons()} == {f"For the reason {n}." for n in range(20)}
    assert len(a.texts()) == 20


def said_by(machine, monkeypatch, *words):
    """Run a command in this process, on a machine, and return what it prints."""
    monkeypatch.chdir(machine.home)
    for name in ("REDRAFT_DATABASE_URL", "REDRAFT_PROJECT", "REDRAFT_HOME"):
        monkeypatch.setenv(name, machine.environment[name])
    done = redraft(*words)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_a_machine_without_a_worker_is_kept_equal_by_a_command(machines, monkeypatch):
    a, b = machines
    known, gone = a.learn(), a.learn(DECISION, summary="Which one")
    assert said_by(a, monkeypatch, "lessons", "sync") == "0 changes received, 2 changes sent.\n"
    assert json.loads(said_by(b, monkeypatch, "lessons", "sync", "--json"))["received"] == 2
    b.lessons.change(known, status="retired", why="It hurt.")
    b.lessons.path_of(gone).unlink()
    done = said_by(b, monkeypatch, "lessons", "sync")
    assert done == "0 changes received, 2 changes sent (1 deletion).\n"
    assert said_by(a, monkeypatch, "lessons", "sync") == "2 changes received, 0 changes sent.\n"
    assert list(a.texts()) == [f"{known.partition('/')[2]}.md"]
