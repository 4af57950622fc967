"""Glossary: what introduces personal data in other languages, such as `Nachname` or `电话`, in English."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redraft.redact.letters import CASELESS, IDEOGRAPH, POINTS, folded, is_hangul, unaccented

if TYPE_CHECKING:
    from collections.abc import Iterator


def translations(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of the glossary's words in a text, from left to right, each with its English."""
    pattern, words = _glossary()
    plain = unaccented(text)
    data = plain.encode("utf-8", "replace")
    at = place = 0  # the same place in bytes and in characters
    while match := pattern.search(data, at):
        first, last = match.span()
        start = place + len(data[at:first].decode())
        end = start + len(data[first:last].decode())
        key = _key(plain[start:end])
        # An inflected word is known by its longest beginning in the glossary.
        stems = (key[:size] for size in range(len(key), 2, -1) if key[:size] in words)
        word = words.get(key) or words.get(next(stems, ""))
        if word is not None and word.is_word_at(text, start, end):
            yield start, end, _spaced(text, start, end, word.english)
            at, place = last, end
        else:
            at, place = first + len(plain[start].encode("utf-8", "replace")), start + 1


class _Word:
    """An entry of the glossary, and where it is a word rather than a part of another."""

    def __init__(self, written: str, english: str) -> None:
        self.english = english
        self.stem = _key(_POINTS.sub("", unaccented(written.removesuffix("*"))))
        self.spellings = {_key(written)}
        plain = folded(self.stem)
        self._is_latin = self.stem.isascii()
        self._is_spaced = plain[0] not in _UNSPACED
        self._is_korean = is_hangul(written[0])
        self._is_title = english in _TITLES_AFTER

    def is_word_at(self, text: str, start: int, end: int) -> bool:
        before, after = text[start - 1 : start], text[end : end + 1]
        if self._is_latin:  # it may be part of a name in code, or of random text
            is_exact = end - start >= _LONG or _key(text[start:end]) in self.spellings
            is_surname = text[start].isupper() and _AFTER_NAME.search(text[max(0, start - _NEAR) : start])
            is_part = _IN_LATIN.match(before) or _AFTER_LATIN.match(text, end)
            return is_exact and not is_part and (not is_surname or after in _SETS)
        if self._is_korean:
            is_word = not is_hangul(after) or after in _PARTICLES
            return is_word and (self._is_title or not is_hangul(before))
        if not self._is_spaced:
            return end - start > 1 or not self._is_title or folded(after) != IDEOGRAPH
        return not _is_letter(after) and _PREFIXES.fullmatch(_word_before(text, start)) is not None


_POINTS = re.compile(f"[{POINTS}]")
_LONG = 6
"""Letters from which a word in the Latin script is also recognised without its accents."""
_UNSPACED = ("\x81", "\x82", "\u0e01")
"""Letters of scripts that put no spaces between words."""
_TITLES_AFTER = ("\x83", "\x84")
_PARTICLES = tuple("은는이가을를의에께도와과로만까부")
_IN_LATIN = re.compile(r"[\w.+/=@$\\%~-]")
_AFTER_LATIN = re.compile(r"[\w+/@\\%~-]|\.\w|\(\)")
_AFTER_NAME = re.compile(r"[A-Z]\w+\.? $")
_NEAR = 24
_SETS = (":", "=")
_PREFIXES = re.compile(
    "|[\u05d1\u05d4\u05d5\u05db\u05dc\u05de\u05e9]{1,2}|\u0648?(?:\u0627\u0644|\u0628\u0627\u0644"
    "|\u0644\u0644|\u0628|\u0644)?"
)
"""Hebrew and Arabic words that are joined to the next one: and, the, in, to."""


@cache
def _glossary() -> tuple[Any, dict[str, _Word]]:
    # Imported on first use; it has no type hints.
    import re2  # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

    words: dict[str, _Word] = {}
    sources: set[str] = set()
    for line in Path(__file__).with_name("glossary.txt").read_text("utf-8").splitlines():
        english, is_entry, written = line.partition(" = ")
        if not is_entry or line.startswith("#"):
            continue
        for spelling in written.split(" | "):
            word = _Word(spelling, english.replace("\\x83", "\x83").replace("\\x84", "\x84"))
            earlier = words.setdefault(word.stem, word)
            earlier.spellings |= word.spellings
            source = re.escape(word.stem).replace(r"\ ", r"\s+")
            sources.add(source + r"\pL*" if spelling.endswith("*") else source)
    engine: Any = re2
    options = engine.Options()
    options.case_sensitive = False
    options.longest_match = True
    options.never_capture = True
    options.max_mem = 64 << 20
    return engine.compile("|".join(sorted(sources)).encode(), options), words


def _key(text: str) -> str:
    return " ".join(text.lower().split())


def _spaced(text: str, start: int, end: int, english: str) -> str:
    """Add spaces to the English word where it would touch a neighbouring word."""
    before = " " if text[start - 1 : start].isalnum() else ""
    after = text[end : end + 1]
    return before + english + (" " if after.isalnum() or after in ("@", '"') else "")


def _word_before(text: str, end: int) -> str:
    start = end
    while start and end - start <= _LONG and _is_letter(text[start - 1]):
        start -= 1
    return text[start:end]


def _is_letter(char: str) -> bool:
    return char.isalpha() or char == "_" or (char != "" and folded(char) == CASELESS)
