import asyncio
import gc
import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from redraft.errors import ConfigError, StoreError
from redraft.notes.note import Note, NotedTask, NoteUse, TaskReflection
from redraft.notes.store import (
    NOTED_TASK,
    InMemoryReflectionStore,
    PostgresReflectionStore,
    SqliteReflectionStore,
    notebook_of,
    project_notes,
    turn,
)
from redraft.notes.task import TaskIdentity
from redraft.notes.trial import Trial
from redraft.stores.base import Record
from redraft.types import PlainTask

TASK = PlainTask("Write about {topic}.", "A report.")
IDENTITY = TaskIdentity.of(TASK)
TOKENS = 100
START = datetime(2026, 11, 22, tzinfo=UTC)


def reflection(text, **fields):
    return TaskReflection(text, "A short report.", ("It was long.",), ("Say less.",), START, **fields)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def notes(request, tmp_path):
    if request.param == "memory":
        store = InMemoryReflectionStore()
    elif request.param == "sqlite":
        store = SqliteReflectionStore(tmp_path / "redraft.db")
    else:
        store = PostgresReflectionStore(request.getfixturevalue("postgres").url)
    yield store
    asyncio.run(store.aclose())


def use(number, version=None, arm="note", score=None):
    return NoteUse(f"run {number}", version, arm, score, START + timedelta(seconds=number))


async def append(notes, text, run_id="", based_on=None, **options):
    note, _ = await notes.append(TASK, reflection(text), run_id=run_id, based_on=based_on, **options)
    return note.version


async def in_force(notes):
    note = await notes.current(IDENTITY)
    return None if note is None else note.version


def test_store_replaces_the_reflection_that_retrieve_returns(notes):
    async def main():
        assert await notes.retrieve("a") is None
        first, later = reflection("one", run_count=3), reflection("two \ud800 \x00", run_count=4)
        await notes.store("a", first)
        assert await notes.retrieve("a") == first
        await notes.store("a", later)
        assert await notes.retrieve("a") == later
        await notes.store("a/00000001", first)  # a custom identity may contain a slash
        assert [note.reflection for note in await notes.revisions("a")] == [first, later]
        assert await notes.retrieve("b") is None

    asyncio.run(main())


def test_append_stores_a_revision_for_each_run(notes):
    async def main():
        assert await notes.append(TASK, reflection("one", run_count=7), run_id="r1", name="report") == (
            Note(1, reflection("one"), "r1", None, tokens=TOKENS),
            True,
        )
        second, is_first = await notes.append(TASK, reflection("two"), run_id="r2", based_on=1)
        assert (second.reflection.run_count, second.based_on, is_first) == (2, 1, False)
        assert await notes.retrieve(IDENTITY) == reflection("two", run_count=2)
        assert await notes.revision(IDENTITY, 1) == Note(1, reflection("one"), "r1", None, tokens=TOKENS)
        assert await notes.revision(IDENTITY, 3) is None
        assert [note.version for note in await notes.revisions(IDENTITY)] == [1, 2]
        expected = NotedTask(
            IDENTITY, TASK.description, TASK.expected_output, "report", 2, in_force=2, replaced=(1,)
        )
        assert await notes.noted(IDENTITY) == expected
        assert await notes.tasks() == [expected]
        assert await notes.noted("another") is None

    asyncio.run(main())


def test_current_reads_one_record_whatever_changed_before(monkeypatch):
    async def main():
        notes, reads = InMemoryReflectionStore(), []
        monkeypatch.setattr(notes, "_store", Watched(notes._store, reads))
        for text in ("one", "two", "three"):
            await append(notes, text, text, await in_force(notes))
        changes = (
            (3, None),
            (2, notes.rollback(IDENTITY, 2)),
            (None, notes.switch(IDENTITY, off=True)),
            (2, notes.switch(IDENTITY, off=False)),
            (None, notes.rollback(IDENTITY, None)),
            (3, notes.switch(IDENTITY, off=False)),
            (4, append(notes, "four", "four", 3)),
            (5, notes.store(IDENTITY, reflection("five", run_count=5))),
        )
        for expected, change in changes:
            if change is not None:
                await change
            reads.clear()
            note = await notes.current(IDENTITY)
            assert reads == ["get"]
            assert note == (None if expected is None else await notes.revision(IDENTITY, expected))

    asyncio.run(main())


