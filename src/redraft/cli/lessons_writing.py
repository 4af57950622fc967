"""Lessons that a person writes: out of options, out of a file, in an editor."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from redraft.cli.editing import edited
from redraft.cli.kept_lessons import with_lessons
from redraft.core.check import check_choice
from redraft.core.errors import ConfigError, LessonFileError
from redraft.core.task import Task
from redraft.lessons.clean import Cleaner
from redraft.lessons.content import KINDS, Content, LessonKind, headings_of
from redraft.lessons.files import locked, naming, write_over
from redraft.lessons.folder import REFLECTIONS, LessonFolder
from redraft.lessons.learning import given
from redraft.lessons.lesson import Lesson
from redraft.lessons.markdown import parse
from redraft.lessons.names import folder_name

if TYPE_CHECKING:
    from redraft.cli.lessons_place import LessonsPlace
    from redraft.lessons.folder import Entry
    from redraft.lessons.lessons import Lessons

LONGEST_FILE = 1_000_000
ABOUT = "what the task is about, in a few words"
_EMPTY_ENTRY = re.compile(r"^[a-z_]+:[ \t]*\n", re.MULTILINE)
_REJECTED = ".rejected"


@dataclass(frozen=True, slots=True)
class Added:
    """Hold a lesson that was added, or the one that says nearly the same and is surer now."""

    lesson: Lesson
    is_new: bool


def content_of(said: dict[str, str | None], kind: str | None) -> Content | None:
    """Return what options say as the content of a lesson; None where they say nothing.

    The kind follows from what is said, unless it is given. Raises `ConfigError` for what is missing, or does
    not belong to the kind.
    """
    if kind is not None:
        check_choice("--kind", kind, tuple(KINDS))
    texts: dict[str, Any] = {name: text for name, text in said.items() if text is not None}
    if not texts:
        return None
    form = KINDS[cast("LessonKind", kind)] if kind is not None else _form_of(set(texts))
    names = list(headings_of(form))
    if missing := [name for name in names if name not in texts]:
        raise ConfigError(f"A {form.kind} also takes {', '.join(map(_option, missing))}.")
    if odd := [name for name in texts if name not in names]:
        raise ConfigError(f"A {form.kind} does not take {', '.join(map(_option, odd))}.")
    return form(**texts)


def add_lesson(place: LessonsPlace, agent: str, lesson: Lesson, confidence: float | None) -> Added:
    """File a lesson that a person wrote, active at once; raises `ConfigError` for what no lesson may say."""
    before = {entry.id for entry in LessonFolder(place.path, agent).entries()}
    task = Task(lesson.task or lesson.summary, task_type=lesson.task_type, tools=lesson.tools)

    async def record(lessons: Lessons) -> Lesson:
        return await lessons.record(
            lesson.content, task, error=lesson.error, run_id=lesson.source, confidence=confidence
        )

    filed = with_lessons(place, agent, record)
    return Added(filed, filed.id not in before)


def lesson_of_file(text: str, file: str, agent: str) -> Lesson:
    """Read a lesson that a person wrote; what is left over of a template counts as nothing said.

    Raises `LessonFileError` with the line.
    """
    front, body = _parts(text)
    for form in KINDS.values():
        for one in fields(form):
            body = body.replace(f"> {one.metadata['says']}\n", "\n")
    stem = f"{_today()}-{folder_name(file)}"
    try:
        lesson = parse(_EMPTY_ENTRY.sub("#\n", front) + body, f"{folder_name(agent)}/{stem}", agent)
    except LessonFileError as error:
        raise LessonFileError(str(error).partition(": ")[2], file=file, line=error.line) from error
    if ABOUT in lesson.summary:
        raise LessonFileError(f"Its title still says {ABOUT!r}.", file=file)
    return lesson


def template(kind: str | None, agent: str) -> str:
    """Return the file of a lesson that says nothing yet, and under each heading what belongs there."""
    form = KINDS[cast("LessonKind", kind or "failure")]
    what = "Procedure" if form.kind == "procedure" else "Reflection"
    parts = [f"# {what}: {_today()} - {agent} - {ABOUT}"]
    parts += [f"## {one.metadata['heading']}\n> {one.metadata['says']}\n" for one in fields(form)]
    front = f"---\nkind: {form.kind}\ntask:\ntask_type:\ntools: []\nerror:\n---\n"
    return front + "\n\n".join(parts)


def lesson_given(
    content: Content | None,
    file: str | None,
    kind: str | None,
    agent: str,
    about: dict[str, str | None],
    tools: tuple[str, ...],
) -> Lesson:
    """Return the lesson that options give, else that of a file, else what a person writes in the editor.

    What options say of the task goes before what a file says. Raises `ConfigError` for both fields and a
    file.
    """
    if content is not None and file is not None:
        raise ConfigError("lessons add takes the fields of a lesson or a --file, not both.")
    if content is not None:
        if not (about["task"] or "").strip():
            raise ConfigError("Say with --task what was asked: a lesson is found by it.")
        lesson = Lesson(content, agent, datetime.now(UTC).date(), "")
    elif file is not None:
        lesson = lesson_of_file(read_file(file), file, agent)
    else:
        lesson = write_by_hand(kind, agent)
    changed: dict[str, Any] = {name: text for name, text in about.items() if text}
    return replace(lesson, **changed, **({"tools": tools} if tools else {}))


def write_by_hand(kind: str | None, agent: str) -> Lesson:
    """Let a person write a lesson in the editor; one that is broken is kept in a file of this folder."""
    blank = template(kind, agent)
    text = edited(blank, "lesson.md")
    if text == blank:
        raise ConfigError("Nothing was written, so there is no new lesson.")
    try:
        lesson = lesson_of_file(text, "the lesson", agent)
        given(lesson.content)
    except (ConfigError, LessonFileError) as error:
        path = _free(Path("lesson.md"))
        _keep(path, text)
        raise ConfigError(
            f"{error} What you wrote is in {str(path)!r}; mend it, then: redraft lessons add --file {path}"
        ) from error
    return lesson


def edit_lesson(place: LessonsPlace, wanted: str) -> Lesson | None:
    """Let a person edit the file of a lesson; return the lesson, or None if nothing was changed.

    A broken file may be mended so. What can't be a lesson is not saved: it is kept beside the file, the error
    says on which line it is wrong, and the next edit goes on with it. Secrets in it are withheld. What came
    with the lesson goes where its new standing puts it.
    """
    entry = place.meant(wanted)
    folder = LessonFolder(place.path, entry.id.partition("/")[0])
    rejected = entry.path.with_name(f"{entry.path.name}{_REJECTED}")
    before = folder.text_of(entry)
    is_left_over = rejected.is_file() and not rejected.is_symlink()
    text = edited(rejected.read_text("utf-8") if is_left_over else before, entry.path.name)
    if text == before:
        rejected.unlink(missing_ok=True)
        return None
    try:
        lesson = _clean(parse(text, entry.id, folder.agent))
        with locked(place.path / REFLECTIONS / folder.name):
            _check_unchanged(folder, entry, before)
            folder.write(lesson)
    except (ConfigError, LessonFileError) as error:
        _keep(rejected, text)
        raise ConfigError(
            f"{error} Nothing was saved. Your edit is in {str(rejected)!r}; "
            f"`redraft lessons edit {wanted}` goes on with it."
        ) from error
    rejected.unlink(missing_ok=True)
    with_lessons(place, folder.name, lambda lessons: lessons.follow(lesson.id))
    return lesson


def _check_unchanged(folder: LessonFolder, entry: Entry, before: str) -> None:
    if folder.text_of(entry) != before:
        raise ConfigError(f"{entry.id}: somebody else changed it meanwhile.")


def read_file(file: str) -> str:
    """Return what a file of a lesson says; raises `ConfigError` for one that can't be read."""
    path = Path(file)
    try:
        if path.stat().st_size > LONGEST_FILE:
            raise ConfigError(f"{file!r} has {path.stat().st_size:,} bytes, which is no lesson.")
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{file!r} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file!r} is not UTF-8: {error.reason}.") from error


