"""Letters: each character as the finders read it, so that one pattern serves all scripts."""

from __future__ import annotations

import re
import unicodedata

CASELESS = "\x80"
"""A letter of a script without capitals and with spaces between words: Arabic, Hebrew, Devanagari, Hangul."""
IDEOGRAPH = "\x81"
"""A Chinese character, also in Japanese."""
KANA = "\x82"
"""A letter of the Japanese syllabaries."""
OTHER = "\xbf"
"""Any other character outside of Latin-1."""
POINTS = "\u0300-\u036f\u05b0-\u05bd\u05bf\u05c1\u05c2\u064b-\u0652\u0670\u093c"
"""Combining accents, points and vowels, as a class of a pattern."""
# These bytes are control characters, which `canonical` removes.


def folded(text: str) -> str:
    """Text of the same length in Latin-1: letters of cased scripts in ASCII, other letters as their class.

    `Zoë` becomes `Zoe`, `Анна` becomes `Anna`; digits of all scripts become ASCII digits.
    """
    return text if text.isascii() else text.translate(_FOLDING)


def unaccented(text: str) -> str:
    """Text of the same length in the same script, without accents and points."""
    return text if text.isascii() else text.translate(_BASES)


def is_latin(letter: str) -> bool:
    """Whether a letter is of the Latin script."""
    return letter.isascii() or unicodedata.name(letter, "").startswith("LATIN")


def is_hangul(char: str) -> bool:
    """Whether a character is a Korean syllable."""
    return "\uac00" <= char <= "\ud7a3"


class _Folding(dict[int, str]):
    def __missing__(self, code: int) -> str:
        self[code] = letter = _folded_letter(chr(code))
        return letter


class _Bases(dict[int, str]):
    def __missing__(self, code: int) -> str:
        letter = chr(code)
        base, *marks = unicodedata.normalize("NFD", letter)
        self[code] = base if all(map(unicodedata.combining, marks)) else letter
        return self[code]


_FOLDING, _BASES = _Folding(), _Bases()
_CASED = re.compile(r"(?P<script>\w+) (?:CAPITAL|SMALL) (?:LIGATURE|LETTER) (?P<letter>[A-Z-]+)")
_BY_NAME = {"SHARP": "s", "AE": "a", "OE": "o", "DOTLESS": "i"}
"""Base letters of Latin letters whose Unicode name begins with another word."""
_TABLES = {
    "CYRILLIC": dict(
        zip(
            "\u0430\u0431\u0432\u0433\u0434\u0435\u0436\u0437\u0438\u0439\u043a\u043b\u043c\u043d\u043e\u043f"
            "\u0440\u0441\u0442\u0443\u0444\u0445\u0446\u0447\u0448\u0449\u044a\u044b\u044c\u044d\u044e\u044f"
            "\u0454\u0456\u0491\u0455\u0458\u0459\u045a\u045b\u0452\u045f",
            "abvgdezziiklmnoprstufhccssayieuaeigsjlncdd",
            strict=True,
        )
    ),
    "GREEK": dict(
        zip(
            "\u03b1\u03b2\u03b3\u03b4\u03b5\u03b6\u03b7\u03b8\u03b9\u03ba\u03bb\u03bc"
            "\u03bd\u03be\u03bf\u03c0\u03c1\u03c2\u03c3\u03c4\u03c5\u03c6\u03c7\u03c8\u03c9",
            "abgdezitiklmnxoprsstufhpo",
            strict=True,
        )
    ),
}
_IDEOGRAPHS = ("CJK ", "IDEOGRAPHIC ITERATION")
_KANA = ("HIRAGANA", "KATAKANA")


def _folded_letter(letter: str) -> str:
    if letter < "\xc0":
        return letter
    base = unicodedata.normalize("NFKD", letter)[0]
    category, name = unicodedata.category(letter), unicodedata.name(base, "")
    if category == "Nd":
        return str(unicodedata.decimal(letter))
    if base.isascii() and category[0] == "L":
        return base
    if category[0] == "L" and (cased := _CASED.match(name)):
        table = _TABLES.get(cased["script"], {})
        plain = table.get(base.lower()) or _BY_NAME.get(cased["letter"], cased["letter"][0].lower())
        return plain.upper() if base.isupper() else plain
    if category[0] not in "LM":
        return letter if letter <= "\xff" else OTHER
    return IDEOGRAPH if name.startswith(_IDEOGRAPHS) else KANA if name.startswith(_KANA) else CASELESS
