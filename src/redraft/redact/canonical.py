"""Canonical: a text without terminal codes, invisible characters, look-alike letters and escapes."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from typing import TYPE_CHECKING

from redraft.redact.kinds import MARK

if TYPE_CHECKING:
    from collections.abc import Callable

WITHHELD = "\x01"
"""The character that a mark becomes: no finder takes it for part of a word, and no text has another."""


def canonical(text: str) -> View:
    """Return a text without disguises; a mark becomes one character that no finder matches."""
    plain = text if text.isascii() else _folded(text)
    root = View(text)
    # One letter for one letter, so that positions stay the same.
    folded = root if plain == text else View(plain, root, [0], [(0, len(text))])
    if "\x00" in plain:  # UTF-16 that was read as one byte a character
        folded = folded.substituted(_WIDE, lambda match: _NUL.sub("", match.group()))
    if not plain.isascii():  # the finders know Latin letters only
        folded = folded.substituted(_FOREIGN, lambda _: "password")
    return folded.substituted(_DISGUISE, _undisguised)


def unescaped(view: View) -> list[View]:
    """Return a text with its percent, backslash and HTML escapes undone: one view a layer of escapes."""
    layers: list[View] = []
    for _ in range(_DEPTH):
        deeper = view.substituted(_ESCAPE, _plain)
        if deeper is view:
            break
        view = deeper.substituted(_HIDDEN, lambda _: "")
        layers.append(view)
    return layers


def joined(view: View) -> View:
    """Return a text without line breaks and the indentation after them."""
    return view.substituted(_LINE_BREAK, lambda _: "")


@dataclass(slots=True)
class View:
    """A text, and for each character its origin in the text that this one was made from."""

    text: str
    parent: View | None = None
    _starts: list[int] = field(default_factory=list[int])
    """Where each piece begins; there are no gaps between them."""
    _origins: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Where each piece begins and ends in the parent."""
    _data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The text in Latin-1, with an inverted question mark for any other character."""
        if self._data is None:
            text = self.text if self.text.isascii() else _BEYOND_LATIN.sub(_STAND_IN, self.text)
            self._data = text.encode("latin-1")
        return self._data

    def substituted(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> View:
        """Return a view with the matches of `pattern` replaced; this one if there are none."""
        result = View("", self)
        pieces: list[str] = []
        here = there = 0

        def add(piece: str, end: int) -> None:
            nonlocal here, there
            if piece:
                result._starts.append(here)
                result._origins.append((there, end))
                pieces.append(piece)
                here += len(piece)
            there = end

        for match in pattern.finditer(self.text):
            add(self.text[there : match.start()], match.start())
            add(replace(match), match.end())
        if not there:
            return self
        add(self.text[there:], len(self.text))
        result.text = "".join(pieces)
        return result

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the original text that a non-empty span of this view comes from."""
        if self.parent is None:
            return start, end
        return self.parent.origin(*self.up(start, end))

    def up(self, start: int, end: int) -> tuple[int, int]:
        """Return the span in the parent that a span of this view comes from."""
        if self.parent is None:
            return start, end
        return self._up(start)[0], self._up(end - 1)[1]

    def _up(self, position: int) -> tuple[int, int]:
        """Return the span in the parent that one character comes from."""
        piece = bisect_right(self._starts, position) - 1
        first, last = self._origins[piece]
        begins = self._starts[piece]
        ends = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self.text)
        length = ends - begins
        if last - first != length:
            return first, last
        at = first + position - begins
        return at, at + 1


