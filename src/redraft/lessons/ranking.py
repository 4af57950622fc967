"""Ranking: which of the lessons that could help come first, and why."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.vectors import cosine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

BOOST = 0.3
"""What the names that both hold add to a similarity at most. Equal weights would hurt."""
NEAR = 0.3
"""The least similarity at which a lesson of another task type and other tools is shown."""
ALIKE = 0.8
"""The share of words that two lessons have in common if one of them is enough."""
SAME, SHARED = 0.95, 0.4
"""The similarity, and the share of words, from which two lessons say the same in other words.

Neither is enough: lessons about one task are similar, whatever they say of it. Of pairs of recorded
reflections on one task, together they join 22 of 28 that are similar without the task's text, too (0.9), and
3 of 56 that are not.
"""

_WORD = re.compile(r"\w+")


class Candidate(NamedTuple):
    """Hold what a lesson is ranked by; `number` names it in the index.

    `similarity` is the cosine of the embeddings, None where there is none. `text` is its share (0..1) of the
    best score of the full text. `day` counts days. `tools` are those that the task may use, too.
    """

    number: int
    day: int
    same_type: bool = False
    tools: tuple[str, ...] = ()
    similarity: float | None = None
    text: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Order lessons by how near they are to a question.

    `has_names`: it holds identifiers, which embeddings don't know, so the full text counts beside them.
    `embedded`: there is an embedder, so that nearness is similarity.
    """

    has_names: bool
    embedded: bool

    def score(self, one: Candidate) -> float:
        """Return how near a lesson is in meaning."""
        if one.similarity is not None:
            return one.similarity + (BOOST * one.text if self.has_names else 0.0)
        # Until it has a vector, a lesson can't be compared with those that have one: it comes among them, but
        # not before one that is truly near.
        return one.text / 2 if self.embedded else one.text

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the relevant ones, best first; of those that are equally near to a hundredth, the newest."""
        return sorted(filter(self._is_relevant, candidates), key=self._key)

    def _is_relevant(self, one: Candidate) -> bool:
        if one.same_type or one.tools:
            return True
        if one.similarity is None:
            return one.text > 0
        return one.similarity >= NEAR or (self.has_names and self.score(one) >= NEAR)

    def _key(self, one: Candidate) -> tuple[float, int, float]:
        score = self.score(one)
        return -round(score, 2), -one.day, -score


def reason_of(one: Candidate, task_type: str, names: Sequence[str]) -> str:
    """Say in a few words why a lesson was chosen; `names` are those that it and the question hold."""
    reasons: list[str] = []
    if one.same_type:
        reasons.append(f"same task type {task_type!r}")
    if one.tools:
        reasons.append(f"tool {', '.join(one.tools)}")
    if one.similarity is not None:
        reasons.append(f"similarity {one.similarity:.2f}")
    if names:
        reasons.append(f"names {', '.join(names[:3])}")
    elif one.similarity is None and one.text:
        reasons.append("shares words")
    return "; ".join(reasons)


def without_alike(
    ordered: Iterable[Candidate],
    said_by: Callable[[Sequence[Candidate]], Sequence[str]],
    vector_of: Callable[[Candidate], bytes],
    batch: int = 12,
) -> Iterator[Candidate]:
    """Yield each one but those that say nearly what an earlier one says; the best stands for them.

    `said_by` returns what so many of them say, at most a `batch`; `vector_of` the packed vector of one, empty
    where it has none.
    """
    kept: list[tuple[Candidate, frozenset[str]]] = []

    def is_said(one: Candidate, words: frozenset[str]) -> bool:
        for other, others in kept:
            both = len(words & others)
            either = len(words) + len(others) - both
            if both >= ALIKE * either:
                return True
            if both >= SHARED * either and _is_same(vector_of(one), vector_of(other)):
                return True
        return False

    waiting = iter(ordered)
    while some := list(islice(waiting, batch)):
        for one, said in zip(some, said_by(some), strict=True):
            words = frozenset(_WORD.findall(said.lower()))
            if not is_said(one, words):
                kept.append((one, words))
                yield one


def _is_same(one: bytes, other: bytes) -> bool:
    return 0 < len(one) == len(other) and cosine(one, other) >= SAME
