"""Rank the lessons that are relevant to a query."""

from __future__ import annotations

from array import array
from collections import ChainMap, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from heapq import nlargest
from importlib import import_module
from itertools import chain, islice
from math import hypot, sqrt
from operator import mul
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from redraft._validation import check_count
from redraft._words import is_latin, overlap, words_in
from redraft.lessons.full_text import FullText, damping, names_in, spelled, tokens_of
from redraft.lessons.lesson import CONFIDENCE, KINDS, NEAR_DUPLICATE, LessonKind, Status
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

T = TypeVar("T")

SEARCHED: tuple[Status, ...] = ("active", "quarantined")
"""The statuses of searchable lessons; quarantined lessons are searched for trials."""
NEAREST, FLOOD = 50, 5_000
"""Lessons ranked by meaning, and by words: a few, or more if too many of these are near-duplicates."""
COMMON = 400
"""In a search of all agents, a word in more lessons than this is a stop word."""
COMMON_COUNT, COMMON_SHARE = 50, 0.4
"""In a search of one agent, a word in more lessons than both the count and the share is a stop word."""


@dataclass(frozen=True, slots=True)
class LessonQuery:
    """A search for the `k` lessons that are most relevant to a task.

    Of an agent's lessons, those about the same type of task come first, then those about its tools, then
    those that name a requirement, then the nearest in meaning.
    """

    task: str
    task_type: str = ""
    tools: tuple[str, ...] = ()
    """The tools that the task may use."""
    error: str = ""
    """The error that just happened."""
    agent: str | None = None
    """The agent whose lessons are searched; by default, those of all agents are searched by meaning."""
    k: int = 3
    kinds: Collection[LessonKind] | None = None
    status: Literal["active", "quarantined"] = "active"
    requirements: tuple[str, ...] = ()
    """The requirements of the run's criteria (`requirements_of`)."""
    now: datetime | None = None
    """A lesson that was written later, by a wrong clock, counts as written now."""
    untyped: bool = False
    """Whether lessons without a task type count as of the same type, and near-duplicates are all returned."""

    def __post_init__(self) -> None:
        check_count("k", self.k, 1)

    @property
    def text(self) -> str:
        """The text to search for: the task and the error, without invisible characters."""
        return without_invisible(f"{self.task}\n{self.error}").strip()


def normalized(name: str) -> str:
    """The name of a task type or a tool in the form in which names are compared."""
    return " ".join(without_invisible(name).casefold().split())


# --- a search ----------------------------------------------------------------------------------------------


class _Features(NamedTuple):
    """The features of a lesson that do not depend on the query."""

    id: str
    kind: str
    written: int
    confidence: float


class AgentLessons:
    """The lessons of an agent in memory, by status.

    `numbers` is the range of their numbers, `revision` the agent's revision in the index, and `dimension` the
    dimension of the vectors.
    """

    def __init__(
        self,
        connection: Connection,
        numbers: tuple[int, int],
        revision: bytes,
        embedder: str,
        dimension: int,
    ) -> None:
        self.revision, self.dimension = revision, dimension
        self.by_status = {status: _Lessons() for status in SEARCHED}
        rows = connection.execute(
            """
            SELECT number, status, vector, id, kind, written, confidence, task_type, tools, length
            FROM lessons JOIN documents USING (number) LEFT JOIN vectors
            ON embedder = ? AND vectors.digest = lessons.digest AND length(vector) = ?
            WHERE number BETWEEN ? AND ?
            """,
            (embedder, FLOAT_BYTES * dimension, *numbers),
        )
        for number, status, vector, *features, task_type, tools, length in rows:
            lessons = self.by_status[status]
            lessons.features[number] = _Features(*features)
            lessons.kinds.add(lessons.features[number].kind)
            lessons.dampings[number] = damping(length)
            lessons.of_type[task_type].add(number)
            for tool in tools.split("\n"):
                lessons.of_tool[tool].add(number)
            if vector is not None:
                lessons.vectors[number] = vector
        for lessons in self.by_status.values():
            lessons.matrix = _matrix_of(list(lessons.vectors.values()))
            lessons.vectors = dict(zip(lessons.vectors, lessons.matrix, strict=True))


