"""Secrets inside Base64 and hexadecimal, also inside each other and wrapped over lines."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from redraft.redact.engine import spans
from redraft.redact.kinds import Found, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redraft.redact.view import View

_SHORTEST = 16
_SAMPLE = 48
_TEXT_SHARE = 0.95
_BASE64 = (
    r"[A-Za-z0-9+/_-]{16,}(?:[ \t>|]{0,8}\\?\r?\n[ \t>"
    r"|\"']{0,40}[A-Za-z0-9+/_-]{16,})*(?:\r?\n[ \t]{0,40}[A-Za-z0-9+/_-]{1,76})?={0,2}"
)
_HEX = r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ :,]{0,2}){7,}(?:0x|\\x)?[0-9a-fA-F]{2}"
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_NO_HEX = re.compile(r"0x|\\x|[^0-9a-fA-F]")
_READABLE = bytes([0, 9, 10, 13, 27, *range(32, 127)])


def encoded(view: View, holds_secret: Callable[[str], bool]) -> Iterator[Found]:
    """Yield what decodes to a text that holds a secret, by what `holds_secret` says of it."""
    for start, end in spans(_BASE64, view.data):
        if any(holds_secret(text) for text in _from_base64(view.text[start:end])):
            yield Found(start, end, Kind.ENCODED)
    for start, end in spans(_HEX, view.data):
        if any(holds_secret(text) for text in _from_hex(view.text[start:end])):
            yield Found(start, end, Kind.ENCODED)


def _from_base64(blob: str) -> Iterator[str]:
    """Yield what a blob says, with each of the places where its first group of four may begin."""
    code = _NO_BASE64.sub("", blob.replace("-", "+").replace("_", "/"))
    if len(code) < _SHORTEST:
        return
    for offset in range(4):
        end = len(code) - (len(code) - offset) % 4
        # Most blobs are words or binary: a sample tells.
        if _is_text(_decoded(code[offset : min(end, offset + _SAMPLE)])):
            yield _decoded(code[offset:] + "=" * (-(len(code) - offset) % 4)).decode("latin-1")


def _from_hex(blob: str) -> Iterator[str]:
    code = _NO_HEX.sub("", blob)
    for offset in range(2):
        whole = code[offset : len(code) - (len(code) - offset) % 2]
        plain = bytes.fromhex(whole)
        if _is_text(plain[:_SAMPLE]):
            yield plain.decode("latin-1")


def _decoded(code: str) -> bytes:
    try:
        return base64.b64decode(code)
    except (binascii.Error, ValueError):  # one character too many at the end
        return base64.b64decode(code[: len(code.rstrip("=")) // 4 * 4])


def _is_text(sample: bytes) -> bool:
    # Two bytes a character leave half of them empty.
    unreadable = len(sample.translate(None, _READABLE))
    return len(sample) > 2 * sample.count(0) - 2 and unreadable <= (1 - _TEXT_SHARE) * len(sample)
