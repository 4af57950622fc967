"""What it takes to find lessons: 100,000 of 100 agents in time, and recorded reflections by their tasks."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import re
import sqlite3
from collections import defaultdict
from datetime import date, timedelta
from hashlib import sha256
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from _measure import PROJECT, options, publish, table, verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from redraft.lessons.index import LessonIndex
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.query import Found, Query
    from redraft.models.embed import NamedEmbedder

CORPUS = "reflections_corpus.jsonl.gz"
ACTIVE = 30
"""Lessons of an agent that are not in its archive."""
NEW = 1_000
QUESTIONS = 60
FIRST = 50
"""Lessons that are looked at for the rank of the first right one."""
TYPES = ("web scraping", "code_generation", "writing", "analysis", "reasoning", "data entry", "booking")
TOOLS = ("http_get", "run_tests", "search_flights", "read_file", "sql_query", "send_mail")
TARGETS = {"warm": 5.0, "cold": 60.0, "rebuild": 180.0, "new": 5.0}


def made_sentences(rng: random.Random, count: int = 4_000) -> list[str]:
    """Return sentences out of 20,000 words, some of which are in most sentences and most in few."""
    parts = [first + last for first in "bcdfglmnprst" for last in ("a", "e", "i", "o", "u", "ar", "en", "ol")]
    words = ["".join(one) for one in product(parts, parts, parts[:3])][:20_000]
    rng.shuffle(words)
    weights = [1 / (rank + 10) for rank in range(len(words))]
    return [" ".join(rng.choices(words, weights, k=rng.randint(8, 16))).capitalize() for _ in range(count)]


def made_lesson(rng: random.Random, sentences: Sequence[str], agent: str, number: int) -> Lesson:
    from redraft.lessons.content import Failure
    from redraft.lessons.lesson import Lesson

    task, happened, wrong, why, differently, rule = (f"{one}." for one in rng.choices(sentences, k=6))
    return Lesson(
        Failure(happened, f"{wrong} E{rng.randrange(10_000)}", why, differently, rule),
        agent=agent,
        day=date(2023, 1, 1) + timedelta(days=number),
        summary=task[:40],
        task=task,
        task_type=rng.choice(TYPES),
        tools=(rng.choice(TOOLS),),
        error=f"Error E{rng.randrange(10_000)}",
    )


def write_lessons(path: Path, agents: int, each: int) -> list[str]:
    """Write the files of so many lessons, all but 30 of each agent in its archive; return some tasks."""
    from redraft.lessons.markdown import render

    rng = random.Random(7)
    sentences = made_sentences(rng)
    for place in range(agents):
        agent = f"agent-{place:03}"
        for number in range(each):
            lesson = made_lesson(rng, sentences, agent, number)
            folder = path / "reflections" / agent
            if number < each - ACTIVE:
                folder = folder / "archive" / str(lesson.day.year)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{lesson.day}-lesson-{number}.md").write_text(render(lesson), "utf-8")
    return rng.choices(sentences, k=QUESTIONS)


def write_more(path: Path, agents: int) -> None:
    from redraft.lessons.markdown import render

    rng = random.Random(8)
    sentences = made_sentences(rng)
    for number in range(NEW):
        agent = f"agent-{number % agents:03}"
        lesson = made_lesson(rng, sentences, agent, 1_500)
        file = path / "reflections" / agent / f"{lesson.day}-new-{number}.md"
        file.write_text(render(lesson), "utf-8")


def questions(tasks: Iterable[str], agent: str | None, *, code: bool) -> list[Query]:
    from redraft.lessons.query import Query

    rng = random.Random(9)
    return [
        Query(
            task,
            task_type=rng.choice(TYPES),
            tools=(rng.choice(TOOLS),),
            error=f"E{rng.randrange(10_000)}" if code else "",
            agent=agent,
        )
        for task in tasks
    ]


async def seconds(work: Awaitable[object]) -> float:
    started = perf_counter()
    await work
    return perf_counter() - started


async def warm_ms(index: LessonIndex, asked: Sequence[Query]) -> float:
    """Return the median milliseconds of a search whose question was embedded before."""
    for query in asked:
        await index.search(query)
    return median([await seconds(index.search(query)) for query in asked]) * 1e3


async def cold_ms(path: Path, embedder: NamedEmbedder | None, asked: Sequence[Query]) -> float:
    """Return the median milliseconds of the first search of an index that is opened for it."""
    from redraft.lessons.index import LessonIndex

    times: list[float] = []
    for query in asked:
        index = LessonIndex(path, embedder)
        times.append(await seconds(index.search(query)))
        await index.aclose()
    return median(times) * 1e3


async def scale(path: Path, agents: int, each: int) -> str:
    from redraft.lessons.index import LessonIndex
    from redraft.models.embed_scripted import ScriptedEmbedder

    tasks = write_lessons(path, agents, each)
    embedder = ScriptedEmbedder(384)
    index = LessonIndex(path, embedder)
    made = await seconds(index.refresh())
    again = await seconds(index.refresh())
    write_more(path, agents)
    new = await seconds(index.refresh())
    filled = await seconds(index.fill())
    rows: list[tuple[object, ...]] = [
        ("the index, made of the files", f"{made:.1f} s", f"180 s {verdict(made, TARGETS['rebuild'])}"),
        ("a look at all files, none changed", f"{again:.2f} s", ""),
        (f"{NEW:,} new files", f"{new:.2f} s", f"5 s {verdict(new, TARGETS['new'])}"),
        ("vectors for all, by the scripted embedder", f"{filled:.1f} s", ""),
    ]
    for what, used in (("vectors", embedder), ("full text alone", None)):
        one = LessonIndex(path, used)
        for who, agent in (("one agent", "agent-007"), ("all agents", None)):
            for kind, code in (("words", False), ("an error code, too", True)):
                asked = questions(tasks, agent, code=code)
                warm = await warm_ms(one, asked)
                cold = await cold_ms(path, used, asked[:7])
                name = f"recall, {what}, {who}, {kind}"
                rows.append((f"{name}: warm", f"{warm:.1f} ms", f"5 ms {verdict(warm, TARGETS['warm'])}"))
                rows.append((f"{name}: cold", f"{cold:.1f} ms", f"60 ms {verdict(cold, TARGETS['cold'])}"))
        await one.aclose()
    await index.aclose()
    return table((f"{agents * each:,} lessons of {agents} agents", "median", "target"), rows)


class Reflection(NamedTuple):
    """A recorded reflection: whose run it was, which task it was about, and the task's text where known."""

    run: str
    task_id: str
    task: str
    text: str


