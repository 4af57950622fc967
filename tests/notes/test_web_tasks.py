import asyncio

import pytest

from redraft.notes.store import NoteStore
from redraft.notes.web import MOST
from redraft.stores.memory import MemoryStore
from redraft.types import Task
from support.dashboards import HOSTILE, Seen, pages
from support.noted_task import noted_task


def read(store, path="/tasks"):
    answer = pages(store).get(path)
    assert answer.status_code == 200, answer.text
    return answer


def test_tasks_stand_with_their_scores_before_notes_and_now():
    store = MemoryStore()
    identity = noted_task(store)
    noted_task(store, versions=1, task=Task("Translate it."), name="")
    words = Seen(read(store).text).words
    assert "board summary" in words
    assert "✓ v3 3 16 0.34" in words
    assert words.index("Translate it.") < words.index("board summary")  # noted last
    rows = read(store, "/tasks.json").json()["tasks"]
    assert [(row["state"], row["run_count"], row["runs"]) for row in rows] == [("on", 1, 8), ("on", 3, 16)]
    assert rows[1]["identity"] == identity
    assert rows[1]["score_before"] == pytest.approx(0.345)
    assert len(rows[1]["trend"]) == 4


def test_without_notes_the_page_says_how_there_would_be_some():
    assert "reflect=True" in read(MemoryStore()).text
    assert read(MemoryStore(), "/tasks.json").json() == {
        "schema_version": 1,
        "tasks": [],
        "older": None,
        "is_whole": True,
    }


def test_many_tasks_come_a_page_at_a_time():
    store = MemoryStore()
    for number in range(MOST + 3):
        noted_task(store, versions=1, runs=0, task=Task(f"Task {number}."), name="")
    client, seen, path = pages(store), [], "/tasks"
    while path:
        page = client.get(f"{path}".replace("/tasks", "/tasks.json")).json()
        seen += [row["description"] for row in page["tasks"]]
        path = f"/tasks?before={page['older']}" if page["older"] else ""
    assert seen == [f"Task {number}." for number in reversed(range(MOST + 3))]
    assert "Older tasks" in client.get("/tasks").text


def test_an_unknown_page_is_not_found():
    assert pages(MemoryStore()).get("/tasks?before=none").status_code == 404


def test_what_is_new_shows_at_once():
    store = MemoryStore()
    identity = noted_task(store)
    client = pages(store)
    assert client.get("/tasks.json").json()["tasks"][0]["runs"] == 16
    asyncio.run(NoteStore(store).switch(identity, off=True))
    assert "✗ off" in Seen(client.get("/tasks").text).words


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_shown_harmlessly(text):
    store = MemoryStore()
    noted_task(store, versions=1, task=Task(f"a {text} b"), name=text)
    seen = Seen(read(store).text)
    assert {"img", "iframe", "style"}.isdisjoint(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "#")) for link in seen.links)
