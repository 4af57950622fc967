"""Import what people wrote for agents: AGENTS.md, CLAUDE.md, Cursor rules, folders of Markdown."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from redraft._texts import shortened
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.export import LABELS, RULE_LABELS, ManagedBlock
from redraft.lessons.files import locked, read_text
from redraft.lessons.folder import MOST_LESSONS, REJECTED, RULES, LessonFolder, folder_name
from redraft.lessons.lesson import (
    KINDS,
    NEAR_DUPLICATE,
    Decision,
    Lesson,
    Procedure,
    headings_of,
    overlap,
    words_in,
    words_of,
)
from redraft.lessons.markdown import one_line, parse
from redraft.lessons.rules import Rules
from redraft.lessons.safety import LONGEST, Cleaner

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from redraft.lessons.lesson import Content, LessonKind

KNOWN_FILES = ("AGENTS.md", "CLAUDE.md", ".cursorrules", ".cursor/rules")
"""What is imported from a project if no path is given."""
ENDINGS = (".md", ".mdc")
MOST_FILES = 500
MOST_PIECES = 500
"""Sections, or lessons of an export, in one file."""
UNKNOWN = "Not known."
NOT_VOUCHED = "imported, and nobody has vouched for it yet"
VOUCHED = "imported by a person who vouches for it"
_DIGEST = 12
"""Characters of the hash at the end of a source, which shows that a section was changed."""
_LONGEST_SUMMARY = 90
_LONGEST_ABOUT = 300


@dataclass(frozen=True, slots=True)
class ImportItem:
    """A piece of a file, and what an import makes of it.

    `place` is the file and the section. `what` is `new`, `changed` (it supersedes the lesson `known`),
    `known` (it is stored already, as `known`), `approved` (likewise, and a person vouches for it now) or
    `refused`, for the reason `why`. `rule` is a permanent rule
    of an export; any other piece is a `lesson`.
    """

    place: str
    what: Literal["new", "changed", "known", "approved", "refused"]
    lesson: Lesson | None = None
    rule: str = ""
    known: str = ""
    why: str = ""


def read_items(paths: Sequence[Path], agent: str, project: Path) -> list[ImportItem]:
    """Read the lessons in files and folders; what can't be read is an item that says why.

    Each section of a text becomes a lesson of `agent`, numbered steps a procedure and anything else a
    decision. What was exported becomes the lessons that it was, and the file of a lesson that lesson. Files
    are named relative to the `project`. Links are followed within their folder only. Raises `ConfigError` if
    there is no such file, or if there are too many.
    """
    items: list[ImportItem] = []
    seen: set[Path] = set()
    for path in _files_in(paths):
        target = Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for links in a circle
        if target in seen:
            continue
        seen.add(target)
        name = os.path.relpath(path, project)
        name = path.name if name.startswith("..") else name
        try:
            if not target.is_relative_to(path.parent.resolve()):
                raise LessonFileError("This is a link that leads out of its folder.", file=name)
            text = read_text(target, name, of="a file of instructions")
            if "\0" in text:
                raise LessonFileError("This is not a text file.", file=name)
            day = datetime.fromtimestamp(target.stat().st_mtime, UTC).date()
            items += _Reader(name, agent, day).items(text)
        except (StoreError, ConfigError) as error:  # an export whose marks don't match is a ConfigError
            items.append(ImportItem(name, "refused", why=str(error)))
    clean = Cleaner().redact
    return [
        replace(one, place=clean(one.place), why=clean(one.why)) if one.what == "refused" else one
        for one in items
    ]


def _files_in(paths: Sequence[Path]) -> list[Path]:
    """Return the files, and those in the folders, by name, without linked and hidden folders."""
    found: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise ConfigError(f"There is no file or folder {str(path)!r}.")
            found.append(path)
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            found += [Path(folder, name) for name in sorted(names) if name.endswith(ENDINGS)]
            if len(found) > MOST_FILES:
                raise ConfigError(
                    f"There are more than {MOST_FILES} files in {str(path)!r}; name a smaller folder."
                )
    return found


# --- reading one file --------------------------------------------------------------------------------------

_IS_LESSON = re.compile(r"^(?:# (?:Reflection|Procedure): \d{4}-|kind: \w+$)", re.MULTILINE)
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t](.*)")
_CODE = re.compile(r"[ \t]*(```|~~~)")
_STEP = re.compile(r"[ \t]*\d+[.)][ \t]")
_ITEM = re.compile(r"- (.+) \[([^\[\]\s]+)\]")
_LESSON_ITEM = re.compile(r"\*\*(.+?)\*\*(?: \((.*?)\))?\. (.+)")
_ESCAPE = re.compile(r"\\(?=<[!/?A-Za-z]|@[\w~./])")
_ID = re.compile(r"([a-z0-9][a-z0-9-]{0,59})/([^\W_][\w-]{0,99}|rules\.md)")
_LONGEST_ITEM = 10_000


@dataclass(frozen=True, slots=True)
class _Reader:
    """Read the lessons in a file, which errors and sources call `name`, changed on a `day`."""

    name: str
    agent: str
    day: date
    cleaner: Cleaner = field(default_factory=Cleaner)

    def items(self, text: str) -> list[ImportItem]:
        """Return the lessons and rules in a text; raises `LessonFileError` for a broken file of a lesson."""
        text = text.replace("\r\n", "\n")
        block = ManagedBlock.find(text, self.name)
        items = [self._exported(line) for line in (block.body or "").split("\n") if line.startswith("- ")]
        if block.body is None and _IS_LESSON.search(text):
            return [self._lesson_file(text)]
        items += islice(self._sections(f"{block.before}\n{block.after}"), MOST_PIECES + 1)
        if len(items) > MOST_PIECES:
            raise LessonFileError(f"There are more than {MOST_PIECES} sections.", file=self.name)
        return items

    # What Redraft wrote itself.

    def _lesson_file(self, text: str) -> ImportItem:
        lesson = parse(text, f"{folder_name(self.agent)}/{Path(self.name).stem}", self.agent, self.day)
        return self._item(self.name, replace(lesson, agent=self.agent))

    def _exported(self, line: str) -> ImportItem:
        """Return the lesson or the rule in an item of an export."""
        found = _ITEM.fullmatch(line.rstrip()) if len(line) <= _LONGEST_ITEM else None
        named = _ID.fullmatch(found[2]) if found else None
        if found is None or named is None:
            place = f"{self.name}: {shortened(self.cleaner.redact(line), 40)}"
            return ImportItem(place, "refused", why="This item was changed after it was exported.")
        place, (agent, stem) = f"{self.name}: {named[0]}", named.groups()
        if stem == RULES:
            rule = self.cleaner.redact(_ESCAPE.sub("", found[1]))
            return ImportItem(place, "new", Lesson(_decision(rule), agent, self.day, rule), rule=rule)
        parts = _LESSON_ITEM.fullmatch(found[1])
        content = None if parts is None else _content_of(_ESCAPE.sub("", parts[3]))
        if parts is None or content is None:
            return ImportItem(place, "refused", why="This item was changed after it was exported.")
        summary, about = (_ESCAPE.sub("", one or "") for one in parts.groups()[:2])
        task_type, _, tools = about.partition("; ")
        try:
            day = date.fromisoformat(stem[:10])
        except ValueError:  # a file without a day in its name
            day = self.day
        tool_names = tuple(tools.split(", ")) if tools else ()
        lesson = Lesson(content, agent, day, summary, summary, task_type, tool_names, id=named[0])
        return self._item(place, lesson)

    # What people wrote.

    def _sections(self, text: str) -> Iterator[ImportItem]:
        """Yield a lesson for each section that has a text, or for each part of a long one."""
        front = _FRONT.match(text.lstrip("\n"))
        about = "" if front is None else _about(front[1])
        text = text if front is None else text.lstrip("\n")[front.end() :]
        for heading, body in _sections_of(_COMMENT.sub("", text)):
            title = one_line(heading or about or Path(self.name).name)
            parts = list(_parts_of(self.cleaner.redact(body)))
            for number, part in enumerate(parts, 1):
                summary = f"{title} ({number})" if len(parts) > 1 else title
                place = f"{self.name}#{one_line(heading)}" + (f" ({number})" if len(parts) > 1 else "")
                if len(part) > LONGEST:
                    yield ImportItem(place, "refused", why=f"A paragraph has {len(part):,} characters.")
                    continue
                lines = [line for line in part.split("\n") if line.strip() and line[0] not in " \t"]
                why = f"{self.name} says so."
                is_steps = all(map(_STEP.match, lines))
                content = Procedure(part, why) if is_steps else _decision(part, why)
                task = ": ".join(one for one in (about, title) if one)
                digest = sha256(part.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
                lesson = Lesson(content, self.agent, self.day, summary, task, source=f"{place}:{digest}")
                yield self._item(place, lesson)

    def _item(self, place: str, lesson: Lesson) -> ImportItem:
        """Return an item with its texts redacted."""
        clean = self.cleaner.redact
        names = ("title", "summary", "task", "task_type", "error", "source")
        texts: dict[str, Any] = {name: clean(getattr(lesson, name)) for name in names}
        texts["summary"] = shortened(texts["summary"], _LONGEST_SUMMARY) or "untitled"
        content = lesson.content
        fields: dict[str, Any] = {name: clean(getattr(content, name)) for name in headings_of(type(content))}
        tools = tuple(map(clean, lesson.tools))
        lesson = replace(lesson, content=replace(content, **fields), tools=tools, **texts)
        return ImportItem(clean(place), "new", lesson)


def _decision(text: str, why: str = UNKNOWN) -> Decision:
    return Decision(text, UNKNOWN, why)


def _content_of(text: str) -> Content | None:
    """Return the content of an exported lesson by its labels; fields that are not exported are unknown."""
    best: dict[str, str] = {}
    kind: LessonKind = "failure"
    for forms in (LABELS, RULE_LABELS):
        for each, labels in forms.items():
            pattern = "".join(rf"(?:(?:^| ){label}: (?P<{name}>.+?))?" for name, label in labels.items())
            found = re.fullmatch(pattern, text)
            fields = {} if found is None else {name: one for name, one in found.groupdict().items() if one}
            if len(fields) > len(best):
                kind, best = each, fields
    if not best:
        return None
    form: Any = KINDS[kind]
    return form(**{name: best.get(name, UNKNOWN) for name in headings_of(form)})


def _about(front: str) -> str:
    """Return what a rule is about, by its front matter, which is read line by line: globs are no YAML."""
    entries: dict[str, str] = {}
    for line in front.split("\n"):
        key, _, value = line.partition(":")
        entries[key] = one_line(value).strip("\"'")
    texts = (entries.get("description") or entries.get("name", ""), entries.get("globs", ""))
    return shortened("; ".join(filter(None, texts)), _LONGEST_ABOUT)


def _sections_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield the headings above each text, without the title of the file, and the text."""
    headings: list[str] = []
    lines: list[str] = []
    fence = ""
    for line in [*text.split("\n"), "# "]:
        code = _CODE.match(line)
        if code is not None and fence in ("", code[1]):
            fence = "" if fence else code[1]
        found = None if fence else _HEADING.fullmatch(line)
        if found is None:
            lines.append(line)
            continue
        if any(one.strip() for one in lines):
            yield " / ".join(one for one in headings[1:] or headings if one), "\n".join(lines).strip("\n")
        level = len(found[1])
        headings = [*headings[: level - 1], *[""] * (level - 1 - len(headings)), found[2].strip(" \t#")]
        lines = []
    if fence and any(one.strip() for one in lines[:-1]):  # a fence that is never closed
        yield " / ".join(one for one in headings[1:] or headings if one), "\n".join(lines[:-1]).strip("\n")


