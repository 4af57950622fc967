"""Shelf and Shelves: what a process remembers of the lessons of an agent, and of all agents."""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.content import KINDS
from redraft.lessons.fulltext import FullText
from redraft.lessons.index_scan import numbers_of
from redraft.lessons.vectors import Signs, Vectors, packed, signs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from sqlite3 import Connection

_RANKED = "number, kind, day, length"
_KINDS = tuple(KINDS)
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
    length: int


class Part(NamedTuple):
    """Hold the packed vectors of an agent's active lessons, one after the other, and the lessons' numbers.

    `rows` are the numbers of the vectors themselves, by which a few are read without the others. `ranked` is
    what else a lesson is ranked by, three numbers each: the kind's place, the day and the length.
    """

    revision: int
    numbers: bytes
    rows: bytes
    ranked: bytes
    signs: bytes
    vectors: bytes


def placed(connection: Connection, numbers: Iterable[int]) -> dict[int, Placed]:
    """Return the active ones of some lessons, by their numbers."""
    rows = connection.execute(
        f"SELECT {_RANKED} FROM json_each(?) CROSS JOIN lessons ON number = value WHERE status = 'active'",  # noqa: S608 (columns)
        (listed(numbers),),
    )
    return {row[0]: Placed(*row) for row in rows}


def listed(numbers: Iterable[int]) -> str:
    """Return numbers as what `json_each` makes a table of: a statement without them in it is read once."""
    return f"[{', '.join(map(str, numbers))}]"


def part_of(connection: Connection, embedder: str, agent: AgentRow, *, with_vectors: bool = True) -> Part:
    """Return the vectors of an agent's lessons, put together anew unless they are since its last change."""
    vectors = "vectors" if with_vectors else "x''"
    row = connection.execute(
        f"SELECT revision, numbers, rows, ranked, signs, {vectors} FROM shelves "  # noqa: S608 (a column)
        "WHERE place = ? AND embedder = ?",
        (agent.place, embedder),
    ).fetchone()
    if row is not None and row[0] == agent.revision:
        return Part(*row)
    rows = connection.execute(
        f"SELECT lessons.number, vectors.number, kind, day, length, signs, vector {_WITH_VECTORS} "
        "WHERE lessons.number BETWEEN ? AND ? AND status = 'active'",
        (embedder, *numbers_of(agent.place)),
    ).fetchall()
    part = Part(
        agent.revision,
        array("q", [number for number, *_ in rows]).tobytes(),
        array("q", [vector for _, vector, *_ in rows]).tobytes(),
        array("i", chain.from_iterable((_KINDS.index(one[2]), *one[3:5]) for one in rows)).tobytes(),
        b"".join(signs for *_, signs, _ in rows),
        b"".join(vector for *_, vector in rows),
    )
    connection.execute(
        "INSERT OR REPLACE INTO shelves VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (agent.place, embedder, *part)
    )
    return part


def vector_of_lesson(connection: Connection, embedder: str, number: int) -> bytes:
    """Return the packed vector of a lesson; empty where it has none."""
    row = connection.execute(
        f"SELECT vector {_WITH_VECTORS} WHERE lessons.number = ?", (embedder, number)
    ).fetchone()
    return b"" if row is None else row[0]


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
        self.words = FullText(numbers_of(agent.place))
        self.lessons: dict[int, Placed] = {}
        self._types: dict[str, set[int]] = {}
        self._tools: dict[str, set[int]] = {}
        rows = connection.execute(
            f"SELECT task_type, tools, {_RANKED} FROM lessons "  # noqa: S608 (columns)
            "WHERE number BETWEEN ? AND ? AND status = 'active'",
            numbers_of(agent.place),
        )
        for task_type, tools, *ranked in rows:
            one = Placed(*ranked)
            self.lessons[one.number] = one
            self._types.setdefault(task_type, set()).add(one.number)
            for tool in json.loads(tools):
                self._tools.setdefault(tool, set()).add(one.number)
        part = part_of(connection, embedder, agent) if embedder else Part(0, *[b""] * 5)
        numbers = array("q", part.numbers)
        self._places = {number: place for place, number in enumerate(numbers)}
        self._vectors = Vectors([part.vectors], len(part.vectors) // len(numbers)) if numbers else None

    @property
    def is_embedded(self) -> bool:
        """Whether each lesson has a vector."""
        return len(self._places) == len(self.lessons)

    def of_type(self, task_type: str) -> set[int]:
        """Return the lessons about a type of task."""
        return self._types.get(task_type, set()) if task_type else set()

    def with_tool(self, tool: str) -> set[int]:
        """Return the lessons that name a tool as theirs."""
        return self._tools.get(tool, set())

    def cosines(self, question: Sequence[float] | None, numbers: Collection[int]) -> dict[int, float]:
        """Return the cosine of each of some lessons that has a vector, by its number."""
        if question is None or self._vectors is None:
            return {}
        having = [number for number in numbers if number in self._places]
        places = [self._places[number] for number in having]
        return dict(zip(having, self._vectors.cosines(question, places), strict=True))


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
        self._ranked = array("i")
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
        self._ranked = array("i", b"".join(part.ranked for part in filled))
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

    def placed(self, numbers: Iterable[int]) -> dict[int, Placed]:
        """Return those of some lessons that have vectors, by their numbers."""
        found: dict[int, Placed] = {}
        for number in numbers:
            if (place := self._place(number)) is not None:
                kind, day, length = self._ranked[3 * place : 3 * place + 3]
                found[number] = Placed(number, _KINDS[kind], day, length)
        return found

    def _place(self, number: int) -> int | None:
        place = bisect_left(self._numbers, number)
        return place if place < len(self) and self._numbers[place] == number else None

    def _read(
        self, connection: Connection, question: Sequence[float], places: Sequence[int], most: int
    ) -> list[tuple[int, float]]:
        """Do what `Vectors.nearest` does, and read no more vectors than that takes."""
        found = dict(
            connection.execute(
                "SELECT number, vector FROM json_each(?) CROSS JOIN vectors ON number = value",
                (listed(self._rows[place] for place in places),),
            ).fetchall()
        )
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
