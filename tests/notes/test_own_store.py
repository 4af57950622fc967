"""Stores of a program's own: two methods, sync or async, under many runs at once."""

import asyncio
import threading
import time

import pytest

from redraft.core.errors import ConfigError, StoreError
from redraft.core.task import Task
from redraft.notes.config import Trial
from redraft.notes.identity import TaskIdentity
from redraft.notes.in_memory import InMemoryReflectionStore
from redraft.notes.note import NoteUse
from redraft.notes.own_store import notebook_of
from redraft.notes.reflection import TaskReflection
from redraft.notes.turns import Turns, turns_of

TASK = Task("Write.")
IDENTITY = TaskIdentity.of(TASK)
SAID = TaskReflection.of_first_run("Write well.", "")


class Plain:
    """A store that loses a note where two write at once."""

    def __init__(self):
        self.kept = {}
        self.threads = set()

    def store(self, identity, reflection):
        self.threads.add(threading.current_thread())
        time.sleep(0.0005)
        self.kept[identity] = reflection

    def retrieve(self, identity):
        found = self.kept.get(identity)
        time.sleep(0.0005)
        return found


class Async(Plain):
    async def store(self, identity, reflection):
        await asyncio.sleep(0)
        self.kept[identity] = reflection

    async def retrieve(self, identity):
        found = self.kept.get(identity)
        await asyncio.sleep(0)
        return found


class Mixed(Plain):
    async def retrieve(self, identity):
        return self.kept.get(identity)


class Awaited(Plain):
    """Functions that return a coroutine."""

    def store(self, identity, reflection):
        return Async.store(self, identity, reflection)

    def retrieve(self, identity):
        return Async.retrieve(self, identity)


def test_a_store_of_ours_is_its_own_notebook():
    store = InMemoryReflectionStore()
    assert notebook_of(store) is store
    assert store.keeps_revisions


@pytest.mark.parametrize("kind", [Plain, Async, Mixed, Awaited])
def test_64_runs_at_once_are_counted_64_times(kind):
    store = kind()
    store.kept[IDENTITY] = TaskReflection("Write.", "", run_count=5)

    async def main():
        notes = notebook_of(store)
        made = await asyncio.gather(*(notes.append(TASK, SAID, run_id=f"r{n}") for n in range(64)))
        assert [note.reflection.run_count for note, _ in made] == list(range(6, 70))
        assert not any(is_first for _, is_first in made)

    asyncio.run(main())
    assert store.kept[IDENTITY].run_count == 69
    assert threading.current_thread() not in store.threads  # who waits for a disk stops no other task


def test_runs_in_many_threads_and_event_loops_take_turns():
    store = Plain()

    async def runs():
        notes = notebook_of(store)  # each has its own, as two ensembles do
        await asyncio.gather(*(notes.append(TASK, SAID) for _ in range(8)))

    threads = [threading.Thread(target=asyncio.run, args=[runs()]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.kept[IDENTITY].run_count == 64


def test_it_keeps_the_latest_note_and_no_more():
    async def main():
        notes = notebook_of(Plain())
        assert not notes.keeps_revisions
        assert await notes.current(IDENTITY) is None
        assert await notes.noted(IDENTITY) is None
        assert await notes.revisions(IDENTITY) == []
        first, is_first = await notes.append(TASK, SAID, run_id="r1")
        assert (first.version, is_first) == (1, True)
        note, is_first = await notes.append(TASK, SAID, run_id="r2", based_on=1, name="it")
        assert (note.version, note.run_id, note.based_on, is_first) == (2, "r2", 1, False)
        current = await notes.current(IDENTITY)
        assert (current.version, current.reflection) == (2, note.reflection)
        assert await notes.revision(IDENTITY, 2) == current
        assert await notes.revision(IDENTITY, 1) is None
        assert await notes.revisions(IDENTITY) == [current]
        assert (await notes.noted(IDENTITY)).run_count == 2
        await notes.used(IDENTITY, NoteUse("r1", None))
        assert await notes.uses(IDENTITY) == []
        for refused in (
            notes.append(TASK, SAID, trial=Trial()),
            notes.settle(IDENTITY, Trial()),
            notes.rollback(IDENTITY, 1),
        ):
            with pytest.raises(ConfigError, match="keeps every revision"):
                await refused

    asyncio.run(main())


@pytest.mark.parametrize(
    ("store", "told"),
    [
        (object(), "has no 'store'"),
        (type("S", (), {"store": print})(), "has no 'retrieve'"),
        ({"store": 1}, "has no 'store'"),
        (type("S", (), {"store": print, "retrieve": 3})(), "has no 'retrieve'"),
    ],
)
def test_what_is_no_store_is_refused(store, told):
    with pytest.raises(ConfigError, match=told):
        notebook_of(store)


def test_what_a_store_gives_wrong_or_raises_is_told():
    class Wrong(Plain):
        def retrieve(self, identity):
            if identity == "down":
                raise OSError("the disk is gone")
            return "a text"

    async def main():
        notes = notebook_of(Wrong())
        with pytest.raises(StoreError, match="must return a TaskReflection or None, got 'a text'"):
            await notes.current(IDENTITY)
        with pytest.raises(OSError, match="the disk is gone"):
            await notes.current("down")
        with pytest.raises(StoreError):  # and the turn is passed on
            await notes.append(TASK, SAID)
        with pytest.raises(StoreError):
            await notes.append(TASK, SAID)

    asyncio.run(main())


def test_turns_come_in_order_and_pass_by_who_no_longer_waits():
    async def main():
        turns, order = Turns(), []

        async def take(number):
            async with turns:
                order.append(number)
                await asyncio.sleep(0)

        async with turns:
            waiting = [asyncio.create_task(take(number)) for number in range(5)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[2].cancel()
            await asyncio.sleep(0)
        waiting[1].cancel()  # its turn has come, and it has not begun
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == [3, 4]
        await take(9)
        assert order == [3, 4, 9]

    asyncio.run(main())


def test_a_waiter_whose_event_loop_is_gone_is_passed_by():
    turns = Turns()
    loop = asyncio.new_event_loop()

    async def main():
        async with turns:
            gone = loop.create_future()
            turns._waiting.append(gone)
            loop.close()
        async with turns:
            pass

    asyncio.run(main())


def test_turns_are_the_same_for_a_name_as_long_as_anybody_holds_them():
    held = turns_of("a")
    assert turns_of("a") is held
    assert turns_of("b") is not held