@dataclass(slots=True)
class _Lessons:
    """Lessons of one status by number, with the numbers of each task type and tool."""

    features: dict[int, _Features] = field(default_factory=dict[int, _Features])
    dampings: dict[int, float] = field(default_factory=dict[int, float])
    of_type: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    of_tool: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    vectors: dict[int, Any] = field(default_factory=dict[int, Any])
    matrix: Any = ()
    """The vectors as rows."""
    kinds: set[str] = field(default_factory=set[str])

    def similarities(self, vector: Sequence[float] | None) -> dict[int, float]:
        """The cosine with a vector for each lesson that has one."""
        if vector is None or not self.vectors:
            return {}
        # Vectors have unit length, so their dot product is their cosine.
        if numpy() is None:
            cosines = [sum(map(mul, row, vector)) for row in self.matrix]
        else:
            # Not `@`: for so few rows, starting its threads takes longer than multiplying.
            cosines = numpy().einsum("ij,j->i", self.matrix, numpy().asarray(vector, "f4")).tolist()
        return dict(zip(self.vectors, cosines, strict=True))


def may_answer(query: LessonQuery, agents: Collection[AgentLessons]) -> bool:
    """Whether there are lessons of the kinds in a query."""
    return query.kinds is None or any(
        not agent.by_status[query.status].kinds.isdisjoint(query.kinds) for agent in agents
    )


class BestLesson(NamedTuple):
    """One of the best lessons of a search, with the digest of its document."""

    id: str
    digest: bytes
    score: float
    reason: str