def _clean(lesson: Lesson) -> Lesson:
    """Return a lesson as it may be kept; raises `ConfigError` for what no lesson may say."""
    cleaner = Cleaner()
    texts: dict[str, Any] = {
        name: cleaner.redacted(text)
        for name, text in {
            "summary": lesson.summary,
            "task": lesson.task,
            "task_type": lesson.task_type,
            "error": lesson.error,
            "why": lesson.why,
        }.items()
    }
    if why := cleaner.refusal(texts["summary"]):
        raise ConfigError(f"Its title can't be that of a lesson: {why}.")
    tools = tuple(map(cleaner.redacted, lesson.tools))
    return replace(lesson, content=given(lesson.content).content, tools=tools, **texts)


def _parts(text: str) -> tuple[str, str]:
    """Return what stands before the title, with its fences, and the rest."""
    text = text.replace("\r\n", "\n")
    end = text.find("\n---\n", 3) if text.startswith("---\n") else -1
    return (text[: end + 5], text[end + 5 :]) if end >= 0 else ("", text)


def _form_of(names: set[str]) -> type[Content]:
    """Return the kind that what is said fits best: it lacks the least, and has the least too many."""
    return min(KINDS.values(), key=lambda form: len(names ^ set(headings_of(form))))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _keep(path: Path, text: str) -> None:
    with naming(path):
        write_over(path, text.encode("utf-8", "surrogatepass"))
        os.chmod(path, 0o600)  # noqa: PTH101 (what was refused may hold a secret)


def _free(path: Path) -> Path:
    number = 1
    free = path
    while free.exists():
        number += 1
        free = path.with_stem(f"{path.stem}-{number}")
    return free


def _today() -> str:
    return str(datetime.now(UTC).date())
