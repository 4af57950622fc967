"""Full-text search for short texts full of identifiers, on SQLite's FTS5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from sqlite3 import Connection

MOST_WORDS = 48
"""Words of a question that are looked up, names first."""
NAME_WEIGHT = 2.0
"""The weight of a whole name, relative to that of a word."""
MOST_ROWS = 5_000
"""Rows that are found by common words alone."""


def damping(words: int) -> float:
    """The divisor of the score of a row with so many words, since long rows have more of them by chance.

    The fourth root, the weight of names and `ranking.NAME_BOOST` did best on recorded reflections.
    """
    return words**0.25


@dataclass(frozen=True, slots=True)
class FullText:
    """Search the table `words`, in the range of row numbers from `first` to `last`.

    Rows that are not among `searched` are left out; its values are the `damping` of their lengths. A word
    that more than `common` rows have counts as a stop word. FTS5's own `bm25()` counts every word in the
    whole table at each search, which takes 25 ms for a common word of 100,000 lessons; here the weights come
    from the rows in the range. Whether a row has a word counts, not how often.
    """

    connection: Connection
    first: int
    last: int
    common: int
    searched: Mapping[int, float]

    def shares(self, text: str) -> dict[int, float]:
        """Return, for each row that has words of a text, its share (0..1) of the best score."""
        dampings = self.searched
        scores = {row: score / dampings[row] for row, score in self._scores(text).items()}
        best = max(scores.values(), default=0.0)
        return {row: score / best for row, score in scores.items()} if best > 0 else {}

    def rows_with_name(self, name: str) -> list[int]:
        """Return the rows that contain a name as a whole."""
        return [row for token in tokens_of(name)[:1] for row in self._rows_with(token)]

    def rows_with_sentence(self, sentence: str) -> list[int]:
        """Return the rows that contain the words of a sentence one after the other."""
        return self._rows_with(sentence.replace('"', " "))

    def _scores(self, text: str) -> dict[int, float]:
        """Sum up the weights of a text's words in each row.

        If no row has a rare word, the rows that have all of the common ones score 1.
        """
        scores: dict[int, float] = {}
        common: list[str] = []
        count = len(self.searched)
        names = {tokens_of(name)[0] for name in names_in(text) if not name.isdecimal()}
        for word in search_words(text):
            rows = self._rows_with(word, self.common + 1)
            if len(rows) > self.common:
                common.append(word)
                continue
            weight = log(1 + (count - len(rows) + 0.5) / (len(rows) + 0.5))
            for row in rows:
                scores[row] = scores.get(row, 0.0) + weight * (NAME_WEIGHT if word in names else 1)
        if not scores and common:
            scores = dict.fromkeys(self._rows_with('" AND "'.join(common), MOST_ROWS), 1.0)
        return scores

    def _rows_with(self, words: str, limit: int = -1) -> list[int]:
        found = self.connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
            (f'"{words}"', self.first, self.last, limit),
        )
        return [row for (row,) in found if row in self.searched]


# --- words and names ---------------------------------------------------------------------------------------

_NAME = re.compile(r"(?<!\w)(?:--\w[\w-]*|[./~]*\w+(?:[./:\\-]+\w+)*)")
# A name has a digit, `_`, `/`, `--`, a dot inside, or a capital inside a word.
_TELLING = re.compile(r"\d|_|/|\\|^--|\w\.\w|::|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORD = re.compile(r"\w+")
_PATH_SEPARATORS = re.compile(r"[/\\:]+")
_JOINTS = re.compile(r"\W+")
_EDGES = re.compile(r"^\W+|\W+$")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be been but by can could did do does for from had has have how i if in into is "
        "it its me my no not of on or our should so such than that the their them then there these they this "
        "to up was we were what when where which who why will with would you your",
    )
)


def names_in(text: str) -> list[str]:
    """Return the identifiers in a text, as written: error codes, files, options, tools, classes."""
    # Most words are plain, and `islower` is faster than the pattern.
    found = (one for one in _NAME.findall(text) if not one[1:].islower() or not one.isalpha())
    return list(dict.fromkeys(one for one in found if _TELLING.search(one)))


def tokens_of(name: str) -> list[str]:
    """Return the token for a whole name, then those for the parts of a path."""
    parts = [part for part in _PATH_SEPARATORS.split(name) if part]
    joined = (
        _JOINTS.sub("_", _EDGES.sub("", one)).lower() for one in (name, *(parts if len(parts) > 1 else ()))
    )
    return list(dict.fromkeys(filter(None, joined)))


def searchable(text: str) -> str:
    """Return a text followed by the tokens of its names, which FTS5 would take apart."""
    tokens = (token for name in names_in(text) if _JOINTS.search(name) for token in tokens_of(name))
    return " ".join([text, *dict.fromkeys(tokens)])


def search_words(text: str) -> list[str]:
    """Return the words of a question to look up, each once: its names, then the rest."""
    names = (token for name in names_in(text) for token in tokens_of(name))
    others = (word for word in _WORD.findall(text.lower()) if word not in _STOP_WORDS)
    return list(dict.fromkeys([*names, *others]))[:MOST_WORDS]
