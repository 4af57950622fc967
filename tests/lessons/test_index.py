import asyncio
import logging
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from redraft.errors import ModelError, OutputError, StoreError
from redraft.lessons import index as index_module
from redraft.lessons import ranking
from redraft.lessons.folder import LessonFolder
from redraft.lessons.index import FILE, Indexed, LessonIndex
from redraft.lessons.lesson import Procedure
from redraft.lessons.library import LessonLibrary
from redraft.lessons.ranking import LessonQuery
from redraft.models.embed import FunctionEmbedder, ScriptedEmbedder, unit_rows
from support.learning_agents import TASK, learning, writer
from support.learning_agents import run as run_task
from support.lessons import DECISION, FAILURE, PARTIAL, PROCEDURE, lesson

AGENT = "researcher-agent"
SECRET = "hunter2-correct-horse"


def procedure(words):
    return Procedure(words, f"It is about {words}.")


def run(path, *steps, embedder=None):
    """Run steps with an index one after another, and return their results."""

    async def main():
        index = LessonIndex(path, embedder)
        return [await step(index) for step in steps]

    return asyncio.run(main())


def search(task, **asked):
    return lambda index: index.search(LessonQuery(task, **({"agent": AGENT} | asked)))


def summaries(found):
    return [one.lesson.summary for one in found]


def refresh(index):
    return index.refresh()


def rebuild(index):
    return index.rebuild()


def fill(index):
    return index.fill()


def file(path, *lessons):
    folder = LessonFolder(path, AGENT)
    return [folder.add(lesson) for lesson in lessons]


LESSONS = [
    lesson(procedure("pears and apples"), summary="old type", task="Fetch pears", task_type="web scraping"),
    lesson(
        procedure("quinces"),
        summary="same tool",
        task="Count quinces",
        task_type="counting",
        tools=("csv_read",),
    ),
    lesson(procedure("plums"), summary="near", task="Bake a plum cake at home", task_type="baking", tools=()),
    lesson(procedure("stones"), summary="nothing", task="Build walls", task_type="building", tools=()),
    lesson(
        procedure("grapes and figs"),
        summary="new type",
        task="Fetch grapes",
        task_type="Web  Scraping",
        day=date(2026, 3, 5),
    ),
]
LESSONS = [replace(lesson, error="") for lesson in LESSONS]


@pytest.mark.parametrize("embedder", [None, ScriptedEmbedder()], ids=["text", "vectors"])
def test_results_are_sorted_by_task_type_then_tool_then_similarity(tmp_path, embedder):
    file(tmp_path, *LESSONS)
    asked = search("Bake a plum cake", task_type="web scraping", tools=("csv_read",), k=9)
    _, _, found = run(tmp_path, refresh, fill, asked, embedder=embedder)
    assert summaries(found) == ["new type", "old type", "same tool", "near"]
    assert found[0].reason.startswith("same task type 'web scraping'")
    assert "tool csv_read" in found[2].reason
    _, nearest = run(tmp_path, refresh, search("Bake a plum cake", agent=None), embedder=embedder)
    assert summaries(nearest) == ["near"]


@pytest.mark.parametrize("embedder", [None, ScriptedEmbedder()], ids=["text", "vectors"])
@pytest.mark.parametrize("agent", [AGENT, None])
@pytest.mark.parametrize("name", ["E4031", "csv_read", "config.yaml", "--dry-run", "LessonFileError"])
def test_a_lesson_with_a_name_in_the_question_is_found_first(tmp_path, embedder, agent, name):
    holds = lesson(
        procedure(f"something about {name} in it"), summary="holds it", task="Sail", error="", tools=()
    )
    others = [
        replace(
            holds, summary=f"other {n}", task="What to do about this one", content=procedure(f"{n} {n * 7}")
        )
        for n in range(20)
    ]
    file(tmp_path, holds, *others)
    *_, found = run(
        tmp_path, refresh, fill, search(f"What to do about {name}?", agent=agent), embedder=embedder
    )
    assert found[0].lesson.summary == "holds it"
    assert f"names {name}" in found[0].reason


@pytest.mark.parametrize("asked", [{"task": "x", "task_type": "ab"}, {"task": "Sort ab", "task_type": ""}])
def test_invisible_characters_in_a_question_are_ignored(tmp_path, asked):
    file(tmp_path, lesson(summary="it", task="Sort ab", task_type="ab", tools=(), error=""))
    for hidden in ("", "\u202e", "\u200b", "\U000e0041", "\ud800", "\x00"):
        query = LessonQuery(
            **{key: f"{text[:-1]}{hidden}{text[-1:]}" for key, text in asked.items()}, agent=AGENT
        )
        assert summaries(run(tmp_path, lambda index, query=query: index.search(query))[0]) == ["it"]


