"""Provenance: whether a text repeats what a task, a tool, a file or an error says."""

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
"""So many words in a row are a quotation."""
PIECE = 3
"""So many words in a row may be a piece of one."""
MOSTLY = 0.75
"""The share of a text's words from which quoted pieces make it a quotation."""
REWORDED = 0.8
"""The share of telling words that a text and one or two sentences of a source have in common."""
FEWEST_TELLING, SHORTEST_TELLING, LONGEST_SENTENCE = 4, 4, 40
"""Telling words are at least four of at least four letters; longer sentences have too many words to tell."""

# Scripts without spaces between words: each of their characters is a word of its own, of half the weight.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_SENTENCE_END = re.compile(r"[.!?;:\u0964\u3002\uff01\uff0e\uff1b\uff1f]+|\n")
_CONSEQUENCE = re.compile(
    r"\bTHEN\b(.*)\Z|\A\W*(?:if|when|whenever|once)\b[^,]{3,},(.*)\Z", re.IGNORECASE | re.DOTALL
)
# "IF ... THEN do it": the order is in the condition.
_POINTS_BACK = frozenset(
    re.findall(
        r"\w+",
        "a all always and as comply do exactly follow heed instruction instructions it must obey of on "
        "please request says should so task text that the then there this told what with you",
    )
)


def repeats(text: str, source: str) -> bool:
    """Return whether a text says, as its own advice, what a sentence of a source says.

    Case, punctuation, quotation marks, line breaks, invisible characters and compatibility forms make no
    difference, nor do words before and after it, or `IF ... THEN` around it. What a condition names may be
    quoted; what it leads to may not. A text that quotes several pieces of a source, or that has nearly all
    telling words of one or two of its sentences, repeats it, too.
    """
    said = _Said.of(source)
    if not said.words:
        return False
    whole = _words(text)
    found = _CONSEQUENCE.search(text)
    advice = _words(found[1] or found[2] or "") if found else whole
    if not advice or _POINTS_BACK.issuperset(advice):
        advice = whole
    if said.quoted_share(whole) >= MOSTLY:
        return True
    if said.has(advice) and len(advice) > 1:
        return True
    if any(map(said.has_run, _runs(advice, RUN))):
        return True
    return said.quoted_share(advice) >= MOSTLY or said.is_reworded(advice)


@dataclass(frozen=True, slots=True)
class _Said:
    """The words of a source, as a text to search and as sentences."""

    words: str
    sentences: tuple[frozenset[str], ...]
    runs: dict[int, frozenset[tuple[str, ...]]]
    """Its words in a row, by how many; each length when it is first looked for."""

    @classmethod
    @lru_cache(maxsize=64)  # a reflection is compared with the same few texts
    def of(cls, source: str) -> _Said:
        """Read a source."""
        sentences = [_words(one) for one in _SENTENCE_END.split(_plain(source))]
        pairs = [[*one, *other] for one, other in pairwise(sentences)]
        bounded = [_telling(one) for one in (*sentences, *pairs) if len(one) <= LONGEST_SENTENCE]
        words = " ".join(word for sentence in sentences for word in sentence)
        return cls(f" {words} " if words else "", tuple(dict.fromkeys(bounded)), {})

    def has(self, words: Sequence[str]) -> bool:
        """Return whether the source has these words in a row."""
        return bool(words) and f" {' '.join(words)} " in self.words

    def has_run(self, words: Sequence[str]) -> bool:
        """Return the same of a few words, at once for many such runs."""
        count = len(words)
        if count not in self.runs:
            every = self.words.split()
            self.runs[count] = frozenset(zip(*(every[start:] for start in range(count)), strict=False))
        return tuple(words) in self.runs[count]

    def quoted_share(self, words: Sequence[str]) -> float:
        """Return the share of these words that stand in pieces of the source."""
        quoted = set[int]()
        for start, run in zip(range(len(words)), _runs_from_each(words, PIECE), strict=True):
            if run and self.has_run(run):
                quoted.update(range(start, start + len(run)))
        total = sum(map(_weight, words))
        return sum(_weight(words[at]) for at in quoted) / total if total else 0.0

    def is_reworded(self, words: Sequence[str]) -> bool:
        """Return whether these words have nearly all telling words of a sentence or two, or the reverse."""
        telling = _telling(words)
        for sentence in self.sentences:
            fewest = min(len(telling), len(sentence))
            if fewest >= FEWEST_TELLING and len(telling & sentence) >= REWORDED * fewest:
                return True
        return False


def _plain(text: str) -> str:
    """Return a text in lower case, without marks on its letters, in compatibility form."""
    if text.isascii():
        return text.casefold()
    decomposed = unicodedata.normalize("NFKD", without_invisible(text)).casefold()
    return "".join(one for one in decomposed if not unicodedata.category(one).startswith(("M", "Cf")))


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFC", _plain(text)))


def _telling(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word for word in words if len(word) >= SHORTEST_TELLING)


def _weight(word: str) -> float:
    return 0.5 if _IS_UNSPACED.fullmatch(word) else 1.0


def _runs_from_each(words: Sequence[str], least: float) -> Iterator[Sequence[str]]:
    """Yield, from each word on, the shortest run of at least so much weight; empty if the rest has less."""
    for start in range(len(words)):
        weight = 0.0
        for end in range(start, len(words)):
            weight += _weight(words[end])
            if weight >= least:
                yield words[start : end + 1]
                break
        else:
            yield ()


def _runs(words: Sequence[str], least: float) -> Iterator[Sequence[str]]:
    return filter(None, _runs_from_each(words, least))
