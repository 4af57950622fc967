"""Full-text search for short texts full of identifiers, in any script, on SQLite's FTS5."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from sqlite3 import Connection
from typing import NamedTuple

from redraft._words import is_latin, words_of

MOST_WORDS = 48
"""Maximum words of a question that are looked up, names first."""
NAME_WEIGHT = 2.0
"""The weight of a whole name, relative to that of a word."""
MOST_ROWS = 5_000
"""Maximum rows that match by common words alone."""
INFLECTED, ENDING = 6, 2
"""Letters of the shortest word that is also looked up without its ending, and letters of the ending."""


def damping(words: int) -> float:
    """The divisor of the score of a row with this many words: long rows match more words by chance.

    The fourth root, the weight of names and `ranking.NAME_BOOST` did best on recorded reflections.
    """
    return words**0.25


class TextMatch(NamedTuple):
    """How well a row matches a text, by the words that both have."""

    share: float
    """The share (0..1) of the best score; long rows score less."""
    coverage: float
    """The share (0..1) of the text that the row has, by the weights of its words."""


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

    def matches(self, text: str) -> dict[int, TextMatch]:
        """How well each row matches a text, for rows that have words of it."""
        coverages = self._coverages(text)
        scores = {row: coverage / self.searched[row] for row, coverage in coverages.items()}
        best = max(scores.values(), default=0.0)
        return {row: TextMatch(scores[row] / best, coverage) for row, coverage in coverages.items()}

    def rows_with_name(self, name: str) -> list[int]:
        """The rows that contain a whole name."""
        for token in tokens_of(name)[:1]:
            return self._rows_with(f'"{token}"') or self._rows_with(f'"{spelled(token)}"')
        return []

    def rows_with_sentence(self, sentence: str) -> list[int]:
        """The rows that contain the words of a sentence in order."""
        return self._rows_with(f'"{" ".join(stems_of(sentence))}"')

    def _coverages(self, text: str) -> dict[int, float]:
        """The share of the weight of a text's words that each row has.

        A name without a row is looked up in other spellings, and a word in Latin letters by its beginning,
        unless the text is English: most languages inflect words at the end. If no row has a rare word, the
        rows with all common words score 1.
        """
        weights: dict[int, float] = {}
        common: list[str] = []
        count, total = len(self.searched), 0.0
        names = {tokens_of(name)[0] for name in names_in(text) if not name.isdecimal()}
        inflects = not is_english(stems_of(text))
        for word in search_words(text):
            rows = self._rows_with(f'"{word}"', self.common + 1)
            if not rows and word in names:
                rows = self._rows_with(f'"{spelled(word)}"', self.common + 1)
            elif not rows and inflects and len(word) >= INFLECTED and word.isalpha() and is_latin(word):
                rows = self._rows_with(f'"{word[:-ENDING]}" *', self.common + 1)
            if len(rows) > self.common:
                common.append(word)
                continue
            weight = log(1 + (count - len(rows) + 0.5) / (len(rows) + 0.5))
            weight *= NAME_WEIGHT if word in names else 1.0
            total += weight
            for row in rows:
                weights[row] = weights.get(row, 0.0) + weight
        if not weights and common:
            every = " AND ".join(f'"{word}"' for word in common)
            return dict.fromkeys(self._rows_with(every, MOST_ROWS), 1.0)
        return {row: weight / total for row, weight in weights.items()}

    def _rows_with(self, expression: str, limit: int = -1) -> list[int]:
        rows = self.connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? AND rowid BETWEEN ? AND ? LIMIT ?",
            (expression, self.first, self.last, limit),
        )
        return [row for (row,) in rows if row in self.searched]


# --- words and names ---------------------------------------------------------------------------------------

# Identifiers are in Latin letters, whatever the script of the text around them.
_LETTER = r"[0-9A-Za-z_\u00c0-\u024f]"
_NAME = re.compile(
    rf"(?<!{_LETTER})(?:--{_LETTER}+(?:-+{_LETTER}+)*|[./~]*{_LETTER}+(?:[./:\\-]+{_LETTER}+)*)"
)
# A name has a digit, `_`, `/`, `--`, a dot inside, or a capital inside a word.
_IDENTIFIER = re.compile(r"\d|_|/|\\|^--|\w\.\w|::|[a-z][A-Z]|[A-Z]{2}[a-z]")
_PATH_SEPARATORS = re.compile(r"[/\\:]+")
_JOINTS = re.compile(r"\W+")
_UNDERSCORES = re.compile(r"(?<=[^_])_+(?=[^_])")
_EDGES = re.compile(r"^\W+|\W+$")


def names_in(text: str) -> list[str]:
    """The identifiers in a text, as written: error codes, files, options, tools, classes."""
    # Most words are plain, and `islower` is faster than the pattern.
    candidates = (name for name in _NAME.findall(text) if not name[1:].islower() or not name.isalpha())
    return list(dict.fromkeys(name for name in candidates if _IDENTIFIER.search(name)))


def tokens_of(name: str) -> list[str]:
    """The token of a whole name, then those of the parts of a path."""
    parts = [part for part in _PATH_SEPARATORS.split(name) if part]
    texts = (name, *(parts if len(parts) > 1 else ()))
    joined = (_JOINTS.sub("_", _EDGES.sub("", text)).lower() for text in texts)
    return list(dict.fromkeys(filter(None, joined)))


def spelled(token: str) -> str:
    """The common form of all spellings of a name: `order_total`, `order-total` and `orderTotal`."""
    return _UNDERSCORES.sub("", token)


def searchable(text: str) -> str:
    """The stems of a text in order, then the tokens of its names, which FTS5 would split."""
    names = [token for name in names_in(text) for token in tokens_of(name)]
    return " ".join([*stems_of(text), *dict.fromkeys([*names, *map(spelled, names)])])


def search_words(text: str) -> list[str]:
    """The distinct words of a question to look up: its names, then the rest."""
    names = (token for name in names_in(text) for token in tokens_of(name))
    stems = stems_of(text)
    stop_words = _ENGLISH if is_english(stems) else _STOP_WORDS
    others = [stem for stem in stems if not (stem in stop_words or _STOP_PAIR.fullmatch(stem))]
    return list(dict.fromkeys([*names, *(others or stems)]))[:MOST_WORDS]


def is_english(stems: list[str]) -> bool:
    """Whether a text may be English: it has no more stop words of other languages than of English."""
    return sum(stem in _STOP_WORDS for stem in stems) <= 2 * sum(stem in _ENGLISH for stem in stems)


# --- stems -------------------------------------------------------------------------------------------------

_STEM = 5
"""Letters of a Greek, Cyrillic, Armenian or Georgian word that are looked up; the rest is inflection."""
# Endings, and the conjunctions, prepositions and articles that are written together with the word.
_ARABIC_PREFIX = re.compile("^(?:[وفبكل]?ال|لل|[وفبكل])(?=.{3})")
_ARABIC_ENDING = re.compile("(?<=.{3})(?:ها|ان|ات|ون|ين|يه|ه|ي)$")
_HEBREW_PREFIX = re.compile("^[והבכלמש]{1,3}(?=.{3})")
_HEBREW_ENDING = re.compile("(?<=.{3})(?:ים|ות|[התי])$")


def stems_of(text: str) -> list[str]:
    """The words of a text in order, without inflections; FTS5 removes those of English."""
    words = words_of(text)
    return words if text.isascii() else [_stem(word) for word in words]


def _stem(word: str) -> str:
    first = word[0]
    if "\u0370" <= first < "\u0590" or "\u10a0" <= first < "\u1100":
        return word[:_STEM]
    if "\u0590" <= first < "\u0600":
        return _HEBREW_PREFIX.sub("", _HEBREW_ENDING.sub("", word))
    if "\u0600" <= first < "\u0780":
        return _ARABIC_ENDING.sub("", _ARABIC_PREFIX.sub("", word))
    return word


# --- stop words --------------------------------------------------------------------------------------------

# ruff: noqa: RUF001, E501 (letters of other scripts)
# Words without meaning for a task, except those that are English words, too ("die", "war").
_ENGLISH = frozenset(
    words_of(
        "a an and are as at be been but by can could did do does for from had has have how i if in into is "
        "it its me my no not of on or our should so such than that the their them then there these they this "
        "to up was we were what when where which who why will with would you your"
    )
)
_STOP_WORDS = _ENGLISH | frozenset(
    stems_of(
        "aber als am auf aus bei das dass dem den der des durch ein eine einem einen einer es für ich im ist "
        "kein keine mit nach nicht oder sein sich sie sind um und uns vom von werden wie wir wird zu zum zur "
        "au aux avec ce ces cette dans de des du elle en est et être il je la le les leur mais ne nous ou par "
        "pas pour que qui sa se ses son sont sur un une vous "
        "al como con del el es esta este la las lo los más ni para pero por se sin sobre su sus un una y "
        "che da dal dei della delle di gli ho il la le nel nella non per più si sono sulla un una "
        "ao aos com da das do dos e em foi mas na nas no nos não o os ou para pela pelo que se sem um uma "
        "aan bij dat de dit een en er het hij met naar niet nog om ook te uit van voor wij zijn "
        "без был бы в во вы для до его её если же за и из или их к как ко ли мне мы на над не но о об он она "
        "они от по под при с со так то у что чтобы эта это этот я "
        "από αν αυτό για δεν είναι ένα ένας εγώ ή θα και κατά με μη μια μία να ο η οι όπως που προς σας σε στα "
        "στη στην στις στο στον στους τα τη την της τι τις το τον του τους των ως "
        "إلى أن أو إذا التي الذي أنا عن على في قد كان لا لم لن ما مع من هذا هذه هل هو هي و "
        "אבל או אם אני את הוא היא זה זו יש כי כל כמו לא לי מה מי עם על של שלא "
        "और का कि की के को क्या जो तो था थे न नहीं ने पर भी में यह या वह से हम है हैं हो"
    )
)
_STOP_PAIR = re.compile(
    "[\u3040-\u309f]+|[的了是在和与及把被请这那个们着过吗呢吧].?|.[的了是们着过吗呢吧]|一."
)
"""Pairs of characters that are grammar: all in Hiragana, or with a Chinese particle."""
