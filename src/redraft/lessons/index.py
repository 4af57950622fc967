"""The index over all lessons: full text and vectors, derived from their files."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from heapq import nlargest
from importlib import import_module
from itertools import islice
from math import hypot, log
from operator import mul
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from redraft._validation import check_count
from redraft.errors import StoreError
from redraft.lessons.catalog import (
    AGENT_BITS,
    WAIT,
    Catalog,
    CatalogFile,
    Refreshed,
    digest_of,
    normalized,
    transaction,
)
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.lesson import Lesson, LessonKind
from redraft.lessons.markdown import parse
from redraft.lessons.ranking import (
    Candidate,
    Ranking,
    names_in,
    reason_for,
    search_words,
    tokens_of,
    without_duplicates,
)
from redraft.lessons.vectors import LessonVectors
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

EMBEDDED = 32
"""Lessons that are embedded and written together."""
ATTEMPTS = 3
"""Searches before a file that keeps changing is given up."""
NEAREST, FLOOD = 50, 5_000
"""Lessons that are ranked for their meaning, and for their words; more where those are all alike."""


@dataclass(frozen=True, slots=True)
class Query:
    """Ask for the `k` lessons that are most relevant to a task.

    `tools` are those the task may use, `error` is what just went wrong. Of an `agent`'s own lessons, those
    about the same type of task come first, then those about its tools, then the nearest in meaning; without
    an agent, the lessons of all agents are searched by meaning. `kinds` leaves only these. Reflexion
    Protocol, sections 5 and 7.
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
        """What is searched for: the task and the error, without invisible characters."""
        return without_invisible(f"{self.task}\n{self.error}").strip()


@dataclass(frozen=True, slots=True)
class Found:
    """Hold a lesson as its file has it now, its score, and in a few words why it was chosen.

    `score` is the cosine with the question plus up to 0.3 for names that both hold; without an embedder, the
    share (0..1) of the best full-text score.
    """

    lesson: Lesson
    score: float
    reason: str