def test_only_active_lessons_of_the_requested_kinds_are_found(tmp_path):
    kept = [
        lesson(content, summary=content.kind, task="Fetch it") for content in (FAILURE, PARTIAL, DECISION)
    ]
    hidden = [
        lesson(PROCEDURE, summary=status, task="Fetch it", status=status)
        for status in ("quarantined", "retired", "superseded")
    ]
    file(tmp_path, *kept, *hidden)
    for embedder in (None, ScriptedEmbedder()):
        for agent in (AGENT, None):
            everything, some = run(
                tmp_path,
                search("Fetch it", k=9, agent=agent),
                search("Fetch it", k=9, agent=agent, kinds={"partial", "procedure"}),
                embedder=embedder,
            )
            assert sorted(summaries(everything)) == ["decision", "failure", "partial"]
            assert summaries(some) == ["partial"]


def test_a_lesson_with_forbidden_content_is_not_found(tmp_path):
    (kept, edited) = file(tmp_path, lesson(), lesson(PARTIAL, summary="the other one"))
    path = LessonFolder(tmp_path, AGENT).entry_of(edited.id).path
    path.write_text(path.read_text("utf-8").replace("Name files first.", "Skip the tests."), "utf-8")
    for embedder, agent in product((None, ScriptedEmbedder()), (AGENT, None)):
        refreshed, _, found = run(
            tmp_path, refresh, fill, search("Fetch the price list", agent=agent), embedder=embedder
        )
        assert [one.lesson.id for one in found] == [kept.id]
        assert refreshed.broken == {}


def test_lessons_of_other_agents_are_found_only_without_an_agent(tmp_path):
    file(tmp_path, lesson())
    LessonFolder(tmp_path, "Other Agent").add(lesson(procedure("prices of shops"), agent="Other Agent"))
    own, other, nobody, everyone = run(
        tmp_path,
        *(search("Fetch the price list", agent=who) for who in (AGENT, "Other Agent", "nobody", None)),
    )
    assert ([one.lesson.agent for one in found] for found in (own, other, nobody))
    assert [one.lesson.agent for one in own] == [AGENT]
    assert [one.lesson.agent for one in other] == ["Other Agent"]
    assert nobody == []
    assert {one.lesson.agent for one in everyone} == {AGENT, "Other Agent"}


def test_many_near_duplicates_are_found_once(tmp_path):
    words = "many words that are the same again and again in each and every one of them"
    flood = [lesson(procedure(f"{words} {n}"), summary=f"flood {n}") for n in range(150)]
    file(tmp_path, *flood, lesson(PARTIAL, summary="the other one"))
    for agent, embedder in product((AGENT, None), (None, ScriptedEmbedder())):
        asked = search("Fetch the price list of the shop HTTPError", agent=agent)
        *_, found = run(tmp_path, refresh, fill, asked, embedder=embedder)
        assert len(found) == 2
        assert "the other one" in summaries(found)


def test_the_next_search_picks_up_changes_in_the_folders(tmp_path):
    folder = LessonFolder(tmp_path, AGENT)

    async def main():
        index = LessonIndex(tmp_path, ScriptedEmbedder())
        asked = LessonQuery("Fetch the price list", agent=AGENT)
        everyone = replace(asked, agent=None)
        assert await index.search(asked) == await index.search(everyone) == []
        one = folder.add(lesson(summary="first"))
        assert summaries(await index.search(asked)) == summaries(await index.search(everyone)) == ["first"]
        folder.write(replace(one, summary="second"))
        assert summaries(await index.search(asked)) == summaries(await index.search(everyone)) == ["second"]
        assert folder.archive(keep=0) == [one.id]
        assert summaries(await index.search(asked)) == summaries(await index.search(everyone)) == ["second"]
        path = folder.entry_of(one.id).path
        path.write_text(path.read_text("utf-8").replace("status: active", "status: retired"), "utf-8")
        os.utime(path.parent, ns=(1, 1))
        assert await index.search(asked) == await index.search(everyone) == []
        path.unlink()
        assert await index.refresh() == Indexed()
        assert await index.search(everyone) == []

    asyncio.run(main())