class Search:
    """A search among lessons, with what each of them has in common with the query.

    Type of task and tools count only among the lessons of a single agent.
    """

    def __init__(
        self,
        connection: Connection,
        query: LessonQuery,
        vector: Sequence[float] | None,
        agents: Collection[AgentLessons],
        effects: Mapping[str, float],
        *,
        by_meaning: bool,
    ) -> None:
        has_names = any(not name.isdecimal() for name in names_in(query.text))
        self._ranking = Ranking(has_names=has_names, embedded=vector is not None)
        self._connection = connection
        self._query = query
        self._effects = effects
        searched = [agent.by_status[query.status] for agent in agents]
        self._vectors = ChainMap(*(lessons.vectors for lessons in searched))
        self._lessons = _merged([lessons.features for lessons in searched])
        self._similarities = _merged([lessons.similarities(vector) for lessons in searched])
        total = len(self._lessons)
        common = COMMON if query.agent is None else max(COMMON_COUNT, int(total * COMMON_SHARE))
        first, last = min(self._lessons, default=0), max(self._lessons, default=0)
        dampings = _merged([lessons.dampings for lessons in searched])
        full_text = FullText(connection, first, last, common, dampings)
        self._same_type: set[int] = set()
        self._tools: dict[int, tuple[str, ...]] = {}
        self._required: set[int] = set()
        if query.agent is not None:
            same = normalized(query.task_type)
            for of_type in (*filter(None, [same]), *([""] if query.untyped else ())):
                self._same_type.update(*(lessons.of_type.get(of_type, ()) for lessons in searched))
            for tool in dict.fromkeys(query.tools):
                used = set[int]().union(*(lessons.of_tool.get(normalized(tool), ()) for lessons in searched))
                for number in used.union(full_text.rows_with_name(tool)):
                    self._tools[number] = (*self._tools.get(number, ()), tool)
            self._required.update(*map(full_text.rows_with_sentence, query.requirements))
        self._shares: dict[int, float] = {}
        # Words count if the question has names, or if a lesson has no vector.
        if has_names or len(self._similarities) < total:
            matches = full_text.matches(query.text)
            least = 0.0  # without an embedder, any word in Latin letters counts
            if matches and (by_meaning or not is_latin(query.text)):
                coverages = [match.coverage for match in matches.values()]
                least = threshold_of([*coverages, *[0.0] * (total - len(coverages))], LEAST_COVERED, 1.0)
            self._shares = {
                number: match.share
                for number, match in matches.items()
                if number in self._similarities or match.coverage >= least
            }
        if self._similarities:
            most = SURELY_RELEVANT + (NAME_BOOST / 2 if has_names else 0.0)
            threshold = threshold_of(self._matches(), LEAST_RELEVANT, most)
            self._ranking = replace(self._ranking, threshold=threshold)

    def best(self) -> Iterator[BestLesson]:
        """Yield the `k` most relevant lessons, best first, without near-duplicates."""
        best: list[Candidate] = []
        for most in (NEAREST, FLOOD):
            ranked = self._ordered(most)
            if not self._query.untyped:
                ranked = without_duplicates(ranked, self._content, self._similarity)
            best = list(islice(ranked, self._query.k))
            if len(best) == self._query.k or most >= len(self._lessons):
                break
        names = {
            name: [token, spelled(token)]
            for name in names_in(self._query.text)
            for token in tokens_of(name)[:1]
        }
        for candidate in best:
            digest, searched = self._connection.execute(
                "SELECT digest, searched FROM documents JOIN words ON words.rowid = number WHERE number = ?",
                (candidate.number,),
            ).fetchone()
            words = set(searched.lower().split())
            shared = [name for name, tokens in names.items() if words.intersection(tokens)]
            reason = reason_for(candidate, self._query.task_type, shared)
            yield BestLesson(
                self._lessons[candidate.number].id, digest, self._ranking.score(candidate), reason
            )

    def _ordered(self, most: int) -> Iterator[Candidate]:
        """Order the lessons with the same type, tools or requirements, and `most` of the nearest others.

        Lessons of a lower rank are scored only if there are not enough of a higher rank.
        """
        nearest = {
            *(number for _, number in nlargest(most, _by_value(self._similarities))),
            *(number for _, number in nlargest(most, _by_value(self._shares))),
        }
        ranks: defaultdict[float, list[int]] = defaultdict(list)
        for number in {*self._same_type, *self._tools, *self._required}:
            rank = SAME_TYPE if number in self._same_type else 0.0
            rank += SAME_TOOL if number in self._tools else 0.0
            ranks[rank + (SAME_REQUIREMENT if number in self._required else 0.0)].append(number)
            nearest.discard(number)
        groups = [*(ranks[rank] for rank in sorted(ranks, reverse=True)), nearest]
        return chain.from_iterable(map(self._ranking.ordered, map(self._candidates, groups)))

    def _candidates(self, numbers: Iterable[int]) -> list[Candidate]:
        latest = int((self._query.now or datetime.now(UTC)).timestamp() * 1000)
        kinds, lessons = self._query.kinds or KINDS, self._lessons
        return [
            Candidate(
                number,
                min(features.written, latest),
                number in self._same_type,
                self._tools.get(number, ()),
                self._similarities.get(number),
                self._shares.get(number, 0.0),
                features.confidence,
                self._effects.get(features.id, 0.0),
                number in self._required,
            )
            for number in numbers
            if (features := lessons[number]).kind in kinds
        ]

    def _matches(self) -> list[float]:
        """How well each lesson with a vector matches the question."""
        if not self._ranking.has_names:
            return list(self._similarities.values())
        return [
            cosine + NAME_BOOST * self._shares.get(number, 0.0)
            for number, cosine in self._similarities.items()
        ]

    def _content(self, candidate: Candidate) -> str:
        (content,) = self._connection.execute(
            "SELECT content FROM lessons WHERE number = ?", (candidate.number,)
        ).fetchone()
        return content

    def _similarity(self, candidate: Candidate, other: Candidate) -> float:
        """The cosine of two lessons; 0 if one of them has no vector."""
        vectors = [self._vectors[each.number] for each in (candidate, other) if each.number in self._vectors]
        return sum(map(mul, *vectors)) if len(vectors) > 1 else 0.0