class Watched:
    """Records the reads of a store."""

    def __init__(self, store, reads):
        self._inner, self._reads = store, reads

    def __getattr__(self, name):
        if name in ("get", "find"):
            self._reads.append(name)
        return getattr(self._inner, name)


def test_projects_on_one_server_see_only_their_own_notes(postgres, tmp_path, monkeypatch):
    async def main():
        found = []
        for folder, project in (("a", None), ("b", None), ("a", None), ("b", "one"), ("a", "one")):
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / "redraft.toml").touch()
            monkeypatch.chdir(tmp_path / folder)
            async with PostgresReflectionStore(postgres.url, project) as notes:
                found.append(await append(notes, "text"))
        monkeypatch.setenv("REDRAFT_PROJECT", "one")
        async with PostgresReflectionStore(postgres.url) as notes:
            found.append(await append(notes, "text"))
        assert found == [1, 1, 2, 1, 2, 3]
        monkeypatch.delenv("REDRAFT_HOME")
        monkeypatch.setenv("REDRAFT_DATABASE_URL", postgres.url)
        async with project_notes() as notes:  # what an ensemble without a store takes
            assert await in_force(notes) == 3

    asyncio.run(main())


def test_a_resumed_run_is_counted_once(notes):
    async def main():
        first = await notes.append(TASK, reflection("one"), run_id="r1")
        await append(notes, "two", "r2", 1)
        assert await notes.append(TASK, reflection("other"), run_id="r1") == first
        assert await asyncio.gather(*(append(notes, f"{n}", "r3", 2) for n in range(8))) == [3] * 8
        assert [note.run_id for note in await notes.revisions(IDENTITY)] == ["r1", "r2", "r3"]
        assert (await notes.noted(IDENTITY)).run_count == 3

    asyncio.run(main())


def test_a_process_killed_between_two_writes_loses_nothing(notes):
    async def main():
        await append(notes, "one", "r1")
        # What `append` writes first: the revision without its count.
        await notes._write(IDENTITY, Note(0, reflection("two"), "r2", 1))
        assert (await notes.noted(IDENTITY)).run_count == 1
        assert await append(notes, "three", "r3", 1) == 3
        assert await append(notes, "two", "r2", 1) == 2
        assert (await notes.noted(IDENTITY)).run_count == 3
        assert await in_force(notes) == 3

    asyncio.run(main())


def test_a_rollback_lasts_until_a_run_with_that_version_adds_a_note(notes):
    async def main():
        for number in range(1, 6):
            await append(notes, f"v{number}", f"r{number}", number - 1 or None)
        noted = await notes.rollback(IDENTITY, 2)
        assert (noted.in_force, noted.since, noted.off) == (2, 6, False)
        assert noted.why_off == "rolled back from version 5"
        assert await append(notes, "a run that began before", "r6", 5) == 6
        assert await in_force(notes) == 2
        assert await append(notes, "the next", "r7", 2) == 7
        assert await in_force(notes) == 7
        assert await append(notes, "the one after", "r8", 7) == 8
        assert await in_force(notes) == 8
        assert (await notes.noted(IDENTITY)).why_off == ""
        for version in (0, 9):
            with pytest.raises(ConfigError, match=f"no version {version} .*; expected 1 to 8"):
                await notes.rollback(IDENTITY, version)
        with pytest.raises(ConfigError, match="no notes on the task 'another'"):
            await notes.rollback("another", 1)

    asyncio.run(main())


def test_after_a_rollback_a_trial_waits_for_scored_runs_since_then(notes):
    async def main():
        trial = Trial(min_runs=2)
        for number in range(1, 5):
            await append(notes, f"v{number}", f"r{number}", number - 1 or None)
            await notes.record_use(IDENTITY, use(number, 1, score=0.5))
        await notes.rollback(IDENTITY, 1)
        found = []
        for number, arm, line in ((5, "control", 5), (6, "note", 1), (7, "note", 5), (8, "note", 5)):
            given = 1 if arm == "note" else None
            await notes.record_use(IDENTITY, NoteUse(f"run {number}", given, arm, 0.5))
            version = await append(notes, "more", f"r{number}", 1, trial=trial, arm=arm, line=line)
            found.append((version, await in_force(notes)))
        assert found == [(5, 1), (6, 1), (7, 7), (8, 7)]

    asyncio.run(main())