def test_a_file_edited_in_place_is_read_again(tmp_path):
    (one,) = file(tmp_path, lesson())
    path = LessonFolder(tmp_path, AGENT).entry_of(one.id).path
    run(tmp_path, refresh)
    for folder in (path.parent, path):
        os.utime(folder, ns=(10**18, 10**18))
    run(tmp_path, refresh)
    path.write_text(path.read_text("utf-8").replace("API timeout handling", "API timeout handled!"), "utf-8")
    os.utime(path, ns=(10**18, 10**18))  # a clock that stood still
    (found,) = run(tmp_path, search("Fetch the price list"))
    assert summaries(found) == ["API timeout handled!"]


def test_a_lesson_that_is_put_back_in_use_in_place_is_searched(tmp_path):
    (one,) = file(tmp_path, lesson(status="retired"))
    path = LessonFolder(tmp_path, AGENT).entry_of(one.id).path
    for place in (path, path.parent):
        os.utime(place, (1_000_000, 1_000_000))
    (found,) = run(tmp_path, search("Fetch the price list"))
    assert found == []
    path.write_text(path.read_text("utf-8").replace("status: retired", "status: active"), "utf-8")
    os.utime(path.parent, (1_000_000, 1_000_000))
    (found,) = run(tmp_path, search("Fetch the price list"))
    assert [match.lesson.id for match in found] == [one.id]


def test_a_refresh_counts_lessons_and_names_broken_files(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    one, other = file(tmp_path, lesson(), lesson(PARTIAL))
    folder = LessonFolder(tmp_path, AGENT)
    path = folder.entry_of(one.id).path
    text = path.read_text("utf-8")
    (path.parent / "2026-01-01-broken.md").write_text(f"no lesson, password={SECRET}", "utf-8")
    first, again = run(tmp_path, refresh, refresh)
    assert first.lessons == 2
    assert list(first.broken) == [f"{AGENT}/2026-01-01-broken"]
    assert "before the first heading" in str(first.broken)
    assert SECRET not in str(first.broken)
    assert again == first
    folder.write(replace(one, why="edited"))
    folder.entry_of(other.id).path.write_text("spoilt", "utf-8")
    (path.parent / "2026-01-01-broken.md").write_text(text, "utf-8")
    folder.add(lesson(DECISION))
    (changed,) = run(tmp_path, refresh)
    assert changed.lessons == 3
    assert list(changed.broken) == [other.id]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems take only names in Unicode")
def test_a_file_whose_name_is_not_utf8_is_named_and_hides_no_other(tmp_path):
    (good,) = file(tmp_path, lesson())
    path = LessonFolder(tmp_path, AGENT).entry_of(good.id).path
    name = os.fsdecode(b"Geb\xfchr")
    for copy in (path.with_name(f"{name}.md"), path.parents[1] / name / "a.md"):
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
    (found,) = run(tmp_path, refresh)
    assert (found.lessons, list(found.broken)) == (1, ["Geb\ufffdhr", f"{AGENT}/Geb\ufffdhr"])
    assert "The name of this file is not UTF-8: rename it." in str(found.broken)
    problems = asyncio.run(LessonLibrary(tmp_path, store=False).problems())
    assert {problem.id for problem in problems} == {*found.broken}


def test_indexing_changes_no_lesson_file(tmp_path):
    file(tmp_path, lesson(), lesson(PARTIAL))
    (tmp_path / "reflections" / AGENT / "broken.md").write_text("broken", "utf-8")
    (tmp_path / "reflections" / "No Agent's").mkdir()

    def state():
        found = sorted((tmp_path / "reflections").rglob("*"))
        return [(one, one.stat().st_mtime_ns, one.read_bytes() if one.is_file() else b"") for one in found]

    before = state()
    refreshed, *_ = run(tmp_path, refresh, fill, search("Fetch"), rebuild, embedder=ScriptedEmbedder())
    assert state() == before
    assert list(refreshed.broken) == ["No Agent's", f"{AGENT}/broken"]


def test_only_the_owner_can_read_the_index_and_git_ignores_it(tmp_path):
    file(tmp_path, lesson())
    run(tmp_path, refresh)
    folder = tmp_path / ".index"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / FILE).stat().st_mode & 0o777 == 0o600
    assert "*" in (folder / ".gitignore").read_text("utf-8").split()


