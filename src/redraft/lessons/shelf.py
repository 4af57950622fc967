"""Shelf and Shelves: what a process remembers of the lessons of an agent, and of all agents."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.index_scan import numbers_of
from redraft.lessons.vectors import Signs, Vectors, packed, signs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from sqlite3 import Connection

_COLUMNS = "number, kind, day, task_type, tools, length"
# A cross join keeps SQLite from going through all vectors of the embedder instead of a few lessons.
_WITH_VECTORS = "FROM lessons CROSS JOIN vectors ON embedder = ? AND vectors.digest = lessons.digest"


class AgentRow(NamedTuple):
    """Say where an agent's lessons are in the index, which change was the last, and how many are active."""

    place: int
    revision: int
    active: int


class Placed(NamedTuple):
    """Hold what an active lesson is ranked by."""

    number: int
    kind: str
    day: int
    task_type: str
    tools: str
    length: int


class Part(NamedTuple):
    """Hold the packed vectors of an agent's active lessons, one after the other, and the lessons' numbers.

    `rows` are the numbers of the vectors themselves, by which a few are read without the others.
    """

    revision: int
    numbers: bytes
    rows: bytes
    signs: bytes
    vectors: bytes


def placed(connection: Connection, numbers: Sequence[int]) -> list[Placed]:
    """Return the active ones of some lessons."""
    marks = ", ".join(map(str, numbers))
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM lessons WHERE number IN ({marks}) AND status = 'active'"  # noqa: S608 (numbers)
    )
    return [Placed(*row) for row in rows]


def part_of(connection: Connection, embedder: str, agent: AgentRow, *, with_vectors: bool = True) -> Part:
    """Return the vectors of an agent's lessons, put together anew unless they are since its last change."""
    vectors = "vectors" if with_vectors else "x''"
    row = connection.execute(
        f"SELECT revision, numbers, rows, signs, {vectors} FROM shelves WHERE place = ? AND embedder = ?",  # noqa: S608 (a column)
        (agent.place, embedder),
    ).fetchone()
    if row is not None and row[0] == agent.revision:
        return Part(*row)
    rows = connection.execute(
        f"SELECT lessons.number, vectors.number, signs, vector {_WITH_VECTORS} "
        "WHERE lessons.number BETWEEN ? AND ? AND status = 'active'",
        (embedder, *numbers_of(agent.place)),
    ).fetchall()
    part = Part(
        agent.revision,
        array("q", [number for number, *_ in rows]).tobytes(),
        array("q", [vector for _, vector, *_ in rows]).tobytes(),
        b"".join(signs for *_, signs, _ in rows),
        b"".join(vector for *_, vector in rows),
    )
    connection.execute(
        "INSERT OR REPLACE INTO shelves VALUES (?, ?, ?, ?, ?, ?, ?)", (agent.place, embedder, *part)
    )
    return part


def vectors_of(connection: Connection, embedder: str, numbers: Sequence[int]) -> dict[int, bytes]:
    """Return the packed vectors of some lessons, by the lessons' numbers."""
    marks = ", ".join(map(str, numbers))
    rows = connection.execute(
        f"SELECT lessons.number, vector {_WITH_VECTORS} WHERE lessons.number IN ({marks})",
        (embedder,),
    )
    return dict(rows.fetchall())


def unembedded(connection: Connection, embedder: str, agent: AgentRow) -> dict[bytes, int]:
    """Return a lesson for each text of an agent without a vector, by the text's digest, the newest first."""
    rows = connection.execute(
        "SELECT digest, number FROM lessons WHERE number BETWEEN ? AND ? AND status = 'active' "
        "AND NOT EXISTS (SELECT 1 FROM vectors WHERE embedder = ? AND vectors.digest = lessons.digest) "
        "ORDER BY day DESC",
        (*numbers_of(agent.place), embedder),
    )
    return dict(rows.fetchall())


class Shelf:
    """Hold the active lessons of one agent, with their vectors ready to be compared: exactly, all of them."""

    def __init__(self, connection: Connection, agent: AgentRow, embedder: str) -> None:
        self.revision = agent.revision
        rows = connection.execute(
            f"SELECT {_COLUMNS} FROM lessons WHERE number BETWEEN ? AND ? AND status = 'active'",  # noqa: S608 (no value in it)
            numbers_of(agent.place),
        )
        self.lessons = {row[0]: Placed(*row) for row in rows}
        self._types: dict[str, set[int]] = {}
        self._tools: dict[str, set[int]] = {}
        for one in self.lessons.values():
            self._types.setdefault(one.task_type, set()).add(one.number)
            for tool in json.loads(one.tools):
                self._tools.setdefault(tool, set()).add(one.number)
        part = part_of(connection, embedder, agent) if embedder else Part(0, b"", b"", b"", b"")
        self._numbers = array("q", part.numbers)
        self._vectors = _vectors([part], len(self._numbers))

    def of_type(self, task_type: str) -> set[int]:
        """Return the lessons about a type of task."""
        return self._types.get(task_type, set()) if task_type else set()

    def with_tool(self, tool: str) -> set[int]:
        """Return the lessons that name a tool as theirs."""
        return self._tools.get(tool, set())

    def similarities(self, question: Sequence[float] | None) -> dict[int, float]:
        """Return the cosine of each lesson that has a vector, by its number."""
        if question is None or self._vectors is None:
            return {}
        return dict(zip(self._numbers, self._vectors.cosines(question), strict=True))


