"""The search index over lessons, in a SQLite database that is derived from their files."""

from __future__ import annotations

import asyncio
import sqlite3
from array import array
from collections.abc import Collection
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import islice
from operator import mul
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple

from redraft._validation import check_count
from redraft.errors import StoreError
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.full_text import FullText, names_in, tokens_of
from redraft.lessons.indexer import (
    WAIT,
    Indexer,
    IndexSession,
    Refreshed,
    digest_of,
    normalized,
    transaction,
)
from redraft.lessons.lesson import Lesson, LessonKind
from redraft.lessons.markdown import parse
from redraft.lessons.ranking import Candidate, Ranking, reason_for, without_duplicates
from redraft.lessons.vectors import FLOAT_BYTES, LessonVectors, cosines, matrix_of, packed
from redraft.redact.log import logger
from redraft.stores.sqlite import explained
from redraft.stores.worker import Worker
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BATCH = 32
"""Lessons that are embedded and written at once."""
ATTEMPTS = 3
"""Searches before lessons whose files keep changing are left out."""


@dataclass(frozen=True, slots=True)
class LessonQuery:
    """Ask for the `k` lessons that are most relevant to a task.

    `tools` are those the task may use, `error` is what just went wrong. Of an `agent`'s lessons, those about
    the same type of task come first, then those about its tools, then the nearest in meaning. Without an
    agent, the lessons of all agents are searched by meaning. `kinds` limits the search to some kinds of
    lessons. Reflexion Protocol, sections 5 and 7.
    """

    task: str
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    agent: str | None = None
    k: int = 3
    kinds: Collection[LessonKind] | None = None

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    @property
    def text(self) -> str:
        """The text to search for: the task and the error, without invisible characters."""
        return without_invisible(f"{self.task}\n{self.error}").strip()


@dataclass(frozen=True, slots=True)
class FoundLesson:
    """A lesson, its score, and the reason why it was chosen.

    `score` is the cosine of lesson and question, plus up to 0.3 for names that both contain. Without an
    embedder it is the share (0..1) of the best full-text score.
    """

    lesson: Lesson
    score: float
    reason: str


