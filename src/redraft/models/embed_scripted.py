"""ScriptedEmbedder: the fake that is shipped, for tests of what searches by meaning."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING

from redraft.core.errors import ConfigError
from redraft.models.embed_rows import unit_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

_WORD = re.compile(r"\w+")


class ScriptedEmbedder:
    """Embed by words: texts are the nearer the more words they share, on every machine alike.

    Every word, in lower case, adds 1 to one of the `dimensions` (at least 2), picked by a hash of the word;
    the first is for the text that has no word. `texts` holds what was asked, in order. It knows no meaning:
    two words for one thing are strangers. Raises `ConfigError` for too few dimensions.
    """

    def __init__(self, dimensions: int = 256) -> None:
        if dimensions < 2:  # noqa: PLR2004 (one for no word, one for words)
            raise ConfigError(f"ScriptedEmbedder: dimensions must be at least 2, got {dimensions!r}.")
        self.name = f"scripted:{dimensions}"
        self.texts: list[str] = []
        self._dimensions = dimensions

    async def __call__(self, texts: Sequence[str], /) -> list[list[float]]:
        """Return the unit vectors of `texts`."""
        self.texts += texts
        return unit_rows(self.name, [self._counts(text) for text in texts], len(texts))

    def _counts(self, text: str) -> list[float]:
        counts = [0.0] * self._dimensions
        for word in _WORD.findall(text.lower()):
            digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            counts[1 + int.from_bytes(digest) % (self._dimensions - 1)] += 1.0
        if not any(counts):
            counts[0] = 1.0
        return counts
