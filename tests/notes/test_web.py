import asyncio
import re
from datetime import UTC, datetime

import pytest

from redraft._codec import to_json
from redraft.memory.effects import Payoff
from redraft.notes.note import NoteUse
from redraft.notes.store import NoteStore
from redraft.notes.web import PAGE_SIZE, points_of
from redraft.stores.sqlite import MemoryStore
from redraft.types import PlainTask
from support.dashboards import HOSTILE, TOKEN, Seen, described, guarded, pages, put
from support.noted_task import IDENTITY, noted_task, reflection


def read(store, path="/tasks"):
    answer = pages(store).get(path)
    assert answer.status_code == 200, answer.text
    return answer


def test_the_list_shows_each_task_with_its_scores_before_notes_and_now():
    store = MemoryStore()
    identity = noted_task(store)
    noted_task(store, versions=1, task=PlainTask("Translate it."), name="")
    words = Seen(read(store).text).words
    assert "board summary" in words
    assert "✓ v3 3 16 0.34" in words
    assert words.index("Translate it.") < words.index("board summary")  # changed last
    rows = read(store, "/tasks.json").json()["tasks"]
    assert [(row["state"], row["run_count"], row["runs"]) for row in rows] == [("on", 1, 8), ("on", 3, 16)]
    assert rows[1]["identity"] == identity
    assert rows[1]["score_before"] == pytest.approx(0.345)
    assert len(rows[1]["trend"]) == 4


def test_the_list_says_whether_notes_pay():
    store = MemoryStore()
    noted_task(store, runs=9, control=0)
    assert "Do notes pay off? Not known: " in read(store).text
    assert "Runs before a task&#39;s first note are not counted" in read(store).text
    store = MemoryStore()
    noted_task(store, runs=9, control=4)
    assert "Do notes pay off? Yes: +0." in read(store).text
    payoff = read(store, "/tasks.json").json()["payoff"]
    assert (payoff["with_runs"], payoff["without_runs"]) == (10, 8)  # of the line in force
    assert 0 < payoff["effect"]["low"] < payoff["effect"]["mean"] < payoff["effect"]["high"]


def test_an_empty_list_says_how_to_get_notes():
    assert "reflect=True" in read(MemoryStore()).text
    assert read(MemoryStore(), "/tasks.json").json() == {
        "schema_version": 1,
        "payoff": to_json(Payoff()),
        "tasks": [],
        "older": None,
    }


def test_the_list_is_paged():
    store = MemoryStore()
    for number in range(PAGE_SIZE + 3):
        noted_task(store, versions=1, runs=0, task=PlainTask(f"Task {number}."), name="")
    client, seen, path = pages(store), [], "/tasks"
    while path:
        page = client.get(f"{path}".replace("/tasks", "/tasks.json")).json()
        seen += [row["description"] for row in page["tasks"]]
        path = f"/tasks?before={page['older']}" if page["older"] else ""
    assert seen == [f"Task {number}." for number in reversed(range(PAGE_SIZE + 3))]
    assert "Older tasks" in client.get("/tasks").text


def test_an_unknown_page_of_the_list_is_not_found():
    assert pages(MemoryStore()).get("/tasks?before=none").status_code == 404


def test_changes_appear_immediately():
    store = MemoryStore()
    identity = noted_task(store)
    client = pages(store)
    assert client.get("/tasks.json").json()["tasks"][0]["runs"] == 16
    asyncio.run(NoteStore(store).switch(identity, off=True))
    assert "✗ off" in Seen(client.get("/tasks").text).words


BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def store():
    store = MemoryStore()
    noted_task(store, control=2)
    return store


def state(store, identity=IDENTITY):
    noted = asyncio.run(NoteStore(store).noted(identity))
    return noted.in_force, noted.off, noted.why_off


def change(store, what, identity=IDENTITY, **fields):
    client, _ = guarded(store)
    return client.post(f"/tasks/{identity}/{what}", json=fields, headers=BEARER)


def test_the_page_of_a_task_shows_scores_versions_changes_and_runs(store):
    put(store, described("run-015"))
    page = pages(store).get(f"/tasks/{IDENTITY}")
    seen = Seen(page.text)
    for text in (
        "Version 3 of 3 is in force",
        "Do notes on this task pay off? Not clear: ",
        "Changes from version 2 to version 3",
        "Keep rule 3 in mind.",
        " trial)",
        "The latest 16 scored runs.",
    ):
        assert text in seen.words
    assert "/runs/run-015" in seen.links
    assert "/runs/run-014" not in seen.links  # it is not stored
    assert re.findall(r'text-anchor="middle">(none|v[0-9])<', page.text) == ["none", "v1", "v2", "v3"]
    assert len(seen.ids) == len(set(seen.ids))


def test_the_page_of_a_task_as_json(store):
    document = pages(store).get(f"/tasks/{IDENTITY}.json").json()
    assert [revision["version"] for revision in document["revisions"]] == [1, 2, 3]
    assert len(document["uses"]) == 16
    assert (document["payoff"]["without_runs"], document["payoff"]["verdict"]) == (4, "")
    assert (document["change"]["from"]["version"], document["change"]["to"]["version"]) == (2, 3)
    assert document["block"].startswith("## Task Improvement Notes")


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("?a=1&b=3", 200, "Changes from version 1 to version 3"),
        ("?b=1", 200, "the first"),
        ("?a=2&b=2", 200, "The two versions are the same."),
        ("?a=7", 404, "There is no version"),
        ("?b=x", 404, "There is no version"),
    ],
)
def test_the_selected_versions_are_compared(store, query, status, message):
    page = pages(store).get(f"/tasks/{IDENTITY}{query}")
    assert page.status_code == status
    assert message in Seen(page.text).words


