"""Lessons as markdown: the headings of the protocol, and in front of them what recall needs."""

from __future__ import annotations

import re
from datetime import date
from hashlib import sha256
from typing import Any

from redraft.core.check import is_number
from redraft.core.errors import LessonFileError
from redraft.core.nearest import nearest
from redraft.lessons.content import KINDS, Content, LessonKind, headings_of
from redraft.lessons.document import (
    front_of,
    lines_of,
    one_line,
    section,
    sections_of,
    with_front,
    wrong_tools,
)
from redraft.lessons.lesson import CONFIDENCE, STATUSES, Lesson

OUTCOMES: dict[LessonKind, str] = {
    "failure": "failed",
    "partial": "partial",
    "procedure": "success",
    "decision": "decision",
}
_TEXTS = ("why", "superseded_by", "task_type", "task", "error", "source", "agent")
_KEYS = ("kind", "status", "outcome", "confidence", "tools", "hash", *_TEXTS)
_DATED = re.compile(r"\d{4}-\d{2}-\d{2}(?:-|$)")
_TITLE = re.compile(r"# (?:Reflection|Procedure): (\d{4}-\d{2}-\d{2}) - (.+)")
_HEADINGS = {heading.casefold() for kind in KINDS.values() for heading in headings_of(kind).values()}


def render(lesson: Lesson) -> str:
    """Return the file of a lesson.

    What its fields say stands there as it is, but for characters that can't be seen and for lines that would
    be headings of the protocol: those begin with a backslash.
    """
    body = _body(lesson)
    kept = {
        "kind": lesson.kind,
        "status": lesson.status,
        "outcome": OUTCOMES[lesson.kind],
        "confidence": lesson.confidence,
        "tools": list(lesson.tools),
        **{name: getattr(lesson, name) for name in _TEXTS},
        "hash": hash_of(body),
    }
    return with_front(kept, body)


def _body(lesson: Lesson) -> str:
    what = "Procedure" if lesson.kind == "procedure" else "Reflection"
    parts = [f"# {what}: {lesson.day} - {one_line(lesson.agent)} - {one_line(lesson.summary)}"]
    for name, heading in headings_of(type(lesson.content)).items():
        parts.append(section(heading, getattr(lesson.content, name), _HEADINGS))
    return "\n\n".join(parts) + "\n"


def hash_of(body: str) -> str:
    """Return what tells whether the words of a lesson were changed since it was written."""
    return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def parse(text: str, lesson_id: str, agent: str, written: date | None = None) -> Lesson:
    """Read the file of a lesson.

    One that a person wrote needs the headings alone: the kind follows from them, the day from the name of the
    file, else it is the one on which that was `written`; and it is active. Raises `LessonFileError` with the
    line for what can't be understood.
    """
    lines = lines_of(text)
    front, start = front_of(lines, lesson_id, _problem)
    title, sections = sections_of(lines, start, lesson_id, _HEADINGS)
    content = _content(front.get("kind"), sections, lesson_id)
    found = _TITLE.fullmatch(title)
    stem = lesson_id.rpartition("/")[2]
    is_dated = _DATED.match(stem) is not None
    if found or is_dated or written is None:
        where = "the title" if found else "the name of the file"
        written = _day(found[1] if found else stem[:10], where, lesson_id, start + 1)
    agent = front.get("agent", agent)
    summary = found[2].removeprefix(f"{one_line(agent)} - ") if found else title.removeprefix("# ")
    named = stem[11:] if is_dated else stem
    return Lesson(
        content=content,
        agent=agent,
        day=written,
        summary=summary or named.replace("-", " "),
        tools=tuple(front.get("tools", ())),
        confidence=front.get("confidence", CONFIDENCE),
        status=front.get("status", "active"),
        id=lesson_id,
        **{name: front[name] for name in _TEXTS if name in front and name != "agent"},
    )


def _day(text: str, where: str, file: str, line: int) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise LessonFileError(f"{text!r} in {where} is no day (YYYY-MM-DD).", file=file, line=line) from error


def _problem(key: Any, value: Any) -> str:
    """Say what is wrong with an entry of the front matter, if anything is."""
    if key not in _KEYS:
        return f"There is no {key!r}; {nearest(str(key), _KEYS)}"
    choices = {"kind": tuple(KINDS), "status": STATUSES}.get(key)
    if choices is not None and value not in choices:
        return f"{key}: there is no {value!r}; {nearest(str(value), choices)}"
    if key == "confidence" and (not is_number(value) or not 0 <= value <= 1):
        return f"confidence must be a number in 0..1, got {value!r}."
    if key == "tools":
        return wrong_tools(value)
    if key in _TEXTS and not isinstance(value, str):
        return f"{key} must be a text, got {value!r}; put it in quotes."
    return ""


def _content(kind: LessonKind | None, sections: dict[str, str], file: str) -> Content:
    form = KINDS[kind] if kind else _form_of(sections)
    if form is None:
        raise LessonFileError("No heading of the protocol is in it, so it is no lesson.", file=file, line=1)
    texts: dict[str, Any] = {}
    for name, heading in headings_of(form).items():
        texts[name] = sections.pop(heading.casefold(), "")
        if not texts[name]:
            raise LessonFileError(f"Nothing is said under '## {heading}'.", file=file, line=1)
    if sections:
        odd = next(iter(sections))
        raise LessonFileError(f"A {form.kind} has no heading {odd!r}.", file=file, line=1)
    return form(**texts)


def _form_of(sections: dict[str, str]) -> type[Content] | None:
    """Return the kind whose headings are all there; of two, the one that has more."""
    fitting = [form for form in KINDS.values() if _needed(form) <= set(sections)]
    return max(fitting, key=lambda form: len(_needed(form)), default=None)


def _needed(form: type[Content]) -> set[str]:
    return {heading.casefold() for heading in headings_of(form).values()}
