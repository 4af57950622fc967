"""The search index over lessons: an SQLite file built from their documents, and rebuilt on any error."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing, contextmanager, nullcontext
from contextvars import Context
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count, islice
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar, TypeVarTuple

from redraft._locks import FileLock, check_regular, make_file, make_folder
from redraft.errors import LessonFileError, ModelError, OutputError, StoreError
from redraft.lessons.documents import documents_at, text_of
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.full_text import searchable
from redraft.lessons.lesson import Lesson, violation_in
from redraft.lessons.markdown import parse
from redraft.lessons.ranking import (
    FLOAT_BYTES,
    SEARCHED,
    AgentLessons,
    BestLesson,
    LessonQuery,
    Search,
    may_answer,
    normalized,
    packed,
)
from redraft.memory.safety import memory_redactor
from redraft.redact.log import logger
from redraft.stores.sqlite import explained, primary_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from sqlite3 import Connection

    from redraft.lessons.documents import Documents, Entry
    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

FILE = "lessons-3.db"
"""The number rises with each change of the schema, so that processes of two versions have separate files."""
AGENT_BITS = 24
"""A document's number is its agent's number shifted by this many bits, plus its own number.

So an agent's lessons are a range of row numbers, to which full-text search can be limited.
"""
SCHEMA = """
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, folder TEXT NOT NULL UNIQUE,
    state INTEGER NOT NULL,       -- of the agent's documents when they were indexed; -1: look again
    revision BLOB NOT NULL        -- random, another one after each change of a lesson or a vector
);
CREATE TABLE documents (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
    changed_ns INTEGER NOT NULL, size INTEGER NOT NULL, digest BLOB NOT NULL,
    problem TEXT NOT NULL         -- why the document is not a lesson
);
CREATE TABLE lessons (            -- that may be found
    number INTEGER PRIMARY KEY, status TEXT NOT NULL, kind TEXT NOT NULL,
    written INTEGER NOT NULL,     -- its `Lesson.recency`
    task_type TEXT NOT NULL, tools TEXT NOT NULL, confidence REAL NOT NULL,
    length INTEGER NOT NULL,      -- in words
    content TEXT NOT NULL,        -- the fields of its content
    meaning TEXT NOT NULL, digest BLOB NOT NULL  -- the text that is embedded, and its digest
);
CREATE INDEX lessons_by_digest ON lessons (digest);
CREATE VIRTUAL TABLE words USING fts5(
    searched, columnsize = 0, tokenize = "porter unicode61 categories 'L* M* N* Co' tokenchars '_'"
);
CREATE TABLE IF NOT EXISTS vectors (
    embedder TEXT NOT NULL, digest BLOB NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (embedder, digest)
);
"""
EMPTIED = f"DROP TABLE words; DROP TABLE lessons; DROP TABLE documents; DROP TABLE agents; {SCHEMA}"
"""Keeps the vectors, which may have cost money."""

BATCH = 32
"""Lessons that are embedded and written together."""
ATTEMPTS = 3
"""Attempts at a search while lessons keep changing, and at any use while the file is unusable."""
WAIT = 300.0
"""Seconds to wait for another process, which may be building the whole index."""
YOUNG_NS = 100_000_000
"""A file changed this recently may change again without a new modification time."""
LONGEST_MEANING = 1_000
"""Characters of a lesson that are embedded: about the limit of a small model."""
QUESTIONS = 256
"""Vectors of questions that are cached."""


@dataclass(frozen=True, slots=True)
class LessonMatch:
    """A lesson that matches a query."""

    lesson: Lesson
    score: float
    """The cosine of lesson and question, plus up to 0.3 for names that both contain.

    Without an embedder, the share (0..1) of the best full-text score. It is up to 0.1 more if the lesson has
    helped, and less if it has hurt, or if its confidence is low.
    """
    reason: str
    """Why it was chosen."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """The result of indexing."""

    lessons: int = 0
    """The number of lessons in the index."""
    broken: dict[str, str] = field(default_factory=dict[str, str])
    """The problem of each document that is not a lesson, by its id."""


class LessonIndex:
    """Find lessons by task type, tool, words and meaning.

        index = LessonIndex(Path("memory"), embedder)
        await index.fill()
        matches = await index.search(LessonQuery("Fetch the price list", agent="researcher"))

    `place` holds the documents of all agents: `Documents`, or the path of a folder such as `memory`. The
    index is `memory/.index/lessons-3.db`, which only its owner can read and git ignores. Each use first
    indexes changed documents. If the file is missing or damaged, it is rebuilt while other processes wait; if
    it can't be written, the lessons are indexed in memory. The index never changes a document, and redacts
    texts before it writes them.

    Lessons are searched by meaning once `fill` has embedded them; until then, and without an `embedder`, by
    full text.

    Safe to share between tasks, threads and event loops, and between processes. `refresh` and `rebuild` raise
    `StoreError` if the index can't be written.
    """

    def __init__(self, place: Documents | Path | str, embedder: NamedEmbedder | None = None) -> None:
        self._documents = documents_at(place)
        self._file = _IndexFile(self._documents.index)
        self._embedder = embedder
        self._embedder_name = "" if embedder is None else embedder.name
        self._dimension = 0  # until something was embedded
        self._questions: dict[str, Sequence[float] | None] = {}
        self._agents: dict[str, AgentLessons] = {}

    async def search(
        self,
        query: LessonQuery,
        effects: Mapping[str, float] = MappingProxyType({}),
        *,
        by_words: bool = False,
    ) -> list[LessonMatch]:
        """The `k` most relevant lessons, best first, or fewer if no more are relevant.

        `effects` (-1..1) say how often each lesson, by id, helped rather than hurt. With `by_words`, nothing
        is embedded, and full text alone is searched.

        Only lessons of the query's status match, including archived lessons, and only the best of several
        near-duplicates. If the embedder fails, a warning is logged and full text alone is searched.

        Changed records are noticed. Files that were added, replaced, deleted or archived are noticed by the
        modification times of the agents' folders, and edited files by their own; a file of the archive that
        is edited in place, when its lesson matches, or by `refresh`.
        """
        vector = None if by_words else await self._question(query.text)
        return await self._file.use(self._search, query, vector, effects, in_memory=True)

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed the lessons without a vector, of one agent or of all agents: their number.

        At most `most` lessons, first those of the agents whose folders changed last, the newest first.
        Vectors that are finished before a cancellation are stored. Raises the errors of the embedder.
        """
        if self._embedder is None:
            return 0
        missing = await self._file.use(self._without_vector, agent, most, in_memory=True)
        texts = iter(missing.items())
        while batch := dict(islice(texts, BATCH)):
            vectors = await self._embedder(list(batch.values()))
            self._dimension = next((len(each) for each in vectors if each), self._dimension)
            await self._file.use(self._add_vectors, dict(zip(batch, vectors, strict=True)))
        return len(missing)

    async def refresh(self) -> Indexed:
        """Index every document that has changed."""
        return await self._file.use(self._refresh)

    async def rebuild(self) -> Indexed:
        """Index every document again, and erase deleted lessons completely; the vectors of others stay.

        Raises `StoreError` if another process reads the index all the time.
        """
        return await self._file.use(self._rebuild)

    async def _question(self, text: str) -> Sequence[float] | None:
        """The vector of a question; if the embedder fails, a warning is logged, and the result is None."""
        if self._embedder is None or not text:
            return None
        if text not in self._questions:
            try:
                [vector] = await self._embedder([text])
            except (ModelError, OutputError) as error:
                logger.warning("Lessons are searched by full text alone: %s", error)
                return None
            if len(self._questions) >= QUESTIONS:
                self._questions.clear()
            self._questions[text] = vector
            if vector is not None:
                self._dimension = len(vector)
        return self._questions[text]

    # --- following the documents ---------------------------------------------------------------------------

    @contextmanager
    def _followed(self, folder: str | None) -> Generator[Connection]:
        """Open the index after it has followed the documents of an agent, or of all agents."""
        with self._file.reading() as connection:
            indexed = dict(connection.execute("SELECT folder, state FROM agents"))
            names = {*self._documents.agents(), *indexed} if folder is None else {folder}
            changed = [name for name in names if self._documents.state(name) != indexed.get(name, 0)]
            if not changed:
                yield connection
                return
        self._index(changed)
        with self._file.reading() as connection:
            yield connection

    def _refresh(self) -> Indexed:
        with self._file.writing() as connection:
            return self._index_all(connection)

    def _rebuild(self) -> Indexed:
        with self._file.writing() as connection:
            connection.executescript(f"BEGIN IMMEDIATE; {EMPTIED} COMMIT;")
            indexed = self._index_all(connection)
            connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM lessons)")
            connection.execute("VACUUM")
        return indexed

    def _index_all(self, connection: Connection) -> Indexed:
        folders = [folder for (folder,) in connection.execute("SELECT folder FROM agents")]
        for name in sorted({*self._documents.agents(), *folders}):
            self._index_agent(connection, name)
        problems = dict(connection.execute("SELECT id, problem FROM documents ORDER BY id").fetchall())
        broken = {lesson_id: problem for lesson_id, problem in problems.items() if problem}
        return Indexed(len(problems) - len(broken), broken)

    def _index(self, names: Iterable[str], edited: Collection[str] = ()) -> None:
        """Index the documents of some agents; `edited` are the ids of documents that only look unchanged."""
        with self._file.writing() as connection:
            for name in names:
                self._index_agent(connection, name, edited)

    def _index_agent(self, connection: Connection, name: str, edited: Collection[str] = ()) -> None:
        """Index the documents of an agent.

        A document counts as unchanged while its modification time and size are the same, or its text is.
        """
        state = _settled(self._documents.state(name))
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT OR IGNORE INTO agents VALUES (NULL, ?, 0, randomblob(8))", (name,))
            (agent,) = connection.execute("SELECT agent FROM agents WHERE folder = ?", (name,)).fetchone()
            rows = connection.execute("SELECT * FROM documents WHERE number BETWEEN ? AND ?", _numbers(agent))
            indexed = {row[1]: _Document(*row) for row in rows}
            try:
                entries = self._entries(name)
            except StoreError as error:  # the indexed lessons stay
                entries, state = dict.fromkeys(indexed), -1
                read = [(_Document(0, name, -1, 0, b"", str(error)), None)]
            else:
                changed = [
                    entry
                    for entry in entries.values()
                    if entry.id in edited or indexed.get(entry.id, ())[2:4] != (entry.changed_ns, entry.size)
                ]
                # Read before anything is written: from the first write on, other processes may have to wait.
                read = list(self._read(name, changed, indexed))
            removed = [document for document in indexed.values() if document.id not in entries]
            _write(connection, agent, indexed, read, removed)
            connection.execute(
                "UPDATE agents SET state = ? WHERE agent = ? AND state != ?", (state, agent, state)
            )
            if not entries and not state:  # the folder itself is gone
                connection.execute("DELETE FROM agents WHERE agent = ?", (agent,))

    def _entries(self, name: str) -> dict[str, Entry]:
        folder = LessonFolder(self._documents, name)
        if folder.name != name:
            raise StoreError(f"The lessons of an agent of this name belong in the folder {folder.name!r}.")
        entries: dict[str, Entry] = {}
        for entry in folder.entries():
            entries.setdefault(
                entry.id, entry
            )  # of two files with the same name, the archived file is second
        return entries

    def _read(
        self, agent: str, entries: Sequence[Entry], indexed: Mapping[str, _Document]
    ) -> Iterator[tuple[_Document, _Row | None]]:
        """Yield documents, with a row of redacted text for each searchable lesson."""
        redactor = memory_redactor()
        for entry, text in self._documents.texts(entries, of="a lesson"):
            document = _Document(0, entry.id, _settled(entry.changed_ns), entry.size, b"", "")
            try:
                if isinstance(text, StoreError):
                    raise text
                document = document._replace(digest=_digest_of(text))
                before = indexed.get(entry.id)
                if before is not None and before.digest == document.digest:
                    yield document._replace(problem=before.problem), None
                else:
                    yield document, _row_of(parse(text, entry.id, agent, entry.written), redactor)
            except StoreError as error:
                # A document that was removed just now is noticed by the next use.
                if isinstance(error, LessonFileError) or self._documents.entry(entry.id) is not None:
                    yield document._replace(problem=redactor.redact(str(error)).text), None

    # --- searching -----------------------------------------------------------------------------------------

    def _search(
        self, query: LessonQuery, vector: Sequence[float] | None, effects: Mapping[str, float]
    ) -> list[LessonMatch]:
        """Rank the lessons, and read the documents of the best.

        Starts again if one of these has been edited in place.
        """
        folder = None if query.agent is None else folder_name(query.agent)
        matches: list[LessonMatch] = []
        for _ in range(ATTEMPTS):
            with self._followed(folder) as connection:
                connection.execute("BEGIN")  # a consistent state
                lessons_of = self._loaded(connection, folder, vector)
                if not may_answer(query, lessons_of):
                    return matches
                by_meaning = self._embedder is not None
                search = Search(connection, query, vector, lessons_of, effects, by_meaning=by_meaning)
                best = list(search.best())
            lessons = {each.id: self._lesson(each) for each in best}
            matches = [
                LessonMatch(lesson, each.score, each.reason) for each in best if (lesson := lessons[each.id])
            ]
            if len(matches) == len(best):
                break
            edited = {lesson_id for lesson_id, lesson in lessons.items() if lesson is None}
            self._index({lesson_id.partition("/")[0] for lesson_id in edited}, edited)
        return matches

    def _loaded(
        self, connection: Connection, folder: str | None, vector: Sequence[float] | None
    ) -> list[AgentLessons]:
        """The lessons of an agent, or of each agent, loaded again if they have changed."""
        dimension = 0 if vector is None else len(vector)
        rows = connection.execute(
            "SELECT folder, agent, revision FROM agents "
            "WHERE :folder IS NULL OR folder = :folder ORDER BY agent",
            {"folder": folder},
        ).fetchall()
        agents: list[AgentLessons] = []
        for name, agent, revision in rows:
            lessons = self._agents.get(name)
            is_current = lessons is not None and lessons.revision == revision
            # A search without a vector keeps vectors of any dimension.
            if lessons is None or not is_current or dimension not in (0, lessons.dimension):
                lessons = AgentLessons(connection, _numbers(agent), revision, self._embedder_name, dimension)
                self._agents[name] = lessons
            agents.append(lessons)
        return agents

    def _lesson(self, best: BestLesson) -> Lesson | None:
        """Read a lesson; None if its text is no longer the indexed text."""
        try:
            if (entry := self._documents.entry(best.id)) is None:
                return None
            text = text_of(self._documents, entry, of="a lesson")
            if _digest_of(text) != best.digest:
                return None
            return parse(text, best.id, best.id.partition("/")[0], entry.written)
        except StoreError:
            return None

    # --- vectors -------------------------------------------------------------------------------------------

    def _without_vector(self, agent: str | None, most: int | None) -> dict[bytes, str]:
        """The texts without a vector, by their digests.

        A vector of another dimension is from an earlier embedder of the same name, and is replaced.
        """
        folder = None if agent is None else folder_name(agent)
        with self._followed(folder) as connection:
            rows = connection.execute(
                f"""
                SELECT digest, meaning FROM lessons JOIN agents ON agent = number >> {AGENT_BITS}
                WHERE (:folder IS NULL OR folder = :folder) AND digest NOT IN (
                    SELECT digest FROM vectors
                    WHERE embedder = :embedder AND (length(vector) = 0 OR :bytes IN (0, length(vector)))
                )
                ORDER BY state < 0 DESC, state DESC, written DESC LIMIT :most
                """,  # noqa: S608 (a constant)
                {
                    "folder": folder,
                    "embedder": self._embedder_name,
                    "bytes": FLOAT_BYTES * self._dimension,
                    "most": -1 if most is None else most,
                },
            )
            return dict(rows.fetchall())

    def _add_vectors(self, vectors: Mapping[bytes, Sequence[float] | None]) -> None:
        with self._file.writing() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for digest, vector in vectors.items():
                connection.execute(
                    "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)",
                    (self._embedder_name, digest, packed(vector or ())),
                )
                connection.execute(
                    "UPDATE agents SET revision = randomblob(8) "
                    "WHERE agent IN (SELECT number >> ? FROM lessons WHERE digest = ?)",
                    (AGENT_BITS, digest),
                )


