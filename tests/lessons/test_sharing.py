"""LessonSharing: two machines, each with a folder of its own, and one store."""

import asyncio
import json
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from redraft import MemoryStore
from redraft.errors import StoreError
from redraft.lessons import sharing as module
from redraft.lessons.folder import LessonFolder
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rules
from redraft.lessons.shared_log import SHARED, SharedLog, Version, digest_of
from redraft.lessons.sharing import LessonSharing, Seen, merged_rules, step_of
from redraft.retention import ProjectData
from redraft.stores.base import DamagedData, Record
from support.lessons import CONTENTS, DECISION, FAILURE, lesson

TODAY = date(2026, 3, 1)


class Machine:
    """A folder of lessons, and what shares it."""

    def __init__(self, path, store, name):
        self.path = path
        self.folder = LessonFolder(path, "clerk")
        self.rules = Rules(path, "clerk", today=lambda: TODAY)
        self.sharing = LessonSharing(path, store, machine=name)

    def sync(self, **options):
        return asyncio.run(self.sharing.sync(settle=False, **options))

    def learn(self, content=FAILURE, **changed):
        return self.folder.add(lesson(content, **({"agent": "clerk"} | changed))).id

    def file(self, lesson_id):
        return self.path / "reflections" / f"{lesson_id}.md"

    def texts(self):
        """Return the text of each file below the agents' folders, hidden ones left out."""
        root = self.path / "reflections"
        files = [one for one in root.rglob("*.md") if not one.relative_to(root).parts[0].startswith(".")]
        return {str(one.relative_to(root)): one.read_text() for one in files}


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def machines(tmp_path, store, monkeypatch):
    monkeypatch.setattr(module, "MISSING_FOR", 0.0)
    return Machine(tmp_path / "a", store, "a"), Machine(tmp_path / "b", store, "b")


def settle(*machines):
    """Compare on each machine in turn until nothing changes."""
    for _ in range(6):
        done = [machine.sync() for machine in machines]
        if not any(one.received or one.sent or one.is_waiting for one in done):
            return
    raise AssertionError("it goes on for ever")


def test_new_lessons_playbooks_and_rules_reach_the_other_machine(machines):
    a, b = machines
    first = a.learn()
    for content in CONTENTS[1:]:
        b.learn(content, summary=type(content).__name__)
    a.rules.add("Always ask the API for `next_cursor`.", first)
    Playbooks(a.path, "clerk", today=lambda: TODAY).add(
        Playbook("Fetch", ("Ask.", "Pass it on."), "The API says.", "success", "clerk", TODAY, "web")
    )
    settle(a, b)
    assert a.texts() == b.texts()
    assert len(a.texts()) == 6
    assert b.folder.read(first).content == FAILURE
    assert [rule.text for rule in b.rules.active()] == ["Always ask the API for `next_cursor`."]
    assert [one.title for one in Playbooks(b.path, "clerk", today=lambda: TODAY).active()] == ["Fetch"]


def test_an_edit_and_a_change_of_status_reach_the_other_machine(machines):
    a, b = machines
    known = a.learn()
    settle(a, b)
    b.folder.change(known, status="retired", why="It hurt.")
    settle(a, b)
    assert a.folder.read(known).status == "retired"
    text = a.file(known).read_text().replace("next_cursor", "next_page")
    a.file(known).write_text(text)
    settle(a, b)
    assert b.file(known).read_text() == text


def test_going_back_to_an_earlier_text_is_an_edit_like_any_other(machines):
    a, b = machines
    known = a.learn()
    settle(a, b)
    before = a.file(known).read_text()
    a.folder.change(known, status="retired", why="It hurt.")
    settle(a, b)
    a.file(known).write_text(before)
    settle(a, b)
    assert b.folder.read(known).status == "active"


def test_archiving_is_a_move_on_both_machines(machines):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.folder.archive(keep=0)
    settle(a, b)
    assert list(b.texts()) == [f"clerk/archive/2026/{known.partition('/')[2]}.md"]
    b.folder.change(known, status="retired", why="Old.")  # an edit here and a move there
    a.folder.path_of(known).rename(a.file(known))
    settle(a, b)
    assert list(a.texts()) == list(b.texts()) == [f"{known}.md"]
    assert a.folder.read(known).status == b.folder.read(known).status == "retired"


