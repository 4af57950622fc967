"""How well lessons are ranked: recorded reflections, searched by tasks, by names, and by paraphrases.

The paraphrases were written before any ranking had seen them, and nothing was chosen on them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sqlite3
from collections import defaultdict
from dataclasses import replace
from datetime import date
from hashlib import sha256
from heapq import nlargest
from itertools import chain
from operator import mul
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from _measure import PROJECT, options, publish, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from redraft.lessons.index import FoundLesson
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.ranking import Candidate, Ranking
    from redraft.models.embed import NamedEmbedder

CORPUS = "reflections_corpus.jsonl.gz"
PARAPHRASES = Path(__file__).with_name("paraphrases.json")
QUESTIONS = 60
IN_USE, RECALLED = 30, 3
"""Lessons of an agent for which the threshold is measured, and lessons that a run is given."""
THRESHOLDS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55)
FIRST = 50
"""Lessons that are looked at for the rank of the first right one."""


class Reflection(NamedTuple):
    """A recorded reflection: whose run it was, which task it was about, and the task's text where known."""

    number: int
    run: str
    task_id: str
    task: str
    text: str


def recorded(file: Path) -> list[Reflection]:
    """Return the recorded reflections, without duplicates."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Reflection(row["id"], row["run"], row["task_id"], row.get("task_text") or "", row["text"])
        for row in rows
        if row.get("dup_of") is None
    ]


def sentences_of(text: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.!?])\s+", text) if one.strip()]


def lesson_of(reflection: Reflection) -> Lesson:
    """Return a reflection as a lesson that does not say which task it was about."""
    from redraft.lessons.lesson import Lesson, Partial

    sentences = sentences_of(reflection.text)
    third = max(1, len(sentences) // 3)
    parts = [sentences[:third], sentences[third : 2 * third], sentences[2 * third :]]
    happened, wrong, differently = (" ".join(part) or "See above." for part in parts)
    return Lesson(
        Partial(happened, wrong, differently), agent="all", day=date(2026, 1, 1), summary=sentences[0][:60]
    )


class Remembering:
    """Embed each text once."""

    def __init__(self, embedder: NamedEmbedder) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self.known: dict[str, Sequence[float]] = {}

    async def __call__(self, texts: Sequence[str], /) -> list[Sequence[float]]:
        """Return the vectors of `texts`."""
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        self.known.update(zip(missing, await self._embedder(missing), strict=True))
        return [self.known[text] for text in texts]


class Ranked:
    """The ranks of the first right lesson, one a question."""

    def __init__(self) -> None:
        self.ranks: list[int | None] = []

    def add(self, right: Iterable[bool]) -> None:
        """Count a question, of whose answers some are right."""
        self.ranks.append(next((rank for rank, one in enumerate(right, 1) if one), None))

    def row(self, name: str) -> tuple[object, ...]:
        """Return the row of a table."""
        count = len(self.ranks)
        at_1 = sum(rank == 1 for rank in self.ranks) / count
        at_3 = sum(rank is not None and rank <= 3 for rank in self.ranks) / count
        mrr = sum(1 / rank for rank in self.ranks if rank) / count
        return name, f"{at_1:.3f}", f"{at_3:.3f}", f"{mrr:.3f}"


HEAD = ("precision at 1", "right one of 3", "MRR")
PLAIN, TEXT, VECTORS, DEFAULT = "SQLite's bm25()", "full text alone", "vectors alone", "default"


def bm25_table(documents: Sequence[Reflection]) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(
        """CREATE VIRTUAL TABLE t USING fts5(w, tokenize = "porter unicode61 tokenchars '_'")"""
    )
    connection.executemany("INSERT INTO t VALUES (?)", [(one.text,) for one in documents])
    return connection


def by_bm25(connection: sqlite3.Connection, text: str) -> list[int]:
    words = " OR ".join(f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", text)))
    rows = connection.execute("SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT ?", (words, FIRST))
    return [number - 1 for (number,) in rows]


class Collection:
    """An index of recorded reflections, and what tells which one a lesson was."""

    def __init__(self, folder: Path, documents: Sequence[Reflection], embedder: Remembering) -> None:
        from redraft.lessons.index import LessonIndex
        from redraft.lessons.markdown import render

        self.documents = documents
        self._embedder = embedder
        files = folder / "reflections" / "all"
        files.mkdir(parents=True)
        for number, one in enumerate(documents):
            (files / f"2026-01-01-{number}.md").write_text(render(lesson_of(one)), "utf-8")
        self.by_text, self.default = LessonIndex(folder), LessonIndex(folder, embedder)
        self.plain = bm25_table(documents)

    async def ready(self) -> None:
        """Wait for all vectors."""
        from redraft.lessons.indexer import row_of
        from redraft.redact.redactor import Redactor

        await self.default.refresh()
        await self.default.fill()
        texts = [row_of(lesson_of(one), Redactor()).meaning for one in self.documents]
        self._vectors = await self._embedder(texts)

    async def rankings(self, text: str) -> dict[str, list[Reflection]]:
        """Return what each way of ranking finds for a text, before the threshold cuts anything off."""
        from redraft.lessons import ranking

        query = ranking.LessonQuery(text, k=FIRST)
        with patch.object(ranking, "threshold_of", lambda *_, **__: -1.0):
            default = await self.default.search(query)
        return {
            PLAIN: [self.documents[place] for place in by_bm25(self.plain, text)],
            TEXT: self._of(await self.by_text.search(query)),
            VECTORS: await self._by_vectors(text),
            DEFAULT: self._of(default),
        }

    def _of(self, found: Iterable[FoundLesson]) -> list[Reflection]:
        return [self.documents[int(one.lesson.id.rpartition("-")[2])] for one in found]

    async def _by_vectors(self, text: str) -> list[Reflection]:
        (question,) = await self._embedder([text])
        cosines = [sum(map(mul, vector, question)) for vector in self._vectors]
        nearest = nlargest(FIRST, range(len(cosines)), key=cosines.__getitem__)
        return [self.documents[place] for place in nearest]

    async def aclose(self) -> None:
        """Let go of the indexes."""
        await self.by_text.aclose()
        await self.default.aclose()
        self.plain.close()


class Asked(NamedTuple):
    """How all lessons match a question, and which of them is the right one."""

    ranking: Ranking
    candidates: list[Candidate]
    right: int

    def recalled(self, threshold: float | None, *, with_right: bool = True) -> list[bool]:
        """Return which lessons a run is given, by whether each is right; None is the default threshold."""
        from redraft.lessons.ranking import threshold_of

        there = [one for one in self.candidates if with_right or one.number != self.right]
        if threshold is None:
            # Without counters and confidences, a score is how well a lesson matches.
            scores = [self.ranking.score(one) for one in there]
            threshold = threshold_of(scores, has_names=self.ranking.has_names)
        found = replace(self.ranking, threshold=threshold).ordered(there)
        return [one.number == self.right for one in found[:RECALLED]]


async def asked_of(
    documents: Sequence[Reflection], questions: Sequence[str], embedder: Remembering
) -> list[Asked]:
    """Ask an agent with some lessons a question about each of them."""
    from redraft.lessons import index
    from redraft.lessons.ranking import LessonQuery, Search

    seen: list[tuple[Ranking, list[Candidate]]] = []

    class Recording(Search):
        def best(self) -> list[Candidate]:
            seen.append((self.ranking, list(self._candidates(len(documents)))))
            return super().best()

    with TemporaryDirectory() as folder:
        collection = Collection(Path(folder), documents, embedder)
        await collection.ready()
        with patch.object(index, "Search", Recording):
            for question in questions:
                await collection.default.search(LessonQuery(question))
        await collection.aclose()
    # Files are read by name: the lesson with the number n in its name is the n-th by name.
    names = sorted(range(len(documents)), key=lambda place: f"2026-01-01-{place}")
    first = min(one.number for one in seen[0][1])
    return [Asked(*one, first + names.index(place)) for place, one in enumerate(seen)]


def threshold_table(arms: Mapping[str, Sequence[Asked]]) -> str:
    """Show, for each threshold, how often the right lesson is recalled, and how many if none fits."""
    rows: list[list[str]] = []
    for threshold in (*THRESHOLDS, None):
        row = ["**default**" if threshold is None else f"{threshold:.2f}"]
        for asked in arms.values():
            found = sum(any(one.recalled(threshold)) for one in asked) / len(asked)
            wrong = sum(len(one.recalled(threshold, with_right=False)) for one in asked) / len(asked)
            row += [f"{found:.3f}", f"{wrong:.2f}"]
        rows.append(row)
    heads = [(f"{name}: right one of 3", "wrong ones where none fits") for name in arms]
    return table(["threshold", *chain.from_iterable(heads)], rows)


async def by_threshold(reflections: Sequence[Reflection], embedder: Remembering) -> str:
    """Ask agents with 30 lessons by the text of a task, and one with 60 by paraphrases."""
    by_hash = sorted(reflections, key=lambda one: sha256(one.text.encode()).hexdigest())
    of_task: dict[str, Reflection] = {}
    for one in by_hash:
        if one.task:
            of_task.setdefault(one.task_id, one)
    documents = list(of_task.values())
    recorded_ones: list[Asked] = []
    for start in range(0, len(documents) - IN_USE + 1, IN_USE):
        agent = documents[start : start + IN_USE]
        recorded_ones += await asked_of(agent, [one.task for one in agent], embedder)
    said = paraphrases()
    paraphrased = [one for one in reflections if one.number in said]
    asked = await asked_of(paraphrased, [said[one.number] for one in paraphrased], embedder)
    return threshold_table(
        {f"{len(recorded_ones)} tasks, {IN_USE} lessons": recorded_ones, f"{len(asked)} paraphrases": asked}
    )


def paraphrases() -> dict[int, str]:
    """Return a question for each of 60 reflections, by their numbers."""
    return {int(number): text for number, text in json.loads(PARAPHRASES.read_text("utf-8")).items()}


async def by_paraphrase(reflections: Sequence[Reflection], embedder: Remembering) -> str:
    """Find a reflection among 60 by what a later task may say."""
    said = paraphrases()
    documents = [one for one in reflections if one.number in said]
    ranked: dict[str, Ranked] = defaultdict(Ranked)
    with TemporaryDirectory() as folder:
        collection = Collection(Path(folder), documents, embedder)
        await collection.ready()
        for one in documents:
            found = await collection.rankings(said[one.number])
            for name, others in found.items():
                ranked[name].add(other == one for other in others)
        await collection.aclose()
    head = (f"{len(documents)} paraphrases", *HEAD)
    return table(head, [one.row(name) for name, one in ranked.items()])


async def by_task(reflections: Sequence[Reflection], embedder: Remembering) -> str:
    """Find, by the text of a task, what other runs learned about it."""
    ranked: dict[str, Ranked] = defaultdict(Ranked)
    for run in sorted({one.run for one in reflections if one.task}):
        documents = [one for one in reflections if one.run != run]
        known = {one.task_id for one in documents}
        asked = sorted({(one.task_id, one.task) for one in reflections if one.run == run and one.task})
        with TemporaryDirectory() as folder:
            collection = Collection(Path(folder), documents, embedder)
            await collection.ready()
            for task_id, task in asked:
                if task_id in known:
                    for name, found in (await collection.rankings(task)).items():
                        ranked[name].add(one.task_id == task_id for one in found)
            await collection.aclose()
    count = len(ranked[DEFAULT].ranks)
    head = (f"{count} tasks, reflections of other runs", *HEAD)
    return table(head, [one.row(name) for name, one in ranked.items()])


def names_to_find(documents: Sequence[Reflection]) -> list[str]:
    """Return names that at most three reflections hold."""
    from redraft.lessons.full_text import names_in

    holders: dict[str, int] = defaultdict(int)
    for one in documents:
        for name in names_in(one.text):
            if re.search("[A-Za-z]", name) and len(name) > 3 and "e.g" not in name:
                holders[name] += 1
    rare = [name for name, count in holders.items() if count <= 3]
    return sorted(rare, key=lambda name: sha256(name.encode()).hexdigest())[:QUESTIONS]


async def by_name(reflections: Sequence[Reflection], embedder: Remembering) -> str:
    """Find the reflections that hold a name, by a sentence with that name."""
    from redraft.lessons.full_text import names_in

    ranked: dict[str, Ranked] = defaultdict(Ranked)
    with TemporaryDirectory() as folder:
        collection = Collection(Path(folder), reflections, embedder)
        await collection.ready()
        for name in names_to_find(reflections):
            for way, found in (await collection.rankings(f"What is wrong with {name} in this task?")).items():
                ranked[way].add(name in names_in(one.text) for one in found)
        await collection.aclose()
    head = (f"{len(ranked[DEFAULT].ranks)} names in a question", *HEAD)
    return table(head, [one.row(name) for name, one in ranked.items()])


async def quality(file: Path, make: Callable[[], NamedEmbedder]) -> list[str]:
    reflections = recorded(file)
    embedder = Remembering(make())
    ways = (by_task, by_name, by_paraphrase, by_threshold)
    return [await way(reflections, embedder) for way in ways]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, default=PROJECT.parent / "shared" / "data", help=f"of {CORPUS}")
    given = parser.parse_args()
    file: Path = given.data / CORPUS
    from redraft.models.embed import MiniLMEmbedder, minilm_is_installed

    if not file.is_file() or not minilm_is_installed():
        print(f"SKIPPED: it takes {CORPUS}, whose folder --data names, and redraft[embed].")
        return
    publish("lessons_ranking", "\n\n".join(asyncio.run(quality(file, MiniLMEmbedder))), write=given.write)


if __name__ == "__main__":
    main()
