"""Provenance: whether a text repeats a task, a tool's reply, a file or an error."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

RUN = 5
"""This many words in a row are a quotation."""
PIECE = 3
"""This many words in a row may be a piece of a quotation."""
MOSTLY = 0.75
"""With this share of its words in quoted pieces, a text is a quotation."""
REWORDED = 0.8
"""With this share of significant words in common, a text repeats one or two sentences of a source."""
FEWEST_SIGNIFICANT, SHORTEST_SIGNIFICANT, LONGEST_SENTENCE = 4, 4, 40
"""Minimum number and length of significant words, and the maximum words of a sentence to compare."""

# Scripts without spaces between words: each of their characters counts as a word of half the weight.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_SENTENCE_END = re.compile(r"[.!?;:\u0964\u3002\uff01\uff0e\uff1b\uff1f]+|\n")
_CONSEQUENCE = re.compile(
    r"\bTHEN\b(.*)\Z|\A\W*(?:if|when|whenever|once)\b[^,]{3,},(.*)\Z", re.IGNORECASE | re.DOTALL
)
# In "IF ... THEN do it", the order is in the condition.
_POINTS_BACK = frozenset(
    re.findall(
        r"\w+",
        "a all always and as comply do exactly follow heed instruction instructions it must obey of on "
        "please request says should so task text that the then there this told what with you",
    )
)


def repeats(text: str, source: str) -> bool:
    """Whether a text says, as its own advice, the same as a sentence of a source.

    Case, punctuation, quotation marks, line breaks, invisible characters and compatibility forms make no
    difference, nor do words before and after it, or `IF ... THEN` around it. A condition may be quoted; its
    consequence may not. A text also repeats a source if it quotes several pieces of it, or has nearly all
    significant words of one or two of its sentences.
    """
    source_words = _Source.of(source)
    if not source_words.words:
        return False
    whole = _words(text)
    consequence = _CONSEQUENCE.search(text)
    advice = _words(consequence[1] or consequence[2] or "") if consequence else whole
    if not advice or _POINTS_BACK.issuperset(advice):
        advice = whole
    if source_words.quoted_share(whole) >= MOSTLY:
        return True
    if source_words.has(advice) and len(advice) > 1:
        return True
    if any(map(source_words.has, _runs_from_each(advice, RUN))):
        return True
    return source_words.quoted_share(advice) >= MOSTLY or source_words.is_reworded(advice)


@dataclass(frozen=True, slots=True)
class _Source:
    """The words of a source, as a text to search and as sentences."""

    words: str
    sentences: tuple[frozenset[str], ...]

    @classmethod
    @lru_cache(maxsize=64)  # a reflection is compared with the same few texts
    def of(cls, source: str) -> _Source:
        """Read a source."""
        sentences = [_words(sentence) for sentence in _SENTENCE_END.split(_plain(source))]
        pairs = [[*sentence, *other] for sentence, other in pairwise(sentences)]
        bounded = [
            _significant(sentence) for sentence in (*sentences, *pairs) if len(sentence) <= LONGEST_SENTENCE
        ]
        words = " ".join(word for sentence in sentences for word in sentence)
        return cls(f" {words} " if words else "", tuple(dict.fromkeys(bounded)))

    def has(self, words: Sequence[str]) -> bool:
        """Whether the source has these words in a row."""
        return bool(words) and f" {' '.join(words)} " in self.words

    def quoted_share(self, words: Sequence[str]) -> float:
        """The share of these words that are in pieces of the source."""
        quoted = set[int]()
        for start, run in zip(range(len(words)), _runs_from_each(words, PIECE), strict=True):
            if self.has(run):
                quoted.update(range(start, start + len(run)))
        total = sum(map(_weight, words))
        return sum(_weight(words[at]) for at in quoted) / total if total else 0.0

    def is_reworded(self, words: Sequence[str]) -> bool:
        """Whether these words have nearly all significant words of one or two sentences, or the reverse."""
        significant = _significant(words)
        for sentence in self.sentences:
            fewest = min(len(significant), len(sentence))
            if fewest >= FEWEST_SIGNIFICANT and len(significant & sentence) >= REWORDED * fewest:
                return True
        return False


def _plain(text: str) -> str:
    """A text in lower case, without marks on its letters, in compatibility form."""
    if text.isascii():
        return text.casefold()
    decomposed = unicodedata.normalize("NFKD", without_invisible(text)).casefold()
    return "".join(
        character for character in decomposed if not unicodedata.category(character).startswith(("M", "Cf"))
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", _plain(text)))


def _significant(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if len(word) >= SHORTEST_SIGNIFICANT)


def _weight(word: str) -> float:
    return 0.5 if _IS_UNSPACED.fullmatch(word) else 1.0


def _runs_from_each(words: Sequence[str], least: float) -> Iterator[Sequence[str]]:
    """Yield, from each word on, the shortest run with at least this weight; empty if the rest has less."""
    for start in range(len(words)):
        weight = 0.0
        for end in range(start, len(words)):
            weight += _weight(words[end])
            if weight >= least:
                yield words[start : end + 1]
                break
        else:
            yield ()
