import asyncio

import pytest

from redraft.errors import ConfigError
from redraft.notes.note import Note, NotedTask, NoteUse, TaskReflection
from redraft.notes.notes import (
    Notes,
    TaskNotes,
    find_revision,
    find_task,
    find_version,
    payoff_of_notes,
    read_notes,
)
from redraft.notes.store import InMemoryReflectionStore, SqliteReflectionStore
from redraft.notes.task import TaskIdentity
from redraft.stores.sqlite import SqliteStore
from redraft.types import PlainTask

NOTES = tuple(Note(version, TaskReflection.of_first_run(f"Say {version}.", "")) for version in range(1, 5))


def uses(*rows):
    return tuple(NoteUse(f"r{number}", *row) for number, row in enumerate(rows))


def notes(in_force=4, used=(), **fields):
    return TaskNotes(
        NotedTask("id", "Say\nit.", run_count=4, in_force=in_force, **fields), NOTES, uses(*used)
    )


@pytest.mark.parametrize(
    ("wanted", "version"), [("2", 2), ("v3", 3), ("first", 1), ("last", 4), ("now", 2), ("02", 2)]
)
def test_a_version_is_found_by_number_or_name(wanted, version):
    assert find_version(notes(in_force=2).noted, wanted) == version


@pytest.mark.parametrize("wanted", ["0", "5", "v", "", "-1", "²", "latest"])
def test_unknown_versions_are_rejected(wanted):
    with pytest.raises(ConfigError, match="expected 1 to 4, first, last or now"):
        find_version(notes().noted, wanted)


def test_now_is_rejected_if_no_note_is_in_force():
    with pytest.raises(ConfigError, match="No note on this task is in force"):
        find_version(notes(in_force=None).noted, "now")
    assert notes(in_force=None).in_force is None


def test_notes_are_opened_in_any_form(tmp_path):
    store, path = SqliteReflectionStore(tmp_path / "notes.db"), tmp_path / "notes.db"
    asyncio.run(store.append(SIGNED, TaskReflection.of_first_run("Be brief.", "")))
    for database in (store, path, str(path), SqliteStore(path)):
        [task] = asyncio.run(Notes(database).list())
        assert task.noted.run_count == 1
    for wrong in (5, b"notes.db", [path]):
        with pytest.raises(ConfigError, match="database must be a file, a URL or a Store, got"):
            Notes(wrong)


SIGNED = PlainTask("Write a mail, signed by Anna Berg.")


@pytest.mark.parametrize(
    ("asked", "says"),
    [(SIGNED, "signed by Anna Berg. Be"), (PlainTask("mail"), "signed by [withheld: name]. Be")],
)
def test_the_note_for_a_caller_says_the_names_of_the_callers_own_task(asked, says):
    async def main():
        store = SqliteReflectionStore(":memory:")
        note = TaskReflection.of_first_run("Write a mail, signed by [withheld: name]. Be brief.", "")
        await store.append(SIGNED, note, name="mail")
        async with Notes(store) as notes:
            [advice] = await notes.advice(asked)
        assert says in advice.text

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "state"),
    [({}, "on"), ({"off": True, "why_off": "bad"}, "off"), ({"why_off": "rolled back"}, "rolled back")],
)
def test_state_is_on_off_or_rolled_back(fields, state):
    assert notes(**fields).state == state
    assert notes(**fields).title == "Say it."


@pytest.mark.parametrize(
    ("used", "since", "in_force", "before", "now", "trend"),
    [
        ([], 1, 4, None, None, [None]),
        ([(None, "none", 0.2), (None, "none", None), (None, "none", 0.4)], 1, 4, 0.3, None, [0.3]),
        ([(1, "note", 0.4), (2, "note", 0.6), (1, "control", 0.1)], 1, 4, None, 0.5, [None, 0.4, 0.6]),
        ([(1, "note", 0.0), *[(2, "note", 0.5)] * 5], 1, 4, None, 0.5, [None, 0.0, 0.5]),
        ([(2, "note", 0.5), (3, "note", 0.1)], 5, 2, None, 0.5, [None, 0.5, 0.1]),
        ([(2, "note", 0.5)], 1, None, None, None, [None, 0.5]),
    ],
)
def test_scores_before_notes_now_and_by_version(used, since, in_force, before, now, trend):
    task = notes(in_force, used, since=since)
    assert task.before == (before if before is None else pytest.approx(before))
    assert task.now == (now if now is None else pytest.approx(now))
    assert [each if each is None else round(each, 9) for each in task.trend] == trend


