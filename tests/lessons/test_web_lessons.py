import pytest

from redraft.lessons.folder import ARCHIVE, REFLECTIONS, LessonFolder
from redraft.lessons.rules import Rules
from redraft.lessons.web import MOST
from redraft.stores.memory import MemoryStore
from support.dashboards import HOSTILE, TOKEN, Seen, guarded, pages
from support.learned_lessons import AGENT, failure, lesson, lessons_of, rules_and_playbooks, used

BEARER = {"authorization": f"Bearer {TOKEN}"}


def read(path="/lessons", store=None):
    answer = pages(store or MemoryStore()).get(path)
    assert answer.status_code == 200, answer.text
    return answer


def titles(path):
    return [row["summary"] for row in read(path).json()["lessons"]]


def test_lessons_stand_with_what_they_did_and_why_they_are_hidden(memory):
    filed, store = lessons_of(memory), MemoryStore()
    rules_and_playbooks(memory, filed["active"])
    used(store, filed["active"], (0.8, 0.2, 0.9, None))
    seen = Seen(read(store=store).text)
    for said in (
        "4 +2 \N{MINUS SIGN}1",
        "Hidden: It hurt.",
        "Hidden: by 2026-11-20-exporting-orders",
        "waits for an attempt that does better, or a person",
        "≈ It says nearly what writer/2026-11-20-exporting-orders says.",
        "IF a reply has next_cursor THEN ask for the next page.",
        "✓ worked",
        "Ask again with next_cursor.",
    ):
        assert " ".join(said.split()) in seen.words
    assert len(seen.ids) == len(set(seen.ids))
    assert f"/lessons/{filed['waiting'].id}" in seen.links


def test_the_same_as_data(memory):
    filed, store = lessons_of(memory), MemoryStore()
    rules_and_playbooks(memory, filed["active"])
    used(store, filed["active"], (0.8, 0.2))
    document = read("/lessons.json", store).json()
    rows = {row["id"]: row for row in document["lessons"]}
    assert set(rows) == {one.id for one in filed.values()}
    active = rows[filed["active"].id]
    assert (active["kind"], active["counters"]) == ("failure", {"uses": 2, "helped": 1, "hurt": 1})
    assert active["content"]["why"] == "The reply's next_cursor was not looked at."
    assert rows[filed["double"].id]["doubles"]
    assert [rule["source"] for rule in document["rules"]] == [filed["active"].id]
    assert [one["outcome"] for one in document["playbooks"]] == ["success"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=procedure", ["Exporting customers"]),
        ("status=quarantined", ["Charting the figures"]),
        ("status=retired&kind=decision", ["Choosing an API"]),
        ("status=retired&kind=failure", []),
    ],
)
def test_which_lessons_are_wanted(memory, query, expected):
    lessons_of(memory)
    assert titles(f"/lessons.json?{query}") == expected
    if not expected:
        assert "No lesson of writer is like that." in read(f"/lessons?{query}").text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("kind=odd", 400),
        ("status=odd", 400),
        ("agent=nobody", 404),
        ("agent=..", 404),
        ("agent=../../etc", 404),
        ("before=writer/none", 404),
    ],
)
def test_what_cant_be_asked(memory, query, status):
    lessons_of(memory)
    assert pages(MemoryStore()).get(f"/lessons?{query}").status_code == status


def test_archived_lessons_are_counted_and_shown_where_wanted(memory):
    lessons_of(memory)
    folder = memory / REFLECTIONS / AGENT
    (folder / ARCHIVE / "2026").mkdir(parents=True)
    name = "2026-11-20-choosing-an-api.md"
    (folder / name).rename(folder / ARCHIVE / "2026" / name)
    assert "archived ones, too (1)" in Seen(read().text).words
    assert "Choosing an API" not in titles("/lessons.json")
    assert titles("/lessons.json?archived=1")[-1] == "Choosing an API"
    assert "in the archive" in read("/lessons?archived=1").text


def test_many_lessons_come_a_page_at_a_time(memory):
    folder = LessonFolder(memory, AGENT)
    for number in range(MOST + 5):
        folder.add(lesson(failure(f"number {number}"), f"Number {number:03}"))
    first = read("/lessons.json").json()
    rest = read(f"/lessons.json?before={first['older']}").json()
    assert (len(first["lessons"]), len(rest["lessons"]), rest["older"]) == (MOST, 5, None)
    assert "Older lessons" in read().text


def test_several_agents_are_named_first(memory):
    lessons_of(memory)
    lessons_of(memory, "reader")
    assert "Whose?" in read().text
    counted = read("/lessons.json").json()["agents"]
    assert {(one["name"], one["lessons"], one["archived"]) for one in counted} == {
        ("reader", 6, 0),
        ("writer", 6, 0),
    }
    assert "Lessons of reader" in read("/lessons?agent=reader").text


def test_without_lessons_the_page_says_how_there_would_be_some(memory):
    assert "redraft lessons add" in read().text
    assert read("/lessons.json").json() == {"schema_version": 1, "agents": []}
    (memory / REFLECTIONS / AGENT).mkdir(parents=True)
    assert "No lesson of writer" in read().text


def test_broken_files_are_named_and_harm_no_others(memory):
    filed = lessons_of(memory)
    folder = memory / REFLECTIONS / AGENT
    (folder / "2026-11-20-broken.md").write_text("---\nkind: odd\n---\n# Reflection\n")
    (folder / "2026-11-20-link.md").symlink_to("/etc/passwd")
    (folder / "rules.md").write_text("## Tactical\n\n- 2026-99-99: IF x THEN y\n")
    words = Seen(read().text).words
    for said in ("2026-11-20-broken", "This is a link, and links are not followed", "is no day (YYYY-MM-DD)"):
        assert said in words
    assert "root:" not in words
    assert "Exporting customers" in words
    assert len(read("/lessons.json").json()["lessons"]) == len(filed)


def test_a_file_that_was_edited_by_hand_is_read_again(memory):
    filed = lessons_of(memory)
    client = pages(MemoryStore())
    assert "Exporting customers" in client.get("/lessons").text
    path = LessonFolder(memory, AGENT).path_of(filed["procedure"].id)
    path.write_text(path.read_text().replace("Exporting customers", "Exporting the customers' orders"))
    assert "Exporting the customers" in client.get("/lessons").text


def test_a_rule_is_made_permanent(memory):
    rules_and_playbooks(memory, lessons_of(memory)["active"])
    text = Rules(memory, AGENT).active()[0].text
    client, _ = guarded(MemoryStore())
    for agent, rule, status in (
        (AGENT, "IF never seen THEN do nothing", 400),
        ("nobody", text, 404),
        (AGENT, text, 200),
    ):
        answer = client.post(f"/lessons/{agent}/permanent", json={"rule": rule}, headers=BEARER)
        assert answer.status_code == status, answer.text
    assert [rule.text for rule in Rules(memory, AGENT).permanent()] == [text]
    assert "Permanent" in Seen(read().text).words


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_lessons_are_shown_harmlessly(memory, text):
    folder = LessonFolder(memory, AGENT)
    folder.add(lesson(failure(text), f"x {text}", task_type=f"t {text}", status="retired", why=f"w {text}"))
    page = read()
    seen = Seen(page.text)
    assert page.text.count("<script") == 1
    assert {"img", "iframe", "style"}.isdisjoint(seen.tags)
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    assert all(link.startswith(("/", "#")) for link in seen.links)
    assert not any(ord(one) < 32 and one not in "\n\t" for one in page.text)
    assert read("/lessons.json").json()
