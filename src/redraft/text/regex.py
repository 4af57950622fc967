"""Regular expressions from users, matched in bounded time."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from operator import itemgetter
from sys import byteorder
from typing import TYPE_CHECKING, Any

from redraft._validation import repr_of
from redraft.errors import ConfigError
from redraft.text.characters import is_well_formed

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LENGTH = 2_000
MAX_SIZE = 10_000
TIMEOUT = 0.5

Span = tuple[int, int]

_UNICODE_CLASS = re.compile(r"\\[wWdDsSbB]")
_PART = re.compile(r"\\.|.", re.DOTALL)
_MULTILINE = re.compile(r"\(\?[a-z]*m[a-z]*\)")
_NOTHING_FOLLOWS = re.compile(r"\)*(?:\Z|(\|))")
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_FLAG_LETTERS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled regular expression with the meaning that it has in Python.

    RE2 matches it in linear time if it interprets the pattern as Python does; otherwise, a backtracking
    engine with a time limit matches it.
    """

    source: str
    linear: Any = None

    def is_quick_on(self, text: str, limit: int = 1) -> bool:
        """Whether finding the first `limit` matches in `text` takes linear time."""
        if self._engine_for(text) is None:
            return False
        return not self._ends_twice(text) or (limit == 1 and _ends_are_last(self.source))

    def spans(self, text: str, limit: int = 1) -> list[Span]:
        """Find the first `limit` matches as (start, end); raises `TimeoutError` after half a second."""
        if not self.is_quick_on(text, limit):
            # concurrent=True releases the interpreter's lock, so that other threads can run meanwhile.
            matches = _backtracking(self.source).finditer(text, timeout=TIMEOUT, concurrent=True)
            return [match.span() for match in islice(matches, limit)]
        engine = self._engine_for(text)
        if not self._ends_twice(text):
            return [match.span() for match in islice(engine.finditer(text), limit)]
        # `$` matches before and after the final line break; the leftmost match of the two counts.
        ends = (engine.search(text), engine.search(text[:-1]))
        return sorted((match.span() for match in ends if match), key=itemgetter(0))[:1]

    def _engine_for(self, text: str) -> Any:
        """The RE2 pattern that matches this text as Python would; None if there is none."""
        if self.linear is None or text.isascii():
            return self.linear
        if not is_well_formed(text):  # RE2 takes UTF-8, which can't hold surrogates
            return None
        return self.linear if _UNICODE_CLASS.search(self.source) is None else _unicode(self.source)

    def _ends_twice(self, text: str) -> bool:
        """Whether `$` also matches before a final line break, which it never does in RE2."""
        return text.endswith("\n") and "$" in self.source and _MULTILINE.match(self.source) is None


def compile_pattern(pattern: str, flags: str | int = "") -> Pattern:
    r"""Compile a regular expression in Python's syntax.

    `flags` are letters from `imsx`, or flags of `re`. Raises `ConfigError` for a pattern that is invalid,
    longer than 2,000 characters, or whose counted repetitions multiply out (`((a{100}){100}){100}`).
    """
    if not isinstance(pattern, str) or not pattern:  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        raise ConfigError(f"A pattern must be a non-empty string, got {repr_of(pattern)}.")
    if len(pattern) > MAX_LENGTH:
        raise ConfigError(
            f"The pattern {pattern[:40]!r}... is {len(pattern):,} characters long; "
            f"at most {MAX_LENGTH:,} are allowed."
        )
    letters = _letters(flags)
    source = f"(?{letters}){pattern}" if letters else pattern
    linear = _linear(source)
    if linear is None:
        if _size(pattern) > MAX_SIZE:
            raise ConfigError(
                f"The pattern {pattern!r} repeats too often; use smaller counts, or bound the number of "
                "matches instead."
            )
        _backtracking(source)
    return Pattern(source, linear)