class LessonIndex:
    """Find lessons by task type, tool, words and meaning.

    `path` is the folder of all agents' lessons (`memory`); the index lies in `.index` inside it, readable by
    its owner only and ignored by git. `shared` is a store through which machines share vectors.

    - The files are the truth, and never changed here. A search looks at the times of the agents' folders and
      picks up what was added, replaced, deleted or archived. What was edited in place is noticed when it is
      found, and by `refresh`, which looks at each file.
    - A missing or damaged index is rebuilt by whoever needs it while other processes wait.
    - Texts are redacted before they are written.
    - A vector belongs to the name of its embedder and to the text it was made of, and outlives a rebuild.
      `fill` makes the missing ones; until then, and without an embedder, full text finds lessons.
    - Only `active` lessons are found, archived ones included. Near-duplicates are found once.

    Serves all tasks, threads and event loops of a process, and any number of processes at once. Raises
    `StoreError` where the index can't be written.
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
        self._catalog = Catalog(self._path, redactor)
        self._vectors = LessonVectors(embedder, shared)
        self._worker = Worker("redraft-lessons", partial(CatalogFile, self._catalog.folder))
        self._shelves: dict[int, _Shelf] = {}

    async def search(self, query: Query) -> list[Found]:
        """Return the `k` most relevant lessons, best first; fewer where no more are relevant.

        Where the embedder fails, full text alone is searched, and a warning logged.
        """
        vector = await self._vectors.of_question(query.text)
        question = None if vector is None else array("f", vector)
        return await self._do(partial(self._search, query, question))

    async def refresh(self) -> Refreshed:
        """Look at every file; return what changed since the last time, and which files are broken."""
        return await self._do(self._catalog.refresh)

    async def rebuild(self) -> Refreshed:
        """Read every file anew, and delete the vectors of long ago that no lesson has any more."""
        refreshed = await self._do(self._catalog.rebuild)
        digests = await self._do(_digests)
        if swept := await self._vectors.sweep(digests):
            logger.info("%d shared vectors of texts that no lesson has any more were deleted.", swept)
        return refreshed

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed lessons that have no vector, of one agent or of all, and return how many.

        At most `most`: first those of the agents whose folders changed last, and of an agent the newest. What
        is done stays done when this is cancelled. Raises what the embedder raises.
        """
        if not self._vectors.name:
            return 0
        missing = await self._do(partial(self._without_vector, most, agent and folder_name(agent)))
        for start in range(0, len(missing), EMBEDDED):
            texts = await self._do(partial(_meanings, missing[start : start + EMBEDDED]))
            vectors = await self._vectors.of_texts(texts)
            await self._do(partial(self._add_vectors, vectors))
        return len(missing)

    async def aclose(self) -> None:
        """Close the database; the next use opens it again."""
        await self._worker.stop()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._worker.do(work)
        except (sqlite3.Error, OSError) as error:
            raise explained(error, self._catalog.folder, WAIT) from error

    # What follows runs in the worker's thread.

    def _search(self, query: Query, question: array[float] | None, connection: Connection) -> list[Found]:
        folder = None if query.agent is None else folder_name(query.agent)
        if question is not None:
            self._drop_other_dimensions(connection, len(question))
        stale: set[int] = set()
        for _ in range(ATTEMPTS):
            self._catalog.pick_up(connection, folder, stale)
            with transaction(connection, "DEFERRED"):  # so that all of it is read as of one moment
                ranking, chosen = self._rank(connection, query, question, folder)
                found = [self._found(connection, query, ranking, one) for one in chosen]
            stale = {
                one.number >> AGENT_BITS for one, read in zip(chosen, found, strict=True) if read is None
            }
            if not stale:
                return [one for one in found if one is not None]
        return []

    def _rank(
        self, connection: Connection, query: Query, question: array[float] | None, folder: str | None
    ) -> tuple[Ranking, list[Candidate]]:
        """Return the `k` most relevant lessons of the agent with a folder, or of all agents."""
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=question is not None)
        shelves = self._load_shelves(connection, folder)
        lessons: dict[int, _Ranked] = {}
        similar: dict[int, float] = {}
        for shelf in shelves.values():
            lessons |= shelf.lessons
            similar |= shelf.similarities(question)
        if not lessons:
            return ranking, []
        often = COMMON if folder is None else max(FEW, int(len(lessons) * OFTEN))
        full_text = _FullText(connection, _numbers_of(min(shelves), max(shelves)), often)
        texts: dict[int, float] = {}
        if ranking.has_names or len(similar) < len(lessons):
            texts = full_text.shares(query.text, lessons)
        typed: set[int] = set()
        tools: dict[int, tuple[str, ...]] = {}
        if folder is not None:
            task_type = normalized(query.task_type)
            typed = {number for number, one in lessons.items() if task_type and one.task_type == task_type}
            for tool in dict.fromkeys(query.tools):
                having = {number for number, one in lessons.items() if normalized(tool) in one.tools}
                for number in having.union(full_text.mentioning(tool)):
                    tools[number] = (*tools.get(number, ()), tool)

        def said(one: Candidate) -> str:
            row = connection.execute("SELECT said FROM lessons WHERE number = ?", (one.number,)).fetchone()
            return row[0]

        def similarity(one: Candidate, other: Candidate) -> float:
            first, second = (shelves[each.number >> AGENT_BITS].vector(each.number) for each in (one, other))
            return 0.0 if first is None or second is None else sum(map(mul, first, second))

        def candidates(most: int) -> Iterator[Candidate]:
            for number in {*typed, *tools, *_largest(most, similar), *_largest(most, texts)}:
                one = lessons[number]
                if query.kinds is None or one.kind in query.kinds:
                    yield Candidate(
                        number,
                        one.day,
                        number in typed,
                        tools.get(number, ()),
                        similar.get(number),
                        texts.get(number, 0.0),
                    )

        chosen: list[Candidate] = []
        for most in (NEAREST, FLOOD):
            distinct = without_duplicates(ranking.ordered(candidates(most)), said, similarity)
            chosen = list(islice(distinct, query.k))
            if len(chosen) == query.k or most >= max(len(similar), len(texts)):
                break
        return ranking, chosen

    def _found(self, connection: Connection, query: Query, ranking: Ranking, one: Candidate) -> Found | None:
        """Return a lesson as its file has it; None if that is no longer what the index has."""
        lesson_id, file_hash, searched = connection.execute(
            "SELECT id, file_hash, searched FROM lessons WHERE number = ?", (one.number,)
        ).fetchone()
        agent = lesson_id.partition("/")[0]
        folder = LessonFolder(self._path, agent)
        try:
            entry = folder.entry_of(lesson_id)
            text = folder.text_of(entry)
            if digest_of(text) != file_hash:
                return None
            lesson = _parse(text, lesson_id, agent, entry.day)
        except StoreError:
            return None
        words = set(searched.lower().split())
        names = [name for name in names_in(query.text) if words.intersection(tokens_of(name)[:1])]
        return Found(lesson, ranking.score(one), reason_for(one, query.task_type, names))

    def _load_shelves(self, connection: Connection, folder: str | None) -> dict[int, _Shelf]:
        """Return what is kept in memory of an agent, or of all, read again where it has changed."""
        agents = connection.execute(
            "SELECT agent, revision FROM agents WHERE folder = coalesce(?, folder) ORDER BY agent", (folder,)
        ).fetchall()
        for agent, revision in agents:
            if agent not in self._shelves or self._shelves[agent].revision != revision:
                self._shelves[agent] = _Shelf(connection, agent, revision, self._vectors.name)
        return {agent: self._shelves[agent] for agent, _ in agents}

    def _without_vector(self, most: int | None, folder: str | None, connection: Connection) -> list[int]:
        """Return lessons that have no vector, one for each text."""
        self._catalog.pick_up(connection, folder)
        rows = connection.execute(
            "SELECT number, digest FROM lessons JOIN agents USING (agent) WHERE is_active "
            "AND folder = coalesce(?, folder) AND NOT EXISTS "
            "(SELECT 1 FROM vectors WHERE embedder = ? AND vectors.digest = lessons.digest) "
            "ORDER BY agents.changed_ns < 0 DESC, agents.changed_ns DESC, day DESC",
            (folder, self._vectors.name),
        )
        missing: dict[bytes, int] = {}
        for number, digest in rows:
            missing.setdefault(digest, number)
        return list(missing.values())[:most]

    def _add_vectors(self, vectors: Mapping[bytes, Sequence[float]], connection: Connection) -> None:
        with transaction(connection):
            connection.executemany(
                "INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)",
                [(self._vectors.name, digest, _packed(vector)) for digest, vector in vectors.items()],
            )
            connection.executemany(
                "UPDATE agents SET revision = revision + 1 "
                "WHERE agent IN (SELECT agent FROM lessons WHERE digest = ?)",
                [(digest,) for digest in vectors],
            )

    def _drop_other_dimensions(self, connection: Connection, dimension: int) -> None:
        """Delete the embedder's vectors if it made longer or shorter ones: another has its name now."""
        name = (self._vectors.name,)
        row = connection.execute(
            "SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", name
        ).fetchone()
        if row is not None and row[0] != dimension * _FLOAT:
            with transaction(connection):
                connection.execute("DELETE FROM vectors WHERE embedder = ?", name)
                connection.execute("UPDATE agents SET revision = revision + 1")


