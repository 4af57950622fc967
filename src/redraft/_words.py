"""The words of a text in any script, in the form in which they are compared."""

from __future__ import annotations

import re
import unicodedata

# Accents of Latin, Greek and Cyrillic letters, vowel points of Hebrew and Arabic, the long stroke of Arabic,
# joiners and soft hyphens, which many writers omit. Marks of Indian and other scripts are letters.
_OPTIONAL = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640"
    "\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u200b-\u200d\u2060\ufeff]+"
)
_VARIANTS = str.maketrans(
    "\u0629\u0649\u06a9\u06cc\u05da\u05dd\u05df\u05e3\u05e5",
    "\u0647\u064a\u0643\u064a\u05db\u05de\u05e0\u05e4\u05e6",
)
"""Arabic letters that are written in two ways, and Hebrew letters with a form for the end of a word."""

# Thai, Lao, Burmese, Khmer, Javanese, Chinese and Japanese have no spaces between words, and Korean adds
# endings to them: a run of these is compared by its pairs of characters.
_PAIRED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1980-\u19df\u1a20-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaa7f"
    "\u3005-\u3007\u3040-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u9fff\ua000-\ua4cf\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_PAIRED}]+)")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)


def folded(text: str) -> str:
    """Normalize case, width, accents, vowel points and invisible characters.

    Marks that are part of a letter stay, as in Japanese and Indian scripts.
    """
    if text.isascii():
        return text.lower()
    # Some letters decompose only after they are folded, and others fold only after they are composed.
    parts = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    return unicodedata.normalize("NFKC", _OPTIONAL.sub("", parts)).translate(_VARIANTS)


def words_of(text: str) -> list[str]:
    """The words of a text in order, folded.

    In scripts without spaces between words, and in Korean, each pair of adjacent characters counts as a word,
    and so does a single character.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    text = folded(text)
    gaps = {ord(one): " " for one in set(text) if not (one.isalnum() or one == "_" or _is_mark(one))}
    words = text.translate(gaps).split()
    if not _RUN.search(text):
        return words
    return [part for word in words for run in filter(None, _RUN.split(word)) for part in _parts(run)]


def _is_mark(character: str) -> bool:
    """Whether a character is a vowel sign or another part of the character before it."""
    return unicodedata.category(character).startswith("M")


def _parts(run: str) -> list[str]:
    if not _RUN.match(run):
        return [run]
    starts = [at for at, character in enumerate(run) if not (at and _is_mark(character))]
    if len(starts) == 1:
        return [run]
    ends = [*starts[2:], len(run)]
    return [run[start:end] for start, end in zip(starts, ends, strict=False)]


def words_in(text: str) -> frozenset[str]:
    """The words of a text, each once."""
    return frozenset(words_of(text))


def overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """Jaccard similarity (0..1) of two sets of words."""
    return len(words & others) / len(words | others) if words or others else 1.0


def is_latin(text: str) -> bool:
    """Whether at least half of the letters of a text are Latin."""
    if text.isascii():
        return True
    letters = [character for character in text if character.isalpha()]
    return 2 * sum(character < "\u0250" for character in letters) >= len(letters)
