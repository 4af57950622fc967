"""Documents: lessons, playbooks and rules as files in a folder, and as records on a PostgreSQL server."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import date, timedelta

import pytest

from redraft import Lessons
from redraft.errors import LessonFileError, StoreError
from redraft.lessons import documents as module
from redraft.lessons.documents import LOCK, LessonFiles, LessonRecords, documents_of, text_of
from redraft.lessons.facts import FactFinding, file_findings
from redraft.lessons.folder import LessonFolder
from redraft.lessons.index import LessonIndex
from redraft.lessons.library import LessonLibrary
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.ranking import LessonQuery
from redraft.lessons.rules import Rules
from redraft.retention.checkup import check_data
from redraft.stores import PostgresStore, location
from redraft.stores.base import Record
from redraft.web.rendering import digest
from support.commands import document, redraft
from support.dashboards import TOKEN, guarded
from support.learning_agents import SYSTEMIC, TASK, learning, run, writer
from support.lessons import DECISION, FAILURE, PARTIAL, lesson

AGENT = "researcher-agent"
DAY = date(2026, 3, 1)


@pytest.fixture
def store(postgres):
    opened = PostgresStore(postgres.url, "shop")
    yield opened
    asyncio.run(opened.aclose())


@pytest.fixture(params=["files", "records"])
def documents(request, tmp_path, monkeypatch):
    """Each of the two places where documents can be."""
    monkeypatch.chdir(tmp_path)
    if request.param == "files":
        return LessonFiles(tmp_path / "memory")
    return LessonRecords(request.getfixturevalue("store"), tmp_path / "memory")


@pytest.fixture
def project(postgres, tmp_path, monkeypatch):
    """A project on PostgreSQL."""
    (tmp_path / "redraft.toml").touch()
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "DATABASE_URL": postgres.url,
        "PROJECT": "shop",
        "HOME": ".redraft",
        "EMBEDDER": "none",
    }.items():
        monkeypatch.setenv(f"REDRAFT_{name}", value)
    monkeypatch.setattr(location, "_opened", {})
    yield tmp_path
    for store in location._opened.values():
        asyncio.run(store.aclose())


def elsewhere(postgres, tmp_path):
    """The same records as another machine sees them."""
    other = PostgresStore(postgres.url, "shop")
    return other, LessonRecords(other, tmp_path / "other")


# --- both ---------------------------------------------------------------------------------------------------


def test_a_document_is_added_read_replaced_archived_and_deleted(documents):
    names = [documents.add(f"{AGENT}/2026-03-01-api", f"text {number}") for number in range(3)]
    assert names == [f"{AGENT}/2026-03-01-api{end}" for end in ("", "-2", "-3")]
    documents.add(f"{AGENT}/playbooks/2026-03-01-api", "a playbook")
    documents.add(f"{AGENT}/rules.md", "rules")
    assert list(documents.agents()) == [AGENT]
    assert [entry.id for entry in documents.entries(AGENT)] == names
    assert [entry.id for entry in documents.entries(f"{AGENT}/playbooks")] == [
        f"{AGENT}/playbooks/2026-03-01-api"
    ]
    documents.replace(documents.entry(names[1]), "changed")
    assert documents.archive(documents.entry(names[0]), 2026)
    entries = list(documents.entries(AGENT))
    assert [(entry.id, entry.archived) for entry in entries] == [
        (names[1], False),
        (names[2], False),
        (names[0], True),
    ]
    assert [text for _, text in documents.texts(entries, of="a lesson")] == ["changed", "text 2", "text 0"]
    assert [entry.id for entry in documents.entries(AGENT, archived=False)] == names[1:]
    documents.delete(documents.entry(names[2]))
    documents.delete(entries[1])
    assert documents.entry(names[2]) is None
    assert text_of(documents, documents.entry(f"{AGENT}/rules.md"), of="rules") == "rules"
    assert documents.add(f"{AGENT}/2026-03-01-api", "new") == f"{AGENT}/2026-03-01-api-3"


def test_the_state_of_an_agent_changes_with_each_document(documents):
    states = [documents.state(AGENT)]
    name = documents.add(f"{AGENT}/2026-03-01-a", "a")
    states.append(documents.state(AGENT))
    documents.archive(documents.entry(name), 2026)
    states.append(documents.state(AGENT))
    assert states[0] == 0
    assert len(set(states)) == 3


def test_a_missing_text_is_an_error_of_its_own(documents):
    names = [documents.add(f"{AGENT}/2026-03-01-{letter}", letter) for letter in "ab"]
    entries = list(documents.entries(AGENT))
    documents.delete(documents.entry(names[0]))
    texts = [text for _, text in documents.texts(entries, of="a lesson")]
    assert isinstance(texts[0], StoreError)
    assert texts[1] == "b"


def test_writers_of_one_folder_take_turns(documents):
    inside, seen = [], []

    def work():
        for _ in range(3):
            with documents.locked(AGENT):
                inside.append(1)
                seen.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1] * 12


def test_lessons_rules_and_playbooks_are_the_same_in_both(documents):
    folder = LessonFolder(documents, AGENT)
    first, is_new = folder.file(lesson())
    assert is_new
    again, is_new = folder.file(lesson(source="another"))
    assert (again.id, again.confidence, is_new) == (first.id, 0.8, False)
    for number in range(31):
        folder.add(lesson(DECISION, day=DAY + timedelta(days=1 + number), summary=f"n {number}"))
    assert folder.archive() == [first.id, f"{AGENT}/2026-03-02-n-0"]
    assert folder.change(first.id, status="retired", why="It hurt.") == folder.read(first.id)
    rules = Rules(documents, AGENT, today=lambda: DAY)
    rules.add("Ask for `next_cursor` first.", first.id)
    rules.add("Read the status before the body.")
    assert [rule.source for rule in rules.active()] == ["", first.id]
    assert [rule.source for rule in rules.drop(first.id)] == [first.id]
    playbooks = Playbooks(documents, AGENT, today=lambda: DAY)
    filed = playbooks.add(Playbook("Fetch", ("Ask.",), "The API says.", AGENT, DAY, "web", lesson=first.id))
    assert Playbooks(documents, AGENT, today=lambda: DAY).for_task("web") == [filed]
    assert playbooks.drop(first.id) == [filed]
    assert playbooks.active() == []


def test_the_index_follows_documents(documents):
    folder = LessonFolder(documents, AGENT)
    query = LessonQuery("Fetch the price list of the shop.", agent=AGENT)

    async def main():
        index = LessonIndex(documents)
        found = [[]]
        kept = folder.add(lesson())
        for change in (
            lambda: folder.add(lesson(PARTIAL, summary="Another")),
            lambda: folder.change(kept.id, status="retired"),
            lambda: folder.delete(folder.entry_of(f"{AGENT}/2026-03-01-another")),
        ):
            change()
            found.append(sorted(one.lesson.id for one in await index.search(query)))
        rebuilt = await index.rebuild()
        return kept.id, found[1:], rebuilt

    kept, found, rebuilt = asyncio.run(main())
    other = f"{AGENT}/2026-03-01-another"
    assert found == [sorted([kept, other]), [other], []]
    assert rebuilt.lessons == 1


# --- records ------------------------------------------------------------------------------------------------


def test_a_version_that_another_machine_replaced_is_never_overwritten(store, postgres, tmp_path):
    documents = LessonRecords(store, tmp_path)
    other, theirs = elsewhere(postgres, tmp_path)
    name = documents.add(f"{AGENT}/2026-03-01-a", "first")
    read = documents.entry(name)
    theirs.replace(theirs.entry(name), "second")
    with pytest.raises(StoreError, match="another process has just changed or deleted it"):
        documents.replace(read, "third")
    assert not documents.archive(read, 2026)
    assert text_of(documents, documents.entry(name), of="a lesson") == "second"
    theirs.delete(theirs.entry(name))
    theirs.add(name, "a new document of that name")
    with pytest.raises(StoreError):
        documents.replace(read, "third")
    asyncio.run(other.aclose())


def test_writes_of_another_machine_are_visible_once_a_listing_is_old(store, postgres, tmp_path, monkeypatch):
    documents = LessonRecords(store, tmp_path)
    other, theirs = elsewhere(postgres, tmp_path)
    name = theirs.add(f"{AGENT}/2026-03-01-a", "first")
    assert text_of(documents, documents.entry(name), of="a lesson") == "first"
    theirs.replace(theirs.entry(name), "second")
    monkeypatch.setattr(module, "LISTING_AGE", 0.0)
    assert text_of(documents, documents.entry(name), of="a lesson") == "second"
    theirs.delete(theirs.entry(name))
    assert list(documents.entries(AGENT)) == []
    asyncio.run(other.aclose())


def test_facts_are_merged_wherever_they_are(documents):
    folder = LessonFolder(documents, AGENT)
    about = lesson(FAILURE, agent=AGENT, day=DAY, source="r1")
    first = FactFinding("ln", "has the columns cpy", "E1", "checked")
    [(filed, is_new)] = file_findings(folder, [first], about)
    more = [FactFinding("ln", "has the columns mb", "E2", "checked"), replace(first, subject="bk")]
    [(merged, again), (other, _)] = file_findings(folder, more, replace(about, source="r2"))
    assert (is_new, again, merged.id) == (True, False, filed.id)
    assert merged.content.statement == "has the columns cpy, mb"
    assert sorted(one.id for one in folder.lessons()) == sorted((filed.id, other.id))
    assert folder.read(filed.id) == merged


def test_the_lock_of_a_dead_process_is_taken_over(store, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LEASE", 0.1)
    documents = LessonRecords(store, tmp_path)
    asyncio.run(store.put(Record(LOCK, AGENT, {"by": "a process that was killed"})))
    with documents.locked(AGENT):
        assert asyncio.run(store.get(LOCK, AGENT)).data["by"]
    assert asyncio.run(store.get(LOCK, AGENT)).data["by"] == ""


def test_a_damaged_record_does_not_hide_others(store, postgres, tmp_path):
    documents = LessonRecords(store, tmp_path)
    for letter in "ab":
        documents.add(f"{AGENT}/2026-03-01-{letter}", letter)
    postgres.ask("UPDATE redraft_records SET data = '{' WHERE key LIKE '%-a'")
    texts = [text for _, text in documents.texts(list(documents.entries(AGENT)), of="a lesson")]
    assert "damaged" in str(texts[0])
    assert texts[1] == "b"


def test_isolated_stores_and_other_projects_see_no_lesson(postgres, tmp_path, monkeypatch):
    async def main(*stores):
        taught = Lessons(agent="clerk", store=stores[0], auto=False, embedder="none")
        known = await taught.record(FAILURE, TASK)
        counts = []
        for number, store in enumerate(stores):
            lessons = Lessons(agent="clerk", store=store, auto=False, embedder="none")
            counts.append((len(await lessons.find()), len(await lessons.search(TASK))))
            if number:
                with pytest.raises(LessonFileError, match="No such lesson"):
                    await lessons.edit(known.id, FAILURE)
            await lessons.aclose()
        await taught.aclose()
        session = await stores[1].session()
        cursor = await session.execute("SELECT count(*) FROM redraft_agent_records WHERE kind = 'lesson'")
        counts.append(await cursor.fetchone())
        await session.close()
        for store in stores:
            await store.aclose()
        return counts

    monkeypatch.chdir(tmp_path)
    spaces = [PostgresStore(postgres.url, name, isolated=True) for name in ("a", "b")]
    plain = [PostgresStore(postgres.url, name) for name in ("a", "b")]
    assert asyncio.run(main(*spaces, *plain)) == [(1, 1), (0, 0), (0, 0), (0, 0), (0,)]


def test_the_place_follows_the_path_then_the_store(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert isinstance(documents_of(None, store), LessonRecords)
    assert isinstance(documents_of("memory", store), LessonFiles)
    assert str(documents_of(None, None)).endswith("memory")
    kept = documents_of(None, store).index
    assert kept.is_relative_to(tmp_path / "memory" / ".index")
    assert kept != documents_of(None, PostgresStore("postgresql:///x")).index


def test_a_run_recalls_what_a_run_on_another_machine_has_learned(store, postgres, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other, _ = elsewhere(postgres, tmp_path)

    async def main():
        prompts = []
        async with learning(None, store=store, agent="clerk", model=writer(SYSTEMIC), trusted=True) as first:
            await run(first, 0.0, prompts=prompts)
        async with learning(None, store=other, agent="clerk", trusted=True) as second:
            await run(second, 0.0, prompts=prompts)
            [found] = await second.find()
            assert len(await second.due()) == 1  # its own, which no model writes here
        await other.aclose()
        return prompts, found

    prompts, found = asyncio.run(main())
    assert [SYSTEMIC["do_differently"] in prompt for prompt in prompts] == [False, True]
    assert SYSTEMIC["principle"] in prompts[1]
    assert found.source
    assert not list((tmp_path / "memory").rglob("*.md"))


WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from redraft.stores import PostgresStore
from redraft.lessons.documents import LessonRecords
from redraft.lessons.folder import LessonFolder
from support.lessons import FAILURE, lesson

url, name, count = sys.argv[1:]
folder = LessonFolder(LessonRecords(PostgresStore(url, "shop"), Path("memory")), "researcher-agent")
for number in range(int(count)):
    words = " ".join(f"{name}{letter}{number}" for letter in "abcdefghij")
    content = replace(FAILURE, what_happened=words, why=words, do_differently=words)
    print(folder.file(lesson(content, source=f"{name}-{number}"))[0].id, flush=True)
"""