def _parts_of(text: str) -> Iterator[str]:
    """Yield the parts of a text that fit into a field, cut between lines."""
    part: list[str] = []
    size = 0
    for line in text.split("\n"):
        if part and size + len(line) > LONGEST:
            yield "\n".join(part).strip("\n")
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if any(line.strip() for line in part):
        yield "\n".join(part).strip("\n")


# --- comparing with what is stored, and storing ------------------------------------------------------------


def compared(items: Sequence[ImportItem], path: Path, *, trusted: bool) -> list[ImportItem]:
    """Say of each item what an import makes of it, beside the agents' lessons under `path` and each other.

    Raises `ConfigError` if an agent would have more lessons than it keeps.
    """
    known: dict[str, list[Lesson]] = {}
    found: list[ImportItem] = []
    for item in items:
        lesson = item.lesson
        if lesson is None:
            found.append(item)
            continue
        if lesson.agent not in known:
            known[lesson.agent] = list(LessonFolder(path, lesson.agent).lessons(archived=True))
        if item.rule:
            found.append(_compared_rule(item, Rules(path, lesson.agent), trusted=trusted))
            continue
        found.append(_compared(item, lesson, known[lesson.agent], trusted=trusted))
        if found[-1].what in ("new", "changed"):
            known[lesson.agent].append(replace(lesson, id=lesson.id or item.place))
    for agent in known:
        _check_room(LessonFolder(path, agent), found)
    return found


