"""FullText: which lessons hold the words and names of a question, and how much that says."""

from __future__ import annotations

import re
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite3 import Connection

SCHEMA = """
CREATE VIRTUAL TABLE words USING fts5(
    text, content = '', columnsize = 0, tokenize = "porter unicode61 tokenchars '_'"
);
"""
COMMON = 400
"""A word that more lessons have than this tells nothing where all agents' are searched."""
FEW, OFTEN = 50, 0.4
"""Likewise one that more than so many, and more than this share of an agent's lessons have."""
NAME_WEIGHT = 2.0
"""What the word for a whole name counts: who says it means it."""
MOST_WORDS = 48
"""Words of a question that are looked up; names come first."""

_LAST = 2**63 - 1
"""The largest number that SQLite knows."""

# A name: has a digit, `_`, `/`, `--`, a dot inside, or a capital inside a word.
_NAME = re.compile(r"(?<!\w)(?:--\w[\w-]*|[./~]*\w+(?:[./:\\-]+\w+)*)")
_TELLING = re.compile(r"\d|_|/|\\|^--|\w\.\w|::|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORD = re.compile(r"\w+")
_PARTS = re.compile(r"[/\\:]+")
_JOINTS = re.compile(r"\W+")
_EDGES = re.compile(r"^\W+|\W+$")
_EMPTY = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be been but by can could did do does for from had has have how i if in into is "
        "it its me my no not of on or our should so such than that the their them then there these they this "
        "to up was we were what when where which who why will with would you your",
    )
)


def names_in(text: str) -> list[str]:
    """Return the identifiers of a text as they stand there: error codes, file, option and tool names."""
    found = (one for one in _NAME.findall(text) if not one[1:].islower() or not one.isalpha())  # most words
    return list(dict.fromkeys(one for one in found if _TELLING.search(one)))


def folded(name: str) -> list[str]:
    """Return the words that stand for a name as a whole, and for each part of a path."""
    parts = [part for part in _PARTS.split(name) if part]
    whole = [name, *parts] if len(parts) > 1 else [name]
    joined = (_JOINTS.sub("_", _EDGES.sub("", one)).lower() for one in whole)
    return list(dict.fromkeys(one for one in joined if one))


def searchable(text: str) -> str:
    """Return a text with the words that stand for its names: SQLite would take these apart."""
    apart = (word for name in names_in(text) if _JOINTS.search(name) for word in folded(name))
    return " ".join([text, *dict.fromkeys(apart)])


def words_in(text: str) -> list[str]:
    """Return what is looked up for a question, each word once: its names, then its other words."""
    names = (word for name in names_in(text) for word in folded(name))
    others = (word for word in _WORD.findall(text.lower()) if word not in _EMPTY)
    return list(dict.fromkeys([*names, *others]))[:MOST_WORDS]


class FullText:
    """Search the words of active lessons: those of all agents, or those whose numbers are `among` two.

    SQLite's own `bm25()` counts each word in all documents for every search, which takes 25 ms and more for a
    common word of 100,000 lessons. So a word's weight comes of the lessons that are searched alone, and that
    a lesson has a word counts, not how often: lessons are short. The words that tell nothing are remembered.
    For one thread's connection at a time.
    """

    def __init__(self, among: tuple[int, int] | None = None) -> None:
        self._among = among or (0, _LAST)
        self._most = -1 if among else COMMON + 1
        self._common: set[str] = set()

    def scores(self, connection: Connection, text: str, count: int) -> dict[int, float]:
        """Return the lessons that have words of a text, each with the sum of the words' weights.

        `count` is how many are searched. What has none of the rarer words is found if nothing has, and it has
        all the common ones.
        """
        found: dict[int, float] = {}
        common: list[str] = []
        names = {folded(name)[0] for name in names_in(text) if not name.isdecimal()}
        often = COMMON if self._most > 0 else max(FEW, int(count * OFTEN))
        for word in words_in(text):
            numbers = [] if word in self._common else self._having(connection, word, often + 1)
            if word in self._common or len(numbers) > often:
                common.append(word)
                continue
            weight = log(1 + (count - len(numbers) + 0.5) / (len(numbers) + 0.5)) if numbers else 0.0
            if word in names:
                weight *= NAME_WEIGHT
            for number in numbers:
                found[number] = found.get(number, 0.0) + weight
        self._common.update(common)
        if not found and common:
            found = dict.fromkeys(self._having(connection, '" AND "'.join(common), self._most), 1.0)
        return found

    def having(self, connection: Connection, name: str) -> set[int]:
        """Return the lessons that hold a name as a whole."""
        return {number for word in folded(name)[:1] for number in self._having(connection, word, self._most)}

    def _having(self, connection: Connection, words: str, most: int) -> list[int]:
        rows = connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
            (f'"{words}"', *self._among, most),
        )
        return [number for (number,) in rows]
