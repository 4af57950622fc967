"""well_formed: text that every encoding of Unicode can hold."""

from __future__ import annotations

import re

_SURROGATES = re.compile("[\ud800-\udfff]+")


def is_well_formed(text: str) -> bool:
    """Say whether UTF-8 can hold a text: not where half of a character stands in it."""
    return text.isascii() or _SURROGATES.search(text) is None


def well_formed(text: str) -> str:
    r"""Return a text whose two halves of a character are one, and where a half that stands alone is U+FFFD.

    JSON may spell halves (`"\ud83d"`), and models that count tokens cut characters in two.
    """
    return text if is_well_formed(text) else _SURROGATES.sub(_joined, text)


def _joined(found: re.Match[str]) -> str:
    return found.group().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