def _compared_rule(item: ImportItem, rules: Rules, *, trusted: bool) -> ImportItem:
    if any(rule.text.rstrip(".") == item.rule.rstrip(".") for rule in rules.permanent()):
        return replace(item, what="known", known=f"{rules.agent}/{RULES}")
    if not trusted:
        return replace(
            item, what="refused", why="A permanent rule needs a person who vouches for it: use --trusted."
        )
    return item


def _compared(item: ImportItem, lesson: Lesson, known: Sequence[Lesson], *, trusted: bool) -> ImportItem:
    for one in known:
        if (lesson.id and one.id == lesson.id) or (lesson.source and one.source == lesson.source):
            is_waiting = one.status == "quarantined" and one.trust == "untrusted"
            is_approved = trusted and is_waiting and one.content == lesson.content
            return replace(item, what="approved" if is_approved else "known", known=one.id)
    section = _section_of(lesson)
    for one in known:
        if section and _section_of(one) == section and one.status != "superseded":
            if one.trust == "vouched" and one.status == "active" and not trusted:
                why = f"You vouched for this section as it was ({one.id}); --trusted accepts the change."
                return replace(item, what="refused", known=one.id, why=why)
            # What a person has retired stays so.
            return replace(item, what="known" if one.status == "retired" else "changed", known=one.id)
    words = _words(lesson.content)
    for one in known:
        if one.kind == lesson.kind and overlap(words, _words(one.content)) >= NEAR_DUPLICATE:
            return replace(item, what="known", known=one.id)
    return item


