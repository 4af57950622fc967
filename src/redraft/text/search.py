"""Find a text in stored data, whatever its case, spacing, escapes and place in JSON."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from redraft.errors import ConfigError
from redraft.text.characters import without_invisible

TextPredicate: TypeAlias = Callable[[str], bool]
"""Whether a text matches the search."""

SHORTEST = 3
"""Minimum characters of a text to search for; shorter texts match nearly everything."""
DEPTH = 3
"""Maximum levels of escaping, as in JSON inside JSON."""
_ESCAPE = re.compile(r'(?:\\u[0-9a-fA-F]{4})+|\\["\\/bfnrt]')


_JOINERS = re.compile("[\u200c\u200d\ufe0e\ufe0f]")


class TextPattern:
    """A text to search for, whatever its case, white space, Unicode form and escapes.

    It matches across line breaks, in JSON inside strings, and in percent-encoded keys. Raises
    `ConfigError` for a text of fewer than three characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._normalized = _normalized(text)
        if len(self._normalized) < SHORTEST:
            raise ConfigError(f"Expected a text of at least {SHORTEST} characters, got {text!r}.")
        # Most texts lack even this part, which is quick to check.
        self._part = max(self._normalized.split(), key=len)

    def is_in(self, text: str) -> bool:
        """Whether another text contains this text."""
        is_plain = text.isascii() and "\\" not in text and "%" not in text
        if is_plain and self._part not in text.lower():
            return False
        return any(self._normalized in _normalized(form) for form in _forms(text))

    @property
    def spellings(self) -> list[bytes]:
        """Byte sequences that match the text in any file with the same case and white space."""
        forms = {unicodedata.normalize(form, self.text) for form in ("NFC", "NFD")} | {self.text}
        escaped = {json.dumps(form)[1:-1] for form in forms}
        return sorted(form.encode("utf-8", "surrogatepass") for form in forms | escaped)


def _forms(text: str) -> list[str]:
    """A text as it is, and with its escapes resolved."""
    forms = [text]
    for _ in range(DEPTH):
        plain = _ESCAPE.sub(lambda escape: str(json.loads(f'"{escape[0]}"')), forms[-1])
        if plain == forms[-1]:
            break
        forms.append(plain)
    if "%" in text:
        forms.append(unquote(text, errors="replace"))
    return forms


def _normalized(text: str) -> str:
    plain = text if text.isascii() else without_invisible(unicodedata.normalize("NFKC", text))
    plain = _JOINERS.sub("", plain)  # writers use them inconsistently
    return unicodedata.normalize("NFC", " ".join(plain.casefold().split()))


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts and numbers in JSON data of any depth as texts, keys included."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from cast("Mapping[str, Any]", value)
            waiting.extend(cast("Mapping[str, Any]", value).values())
        elif isinstance(value, list | tuple):
            waiting.extend(cast("list[Any]", value))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield str(value)


def has_text(value: Any, is_match: TextPredicate) -> bool:
    """Whether any text or number in JSON data matches, keys included."""
    return any(map(is_match, texts_in(value)))


def without_texts(value: Any, is_match: TextPredicate, mark: str) -> Any:
    """JSON data with each matching text or number replaced by `mark`, keys included."""
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {mark if is_match(key) else key: without_texts(inner, is_match, mark) for key, inner in items}
    if isinstance(value, list | tuple):
        return [without_texts(inner, is_match, mark) for inner in cast("list[Any]", value)]
    return mark if has_text(value, is_match) else value