def recorded(file: Path) -> list[Reflection]:
    """Return the recorded reflections, without duplicates."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Reflection(row["run"], row["task_id"], row.get("task_text") or "", row["text"])
        for row in rows
        if row.get("dup_of") is None
    ]


def lesson_of(reflection: Reflection) -> Lesson:
    """Return a reflection as a lesson that does not say which task it was about."""
    from redraft.lessons.content import Partial
    from redraft.lessons.lesson import Lesson

    sentences = [one for one in re.split(r"(?<=[.!?])\s+", reflection.text) if one.strip()]
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
        from redraft.lessons.index_row import row_of
        from redraft.lessons.vectors import Vectors, packed
        from redraft.redact.redactor import Redactor

        await self.default.refresh()
        await self.default.fill()
        rows = await self._embedder([row_of(lesson_of(one), Redactor()).meaning for one in self.documents])
        self._vectors = Vectors([packed(row) for row in rows], len(rows[0]))

    async def rankings(self, text: str) -> dict[str, list[Reflection]]:
        """Return what each way of ranking finds for a text."""
        from redraft.lessons.query import Query

        query = Query(text, k=FIRST)
        return {
            PLAIN: [self.documents[place] for place in by_bm25(self.plain, text)],
            TEXT: self._of(await self.by_text.search(query)),
            VECTORS: await self._by_vectors(text),
            DEFAULT: self._of(await self.default.search(query)),
        }

    def _of(self, found: Iterable[Found]) -> list[Reflection]:
        return [self.documents[int(one.lesson.id.rpartition("-")[2])] for one in found]

    async def _by_vectors(self, text: str) -> list[Reflection]:
        (question,) = await self._embedder([text])
        cosines = self._vectors.cosines(question)
        order = sorted(range(len(cosines)), key=lambda place: -cosines[place])
        return [self.documents[place] for place in order[:FIRST]]

    async def aclose(self) -> None:
        """Let go of the indexes."""
        await self.by_text.aclose()
        await self.default.aclose()
        self.plain.close()


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
    from redraft.lessons.fulltext import names_in

    holders: dict[str, int] = defaultdict(int)
    for one in documents:
        for name in names_in(one.text):
            if re.search("[A-Za-z]", name) and len(name) > 3 and "e.g" not in name:
                holders[name] += 1
    rare = [name for name, count in holders.items() if count <= 3]
    return sorted(rare, key=lambda name: sha256(name.encode()).hexdigest())[:QUESTIONS]


async def by_name(reflections: Sequence[Reflection], embedder: Remembering) -> str:
    """Find the reflections that hold a name, by a sentence with that name."""
    from redraft.lessons.fulltext import names_in

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


async def prefilter(embedder: Remembering, texts: Sequence[str]) -> str:
    """Compare the three nearest of those whose signs are near with the three nearest of all."""
    from redraft.lessons.index_search import DEPTH
    from redraft.lessons.vectors import Signs, Vectors, packed, signs_of

    vectors = list(embedder.known.values())
    questions = await embedder(texts)
    rows = [packed(vector) for vector in vectors]
    codes = [signs_of(row) for row in rows]
    near, all_of_them = Signs(codes, len(codes[0])), Vectors(rows, len(vectors[0]))
    depth = len(vectors) * DEPTH // 100_000 * 5
    same = 0
    for question in questions:
        cosines = all_of_them.cosines(question)
        best = sorted(range(len(cosines)), key=lambda place: -cosines[place])[:3]
        same += set(best) <= set(near.nearest(signs_of(packed(question)), depth))
    return (
        f"Of {len(vectors):,} real vectors, the three nearest are among the {depth} whose signs are nearest "
        f"for {same} of {len(questions)} questions."
    )


async def quality(file: Path, make: Callable[[], NamedEmbedder]) -> list[str]:
    reflections = recorded(file)
    embedder = Remembering(make())
    tables = [await by_task(reflections, embedder), await by_name(reflections, embedder)]
    tasks = sorted({one.task for one in reflections if one.task})
    return [*tables, await prefilter(embedder, tasks)]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--each", type=int, default=1_000, help="lessons of an agent, its archive included")
    parser.add_argument("--data", type=Path, default=PROJECT.parent / "shared" / "data", help="recordings")
    parser.add_argument("--skip", choices=("scale", "quality"))
    given = parser.parse_args()
    tables: list[str] = []
    if given.skip != "scale":
        with TemporaryDirectory() as folder:
            tables.append(asyncio.run(scale(Path(folder), given.agents, given.each)))
            print(tables[-1], flush=True)
    file: Path = given.data / CORPUS
    if given.skip != "quality":
        from redraft.models.embed_minilm import MiniLMEmbedder, is_installed

        if file.is_file() and is_installed():
            tables += asyncio.run(quality(file, MiniLMEmbedder))
        else:
            tables.append(
                f"The ranking was not measured: it needs {file.name} in --data, and redraft[embed]."
            )
    publish("lessons", "\n\n".join(tables), write=given.write)


if __name__ == "__main__":
    main()