def test_a_pinned_version_stays_in_force_while_runs_add_notes(notes):
    async def main():
        for number in range(1, 4):
            await append(notes, f"v{number}", f"r{number}", number - 1 or None)
        noted = await notes.pin(IDENTITY, 1)
        assert (noted.in_force, noted.pinned, noted.why_off) == (1, True, "pinned")
        assert await append(notes, "four", "r4", 1, line=4) == 4
        await notes.store(IDENTITY, reflection("five", run_count=5))
        assert (await in_force(notes), (await notes.noted(IDENTITY)).run_count) == (1, 5)
        assert (await notes.switch(IDENTITY, off=True)).in_force is None
        assert (await notes.switch(IDENTITY, off=False)).pinned
        assert await notes.unpin(IDENTITY) == await notes.noted(IDENTITY)
        assert await append(notes, "six", "r6", 1) == 6
        assert await in_force(notes) == 6
        await notes.pin(IDENTITY, 2)
        await notes.erase(IDENTITY, [2])
        noted = await notes.noted(IDENTITY)
        assert (noted.in_force, noted.pinned) == (None, False)
        with pytest.raises(ConfigError, match=r"no version 9 .*; expected 1 to 6"):
            await notes.pin(IDENTITY, 9)

    asyncio.run(main())


def test_settle_records_that_notes_help_and_how_many_runs_go_without(notes):
    async def main():
        trial = Trial()
        await append(notes, "one", "r1")
        numbers = count(1)

        async def ten_more(with_note, without):
            for noise in (0, 0.1, 0.2, 0.1, 0, 0.1, 0.2, 0.1, 0, 0.1):
                await notes.record_use(IDENTITY, use(next(numbers), 1, score=with_note + noise))
                await notes.record_use(IDENTITY, use(next(numbers), None, "control", without + noise))
            assert await asyncio.gather(*(notes.settle(IDENTITY, trial) for _ in range(3))) == [None] * 3
            noted = await notes.noted(IDENTITY)
            return noted.is_shown, noted.control_share

        assert await notes.settle(IDENTITY, trial) is None
        assert not (await notes.noted(IDENTITY)).is_shown
        assert await ten_more(0.7, 0.2) == (True, pytest.approx(0.05))
        for _ in range(3):
            later = await ten_more(0.2, 0.2)
        assert later[1] > 0.05  # scores with notes have fallen, so more runs go without
        assert (await notes.rollback(IDENTITY, 1)).control_share is None

    asyncio.run(main())


def test_runs_count_again_after_a_clock_from_the_future():
    notes, years = InMemoryReflectionStore(), timedelta(days=9_000)

    async def main():
        await append(notes, "one", "r1")
        record = await notes._store.get(NOTED_TASK, IDENTITY)
        ahead = {"judged_until": (datetime.now(UTC) + years).isoformat(), "is_shown": True}
        await notes._store.put(Record(NOTED_TASK, IDENTITY, {**record.data, **ahead}))
        assert await notes.settle(IDENTITY, Trial()) is None
        assert (await notes.noted(IDENTITY)).judged_until <= datetime.now(UTC)
        # What a run with that clock stored does not move the time into the future again.
        late = datetime.now(UTC) + years
        for number in range(1, 11):
            at = late if number == 10 else datetime.now(UTC)
            await notes.record_use(IDENTITY, NoteUse(f"n{number}", 1, "note", 0.9 + number / 100, at))
            await notes.record_use(IDENTITY, NoteUse(f"c{number}", None, "control", number / 100, at))
        assert await notes.settle(IDENTITY, Trial()) is None
        noted = await notes.noted(IDENTITY)
        assert noted.is_shown
        assert noted.judged_until <= datetime.now(UTC)

    asyncio.run(main())


def test_notes_are_still_stored_while_they_are_off(notes):
    async def main():
        await append(notes, "one", "r1")
        assert await notes.switch(IDENTITY, off=True, why="they are wrong") == NotedTask(
            IDENTITY, TASK.description, TASK.expected_output, "", 1, None, off=True, why_off="they are wrong"
        )
        assert await notes.retrieve(IDENTITY) is None
        assert await append(notes, "two", "r2") == 2
        assert await in_force(notes) is None
        assert (await notes.switch(IDENTITY, off=False)).in_force == 1
        assert await in_force(notes) == 1
        noted = await notes.rollback(IDENTITY, None)
        assert (noted.off, noted.in_force) == (True, None)
        assert (await notes.switch(IDENTITY, off=False)).in_force == 2  # the newest, where none was left
        await notes.switch(IDENTITY, off=True)
        assert (await notes.rollback(IDENTITY, 1)).off is False
        assert await in_force(notes) == 1

    asyncio.run(main())


