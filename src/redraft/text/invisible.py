"""Text without what can't be seen: characters that hide words, turn them round, or act on what shows them."""

from __future__ import annotations

import re

# Control characters but tab and line feed; soft hyphens and zero widths; marks for writing direction; tags
# and variation selectors, which can carry a whole hidden text; surrogates that stand alone; private use.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\ue000-\uf8ff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_LINE_BREAK = re.compile("\r\n|\r|\x85|\u2028|\u2029")


def without_invisible(text: str) -> str:
    """Return a text of what can be seen: line breaks of all kinds become line feeds, the rest is left out."""
    return _INVISIBLE.sub("", _LINE_BREAK.sub("\n", text))