def _digests(connection: Connection) -> set[bytes]:
    """Return the digests of all texts to embed."""
    return {digest for (digest,) in connection.execute("SELECT digest FROM lessons WHERE is_active")}


def _meanings(numbers: Sequence[int], connection: Connection) -> dict[bytes, str]:
    """Return the texts of lessons to embed, by their digests."""
    marks = ", ".join("?" * len(numbers))
    rows = connection.execute(f"SELECT digest, meaning FROM lessons WHERE number IN ({marks})", numbers)  # noqa: S608 (marks)
    return dict(rows.fetchall())


# --- searching --------------------------------------------------------------------------------------------

COMMON = 400
"""A word that more lessons of all agents have says nothing."""
FEW, OFTEN = 50, 0.4
"""Likewise one that more than so many, and more than this share, of an agent's lessons have."""
NAME_WEIGHT = 2.0
"""The weight of a whole name: who says it means it."""


class _Ranked(NamedTuple):
    """What an active lesson is ranked by. `length` counts its words."""

    kind: str
    day: int
    task_type: str
    tools: Sequence[str]
    length: int


class _Shelf:
    """Keep an agent's active lessons in memory, by number, and their vectors as one matrix.

    `revision` is that of the agent when they were read.
    """

    def __init__(self, connection: Connection, agent: int, revision: int, embedder: str) -> None:
        self.revision = revision
        self.lessons: dict[int, _Ranked] = {}
        self._rows: dict[int, int] = {}
        vectors: list[bytes] = []
        rows = connection.execute(
            "SELECT number, kind, day, task_type, tools, length, vector FROM lessons LEFT JOIN vectors "
            "ON embedder = ? AND vectors.digest = lessons.digest WHERE agent = ? AND is_active",
            (embedder, agent),
        )
        for number, kind, day, task_type, tools, length, vector in rows:
            self.lessons[number] = _Ranked(kind, day, task_type, tools.split("\n"), length)
            if vector is not None:
                self._rows[number] = len(vectors)
                vectors.append(vector)
        self._matrix = _matrix(vectors)

    def similarities(self, question: array[float] | None) -> dict[int, float]:
        """Return the cosine of each lesson that has a vector with the question."""
        if question is None or not self._rows:
            return {}
        return dict(zip(self._rows, _products(self._matrix, question), strict=True))

    def vector(self, number: int) -> Sequence[float] | None:
        """Return the vector of a lesson, None if it has none."""
        row = self._rows.get(number)
        return None if row is None else self._matrix[row]


