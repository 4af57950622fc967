"""The text in a file of unknown encoding: by its byte order mark, what it declares, or rules of thumb."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

_MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARATION = re.compile(r"(?:coding|charset)[:=]\s*[\"']?([A-Za-z][-\w.:]+)")
"""As in Python (PEP 263), editors, XML, HTML, CSS and e-mail."""
_DECLARED_WITHIN = 1_024
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 50
"""At most one control character in so many is text; a single zero byte must not hide a program."""
_EAST_ASIAN = (
    # Characters that most of the text consists of if the encoding is the right one. Japanese comes before
    # Chinese, and the stricter encodings of a language before those that accept almost any bytes.
    ("euc_jp", re.compile(r"[\u3041-\u30ff]"), 0.25),
    ("cp932", re.compile(r"[\u3041-\u30ff]"), 0.25),
    ("euc_kr", re.compile(r"[\uac00-\ud7a3]"), 0.8),
)
_CHINESE = (
    # The pairs of bytes of frequent characters: level 1 of GB 2312 and of Big5, with punctuation.
    ("gb18030", re.compile(rb"[\xb0-\xd7\xa1\xa3][\xa1-\xfe]")),
    ("big5", re.compile(rb"[\xa1-\xc6][\x40-\x7e\xa1-\xfe]")),
)
_CYRILLIC = ("koi8_r", "cp1251")
_RUN = re.compile(rb"[\x80-\xff]{3,}")


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and its encoding; `is_guess` if nothing but its bytes speaks for that encoding."""

    text: str
    encoding: str
    is_guess: bool = False


def decoded(data: bytes, declared: str = "") -> Decoded | None:
    """Return the text in the bytes of a file; None if they are not text.

    `declared` is an encoding that is declared elsewhere. Bytes that are not UTF-8 and declare nothing are
    decoded all the same, so that checks find at least what is ASCII in them.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark) and (text := _text(data, encoding)) is not None:
            return Decoded(text, encoding)
    if declared and (text := _text(data, declared)) is not None:
        return Decoded(text, declared)
    if b"\0" in data and (wide := _of_wide_characters(data)) is not None:
        return wide
    if len(_CONTROL.findall(data)) * _MOST_CONTROLS > len(data):
        return None
    if (text := _text(data, "utf-8")) is not None:
        return Decoded(text, "utf-8")
    match = _DECLARATION.search(data[:_DECLARED_WITHIN].decode("latin-1"))
    if match and (text := _text(data, match[1])) is not None:
        return Decoded(text, match[1])
    encoding = _guess(data)
    return Decoded(data.decode(encoding), encoding, is_guess=True)


def _text(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (LookupError, ValueError):  # LookupError: unknown, or no encoding of text, such as base64
        return None


def _of_wide_characters(data: bytes) -> Decoded | None:
    """Decode UTF-16 or UTF-32 without a byte order mark: the zero bytes of ASCII are on one side."""
    even, odd = data[::2].count(0), data[1::2].count(0)
    if max(even, odd) * 10 < len(data) // 2:  # a zero byte in another text
        return None
    order = "le" if odd > even else "be"
    for encoding in (f"utf-32-{order}", f"utf-16-{order}"):
        text = _text(data, encoding)
        if text is not None and not _CONTROL.search(text.encode()):
            return Decoded(text, encoding, is_guess=True)
    return None


def _guess(data: bytes) -> str:
    """Return the likely encoding of bytes that are not UTF-8."""
    for encoding, frequent, share in _EAST_ASIAN:
        text = _text(data, encoding)
        if text is not None:
            others = sum(not one.isascii() for one in text)
            if len(frequent.findall(text)) >= share * others:
                return encoding
    pairs = sum(one > 0x7F for one in data) / 2  # noqa: PLR2004 (the last ASCII character)
    for encoding, frequent in _CHINESE:
        if _text(data, encoding) is not None and len(frequent.findall(data)) >= 0.8 * pairs:
            return encoding
    if sum(map(len, _RUN.findall(data))) > pairs:  # whole words, as in no Latin script
        return max(_CYRILLIC, key=lambda one: sum(map(str.islower, data.decode(one, "replace"))))
    return "cp1252" if _text(data, "cp1252") is not None else "latin-1"
