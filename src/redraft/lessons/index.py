"""The search index over lessons: full text and vectors, derived from their files."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from heapq import nlargest
from itertools import islice
from operator import mul
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from redraft._validation import check_count
from redraft.errors import StoreError
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.full_text import FullText, names_in, tokens_of
from redraft.lessons.indexer import (
    WAIT,
    Indexer,
    IndexSession,
    Refreshed,
    agent_of,
    digest_of,
    normalized,
    numbers_of,
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store

T = TypeVar("T")

BATCH = 32
"""Lessons that are embedded and written at once."""
ATTEMPTS = 3
"""Searches before giving up on files that keep changing."""
NEAREST, FLOOD = 50, 5_000
"""Lessons ranked by meaning, and by words: a few, or more if those are all near-duplicates."""
COMMON = 400
"""In a search of all agents, a word that more lessons have is a stop word."""
COMMON_COUNT, COMMON_SHARE = 50, 0.4
"""In a search of one agent, a word that more lessons have, and a greater share of its lessons."""


@dataclass(frozen=True, slots=True)
class Query:
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
class Found:
    """A lesson, its score, and the reason why it was chosen.

    `score` is the cosine of lesson and question, plus up to 0.3 for names that both contain. Without an
    embedder it is the share (0..1) of the best full-text score.
    """

    lesson: Lesson
    score: float
    reason: str


class LessonIndex:
    """Find lessons by task type, tool, words and meaning.

    `path` is the folder of all agents' lessons (`memory`); the index is in its subfolder `.index`, which only
    its owner can read and git ignores. Machines share vectors through the store `shared`.

    - The index never changes a lesson's file. A search notices files that were added, replaced, deleted or
      archived, by the modification times of the agents' folders. It notices a file edited in place when it
      finds that lesson; `refresh` looks at every file.
    - A missing or damaged index is rebuilt while other processes wait.
    - Texts are redacted before they are written.
    - Vectors are stored by the name of their embedder and the text embedded, and survive a rebuild. `fill`
      makes missing ones. Lessons without a vector are found by full text.
    - Only active lessons are found, archived ones included, and one of several near-duplicates.

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

    async def search(self, query: Query) -> list[Found]:
        """Return the `k` most relevant lessons, best first, or fewer if no more are relevant.

        If the embedder fails, a warning is logged and full text alone is searched.
        """
        vector = await self._vectors.of_question(query.text)
        question = None if vector is None else array("f", vector)
        return await self._do(lambda connection: self._search(connection, query, question))

    async def refresh(self) -> Refreshed:
        """Look at every file; return what has changed since the last time, and which files are broken."""
        return await self._do(self._indexer.refresh)

    async def rebuild(self) -> Refreshed:
        """Index every file anew, and delete old vectors of texts that no lesson has any more."""
        refreshed = await self._do(self._indexer.rebuild)
        if deleted := await self._vectors.sweep(await self._do(_digests)):
            logger.info("Deleted %d old shared vectors of texts that no lesson has any more.", deleted)
        return refreshed

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed the lessons that have no vector, of one agent or of all, and return how many.

        With `most`, at most so many: those of the agents whose folders changed last, and the newest first.
        Vectors made before this is cancelled are kept. Raises what the embedder raises.
        """
        if not self._vectors.name:
            return 0
        folder = None if agent is None else folder_name(agent)
        missing = await self._do(lambda connection: self._without_vector(connection, folder, most))
        for start in range(0, len(missing), BATCH):
            texts = await self._do(partial(_texts, missing[start : start + BATCH]))
            vectors = await self._vectors.of_texts(texts)
            await self._do(partial(self._add_vectors, vectors))
        return len(missing)

    async def aclose(self) -> None:
        """Close the database; the next use reopens it."""
        await self._worker.stop()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        """Do work with the database in its thread."""
        try:
            return await self._worker.do(work)
        except (sqlite3.Error, OSError) as error:
            raise explained(error, self._indexer.folder, WAIT) from error

    def _search(self, connection: Connection, query: Query, vector: array[float] | None) -> list[Found]:
        """Search, and search again if a file that was found turns out to be edited in place."""
        folder = None if query.agent is None else folder_name(query.agent)
        if vector is not None:
            self._drop_other_dimensions(connection, len(vector))
        edited: set[int] = set()
        for _ in range(ATTEMPTS):
            self._indexer.update(connection, folder, edited)
            with transaction(connection, "DEFERRED"):
                search = _Search(connection, query, vector, self._active_lessons(connection, folder))
                best = search.best()
                found = [self._read(connection, search, candidate) for candidate in best]
            edited = {agent_of(one.number) for one, read in zip(best, found, strict=True) if read is None}
            if not edited:
                return [one for one in found if one is not None]
        return []

    def _active_lessons(self, connection: Connection, folder: str | None) -> dict[int, _ActiveLessons]:
        """Return the active lessons of an agent, or of all, read again if they have changed."""
        agents = connection.execute(
            "SELECT agent, revision FROM agents WHERE folder = coalesce(?, folder) ORDER BY agent", (folder,)
        ).fetchall()
        for agent, revision in agents:
            if agent not in self._active or self._active[agent].revision != revision:
                self._active[agent] = _ActiveLessons(connection, agent, revision, self._vectors.name)
        return {agent: self._active[agent] for agent, _ in agents}

    def _read(self, connection: Connection, search: _Search, candidate: Candidate) -> Found | None:
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
        return Found(lesson, search.ranking.score(candidate), search.reason(candidate, searched))

    def _without_vector(self, connection: Connection, folder: str | None, most: int | None) -> list[bytes]:
        """Return the digests of the texts that have no vector."""
        self._indexer.update(connection, folder)
        rows = connection.execute(
            "SELECT digest FROM lessons JOIN agents USING (agent) WHERE is_active "
            "AND folder = coalesce(?, folder) AND NOT EXISTS "
            "(SELECT 1 FROM vectors WHERE embedder = ? AND vectors.digest = lessons.digest) "
            "ORDER BY agents.changed_ns < 0 DESC, agents.changed_ns DESC, day DESC",
            (folder, self._vectors.name),
        )
        return list(dict.fromkeys(digest for (digest,) in rows))[:most]

    def _add_vectors(self, vectors: Mapping[bytes, Sequence[float]], connection: Connection) -> None:
        with transaction(connection):
            connection.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)",
                [(self._vectors.name, digest, packed(vector)) for digest, vector in vectors.items()],
            )
            connection.executemany(
                "UPDATE agents SET revision = revision + 1 "
                "WHERE agent IN (SELECT agent FROM lessons WHERE digest = ?)",
                [(digest,) for digest in vectors],
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


def _digests(connection: Connection) -> set[bytes]:
    """Return the digests of all texts that are embedded."""
    return {digest for (digest,) in connection.execute("SELECT digest FROM lessons WHERE is_active")}


def _texts(digests: Sequence[bytes], connection: Connection) -> dict[bytes, str]:
    """Return the texts with some digests."""
    marks = ", ".join("?" * len(digests))
    rows = connection.execute(f"SELECT digest, meaning FROM lessons WHERE digest IN ({marks})", digests)  # noqa: S608 (only marks)
    return dict(rows.fetchall())


class _Search:
    """One search among the active lessons of an agent, or of all agents."""

    def __init__(
        self,
        connection: Connection,
        query: Query,
        vector: array[float] | None,
        agents: Mapping[int, _ActiveLessons],
    ) -> None:
        self.ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        self._connection = connection
        self._query = query
        self._agents = agents
        self._lessons: dict[int, _Features] = {}
        self._similarities: dict[int, float] = {}
        for active in agents.values():
            self._lessons |= active.lessons
            self._similarities |= active.similarities(vector)

    def best(self) -> list[Candidate]:
        """Return the `k` most relevant lessons, without near-duplicates."""
        if not self._lessons:
            return []
        of_one_agent = self._query.agent is not None
        count = len(self._lessons)
        common = max(COMMON_COUNT, int(count * COMMON_SHARE)) if of_one_agent else COMMON
        full_text = FullText(self._connection, *numbers_of(min(self._agents), max(self._agents)), common)
        shares: dict[int, float] = {}
        if self.ranking.has_names or len(self._similarities) < count:
            shares = full_text.shares(self._query.text, count, lambda number: self._lessons[number].length)
        same_type = self._same_type() if of_one_agent else set[int]()
        tools = self._tools(full_text) if of_one_agent else {}

        def candidates(most: int) -> Iterator[Candidate]:
            for number in {
                *same_type,
                *tools,
                *nlargest(most, self._similarities, self._similarities.__getitem__),
                *nlargest(most, shares, shares.__getitem__),
            }:
                features = self._lessons[number]
                if self._query.kinds is None or features.kind in self._query.kinds:
                    yield Candidate(
                        number,
                        features.day,
                        number in same_type,
                        tools.get(number, ()),
                        self._similarities.get(number),
                        shares.get(number, 0.0),
                    )

        best: list[Candidate] = []
        for most in (NEAREST, FLOOD):
            ranked = self.ranking.ordered(candidates(most))
            best = list(islice(without_duplicates(ranked, self._content, self._similarity), self._query.k))
            if len(best) == self._query.k or most >= max(len(self._similarities), len(shares)):
                break
        return best

    def reason(self, candidate: Candidate, searched: str) -> str:
        """Say why a lesson was chosen; `searched` is its text in the index."""
        words = set(searched.lower().split())
        names = [name for name in names_in(self._query.text) if words.intersection(tokens_of(name)[:1])]
        return reason_for(candidate, self._query.task_type, names)

    def _same_type(self) -> set[int]:
        """Return the lessons about the query's type of task."""
        task_type = normalized(self._query.task_type)
        return {number for number, one in self._lessons.items() if task_type and one.task_type == task_type}

    def _tools(self, full_text: FullText) -> dict[int, tuple[str, ...]]:
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
        first, second = (self._agents[agent_of(each.number)].vector(each.number) for each in (one, other))
        return 0.0 if first is None or second is None else sum(map(mul, first, second))