def _merged(parts: Sequence[dict[int, T]]) -> dict[int, T]:
    """The union of dicts. The result must not be changed: a single dict is returned itself."""
    if len(parts) == 1:
        return parts[0]
    merged: dict[int, T] = {}
    for part in parts:
        merged |= part
    return merged


def _by_value(values: Mapping[int, float]) -> Iterator[tuple[float, int]]:
    return zip(values.values(), values, strict=True)


# --- vectors -----------------------------------------------------------------------------------------------

FLOAT_BYTES = 4
"""Bytes of a number in a packed vector."""


@cache
def numpy() -> Any:
    """numpy, or None if it is not installed; it comes with the offline embedder."""
    try:
        return import_module("numpy")
    except ImportError:
        return None


def packed(vector: Sequence[float]) -> bytes:
    """Scale a vector to unit length and pack it as 32-bit floats."""
    length = hypot(*vector) or 1.0
    return array("f", [number / length for number in vector]).tobytes()


def _matrix_of(vectors: Sequence[bytes]) -> Any:
    """Packed vectors as the rows of a matrix."""
    if not vectors or numpy() is None:  # without vectors, numpy is not loaded
        return [array("f", vector) for vector in vectors]
    return numpy().frombuffer(b"".join(vectors), "f4").reshape(len(vectors), -1)


# --- the order ---------------------------------------------------------------------------------------------

RELEVANT = 0.3
"""The minimum score of a relevant lesson if there are no other lessons to compare."""
LEAST_RELEVANT, SURELY_RELEVANT = 0.2, 0.4
"""The range of the threshold; a lesson in the range is relevant if it stands out among the others."""
LEAST_COVERED = 0.05
"""Minimum share of a question that an outstanding lesson must cover if words alone decide."""
STANDS_OUT = 1.2
"""The factor by which a lesson must exceed the expected best of as many random lessons.

Similarities have a longer tail than a normal distribution. On recorded reflections, with 5, 10 and 30 lessons
of which none fits, 0.8 to 1 lesson on average passes; the table in `benchmarks/findings.md` has the curve.
"""
NAME_BOOST = 0.3
"""Maximum that full text adds to a similarity if the question has names. Equal weights do worse."""
SAME_TYPE, SAME_TOOL, SAME_REQUIREMENT = 8.0, 4.0, 2.0
"""Added to a score for the same type of task, tool or requirement; each outweighs everything after it."""
PROVEN = 0.1
"""Added to the score of a lesson that has always helped, subtracted if it has always hurt."""
CONFIDENT = 0.1
"""Added to the score for each unit of confidence above the default."""
SAME_MEANING, SHARED_WORDS = 0.95, 0.4
"""Two lessons are paraphrases if they reach both this similarity and this overlap in words.

Neither is enough, since all lessons about a task are similar. Of pairs of recorded reflections on one task,
both together match 22 of 28 that are similar even without the task's text (0.9), and 3 of 56 that are not.
"""


class Candidate(NamedTuple):
    """The features by which a lesson is ranked."""

    number: int
    """Identifies the lesson in the index."""
    written: int
    """Its `Lesson.recency`."""
    same_type: bool = False
    tools: tuple[str, ...] = ()
    """The tools in the question that it is about."""
    similarity: float | None = None
    """Its cosine with the question; None without a vector."""
    text: float = 0.0
    """Its share (0..1) of the best full-text score."""
    confidence: float = CONFIDENCE
    effect: float = 0.0
    """How often it helped rather than hurt (-1..1)."""
    required: bool = False
    """Whether it names a requirement in the question."""