def test_the_benefit_of_notes_is_unknown_before_four_scores_on_each_side():
    few = notes(used=[(4, "note", 0.75)] * 9 + [(None, "control", 0.5)] * 2).payoff
    assert (few.with_runs, few.without_runs, few.answer) == (9, 2, "Not known")
    enough = notes(used=[(4, "note", 0.75)] * 11 + [(None, "control", 0.5)] * 10).payoff
    assert (enough.effect.mean, enough.answer) == (0.25, "Yes")


def test_the_benefit_of_notes_is_the_same_for_one_task_and_for_all_also_after_a_rollback():
    used = [(4, "note", 0.75)] * 3 + [(None, "control", 0.5)] * 2 + [(2, "control", 0.5)]
    task = notes(2, used, since=5, why_off="rolled back from version 4")
    assert (task.payoff.with_runs, task.payoff.without_runs) == (3, 2)
    assert task.payoff == payoff_of_notes([task])


@pytest.mark.parametrize(
    ("in_force", "fields", "said"),
    [
        (4, {}, ""),
        (None, {"off": True}, ""),
        (2, {"pinned": True, "since": 5}, ""),
        (
            3,
            {},
            "1 newer version is not in force: the trial keeps v3 until enough runs with it have a score.",
        ),
        (
            2,
            {"since": 5},
            "2 newer versions are not in force: v2 stays until a run that was given it adds the next.",
        ),
    ],
)
def test_the_reason_why_newer_versions_wait_is_stated(in_force, fields, said):
    assert notes(in_force, **fields).why_newer_wait == said


def test_read_notes_limits_runs_and_revisions_but_includes_the_essential_ones():
    task = PlainTask("Say it.")
    identity = TaskIdentity.of(task)

    async def main():
        store = InMemoryReflectionStore()
        for number in range(1, 31):
            before = number - 1 or None
            score = 0.2 if before is None else 0.8
            await store.record_use(
                identity, NoteUse(f"r{number}", before, "note" if before else "none", score)
            )
            reflection = TaskReflection.of_first_run(f"Say {number}.", "")
            await store.append(task, reflection, run_id=f"r{number}", based_on=before)
        noted = await store.rollback(identity, 3)
        few = await read_notes(store, noted, runs=5, revisions=4)
        assert [note.version for note in few.revisions] == [3, 27, 28, 29, 30]
        assert few.in_force.version == 3
        assert [use.run_id for use in few.uses] == ["r1", *(f"r{number}" for number in range(26, 31))]
        assert (few.before, few.trend[:2]) == (0.2, [0.2, 0.8])
        assert (await read_notes(store, noted, runs=30, revisions=0)).revisions == ()
        everything = await read_notes(store, noted)
        assert (len(everything.uses), len(everything.revisions)) == (30, 30)
        assert (await find_revision(store, noted, "v2")).version == 2

    asyncio.run(main())


def test_an_ambiguous_task_lists_some_matches():
    tasks = [NotedTask(f"{number}" * 64, f"Sum up page {number}, " + "word " * 20) for number in range(7)]
    with pytest.raises(ConfigError, match=r"00000000 Sum up page 0, .*\.\.\., 1111.* and 1 more\. Give more"):
        find_task(tasks, "sum UP")
    assert find_task(tasks, "333") is tasks[3]
    named = [*tasks, NotedTask("f" * 64, "Other.", name="sum up")]
    assert find_task(named, "sum up") is named[-1]  # a name is exact
