"""Engine: pattern matching in linear time, which no text can hang: RE2 on Latin-1 bytes."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Enough for the largest pattern; with less, RE2 falls back to a slower engine.
_MEMORY = 64 << 20


@cache
def compiled(source: str, *, captures: bool = True) -> Any:
    """Compile a pattern in RE2's syntax for Latin-1, once, on first use.

    Without `captures`, its matches have no groups.
    """
    # Imported on first use; it has no type hints.
    import re2  # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

    engine: Any = re2
    options = engine.Options()
    options.encoding = engine.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    options.never_capture = not captures
    return engine.compile(source.encode("latin-1"), options)


def has_any(sources: tuple[str, ...], data: bytes) -> bool:
    """Whether any of these patterns matches; takes as long as a single pattern."""
    return compiled(_alternatives(sources), captures=False).search(data) is not None


@cache
def _alternatives(sources: tuple[str, ...]) -> str:
    return "|".join(f"(?:{source})" for source in sources)


def matches(source: str, data: bytes) -> Iterator[Any]:
    """Yield the matches of a pattern from left to right."""
    return compiled(source).finditer(data)


def spans(source: str, data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the span of each match: of the first group that took part, or of the whole."""
    groups = _groups(source)
    for match in matches(source, data):
        yield next((match.span(group) for group in groups if match.start(group) >= 0), match.span())


@cache
def _groups(source: str) -> range:
    return range(1, compiled(source).groups + 1)  # RE2 counts them anew each time


def match_at(source: str, data: bytes, start: int) -> Any:
    """Match a pattern at `start`; None if it does not match there."""
    return compiled(source).match(data, start)


def match_bounded(source: str, data: bytes, start: int) -> re.Match[bytes] | None:
    """Match a pattern whose repetitions are all bounded at `start`, with Python's own engine.

    It can't hang on such a pattern, and takes a fifth of the time of RE2.
    """
    return _bounded(source).match(data, start)


@cache
def _bounded(source: str) -> re.Pattern[bytes]:
    return re.compile(source.encode("latin-1"))
