import asyncio

import pytest

from redraft.notes.store import NoteStore
from redraft.stores.memory import MemoryStore
from redraft.types import Task
from support.dashboards import HOSTILE, TOKEN, Seen, described, guarded, pages, put
from support.noted_task import IDENTITY, noted_task, reflection

BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def store():
    store = MemoryStore()
    noted_task(store, control=2)
    return store


def standing(store, identity=IDENTITY):
    noted = asyncio.run(NoteStore(store).noted(identity))
    return noted.in_force, noted.off, noted.why_off


def change(store, what, identity=IDENTITY, **fields):
    client, _ = guarded(store)
    return client.post(f"/tasks/{identity}/{what}", json=fields, headers=BEARER)


def test_the_page_has_scores_versions_changes_and_runs(store):
    put(store, described("run-015"))
    page = pages(store).get(f"/tasks/{IDENTITY}")
    seen = Seen(page.text)
    for said in (
        "Version 3 of 3 is in force",
        "✓ Notes help: in a trial, runs with one score +0.32",
        "6 runs went without",
        "What changed from version 2 to version 3",
        "Keep rule 3 in mind.",
        "a trial)",
        "no note: 0.30",
    ):
        assert said in seen.words
    assert "/runs/run-015" in seen.links
    assert "/runs/run-014" not in seen.links  # it is not kept
    assert page.text.count('class="turn"') == 3  # one for each change of the note
    assert len(seen.ids) == len(set(seen.ids))


def test_the_same_as_data(store):
    document = pages(store).get(f"/tasks/{IDENTITY}.json").json()
    assert [one["version"] for one in document["revisions"]] == [1, 2, 3]
    assert len(document["uses"]) == 16
    assert document["effect"]["low"] > 0
    assert (document["change"]["from"]["version"], document["change"]["to"]["version"]) == (2, 3)
    assert document["block"].startswith("## Task Improvement Notes")


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("?a=1&b=3", 200, "What changed from version 1 to version 3"),
        ("?b=1", 200, "the first"),
        ("?a=2&b=2", 200, "They are the same."),
        ("?a=7", 404, "There is no version"),
        ("?b=x", 404, "There is no version"),
    ],
)
def test_which_versions_are_compared(store, query, status, told):
    page = pages(store).get(f"/tasks/{IDENTITY}{query}")
    assert page.status_code == status
    assert told in Seen(page.text).words


def test_texts_that_differ_in_all_stand_beside_one_another(store):
    async def written():
        notes = NoteStore(store)
        other = "Nothing of this resembles what stood there: " + " ".join(f"word{n}" for n in range(400))
        await notes.append(Task("Summarise {report} for the board."), reflection(4, other), based_on=3)

    asyncio.run(written())
    assert 'class="sides"' in pages(store).get(f"/tasks/{IDENTITY}?a=3&b=4").text


@pytest.mark.parametrize(
    ("what", "fields", "status", "told", "after"),
    [
        ("rollback", {"version": "2"}, 200, "Version 2 is in force", (2, False)),
        ("rollback", {"version": "first"}, 200, "Version 1 is in force", (1, False)),
        ("rollback", {"version": "9"}, 400, "There is no version '9'", (3, False)),
        ("rollback", {"version": 2}, 400, "must be a text", (3, False)),
        ("rollback", {}, 400, "must be a text", (3, False)),
        ("off", {"why": "it misleads"}, 200, "are off", (None, True)),
        ("off", {}, 200, "are off", (None, True)),
        ("on", {}, 200, "version 3 is in force", (3, False)),
    ],
)
def test_what_a_person_changes_is_seen_in_the_store(store, what, fields, status, told, after):
    answer = change(store, what, **fields)
    assert answer.status_code == status
    assert told in next(iter(answer.json().values()))
    assert standing(store)[:2] == after


def test_off_says_why_and_on_brings_back_what_was_in_force(store):
    change(store, "off", why="it misleads")
    page = Seen(pages(store).get(f"/tasks/{IDENTITY}").text).words
    assert "Notes are off It misleads." in page
    assert standing(store) == (None, True, "it misleads")
    change(store, "on")
    assert standing(store) == (3, False, "")


@pytest.mark.parametrize("what", ["rollback", "off", "on"])
def test_an_unknown_task_is_not_found(store, what):
    assert change(store, what, "nothing", version="1").status_code == 404
    assert pages(store).get("/tasks/nothing").status_code == 404
    assert pages(store).get("/tasks/nothing.json").status_code == 404


def test_an_identity_of_a_programs_own_may_have_slashes():
    store = MemoryStore()
    asyncio.run(NoteStore(store).store("mine/of it", reflection(4, "Say it.")))
    assert pages(store).get("/tasks/mine/of%20it").status_code == 200
    assert pages(store).get("/tasks/mine/of%20it.json").json()["identity"] == "mine/of it"
    assert change(store, "rollback", "mine/of%20it", version="1").status_code == 200


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_notes_are_shown_harmlessly(text):
    store = MemoryStore()
    identity = noted_task(
        store, task=Task(f"x {text}", expected_output=text), name=text, text=f"{text} {text}"
    )
    asyncio.run(NoteStore(store).switch(identity, off=True, why=text))
    page = pages(store).get(f"/tasks/{identity}")
    seen = Seen(page.text)
    assert page.status_code == 200
    assert page.text.count("<script") == 1
    assert {"img", "iframe", "style"}.isdisjoint(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "#", "?")) for link in seen.links)
    assert not any(ord(one) < 32 and one not in "\n\t" for one in page.text)
    assert pages(store).get(f"/tasks/{identity}.json").json()


def test_a_secret_in_a_note_is_withheld(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    store = MemoryStore()
    identity = noted_task(store, task=Task(f"Say {secret}."), name=secret, text=f"{secret} is it")
    client = pages(store)
    for path in ("/tasks", "/tasks.json", f"/tasks/{identity}", f"/tasks/{identity}.json"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text, path