def test_uses_are_listed_by_time_with_one_for_each_run(notes):
    async def main():
        for each in (use(2, 1, score=0.5), use(1), use(3, None, "control", 0.25), use(2, 1, score=0.75)):
            await notes.record_use(IDENTITY, each)
        await notes.record_use("another", use(9))
        expected = [use(1), use(2, 1, score=0.75), use(3, None, "control", 0.25)]
        assert await notes.uses(IDENTITY) == expected
        assert len(await notes.uses(IDENTITY, latest=2)) == 2

    asyncio.run(main())


def test_a_trial_keeps_a_note_until_enough_runs_with_it_are_scored(notes):
    async def main():
        trial = Trial(min_runs=2)
        assert await append(notes, "one", "r1", trial=trial) == 1
        held = []
        for number in range(2, 7):
            version = await in_force(notes)
            await notes.record_use(IDENTITY, use(number, version, score=0.5))
            await append(notes, f"v{number}", f"r{number}", version, trial=trial)
            held.append(await in_force(notes))
        assert held == [1, 3, 3, 5, 5]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("against", "versions", "to", "reason"),
    [
        ("none", (1, None), None, "without notes"),
        ("previous", (2, 1), 1, "with version 1"),
    ],
)
def test_settle_rolls_back_a_harmful_note_once(notes, against, versions, to, reason):
    async def main():
        trial = Trial(against=against)
        await append(notes, "one", "r1")
        if against == "previous":
            await append(notes, "two", "r2", 1)
        for number in range(12):
            await notes.record_use(IDENTITY, use(number, versions[0], score=0.2 + number % 2 / 10))
            await notes.record_use(IDENTITY, use(number + 20, versions[1], "control", 0.8 + number % 2 / 10))
        done = await asyncio.gather(*(notes.settle(IDENTITY, trial) for _ in range(4)))
        (rollback,) = [each for each in done if each is not None]
        assert (rollback.version, rollback.to, rollback.without_runs) == (versions[0], to, 12)
        assert rollback.effect == pytest.approx(-0.6)
        noted = await notes.noted(IDENTITY)
        assert (noted.in_force, noted.off, noted.since) == (to, to is None, versions[0] + 1)
        assert reason in noted.why_off
        assert "-0.6" in noted.why_off or "0.60 lower" in noted.why_off
        assert await notes.settle(IDENTITY, trial) is None
        if to is None:
            assert await append(notes, "later", "r9") == 2
            assert await in_force(notes) is None  # until a person says so
            assert (await notes.switch(IDENTITY, off=False)).in_force == 2
        else:
            assert await append(notes, "later", "r9", to) == 3
            assert await in_force(notes) == 3

    asyncio.run(main())


def test_settle_changes_nothing_without_notes_or_a_verdict(notes):
    async def main():
        assert await notes.settle(IDENTITY, Trial()) is None
        await append(notes, "one", "r1")
        before = await notes.noted(IDENTITY)
        assert await notes.settle(IDENTITY, Trial()) is None
        assert await notes.noted(IDENTITY) == before

    asyncio.run(main())


def test_64_concurrent_runs_make_64_revisions(notes):
    async def main():
        await append(notes, "before")
        versions = await asyncio.gather(*(append(notes, f"n{n}", f"r{n}", 1) for n in range(64)))
        assert sorted(versions) == list(range(2, 66))
        assert {note.run_id for note in (await notes.revisions(IDENTITY))[1:]} == {f"r{n}" for n in range(64)}
        noted = await notes.noted(IDENTITY)
        assert (noted.run_count, noted.in_force) == (65, 65)
        assert (await notes.retrieve(IDENTITY)).run_count == 65

    asyncio.run(main())


def test_project_notes_are_stored_with_the_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REDRAFT_HOME", ".runs")

    async def main():
        async with project_notes() as notes:
            await append(notes, "one")
        async with project_notes() as notes:
            assert await in_force(notes) == 1

    asyncio.run(main())
    assert Path(".runs/redraft.db").is_file()
    monkeypatch.setenv("REDRAFT_HOME", "")
    assert isinstance(project_notes(), InMemoryReflectionStore)