def test_versions_with_nothing_in_common_are_shown_side_by_side(store):
    async def written():
        notes = NoteStore(store)
        other = "Nothing of this resembles what stood there: " + " ".join(f"word{n}" for n in range(400))
        await notes.append(PlainTask("Summarise {report} for the board."), reflection(4, other), based_on=3)

    asyncio.run(written())
    assert 'class="sides"' in pages(store).get(f"/tasks/{IDENTITY}?a=3&b=4").text


@pytest.mark.parametrize(
    ("what", "fields", "status", "message", "after"),
    [
        ("rollback", {"version": "2"}, 200, "Version 2 is in force", (2, False)),
        ("rollback", {"version": "first"}, 200, "Version 1 is in force", (1, False)),
        ("rollback", {"version": "9"}, 400, "There is no version '9'", (3, False)),
        ("rollback", {"version": "9" * 5000}, 400, "There is no version '999", (3, False)),
        ("rollback", {"version": "\u00b2"}, 400, "There is no version", (3, False)),
        ("rollback", {"version": 2}, 400, "must be a string", (3, False)),
        ("rollback", {}, 400, "must be a string", (3, False)),
        ("pin", {"version": "2"}, 200, "Version 2 is pinned", (2, False)),
        ("pin", {"version": "9"}, 400, "There is no version '9'", (3, False)),
        ("unpin", {}, 200, "Version 3 is in force", (3, False)),
        ("off", {"why": "it misleads"}, 200, "are off", (None, True)),
        ("off", {}, 200, "are off", (None, True)),
        ("on", {}, 200, "version 3 is in force", (3, False)),
    ],
)
def test_a_submitted_change_is_stored(store, what, fields, status, message, after):
    answer = change(store, what, **fields)
    assert answer.status_code == status
    assert message in next(iter(answer.json().values()))
    assert state(store)[:2] == after


def test_switching_off_records_the_reason_and_on_restores_the_note(store):
    change(store, "off", why="it misleads")
    page = Seen(pages(store).get(f"/tasks/{IDENTITY}").text).words
    assert "Notes are off It misleads." in page
    assert state(store) == (None, True, "it misleads")
    change(store, "on")
    assert state(store) == (3, False, "")


def test_a_pinned_version_is_marked_and_can_be_unpinned(store):
    assert "Pin version 3" in Seen(read(store, f"/tasks/{IDENTITY}").text).words
    change(store, "pin", version="2")
    page = Seen(read(store, f"/tasks/{IDENTITY}").text).words
    assert "Version 2 of 3 is in force Pinned: no newer version replaces it." in page
    assert "Unpin version 2" in page
    assert "✓ v2 pinned" in Seen(read(store, "/tasks").text).words
    change(store, "unpin")
    page = Seen(read(store, f"/tasks/{IDENTITY}").text).words
    assert "Pinned" not in page
    assert "Pin version 2" in page


@pytest.mark.parametrize("what", ["rollback", "pin", "unpin", "off", "on"])
def test_an_unknown_task_is_not_found(store, what):
    assert change(store, what, "nothing", version="1").status_code == 404
    assert pages(store).get("/tasks/nothing").status_code == 404
    assert pages(store).get("/tasks/nothing.json").status_code == 404


def test_a_custom_identity_may_contain_slashes():
    store = MemoryStore()
    asyncio.run(NoteStore(store).store("mine/of it", reflection(4, "Say it.")))
    assert pages(store).get("/tasks/mine/of%20it").status_code == 200
    assert pages(store).get("/tasks/mine/of%20it.json").json()["identity"] == "mine/of it"
    assert change(store, "rollback", "mine/of%20it", version="1").status_code == 200


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_escaped(text):
    store = MemoryStore()
    identity = noted_task(
        store, task=PlainTask(f"x {text}", expected_output=text), name=text, text=f"{text} {text}"
    )
    asyncio.run(NoteStore(store).switch(identity, off=True, why=text))
    for path in ("/tasks", f"/tasks/{identity}"):
        page = read(store, path)
        seen = Seen(page.text)
        assert page.text.count("<script") == 1
        assert {"img", "iframe", "style"}.isdisjoint(seen.tags)
        assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
        assert all(link.startswith(("/", "#", "?")) for link in seen.links)
        assert not any(ord(one) < 32 and one not in "\n\t" for one in page.text)
        assert read(store, f"{path}.json").json()


def test_secrets_in_notes_are_withheld(monkeypatch):
    secret = "zeppelin-" + "mountain-42"
    monkeypatch.setenv("MY_API_KEY", secret)
    store = MemoryStore()
    identity = noted_task(store, task=PlainTask(f"Say {secret}."), name=secret, text=f"{secret} is it")
    client = pages(store)
    for path in ("/tasks", "/tasks.json", f"/tasks/{identity}", f"/tasks/{identity}.json"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "zeppelin" not in answer.text, path


def test_control_runs_belong_to_no_version_in_the_chart():
    rows = [
        (None, "none", 0.2),
        (1, "note", 0.5),
        (None, "control", 0.3),
        (2, "note", None),
        (2, "note", 0.8),
    ]
    uses = [NoteUse("run", version, arm, score, datetime.now(UTC)) for version, arm, score in rows]
    points = points_of(uses)
    assert [point.name for point in points] == ["none", "v1", "", "v2"]
    assert [point.kind for point in points] == ["hollow", "filled", "cross", "filled"]
