"""Search: the lessons that are most relevant to a query, out of an index and its files."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from heapq import nlargest
from itertools import chain, islice
from typing import TYPE_CHECKING

from redraft.core.errors import StoreError
from redraft.lessons.folder import LessonFolder
from redraft.lessons.fulltext import FullText, folded, names_in
from redraft.lessons.index_row import digest_of, same
from redraft.lessons.index_scan import numbers_of
from redraft.lessons.markdown import parse
from redraft.lessons.query import Found
from redraft.lessons.ranking import NEAR, Candidate, Ranking, Said, reason_of, without_alike
from redraft.lessons.shelf import Shelf, Shelves, placed, vectors_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from sqlite3 import Connection

    from redraft.lessons.lesson import Lesson
    from redraft.lessons.query import Query
    from redraft.lessons.shelf import AgentRow, Placed

DEPTH = 1_000
"""Lessons of all agents whose vectors are compared exactly: those whose signs are the nearest."""
NEAREST = 50
"""Lessons that are ranked because of their meaning, and because of their words."""
FLOOD = 5_000
"""Likewise where those few are all alike."""
SHELVES = 32
"""Agents whose vectors stay in memory."""


_parsed = lru_cache(512)(parse)


class StaleError(Exception):
    """Say that a file is not what the index holds of it."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.agent = agent


