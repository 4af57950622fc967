"""LessonLibrary: the lessons of all agents."""

import asyncio
import os
import re
from contextlib import aclosing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from redraft import ConfigError, MemoryStore
from redraft.lessons.documents import REFLECTIONS
from redraft.lessons.folder import LessonFolder
from redraft.lessons.library import LessonLibrary
from redraft.models.embed import FunctionEmbedder
from support.lessons import (
    API,
    CURSOR,
    FAILURE,
    FILES,
    FLIGHT,
    LINTER,
    PROCEDURE,
    REFUND,
    SEARCH,
    SEVEN,
    count_flight,
    file_lesson,
    file_seven,
    lesson,
)


@pytest.fixture(autouse=True)
def filed(memory, monkeypatch):
    """Seven lessons of three agents, without the slow offline embedder."""
    monkeypatch.setenv("REDRAFT_EMBEDDER", "none")
    file_seven()
    return memory


def done(use, **choices):
    """Call a function with a library, and close it."""

    async def main():
        async with aclosing(LessonLibrary(**{"store": False} | choices)) as library:
            return await use(library)

    return asyncio.run(main())


RESOLVED = {
    API: API,
    "2026-03-01-api-timeout-handling": API,
    "2026-03-01": API,
    "handling": API,
    "change-a": FLIGHT,
    "Refund": REFUND,
    "reviewer": LINTER,
    "last": LINTER,
}


@pytest.mark.parametrize(("reference", "lesson_id"), RESOLVED.items())
def test_a_lesson_is_found_by_its_id_or_a_part_of_it(reference, lesson_id):
    assert LessonLibrary(store=False).resolve(reference).id == lesson_id


@pytest.mark.parametrize(
    ("choices", "reference", "says"),
    [
        (
            {},
            "2026-05",
            f"Several lessons match '2026-05': {FLIGHT}, {REFUND}. Give more",
        ),
        ({}, "2026-05-04-change-a-fligth", f"did you mean {FLIGHT}"),
        ({}, "§", "There is no lesson '§' in"),
        ({}, "", "There is no lesson '' in"),
        ({}, "../../etc/passwd", "There is no lesson '../../etc/passwd'"),
        ({"agent": "bookings"}, "last", "The agent 'bookings' has no lessons in"),
        ({"agent": "booking"}, "handling", "There is no lesson 'handling'"),
        ({"path": "gone"}, "last", "There are no lessons in 'gone' yet."),
    ],
)
def test_unknown_and_ambiguous_references_are_refused_with_candidates(choices, reference, says):
    with pytest.raises(ConfigError) as raised:
        LessonLibrary(store=False, **choices).resolve(reference)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("choices", "wanted", "ids"),
    [
        ({}, {}, set(SEVEN)),
        ({"agent": "booking"}, {}, {FLIGHT, REFUND}),
        ({}, {"kind": "decision"}, {SEARCH, LINTER}),
        ({}, {"status": "quarantined"}, {CURSOR}),
        ({}, {"task_type": "file work"}, {FILES}),
        ({"agent": "booking"}, {"kind": "partial"}, set()),
    ],
)
def test_lessons_are_filtered_by_agent_kind_status_and_task_type(choices, wanted, ids):
    found = done(lambda library: library.find(**wanted), **choices)
    assert {lesson.lesson.id for lesson in found.lessons} == ids
    assert (found.problems, found.archived) == ((), 0)


def test_a_lesson_is_shown_with_its_file_and_counters(filed):
    store = MemoryStore()
    asyncio.run(count_flight(store))
    found = done(lambda library: library.show("change-a"), store=store)
    assert found.file == f"memory/reflections/{FLIGHT}.md"
    assert found.text == (filed / "reflections" / f"{FLIGHT}.md").read_text()
    assert (found.counters.uses, found.counters.helped, found.archived) == (5, 2, False)


def test_full_text_matches_come_after_similar_lessons(monkeypatch):
    def embed(texts):
        return [[1.0, 0.0] if "API" in text or text == "search for pages" else [0.0, 1.0] for text in texts]

    embedder = FunctionEmbedder(embed, "two")
    monkeypatch.setattr("redraft.lessons.library.embedder_of", lambda given, settings: embedder)
    indexed, *embedded = done(lambda library: library.rebuild_index(lambda count: None))
    assert (indexed.lessons, *embedded) == (7, 5, embedder.name)  # 5 are in use or on trial
    found = done(lambda library: library.search("search for pages"))
    assert found[0].lesson.id == API
    assert (found[-1].lesson.id, found[-1].score, found[-1].reason) == (SEARCH, 0.0, "shares words")


@pytest.mark.parametrize(("agent", "whose"), [("reviewer", "reviewer"), ("Somebody New", "Somebody New")])
def test_a_lesson_is_added_for_the_named_agent(agent, whose):
    assert LessonLibrary(agent=agent).only_agent() == whose


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({}, "Give --agent NAME; lessons belong to booking, researcher-agent, reviewer."),
        ({"path": "gone"}, "Give --agent NAME; no agent has lessons yet."),
        ({"agent": " "}, "--agent needs a name."),
    ],
)
def test_the_agent_may_be_omitted_only_if_there_is_one(choices, says):
    with pytest.raises(ConfigError, match=says):
        LessonLibrary(**choices).only_agent()
    file_lesson(FAILURE, "only-one", "It", date(2026, 1, 1), Path("one"))
    assert LessonLibrary("one").only_agent() == "only-one"


def test_adding_a_near_duplicate_returns_the_earlier_lesson():
    new = lesson(PROCEDURE, agent="reviewer", summary="Read it all", source="")
    added, is_new = done(lambda library: library.add(new, confidence=0.5))
    assert (added.agent, added.confidence, added.status, is_new) == ("reviewer", 0.5, "active", True)
    again, is_new = done(lambda library: library.add(replace(new, summary="Again")))
    assert (again.id, again.confidence, is_new) == (added.id, 0.6, False)


def test_a_rating_without_a_store_is_refused():
    with pytest.raises(ConfigError, match="this project stores none"):
        done(lambda library: library.rate(API, helped=True))


def test_an_export_has_active_lessons_and_permanent_rules(filed):
    (filed / "reflections/booking/rules.md").write_text("# Rules\n\n## Permanent\n\n- Prices are in euros.\n")
    (filed / "reflections/reviewer/rules.md").symlink_to(filed / "reflections/booking/rules.md")
    LessonFolder(filed, "booking").archive(keep=0)
    made = done(lambda library: library.export("rules"))
    assert set(made.ids) == {SEARCH, FILES, API}
    assert made.rules == 1
    assert "- Prices are in euros. [booking/rules.md]" in made.body
    assert done(lambda library: library.export("rules"), agent="booking").ids == ()


def test_agents_are_listed_most_recently_changed_first(tmp_path):
    for number, agent in enumerate(("one", "two", "three")):
        file_lesson(FAILURE, agent, "It failed", date(2026, 3, 1), tmp_path)
        os.utime(tmp_path / REFLECTIONS / agent, (1_700_000_000 + number, 1_700_000_000 + number))
    (tmp_path / REFLECTIONS / "Not A Name").mkdir()
    (tmp_path / REFLECTIONS / "link").symlink_to("/etc")
    library = LessonLibrary(tmp_path, store=False)
    assert library.agents() == ["three", "two", "one"]


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"path": 5}, "path must be a path, got 5"),
        ({"store": "x.db"}, "store must be True for the project's, False for none, or a Store, got 'x.db'"),
    ],
)
def test_invalid_places_are_refused(choices, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        LessonLibrary(**choices)