class LessonIndex:
    """Find lessons by task type, tool, words and meaning.

        index = LessonIndex("memory", embedder)
        await index.fill()
        found = await index.search(LessonQuery("Fetch the price list", agent="researcher"))

    `path` is the folder of all agents' lessons (`memory`). The index is in its subfolder `.index`, which only
    its owner can read and git ignores; if it is missing or damaged, the next use rebuilds it from the files,
    while other processes wait. It never changes a lesson's file, and it redacts texts before it writes them.

    Lessons are searched by meaning once `fill` has embedded them; until then, and without an `embedder`, by
    full text. Machines share vectors through the store `shared`.

    Safe to share between tasks, threads and event loops, and between processes. Raises `StoreError` if the
    index can't be written.
    """

    def __init__(
        self,
        path: str | Path,
        embedder: NamedEmbedder | None = None,
        *,
        redactor: Redactor | None = None,
        shared: Store | None = None,
    ) -> None:
        self._path = Path(path).absolute()
        self._indexer = Indexer(self._path, redactor)
        self._vectors = LessonVectors(embedder, shared)
        self._worker = Worker("redraft-lessons", partial(IndexSession, self._indexer.folder))
        self._active: dict[int, _ActiveLessons] = {}

    async def search(self, query: LessonQuery) -> list[FoundLesson]:
        """Return the `k` most relevant lessons, best first, or fewer if no more are relevant.

        Only active lessons are found, archived ones included, and one of several near-duplicates. If the
        embedder fails, a warning is logged and full text alone is searched.

        Files that were added, replaced, deleted or archived are noticed by the modification times of the
        agents' folders. A file edited in place is noticed when its lesson is found, or by `refresh`.
        """
        vector = await self._vectors.of_question(query.text)
        return await self._do(self._search, query, vector)

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed the lessons that have no vector, of one agent or of all, and return how many.

        With `most`, at most so many: those of the agents whose folders changed last, and the newest first.
        Vectors made before this is cancelled are stored. Raises what the embedder raises.
        """
        if not self._vectors.name:
            return 0
        missing = await self._do(self._without_vector, agent, most)
        texts = iter(missing.items())
        while batch := dict(islice(texts, BATCH)):
            vectors = await self._vectors.of_texts(batch)
            await self._do(self._add_vectors, vectors)
        return len(missing)

    async def refresh(self) -> Refreshed:
        """Look at every file; return what has changed since the last time, and which files are broken."""
        return await self._do(self._indexer.refresh)

    async def rebuild(self) -> Refreshed:
        """Index every file anew, and delete the vectors of texts that no lesson has any more.

        Shared vectors are deleted only when they are old, since another machine may need them.
        """
        refreshed = await self._do(self._indexer.rebuild)
        rows = await self._do(
            lambda connection: connection.execute("SELECT digest FROM lessons WHERE is_active").fetchall()
        )
        if deleted := await self._vectors.sweep({digest for (digest,) in rows}):
            logger.info("Deleted %d old shared vectors of texts that no lesson has any more.", deleted)
        return refreshed

    async def aclose(self) -> None:
        """Close the database; the next use reopens it."""
        await self._worker.stop()

    async def _do(self, work: Callable[[Connection, *Ts], T], *args: *Ts) -> T:
        """Call a function with the database, in the thread of the database."""
        try:
            return await self._worker.do(lambda connection: work(connection, *args))
        except (sqlite3.Error, OSError) as error:
            raise explained(error, self._indexer.folder, WAIT) from error

    def _search(
        self, connection: Connection, query: LessonQuery, vector: Sequence[float] | None
    ) -> list[FoundLesson]:
        """Index what has changed, load the active lessons, rank them, and read the files of the best.

        Starts again if one of these files turns out to have been edited in place.
        """
        folder = None if query.agent is None else folder_name(query.agent)
        found: dict[int, FoundLesson | None] = {}
        for _ in range(ATTEMPTS):
            self._indexer.update(connection, folder)
            if vector is not None:
                self._drop_other_dimensions(connection, len(vector))
            with transaction(connection, "DEFERRED"):
                active = self._active_lessons(connection, folder)
                search = _Search(connection, query, vector, self._vectors.name, active)
                found = {one.number: self._read(connection, search, one) for one in search.best()}
            edited = [number for number, one in found.items() if one is None]
            if not edited:
                break
            self._indexer.distrust(connection, edited)
        return [one for one in found.values() if one is not None]

    def _active_lessons(self, connection: Connection, folder: str | None) -> list[_ActiveLessons]:
        """Return the active lessons of an agent, or of each, loaded again if they have changed."""
        agents = connection.execute(
            "SELECT agent, revision FROM agents WHERE :folder IS NULL OR folder = :folder ORDER BY agent",
            {"folder": folder},
        ).fetchall()
        for agent, revision in agents:
            if agent not in self._active or self._active[agent].revision != revision:
                self._active[agent] = _ActiveLessons(connection, agent, revision, self._vectors.name)
        return [self._active[agent] for agent, _ in agents]

    def _read(self, connection: Connection, search: _Search, candidate: Candidate) -> FoundLesson | None:
        """Read the file of a candidate; None if its text is no longer the one that was indexed."""
        lesson_id, file_hash, searched = connection.execute(
            "SELECT id, file_hash, searched FROM lessons WHERE number = ?", (candidate.number,)
        ).fetchone()
        agent = lesson_id.partition("/")[0]
        folder = LessonFolder(self._path, agent)
        try:
            entry = folder.entry_of(lesson_id)
            text = folder.text_of(entry)
            if digest_of(text) != file_hash:
                return None
            lesson = parse(text, lesson_id, agent, entry.day)
        except StoreError:
            return None
        return FoundLesson(lesson, search.ranking.score(candidate), search.reason(candidate, searched))

    def _without_vector(
        self, connection: Connection, agent: str | None, most: int | None
    ) -> dict[bytes, str]:
        """Return the texts that have no vector, by their digests."""
        folder = None if agent is None else folder_name(agent)
        self._indexer.update(connection, folder)
        rows = connection.execute(
            """
            SELECT digest, meaning FROM lessons JOIN agents USING (agent)
            WHERE is_active AND (:folder IS NULL OR folder = :folder) AND digest NOT IN (
                SELECT digest FROM vectors WHERE embedder = :embedder
            )
            ORDER BY agents.changed_ns < 0 DESC, agents.changed_ns DESC, day DESC LIMIT :most
            """,
            {"folder": folder, "embedder": self._vectors.name, "most": -1 if most is None else most},
        )
        return dict(rows.fetchall())

    def _add_vectors(self, connection: Connection, vectors: Mapping[bytes, Sequence[float]]) -> None:
        with transaction(connection):
            for digest, vector in vectors.items():
                connection.execute(
                    "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)",
                    (self._vectors.name, digest, packed(vector)),
                )
                connection.execute(
                    """
                    UPDATE agents SET revision = revision + 1
                    WHERE agent IN (SELECT agent FROM lessons WHERE digest = ?)
                    """,
                    (digest,),
                )

    def _drop_other_dimensions(self, connection: Connection, dimension: int) -> None:
        """Delete the vectors of an earlier embedder of the same name, which had another dimension."""
        name = (self._vectors.name,)
        row = connection.execute(
            "SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", name
        ).fetchone()
        if row is not None and row[0] != dimension * FLOAT_BYTES:
            with transaction(connection):
                connection.execute("DELETE FROM vectors WHERE embedder = ?", name)
                connection.execute("UPDATE agents SET revision = revision + 1")


# --- ranking -----------------------------------------------------------------------------------------------

NEAREST, FLOOD = 50, 5_000
"""Lessons ranked by meaning, and by words: a few, or more if those are all near-duplicates."""
COMMON = 400
"""In a search of all agents, a word that more lessons have is a stop word."""
COMMON_COUNT, COMMON_SHARE = 50, 0.4
"""In a search of one agent, a word that more lessons have, and a greater share of its lessons."""


class _Search:
    """One search among active lessons: what each has in common with the query.

    Type of task and tools count only among the lessons of one agent.
    """

    def __init__(
        self,
        connection: Connection,
        query: LessonQuery,
        vector: Sequence[float] | None,
        embedder: str,
        agents: Iterable[_ActiveLessons],
    ) -> None:
        self.ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        self._connection = connection
        self._query = query
        self._embedder = embedder
        self._lessons: dict[int, _Features] = {}
        self._similarities: dict[int, float] = {}
        for active in agents:
            self._lessons |= active.lessons
            self._similarities |= active.similarities(vector)
        count = len(self._lessons)
        common = COMMON if query.agent is None else max(COMMON_COUNT, int(count * COMMON_SHARE))
        full_text = FullText(connection, min(self._lessons, default=0), max(self._lessons, default=0), common)
        self._same_type: set[int] = set()
        self._tools: dict[int, tuple[str, ...]] = {}
        if query.agent is not None:
            self._same_type = self._with_type(normalized(query.task_type))
            self._tools = self._with_tools(full_text)
        self._shares: dict[int, float] = {}
        # Words count where the question has names, or where a lesson has no vector.
        if self.ranking.has_names or len(self._similarities) < count:
            self._shares = full_text.shares(query.text, count, lambda number: self._lessons[number].length)

    def best(self) -> list[Candidate]:
        """Return the `k` most relevant lessons, best first, without near-duplicates."""
        best: list[Candidate] = []
        for most in (NEAREST, FLOOD):
            ranked = self.ranking.ordered(self._candidates(most))
            best = list(islice(without_duplicates(ranked, self._content, self._similarity), self._query.k))
            if len(best) == self._query.k or most >= len(self._lessons):
                break
        return best

    def reason(self, candidate: Candidate, searched: str) -> str:
        """Say why a lesson was chosen; `searched` is its text in the index."""
        words = set(searched.lower().split())
        names = [name for name in names_in(self._query.text) if words.intersection(tokens_of(name)[:1])]
        return reason_for(candidate, self._query.task_type, names)

    def _candidates(self, most: int) -> Iterator[Candidate]:
        """Yield the lessons with the same type or tools, and `most` of those nearest by meaning and words."""
        for number in {
            *self._same_type,
            *self._tools,
            *nlargest(most, self._similarities, self._similarities.__getitem__),
            *nlargest(most, self._shares, self._shares.__getitem__),
        }:
            features = self._lessons[number]
            if self._query.kinds is None or features.kind in self._query.kinds:
                yield Candidate(
                    number,
                    features.day,
                    number in self._same_type,
                    self._tools.get(number, ()),
                    self._similarities.get(number),
                    self._shares.get(number, 0.0),
                )

    def _with_type(self, task_type: str) -> set[int]:
        return {number for number, one in self._lessons.items() if task_type and one.task_type == task_type}

    def _with_tools(self, full_text: FullText) -> dict[int, tuple[str, ...]]:
        """Return the query's tools that each lesson used or mentions, for lessons with any."""
        tools: dict[int, tuple[str, ...]] = {}
        for tool in dict.fromkeys(self._query.tools):
            used = {number for number, one in self._lessons.items() if normalized(tool) in one.tools}
            for number in used.union(full_text.rows_with_name(tool)):
                tools[number] = (*tools.get(number, ()), tool)
        return tools

    def _content(self, candidate: Candidate) -> str:
        (content,) = self._connection.execute(
            "SELECT content FROM lessons WHERE number = ?", (candidate.number,)
        ).fetchone()
        return content

    def _similarity(self, one: Candidate, other: Candidate) -> float:
        rows = self._connection.execute(
            """
            SELECT vector FROM lessons JOIN vectors USING (digest)
            WHERE embedder = ? AND number IN (?, ?)
            """,
            (self._embedder, one.number, other.number),
        )
        vectors = [array("f", vector) for (vector,) in rows]
        return sum(map(mul, *vectors)) if len(vectors) > 1 else 0.0