# --- rows --------------------------------------------------------------------------------------------------


class _Document(NamedTuple):
    """A row of `documents`."""

    number: int
    id: str
    changed_ns: int
    size: int
    digest: bytes
    problem: str


class _Row(NamedTuple):
    """A row of `lessons` without its number, and its row of `words`."""

    status: str
    kind: str
    written: int
    task_type: str
    tools: str
    confidence: float
    length: int
    content: str
    meaning: str
    digest: bytes
    searched: str


def _row_of(lesson: Lesson, redactor: Redactor) -> _Row | None:
    """The row of a lesson; None if it is not in use, or contains what no lesson may contain."""
    if lesson.status not in SEARCHED or violation_in(lesson):
        return None
    texts = [lesson.task, lesson.summary, lesson.error, lesson.task_type]
    texts += [*lesson.tools, *lesson.content.texts.values(), lesson.title]
    # Most lessons are clean: one pass over all texts is faster than one for each.
    if not redactor.is_clean("\n".join(texts)):
        texts = redactor.redact_json(texts)  # a name in one text is withheld in all texts
        if not redactor.is_clean("\n".join(texts)):  # a secret that is split between two texts
            texts = [redactor.redact("\n".join(texts)).text, *[""] * (len(texts) - 1)]
    task, summary, error, task_type, *rest = texts
    tools, content = rest[: len(lesson.tools)], rest[len(lesson.tools) : -1]
    searched = "\n".join(filter(None, texts))
    meaning = "\n".join(filter(None, [task or summary, error, *content]))[:LONGEST_MEANING]
    return _Row(
        status=lesson.status,
        kind=lesson.kind,
        written=lesson.recency,
        task_type=normalized(task_type),
        tools="\n".join(sorted(map(normalized, tools))),
        confidence=lesson.confidence,
        length=len(searched.split()),
        content="\n".join(content),
        meaning=meaning,
        digest=_digest_of(meaning),
        searched=searchable(searched),
    )


