"""A file of headings, with lines of `key: value` in front: what lessons and playbooks are written as."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from redraft.core.errors import ConfigError, LessonFileError
from redraft.text.invisible import without_invisible
from redraft.text.yaml import load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_FENCE = "---"
_HEADING = re.compile(r"##\s+(.*?)\s*#*\s*")
_ESCAPED = re.compile(r"\\+##\s")
# What YAML reads as the text that it is, without quotes.
_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*")
_NOT_TEXTS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def with_front(values: Mapping[str, Any], body: str) -> str:
    """Return a body behind lines for its values; those that say nothing are left out."""
    front = "".join(f"{name}: {_scalar(value)}\n" for name, value in values.items() if value not in ("", []))
    return f"{_FENCE}\n{front}{_FENCE}\n{body}"


def section(heading: str, text: str, headings: Collection[str]) -> str:
    """Return a heading with what is said under it, in which no line is one of the headings."""
    said = without_invisible(text).strip()
    return f"## {heading}\n" + "\n".join(_escaped(line, headings) for line in said.split("\n"))


def one_line(text: str) -> str:
    """Return what can be seen of a text on one line."""
    return " ".join(without_invisible(text).split())


def lines_of(text: str) -> list[str]:
    """Return the lines of a file, whatever wrote it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")


def front_of(lines: list[str], file: str, problem: Callable[[Any, Any], str]) -> tuple[dict[str, Any], int]:
    """Return what stands before the title, and the index of the line after it.

    `problem` says what is wrong with a key and its value. Raises `LessonFileError` with the line.
    """
    if lines[0].rstrip() != _FENCE:
        return {}, 0
    end = next((n for n, line in enumerate(lines) if n and line.rstrip() == _FENCE), None)
    if end is None:
        raise LessonFileError(f"The front matter is not closed with a line {_FENCE!r}.", file=file, line=1)
    try:
        front: Any = load_yaml("\n".join(lines[1:end]), file) or {}
    except ConfigError as error:
        raise LessonFileError(f"The front matter can't be read: {error}", file=file, line=1) from error
    if not isinstance(front, dict):
        raise LessonFileError("The front matter must be lines of `key: value`.", file=file, line=2)
    for key, value in cast("dict[Any, Any]", front).items():
        if wrong := problem(key, value):
            line = next((n for n, text in enumerate(lines, 1) if text.startswith(f"{key}:")), 1)
            raise LessonFileError(wrong, file=file, line=line)
    return cast("dict[str, Any]", front), end + 1


def wrong_tools(value: Any) -> str:
    """Say what is wrong with a list of tools, if anything is."""
    if isinstance(value, list) and all(isinstance(tool, str) for tool in cast("list[Any]", value)):
        return ""
    return f"tools must be a list of names, got {value!r}."


def sections_of(
    lines: list[str], start: int, file: str, headings: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the title, and the text under each of the headings (casefolded) that is there.

    Raises `LessonFileError` with the line.
    """
    title, found = "", dict[str, list[str]]()
    current: list[str] | None = None
    for number, line in enumerate(lines[start:], start + 1):
        heading = _heading(line, headings)
        if heading in found:
            raise LessonFileError(f"The heading {line.strip()!r} stands there twice.", file=file, line=number)
        if heading:
            current = found[heading] = []
        elif current is not None:
            current.append(line[1:] if _ESCAPED.match(line) else line)
        elif not title and line.startswith("# "):
            title = line.strip()
        elif line.strip():
            raise LessonFileError(
                f"{line.strip()!r} stands before the first heading of the protocol.", file=file, line=number
            )
    return title, {heading: "\n".join(text).strip() for heading, text in found.items()}


def _heading(line: str, headings: Collection[str]) -> str:
    found = _HEADING.fullmatch(line)
    heading = found[1].casefold() if found else ""
    return heading if heading in headings else ""


def _escaped(line: str, headings: Collection[str]) -> str:
    return f"\\{line}" if _heading(line, headings) or _ESCAPED.match(line) else line


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, cast('list[Any]', value)))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    seen = without_invisible(value)
    is_plain = _PLAIN.fullmatch(seen) and seen.casefold() not in _NOT_TEXTS
    return seen if is_plain else json.dumps(seen, ensure_ascii=False)