def test_a_conflict_keeps_both_versions_on_both_machines(machines, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.folder.change(known, content=replace(FAILURE, why="Because of A."))
    b.folder.change(known, content=replace(FAILURE, why="Because of B."))
    with caplog.at_level(logging.WARNING):
        a.sync()
        conflicts = b.sync().conflicts
        settle(a, b)
    assert conflicts == (f"{known}-conflict.md",)
    assert f"the version of this machine is kept as {known}-conflict.md" in caplog.text
    assert a.texts() == b.texts()
    assert a.folder.read(known).content.why == "Because of A."
    assert a.folder.read(f"{known}-conflict").content.why == "Because of B."
    assert len(a.texts()) == 2


def test_two_lessons_of_one_name_are_both_kept(machines):
    a, b = machines
    assert a.learn() == b.learn(DECISION)
    settle(a, b)
    assert a.texts() == b.texts()
    assert {one.kind for one in a.folder.lessons()} == {"failure", "decision"}


@pytest.mark.parametrize(
    ("on_a", "on_b", "status"),
    [
        ({"status": "retired", "why": "a"}, {"status": "active", "trust": "vouched"}, "active"),
        ({"status": "active", "trust": "vouched"}, {"status": "retired", "why": "b"}, "active"),
        ({"status": "active", "confidence": 0.8}, {"status": "retired", "why": "b"}, "retired"),
        ({"status": "retired", "why": "a"}, {"status": "quarantined", "confidence": 0.8}, "retired"),
    ],
)
def test_of_two_changes_of_the_front_matter_one_wins_on_both_machines(machines, on_a, on_b, status, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.folder.change(known, **on_a)
    b.folder.change(known, **on_b)
    settle(a, b)
    assert a.texts() == b.texts()
    assert [one.status for one in a.folder.lessons()] == [status]
    assert "was changed here" in caplog.text


def test_rules_that_two_machines_learn_are_merged(machines):
    a, b = machines
    a.rules.add("Always ask the API for `next_cursor`.")
    a.rules.add("Never pass a page number to the API.")
    settle(a, b)
    a.rules.add("Check that the total of an invoice is the sum of its lines.", "clerk/x")
    b.rules.add("Never answer an order without its number.", "clerk/y")
    b.rules.make_permanent("Never pass a page number to the API.")
    settle(a, b)
    assert a.texts() == b.texts()
    assert {rule.text for rule in a.rules.active()} == {
        "Always ask the API for `next_cursor`.",
        "Never pass a page number to the API.",
        "Check that the total of an invoice is the sum of its lines.",
        "Never answer an order without its number.",
    }
    assert [rule.text for rule in a.rules.permanent()] == ["Never pass a page number to the API."]
    assert not a.rules.broken()


def test_merged_rules_keep_what_either_added_and_drop_what_either_removed():
    before = "# Rules\n\n## Tactical\n\n- one\n- two\n"
    mine = "# Rules\n\n## Tactical\n\n- one\n- three\n  more of three\n\n## Own\nA text.\n"
    theirs = "# Rules\n\n## Tactical\n\n- two\n- four\n"
    merged = merged_rules(before, mine, theirs)
    assert merged == ("# Rules\n\n## Tactical\n\n- four\n- three\n  more of three\n\n## Own\nA text.\n"), (
        merged
    )
    assert merged_rules("", before, before) == before


def test_a_deleted_lesson_is_deleted_everywhere(machines):
    a, b = machines
    first, second = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    a.file(first).unlink()
    settle(a, b)
    assert list(b.texts()) == [f"{second}.md"]
    b.learn(FAILURE)  # the same name once more: a new lesson
    settle(a, b)
    assert a.texts() == b.texts()
    assert len(a.texts()) == 2


def test_a_lesson_that_is_deleted_here_and_changed_there_stays(machines, caplog):
    a, b = machines
    first, _ = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    a.file(first).unlink()
    b.folder.change(first, status="retired", why="It hurt.")
    settle(a, b)
    assert a.folder.read(first).status == b.folder.read(first).status == "retired"
    a.file(first).unlink()
    b.folder.change(first, status="active", why="")
    settle(b, a)
    assert a.folder.read(first).status == b.folder.read(first).status == "active"


def test_a_file_that_is_missing_only_for_a_moment_is_not_deleted(machines, monkeypatch):
    a, b = machines
    first, _ = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    monkeypatch.setattr(module, "MISSING_FOR", 60.0)
    text = a.file(first).read_text()
    a.file(first).unlink()
    assert a.sync().is_waiting
    a.file(first).write_text(text)
    assert a.sync().sent == b.sync().received == 0
    assert len(b.texts()) == 2


def vanish(path):
    shutil.rmtree(path / "reflections")


def empty(path):
    shutil.rmtree(path / "reflections" / "clerk")
    (path / "reflections" / "clerk").mkdir()


def vanish_agent(path):
    shutil.rmtree(path / "reflections" / "clerk")


def lose_most(path):
    for file in list((path / "reflections" / "clerk").glob("*.md"))[:-2]:
        file.unlink()


def lose_archive(path):
    shutil.rmtree(path / "reflections" / "clerk" / "archive")


def become_a_link(path):
    clerk = path / "reflections" / "clerk"
    clerk.rename(path / "elsewhere")
    clerk.symlink_to(path)


@pytest.mark.parametrize("how", [vanish, empty, vanish_agent, lose_most, lose_archive])
def test_a_folder_that_is_gone_or_almost_empty_deletes_nothing_and_is_filled_again(machines, how, caplog):
    a, b = machines
    for number in range(10):
        a.learn(replace(FAILURE, why=f"For the reason {number}."), summary=f"Number {number}")
    a.folder.archive(keep=8)
    settle(a, b)
    before = b.texts()
    how(a.path)
    settle(a, b)
    assert b.texts() == before == a.texts()
    if how is not vanish:
        assert "They are written again" in caplog.text


def test_a_folder_that_became_a_link_is_left_alone(machines, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    become_a_link(a.path)
    b.folder.change(known, status="retired", why="It hurt.")
    for machine in (a, b, a, b):
        machine.sync()
    assert list(b.texts()) == [f"{known}.md"]
    assert not list(a.path.glob("*.md"))
    assert "links are not followed" in caplog.text


def test_a_folder_that_cannot_be_read_deletes_nothing(machines, monkeypatch, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    scandir = os.scandir

    def fail(path):
        if str(path).endswith("/clerk"):
            raise OSError(5, "Input/output error")
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        a.sync()
        a.sync()
    assert caplog.text.count("Input/output error") == 1
    b.sync()
    assert list(b.texts()) == [f"{known}.md"]


def test_all_missing_files_are_deleted_on_request(machines):
    a, b = machines
    for number in range(3):
        a.learn(replace(FAILURE, why=f"For the reason {number}."), summary=f"Number {number}")
    settle(a, b)
    empty(a.path)
    assert a.sync(delete_missing=True).deleted == 3
    settle(a, b)
    assert not b.texts()


def test_a_machine_without_a_memory_takes_the_newer_version_of_what_it_has(machines, tmp_path, store):
    a, b = machines
    known, gone = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    image = tmp_path / "image"
    shutil.copytree(a.path, image)
    shutil.rmtree(image / "reflections" / ".shared")
    a.folder.change(known, status="retired", why="It hurt.")
    a.file(gone).unlink()
    settle(a, b)
    c = Machine(image, store, "c")
    settle(c, a, b)
    assert a.texts() == b.texts() == c.texts()
    assert list(c.texts()) == [f"{known}.md"]
    assert c.folder.read(known).status == "retired"


def test_secrets_are_withheld_on_the_way_and_names_with_secrets_stay_here(machines, store, caplog):
    a, b = machines
    key = "sk-proj-" + "Ab1" * 16
    known = a.learn()
    text = a.file(known).read_text().replace("Ask for", f"Take {key}. Ask for")
    a.file(known).write_text(text)
    other = a.learn(DECISION)
    a.file(other).rename(a.path / "reflections" / "clerk" / f"{key}.md")
    withheld = a.sync().withheld
    settle(a, b)
    assert "its name holds a secret" in withheld[f"clerk/{key}.md"]
    assert a.file(known).read_text() == text
    assert list(b.texts()) == [f"{known}.md"]
    assert "[withheld: api key]" in b.file(known).read_text()
    records = asyncio.run(store.find(SHARED))
    assert key not in json.dumps([dict(one.data) for one in records])
    assert key not in caplog.text
    a.file(known).write_text(text.replace("next_cursor", "next_page"))
    settle(a, b)
    assert "next_page" in b.file(known).read_text()


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_text("This is no lesson."),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text("x" * 1_000_001),
        lambda path: path.symlink_to("/etc/passwd"),
        Path.mkdir,
        os.mkfifo,
    ],
)
def test_what_is_no_lesson_stays_here_and_is_named_once(machines, make, caplog):
    a, b = machines
    known = a.learn()
    make(a.file("clerk/other"))
    a.sync()
    a.sync()
    settle(a, b)
    assert list(b.texts()) == [f"{known}.md"]
    assert caplog.text.count("clerk/other.md: ") == 1


def test_a_version_never_replaces_what_cannot_be_read(machines):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.file(known).unlink()
    a.file(known).symlink_to("/etc/hostname")
    b.folder.change(known, status="retired", why="It hurt.")
    b.sync()
    assert a.sync().is_behind
    assert a.file(known).is_symlink()
    a.file(known).unlink()
    settle(a, b)
    assert a.folder.read(known).status == "retired"


HOSTILE = [
    ("../escaped.md", ""),
    ("clerk/../../escaped.md", ""),
    ("clerk/../escaped.md", ""),
    ("/escaped.md", ""),
    ("clerk//escaped.md", ""),
    ("clerk/escaped.md", "../../.."),
    ("clerk/escaped.md", "2026/.."),
    ("clerk/.escaped.md", ""),
    ("clerk/escaped.txt", ""),
    ("clerk/other/escaped.md", ""),
    ("clerk/playbooks/../escaped.md", ""),
    (".shared/escaped.md", ""),
    ("..", ""),
    ("", ""),
    ("clerk/esc\0aped.md", ""),
    ("clerk/esc\naped.md", ""),
    ("clerk/..\\escaped.md", ""),
    (f"clerk/{'e' * 300}.md", ""),
    ("Clerk/escaped.md", ""),
    ("clerk/rules.md", "2026"),
    (7, ""),
    (None, ""),
    ("clerk/escaped.md", 7),
]


@pytest.mark.parametrize(("name", "place"), HOSTILE)
def test_a_name_from_the_store_never_leaves_the_folder(machines, store, tmp_path, name, place, caplog):
    a, _ = machines
    data = {"name": name, "text": "escaped", "place": place, "earlier": [], "log": "x"}
    asyncio.run(store.put(Record(SHARED, f"{1:012}", data)))
    known = a.learn()
    a.sync()
    assert "is invalid" in caplog.text
    assert not [one for one in tmp_path.rglob("*") if "escaped" in one.name or one.name == "rules.md"]
    assert list(a.texts()) == [f"{known}.md"]
    assert len(asyncio.run(store.find(SHARED))) == 2


@pytest.mark.parametrize("text", ["x" * 1_000_001, "\ud800", 7, ["a"]])
def test_a_text_that_no_file_can_have_is_left_out(machines, store, text, caplog):
    a, _ = machines
    data = {"name": "clerk/x.md", "text": text, "place": "", "earlier": 7}
    asyncio.run(store.put(Record(SHARED, f"{1:012}", data)))
    a.sync()
    assert "is invalid" in caplog.text
    assert not a.texts()


def test_links_below_the_folder_of_an_agent_are_not_followed(machines, tmp_path, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    outside = tmp_path / "outside"
    outside.mkdir()
    (b.path / "reflections" / "clerk" / "archive").symlink_to(outside)
    a.folder.archive(keep=0)
    a.sync()
    b.sync()
    assert not list(outside.rglob("*.md"))
    assert list(b.texts()) == [f"{known}.md"]
    assert "links are not followed" in caplog.text
    (b.path / "reflections" / "clerk" / "archive").unlink()
    settle(a, b)
    assert a.texts() == b.texts()


class Broken:
    """A store that fails at a call, as a process that is killed there, or as a database that is away."""

    def __init__(self, store, at):
        self._store, self._left = store, at

    def __getattr__(self, name):
        found = getattr(self._store, name)

        async def call(*args, **options):
            self._left -= 1
            if self._left < 0:
                raise StoreError("The database is away.")
            return await found(*args, **options)

        return call


@pytest.mark.parametrize("at", range(12))
def test_an_end_at_any_call_of_the_store_loses_and_doubles_nothing(tmp_path, store, at, monkeypatch):
    monkeypatch.setattr(module, "MISSING_FOR", 0.0)
    a, b = Machine(tmp_path / "a", store, "a"), Machine(tmp_path / "b", store, "b")
    known, gone = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    a.file(gone).unlink()
    a.learn(CONTENTS[1], summary="Another one")
    a.folder.change(known, content=replace(FAILURE, why="Because of A."))
    b.folder.change(known, content=replace(FAILURE, why="Because of B."))
    b.sync()
    a.sync()
    breaking = LessonSharing(a.path, Broken(store, at), machine="a")
    for _ in range(2):
        asyncio.run(breaking.try_sync(settle=False))
    again = Machine(a.path, store, "a")
    settle(again, b)
    assert again.texts() == b.texts()
    assert len(b.texts()) == 3
    assert {one.content.why for one in b.folder.lessons() if one.kind == "failure"} == {
        "Because of A.",
        "Because of B.",
    }


@pytest.mark.parametrize("at", range(1, 14))
def test_an_end_at_any_write_of_a_file_loses_and_doubles_nothing(tmp_path, store, at, monkeypatch):
    monkeypatch.setattr(module, "MISSING_FOR", 0.0)
    a, b = Machine(tmp_path / "a", store, "a"), Machine(tmp_path / "b", store, "b")
    known = a.learn()
    a.rules.add("Always ask the API for `next_cursor`.")
    settle(a, b)
    a.folder.change(known, content=replace(FAILURE, why="Because of A."))
    b.folder.change(known, content=replace(FAILURE, why="Because of B."))
    a.rules.add("Check that the total of an invoice is the sum of its lines.")
    b.rules.add("Never answer an order without its number.")
    a.learn(DECISION, summary="Which one")
    a.sync()

    class Killed(BaseException):
        pass

    left = at
    with monkeypatch.context() as patch:
        for name in ("replace_file", "create_file", "add_file"):
            real = getattr(module, name)

            def dies(*args, real=real, **options):
                nonlocal left
                left -= 1
                if left == 0:
                    raise Killed
                found = real(*args, **options)
                left -= 1
                if left == 0:
                    raise Killed
                return found

            patch.setattr(module, name, dies)
        with suppress(Killed):
            b.sync()
    again = Machine(b.path, store, "b")
    settle(again, a)
    assert again.texts() == a.texts()
    assert len(a.texts()) == 4
    assert len(a.rules.active()) == 3


def test_an_edit_in_the_moment_before_a_version_is_written_is_not_lost(machines, monkeypatch):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.folder.change(known, content=replace(FAILURE, why="Because of A."))
    a.sync()
    decide = module.step_of

    def edited_meanwhile(*given):
        path = b.file(known)  # by an editor, which knows of no lock
        path.write_text(path.read_text().replace(FAILURE.why, "Because of B."))
        return decide(*given)

    with monkeypatch.context() as patch:
        patch.setattr(module, "step_of", edited_meanwhile)
        b.sync()
    settle(a, b)
    assert a.texts() == b.texts()
    assert {one.content.why for one in a.folder.lessons()} == {"Because of A.", "Because of B."}


def test_an_edit_in_the_moment_before_a_file_is_deleted_is_not_lost(machines, monkeypatch):
    a, b = machines
    known, _ = a.learn(), a.learn(DECISION, summary="Which one")
    settle(a, b)
    a.file(known).unlink()
    for _ in range(2):
        a.sync()
    decide = module.step_of

    def edited_meanwhile(*given):
        path = b.file(known)
        path.write_text(path.read_text().replace(FAILURE.why, "Because of B."))
        return decide(*given)

    with monkeypatch.context() as patch:
        patch.setattr(module, "step_of", edited_meanwhile)
        b.sync()
    settle(a, b)
    assert a.folder.read(known).content.why == b.folder.read(known).content.why == "Because of B."


def test_a_process_that_was_stopped_does_not_overwrite_what_another_has_seen_since(machines, store):
    a, b = machines
    known = a.learn()
    settle(a, b)
    stopped = Machine(a.path, store, "a")

    async def begin():
        one = await stopped.sharing._begin(settle=False)
        stopped.sharing._compare(one, delete_missing=False)
        return one

    one = asyncio.run(begin())
    b.folder.change(known, status="retired", why="It hurt.")
    settle(b, a)
    state = a.path / "reflections" / ".shared" / "state.json"
    before = state.read_text()
    one.state.files.clear()  # as if it had found something to write
    stopped.sharing._save(one)
    assert state.read_text() == before


def test_two_processes_share_one_folder(machines, store):
    a, b = machines
    beside = Machine(a.path, store, "a")
    known = a.learn()
    settle(a, beside, b)
    b.folder.change(known, content=replace(FAILURE, why="Because of B."))
    beside.learn(DECISION, summary="Which one")

    async def all_at_once():
        await asyncio.gather(*(one.sharing.sync(settle=False) for one in (a, beside, b)))

    for _ in range(3):
        asyncio.run(all_at_once())
    settle(a, beside, b)
    assert a.texts() == b.texts()
    assert len(a.texts()) == 2


RULES_OF = {
    "a": "Always ask the API for `next_cursor`.",
    "b": "Never pass a page number to the API.",
    "c": "Check that the total of an invoice is the sum of its lines.",
    "d": "Never answer an order without its number.",
}


def test_many_machines_that_learn_at_once_end_up_equal(tmp_path, store):
    machines = [Machine(tmp_path / name, store, name) for name in "abcd"]
    for machine in machines:
        for number in range(3):
            why = f"Because of {machine.path.name} {number}."
            machine.learn(replace(FAILURE, why=why), summary=f"The one {number}")
        machine.rules.add(RULES_OF[machine.path.name])

    async def all_at_once():
        await asyncio.gather(*(one.sharing.sync(settle=False) for one in machines))

    for _ in range(3):
        asyncio.run(all_at_once())
    settle(*machines)
    assert len({json.dumps(one.texts(), sort_keys=True) for one in machines}) == 1
    assert len(list(machines[0].folder.lessons())) == 12
    assert len(machines[0].rules.active()) == 4


def test_another_or_older_database_is_noticed(machines, tmp_path, caplog):
    a, b = machines
    first = a.learn()
    settle(a, b)
    new = MemoryStore()
    a, b = Machine(a.path, new, "a"), Machine(b.path, new, "b")
    a.learn(DECISION, summary="Which one")
    settle(b, a)
    assert a.texts() == b.texts()
    assert f"{first}.md" in a.texts()
    assert "compared with the files again" in caplog.text


def test_an_outage_is_logged_once_and_nothing_is_lost(machines, store, caplog):
    a, b = machines
    away = Broken(store, 0)
    a.sharing._log = SharedLog(away)
    known = a.learn()
    for _ in range(3):
        assert asyncio.run(a.sharing.try_sync(settle=False)) is None
    a.sharing._log = SharedLog(store)
    assert asyncio.run(a.sharing.try_sync(settle=False)).sent == 1
    b.sync()
    assert list(b.texts()) == [f"{known}.md"]
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said == [
        "Lessons are not shared between machines for now: The database is away.",
        "Lessons are shared between machines again.",
    ]


def test_a_file_is_shared_once_nobody_writes_it(machines):
    a, b = machines
    known = a.learn()
    first = asyncio.run(a.sharing.sync())
    assert (first.sent, first.is_waiting) == (0, True)
    os.utime(a.file(known), ns=(1, 1))
    assert asyncio.run(a.sharing.sync()).sent == 1
    b.sync()
    assert list(b.texts()) == [f"{known}.md"]


def test_a_damaged_memory_is_as_good_as_none(machines, caplog):
    a, b = machines
    known = a.learn()
    settle(a, b)
    (a.path / "reflections" / ".shared" / "state.json").write_text('{"files": 7}')
    settle(a, b)
    assert list(a.texts()) == list(b.texts()) == [f"{known}.md"]
    assert "can't be read" in caplog.text


def test_a_damaged_version_holds_up_no_other(machines, store):
    a, b = machines
    known = a.learn()
    settle(a, b)
    a.learn(DECISION, summary="Which one")
    a.folder.change(known, status="retired", why="It hurt.")

    class Damaged(Broken):
        """A store in which no version can be read."""

        def __getattr__(self, name):
            if name != "find":
                return getattr(self._store, name)

            async def find(*args, **options):
                found = await self._store.find(*args, **options)
                return [replace(one, data=DamagedData("It is damaged.")) for one in found]

            return find

    a.sharing._log = SharedLog(Damaged(store, 0))
    assert a.sync().sent == 2
    settle(b)
    assert a.texts() == b.texts()


def test_the_log_has_one_record_for_each_file(machines, store):
    a, b = machines
    known = a.learn()
    for number in range(5):
        a.folder.change(known, why=f"{number}")
        settle(a, b)
    assert len(asyncio.run(store.find(SHARED))) == 1


def test_what_is_remembered_is_not_for_git_nor_for_others(machines):
    a, _ = machines
    a.learn()
    a.sync()
    folder = a.path / "reflections" / ".shared"
    assert (folder / ".gitignore").read_text().endswith("*\n")
    assert folder.stat().st_mode & 0o777 == 0o700


def test_nothing_is_read_or_written_while_nothing_changes(machines, monkeypatch):
    a, b = machines
    for number in range(5):
        a.learn(replace(FAILURE, why=f"For the reason {number}."), summary=f"Number {number}")
    settle(a, b)
    for file in a.texts():
        os.utime(a.path / "reflections" / file, ns=(1, 1))
    settle(a, b)

    def never(*_args, **_options):
        raise AssertionError("a file was touched")

    for name in ("read_text", "replace_file", "create_file", "locked"):
        monkeypatch.setattr(module, name, never)
    a.sync()


OLD, NEW, OTHER = "old", "new", "other"


def test_what_is_forgotten_is_forgotten_on_all_machines(machines, store, tmp_path):
    a, b = machines
    kept, _ = (
        a.learn(),
        b.learn(replace(FAILURE, why="the Quokka 2000 said so."), summary="Ask the Quokka 2000"),
    )
    for number in range(3):
        b.learn(replace(FAILURE, why=f"the Quokka 2000 said {number}."), summary=f"Number {number}")
    a.rules.add("Always ask the API for `next_cursor`.")
    a.rules.add("Never pass a page number to the Quokka 2000.")
    settle(b, a)
    b.learn(replace(FAILURE, why="the Quokka 2000 said more."), summary="Of b alone")
    b.sync()
    data = ProjectData(store, a.path, tmp_path / "nowhere")
    checked = asyncio.run(data.forget(text="the quokka 2000", check=True)).counts
    assert (checked["lesson"], checked["rule"], checked["shared file"]) == (4, 1, 6)
    asyncio.run(data.forget(text="the quokka 2000"))
    settle(b, a)
    assert a.texts() == b.texts()
    assert list(a.texts()) == [f"{kept}.md", "clerk/rules.md"]
    assert [rule.text for rule in b.rules.active()] == ["Always ask the API for `next_cursor`."]
    records = asyncio.run(store.find(SHARED))
    left = [json.dumps([dict(one.data) for one in records])]
    left += [(one.path / "reflections" / ".shared" / "state.json").read_text() for one in machines]
    assert not [text for text in left if "quokka" in text.casefold()]


def version(text, *earlier):
    return Version("clerk/x.md", text, earlier=tuple(map(digest_of, earlier)), number=2)


def seen(text):
    return Seen(1, digest_of(text), digest_of(text))


STEPS = [
    (version(NEW), None, None, "write"),
    (version(NEW), seen(OLD), None, "write"),
    (version(NEW), seen(OLD), OLD, "write"),
    (version(NEW), seen(OLD), NEW, "keep"),
    (version(NEW), None, NEW, "keep"),
    (version(NEW), seen(OLD), OTHER, "conflict"),
    (version(NEW), None, OTHER, "conflict"),
    (version(NEW, OLD), None, OLD, "write"),
    (version(NEW, OTHER), seen(OLD), OTHER, "conflict"),
    (version(None), None, None, "forget"),
    (version(None), seen(OLD), None, "forget"),
    (version(None, OLD), seen(OLD), OLD, "remove"),
    (version(None, OLD), None, OLD, "remove"),
    (version(None, OLD), seen(OLD), OTHER, "offer"),
    (version(None), None, OTHER, "offer"),
]


@pytest.mark.parametrize(("new", "before", "mine", "step"), STEPS)
def test_the_step_follows_from_what_was_seen_what_is_here_and_what_is_new(new, before, mine, step):
    assert step_of(new, before, mine, lambda text: text) == step
