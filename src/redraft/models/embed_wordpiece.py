"""WordPiece: a text as the ids that BERT's uncased models read."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LONGEST_WORD = 100
"""Characters of a word beyond which it is unknown, as BERT's own tokenizer has it."""

# What a control character parts for Python's `\s` (vertical tabs, separators of files) is not parted here:
# the reference drops control characters first.
_CHUNK = regex.compile(r"[^\t\n\r\p{Z}]+")
_DROPPED = regex.compile(r"[\p{Cc}\p{Cf}\p{Co}\p{Cs}\uFFFD]")
_IDEOGRAPH = regex.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)
_ACCENT = regex.compile(r"\p{Mn}")
_WORD = regex.compile(r"[\p{P}$+<=>^`|~]|[^\s\p{P}$+<=>^`|~]+")


class WordPiece:
    """Cut texts into the pieces of a vocabulary, each the longest that fits, and tell their ids.

    `vocabulary` maps pieces to ids; one that goes on inside a word starts with `##`. Text is lowercased and
    loses accents and control characters; punctuation and Chinese characters stand alone. A word that no
    pieces make up is `[UNK]`. A marker such as `[SEP]` inside a text is text, whoever wrote it.
    Source: Devlin et al., 2018, and the tokenizer published with it.
    """

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._ids = vocabulary
        self._first, self._last = vocabulary["[CLS]"], vocabulary["[SEP]"]
        self._unknown = [vocabulary["[UNK]"]]

    def __call__(self, text: str, limit: int) -> list[int]:
        """Return at most `limit` ids (at least 2), the first and last of which are `[CLS]` and `[SEP]`.

        What is beyond the limit is not looked at, so that a long text costs no more than a page.
        """
        room = limit - 1
        ids = [self._first]
        for word in words(text):
            ids += self._pieces(word)
            if len(ids) >= room:
                break
        return [*ids[:room], self._last]

    def _pieces(self, word: str) -> list[int]:
        if len(word) > LONGEST_WORD:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (piece := self._ids.get(prefix + word[start:end])) is not None:
                    found.append(piece)
                    start = end
                    break
            else:
                return self._unknown
        return found


def words(text: str) -> Iterator[str]:
    """Yield the words and marks of a text, normalised, in their order."""
    for chunk in _CHUNK.finditer(text):
        clean = _DROPPED.sub("", chunk[0])
        if not clean.isascii():
            clean = _IDEOGRAPH.sub(r" \g<0> ", clean)
            # The reference lowercases letter by letter, so that the last sigma of a word is like any other.
            clean = _ACCENT.sub("", unicodedata.normalize("NFD", clean)).replace("\u03a3", "\u03c3")
        yield from _WORD.findall(clean.lower())