def _letters(flags: str | int) -> str:
    if isinstance(flags, int):
        letters = "".join(letter for flag, letter in _FLAG_LETTERS.items() if flags & flag)
        unknown = flags & ~int(re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE | re.UNICODE)
        if not unknown and not isinstance(flags, bool):
            return letters
    elif isinstance(flags, str) and set(flags) <= set("imsx"):  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        return flags
    raise ConfigError(f"Flags of a pattern must be letters out of 'imsx', got {flags!r}.")


def _linear(source: str) -> Any:
    # Imported on first use; it has no type hints.
    import re2  # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

    engine: Any = re2
    options = engine.Options()
    options.log_errors = False
    try:
        return engine.compile(source, options)
    except engine.error:
        return None  # lookaround, back references, possessive repeats: left to the other engine


@lru_cache(maxsize=256)
def _unicode(source: str) -> Any:
    r"""Compile a pattern with RE2 so that `\w`, `\d` and `\s` cover all of Unicode; None if it can't.

    RE2's own classes are ASCII only; so are its word boundaries, which can't be rewritten.
    """
    parts: list[str] = []
    for part, in_class in _parts(source):
        if part in (r"\b", r"\B"):
            return None
        if part[0] == "\\" and part[1:] in _CLASSES:
            ranges = _ranges(part[1], is_complement=in_class and part[1].isupper())
            part = ranges if in_class else f"[{'^' if part[1].isupper() else ''}{ranges}]"  # noqa: PLW2901 (read anew)
        parts.append(part)
    return _linear("".join(parts))


def _parts(source: str) -> Iterator[tuple[str, bool]]:
    """Yield the characters and escapes of a pattern, each with whether it is inside `[...]`."""
    opened = -1
    for match in _PART.finditer(source):
        part, at = match[0], match.start()
        yield part, opened >= 0
        if part == "[" and opened < 0:
            opened = at
        elif part == "]" and opened >= 0 and source[opened:at] not in ("[", "[^"):
            opened = -1


_CLASSES = frozenset("wWdDsS")


@cache
def _ranges(letter: str, *, is_complement: bool) -> str:
    """Ranges of the characters in a class, or in its complement, according to the `regex` package."""
    import regex  # noqa: PLC0415 (most patterns never need it)

    name = letter.upper() if is_complement else letter.lower()
    ranges: list[str] = []
    for first, end in ((0, 0xD800), (0xE000, 0x110000)):  # between the two are the surrogates
        text = array("I", range(first, end)).tobytes().decode(f"utf-32-{byteorder[0]}e")
        ranges += [
            rf"\x{{{first + match.start():x}}}-\x{{{first + match.end() - 1:x}}}"
            for match in regex.finditer(rf"\{name}+", text)
        ]
    return "".join(ranges)


@lru_cache(maxsize=256)
def _ends_are_last(source: str) -> bool:
    """Whether every `$` ends the pattern or one of its outermost alternatives."""
    depth = position = 0
    for part, in_class in _parts(source):
        position += len(part)
        if in_class:
            continue
        depth += (part == "(") - (part == ")")
        if part == "$":
            follows = _NOTHING_FOLLOWS.match(source, position)
            if follows is None or (follows[1] and depth != follows[0].count(")")):
                return False
    return True


@lru_cache(maxsize=256)
def _backtracking(source: str) -> Any:
    import regex  # noqa: PLC0415 (most patterns never need it)

    try:
        return regex.compile(source)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"The pattern {source!r} does not compile: {error}.") from error


def _size(pattern: str) -> int:
    """Estimate the nodes of a pattern with its counted repetitions expanded."""
    open_groups: list[int] = []
    total = last = position = 0
    while position < len(pattern):
        step = 1
        if match := _CLASS.match(pattern, position):
            step, last = len(match[0]), 1
            total += 1
        elif match := _COUNT.match(pattern, position):
            step = len(match[0])
            times = max(int(match[1] or 1), int(match[2] or 1))
            total += last * (times - 1)
            last *= times
        elif pattern[position] == "(":
            open_groups.append(total)
            total = last = 0
        elif pattern[position] == ")" and open_groups:
            last = total + 1
            total = open_groups.pop() + last
        else:
            step, last = 2 if pattern[position] == "\\" else 1, 1
            total += 1
        position += step
    return total