class Search:
    """Answer queries, and remember what they need; for one thread.

    One agent's lessons are compared exactly, all of them. Those of all agents are first narrowed down to the
    1,000 whose vectors' signs are nearest, which are then compared exactly: of 100,000, these hold more than
    99 % of the three nearest (`benchmarks/lessons_ranking.py`).
    """

    def __init__(self, path: Path, embedder: str) -> None:
        self._path = path
        self._embedder = embedder
        self._fulltext = FullText()
        self._shelf_of: OrderedDict[int, Shelf] = OrderedDict()
        self._shelves = Shelves(embedder)

    def of_agent(
        self, connection: Connection, query: Query, vector: Sequence[float] | None, agent: AgentRow
    ) -> list[Found]:
        """Return an agent's lessons that are relevant, best first."""
        shelf = self._shelf(connection, agent)
        among = numbers_of(agent.place)
        similar = shelf.similarities(vector)
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        texts: Mapping[int, float] = {}
        if ranking.has_names or len(similar) < len(shelf.lessons):
            texts = _shares(
                self._fulltext.scores(connection, query.text, among, len(shelf.lessons)), shelf.lessons
            )
        typed = shelf.of_type(same(query.task_type))
        tools: dict[int, tuple[str, ...]] = {}
        for tool in dict.fromkeys(query.tools):
            for number in shelf.with_tool(same(tool)) | self._fulltext.having(connection, tool, among):
                tools[number] = (*tools.get(number, ()), tool)

        def groups() -> Iterator[Iterable[int]]:
            yield typed & tools.keys()
            yield typed - tools.keys()
            yield tools.keys() - typed
            scores = {number: similar.get(number, 0.0) + texts.get(number, 0.0) for number in shelf.lessons}
            nearest = set(nlargest(NEAREST, scores.keys() - typed - tools.keys(), key=scores.__getitem__))
            yield nearest
            yield scores.keys() - typed - tools.keys() - nearest

        # The later groups are looked at only if the earlier ones are not enough.
        ordered = chain.from_iterable(
            ranking.ordered(
                Candidate(
                    number,
                    shelf.lessons[number].day,
                    number in typed,
                    tools.get(number, ()),
                    similar.get(number),
                    texts.get(number, 0.0),
                )
                for number in group
                if query.kinds is None or shelf.lessons[number].kind in query.kinds
            )
            for group in groups()
        )
        return self._found(connection, query, ranking, ordered)

    def of_all(
        self,
        connection: Connection,
        query: Query,
        vector: Sequence[float] | None,
        agents: Collection[AgentRow],
    ) -> list[Found]:
        """Return the relevant lessons of all agents, best first."""
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        count = sum(agent.active for agent in agents)
        if vector is not None:
            self._shelves.update(connection, agents)
        scores: dict[int, float] = {}
        if ranking.has_names or vector is None or len(self._shelves) < count:
            scores = self._fulltext.scores(connection, query.text, None, count)
        found: list[Found] = []
        for depth, most in ((DEPTH, NEAREST), (len(self._shelves), FLOOD)):
            named = _by_number(connection, nlargest(most, scores, key=scores.__getitem__))
            texts = _shares(scores, named)
            near = {} if vector is None else self._shelves.nearest(connection, vector, depth, most)
            similar = near
            if vector is not None and (missing := named.keys() - near.keys()):
                similar = near | self._shelves.cosines(connection, vector, missing)
            lessons = named | _by_number(connection, list(near.keys() - named.keys()))
            candidates = (
                Candidate(number, one.day, similarity=similar.get(number), text=texts.get(number, 0.0))
                for number, one in lessons.items()
                if query.kinds is None or one.kind in query.kinds
            )
            found = self._found(connection, query, ranking, ranking.ordered(candidates))
            more_near = len(near) == most and min(near.values()) >= NEAR
            more_named = vector is None and len(named) == most
            if len(found) >= query.k or not (more_near or more_named):
                break
        return found

    def _shelf(self, connection: Connection, agent: AgentRow) -> Shelf:
        shelf = self._shelf_of.get(agent.place)
        if shelf is None or shelf.revision != agent.revision:
            shelf = self._shelf_of[agent.place] = Shelf(connection, agent, self._embedder)
        self._shelf_of.move_to_end(agent.place)
        if len(self._shelf_of) > SHELVES:
            self._shelf_of.popitem(last=False)
        return shelf

    def _found(
        self, connection: Connection, query: Query, ranking: Ranking, ordered: Iterable[Candidate]
    ) -> list[Found]:
        """Return the best as their files have them now; raises `StaleError` for one that has changed."""

        def said_by(some: Sequence[Candidate]) -> list[Said]:
            texts = _texts(connection, "said", some)
            vectors = vectors_of(connection, self._embedder, [one.number for one in some])
            return [Said(texts.get(one.number, ""), vectors.get(one.number, b"")) for one in some]

        chosen = list(islice(without_alike(ordered, said_by), query.k))
        searched = _texts(connection, "searched", chosen)
        names = names_in(query.text)
        return [
            Found(
                self._read(connection, one.number),
                ranking.score(one),
                reason_of(one, query.task_type, _shared(names, searched.get(one.number, ""))),
            )
            for one in chosen
        ]

    def _read(self, connection: Connection, number: int) -> Lesson:
        found, file_hash = connection.execute(
            "SELECT id, file_hash FROM lessons WHERE number = ?", (number,)
        ).fetchone()
        folder = LessonFolder(self._path, found.partition("/")[0])
        try:
            entry = folder.entry_of(found)
            text = folder.text_of(entry)
            if digest_of(text) != file_hash:
                raise StaleError(folder.name)
            return _parsed(text, found, folder.agent, entry.day)
        except StoreError as error:
            raise StaleError(folder.name) from error


def _texts(connection: Connection, column: str, some: Sequence[Candidate]) -> dict[int, str]:
    marks = ", ".join(str(one.number) for one in some)
    return dict(connection.execute(f"SELECT number, {column} FROM texts WHERE number IN ({marks})"))  # noqa: S608 (ours)


def _shared(names: Sequence[str], searched: str) -> list[str]:
    words = set(searched.lower().split())
    return [name for name in names if words.intersection(folded(name)[:1])]


def _by_number(connection: Connection, numbers: Sequence[int]) -> dict[int, Placed]:
    return {one.number: one for one in placed(connection, numbers)}


def _shares(scores: Mapping[int, float], lessons: Mapping[int, Placed]) -> dict[int, float]:
    """Return the scores of lessons as shares of the best one; a long lesson has more words by chance.

    The fourth root, the name's weight of 2 and `BOOST` do best on recorded reflections.
    """
    weighed = {
        number: score / lessons[number].length ** 0.25
        for number, score in scores.items()
        if number in lessons
    }
    best = max(weighed.values(), default=0.0)
    return {number: score / best for number, score in weighed.items()} if best > 0 else {}
