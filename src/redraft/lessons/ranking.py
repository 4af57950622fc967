"""Which lessons are worth showing, and in which order: decided here, without any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.lesson import NEAR_DUPLICATE, overlap, words_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

RELEVANT = 0.3
"""The least score at which a lesson about another type of task, with other tools, is shown."""
NAME_BOOST = 0.3
"""What full text adds to a similarity at most where the question holds names. Equal weights would hurt."""
SAME_MEANING, SHARED_WORDS = 0.95, 0.4
"""The similarity and the overlap in words at which two lessons say the same in other words.

Neither is enough: lessons about one task are similar whatever they say of it. Of pairs of recorded
reflections on one task, both together join 22 of 28 that are similar even without the task's text (0.9), and
3 of 56 that are not.
"""


class Candidate(NamedTuple):
    """Hold what a lesson is ranked by.

    `number` identifies it in the index, `day` is that of the lesson as a count of days. `tools` are those of
    the task that the lesson is about, too. `similarity` is the cosine with the question, None without a
    vector; `text` its share (0..1) of the best full-text score.
    """

    number: int
    day: int
    same_type: bool = False
    tools: tuple[str, ...] = ()
    similarity: float | None = None
    text: float = 0.0


@dataclass(frozen=True, slots=True)
class Ranking:
    """Rank lessons for one question.

    `has_names`: the question holds identifiers, which embedders don't know, so full text counts beside
    similarity. `embedded`: there is a vector of the question, so similarity is what counts first.
    """

    has_names: bool
    embedded: bool

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the relevant ones, best first.

        First those about the same type of task, then those about its tools, then the rest, each by score;
        where scores are the same to a hundredth, the newest first.
        """
        return sorted(filter(self._is_relevant, candidates), key=self._key)

    def score(self, one: Candidate) -> float:
        """Return how near a lesson is to the question."""
        if one.similarity is not None:
            return one.similarity + (NAME_BOOST * one.text if self.has_names else 0.0)
        # Without a vector yet, it can't be compared with those that have one: it ranks among them, but not
        # before one that is truly near.
        return one.text / 2 if self.embedded else one.text

    def _is_relevant(self, one: Candidate) -> bool:
        if one.same_type or one.tools:
            return True
        return self.score(one) >= RELEVANT if one.similarity is not None else one.text > 0

    def _key(self, one: Candidate) -> tuple[bool, bool, float, int, float]:
        score = self.score(one)
        return not one.same_type, not one.tools, -round(score, 2), -one.day, -score


def reason_for(one: Candidate, task_type: str, names: Sequence[str]) -> str:
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


def without_duplicates(
    ordered: Iterable[Candidate],
    text_of: Callable[[Candidate], str],
    similarity: Callable[[Candidate, Candidate], float],
) -> Iterator[Candidate]:
    """Yield all but those that say nearly what an earlier, better one says.

    `text_of` returns what a lesson says, `similarity` the cosine of two lessons, 0 if unknown.
    """
    shown: list[tuple[Candidate, frozenset[str]]] = []
    for one in ordered:
        words = words_in(text_of(one))
        for other, others in shown:
            share = overlap(words, others)
            if share >= NEAR_DUPLICATE or (share >= SHARED_WORDS and similarity(one, other) >= SAME_MEANING):
                break
        else:
            shown.append((one, words))
            yield one
