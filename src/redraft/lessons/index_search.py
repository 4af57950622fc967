"""Search: the lessons that are most relevant to a query, out of an index and its files."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache, lru_cache
from heapq import nlargest
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from redraft.core.errors import StoreError
from redraft.lessons.folder import LessonFolder
from redraft.lessons.fulltext import FullText, folded, names_in
from redraft.lessons.index_row import digest_of, same
from redraft.lessons.markdown import parse
from redraft.lessons.query import Found
from redraft.lessons.ranking import NEAR, Candidate, Ranking, reason_of, without_alike
from redraft.lessons.shelf import Shelf, Shelves, listed, placed, vector_of_lesson

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


class _Kept(NamedTuple):
    """What the index holds of a lesson that was chosen."""

    id: str
    file_hash: bytes
    searched: str


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
        self._words = FullText()
        self._shelf_of: OrderedDict[int, Shelf] = OrderedDict()
        self._shelves = Shelves(embedder)
        self._folders: dict[str, LessonFolder] = {}

    def of_agent(
        self, connection: Connection, query: Query, vector: Sequence[float] | None, agent: AgentRow
    ) -> list[Found]:
        """Return an agent's lessons that are relevant, best first."""
        shelf = self._shelf(connection, agent)
        ranking = Ranking(has_names=bool(names_in(query.text)), embedded=vector is not None)
        texts: Mapping[int, float] = {}
        if ranking.has_names or vector is None or not shelf.is_embedded:
            scores = shelf.words.scores(connection, query.text, len(shelf.lessons))
            texts = _shares(scores, shelf.lessons)
        typed = shelf.of_type(same(query.task_type))
        tools: dict[int, tuple[str, ...]] = {}
        for tool in dict.fromkeys(query.tools):
            for number in shelf.with_tool(same(tool)) | shelf.words.having(connection, tool):
                tools[number] = (*tools.get(number, ()), tool)

        def groups() -> Iterator[tuple[set[int], Mapping[int, float]]]:
            for group in (typed & tools.keys(), typed - tools.keys(), tools.keys() - typed):
                yield group, shelf.cosines(vector, group)
            others = shelf.lessons.keys() - typed - tools.keys()
            similar = shelf.cosines(vector, others)
            scores = {number: similar.get(number, 0.0) + texts.get(number, 0.0) for number in others}
            nearest = set(nlargest(NEAREST, scores, key=scores.__getitem__))
            yield nearest, similar
            yield others - nearest, similar

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
            for group, similar in groups()
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
            scores = self._words.scores(connection, query.text, count)
        found: list[Found] = []
        for depth, most in ((DEPTH, NEAREST), (len(self._shelves), FLOOD)):
            named = self._placed(connection, nlargest(most, scores, key=scores.__getitem__))
            texts = _shares(scores, named)
            near = {} if vector is None else self._shelves.nearest(connection, vector, depth, most)
            similar = near
            if vector is not None and (missing := named.keys() - near.keys()):
                similar = near | self._shelves.cosines(connection, vector, missing)
            lessons = named | self._placed(connection, near.keys() - named.keys())
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

    def _placed(self, connection: Connection, numbers: Collection[int]) -> dict[int, Placed]:
        """Return the active ones of some lessons, by their numbers: from memory, as far as they are there."""
        found = self._shelves.placed(numbers)
        missing = [number for number in numbers if number not in found]
        return found | placed(connection, missing) if missing else found

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

        def said_by(some: Sequence[Candidate]) -> list[str]:
            texts = _said(connection, [one.number for one in some])
            return [texts.get(one.number, "") for one in some]

        @cache
        def vector_of(one: Candidate) -> bytes:
            return vector_of_lesson(connection, self._embedder, one.number)

        chosen = list(islice(without_alike(ordered, said_by, vector_of, 2 * query.k), query.k))
        rows = connection.execute(
            "SELECT number, lessons.id, file_hash, searched FROM json_each(?) "
            "CROSS JOIN lessons ON number = value CROSS JOIN texts USING (number)",
            (listed(one.number for one in chosen),),
        )
        kept = {number: _Kept(*rest) for number, *rest in rows}
        names = names_in(query.text)
        return [
            Found(
                self._read(kept[one.number]),
                ranking.score(one),
                reason_of(one, query.task_type, _shared(names, kept[one.number].searched)),
            )
            for one in chosen
        ]

    def _read(self, kept: _Kept) -> Lesson:
        agent = kept.id.partition("/")[0]
        folder = self._folders.get(agent) or self._folders.setdefault(agent, LessonFolder(self._path, agent))
        try:
            entry = folder.entry_of(kept.id)
            text = folder.text_of(entry)
            if digest_of(text) != kept.file_hash:
                raise StaleError(agent)
            return _parsed(text, kept.id, folder.agent, entry.day)
        except StoreError as error:
            raise StaleError(agent) from error


def _said(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    return dict(
        connection.execute(
            "SELECT number, said FROM json_each(?) CROSS JOIN texts ON number = value", (listed(numbers),)
        ).fetchall()
    )


def _shared(names: Sequence[str], searched: str) -> list[str]:
    words = set(searched.lower().split())
    return [name for name in names if words.intersection(folded(name)[:1])]


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
