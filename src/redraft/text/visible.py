"""Text that comes from anywhere, made fit to be shown: what would act on a terminal or page is spelt out."""

from __future__ import annotations

import re

# Control characters steer a terminal; those for writing direction let a text read otherwise than it is;
# surrogates that stand alone are in no encoding.
_ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_LINE_BREAK = re.compile(r"\r\n|\r(?!\n)")


def visible(text: str) -> str:
    """Return a text with every character that acts, and does not just stand there, as its escape.

    Line breaks and tabs stay; a carriage return is a line break.
    """
    return _ACTING.sub(_escape, _LINE_BREAK.sub("\n", text))


def _escape(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 (as Python writes them)