def test_secrets_are_withheld_from_the_index(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    (one,) = file(tmp_path, lesson())
    path = LessonFolder(tmp_path, AGENT).entry_of(one.id).path
    text = (
        path.read_text("utf-8")
        .replace("next_cursor", SECRET)
        .replace("E4031", SECRET)
        .replace("shop", SECRET)
    )
    path.write_text(text, "utf-8")
    embedder = ScriptedEmbedder()
    _, _, found = run(tmp_path, refresh, fill, search("Fetch the price list"), embedder=embedder)
    assert len(found) == 1
    kept = b"".join(each.read_bytes() for each in (tmp_path / ".index").iterdir())
    assert SECRET.encode() not in kept
    assert b"price list" in kept
    assert not any(SECRET in each for each in embedder.texts)


def spoil_all(path):
    path.write_bytes(b"not a database" * 1000)


def spoil_the_middle(path):
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def remove(path):
    shutil.rmtree(path.parent)


def without_tables(path):
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE agents")
    connection.close()


def with_text_that_is_none(path):
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE lessons SET content = CAST(x'ff' AS TEXT)")
    connection.close()


@pytest.mark.parametrize(
    "spoil", [spoil_all, spoil_the_middle, empty, remove, without_tables, with_text_that_is_none]
)
def test_an_unusable_index_is_rebuilt(tmp_path, spoil):
    file(tmp_path, *(lesson(procedure(f"{n} " * 20 + "x" * n), summary=f"n {n}") for n in range(40)))

    async def main():
        index = LessonIndex(tmp_path)
        await index.refresh()
        assert len(await search("Fetch the price list")(index)) == 3
        spoil(tmp_path / ".index" / FILE)
        return [await step(index) for step in (search("Fetch the price list"), refresh, search("Fetch"))]

    found, refreshed, again = asyncio.run(main())
    assert len(found) == len(again) == 3
    assert refreshed == Indexed(40)
    assert len(list((tmp_path / ".index").glob("*.db"))) == 1


def test_an_index_of_an_older_version_is_deleted(tmp_path):
    older = ["lessons-1-4.db", "lessons-1-4.db-wal", "lessons-1-4.db-shm"]
    (tmp_path / ".index").mkdir()
    for name in (*older, "lessons-3.db"):
        (tmp_path / ".index" / name).write_bytes(b"")
    file(tmp_path, lesson())
    assert len(run(tmp_path, search("Fetch the price list"))[0]) == 1
    assert {path.name for path in (tmp_path / ".index").iterdir()} == {FILE, "lessons-3.db", "lock"}


def test_an_index_that_another_process_has_replaced_is_the_one_in_use(tmp_path):
    file(tmp_path, lesson())

    async def main():
        index, other = LessonIndex(tmp_path), LessonIndex(tmp_path)
        assert len(await search("Fetch the price list")(index)) == 1
        shutil.rmtree(tmp_path / ".index")
        assert len(await search("Fetch the price list")(other)) == 1
        file(tmp_path, lesson(PARTIAL, summary="new", task_type="new"))
        [first, _] = await search("Fetch the price list", task_type="new")(index)
        assert first.lesson.summary == "new"

    asyncio.run(main())
    grown = rows(tmp_path)
    run(tmp_path, rebuild)
    assert rows(tmp_path) == grown


def test_vectors_survive_a_rebuild_and_belong_to_their_embedder(tmp_path):
    file(tmp_path, lesson(), lesson(PARTIAL))
    embedder, other = ScriptedEmbedder(), ScriptedEmbedder(64)
    assert run(tmp_path, refresh, fill, rebuild, fill, embedder=embedder)[1::2] == [2, 0]
    assert run(tmp_path, fill, embedder=other) == [2]
    assert run(tmp_path, fill, embedder=embedder) == [0]
    renamed = ScriptedEmbedder(32)
    renamed.name = embedder.name
    asked = search("Fetch the price list", agent=None)
    found, filled, again = run(tmp_path, asked, fill, asked, embedder=renamed)
    assert filled == 2
    assert "similarity" not in found[0].reason
    assert "similarity" in again[0].reason


def test_a_lesson_from_the_future_is_as_new_as_one_of_today(tmp_path):
    _, proven = file(
        tmp_path,
        lesson(procedure("walls of stone"), summary="future", task_type="fruit", day=date(2029, 1, 1)),
        lesson(procedure("pears"), summary="proven", task_type="fruit", day=date(2026, 11, 22)),
    )
    wanted = LessonQuery("Something else", "fruit", agent=AGENT)
    effects = {proven.id: 0.01}

    def found(query):
        return summaries(run(tmp_path, lambda index: index.search(query, effects))[0])

    assert found(replace(wanted, now=datetime(2029, 2, 1, tzinfo=UTC))) == ["future", "proven"]
    assert found(replace(wanted, now=datetime(2026, 11, 22, tzinfo=UTC))) == ["proven", "future"]


def test_the_newest_lessons_are_embedded_first(tmp_path):
    for when, agent in ((1_000_000, "early"), (3_000_000, "late"), (2_000_000, "between")):
        folder = LessonFolder(tmp_path, agent)
        for day in (1, 3, 2):
            folder.add(lesson(agent=agent, task=f"{agent} {day}", day=date(2026, 3, day), error=""))
        own = tmp_path / "reflections" / agent
        for path in (*own.iterdir(), own):
            os.utime(path, (when, when))
    embedder = ScriptedEmbedder()

    def some(index):
        return index.fill(2)

    def embedded():
        asked = {text.split("\n")[0] for text in embedder.texts}
        embedder.texts.clear()
        return asked

    assert run(tmp_path, lambda index: index.fill(1, "between"), embedder=embedder) == [1]
    assert embedded() == {"between 3"}
    assert run(tmp_path, some, embedder=embedder) == [2]
    assert embedded() == {"late 3", "late 2"}
    assert run(tmp_path, some, embedder=embedder) == [2]
    assert embedded() == {"late 1", "between 2"}
    LessonFolder(tmp_path, "early").add(lesson(agent="early", task="new", day=date(2026, 4, 1)))
    assert run(tmp_path, some, embedder=embedder) == [2]
    assert embedded() == {"new", "early 3"}
    assert run(tmp_path, fill, fill, embedder=embedder) == [3, 0]
    assert embedded() == {"early 2", "early 1", "between 1"}


@pytest.mark.parametrize("error", [ModelError, OutputError])
def test_full_text_is_searched_if_the_embedder_fails(tmp_path, caplog, error):
    class Failing:
        name = "failing"

        async def __call__(self, texts, /):
            raise error("The provider is away.")

    file(tmp_path, lesson())
    with caplog.at_level(logging.WARNING, logger="redraft"):
        (found,) = run(tmp_path, search("Fetch the price list"), embedder=Failing())
    assert len(found) == 1
    assert "full text alone: The provider is away." in caplog.text
    with pytest.raises(error, match="The provider is away"):
        run(tmp_path, fill, embedder=Failing())


def test_a_question_is_embedded_once(tmp_path):
    embedder = ScriptedEmbedder()
    run(tmp_path, search("Fetch"), search("Fetch"), search("Fetch", error="E1"), embedder=embedder)
    assert embedder.texts == ["Fetch", "Fetch\nE1"]


@pytest.mark.parametrize("with_numpy", [True, False])
@pytest.mark.parametrize("agent", ["agent-0", None])
def test_results_are_sorted_by_cosine(tmp_path, monkeypatch, with_numpy, agent):
    if not with_numpy:
        monkeypatch.setattr(ranking, "numpy", lambda: None)
    rng = random.Random(3)  # noqa: S311 (made up, and always the same)
    words = [f"w{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(300)]
    embedder, tasks, asked = ScriptedEmbedder(), {}, ""
    for n in range(60):
        said = " ".join(rng.choices(words, k=12))
        asked = said if n == 56 else asked  # of agent-0
        one = lesson(
            procedure(said),
            agent=f"agent-{n % 4}",
            summary=f"n {n}",
            task=said,
            error="",
            tools=(),
            task_type="",
        )
        LessonFolder(tmp_path, one.agent).add(one)
        if agent in (None, one.agent):
            tasks[said] = one.summary
    *_, found = run(tmp_path, refresh, fill, search(asked, agent=agent, k=5), embedder=embedder)
    embedded = [text for text in embedder.texts if text != asked]
    texts = {tasks[first]: text for text in embedded if (first := text.split("\n")[0]) in tasks}
    question, *rows = asyncio.run(embedder([asked, *texts.values()]))
    cosines = {
        name: sum(one * other for one, other in zip(question, vector, strict=True))
        for name, vector in zip(texts, rows, strict=True)
    }
    wanted = sorted((name for name in cosines if cosines[name] >= 0.3), key=cosines.get, reverse=True)
    assert [one.score for one in found] == pytest.approx(
        [cosines[name] for name in summaries(found)], abs=1e-3
    )
    assert found[0].lesson.summary == wanted[0] == "n 56"


def rows(path):
    """The contents of an index, without row numbers."""
    (database,) = (path / ".index").glob("*.db")
    connection = sqlite3.connect(database)
    connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, words, 'instance')")
    lessons = connection.execute(
        "SELECT folder, id, size, documents.digest, problem, status, kind, written, task_type, tools, "
        "length, content, searched, meaning, lessons.digest "
        "FROM documents JOIN agents ON agent = number >> 24 "
        "LEFT JOIN lessons USING (number) LEFT JOIN words ON words.rowid = number ORDER BY id"
    ).fetchall()
    words = connection.execute(
        "SELECT id, term, offset FROM temp.terms JOIN documents ON number = doc ORDER BY id, offset, term"
    ).fetchall()
    (lost,) = connection.execute(
        "SELECT count(*) FROM temp.terms WHERE doc NOT IN (SELECT number FROM lessons)"
    )
    agents = connection.execute("SELECT folder FROM agents ORDER BY folder").fetchall()
    connection.close()
    assert lost == (0,)
    return lessons, words, agents


def change(rng, path):
    """Make one random change to the lessons."""
    folder = LessonFolder(path, f"agent-{rng.randrange(3)}")
    entries = list(folder.entries())
    what = rng.choice(("add", "add", "add", "edit", "status", "delete", "archive", "break", "mend", "touch"))
    if what == "add" or not entries:
        day = date(2025, 1, 1) + timedelta(days=rng.randrange(700))
        folder.add(
            lesson(procedure(f"words {rng.random()}"), agent=folder.agent, day=day, summary=f"s {day}")
        )
        return
    entry = rng.choice(entries)
    if what == "delete":
        entry.path.unlink()
    elif what == "archive":
        folder.archive(keep=2)
    elif what == "break":
        entry.path.write_text(f"broken {rng.random()}", "utf-8")
    elif what == "touch":
        entry.path.touch()
    elif what == "mend" or entry.path.read_bytes().startswith(b"broken"):
        mended = lesson(PARTIAL, agent=folder.agent, id=entry.id, summary="mended")
        folder.write(mended)
    elif what == "edit":
        folder.write(replace(folder.read_entry(entry), summary=f"edited {rng.random()}"))
    else:
        folder.write(
            replace(folder.read_entry(entry), status=rng.choice(("active", "retired", "quarantined")))
        )


@pytest.mark.parametrize("seed", range(2))
def test_after_any_history_the_index_equals_a_rebuilt_one(tmp_path, seed):
    rng = random.Random(seed)  # noqa: S311 (made up, and always the same)

    async def main():
        index = LessonIndex(tmp_path, ScriptedEmbedder())
        for _ in range(60):
            change(rng, tmp_path)
            what = rng.random()
            if what < 0.3:
                await index.search(LessonQuery("words", agent=rng.choice((None, "agent-1"))))
            elif what < 0.5:
                await index.refresh()
            elif what < 0.6:
                await index.fill()
        await index.refresh()
        grown = rows(tmp_path)
        await index.rebuild()
        assert rows(tmp_path) == grown

    asyncio.run(main())
    grown = rows(tmp_path)
    shutil.rmtree(tmp_path / ".index")
    run(tmp_path, refresh)
    assert rows(tmp_path) == grown


ADDING = """
import asyncio, sys
sys.path.insert(0, sys.argv[3])
from support.lessons import lesson
from redraft.lessons.folder import LessonFolder
from redraft.lessons.index import LessonIndex
from redraft.lessons.ranking import LessonQuery

async def main():
    folder, index = LessonFolder(sys.argv[1], "shared"), LessonIndex(sys.argv[1])
    for number in range(int(sys.argv[4])):
        words = f"P{sys.argv[2]}N{number}"
        added = folder.add(lesson(agent="shared", summary=f"by {sys.argv[2]}", error=words, task_type=words))
        asked = LessonQuery("Fetch the price list", words, agent="shared")
        found = await index.search(asked)
        assert found[0].lesson.id == added.id, found
        print(added.id, flush=True)
        await index.refresh()

asyncio.run(main())
"""


def test_processes_share_one_index_and_may_be_killed(tmp_path):
    here = str(Path(__file__).parent.parent)

    def start(name, count):
        command = [sys.executable, "-c", ADDING, str(tmp_path), name, here, str(count)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    killed = [start("a", 10_000), start("b", 10_000)]
    others = [start("c", 4), start("d", 4)]
    for process in killed:
        process.stdout.readline()  # it writes to the index from now on
        process.kill()
    outputs = [process.communicate(timeout=120) for process in others]
    assert [process.returncode for process in others] == [0, 0], outputs
    for process in killed:
        process.communicate()
    run(tmp_path, refresh)
    grown = rows(tmp_path)
    assert len(grown[0]) >= 2 * 4 + 2
    shutil.rmtree(tmp_path / ".index")
    run(tmp_path, refresh)
    assert rows(tmp_path) == grown


def test_tasks_share_one_index(tmp_path):
    index = LessonIndex(tmp_path, ScriptedEmbedder())

    async def add_and_find(number):
        name = f"type {number}"
        one = lesson(procedure(f"pears {number}"), summary=name, task_type=name)
        await asyncio.to_thread(file, tmp_path, one)
        if number % 3 == 0:
            await index.fill()
        [first, *_] = await index.search(LessonQuery("Fetch", name, agent=AGENT, k=9))
        assert first.lesson.summary == name

    async def main():
        await asyncio.gather(*(add_and_find(number) for number in range(24)))

    asyncio.run(main())


def without_room(path, monkeypatch):
    run(path, refresh)
    with sqlite3.connect(path / ".index" / FILE) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.close()
    monkeypatch.setattr(index_module, "_SETTINGS", f"PRAGMA max_page_count = {pages};")


def with_a_file_for_the_folder(path, monkeypatch):
    (path / ".index").write_text("")


def with_a_folder_for_the_file(path, monkeypatch):
    (path / ".index" / FILE).mkdir(parents=True)


@pytest.mark.parametrize("hindered", [without_room, with_a_file_for_the_folder, with_a_folder_for_the_file])
def test_lessons_are_searched_in_memory_if_no_file_can_be_written(tmp_path, monkeypatch, caplog, hindered):
    hindered(tmp_path, monkeypatch)
    new = [lesson(procedure(f"{n} " * 9 + "x" * n), summary=f"n {n}", id=f"{AGENT}/n-{n}") for n in range(99)]
    file(tmp_path, *new)
    asked = LessonQuery("Fetch the price list", agent=AGENT)

    async def main():
        index = LessonIndex(tmp_path, ScriptedEmbedder())
        with pytest.raises(StoreError, match=FILE):
            await index.refresh()
        results = await asyncio.gather(*(index.search(asked) for _ in range(3)))
        assert [len(each) for each in results] == [3, 3, 3]
        file(tmp_path, lesson(summary="later", task_type="later"))
        assert await index.fill() == 100
        [later, *_] = await index.search(replace(asked, task_type="later"))
        assert later.lesson.summary == "later"
        assert "similarity" in later.reason

    with caplog.at_level(logging.WARNING, logger="redraft"):
        asyncio.run(main())
    assert len(caplog.records) == 1
    assert "Lessons are indexed in memory" in caplog.text


# --- embedding in the background ---------------------------------------------------------------------------

of_a_run = ContextVar("of_a_run", default="nothing")


class Gated(ScriptedEmbedder):
    """An embedder that waits for `gate`, and records the context in which it is called."""

    def __init__(self):
        super().__init__()
        self.gate, self.began, self.saw = asyncio.Event(), asyncio.Event(), set()

    async def __call__(self, texts, /):
        if texts == [TASK.description]:  # a question
            return unit_rows(self.name, [[1.0] * 256], 1)
        self.saw.add(of_a_run.get())
        self.began.set()
        await self.gate.wait()
        return await super().__call__(texts)


async def recorded(path):
    """Write a lesson without embedding it."""
    async with learning(path, embedder="none") as lessons:
        await lessons.record(FAILURE, TASK)


def test_a_run_does_not_wait_for_the_embedder(tmp_path):
    async def main():
        embedder = Gated()
        async with learning(tmp_path, embedder=embedder, model=writer(), trusted=True) as lessons:
            of_a_run.set("something")
            await asyncio.wait_for(run_task(lessons, 0.1), 60)
            assert len(await lessons.find()) == 1
            await asyncio.wait_for(embedder.began.wait(), 60)
            assert embedder.texts == []
            embedder.gate.set()
        assert embedder.saw == {"nothing"}
        assert len(embedder.texts) == 1  # what was begun is done before the lessons are closed

    asyncio.run(main())


def test_the_next_search_finishes_interrupted_embedding(tmp_path, caplog):
    embedder = Gated()

    async def cut_off(lessons):
        await run_task(lessons, 0.1)
        await embedder.began.wait()

    async def asked(lessons):
        return await lessons.search(TASK)

    async def with_lessons(use, embedder):
        lessons = learning(tmp_path, embedder=embedder, model=writer(), trusted=True)
        entered = await lessons.__aenter__()
        try:
            return await use(entered)
        finally:
            if use is asked:
                await lessons.__aexit__(None, None, None)

    asyncio.run(with_lessons(cut_off, embedder))
    assert embedder.texts == []
    later = ScriptedEmbedder()
    [found] = asyncio.run(with_lessons(asked, later))
    assert "similarity" in found.reason
    assert len(later.texts) == 2  # the lesson and the question
    assert caplog.records == []


def test_record_and_edit_return_once_the_lesson_is_embedded(tmp_path):
    async def main():
        await recorded(tmp_path)
        async with learning(tmp_path, embedder=ScriptedEmbedder()) as lessons:
            baking = await lessons.record(PARTIAL, "Bake bread")
            for content in (PARTIAL, replace(PARTIAL, what_happened="The bread was black.")):
                await lessons.edit(baking.id, content)
                found = await lessons.search(replace(TASK, description="Bake bread"), 9)
                assert len(found) == 2
                assert all("similarity" in one.reason for one in found)

    asyncio.run(main())


@pytest.mark.parametrize("error", [ValueError("no such model"), OSError("away")])
def test_a_failing_embedder_is_logged_and_retried_after_the_next_lesson(tmp_path, caplog, error):
    calls = []

    def failing(texts):
        calls.append(len(texts))
        raise error

    async def main():
        await recorded(tmp_path)
        async with learning(tmp_path, embedder=failing) as lessons:
            with suppress(ValueError, OSError):
                await lessons.search(TASK)
            with suppress(ValueError, OSError):
                await lessons.search(TASK)
            assert len(calls) == 3  # a lesson, a question and a question
            await lessons.record(FAILURE, "Bake bread")
            assert len(calls) == 4

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [f"New lessons are found by full text only for now: {error}"] * 2


ENDING = """
import sys, time
sys.path.insert(0, sys.argv[2])
from support.learning_agents import REPLY
from redraft import Agent, Lessons, QualityCriterion, ReflectionPattern, ScriptedModel

def slow(texts):
    time.sleep(0.2)
    return [[1.0, float(len(text))] for text in texts]

digits = QualityCriterion("digits", evaluator="regex", evaluator_config={"pattern": "[0-9]"})
once = ReflectionPattern(max_iterations=0, quality_criteria=[digits])
lessons = Lessons(sys.argv[1], agent="clerk", embedder=slow, trusted=True, store=False)
model = ScriptedModel(lambda request: REPLY if request.role == "reflection" else "no number")
for _ in range(2):
    print(Agent(model, pattern=once, lessons=lessons, keep=False).run_sync("Write down the order").success)
"""


def test_a_program_exits_without_warnings(tmp_path):
    here = str(Path(__file__).parent.parent)
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", ENDING, str(tmp_path), here],
        capture_output=True,
        timeout=60,
        check=False,
        text=True,
        cwd=tmp_path,
    )
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["False", "False"], "")