class _Features(NamedTuple):
    """What a lesson is ranked by; `length` is in words."""

    kind: str
    day: int
    task_type: str
    tools: Sequence[str]
    length: int


class _ActiveLessons:
    """The active lessons of one agent in memory, by number, and the vectors of those that have one.

    `revision` is the agent's when they were read.
    """

    def __init__(self, connection: Connection, agent: int, revision: int, embedder: str) -> None:
        self.revision = revision
        self.lessons: dict[int, _Features] = {}
        vectors: dict[int, bytes] = {}
        rows = connection.execute(
            """
            SELECT number, kind, day, task_type, tools, length, vector
            FROM lessons LEFT JOIN vectors ON embedder = ? AND vectors.digest = lessons.digest
            WHERE agent = ? AND is_active
            """,
            (embedder, agent),
        )
        for number, kind, day, task_type, tools, length, vector in rows:
            self.lessons[number] = _Features(kind, day, task_type, tools.split("\n"), length)
            if vector is not None:
                vectors[number] = vector
        self._embedded = list(vectors)
        self._matrix = matrix_of(list(vectors.values()))

    def similarities(self, vector: Sequence[float] | None) -> dict[int, float]:
        """Return the cosine with a vector for each lesson that has one."""
        if vector is None or not self._embedded:
            return {}
        return dict(zip(self._embedded, cosines(self._matrix, vector), strict=True))