def threshold_of(
    matches: Sequence[float], least: float = LEAST_RELEVANT, most: float = SURELY_RELEVANT
) -> float:
    """The score from which a lesson is relevant, by how well all lessons match the question.

    The similarity of unrelated lessons differs from field to field: a threshold that fits errands lets in
    every lesson about code. So a lesson must match better than the best of as many random lessons. The
    threshold is in the range from `least` to `most`. That range ends higher if the question has names: then
    the best lesson gets the boost for names, whether it fits or not.
    """
    count = len(matches)
    mean = sum(matches) / count
    deviation = sqrt(max(0.0, sum(map(mul, matches, matches)) / count - mean * mean))
    best_of_random = NormalDist().inv_cdf(1 - 1 / max(count, 2))
    return min(most, max(least, mean + STANDS_OUT * best_of_random * deviation))


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rank lessons for a question."""

    has_names: bool
    """Whether the question has identifiers. Embedders don't know these, so full text counts, too."""
    embedded: bool
    """Whether the question has a vector, so that similarity counts first."""
    threshold: float = RELEVANT
    """Minimum score of a relevant lesson, except for the same type of task, tool or requirement."""

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """The relevant candidates, best first.

        The rank is the score plus the weights for the same type of task, tools and requirements. Of lessons
        with the same rank to a hundredth, the newest comes first.
        """
        return sorted(filter(self._is_relevant, candidates), key=self._key)

    def score(self, candidate: Candidate) -> float:
        """The score of a lesson: how well it matches, what it did so far, and how sure it is."""
        if candidate.similarity is not None:
            match = candidate.similarity + (NAME_BOOST * candidate.text if self.has_names else 0.0)
        else:
            # Without a vector it can't be compared with lessons that have one: it ranks among them, but not
            # before a very similar lesson.
            match = candidate.text / 2 if self.embedded else candidate.text
        return match + PROVEN * candidate.effect + CONFIDENT * (candidate.confidence - CONFIDENCE)

    def _is_relevant(self, candidate: Candidate) -> bool:
        if candidate.same_type or candidate.tools or candidate.required:
            return True
        return (
            self.score(candidate) >= self.threshold
            if candidate.similarity is not None
            else candidate.text > 0
        )

    def _key(self, candidate: Candidate) -> tuple[float, int, float]:
        rank = self.score(candidate) + SAME_TYPE * candidate.same_type + SAME_TOOL * bool(candidate.tools)
        rank += SAME_REQUIREMENT * candidate.required
        return -round(rank, 2), -candidate.written, -rank


def reason_for(candidate: Candidate, task_type: str, names: Sequence[str]) -> str:
    """A few words on why a lesson was chosen; it shares the `names` with the question."""
    reasons: list[str] = []
    if candidate.same_type:
        reasons.append(f"same task type {task_type!r}" if task_type else "a fact of this agent")
    if candidate.tools:
        reasons.append(f"tool {', '.join(candidate.tools)}")
    if candidate.required:
        reasons.append("same requirement")
    if candidate.similarity is not None:
        reasons.append(f"similarity {candidate.similarity:.2f}")
    if candidate.effect:
        reasons.append("helped before" if candidate.effect > 0 else "hurt before")
    if names:
        reasons.append(f"names {', '.join(names[:3])}")
    elif candidate.similarity is None and candidate.text:
        reasons.append("shares words")
    return "; ".join(reasons)


def without_duplicates(
    ordered: Iterable[Candidate],
    text_of: Callable[[Candidate], str],
    similarity: Callable[[Candidate, Candidate], float],
) -> Iterator[Candidate]:
    """Yield the candidates that are not near-duplicates of an earlier, better candidate.

    `text_of` returns the content of a lesson, `similarity` the cosine of two lessons, 0 if unknown.
    """
    distinct: list[tuple[Candidate, frozenset[str]]] = []
    for candidate in ordered:
        words = words_in(text_of(candidate))
        for other, others in distinct:
            share = overlap(words, others)
            if share >= NEAR_DUPLICATE or (
                share >= SHARED_WORDS and similarity(candidate, other) >= SAME_MEANING
            ):
                break
        else:
            distinct.append((candidate, words))
            yield candidate
