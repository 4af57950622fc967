"""Linear matching over the bytes of a text, one byte a character, so that no input can hang it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Enough for the largest table of shapes; where it does not do, RE2 falls back to a slower engine.
_MEMORY = 64 << 20


@cache
def compiled(source: str) -> Any:
    """Compile a pattern of RE2's syntax for texts of Latin-1; each is compiled once, on first use."""
    # Only who redacts pays for it; it comes without type hints.
    import re2  # pyright: ignore[reportMissingTypeStubs] # noqa: PLC0415

    engine: Any = re2
    options = engine.Options()
    options.encoding = engine.Options.Encoding.LATIN1
    options.max_mem = _MEMORY
    options.log_errors = False
    return engine.compile(source.encode("latin-1"), options)


def every(source: str, data: bytes, start: int = 0, end: int | None = None) -> Iterator[Any]:
    """Yield the matches of a pattern from left to right."""
    return compiled(source).finditer(data, start, end)


def spans(source: str, data: bytes, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield where the matches of a pattern stand: the first group that took part, where there are any."""
    groups = _groups(source)
    for match in every(source, data, start, end):
        yield next((match.span(group) for group in groups if match.start(group) >= 0), match.span())


@cache
def _groups(source: str) -> range:
    return range(1, compiled(source).groups + 1)  # counted anew each time it is asked for


def at(source: str, data: bytes, start: int, end: int | None = None) -> Any:
    """Return the match of a pattern that begins at `start`, or None."""
    return compiled(source).match(data, start, end)
