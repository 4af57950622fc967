"""Random-looking tokens: those near a word such as key or password, and long ones anywhere."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.redact.engine import has_any, spans
from redraft.redact.kinds import Found, Kind
from redraft.redact.labels import Strength, strength_of
from redraft.redact.values import is_code, is_placeholder, looks_made, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.redact.view import View

_BEFORE = 60
_BEHIND = 100
_LONGEST = 200
# For patterns as simple as these two, Python's own engine is linear, too, and quicker to be asked.
_WORD = re.compile(rb"[A-Za-z0-9+/_.~!@#$%^&*-]{8,}={0,2}")
_ANNOUNCED = r"(?:password|passphrase|passcode|secret|token|api key|pwd)\b"
_WHOSE = r"(?:the|a|an|my|our|your|his|her|their)"
_AS = (
    rf"(?i:[\"'`]([^\s\"'`]{{4,128}})[\"'`][ \t]{{1,3}}(?:as|for|is|was|being)[ \t]{{1,3}}{_WHOSE}?"
    rf"[ \t]{{0,3}}(?:[a-z]{{1,20}}[ \t]{{1,3}}){{0,2}}{_ANNOUNCED})"
)
_AS_BARE = (
    r"(?i:([^\s\"'`]{6,128})[ \t]{1,3}"
    r"(?:(?:(?:is|was|be|been)[ \t]{1,3}(?:[a-z]{3,9}[ \t]{1,3})?)?as[ \t]{1,3}"
    rf"|(?:is|was)[ \t]{{1,3}}{_WHOSE}[ \t]{{1,3}})(?:[a-z]{{1,20}}[ \t]{{1,3}}){{0,2}}{_ANNOUNCED})"
)


# Letters of both cases with digits between them, alone: no word, hash or number looks like that.
_ALONE = re.compile(rb"(?<![A-Za-z0-9])[A-Za-z0-9]{24,}(?![A-Za-z0-9])")
_JOINS = "_-+/=.~%@"
"""What makes a token part of something longer: an id with a prefix, a path, data in Base64."""
_DATA = ";base64,"
_LINE = 60
_LONGEST_ALONE = 120
_FEWEST_DIGITS = 2
_SHARE_OF_DIGITS = 0.08
_WORD_IN = re.compile(r"[a-z]{6}|[A-Z]{6}")
_LONG_WORD_IN = re.compile(r"[a-z]{8}|[A-Z]{8}")
# Behind a prefix: the ids of requests, calls and objects look the same, and are shorter than keys are.
_KEY = 32
_PREFIX = re.compile(r"(?<![\w/+.~%@-])(?!sha\d)[A-Za-z][A-Za-z0-9]{0,11}(?:[_-][A-Za-z0-9]{1,8}){0,2}[_-]$")
_LONGEST_PREFIX = 40


def nearby(view: View, named: Sequence[tuple[int, int]]) -> Iterator[Found]:
    """Yield random-looking tokens near a word that announces one, and where nothing else can be meant.

    `named` is where such words stand.
    """
    for start, end in _regions(view, named):
        for match in _WORD.finditer(view.data, start, end):
            first = match.start()
            text = view.text[first : match.end()].rstrip(".,;:!?=")
            if looks_random(text) and not is_code(text) and "/" not in text.strip("/")[:8]:
                yield Found(first, first + len(text), Kind.SECRET)
    for match in _ALONE.finditer(view.data):
        start, end = match.span()
        text = view.text[start:end]
        beside = view.text[max(0, start - 1) : start] + view.text[end : end + 1].replace(".", "")
        is_joined = any(char in _JOINS for char in beside) or _is_data(view.text, start, end)
        if not is_joined and len(text) <= _LONGEST_ALONE and looks_random(text) and _is_mixed(text):
            yield Found(start, end, Kind.SECRET)
        elif len(text) >= _KEY and (prefix := _prefix(view.text, start, end)):
            yield Found(start - len(prefix), end, Kind.API_KEY)
    for pattern in (_AS, _AS_BARE) if has_any((_AS, _AS_BARE), view.data) else ():
        for start, end in spans(pattern, view.data):
            text = view.text[start:end]
            if not is_placeholder(text) and looks_made(text) and not is_code(text):
                yield Found(start, end, Kind.PASSWORD)


def _is_data(text: str, start: int, end: int) -> bool:
    """Say whether what stands there is Base64: behind its name, or a whole line among many."""
    is_line = end - start >= _LINE and text[start - 1 : start] in ("", "\n") and text[end : end + 1] == "\n"
    return is_line or text[max(0, start - len(_DATA)) : start] == _DATA


def _prefix(text: str, start: int, end: int) -> str:
    """Return what says whose key stands there, as `acme_` or `acme-key-` do; empty where that is no key."""
    if text[start - 1 : start] not in ("_", "-") or text[end : end + 1] in tuple(_JOINS):
        return ""
    found = _PREFIX.search(text[max(0, start - _LONGEST_PREFIX) : start])
    is_key = found is not None and looks_random(text[start:end]) and _is_mixed(text[start:end])
    return found[0] if found is not None and is_key else ""


def _is_mixed(text: str) -> bool:
    """Say whether letters of both cases and digits are mixed so well that no words can be in it."""
    digits = sum(map(str.isdigit, text))
    if digits < _FEWEST_DIGITS or text.isupper() or text.islower():
        return False
    # In a long one six letters of a case follow one another by chance; a name made of words has few digits.
    is_long = len(text) >= _KEY and digits >= _SHARE_OF_DIGITS * len(text)
    return (_LONG_WORD_IN if is_long else _WORD_IN).search(text) is None


def _regions(view: View, named: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield what is near such words, without overlaps, up to the end of their paragraph."""
    text, done = view.text, 0
    for start, end in named:
        if strength_of(text[start:end]) <= Strength.WEAK:
            continue
        first = max(done, start - _BEFORE)
        last = min(len(text), end + _BEHIND)
        if (gap := text.rfind("\n\n", first, start)) >= 0:
            first = gap
        if (gap := text.find("\n\n", end, last)) >= 0:
            last = gap
        # No token is cut in two: half of one would look like a word, the other half would stay.
        before = text[max(done, first - _LONGEST) : first]
        first -= len(before.rpartition(" ")[2].rpartition("\n")[2])
        behind = text[last : last + _LONGEST]
        last += len(behind.partition(" ")[0].partition("\n")[0])
        if last > first:
            done = last
            yield first, last