def test_concurrent_or_killed_writers_neither_lose_nor_repeat_documents(store, postgres, tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}

    def started(name, count):
        command = [sys.executable, "-c", WRITER, postgres.url, name, str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)

    killed, *others = [started("k", 10_000), started("x", 6), started("y", 6)]
    filed = [killed.stdout.readline().strip() for _ in range(3)]
    killed.send_signal(signal.SIGKILL)
    filed += killed.communicate()[0].split()
    filed += [line for one in others for line in one.communicate(timeout=120)[0].split()]
    assert [one.returncode for one in others] == [0, 0]
    again = started("k", 3)  # the run is resumed
    assert again.communicate(timeout=120)[0].split() == filed[:3]
    folder = LessonFolder(LessonRecords(store, tmp_path), AGENT)
    lessons = list(folder.lessons(archived=True))
    sources = [lesson.source for lesson in lessons]
    assert len(sources) == len(set(sources))
    assert set(filed) <= {lesson.id for lesson in lessons}
    assert {f"{name}-{number}" for name in "xy" for number in range(6)} <= set(sources)


# --- commands on records ------------------------------------------------------------------------------------


def learn(content=FAILURE, **changed):
    library = LessonLibrary()
    return asyncio.run(library.add(lesson(content, **changed)))[0].id