_DEPTH = 3
_ONE_FOR_ONE = ((0xFF01, 0xFF5E), (0x1D400, 0x1D7FF), (0x2460, 0x24FF), (0x1F130, 0x1F149))
_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
_LOOK_ALIKE = {"-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "'": "\u2018\u2019", '"': "\u201c\u201d"}
_UNSEEN = (
    "\x02-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\xad\u034f\u0300-\u036f\u061c\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
# Each begins with a set of first characters, so that the engine can skip to them.
_CODES = (
    r"(?<=[\x1b\x9b\\])(?:(?<=\\)(?:x1b|u001b|033|e))?(?:(?<=\x9b)|\[)[0-?]{0,32}[ -/]{0,4}[@-~]"
    r"|(?<=\x1b)[@-Z\\^_]"
)
_DISGUISE = re.compile(
    rf"[\[\\\x00\x01\x1b{_UNSEEN}](?:(?P<mark>(?<=\[){MARK.pattern[2:]})|(?P<codes>{_CODES})"
    # Other text after an escape character is kept: a terminal's link may hold a secret.
    rf"|(?P<left>(?<=[\x00\x01\x1b])[\x00\x01\x1b]*)|(?P<unseen>(?<=[{_UNSEEN}])[{_UNSEEN}]*))"
)
_HIDDEN = re.compile(rf"[\\\x1b{_UNSEEN}](?:{_CODES}|(?<=[{_UNSEEN}])[{_UNSEEN}]*)")
_FOREIGN = re.compile(
    "\u043f\u0430\u0440\u043e\u043b[\u0430-\u044f]{0,3}"
    "|\u5bc6\u7801|\u5bc6\u78bc|\u53e3\u4ee4|\u30d1\u30b9\u30ef\u30fc\u30c9|\u6697\u8a3c\u756a\u53f7"
    "|\ube44\ubc00\ubc88\ud638|\uc554\ud638"
    "|\u0643\u0644\u0645\u0629 \u0627\u0644(?:\u0645\u0631\u0648\u0631|\u0633\u0631)"
    "|\u05e1\u05d9\u05e1\u05de[\u05d4\u05d0]|\u03ba\u03c9\u03b4\u03b9\u03ba\u03cc\u03c2|has\u0142o|\u015fifre"
    "|\u092a\u093e\u0938\u0935\u0930\u094d\u0921",
    re.IGNORECASE,
)
"""The word password in Russian, Chinese, Japanese, Korean, Arabic, Hebrew, Greek, Polish, Turkish and
Hindi."""
_WIDE = re.compile(r"(?:[\x20-\x7e]\x00){4,}")
_NUL = re.compile("\x00")
_ESCAPE = re.compile(
    r"[%\\&](?:(?<=%)[0-9A-Fa-f]{2}"
    r"|(?<=\\)(?:u\{?([0-9a-fA-F]{4})\}?|x([0-9a-fA-F]{2})|([nrt\"'/`\\]))"
    r"|(?<=&)(?:#\d{1,6}|#[xX][0-9a-fA-F]{1,6}|quot|amp|apos|lt|gt|nbsp);)"
)
_LETTERS = {"n": "\n", "r": "\n", "t": "\t"}
_LINE_BREAK = re.compile(
    r"[\"'][ \t]{0,8}[+\\]?[ \t]{0,8}\r?\n[ \t]{0,40}[\"']|[ \t]{0,8}\\?\r?\n[ \t]{0,40}"
)


@cache
def _folds() -> dict[str, str]:
    folds: dict[str, str] = {}
    for first, last in _ONE_FOR_ONE:
        for letter in map(chr, range(first, last + 1)):
            plain = unicodedata.normalize("NFKC", letter)
            if len(plain) == 1 and plain.isascii():
                folds[letter] = plain
    likes = {**_LOOK_ALIKE, " ": _SPACES, "\n": "\u2028\u2029"}
    return folds | {like: plain for plain, all_like in likes.items() for like in all_like}


def _folded(text: str) -> str:
    # Replacing letter by letter is quicker than one pattern for all: a text has few different ones.
    for letter in _folds().keys() & set(text):
        text = text.replace(letter, _folds()[letter])
    return text


def _undisguised(match: re.Match[str]) -> str:
    if match.lastgroup == "mark":
        return WITHHELD
    return "\n" if match.lastgroup == "left" else ""


def _plain(match: re.Match[str]) -> str:
    text = match.group()
    if text[0] == "&":
        letters = unescape(text)
        return _folds().get(letters, letters)
    if letter := match[3]:
        return _LETTERS.get(letter, letter)
    letter = chr(int(match[1] or match[2] or text[1:], 16))
    return _folds().get(letter, letter)


# --- a text, and the way back to the text that it was made of ---

_BEYOND_LATIN = re.compile(r"[^\x00-\xff]")
_STAND_IN = "\xbf"