@dataclass(frozen=True, slots=True)
class _FullText:
    """Search the words of the lessons with some numbers: those of one agent, or of all.

    FTS5's own `bm25()` counts each word in all documents for every search, which takes 25 ms for a common
    word of 100,000 lessons. Here a word that more than `often` lessons have is skipped, and the weight of the
    others comes from the lessons that are searched. That a lesson has a word counts, not how often.
    """

    connection: Connection
    numbers: tuple[int, int]
    often: int

    def shares(self, text: str, lessons: Mapping[int, _Ranked]) -> dict[int, float]:
        """Return the share (0..1) of the best score that each lesson has which holds words of a text.

        The long ones hold more words by chance. The fourth root of the length, the weight of names and that
        of `ranking.NAME_BOOST` did best on recorded reflections.
        """
        scores = self._scores(text, len(lessons))
        weighed = {number: score / lessons[number].length ** 0.25 for number, score in scores.items()}
        best = max(weighed.values(), default=0.0)
        return {number: score / best for number, score in weighed.items()} if best > 0 else {}

    def mentioning(self, name: str) -> list[int]:
        """Return the lessons that hold a name as a whole."""
        return [number for token in tokens_of(name)[:1] for number in self._having(token)]

    def _scores(self, text: str, count: int) -> dict[int, float]:
        """Return the sum of the weights of a text's words for each of `count` lessons that has any.

        Where none has a rare word, those with all the common ones are found.
        """
        scores: dict[int, float] = {}
        common: list[str] = []
        names = {tokens_of(name)[0] for name in names_in(text) if not name.isdecimal()}
        for word in search_words(text):
            numbers = self._having(word, self.often + 1)
            if len(numbers) > self.often:
                common.append(word)
                continue
            weight = log(1 + (count - len(numbers) + 0.5) / (len(numbers) + 0.5))
            for number in numbers:
                scores[number] = scores.get(number, 0.0) + weight * (NAME_WEIGHT if word in names else 1)
        if not scores and common:
            scores = dict.fromkeys(self._having('" AND "'.join(common), FLOOD), 1.0)
        return scores

    def _having(self, words: str, most: int = -1) -> list[int]:
        rows = self.connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
            (f'"{words}"', *self.numbers, most),
        )
        return [number for (number,) in rows]


def _numbers_of(first_agent: int, last_agent: int) -> tuple[int, int]:
    """Return the first and the last number that lessons of some agents can have."""
    return first_agent << AGENT_BITS, (last_agent + 1 << AGENT_BITS) - 1


def _largest(most: int, scores: Mapping[int, float]) -> list[int]:
    return nlargest(most, scores, key=scores.__getitem__)


_FLOAT = 4
"""Bytes of a number in a stored vector."""


@cache
def numpy() -> Any:
    """Return numpy, or None where it is not installed; it comes with the offline embedder."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def _packed(vector: Sequence[float]) -> bytes:
    """Return a vector of unit length as it is stored."""
    length = hypot(*vector) or 1.0
    return array("f", [number / length for number in vector]).tobytes()


def _matrix(vectors: Sequence[bytes]) -> Any:
    """Return stored vectors as the rows of a matrix."""
    if numpy() is None or not vectors:
        return [array("f", vector) for vector in vectors]
    return numpy().frombuffer(b"".join(vectors), "f4").reshape(len(vectors), -1)


def _products(matrix: Any, vector: array[float]) -> list[float]:
    """Return the dot product of each row with a vector: the cosine, since all have unit length."""
    if numpy() is None:
        return [sum(map(mul, row, vector)) for row in matrix]
    # Not `@`: for this few rows, its threads take longer to meet than to multiply.
    return numpy().einsum("ij,j->i", matrix, numpy().asarray(vector)).tolist()


_parse = lru_cache(512)(parse)