def editor(monkeypatch, path, script):
    """Make an editor of a Python script that gets the file as `path`."""
    path.write_text(
        f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\npath = Path(sys.argv[1])\n{script}\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(path))


def test_commands_read_and_change_records(project, monkeypatch):
    known = learn()
    assert not (project / "memory" / "reflections").exists()
    listed = document(redraft("lessons", "list", "--json"))
    assert [lesson["id"] for lesson in listed["lessons"]] == [known]
    assert listed["path"].startswith("the PostgreSQL database ")
    result = redraft("lessons", "show", "last")
    assert f"record {known}" in result.stdout
    assert "## What happened?" in result.stdout
    assert redraft("lessons", "retire", "last", "--why", "It hurt.").exit_code == 0
    assert "retired" in redraft("lessons", "list").stdout
    assert redraft("lessons", "approve", "last").exit_code == 0
    editor(monkeypatch, project / "editor", "path.write_text(path.read_text().replace('page 3', 'page 4'))")
    assert "Saved." in redraft("lessons", "edit", "last").stdout
    assert "page 4" in redraft("lessons", "show", "last").stdout
    assert redraft("lessons", "doctor").exit_code == 0
    assert known in redraft("lessons", "search", "price list").stdout
    assert "cursor" in redraft("lessons", "export", "--file", "-").stdout
    assert "1 lesson can be read" in redraft("doctor", "--data").stdout


