"""The search index over lessons, in a SQLite database that is derived from their documents."""

from __future__ import annotations

import asyncio
import sqlite3
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from sqlite3 import Connection
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from redraft.errors import StoreError
from redraft.lessons.documents import documents_at
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.indexer import (
    WAIT,
    Indexer,
    IndexSession,
    Refreshed,
    digest_of,
    transaction,
)
from redraft.lessons.lesson import Lesson
from redraft.lessons.markdown import parse
from redraft.lessons.ranking import AgentLessons, Candidate, LessonQuery, Search
from redraft.lessons.vectors import FLOAT_BYTES, LessonVectors, packed
from redraft.redact.log import logger
from redraft.stores.sqlite import explained
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from redraft.lessons.documents import Documents
    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BATCH = 32
"""Lessons that are embedded and written at once."""
ATTEMPTS = 3
"""Searches before lessons whose files keep changing are left out."""


@dataclass(frozen=True, slots=True)
class FoundLesson:
    """A lesson, its score, and the reason why it was chosen.

    `score` is the cosine of lesson and question, plus up to 0.3 for names that both contain; without an
    embedder, the share (0..1) of the best full-text score. It is up to 0.1 more if the lesson has helped, and
    less if it has hurt, or if its confidence is low.
    """

    lesson: Lesson
    score: float
    reason: str


class FoundLessons(list[FoundLesson]):
    """Lessons, best first; `near_misses` counts others that are almost similar enough to be among them."""

    near_misses: int = 0


