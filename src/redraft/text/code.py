"""Code inside text: where a model wrapped it in Markdown."""

from __future__ import annotations

import re

# Indented deeper, a fence is an example in a docstring, not the wrapping of an answer.
_FENCE = re.compile(r" {0,3}(?P<marks>`{3,}|~{3,})[ \t]*(?P<language>[\w+.#-]*)[^`]*")
_PYTHON = {"python", "py", "python3", "py3"}


def unfenced(text: str) -> tuple[str, int]:
    """Return a text without the one fence that wraps all of it, and the 1-based line on which it begins.

    A text that is not wrapped as a whole is returned as it is. The line break before the closing fence goes
    with it.
    """
    if not text.lstrip().startswith(("```", "~~~")):
        return text, 1
    before = text[: len(text) - len(text.lstrip())].count("\n")
    lines = text.strip().splitlines(keepends=True)
    opening = _FENCE.fullmatch(lines[0].rstrip("\r\n"))
    if opening is None or len(lines) < 2 or _closing(lines, 1, opening["marks"]) != len(lines) - 1:  # noqa: PLR2004 (two fences)
        return text, 1
    return "".join(lines[1:-1]).removesuffix("\n").removesuffix("\r"), before + 2


def python_of(text: str) -> str:
    """Return the Python source in a text: its first `python` fence, else its first bare one, else it all."""
    return python_block(text)[0]


def python_block(text: str) -> tuple[str, int]:
    """Return the Python source in a text, as `python_of` does, and the 1-based line on which it begins.

    A fence that is never closed, as in an answer that was cut off, goes to the end of the text.
    """
    lines = text.splitlines(keepends=True)
    bare: tuple[str, int] | None = None
    at = 0
    while at < len(lines):
        opening = _FENCE.fullmatch(lines[at].rstrip("\r\n"))
        at += 1
        if opening is None:
            continue
        end = _closing(lines, at, opening["marks"])
        block = ("".join(lines[at:end]), at + 1)
        language = opening["language"].lower()
        if language in _PYTHON:
            return block
        if not language and bare is None:
            bare = block
        at = end + 1
    return bare or (text, 1)


def _closing(lines: list[str], start: int, marks: str) -> int:
    for at in range(start, len(lines)):
        line = lines[at].strip()
        if line.startswith(marks) and not line.strip(marks[0]):
            return at
    return len(lines)