# --- embedding in the background ---------------------------------------------------------------------------

EMBEDDED_LATER = 32
"""Lessons embedded in the background after something was learned."""
EMBEDDED_FIRST = 8
"""Lessons embedded before a search, if an event loop ended too soon."""


class Backlog:
    """Embed the newest lessons that have no vector, in the background.

    If the event loop ends too soon, the next search catches up, in this process or another. A failure is
    logged, and those lessons are found by full text until something else is learned.
    """

    def __init__(self, index: LessonIndex) -> None:
        self._index = index
        self._task: asyncio.Task[None] | None = None
        self._is_behind = True  # an earlier process may have ended too soon

    def begin(self) -> None:
        """Start embedding, or have the running task look once more."""
        self._is_behind = True
        if not self._is_running():
            # A fresh context: this is part of no run, and of no step of one.
            self._task = asyncio.create_task(self._work_off(EMBEDDED_LATER), context=Context())

    async def catch_up(self, agent: str | None) -> None:
        """Embed a few lessons of an agent, or of all agents, unless the task is running."""
        if not self._is_running():
            await self._work_off(EMBEDDED_FIRST, agent)

    async def wait(self) -> None:
        """Wait for the task, if it was started in this event loop."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    def _is_running(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def _work_off(self, most: int, agent: str | None = None) -> None:
        while self._is_behind:
            self._is_behind = False
            try:
                await self._index.fill(most, agent)
            except asyncio.CancelledError:
                self._is_behind = True
                raise
            except Exception as error:  # noqa: BLE001 (an embedder may raise anything, and nobody awaits this)
                logger.warning("New lessons are found by full text only for now: %s", error)