def _words(content: Content) -> frozenset[str]:
    """Return the words of a content without those of its origin, which all sections of a file share."""
    if isinstance(content, Decision):
        return words_in(content.decision)
    return words_in(content.strategy) if isinstance(content, Procedure) else words_of(content)


def _section_of(lesson: Lesson) -> str:
    """Return the file and the section that a lesson was imported from; empty for one that a run taught."""
    section, _, digest = lesson.source.rpartition(":")
    return section if "#" in section and len(digest) == _DIGEST else ""


def _check_room(folder: LessonFolder, items: Sequence[ImportItem]) -> None:
    """Raise `ConfigError` if an import would push an agent's own lessons into the archive."""
    new = [item for item in items if item.what == "new" and not item.rule]
    count = sum(item.lesson is not None and item.lesson.agent == folder.agent for item in new)
    there = sum(one.status in ("active", "quarantined") for one in folder.lessons())
    if count and count + there > MOST_LESSONS:
        raise ConfigError(
            f"The agent {folder.agent!r} has {there} lessons; with {count} more, it would have more than the "
            f"{MOST_LESSONS} that an agent keeps. Import fewer files, or choose another --agent."
        )


def file_imported(path: Path, lesson: Lesson) -> Lesson:
    """Write an imported lesson to a new file; it is quarantined unless it was out of use already."""
    status = "quarantined" if lesson.status == "active" else lesson.status
    why = lesson.why if lesson.status in REJECTED else NOT_VOUCHED
    folder = LessonFolder(path, lesson.agent)
    with locked(folder.path):
        return folder.add(replace(lesson, status=status, trust="untrusted", overrules="", why=why))
