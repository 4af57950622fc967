"""Values that are known to be secret, in every form that a text may hold them in."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redraft.redact.canonical import canonical, joined
from redraft.redact.engine import spans
from redraft.redact.kinds import Found, Kind, mark
from redraft.redact.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORTEST = 8
"""A shorter value would be found in ordinary words; the shapes find it where it stands as a secret."""

_SIXES = 6
_BYTE = 8
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=")
_HEX = frozenset("0123456789abcdefABCDEF")
_NEVER = frozenset({"changeme", "disabled", "enabled!", "required", "optional", "localhost", "postgres"})
_Form = tuple[Kind, frozenset[str]]  # what it is, and the letters of its encoding
_MARKS = " ".join(mark(kind) for kind in Kind)


@dataclass(slots=True)
class Known:
    """Find known values: as they are, in Base64 at any offset, in hexadecimal, across line breaks.

    Percent, backslash and HTML escapes are undone before a text comes here. Values that are part of a mark,
    or that stand in every other text (`localhost`), are left out.
    """

    values: Mapping[str, Kind]
    _forms: dict[str, _Form] = field(default_factory=dict[str, _Form])
    _source: str = ""

    def __post_init__(self) -> None:
        for value, kind in self.values.items():
            plain = canonical(value).text
            if plain in _MARKS or plain.lower() in _NEVER:
                continue
            raw = value.encode("utf-8", "surrogatepass")
            # What was escaped byte for byte is undone byte for byte.
            for form in (value, plain, canonical(raw.decode("latin-1")).text):
                self._forms.setdefault(form, (kind, frozenset()))
            for form in _base64_forms(raw):
                self._forms.setdefault(form, (kind, _BASE64))
            for form in (raw.hex(), raw.hex().upper()):
                self._forms.setdefault(form, (kind, _HEX))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._source = "|".join(_quoted(form) for form in longest_first)

    def find(self, view: View) -> Iterator[Found]:
        """Yield where known values stand in a view."""
        if not self._forms:
            return
        yield from self._in(view)
        if "\n" in view.text and (flat := joined(view)) is not view:
            for start, end, kind in self._in(flat):
                yield Found(*flat.up(start, end), kind)

    def _in(self, view: View) -> Iterator[Found]:
        text, done = view.text, 0
        for start, end in spans(self._source, view.data):
            form = self._forms.get(text[start:end])
            # Two characters that Latin-1 does not know look the same to the engine.
            if form is None or end <= done:
                continue
            kind, alphabet = form
            # What stands beside the core of an encoding holds a few bits of the value, too.
            first, done = _widened(text, start, end, alphabet)
            yield Found(first, done, kind)


def _widened(text: str, start: int, end: int, alphabet: frozenset[str]) -> tuple[int, int]:
    while start and text[start - 1] in alphabet:
        start -= 1
    while end < len(text) and text[end] in alphabet:
        end += 1
    return start, end


def _quoted(form: str) -> str:
    data = View(form).data.decode("latin-1")
    return re.sub(r"[^A-Za-z0-9_]", lambda match: f"\\x{ord(match.group()):02x}", data)


def _base64_forms(raw: bytes) -> Iterator[str]:
    """Yield the characters that stand in Base64 for these bytes alone, wherever in a longer text they are."""
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).decode("ascii")
        first = -(-offset * _BYTE // _SIXES)
        last = (offset + len(raw)) * _BYTE // _SIXES
        core = encoded[first:last]
        yield core
        yield core.replace("+", "-").replace("/", "_")
