"""Text that a model wrote, made plain: what can't be seen can't steer, and lines end in one way."""

from __future__ import annotations

import re

_LINE_ENDS = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
# Controls; what turns the direction of writing; what has no width; the tags and selectors that spell whole
# sentences nobody sees. U+FE0E and U+FE0F stay: emoji are made with them.
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b"
    r"\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Persian, the scripts of India and emoji need joiners, between two signs of their own; nothing else does.
_STRAY_JOINERS = re.compile(
    r"(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]+|[\u200c\u200d]+(?![^\x00-\x7f\u200c\u200d])"
)


def plain(text: str) -> str:
    """Return a text without what can't be seen; every line ends in a line feed; takes linear time.

    Half a surrogate pair, which no encoding has, becomes U+FFFD. Tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    seen = _UNSEEN.sub("", _LINE_ENDS.sub("\n", text))
    return _SURROGATES.sub("\ufffd", _STRAY_JOINERS.sub("", seen))
