"""Which lessons are relevant to a question, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from redraft.lessons.lesson import NEAR_DUPLICATE, overlap, words_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

RELEVANT = 0.3
"""The minimum score of a relevant lesson, unless it is about the same type of task or tool."""
NAME_BOOST = 0.3
"""What full text adds to a similarity, at most, if the question has names. Equal weights do worse."""
SAME_MEANING, SHARED_WORDS = 0.95, 0.4
"""The similarity and the overlap in words from which two lessons are paraphrases, if they reach both.

Neither is enough, since all lessons about one task are similar. Of pairs of recorded reflections on one task,
both together match 22 of 28 that are similar even without the task's text (0.9), and 3 of 56 that are not.
"""


class Candidate(NamedTuple):
    """What a lesson is ranked by.

    `number` identifies it in the index. `day` is its day as an ordinal. `tools` are the tools in the question
    that it is about. `similarity` is its cosine with the question, None without a vector; `text` is its share
    (0..1) of the best full-text score.
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

    `has_names`: the question has identifiers, which embedders don't know, so that full text counts beside
    similarity. `embedded`: there is a vector of the question, so that similarity counts first.
    """

    has_names: bool
    embedded: bool

    def ordered(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the relevant candidates, best first.

        Those about the same type of task come first, then those about its tools, then the rest, each sorted
        by score; of those with the same score to a hundredth, the newest comes first.
        """
        return sorted(filter(self._is_relevant, candidates), key=self._key)

    def score(self, one: Candidate) -> float:
        """Return the score of a lesson."""
        if one.similarity is not None:
            return one.similarity + (NAME_BOOST * one.text if self.has_names else 0.0)
        # Without a vector it can't be compared with those that have one: it ranks among them, but not before
        # one that is very similar.
        return one.text / 2 if self.embedded else one.text

    def _is_relevant(self, one: Candidate) -> bool:
        if one.same_type or one.tools:
            return True
        return self.score(one) >= RELEVANT if one.similarity is not None else one.text > 0

    def _key(self, one: Candidate) -> tuple[bool, bool, float, int, float]:
        score = self.score(one)
        return not one.same_type, not one.tools, -round(score, 2), -one.day, -score


def reason_for(one: Candidate, task_type: str, names: Sequence[str]) -> str:
    """Return in a few words why a lesson was chosen; `names` are those that it shares with the question."""
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
    """Yield the candidates that are not near-duplicates of an earlier, better one.

    `text_of` returns the content of a lesson, `similarity` the cosine of two lessons, 0 if unknown.
    """
    distinct: list[tuple[Candidate, frozenset[str]]] = []
    for one in ordered:
        words = words_in(text_of(one))
        for other, others in distinct:
            share = overlap(words, others)
            if share >= NEAR_DUPLICATE or (share >= SHARED_WORDS and similarity(one, other) >= SAME_MEANING):
                break
        else:
            distinct.append((one, words))
            yield one