# Custom stores, which keep only the latest note.

REFLECTION = TaskReflection.of_first_run("Write well.", "")


class Plain:
    """A store that loses a note if two runs write at once."""

    def __init__(self):
        self.reflections = {}
        self.threads = set()

    def store(self, identity, reflection):
        self.threads.add(threading.current_thread())
        time.sleep(0.0005)
        self.reflections[identity] = reflection

    def retrieve(self, identity):
        found = self.reflections.get(identity)
        time.sleep(0.0005)
        return found


class Async(Plain):
    async def store(self, identity, reflection):
        await asyncio.sleep(0)
        self.reflections[identity] = reflection

    async def retrieve(self, identity):
        found = self.reflections.get(identity)
        await asyncio.sleep(0)
        return found


class Mixed(Plain):
    async def retrieve(self, identity):
        return self.reflections.get(identity)


class Awaited(Plain):
    """Functions that return a coroutine."""

    def store(self, identity, reflection):
        return Async.store(self, identity, reflection)

    def retrieve(self, identity):
        return Async.retrieve(self, identity)


def test_built_in_stores_need_no_adapter():
    store = InMemoryReflectionStore()
    assert notebook_of(store) is store


@pytest.mark.parametrize("kind", [Plain, Async, Mixed, Awaited])
def test_64_concurrent_runs_are_counted_64_times_in_a_custom_store(kind):
    store = kind()
    store.reflections[IDENTITY] = TaskReflection("Write.", "", run_count=5)

    async def main():
        notes = notebook_of(store)
        appended = await asyncio.gather(*(notes.append(TASK, REFLECTION, run_id=f"r{n}") for n in range(64)))
        assert [note.reflection.run_count for note, _ in appended] == list(range(6, 70))
        assert not any(is_first for _, is_first in appended)

    asyncio.run(main())
    assert store.reflections[IDENTITY].run_count == 69
    assert threading.current_thread() not in store.threads  # so a slow disk does not block the event loop


