"""Make untrusted text safe to show, store and encode."""

from __future__ import annotations

import re
import unicodedata

# Control characters steer a terminal, direction marks change the order in which a text is displayed, and
# lone surrogates exist in no encoding.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_LINE_BREAK = re.compile(r"\r\n|\r(?!\n)")


def visible(text: str) -> str:
    """Escape control characters, direction marks and lone surrogates.

    Line breaks and tabs stay; a carriage return counts as a line break.
    """
    return _UNSAFE.sub(_escape, _LINE_BREAK.sub("\n", text))


def visible_json(text: str) -> str:
    """Escape the same characters in a JSON document, whose value stays the same."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"  # noqa: PLR2004 (as Python writes them)


# Control characters except tab and line feed; soft hyphens, fillers and characters without width; direction
# marks; tags and variation selectors, which can carry a whole hidden text; signs that are drawn as nothing;
# lone surrogates; private use.
_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffc\ud800-\uf8ff"
    r"\U00013430-\U00013442\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_BRAILLE_SPACE = "\u2800"
_LINE_ENDS = re.compile(r"\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# Hebrew, Arabic, Indian and Mongolian scripts and emoji need one joiner between two of their characters.
_JOINED = (
    r"\u0590-\u0dff\u1000-\u109f\u1780-\u18af\ufb1d-\ufdff\ufe70-\ufefc"
    r"\u2190-\u2bff\ufe0f\U0001f000-\U0001faff"
)
_STRAY_JOINERS = re.compile(rf"(?<![{_JOINED}])[\u200c\u200d]+|[\u200c\u200d]+(?![{_JOINED}])")
# A selector says whether a sign is drawn as an emoji.
_SIGN = r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
_STRAY_SELECTORS = re.compile(rf"(?<![{_SIGN}])[\ufe0e\ufe0f]+(?!\u20e3)")


def without_invisible(text: str) -> str:
    """Remove invisible characters from a text, in linear time; each line ends with a line feed.

    A joiner or a selector stays where a script or an emoji needs it, and tabs stay. The space of Braille,
    which is no white space to Python, becomes a space.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _INVISIBLE.sub("", _LINE_ENDS.sub("\n", text)).replace(_BRAILLE_SPACE, " ")
    if text.isascii():
        return text
    return _STRAY_JOINERS.sub("", _STRAY_SELECTORS.sub("", text))


_SURROGATES = re.compile("[\ud800-\udfff]+")


def is_well_formed(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, because it holds no surrogates."""
    return text.isascii() or _SURROGATES.search(text) is None


def well_formed(text: str) -> str:
    r"""Join surrogate pairs, and replace lone surrogates with U+FFFD.

    JSON can spell a lone surrogate (`"\ud83d"`), and a model that stops at a token can cut a pair in two.
    """
    if is_well_formed(text):
        return text
    return _SURROGATES.sub(
        lambda match: match.group().encode("utf-16", "surrogatepass").decode("utf-16", "replace"), text
    )


def without_middle(text: str, most: int) -> str:
    """Shorten a text to about `most` characters by replacing its middle with a note of its length."""
    if len(text) <= most:
        return text
    head = most * 2 // 3
    tail = most - head
    gap = f"[... {len(text) - most:,} of {len(text):,} characters are left out here ...]"
    return f"{text[:head]}\n{gap}\n{text[-tail:]}"


# Thai, Lao, Burmese, Khmer, Chinese and Japanese are written without spaces between words, so that the
# start of a word can't be recognized.
_LETTER = re.compile(
    "[^\\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]"
)
_ENDING = re.compile(r"['\u2019](?:s|t|m|d|re|ve|ll)(?!\w)", re.IGNORECASE)
"""English endings after an apostrophe."""
_NUMBER = re.compile(r"\.\d|,\d{3}(?!\d)")
"""The continuation of a number: decimals, or a group of thousands."""
_JOINER = "\u200d"


def is_inside_word(text: str, at: int) -> bool:
    """Whether a position in a text, 0 to its length, is inside a word, a number or a character.

    In scripts that are written without spaces, it is only inside a character.
    """
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if unicodedata.category(after).startswith("M") or _JOINER in (before, after):
        return True
    if _LETTER.match(after) and _LETTER.match(_base(text, at)):
        return True
    for start in (at, at - 1):  # before the sign, and after it
        if start and _LETTER.match(_base(text, start)) and _ENDING.match(text, start):
            return True
        if start and text[start - 1].isdecimal() and _NUMBER.match(text, start):
            return True
    return False


def _base(text: str, at: int) -> str:
    """The last character before a position that is not a combining mark."""
    while at > 1 and unicodedata.category(text[at - 1]).startswith("M"):
        at -= 1
    return text[at - 1]