def _write(
    connection: Connection,
    agent: int,
    indexed: Mapping[str, _Document],
    read: Sequence[tuple[_Document, _Row | None]],
    removed: Sequence[_Document],
) -> None:
    numbers = count(max((each.number for each in indexed.values()), default=agent << AGENT_BITS) + 1)
    is_changed = bool(removed)
    for document in removed:
        _delete(connection, document.number)
    for document, row in read:
        before = indexed.get(document.id)
        if before is not None and (before.digest, before.problem) == (document.digest, document.problem):
            connection.execute(
                "UPDATE documents SET changed_ns = ?, size = ? WHERE number = ?",
                (document.changed_ns, document.size, before.number),
            )
            continue
        is_changed = True
        if before is not None:
            _delete(connection, before.number)
        number = next(numbers) if before is None else before.number
        connection.execute("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)", (number, *document[1:]))
        if row is not None:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO lessons VALUES ({marks})", (number, *row[:-1]))  # noqa: S608 (only marks)
            connection.execute("INSERT INTO words (rowid, searched) VALUES (?, ?)", (number, row.searched))
    if is_changed:
        connection.execute("UPDATE agents SET revision = randomblob(8) WHERE agent = ?", (agent,))


def _delete(connection: Connection, number: int) -> None:
    connection.execute("DELETE FROM words WHERE rowid = ?", (number,))
    connection.execute("DELETE FROM lessons WHERE number = ?", (number,))
    connection.execute("DELETE FROM documents WHERE number = ?", (number,))


