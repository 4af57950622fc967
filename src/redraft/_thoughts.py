"""Remove the reasoning at the start of a model's reply, from a whole text or from a stream."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_TAG_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
_TAGS = {
    **{f"<{name}>": f"</{name}>" for name in _TAG_NAMES},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
}
"""The tags around the reasoning of a model, in lower case."""
_START = re.compile(r"[\s\ufeff]*")
"""White space and a byte order mark, which reasoning may follow."""
_OPENING_TAG = re.compile(rf"{_START.pattern}({'|'.join(map(re.escape, _TAGS))})", re.IGNORECASE)
_CLOSING_TAG = re.compile("|".join(map(re.escape, _TAGS.values())), re.IGNORECASE)
_FIRST = frozenset(tag[0] for tag in _TAGS)
_LONGEST_TAG = max(map(len, _TAGS.values()))
_QUOTES = frozenset("`'\"([{\u201c\u2018\u00ab")
_CODE_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_OPENED_LINE = re.compile(rf"^[ \t]*(?:{'|'.join(map(re.escape, _TAGS))})", re.IGNORECASE | re.MULTILINE)
_BLANK_LINES = re.compile(r"\s*\n")


def without_thoughts(text: str) -> str:
    """Remove the reasoning at the start of a reply, and the blank lines after it.

    Reasoning is a block such as `<think>...</think>`, which ends at its first closing tag; if it is never
    closed, the whole reply is reasoning. If the server's chat template has opened the block, the reply has
    only the closing tag, and everything before it is reasoning. Tags in code, in quotation marks and within a
    sentence belong to the text.
    """
    start = 0
    if _START.sub("", text, count=1)[:1] not in _FIRST:
        return _without_unopened(text)
    while (opening := _OPENING_TAG.match(text, start)) is not None:
        closing = re.compile(re.escape(_TAGS[opening[1].lower()]), re.IGNORECASE).search(text, opening.end())
        if closing is None:
            return ""
        start = closing.end()
    return without_blank_start(text[start:]) if start else _without_unopened(text)


def _without_unopened(text: str) -> str:
    end = _end_of_unopened(text)
    return without_blank_start(text[end:]) if end else text


def without_blank_start(text: str) -> str:
    """Remove blank lines at the start of a text, but not the indentation of its first line."""
    blank = _BLANK_LINES.match(text)
    return text[blank.end() :] if blank else text.lstrip(" ")


def _end_of_unopened(text: str) -> int:
    """Position after the first closing tag of a block that the reply does not open; 0 if there is none."""
    lowered = text.lower()
    if not (
        "think" in lowered or "thought" in lowered or "reasoning" in lowered
    ):  # a fast way out for most texts
        return 0
    for tag in _CLOSING_TAG.finditer(text):
        before = text[: tag.start()]
        line = before[before.rfind("\n") + 1 :]
        is_spaced = line[-1:].isspace() and text[tag.end() : tag.end() + 1] not in ("\n", "\r")
        is_mention = bool(line.strip()) and (is_spaced or line[-1] in _QUOTES)
        is_code = line.count("`") % 2 or len(_CODE_FENCE.findall(before)) % 2
        is_opened = _OPENED_LINE.search(before) or any(opening in line.lower() for opening in _TAGS)
        if not (is_mention or is_code or is_opened):
            return tag.end()
    return 0


class ThoughtFilter:
    """Passes on the text of a stream without the reasoning at its start.

    The pieces that are passed on add up to `without_thoughts` of the text, unless a closing tag comes without
    an opening tag, after its reasoning: then nothing more is passed on, and `unopened` is true. With `held`,
    the text is held back until that tag, or until the end. With `reasoned`, which may be set at any time
    before the text, blank lines at the start are removed, too.
    """

    def __init__(self, pass_on: Callable[[str], None], *, held: bool = False) -> None:
        self.reasoned = self.unopened = False
        self._pass_on = pass_on
        self._is_held = held
        self._is_passing = self._is_decided = self._had_opening = False
        self._pieces: list[str] = []
        self._rest = ""

    def add(self, piece: str) -> None:
        """Take the next piece of the text, which is not empty."""
        self._pieces.append(piece)
        if not self._is_passing:
            # Within a block, only the end of a tag can change anything.
            if not self._had_opening or self._rest or any(end in piece for end in ">]▷"):
                self._begin(is_end=False)
        elif not self.unopened:
            if not self._is_decided and (">" in piece or "]" in piece or "▷" in piece or "\n" in piece):
                latest = "".join(self._pieces[-_LONGEST_TAG:])
                if _CLOSING_TAG.search(latest) is not None:
                    self.unopened = _end_of_unopened("".join(self._pieces)) > 0
            if not self.unopened:
                self._pass_on(piece)

    def finish(self) -> None:
        """Pass on the rest at the end of the text."""
        if not self._is_passing:
            self._begin(is_end=True)

    def _begin(self, *, is_end: bool) -> None:
        """Start to pass on the text as soon as its start is certain."""
        text = "".join(self._pieces)
        self._had_opening = _OPENING_TAG.match(text) is not None
        rest = without_thoughts(text)
        if self._had_opening and rest:
            self._rest = rest  # the block is closed
        start = _START.sub("", rest, count=1).lower()
        is_unsure = any(tag.startswith(start) for tag in _TAGS)  # an empty start, too
        waits_for_tag = self._is_held and not self._had_opening and rest == text
        if (is_unsure or waits_for_tag) and not is_end:
            return
        self._is_passing = True
        self._is_decided = self._had_opening or rest != text
        rest = without_blank_start(rest) if self.reasoned else rest
        if rest.strip():
            self._pass_on(rest)
