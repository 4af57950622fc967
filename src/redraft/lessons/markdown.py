"""Lessons as markdown: a title, headings, and front matter before them."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from redraft._validation import is_number, nearest
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.lesson import (
    CONFIDENCE,
    KINDS,
    STATUSES,
    TRUSTS,
    Content,
    Lesson,
    LessonKind,
    headings_of,
)
from redraft.text.characters import without_invisible
from redraft.text.yaml import load_yaml
from redraft.types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

_FENCE = "---"
_HEADING = re.compile(r"#{1,6}\s+(\S.*)")
_CONFLICT = re.compile(r"(?:<{7}|>{7})(?:\s|$)")
"""The first or the last line of a conflict that git could not merge."""
_ESCAPED = re.compile(rf"\\+(?:#{{1,6}}\s|{_CONFLICT.pattern})")
# Text that needs no quotes in YAML.
_PLAIN = re.compile(r"[A-Za-z][\w./-]*(?: [\w./-]+)*")
_NOT_TEXTS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


def with_front(values: Mapping[str, Any], body: str) -> str:
    """A body with front matter before it, without empty values."""
    front = "".join(
        f"{_scalar(name)}: {_scalar(value)}\n" for name, value in values.items() if value not in ("", [])
    )
    return f"{_FENCE}\n{front}{_FENCE}\n{body}"


def section(heading: str, text: str, headings: Collection[str]) -> str:
    """A heading with a text; lines that would be read as one of the headings are escaped."""
    lines = without_invisible(text).strip().split("\n")
    return f"## {heading}\n" + "\n".join(_escaped(line, headings) for line in lines)


def one_line(text: str) -> str:
    """A text on a single line, without invisible characters."""
    return unwrapped(without_invisible(text))


def lines_of(text: str) -> list[str]:
    """The lines of a file, with any line endings, without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def check_merged(lines: Sequence[str], file: str) -> None:
    """Raise `LessonFileError` with the line if a merge of git has left conflict markers in a file."""
    marked = [number for number, line in enumerate(lines, 1) if _CONFLICT.match(line)]
    if len(marked) > 1:
        why = "There are conflict markers of git in this file: resolve the conflict."
        raise LessonFileError(why, file=file, line=marked[0])


def front_of(lines: list[str], file: str, problem: Callable[[Any, Any], str]) -> tuple[dict[str, Any], int]:
    """The front matter, and the index of the line after it.

    `problem` returns the problem of a key and its value, or an empty string. Raises `LessonFileError` with
    the line.
    """
    check_merged(lines, file)
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
    """The problem of a list of tools; empty if there is none."""
    if isinstance(value, list) and all(isinstance(tool, str) for tool in cast("list[Any]", value)):
        return ""
    return f"tools must be a list of names, got {value!r}."


def sections_of(
    lines: list[str], start: int, file: str, headings: Collection[str]
) -> tuple[str, dict[str, str]]:
    """The title, and the text under each heading in the file, by the casefolded heading.

    Raises `LessonFileError` with the line.
    """
    title, sections = "", dict[str, list[str]]()
    current: list[str] | None = None
    for number, line in enumerate(lines[start:], start + 1):
        heading = _heading(line, headings)
        if heading in sections:
            raise LessonFileError(f"Duplicate heading {line.strip()!r}.", file=file, line=number)
        if heading:
            current = sections[heading] = []
        elif current is not None:
            current.append(line[1:] if _ESCAPED.match(line) else line)
        elif not title and line.startswith("# "):
            title = line.strip()
        elif line.strip():
            raise LessonFileError(
                f"{line.strip()!r} comes before the first heading of a lesson.", file=file, line=number
            )
    return title, {heading: "\n".join(text).strip() for heading, text in sections.items()}


def heading_in(line: str) -> str:
    """The text of a heading below the title, casefolded; empty for any other line."""
    return "" if line.startswith("# ") else _heading_text(line)


def _heading_text(line: str) -> str:
    match = _HEADING.fullmatch(line.rstrip())
    return match[1].rstrip("#").rstrip().casefold() if match else ""


def _heading(line: str, headings: Collection[str]) -> str:
    """The heading in a line, whatever its punctuation at the end; empty if there is none."""
    heading = _heading_text(line).rstrip(" ?:.!")
    return (
        next((candidate for candidate in (heading, f"{heading}?") if candidate in headings), "")
        if heading
        else ""
    )