def _numbers(agent: int) -> tuple[int, int]:
    """The lowest and the highest number that a document of an agent can have."""
    return agent << AGENT_BITS, (agent + 1 << AGENT_BITS) - 1


def _settled(changed_ns: int) -> int:
    """A modification time; -1 if it is so recent that another change may leave it unchanged."""
    return -1 if time.time_ns() - changed_ns < YOUNG_NS else changed_ns


def _digest_of(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


# --- the file ----------------------------------------------------------------------------------------------

# A write-ahead log would be deleted by a process that closes a replaced file of the same name.
_SETTINGS = "PRAGMA synchronous = NORMAL; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
_BLAMELESS = frozenset(f"SQLITE_{name}" for name in ("BUSY", "LOCKED", "FULL", "IOERR", "READONLY", "NOMEM"))
"""Errors that a new file would not fix."""


class _IndexFile:
    """The SQLite file in the folder of an index, replaced if it is unusable.

    Each use opens it, so that no replaced file stays open, and no process inherits a connection. It is
    written and replaced only under the lock, so that nothing is written to a replaced file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / FILE
        self._memory: Connection | None = None
        self._memory_lock = Lock()

    def __del__(self) -> None:
        if self._memory is not None:
            self._memory.close()

    async def use(self, work: Callable[[*Ts], T], *args: *Ts, in_memory: bool = False) -> T:
        """Run a function that opens the file, and repeat it if the file is missing or unusable.

        Raises `StoreError` if no file can be used; with `in_memory`, a warning is logged instead, and from
        then on the index is in the memory of this process.
        """
        try:
            return await asyncio.to_thread(self._attempt, ATTEMPTS, work, *args)
        except (sqlite3.Error, OSError) as error:
            problem = explained(error, self._path, WAIT)
            if not in_memory:
                raise problem from error
        if self._memory is None:
            logger.warning("Lessons are indexed in memory, which takes longer: %s", problem)
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            memory.executescript(SCHEMA)
            self._memory = memory
        return await self.use(work, *args)

    def _attempt(self, attempts: int, work: Callable[[*Ts], T], *args: *Ts) -> T:
        inode = _inode(self._path)
        try:
            return work(*args)
        except sqlite3.Error as error:
            is_blameless = primary_name(error) in _BLAMELESS and _inode(self._path) == inode
            if is_blameless or self._memory is not None or attempts == 1:
                raise
        self._replace(inode)
        return self._attempt(attempts - 1, work, *args)

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """Connect to the file. Raises `sqlite3.Error` if it is missing or unusable."""
        if self._memory is not None:
            with self._memory_lock:
                try:
                    yield self._memory
                finally:
                    self._memory.rollback()
            return
        check_regular(self._path)
        uri = f"{self._path.as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, timeout=WAIT, isolation_level=None, uri=True)) as connection:
            connection.executescript(_SETTINGS)
            yield connection

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """Connect to the file under the lock, which only a single process holds."""
        with nullcontext() if self._memory else self._lock(), self.reading() as connection:
            yield connection

    @contextmanager
    def _lock(self) -> Generator[None]:
        make_folder(self._folder)
        lock = FileLock(self._folder / "lock", WAIT)
        try:
            with lock:
                yield
        finally:
            lock.close()

    def _replace(self, inode: int) -> None:
        """Replace the file with an inode by an empty file, unless another process has done so."""
        new, *left_over = (
            self._path.with_name(f"{self._path.name}{suffix}")
            for suffix in (".new", ".new-journal", "-journal")
        )
        with self._lock():
            if _inode(self._path) != inode:
                return
            older = (path for path in self._folder.glob("lessons-*.db*") if path.name < FILE)
            for path in (new, *left_over, *older):
                path.unlink(missing_ok=True)
            make_file(new)
            with closing(sqlite3.connect(new, isolation_level=None)) as connection:
                connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            new.replace(self._path)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


# --- embedding in the background ---------------------------------------------------------------------------

EMBEDDED_LATER = 32
"""Lessons embedded in the background after a lesson was learned."""
EMBEDDED_FIRST = 8
"""Lessons embedded before a search, if an event loop ended too early."""


class Backlog:
    """Embed the newest lessons without a vector in the background.

    If the event loop ends too early, the next search catches up, in this process or another. A failure is
    logged, and these lessons are searched by full text until another lesson is learned.
    """

    def __init__(self, index: LessonIndex, documents: Documents, agent: str) -> None:
        self._index = index
        self._documents = documents
        self._folder = folder_name(agent)
        self._state: int | None = None  # of the agent's documents when embedding last began
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start embedding, or have the running task check again."""
        self._state = None
        if not self._is_running():
            # A fresh context, since this is not part of a run or its steps.
            self._task = asyncio.create_task(self._work_off(EMBEDDED_LATER), context=Context())

    async def catch_up(self, agent: str | None) -> None:
        """Embed a few lessons of an agent, or of all agents, unless the task is running.

        Lessons that an earlier process left, or that people or other machines have added, are noticed.
        """
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
        while (state := await asyncio.to_thread(self._documents.state, self._folder)) != self._state:
            self._state = state
            try:
                await self._index.fill(most, agent)
            except asyncio.CancelledError:
                self._state = None
                raise
            except Exception as error:  # noqa: BLE001 (an embedder may raise anything, and no caller awaits this)
                logger.warning("New lessons are found by full text only for now: %s", error)
