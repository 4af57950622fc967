"""LessonIndex: finds lessons; made of their files, and made again whenever it is missing or damaged."""

from __future__ import annotations

import sqlite3
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from redraft.lessons.embedding import Embedding
from redraft.lessons.folder import REFLECTIONS, agents_in
from redraft.lessons.index_file import WAIT, IndexFile, lock_of
from redraft.lessons.index_scan import PLACES, Refreshed, Scan, modified, settled, transaction
from redraft.lessons.index_search import Search, StaleError
from redraft.lessons.names import folder_name
from redraft.lessons.shelf import AgentRow, part_of, unembedded
from redraft.lessons.vectors import packed, signs_of
from redraft.redact.environment import EVERY_CATEGORY, redactor_of_environment
from redraft.redact.log import logger
from redraft.stores.sqlite_faults import explained
from redraft.stores.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from sqlite3 import Connection

    from redraft.lessons.query import Found, Query
    from redraft.models.embed import NamedEmbedder
    from redraft.redact.redactor import Redactor
    from redraft.stores.base import Store

T = TypeVar("T")
FOLDER = ".index"
EMBEDDED = 32
"""Lessons that are embedded and written down together."""
TRIES = 3
"""Searches until a file that changes all the time is given up."""


class LessonIndex:
    """Find lessons by task type, tool, words and meaning, in what their files say.

    `path` is the folder of all agents' lessons (`memory`). The index lies in `.index` in it, for its owner
    only and not for git, and is always local, whatever store a project has: it is made of files that are
    local. `shared` is a store in which machines share vectors. The rules:

    - The files are the truth. A search looks at the times of the agents' folders, and picks up what was
      added, replaced or deleted there, or moved to the archive; what was edited in place, or in the archive,
      is noticed when it is found, and by `refresh`, which looks at every file's time and size. No file is
      ever changed.
    - A missing or damaged index, and one of another version, is made anew by whoever needs it; meanwhile,
      other processes wait.
    - What is written into it went through the redactor first.
    - Vectors belong to the `embedder` of their name, and to the text they were made of: they outlive a
      rebuild. `fill` makes those that are missing, which takes long. Until then, and without an embedder, the
      full text finds lessons.
    - Only `active` lessons are found, archived ones, too. Nearly equal ones count once.

    Serves all tasks, threads and event loops of a process; any number of processes may use it at once. Raises
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
        self._folder = self._path / FOLDER
        self._embedding = Embedding(embedder, shared)
        self._name = self._embedding.name
        self._redactor = redactor
        self._search = Search(self._path, self._name)
        self._remembered: Connection | None = None
        self._lock = lock_of(self._folder)
        self._worker = Worker("redraft-lessons", partial(IndexFile, self._folder))
        self._listed = -1
        self._rows: dict[str, tuple[AgentRow, int]] = {}
        self._version: tuple[int, int] | None = None

    async def search(self, query: Query) -> list[Found]:
        """Return the `k` most relevant lessons, best first; fewer where no more are relevant.

        Where the embedder fails, the full text alone is searched, and a warning logged.
        """
        vector = await self._embedding.of_question(query.text)
        return await self._do(partial(self._searched, query, vector))

    async def refresh(self) -> Refreshed:
        """Look at every file, and say what was found since the last time, and which files are broken."""
        return await self._do(self._refreshed)

    async def rebuild(self) -> Refreshed:
        """Read every file again, and sweep the shared vectors that have no lesson any more."""
        found, digests = await self._do(self._rebuilt)
        if swept := await self._embedding.sweep(digests):
            logger.info("%d shared vectors of texts that no lesson has any more were deleted.", swept)
        return found

    async def fill(self, most: int | None = None, agent: str | None = None) -> int:
        """Embed texts of lessons that have no vector yet, of an agent or of all; return how many that were.

        They are at most `most`. A vector that is shared is taken as it is. It picks up what a search would.
        The agents whose folders changed last come first, and of an agent the newest lessons. What is done
        stays done if it is cancelled. Raises what the embedder raises.
        """
        done = 0
        folder = None if agent is None else folder_name(agent)
        waiting = await self._do(partial(self._without_vector, most, folder)) if self._name else []
        while done < len(waiting):
            texts = await self._do(partial(self._meanings, waiting[done : done + EMBEDDED]))
            await self._do(partial(self._keep, await self._embedding.of_texts(texts)))
            done += EMBEDDED
        return len(waiting)

    async def aclose(self) -> None:
        """Let go of the index; the next use opens it again."""
        await self._worker.stop()

    async def _do(self, work: Callable[[Connection], T]) -> T:
        try:
            return await self._worker.do(work)
        except (sqlite3.Error, OSError) as error:
            raise explained(error, self._folder / "lessons.db", WAIT) from error

    # What follows runs in the worker's thread.

    def _searched(self, query: Query, vector: list[float] | None, connection: Connection) -> list[Found]:
        search = self._memory(connection)
        if vector is not None:
            self._only_dimension(connection, len(vector))
        for _ in range(TRIES):
            folder = None if query.agent is None else folder_name(query.agent)
            agents = self._agents(connection, folder)
            try:
                if folder is None:
                    return search.of_all(connection, query, vector, agents.values())
                if folder not in agents:
                    return []
                return search.of_agent(connection, query, vector, agents[folder])
            except StaleError as stale:
                with self._lock.held():
                    self._scan(connection).agent(stale.agent, trusting=False)
        return []

    def _refreshed(self, connection: Connection) -> Refreshed:
        self._memory(connection)
        with self._lock.held():
            return self._scan(connection).all()

    def _rebuilt(self, connection: Connection) -> tuple[Refreshed, set[bytes]]:
        """Return what was found, and the digests of all texts."""
        self._memory(connection)
        with self._lock.held():
            with transaction(connection):
                connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
                connection.execute("DELETE FROM texts")
                connection.execute("DELETE FROM lessons")
                connection.execute("UPDATE agents SET seen = 0, revision = revision + 1, active = 0")
            found = self._scan(connection).all()
            connection.execute("DELETE FROM vectors WHERE digest NOT IN (SELECT digest FROM lessons)")
            return found, {digest for (digest,) in connection.execute("SELECT digest FROM lessons")}

    def _agents(self, connection: Connection, folder: str | None) -> dict[str, AgentRow]:
        """Return what is known of the agents, or of one, once their folders have been looked at."""
        asked = self._known(connection)
        if folder is not None:
            asked = {folder: asked[folder]} if folder in asked else {}
        folders = f"{self._path / REFLECTIONS}/"
        stale = [name for name, (_, seen) in asked.items() if modified(folders + name) != seen]
        if folder is not None:
            stale += [folder] if not asked and (self._path / REFLECTIONS / folder).is_dir() else []
        elif modified(self._path / REFLECTIONS) != self._listed:
            listed = settled(self._path / REFLECTIONS)
            stale += [name for name in agents_in(self._path) if name not in asked]
            self._listed = listed
        if stale:
            with self._lock.held():
                self._scan(connection).agents(stale)
            asked = self._known(connection)
        return {name: row for name, (row, _) in asked.items() if folder in {None, name}}

    def _known(self, connection: Connection) -> dict[str, tuple[AgentRow, int]]:
        """Return what the index holds of the agents, and when their folders were changed when it was made."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()  # tells what others have written
        version = version, connection.total_changes
        if version != self._version:
            rows = connection.execute("SELECT folder, place, revision, active, seen FROM agents")
            self._rows = {name: (AgentRow(*row), seen) for name, *row, seen in rows}
            self._version = version
        return self._rows

    def _memory(self, connection: Connection) -> Search:
        """Return what is remembered of this very database."""
        if self._remembered is not connection:
            self._remembered, self._search = connection, Search(self._path, self._name)
            self._listed, self._version = -1, None
            self._lock.close()  # the folder may be another one
        return self._search

    def _scan(self, connection: Connection) -> Scan:
        if self._redactor is None:
            self._redactor = redactor_of_environment(also=EVERY_CATEGORY)
        return Scan(connection, self._path, self._redactor)

    def _without_vector(self, most: int | None, folder: str | None, connection: Connection) -> list[int]:
        """Return a lesson for each text that has no vector, at most so many."""
        self._memory(connection)
        self._agents(connection, folder)
        # An agent whose shelf holds all its lessons has been looked at since its last change.
        agents = connection.execute(
            "SELECT agents.place, agents.revision, active FROM agents LEFT JOIN shelves ON "
            "shelves.place = agents.place AND embedder = ? AND shelves.revision = agents.revision "
            "WHERE (numbers IS NULL OR length(numbers) < 8 * active) AND folder = coalesce(?, folder) "
            "ORDER BY seen < 0 DESC, seen DESC",
            (self._name, folder),
        ).fetchall()
        waiting: dict[bytes, int] = {}
        for agent in map(AgentRow._make, agents):
            missing = unembedded(connection, self._name, agent)
            if not missing:
                part_of(connection, self._name, agent, with_vectors=False)
            waiting |= missing
            if most is not None and len(waiting) >= most:
                break
        return list(waiting.values())[:most]

    def _meanings(self, numbers: list[int], connection: Connection) -> dict[bytes, str]:
        marks = ", ".join(map(str, numbers))
        return dict(
            connection.execute(
                f"SELECT digest, meaning FROM lessons JOIN texts USING (number) WHERE number IN ({marks})"  # noqa: S608 (numbers)
            )
        )

    def _keep(self, vectors: dict[bytes, Sequence[float]], connection: Connection) -> None:
        with transaction(connection):
            for digest, vector in vectors.items():
                row = packed(vector)
                connection.execute(
                    "INSERT OR IGNORE INTO vectors (embedder, digest, vector, signs) VALUES (?, ?, ?, ?)",
                    (self._name, digest, row, signs_of(row)),
                )
            connection.executemany(
                "UPDATE agents SET revision = revision + 1 "
                "WHERE place IN (SELECT number >> ? FROM lessons WHERE digest = ?)",
                [(PLACES, digest) for digest in vectors],
            )

    def _only_dimension(self, connection: Connection, dimension: int) -> None:
        """Throw away vectors of another dimension: what has the name of the embedder is another one now."""
        row = connection.execute(
            "SELECT length(vector) FROM vectors WHERE embedder = ? LIMIT 1", (self._name,)
        ).fetchone()
        if row is not None and row[0] != dimension:
            with transaction(connection):
                connection.execute("DELETE FROM vectors WHERE embedder = ?", (self._name,))
                connection.execute("UPDATE agents SET revision = revision + 1")