def _escaped(line: str, headings: Collection[str]) -> str:
    is_special = _heading(line, headings) or _ESCAPED.match(line) or _CONFLICT.match(line)
    return f"\\{line}" if is_special else line


def _scalar(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, cast('list[Any]', value)))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    seen = without_invisible(value)
    is_plain = _PLAIN.fullmatch(seen) and seen.casefold() not in _NOT_TEXTS
    return seen if is_plain else json.dumps(seen, ensure_ascii=False)


# --- the file of a lesson -----------------------------------------------------------------------------------

OUTCOMES: dict[LessonKind, str] = {
    "failure": "failed",
    "partial": "partial",
    "procedure": "success",
    "decision": "decision",
    "correction": "partial",
    "fact": "",
}
_TEXTS = (
    "title",
    "trust",
    "overrules",
    "why",
    "disobeyed",
    "superseded_by",
    "task_type",
    "task",
    "error",
    "source",
    "check",
    "agent",
)
AT = "at"
"""The key of the time at which a lesson was written."""
_KEYS = ("kind", "status", "outcome", "confidence", "tools", "hash", AT, *_TEXTS)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:-|$)")
_TITLED: dict[LessonKind, str] = {"procedure": "Procedure", "fact": "Fact"}
_TITLE = re.compile(r"# (?:Reflection|Procedure|Fact): (\d{4}-\d{2}-\d{2}) - (.+)")
_HEADINGS = {heading.casefold() for kind in KINDS.values() for heading in headings_of(kind).values()}


def render(lesson: Lesson) -> str:
    """The text of a lesson's file.

    Invisible characters are removed, and lines that would be headings of the protocol get a backslash.
    """
    what = _TITLED.get(lesson.kind, "Reflection")
    parts = [f"# {what}: {lesson.day} - {one_line(lesson.agent)} - {one_line(lesson.summary)}"]
    headings = headings_of(type(lesson.content))
    parts += [section(headings[name], text, _HEADINGS) for name, text in lesson.content.texts.items()]
    body = "\n\n".join(parts) + "\n"
    front: dict[str, Any] = {
        "kind": lesson.kind,
        "status": lesson.status,
        "outcome": OUTCOMES[lesson.kind],
        "confidence": lesson.confidence,
        AT: "" if lesson.at is None else lesson.at.isoformat(timespec="milliseconds"),
        "tools": list(lesson.tools),
        **{name: getattr(lesson, name) for name in _TEXTS},
        # Shows whether the text has been changed by hand.
        "hash": sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16],
        **(json.loads(lesson.others) if lesson.others else {}),
    }
    return with_front(front, body)


def unknown_keys(lesson: Lesson) -> list[str]:
    """A message about each unknown entry of a lesson's front matter, with the key that may be meant."""
    others: dict[str, Any] = json.loads(lesson.others or "{}")
    near = {key: get_close_matches(key, _KEYS, n=1) for key in others}
    return [
        f"The key {key!r} has no meaning here{f'; did you mean {meant[0]!r}?' if meant else '.'}"
        for key, meant in near.items()
    ]


@lru_cache(512)  # the same few files are read before and after every run
def parse(text: str, lesson_id: str, agent: str, written: datetime | None = None) -> Lesson:
    """The lesson in the text of a file.

    A file needs only the headings: the kind follows from them, the day from the file name or else from
    `written`, and the lesson is active. A file of an earlier version, without a time, has the time of
    `written` if that is on the same day. Raises `LessonFileError` with the line if the text is invalid.
    """
    lines = lines_of(text)
    front, start = front_of(lines, lesson_id, _problem)
    title, sections = sections_of(lines, start, lesson_id, _HEADINGS)
    content = _content(front.get("kind"), sections, lesson_id)
    match = _TITLE.fullmatch(title)
    stem = lesson_id.rpartition("/")[2]
    is_dated = _DATED.match(stem) is not None
    if match or is_dated or written is None:
        where = "the title" if match else "the name of the file"
        day = _day(match[1] if match else stem[:10], where, lesson_id, start + 1)
    else:
        day = written.date()
    times = (None if AT not in front else datetime.fromisoformat(str(front[AT])), written)
    agent = front.get("agent", agent)
    summary = match[2].removeprefix(f"{one_line(agent)} - ") if match else title.removeprefix("# ")
    named = stem[11:] if is_dated else stem
    others = {str(key): value for key, value in front.items() if key not in _KEYS}
    return Lesson(
        content=content,
        agent=agent,
        day=day,
        summary=summary or named.replace("-", " "),
        tools=tuple(front.get("tools", ())),
        confidence=front.get("confidence", CONFIDENCE),
        status=front.get("status", "active"),
        id=lesson_id,
        # If a person changes the day in the title, the time of the old day is void.
        at=next((at for at in times if at is not None and at.date() == day), None),
        others=json.dumps(others, ensure_ascii=False, default=str) if others else "",
        **{name: front[name] for name in _TEXTS if name in front and name != "agent"},
    )