def test_lessons_that_helped_come_first(tmp_path):
    vectors = {"pears": [1.0, 0.0], "plums": [0.94, 0.341], "quinces": [0.25, 0.97], "nuts": [0.0, 1.0]}

    def embed(texts):
        return [next((v for name, v in vectors.items() if name in text), [1.0, 0.0]) for text in texts]

    file(
        tmp_path,
        *(lesson(procedure(name), summary=name, task=name, task_type="", tools=()) for name in vectors),
    )
    query = LessonQuery("What to do?", agent=AGENT)
    ids = {name: f"{AGENT}/2026-03-01-{name}" for name in vectors}
    _, found, again, better = run(
        tmp_path,
        fill,
        lambda index: index.search(query),
        lambda index: index.search(query, {ids["plums"]: -0.8}),
        lambda index: index.search(query, {ids["plums"]: 0.8, "agent/deleted": 1.0}),
        embedder=FunctionEmbedder(embed, "four"),
    )
    assert sorted(summaries(found)) == ["pears", "plums"]
    assert (summaries(again), summaries(better)) == (["pears", "plums"], ["plums", "pears"])
    assert "hurt before" in again[1].reason
    assert "helped before" in better[0].reason


def test_a_lesson_is_found_by_its_title(tmp_path):
    named = lesson(procedure("Ask again."), summary="named", task="Sail", title="Rate limits of NordShop")
    other = lesson(procedure("Ask twice."), summary="other", task="Sail")
    file(tmp_path, named, other)
    *_, found = run(tmp_path, refresh, search("What does NordShop allow?"))
    assert summaries(found) == ["named"]
