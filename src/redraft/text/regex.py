"""Pattern: a user's regular expression that can't hang."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

from redraft.core.errors import ConfigError
from redraft.text.well_formed import is_well_formed

MAX_LENGTH = 2_000
MAX_SIZE = 10_000
TIMEOUT = 0.5

Span = tuple[int, int]

_UNICODE_CLASS = re.compile(r"\\[wWdDsSbB]")
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_FLAG_LETTERS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s", re.VERBOSE: "x"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """Hold a compiled regular expression with the meaning that Python gives it.

    Matching takes linear time (RE2) wherever RE2 can read the pattern and would read it as Python does;
    elsewhere a backtracking engine with a time limit matches.
    """

    source: str
    linear: Any = None

    def is_quick_on(self, text: str) -> bool:
        """Say whether matching `text` takes linear time."""
        if self.linear is None:
            return False
        # RE2 knows only ASCII letters, digits and spaces, and its `$` is not met before a final newline; it
        # takes UTF-8, which holds no half of a character.
        if "$" in self.source and text.endswith("\n"):
            return False
        return text.isascii() or (_UNICODE_CLASS.search(self.source) is None and is_well_formed(text))

    def spans(self, text: str, limit: int = 1) -> list[Span]:
        """Return the first `limit` matches as (start, end); raises `TimeoutError` after half a second."""
        if self.is_quick_on(text):
            found = self.linear.finditer(text)
        else:
            # concurrent: the interpreter's lock is released, so that other threads go on meanwhile.
            found = _backtracking(self.source).finditer(text, timeout=TIMEOUT, concurrent=True)
        return [match.span() for match in islice(found, limit)]


def compile_pattern(pattern: str, flags: str | int = "") -> Pattern:
    r"""Compile a regular expression of Python's syntax.

    `flags` are letters out of `imsx`, or flags of `re`. Raises `ConfigError` for a pattern that is not valid,
    longer than 2,000 characters, or whose counted repetitions multiply to a bomb (`((a{100}){100}){100}`).
    """
    if not isinstance(pattern, str) or not pattern:  # pyright: ignore[reportUnnecessaryIsInstance] (from a file)
        raise ConfigError(f"A pattern must be a text that is not empty, got {pattern!r}.")
    if len(pattern) > MAX_LENGTH:
        raise ConfigError(
            f"The pattern {pattern[:40]!r}... is {len(pattern):,} long; at most {MAX_LENGTH:,}."
        )
    letters = _letters(flags)
    source = f"(?{letters}){pattern}" if letters else pattern
    linear = _linear(source)
    if linear is None:
        if _size(pattern) > MAX_SIZE:
            raise ConfigError(f"The pattern {pattern!r} repeats too much; repeat less, or count matches.")
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
    # Only who matches pays for it; it comes without type hints.
    import re2  # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

    engine: Any = re2
    options = engine.Options()
    options.log_errors = False
    try:
        return engine.compile(source, options)
    except engine.error:
        return None  # lookaround, back references, possessive repeats: the other engine's part


@lru_cache(maxsize=256)
def _backtracking(source: str) -> Any:
    import regex  # noqa: PLC0415 (most patterns never need it)

    try:
        return regex.compile(source)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"The pattern {source!r} does not compile: {error}.") from error


def _size(pattern: str) -> int:
    """Estimate how many nodes a pattern has once its counted repetitions are written out."""
    open_groups: list[int] = []
    total = last = position = 0
    while position < len(pattern):
        step = 1
        if found := _CLASS.match(pattern, position):
            step, last = len(found[0]), 1
            total += 1
        elif found := _COUNT.match(pattern, position):
            step = len(found[0])
            times = max(int(found[1] or 1), int(found[2] or 1))
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
