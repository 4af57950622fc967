"""LessonVectors: machines that share a store embed each text once."""

import asyncio
import logging
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from redraft import ModelError
from redraft.errors import OutputError, StoreError
from redraft.lessons.folder import LessonFolder
from redraft.lessons.index import LessonIndex
from redraft.lessons.lessons import Lessons
from redraft.lessons.vectors import KIND, LessonVectors, shared_store
from redraft.models.embed import ScriptedEmbedder
from redraft.stores.memory import MemoryStore
from redraft.stores.postgres import PostgresStore
from redraft.stores.sqlite import SqliteStore
from support.lessons import PROCEDURE, lesson

TEXTS = {b"1": "pears and apples", b"2": "plums"}


def vectors_of(texts, shared, embedder=None):
    """Return the vectors of texts, and the texts that had to be embedded."""
    embedder = embedder or ScriptedEmbedder()
    asked = len(embedder.texts)
    found = asyncio.run(LessonVectors(embedder, shared).of_texts(texts))
    return found, embedder.texts[asked:]


@pytest.fixture(params=["pgvector", "without pgvector"])
def server(request, postgres):
    if request.param == "pgvector":
        if not postgres.ask("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
            pytest.skip("The PostgreSQL server that was given has no pgvector.")
        postgres.ask(f"CREATE EXTENSION IF NOT EXISTS vector SCHEMA {postgres.schema}")
    return postgres


def test_machines_that_share_a_database_embed_each_lesson_once(server, tmp_path):
    async def learned(machine, words):
        """Write a lesson on a machine that has the files of the others; return the texts that it embedded."""
        store, embedder = PostgresStore(server.url, "project"), ScriptedEmbedder()
        lessons = Lessons(tmp_path / machine, store=store, embedder=embedder)
        try:
            await lessons.record(replace(PROCEDURE, strategy=words), words)
            asked = len(embedder.texts)
            found = await lessons.search("Fetch apples")
            assert embedder.texts[asked:] == ["Fetch apples"]
            return embedder.texts[:asked], found
        finally:
            await lessons.aclose()
            await store.aclose()

    async def main():
        first, _ = await learned("one", "Fetch pears and apples")
        assert len(first) == 1
        for path in (tmp_path / "one" / "reflections" / "agent").glob("*.md"):
            there = tmp_path / "two" / "reflections" / "agent" / path.name
            there.parent.mkdir(parents=True)
            there.write_bytes(path.read_bytes())
        second, found = await learned("two", "Bake a plum cake")
        assert len(second) == 1
        assert "plum" in second[0]
        assert found[0].lesson.task == "Fetch pears and apples"
        assert "similarity" in found[0].reason

    asyncio.run(main())
    rows = server.ask("SELECT key, cardinality(vector) FROM redraft_records WHERE kind = 'lesson_vector'")
    assert sorted(size for _, size in rows) == [256, 256]
    assert all(key.startswith("scripted:256/") for key, _ in rows)


def test_a_text_is_embedded_once_for_each_embedder_and_project():
    store = MemoryStore()
    alone, everything = vectors_of(TEXTS, None)
    assert everything == list(TEXTS.values())
    assert vectors_of(TEXTS, store) == (alone, everything)
    found, embedded = vectors_of(TEXTS | {b"3": "figs"}, store)
    assert embedded == ["figs"]
    assert found[b"1"] == pytest.approx(alone[b"1"], abs=1e-6)
    assert vectors_of(TEXTS, store, ScriptedEmbedder(8))[1] == everything
    assert vectors_of(TEXTS, MemoryStore())[1] == everything


def test_vectors_of_an_earlier_embedder_of_the_same_name_are_replaced():
    store, embedder = MemoryStore(), ScriptedEmbedder(8)
    embedder.name = ScriptedEmbedder().name
    vectors_of(TEXTS, store, embedder)
    vectors = LessonVectors(ScriptedEmbedder(), store)

    async def main():
        assert len((await vectors.of_texts(TEXTS))[b"1"]) == 8  # nothing tells yet
        assert list(await vectors.of_texts(TEXTS | {b"3": "figs"})) == [b"3"]
        assert {len(row) for row in (await vectors.of_texts(TEXTS)).values()} == {256}

    asyncio.run(main())
    assert {len(row) for row in vectors_of(TEXTS, store)[0].values()} == {256}


def test_a_rebuild_deletes_old_vectors_of_texts_that_no_lesson_has(tmp_path, monkeypatch):
    monkeypatch.setattr("redraft.lessons.vectors.PAGE", 2)
    store, embedder = MemoryStore(), ScriptedEmbedder()

    async def main():
        folder, index = LessonFolder(tmp_path, "agent"), LessonIndex(tmp_path, embedder, shared=store)
        kept = [
            folder.add(lesson(agent="agent", task=f"Fetch {what}")) for what in ("figs", "pears", "plums")
        ]
        other = LessonIndex(tmp_path, ScriptedEmbedder(8), shared=store)  # another machine's
        assert [await one.fill() for one in (index, other)] == [3, 3]
        folder.path_of(kept[0].id).unlink()
        await index.rebuild()
        assert len(await store.find(KIND)) == 6  # another machine may not have heard of it
        monkeypatch.setattr("redraft.lessons.vectors.UNUSED", timedelta(0))
        await index.rebuild()
        left = [record.key.partition("/")[0] for record in await store.find(KIND)]
        assert left == ["scripted:256"] * 2 + ["scripted:8"] * 2
        asked = len(embedder.texts)
        shutil.rmtree(tmp_path / ".index")
        assert await index.fill() == 2
        assert len(embedder.texts) == asked
        await index.aclose()
        await other.aclose()

    asyncio.run(main())


class Away(MemoryStore):
    """A store that is unavailable, and counts requests."""

    def __init__(self, *, reads=False):
        super().__init__()
        self.asked, self.reads = 0, reads

    async def get(self, kind, key, /):
        self.asked += 1
        if self.reads:
            return
        raise StoreError("the server is away")

    async def put_all(self, records, /):
        self.asked += 1
        raise StoreError("the server is away")

    async def find(self, kind, /, **asked):
        raise StoreError("the server is away")


@pytest.mark.parametrize("reads", [False, True], ids=["read", "written"])
def test_texts_are_embedded_locally_while_the_store_is_unavailable(reads, caplog, monkeypatch):
    store, embedder = Away(reads=reads), ScriptedEmbedder()
    vectors = LessonVectors(embedder, store)
    now = 1000.0
    monkeypatch.setattr("redraft.lessons.vectors.monotonic", lambda: now)
    with caplog.at_level(logging.WARNING):
        assert set(asyncio.run(vectors.of_texts(TEXTS))) == set(TEXTS)
        once = store.asked
        assert set(asyncio.run(vectors.of_texts(TEXTS))) == set(TEXTS)
    assert store.asked == once
    assert embedder.texts == [*TEXTS.values(), *TEXTS.values()]
    assert [record.getMessage() for record in caplog.records] == [
        "The vectors of lessons are not shared for 60 seconds: the server is away"
    ]
    assert asyncio.run(vectors.sweep({b"1"})) == 0
    now += 60
    asyncio.run(vectors.of_texts(TEXTS))
    assert store.asked == 2 * once


@pytest.mark.parametrize("error", [ModelError, OutputError])
def test_errors_of_the_embedder_are_raised_except_for_questions(error, caplog):
    class Failing(ScriptedEmbedder):
        async def __call__(self, texts, /):
            raise error("no answer")

    store = MemoryStore()
    with pytest.raises(error):
        vectors_of(TEXTS, store, Failing())
    assert asyncio.run(store.find(KIND)) == []
    with caplog.at_level(logging.WARNING):
        assert asyncio.run(LessonVectors(Failing(), store).of_question("pears")) is None
    assert "full text alone: no answer" in caplog.text


def test_only_a_store_shared_between_machines_is_used_for_vectors(tmp_path):
    server = PostgresStore("postgresql://db.example/agents")
    assert shared_store(server) is server
    file = SqliteStore(tmp_path / "redraft.db")
    assert [shared_store(one) for one in (None, MemoryStore(), file)] == [None] * 3