class LessonIndex:
    """Find lessons by task type, tool, words and meaning.

        index = LessonIndex(Path("memory"), embedder)
        await index.fill()
        found = await index.search(LessonQuery("Fetch the price list", agent="researcher"))

    `place` is where the documents of all agents are; a path is that of a folder such as `memory`. The index
    is in `memory/.index`, which only its owner can read and git ignores; if it is missing or damaged, the
    next use rebuilds it, while other processes wait. It never changes a document, and it redacts texts before
    it writes them.

    Lessons are searched by meaning once `fill` has embedded them; until then, and without an `embedder`, by
    full text.

    Safe to share between tasks, threads and event loops, and between processes. Raises `StoreError` if the
    index can't be written.
    """

    def __init__(
        self,
        place: Documents | Path | str,
        embedder: NamedEmbedder | None = None,
        *,
        redactor: Redactor | None = None,
    ) -> None:
        self._documents = documents_at(place)
        self._indexer = Indexer(self._documents, redactor)
        self._vectors = LessonVectors(embedder)
        self._worker = Worker("redraft-lessons", partial(IndexSession, self._indexer.folder))
        self._agents: dict[int, AgentLessons] = {}

    async def search(
        self, query: LessonQuery, effects: Mapping[str, float] = MappingProxyType({})
    ) -> FoundLessons:
        """Return the `k` most relevant lessons, best first, or fewer if no more are relevant.

        `effects` (-1..1) tell by the ids of lessons how often each helped rather than hurt.

        Only lessons of the query's status are found, archived ones included, and one of several
        near-duplicates. If the embedder fails, a warning is logged and full text alone is searched.

        Changed records are noticed. Files that were added, replaced, deleted or archived are noticed by the
        modification times of the agents' folders; a file edited in place, when its lesson is found, or by
        `refresh`.
        """
        vector = await self._vectors.of_question(query.text)
        return await self._do(self._search, query, vector, effects)

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
            rows = await self._vectors.of_lessons(list(batch.values()))
            await self._do(self._add_vectors, dict(zip(batch, rows, strict=True)))
        return len(missing)

    async def refresh(self) -> Refreshed:
        """Look at every file; return what has changed since the last time, and which files are broken."""
        return await self._do(self._indexer.refresh)

    async def rebuild(self) -> Refreshed:
        """Index every file anew, and delete the vectors of texts that no lesson has any more."""
        return await self._do(self._indexer.rebuild)

    async def purge(self) -> None:
        """Index every file anew, and leave no byte of lessons that were deleted.

        Vectors of texts that no lesson has any more are deleted. Raises `StoreError` while another process
        reads the index all the time.
        """
        await self._do(self._indexer.purge)

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
        self,
        connection: Connection,
        query: LessonQuery,
        vector: Sequence[float] | None,
        effects: Mapping[str, float],
    ) -> FoundLessons:
        """Index what has changed, load the active lessons, rank them, and read the files of the best.

        Starts again if one of these files turns out to have been edited in place.
        """
        folder = None if query.agent is None else folder_name(query.agent)
        found: dict[int, FoundLesson | None] = {}
        near_misses = 0
        for _ in range(ATTEMPTS):
            self._indexer.update(connection, folder)
            if vector is not None:
                self._drop_other_dimensions(connection, len(vector))
            with transaction(connection, "DEFERRED"):
                lessons = self._agent_lessons(connection, folder)
                search = Search(connection, query, vector, self._vectors.name, lessons, effects)
                found = {one.number: self._read(connection, search, one) for one in search.best()}
                near_misses = search.near_misses
            edited = [number for number, one in found.items() if one is None]
            if not edited:
                break
            self._indexer.distrust(connection, edited)
        lessons = FoundLessons(one for one in found.values() if one is not None)
        lessons.near_misses = near_misses
        return lessons

    def _agent_lessons(self, connection: Connection, folder: str | None) -> list[AgentLessons]:
        """Return the lessons of an agent, or of each, loaded again if they have changed."""
        agents = connection.execute(
            "SELECT agent, revision FROM agents WHERE :folder IS NULL OR folder = :folder ORDER BY agent",
            {"folder": folder},
        ).fetchall()
        for agent, revision in agents:
            if agent not in self._agents or self._agents[agent].revision != revision:
                self._agents[agent] = AgentLessons(connection, agent, revision, self._vectors.name)
        return [self._agents[agent] for agent, _ in agents]

    def _read(self, connection: Connection, search: Search, candidate: Candidate) -> FoundLesson | None:
        """Read the file of a candidate; None if its text is no longer the one that was indexed."""
        lesson_id, file_hash, searched = connection.execute(
            "SELECT id, file_hash, searched FROM lessons WHERE number = ?", (candidate.number,)
        ).fetchone()
        agent = lesson_id.partition("/")[0]
        folder = LessonFolder(self._documents, agent)
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

    def __init__(self, index: LessonIndex, documents: Documents, agent: str) -> None:
        self._index = index
        self._documents = documents
        self._folder = folder_name(agent)
        self._state = 0
        self._task: asyncio.Task[None] | None = None
        self._is_behind = True  # an earlier process may have ended too soon

    def begin(self) -> None:
        """Start embedding, or have the running task look once more."""
        self._is_behind = True
        if not self._is_running():
            # A fresh context: this is part of no run, and of no step of one.
            self._task = asyncio.create_task(self._work_off(EMBEDDED_LATER), context=Context())

    async def catch_up(self, agent: str | None) -> None:
        """Embed a few lessons of an agent, or of all agents, unless the task is running.

        Lessons that people or other machines have added are noticed.
        """
        if not self._is_running():
            self._is_behind = self._is_behind or await self._current_state() != self._state
            await self._work_off(EMBEDDED_FIRST, agent)

    async def wait(self) -> None:
        """Wait for the task, if it was started in this event loop."""
        if self._task is not None and self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])

    async def _current_state(self) -> int:
        return await asyncio.to_thread(self._documents.state, self._folder)

    def _is_running(self) -> bool:
        task = self._task
        return task is not None and not task.done() and not task.get_loop().is_closed()

    async def _work_off(self, most: int, agent: str | None = None) -> None:
        while self._is_behind:
            self._is_behind = False
            self._state = await self._current_state()
            try:
                await self._index.fill(most, agent)
            except asyncio.CancelledError:
                self._is_behind = True
                raise
            except Exception as error:  # noqa: BLE001 (an embedder may raise anything, and nobody awaits this)
                logger.warning("New lessons are found by full text only for now: %s", error)