def _day(text: str, where: str, file: str, line: int) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise LessonFileError(
            f"{text!r} in {where} is not a day (YYYY-MM-DD).", file=file, line=line
        ) from error


def _problem(key: Any, value: Any) -> str:
    """The problem of an entry of the front matter; empty if there is none."""
    choices = {"kind": tuple(KINDS), "status": STATUSES, "trust": TRUSTS}.get(key)
    if choices is not None and value not in choices:
        return f"Unknown {key} {value!r}; {nearest(str(value), choices)}"
    if key == AT and not _is_time(value):
        return f"at must be a time with its zone, such as 2026-03-01T10:15:00+00:00, got {value!r}."
    if key == "confidence" and (not is_number(value) or not 0 <= value <= 1):
        return f"confidence must be a number in 0..1, got {value!r}."
    if key == "tools":
        return wrong_tools(value)
    if key in _TEXTS and not isinstance(value, str):
        return f"{key} must be a text, got {value!r}; put it in quotes."
    return ""


def _is_time(value: Any) -> bool:
    try:
        return datetime.fromisoformat(str(value)).tzinfo is not None
    except ValueError:
        return False


def _content(kind: LessonKind | None, sections: dict[str, str], file: str) -> Content:
    # By default, the kind whose headings are all present; of several, the kind with the most headings.
    fitting = [KINDS[kind]] if kind else [form for form in KINDS.values() if _needed(form) <= set(sections)]
    form = max(fitting, key=lambda form: len(_needed(form)), default=None)
    if form is None:
        raise LessonFileError("This is not a lesson: it has none of a lesson's headings.", file=file, line=1)
    texts: dict[str, Any] = {}
    for name, heading in headings_of(form).items():
        texts[name] = sections.pop(heading.casefold(), "")
        if not texts[name]:
            raise LessonFileError(f"There is nothing under '## {heading}'.", file=file, line=1)
    if sections:
        odd = next(iter(sections))
        raise LessonFileError(f"A {form.kind} has no heading {odd!r}.", file=file, line=1)
    return form(**texts)


def _needed(form: type[Content]) -> set[str]:
    return {heading.casefold() for heading in headings_of(form).values()}


# --- drafts of a person ------------------------------------------------------------------------------------

TITLE = "what the task is about, in a few words"
"""The placeholder for the title in a template."""
_FRONT = re.compile(r"---\n(?:.*?\n)?---\n", re.DOTALL)
_EMPTY_ENTRY = re.compile(r"^[a-z_]+:[ \t]*\n", re.MULTILINE)


def template(kind: LessonKind, agent: str) -> str:
    """The text of a lesson's file to be filled in, with a hint under each heading."""
    what = _TITLED.get(kind, "Reflection")
    parts = [f"# {what}: {datetime.now(UTC).date()} - {agent} - {TITLE}"]
    parts += [
        f"## {form_field.metadata['heading']}\n> {form_field.metadata['hint']}\n"
        for form_field in fields(KINDS[kind])
    ]
    return f"---\nkind: {kind}\ntask:\ntask_type:\ntools: []\nerror:\n---\n" + "\n\n".join(parts)


def parse_draft(text: str, file: str, agent: str) -> Lesson:
    """Parse a file that a person wrote, ignoring hints and empty entries left from the template.

    Raises `LessonFileError` with the line.
    """
    text = text.replace("\r\n", "\n")
    match = _FRONT.match(text)
    front, body = ("", text) if match is None else (match[0], text[match.end() :])
    for form in KINDS.values():
        for form_field in fields(form):
            body = body.replace(f"> {form_field.metadata['hint']}\n", "\n")
    # Empty entries become comments, so that line numbers stay the same.
    lesson = parse(_EMPTY_ENTRY.sub("#\n", front) + body, file, agent, datetime.now(UTC))
    if TITLE in lesson.summary:
        raise LessonFileError(f"The title still says {TITLE!r}.", file=file)
    return lesson