class _Features(NamedTuple):
    """What a lesson is ranked by; `length` is in words."""

    kind: str
    day: int
    task_type: str
    tools: Sequence[str]
    length: int


class _ActiveLessons:
    """The active lessons of one agent in memory, by number, with their vectors as one matrix.

    `revision` is the agent's when they were read.
    """

    def __init__(self, connection: Connection, agent: int, revision: int, embedder: str) -> None:
        self.revision = revision
        self.lessons: dict[int, _Features] = {}
        self._rows: dict[int, int] = {}
        vectors: list[bytes] = []
        rows = connection.execute(
            "SELECT number, kind, day, task_type, tools, length, vector FROM lessons LEFT JOIN vectors "
            "ON embedder = ? AND vectors.digest = lessons.digest WHERE agent = ? AND is_active",
            (embedder, agent),
        )
        for number, kind, day, task_type, tools, length, vector in rows:
            self.lessons[number] = _Features(kind, day, task_type, tools.split("\n"), length)
            if vector is not None:
                self._rows[number] = len(vectors)
                vectors.append(vector)
        self._matrix = matrix_of(vectors)

    def similarities(self, vector: array[float] | None) -> dict[int, float]:
        """Return the cosine with a vector for each lesson that has one."""
        if vector is None or not self._rows:
            return {}
        return dict(zip(self._rows, cosines(self._matrix, vector), strict=True))

    def vector(self, number: int) -> Sequence[float] | None:
        """Return the vector of a lesson, None if it has none."""
        row = self._rows.get(number)
        return None if row is None else self._matrix[row]
