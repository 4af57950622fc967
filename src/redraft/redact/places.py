"""Places: the names of this machine and its user, where they stand as such."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from redraft.redact.kinds import Found, Kind
from redraft.redact.words import word_set

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from redraft.redact.view import View

_ANYBODY = word_set(
    "root user admin administrator app ubuntu debian runner vscode node guest nobody git test dev "
    "build docker www-data daemon localhost server main host master worker laptop desktop home "
    "computer machine linux"
)
_SHORTEST = 4


class Places:
    """Find names of the machine as whole words, whatever their case: ordinary words are left out."""

    def __init__(self, names: Mapping[str, Kind]) -> None:
        self._kinds = {
            name.lower(): kind
            for name, kind in names.items()
            if len(name) >= _SHORTEST and name.lower() not in _ANYBODY
        }
        # Longest first: a home folder holds the name of its user.
        longest_first = sorted(self._kinds, key=len, reverse=True)
        words = "|".join(re.escape(name) for name in longest_first)
        self._pattern = re.compile(rf"(?i)(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])") if words else None

    def find(self, view: View) -> Iterator[Found]:
        """Yield where the names stand in a view."""
        if self._pattern is not None:
            for match in self._pattern.finditer(view.text):
                yield Found(match.start(), match.end(), self._kinds[match.group().lower()])
