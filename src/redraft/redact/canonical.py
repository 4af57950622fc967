"""Canonical: a text without disguises, in ASCII letters whatever its script, with labels in English."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cache
from html import unescape
from typing import TYPE_CHECKING

from redraft.redact.glossary import translations
from redraft.redact.kinds import MARK
from redraft.redact.letters import POINTS, folded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WITHHELD = "\x01"
"""The character that a mark becomes: no finder takes it for part of a word, and no text has another."""


def canonical(text: str) -> View:
    """Undo the disguises of a text; a mark becomes one character that no finder matches."""
    plain = text
    if not text.isascii():
        # Replacing letter by letter is quicker than a pattern: a text has few different letters to fold.
        for letter in _folds().keys() & set(text):
            plain = plain.replace(letter, _folds()[letter])
    root = View(text)
    # One letter for one letter, so that positions stay the same.
    view = root if plain == text else View(plain, root, [0], [(0, len(text))])
    if "\x00" in plain:  # UTF-16 that was read as one byte a character
        view = view.substituted(_WIDE, lambda match: _NUL.sub("", match.group()))
    undisguised = view.substituted(_DISGUISE, _undisguised)
    return undisguised.replaced(translations(undisguised.text))


def unescaped(view: View) -> list[View]:
    """Undo percent, backslash and HTML escapes: one view for each layer of escapes."""
    layers: list[View] = []
    for _ in range(_DEPTH):
        deeper = view.substituted(_ESCAPE, _plain)
        if deeper is view:
            break
        view = deeper.substituted(_HIDDEN, lambda _: "")
        layers.append(view)
    return layers


def joined(view: View) -> View:
    """Remove line breaks and the indentation after them."""
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
    _plain: str | None = None
    _data: bytes | None = None

    @property
    def plain(self) -> str:
        """The text, folded by `redraft.redact.letters.folded`."""
        if self._plain is None:
            self._plain = folded(self.text)
        return self._plain

    @property
    def data(self) -> bytes:
        """The plain text in Latin-1."""
        if self._data is None:
            self._data = self.plain.encode("latin-1")
        return self._data

    def substituted(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> View:
        """Replace the matches of `pattern`; returns this view if there are none."""
        return self.replaced((*match.span(), replace(match)) for match in pattern.finditer(self.text))

    def replaced(self, replacements: Iterable[tuple[int, int, str]]) -> View:
        """Replace spans, which are in order, by other text; returns this view if there are none."""
        result = View("", self)
        pieces: list[str] = []
        length = done = 0  # of the new text, and of this one

        def add(piece: str, end: int) -> None:
            nonlocal length, done
            if piece:
                result._starts.append(length)
                result._origins.append((done, end))
                pieces.append(piece)
                length += len(piece)
            done = end

        for start, end, replacement in replacements:
            add(self.text[done:start], start)
            add(replacement, end)
        if not done:
            return self
        add(self.text[done:], len(self.text))
        result.text = "".join(pieces)
        return result

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Map a non-empty span of this view to the original text."""
        if self.parent is None:
            return start, end
        return self.parent.origin(*self.in_parent(start, end))

    def in_parent(self, start: int, end: int) -> tuple[int, int]:
        """Map a span of this view to the parent."""
        if self.parent is None:
            return start, end
        return self._character_in_parent(start)[0], self._character_in_parent(end - 1)[1]

    def _character_in_parent(self, position: int) -> tuple[int, int]:
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
_LOOK_ALIKE = {
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u05be",
    "'": "\u2018\u2019\u201a\u2032\u05f3",
    '"': "\u201c\u201d\u201e\u2033\u05f4\u300c\u300d\u300e\u300f\u300a\u300b",
    ",": "\u060c\u3001\ufe50",
    ".": "\u3002\u066b\u0964\u06d4",
    ";": "\u061b",
    "?": "\u061f",
    "#": "\u2116",
    "\xb7": "\u30fb\u2022",
}
_UNSEEN = (
    f"{POINTS}\x02-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5"
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
    # Other text after an escape character stays: a terminal's link may hold a secret.
    rf"|(?P<left>(?<=[\x00\x01\x1b])[\x00\x01\x1b]*)|(?P<unseen>(?<=[{_UNSEEN}])[{_UNSEEN}]*))"
)
_HIDDEN = re.compile(rf"[\\\x1b{_UNSEEN}](?:{_CODES}|(?<=[{_UNSEEN}])[{_UNSEEN}]*)")
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