def test_runs_in_different_threads_and_event_loops_take_turns():
    store = Plain()

    async def runs():
        notes = notebook_of(store)  # each has its own, as two ensembles do
        await asyncio.gather(*(notes.append(TASK, REFLECTION) for _ in range(8)))

    threads = [threading.Thread(target=asyncio.run, args=[runs()]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.reflections[IDENTITY].run_count == 64


def test_a_custom_store_keeps_only_the_latest_note():
    async def main():
        notes = notebook_of(Plain())
        assert await notes.current(IDENTITY) is None
        first, is_first = await notes.append(TASK, REFLECTION, run_id="r1")
        assert (first.version, is_first) == (1, True)
        note, is_first = await notes.append(TASK, REFLECTION, run_id="r2", based_on=1, name="it")
        assert (note.version, note.run_id, note.based_on, is_first) == (2, "r2", 1, False)
        current = await notes.current(IDENTITY)
        assert (current.version, current.reflection) == (2, note.reflection)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("store", "message"),
    [
        (object(), "has no 'store'"),
        (type("S", (), {"store": print})(), "has no 'retrieve'"),
        ({"store": 1}, "has no 'store'"),
        (type("S", (), {"store": print, "retrieve": 3})(), "has no 'retrieve'"),
    ],
)
def test_a_store_without_both_methods_is_rejected(store, message):
    with pytest.raises(ConfigError, match=message):
        notebook_of(store)


def test_bad_results_and_exceptions_of_a_custom_store_are_raised():
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
            await notes.append(TASK, REFLECTION)
        with pytest.raises(StoreError):
            await notes.append(TASK, REFLECTION)

    asyncio.run(main())


# Notes that alternate.

TEA, CUP, POT = "Name the tea.\nSay how hot.", "Name the cup.", "Name the pot.\nSay its size."
NUMBERS = ["Use 5 words.", "Use 7 words.", "Use 9 words."]
ALTERNATING = {
    "two": ([TEA, CUP] * 10, [TEA, CUP]),
    "three": ([TEA, CUP, POT] * 6, [TEA, CUP, POT]),
    "each for a while": (([TEA] * 4 + [CUP] * 4) * 3, [TEA, CUP]),
    "in another order of lines": ([TEA, CUP, "Say how hot.\nName the tea."] * 3, [TEA, CUP]),
    "in other white space, case and bullets": (
        [TEA, CUP, "- name  the TEA\n- say how hot\n"] * 3,
        [TEA, CUP],
    ),
    "in other numbers": (
        ["Use 5 words.", CUP, "Use 6 words.", CUP, "Use 7.5 words."],
        ["Use 5 words.", CUP],
    ),
    "numbers alone": (["Use 5 words.", "Use 7 words."] * 4, ["Use 5 words.", "Use 7 words."]),
    "new words": ([TEA, CUP, TEA, POT, TEA, CUP], [TEA, CUP, POT]),
    "new numbers": (NUMBERS, NUMBERS),
    "a line more": ([TEA, CUP, f"{TEA}\nAnd how strong."], [TEA, CUP, f"{TEA}\nAnd how strong."]),
}


async def changes_of(notes, written):
    """Append notes; return the texts that came into force, each once for as long as it stayed."""
    found = []
    for number, text in enumerate(written):
        present = await notes.current(IDENTITY)
        reflection = TaskReflection(TASK.description, text)
        await notes.append(TASK, reflection, run_id=f"r{number}", based_on=present and present.version)
        now = (await notes.current(IDENTITY)).reflection.refined_expected_output
        found += [now] if not found or found[-1] != now else []
    return found


@pytest.mark.parametrize(("written", "expected"), ALTERNATING.values(), ids=ALTERNATING)
@pytest.mark.parametrize(
    "made", [InMemoryReflectionStore, lambda: notebook_of(Plain())], ids=["own", "custom"]
)
def test_a_note_that_alternates_is_settled_and_a_new_one_replaces_it(made, written, expected):
    found = asyncio.run(changes_of(made(), written))
    assert [one.strip() for one in found] == expected


def test_a_note_that_is_shown_to_be_better_comes_back():
    async def main():
        notes = InMemoryReflectionStore()
        trial = Trial(min_runs=11)
        found = []
        for number in range(60):
            present = await notes.current(IDENTITY)
            said = present and present.reflection.refined_expected_output
            version = present and present.version
            use = NoteUse(f"r{number}", version, "note", 0.9 if said == TEA else 0.2 + number / 1000)
            await notes.record_use(IDENTITY, use)
            reflection = TaskReflection(TASK.description, TEA if number % 2 == 0 else CUP)
            await notes.append(TASK, reflection, run_id=f"r{number}", based_on=version, trial=trial)
            now = (await notes.current(IDENTITY)).reflection.refined_expected_output
            found += [now] if not found or found[-1] != now else []
        assert found == [TEA, CUP, TEA]

    asyncio.run(main())


# Turns.


def test_turns_are_taken_in_order_and_those_of_cancelled_tasks_are_skipped():
    async def main():
        order = []

        async def take(number):
            async with turn("a"):
                order.append(number)
                await asyncio.sleep(0)

        async with turn("a"):
            waiting = [asyncio.create_task(take(number)) for number in range(5)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[2].cancel()
            await asyncio.sleep(0)
            assert order == []
            async with turn("b"):  # another name does not wait
                pass
        waiting[1].cancel()  # its turn has come, and it has not begun
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == [3, 4]
        async with turn("a"):
            waiting = [asyncio.create_task(take(number)) for number in range(1_000)]
            await asyncio.sleep(0)
            for task in waiting[:-1]:
                task.cancel()
            await asyncio.sleep(0)
            assert order == [3, 4]
        await asyncio.gather(*waiting, return_exceptions=True)
        assert order == [3, 4, 999]

    asyncio.run(main())


def test_a_turn_is_not_taken_early_after_cancelled_ones():
    async def main():
        held = False

        async def take():
            async with turn("a"):
                assert not held

        async with turn("a"):
            held = True
            for _ in range(2):
                task = asyncio.create_task(take())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            del task
            gc.collect()
            last = asyncio.create_task(take())
            await asyncio.sleep(0.01)
            held = False
        await last

    asyncio.run(main())


def test_a_turn_passes_over_tasks_of_closed_event_loops():
    async def take():
        async with turn("a"):
            pass

    async def main():
        async with turn("a"):
            left = asyncio.new_event_loop()
            task = left.create_task(take())
            await asyncio.to_thread(left.run_until_complete, asyncio.sleep(0.01))
            task._log_destroy_pending = False
            left.close()
        async with asyncio.timeout(60):
            await take()

    asyncio.run(main())