class Shelves:
    """Hold the vectors of all agents' active lessons: 100,000 of 384 dimensions take 90 MB.

    Their signs are a small part of that. Only these are read for the first question, which is all that a
    process may ever ask; it is answered with the vectors of the lessons that the signs leave. What was read
    stays until the agent's lessons change.
    """

    def __init__(self, embedder: str) -> None:
        self._embedder = embedder
        self._agents: list[AgentRow] = []
        self._parts: dict[int, Part] = {}
        self._numbers = array("q")
        self._rows = array("q")
        self._signs: Signs | None = None
        self._vectors: Vectors | None = None
        self._was_asked = False

    def __len__(self) -> int:
        return len(self._numbers)

    def update(self, connection: Connection, agents: Iterable[AgentRow]) -> None:
        """Read what has changed since the last time."""
        agents = sorted(agents)  # by their places, so that the lessons' numbers rise
        if agents == self._agents:
            return
        parts: dict[int, Part] = {}
        for agent in agents:
            known = self._parts.get(agent.place)
            if known is None or known.revision != agent.revision:
                known = part_of(connection, self._embedder, agent, with_vectors=self._was_asked)
            parts[agent.place] = known
        self._agents, self._parts, self._vectors = agents, parts, None
        filled = [part for part in parts.values() if part.numbers]
        self._numbers = array("q", b"".join(part.numbers for part in filled))
        self._rows = array("q", b"".join(part.rows for part in filled))
        codes = [part.signs for part in filled]
        self._signs = Signs(codes, sum(map(len, codes)) // len(self._numbers)) if filled else None

    def nearest(
        self, connection: Connection, question: Sequence[float], depth: int, most: int
    ) -> dict[int, float]:
        """Return the cosines of the nearest lessons, at most so many, out of the `depth` nearest by signs."""
        if self._signs is None:
            return {}
        places = self._signs.nearest(signs_of(packed(question)), depth)
        if self._was_asked and self._vectors is None:
            self._vectors = self._loaded(connection)
        self._was_asked = True
        if self._vectors is None:
            found = self._read(connection, question, places, most)
        else:
            found = self._vectors.nearest(question, places, most)
        return {self._numbers[place]: cosine for place, cosine in found}

    def cosines(
        self, connection: Connection, question: Sequence[float], numbers: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosine of each of a few lessons that has a vector, by its number."""
        places = [place for number in numbers if (place := self._place(number)) is not None]
        if not places:
            return {}
        if self._vectors is None:
            found = self._read(connection, question, places, len(places))
        else:
            found = zip(places, self._vectors.cosines(question, places), strict=True)
        return {self._numbers[place]: cosine for place, cosine in found}

    def _place(self, number: int) -> int | None:
        place = bisect_left(self._numbers, number)
        return place if place < len(self) and self._numbers[place] == number else None

    def _read(
        self, connection: Connection, question: Sequence[float], places: Sequence[int], most: int
    ) -> list[tuple[int, float]]:
        """Do what `Vectors.nearest` does, and read no more vectors than that takes."""
        marks = ", ".join(str(self._rows[place]) for place in places)
        found = dict(connection.execute(f"SELECT number, vector FROM vectors WHERE number IN ({marks})"))  # noqa: S608 (numbers)
        still_there = [int(place) for place in places if self._rows[place] in found]
        vectors = Vectors([found[self._rows[place]] for place in still_there], len(question))
        nearest = vectors.nearest(question, range(len(still_there)), most)
        return [(still_there[at], cosine) for at, cosine in nearest]

    def _loaded(self, connection: Connection) -> Vectors | None:
        """Return the vectors of all; None where another process has just put others in their place."""
        for place, part in self._parts.items():
            if part.numbers and not part.vectors:
                row = connection.execute(
                    "SELECT vectors FROM shelves WHERE place = ? AND embedder = ? AND revision = ?",
                    (place, self._embedder, part.revision),
                ).fetchone()
                if row is None:
                    return None
                self._parts[place] = part._replace(vectors=row[0])
        blobs = [part.vectors for part in self._parts.values()]
        return Vectors(blobs, sum(map(len, blobs)) // len(self._numbers))


def _vectors(parts: Sequence[Part], count: int) -> Vectors | None:
    blobs = [part.vectors for part in parts]
    return Vectors(blobs, sum(map(len, blobs)) // count) if count else None
