"""Lessons that a person writes: in the options of a command, in a file, or in a template."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from redraft._validation import check_choice
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.folder import folder_name
from redraft.lessons.lesson import KINDS, Content, Lesson, LessonKind, headings_of
from redraft.lessons.markdown import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

TITLE = "what the task is about, in a few words"
"""What stands in a template where the title goes."""
_FRONT = re.compile(r"---\n(?:.*?\n)?---\n", re.DOTALL)
_EMPTY_ENTRY = re.compile(r"^[a-z_]+:[ \t]*\n", re.MULTILINE)


def content_of(given: Mapping[str, str | None], kind: str | None = None) -> Content | None:
    """Return the content of a lesson, by its field names; None if no field is given.

    Without a `kind` it is the one that the fields fit best. Raises `ConfigError` for fields that are missing
    or belong to another kind, as options of a command.
    """
    texts = {name: text for name, text in given.items() if text is not None}
    if kind is not None:
        check_choice("--kind", kind, tuple(KINDS))
    if not texts:
        return None
    best = min(KINDS.values(), key=lambda form: len(texts.keys() ^ headings_of(form).keys()))
    form = best if kind is None else KINDS[cast("LessonKind", kind)]
    names = headings_of(form)
    if missing := [name for name in names if name not in texts]:
        raise ConfigError(f"A {form.kind} also needs {', '.join(map(_option, missing))}.")
    if odd := [name for name in texts if name not in names]:
        raise ConfigError(f"A {form.kind} takes no {', '.join(map(_option, odd))}.")
    return form(**cast("dict[str, Any]", texts))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def template(kind: str | None, agent: str) -> str:
    """Return the file of a lesson to be written, with a hint under each heading."""
    form = KINDS[cast("LessonKind", kind or "failure")]
    what = "Procedure" if form.kind == "procedure" else "Reflection"
    parts = [f"# {what}: {datetime.now(UTC).date()} - {agent} - {TITLE}"]
    parts += [f"## {one.metadata['heading']}\n> {one.metadata['says']}\n" for one in fields(form)]
    return f"---\nkind: {form.kind}\ntask:\ntask_type:\ntools: []\nerror:\n---\n" + "\n\n".join(parts)


def parse_draft(text: str, file: str, agent: str) -> Lesson:
    """Parse a file that a person wrote; hints and empty entries left from the template don't count.

    Raises `LessonFileError` with the line.
    """
    text = text.replace("\r\n", "\n")
    found = _FRONT.match(text)
    front, body = ("", text) if found is None else (found[0], text[found.end() :])
    for form in KINDS.values():
        for one in fields(form):
            body = body.replace(f"> {one.metadata['says']}\n", "\n")
    lesson_id = f"{folder_name(agent)}/{datetime.now(UTC).date()}-{folder_name(file)}"
    try:
        # A comment in the place of an entry keeps the numbers of the lines.
        lesson = parse(_EMPTY_ENTRY.sub("#\n", front) + body, lesson_id, agent)
    except LessonFileError as error:
        raise LessonFileError(str(error).partition(": ")[2], file=file, line=error.line) from error
    if TITLE in lesson.summary:
        raise LessonFileError(f"The title still says {TITLE!r}.", file=file)
    return lesson