WORDS = {
    "what_happened": "It failed.",
    "what_went_wrong": "The cursor was not read.",
    "why": "The page has no number.",
    "do_differently": "Read the cursor.",
    "rule": "Always read the cursor.",
}


def test_pages_show_and_change_records(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = LessonRecords(store, tmp_path / "memory")
    filed = LessonFolder(documents, AGENT).add(lesson())
    Rules(documents, AGENT).add("Ask for `next_cursor` first.", filed.id)
    client, _ = guarded(store)
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert filed.name in client.get(f"/lessons?agent={AGENT}", headers=headers).text
    page = client.get(f"/lessons/{filed.id}", headers=headers).text
    assert f"record {filed.id}" in page
    assert "Ask for `next_cursor` first." in page
    old = digest(text_of(documents, documents.entry(filed.id), of="a lesson"))
    for answer in ({"message": "Saved."}, {"error": "Not saved: the lesson has changed"}):
        said = client.post(f"/lessons/{filed.id}/edit", json={"digest": old, **WORDS}, headers=headers).json()
        assert all(said[name].startswith(text) for name, text in answer.items())
    assert LessonFolder(documents, AGENT).read(filed.id).content.why == WORDS["why"]


CHANGED = """
import asyncio
from redraft.lessons.library import LessonLibrary
library = LessonLibrary()
asyncio.run(library.lessons_of("researcher-agent").retire({known!r}, "It hurt."))
path.write_text(path.read_text().replace("page 3", "page 4"))
"""


@pytest.mark.parametrize(
    ("script", "says", "stays"),
    [
        ("path.write_text(path.read_text().replace('## Why', '## Who'))", "resumes it", "rejected"),
        (CHANGED, "opens the newer version", "conflict"),
    ],
    ids=["not a lesson", "a newer version"],
)
@pytest.mark.parametrize("place", ["", "memory/reflections/researcher-agent"], ids=["record", "file"])
def test_what_cannot_be_saved_stays_in_a_named_file(project, monkeypatch, script, says, stays, place):
    if place:
        monkeypatch.delenv("REDRAFT_DATABASE_URL")
    known = learn()
    before = text_of(LessonLibrary().documents, LessonLibrary().documents.entry(known), of="a lesson")
    editor(monkeypatch, project / "editor", script.replace("{known!r}", repr(known)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    refused = redraft("lessons", "edit", "last")
    rest = project / place / f"{known.partition('/')[2]}.md.{stays}"
    name = str(rest) if place else rest.name
    assert (refused.exit_code != 0, says in refused.stderr, name in refused.stderr) == (True, True, True)
    assert rest.read_text() != before
    assert "page 4" not in redraft("lessons", "show", "last").stdout


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_only_regular_files_are_edited(project, monkeypatch, make):
    monkeypatch.delenv("REDRAFT_DATABASE_URL")
    path = project / "memory/reflections" / AGENT / "2026-03-02-odd.md"
    path.parent.mkdir(parents=True)
    make(path)
    editor(monkeypatch, project / "editor", f"Path({str(project / 'opened')!r}).touch()")
    refused = redraft("lessons", "edit", "odd")
    assert refused.exit_code != 0
    assert "This is a link" in refused.stderr or "This is not a file" in refused.stderr
    assert not (project / "opened").exists()


def test_a_folder_of_lessons_moves_into_the_store_by_one_command(project):
    folder = LessonFolder(project / "memory", AGENT)
    ids = [folder.add(lesson(day=DAY + timedelta(days=n), summary=f"n {n}")).id for n in range(3)]
    folder.archive(keep=2)
    folder.change(ids[1], status="retired", why="It hurt.")
    Rules(project / "memory", AGENT).add("Ask for `next_cursor` first.", ids[2])
    broken = project / "memory/reflections" / f"{AGENT}/2026-03-09-broken.md"
    broken.write_text("---\nkind: failure\n")
    unused = redraft("lessons", "list")
    assert "`redraft lessons import memory --trusted`" in unused.stderr
    assert {one.name for one in asyncio.run(check_data()) if not one.is_fine} == {"lesson files"}
    refused = redraft("lessons", "import", "memory")
    assert "add --trusted" in refused.stderr
    dry = document(redraft("lessons", "import", "memory", "--dry-run", "--json"))
    assert [item["what"] for item in dry["items"]] == ["added", "added", "refused", "added", "added"]
    assert documents_of(None, LessonLibrary()._store).agents() == {}
    moved = redraft("lessons", "import", "memory", "--trusted")
    assert (moved.exit_code, "not closed" in moved.stdout) == (1, True)
    here = LessonLibrary().documents
    there = LessonFolder(here, AGENT)
    assert [(entry.id, entry.archived) for entry in there.entries()] == [
        (ids[1], False),
        (ids[2], False),
        (ids[0], True),
    ]
    assert there.read(ids[1]).status == "retired"
    assert [rule.source for rule in Rules(here, AGENT).active()] == [ids[2]]
    again = document(redraft("lessons", "import", "memory", "--trusted", "--json"))
    assert {item["what"] for item in again["items"]} == {"already there", "refused"}
    folder.change(ids[2], why="edited since")
    there.change(ids[2], confidence=0.9)
    [clash] = [
        item
        for item in document(redraft("lessons", "import", "memory", "--trusted", "--json"))["items"]
        if "Another version" in item["why"]
    ]
    assert (clash["what"], ids[2] in clash["why"]) == ("refused", True)
