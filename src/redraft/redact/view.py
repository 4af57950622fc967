"""View: a text as a finder should see it, with the way back to the text as it was."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_BEYOND_LATIN = re.compile(r"[^\x00-\xff]")
_STAND_IN = "\xbf"


@dataclass(slots=True)
class View:
    """Hold a text, and where each of its characters comes from in the text it was made of."""

    text: str
    parent: View | None = None
    _starts: list[int] = field(default_factory=list[int])
    """Where each piece begins here; the pieces follow each other without gaps."""
    _origins: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Where each piece begins and ends in the parent."""
    _data: bytes | None = None

    @property
    def data(self) -> bytes:
        """Return the text as bytes, one a character; what Latin-1 lacks is a question mark, inverted."""
        if self._data is None:
            text = self.text if self.text.isascii() else _BEYOND_LATIN.sub(_STAND_IN, self.text)
            self._data = text.encode("latin-1")
        return self._data

    def substituted(self, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> View:
        """Return a view in which the matches of `pattern` read otherwise; itself, where there is none."""
        made = View("", self)
        pieces: list[str] = []
        here = there = 0

        def add(piece: str, end: int) -> None:
            nonlocal here, there
            if piece:
                made._starts.append(here)
                made._origins.append((there, end))
                pieces.append(piece)
                here += len(piece)
            there = end

        for match in pattern.finditer(self.text):
            add(self.text[there : match.start()], match.start())
            add(replace(match), match.end())
        if not there:
            return self
        add(self.text[there:], len(self.text))
        made.text = "".join(pieces)
        return made

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of this view, not an empty one, stands in the text at the root."""
        if self.parent is None:
            return start, end
        return self.parent.origin(*self.up(start, end))

    def up(self, start: int, end: int) -> tuple[int, int]:
        """Return where a stretch of this view stands in the text that it was made of."""
        if self.parent is None:
            return start, end
        return self._up(start)[0], self._up(end - 1)[1]

    def _up(self, position: int) -> tuple[int, int]:
        """Return the stretch of the parent that one character comes from."""
        piece = bisect_right(self._starts, position) - 1
        first, last = self._origins[piece]
        begins = self._starts[piece]
        ends = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self.text)
        length = ends - begins
        if last - first != length:
            return first, last
        at = first + position - begins
        return at, at + 1
