"""Exchange with the files of coding agents, such as AGENTS.md: import lessons, export a block."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from redraft._files import replace_file
from redraft._locks import check_regular
from redraft._texts import estimate_tokens, shortened
from redraft._validation import check_count
from redraft._words import overlap, words_in
from redraft.errors import ConfigError, LessonFileError, StoreError
from redraft.lessons.documents import PLAYBOOKS, RULES, read_text, text_of
from redraft.lessons.facts import fact_line
from redraft.lessons.folder import MOST_LESSONS, REJECTED, folder_name
from redraft.lessons.lesson import (
    NEAR_DUPLICATE,
    CorrectedAnswer,
    Decision,
    Fact,
    Failure,
    Lesson,
    Partial,
    Procedure,
    is_empty,
    violation_in,
    words_of,
)
from redraft.lessons.markdown import check_merged, lines_of, one_line, parse
from redraft.lessons.playbooks import parse_playbook
from redraft.lessons.rules import key_of
from redraft.memory.safety import LONGEST, Cleaner, memory_redactor, violation
from redraft.settings import project_folder
from redraft.text.yaml import load_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from redraft.lessons.documents import Documents, Entry, LessonFiles
    from redraft.lessons.folder import LessonFolder
    from redraft.lessons.lesson import Content, LessonKind
    from redraft.lessons.rules import Rule

# --- the managed block -------------------------------------------------------------------------------------

_MARK = re.compile(
    r"(?:^|(?<=[\ufeff\r]))(?:<!-- redraft:lessons (begin|end)\b[^\r\n]*| {0,3}(`{3,}|~{3,})([^\r\n]*))",
    re.MULTILINE,
)
"""A mark of a block, or a fence around code."""
_LINE_END = re.compile(r"\r\n|\r|\n")
_BEGIN = (
    "<!-- redraft:lessons begin (written by `redraft lessons export`; edit the lessons, not this block) -->"
)
_END = "<!-- redraft:lessons end -->"


@dataclass(frozen=True, slots=True)
class ManagedBlock:
    """A file in three parts: the text before the block, the body of the block, and the text after it.

    `body` is None if the file has no block, and excludes the two lines that mark it.
    """

    before: str
    body: str | None = None
    after: str = ""

    @classmethod
    def find(cls, text: str, file: str) -> ManagedBlock:
        """Find the block of a file; raises `ConfigError` with the line if its marks don't match."""
        marks = _marks_in(text)
        if not marks:
            return cls(text)
        names = [mark[1] for mark in marks]
        if names != ["begin", "end"]:
            odd = 0 if names[0] == "end" or len(names) == 1 else 1 if names[1] == "begin" else 2
            line = len(_LINE_END.findall(text[: marks[odd].start()])) + 1
            raise ConfigError(
                f"{file}, line {line}: a block of lessons has one begin line and one end line after it, but "
                f"the file has {', '.join(names)}. Delete the surplus lines, or the whole block."
            )
        begin, end = marks
        body = text[begin.end() : end.start()].removeprefix("\r").removeprefix("\n")
        return cls(text[: begin.start()], body, text[end.end() :])

    @property
    def outside(self) -> str:
        """The text of the file without the block."""
        return self.before if self.body is None else f"{self.before}\n{self.after}"

    def with_body(self, body: str) -> str:
        """The file with another body in its block, or with a block at its end.

        The rest stays the same, character by character; the block gets the line endings of the file.
        """
        first = _LINE_END.search(self.before) or _LINE_END.search(self.after)
        line = first[0] if first else "\n"
        marked = f"{_BEGIN}\n{body}{_END}".replace("\n", line)
        if self.body is not None:
            return f"{self.before}{marked}{self.after}"
        gap = "" if not self.before else line if self.before.endswith(("\n", "\r")) else 2 * line
        return f"{self.before}{gap}{marked}{line}"


def _marks_in(text: str) -> list[re.Match[str]]:
    """The marks of blocks, without those that code between fences quotes. A fence without an end is text."""
    marks, fence, before = list[re.Match[str]](), "", 0
    for match in _MARK.finditer(text):
        if match[1]:
            marks.append(match)
        elif not fence and "`" not in match[3]:
            fence, before = match[2], len(marks)
        elif fence and match[2].startswith(fence) and not match[3].strip():
            del marks[before:]
            fence = ""
    return marks


# --- import: reading files ---------------------------------------------------------------------------------

KNOWN_FILES = (
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    ".cursorrules",
    ".cursor/rules",
    ".windsurfrules",
    ".windsurf/rules",
    ".github/copilot-instructions.md",
)
"""The files that are imported from a project by default."""
ENDINGS = (".md", ".mdc")
MOST_FILES = 500
MOST_SECTIONS = 500
"""Maximum sections, or parts of long sections, in a file."""
UNKNOWN = "Not known."
UNVERIFIED = "imported, and not approved yet"
VOUCHED = "imported by a person who vouches for it"
_LONGEST_SUMMARY = 90


@dataclass(frozen=True, slots=True)
class WithheldLine:
    """A line of an imported file with something withheld."""

    text: str
    """The line with a mark in place of the withheld text."""
    number: int | None = None
    """Its number in the file, from 1; None if the withheld text spans several lines."""


@dataclass(frozen=True, slots=True)
class ImportItem:
    """A section of a file, or a part of it, and the result of its import."""

    place: str
    """The file and the section."""
    what: Literal["added", "approved", "already there", "left out", "refused"]
    """The result.

    `approved`: an existing lesson that a person now vouches for. `refused`: it could not be read.
    """
    lesson: Lesson | None = None
    """The new lesson, or the stored lesson that says the same."""
    why: str = ""
    """The reason, unless it is simply new."""
    is_archived: bool = False
    """Whether a new lesson goes to the archive, since the agent has no room for it."""
    withheld: tuple[WithheldLine, ...] = ()


def read_items(paths: Sequence[Path], agent: str, project: Path) -> list[ImportItem]:
    """Read each section of files and folders as a lesson of `agent`; other items have a reason.

    A section that is a single numbered list becomes a procedure, any other section a decision. Files are
    named relative to the `project`. Links are followed within their folder only. Raises `ConfigError` if a
    file does not exist, or if there are too many files.
    """
    items: list[ImportItem] = []
    seen: set[Path] = set()
    cleaner = Cleaner()
    for path in _files_in(paths):
        target = Path(os.path.realpath(path))  # unlike `resolve`, it does not raise for links in a circle
        if target in seen:
            continue
        seen.add(target)
        name = os.path.relpath(path, project)
        name = cleaner.redact(path.name if name.startswith("..") else name)
        try:
            if not target.is_relative_to(path.parent.resolve()):
                raise LessonFileError("This is a link that leads out of its folder.", file=name)
            text = read_text(target, name, of="a file of instructions")
            if "\0" in text:
                raise LessonFileError("This is not a text file.", file=name)
            check_merged(lines_of(text), name)
            day = datetime.fromtimestamp(target.stat().st_mtime, UTC).date()
            block = ManagedBlock.find(text, name)
            in_file = Cleaner(
                cleaner.redactor
            )  # for the whole file: a name in one section is withheld in all
            read = list(
                _items_in(in_file.redact(block.outside), name, agent, day, _withheld_in(text, in_file))
            )
            if len(read) > MOST_SECTIONS:
                raise LessonFileError(f"There are more than {MOST_SECTIONS} sections.", file=name)
            if block.body is not None:
                items.append(ImportItem(f"{name}: block", "already there", why="Redraft exported it."))
            elif not read:
                items.append(ImportItem(name, "left out", why="There is no text in this file."))
            items += read
        except (StoreError, ConfigError) as error:  # marks that don't match are a ConfigError
            items.append(ImportItem(name, "refused", why=cleaner.redact(str(error))))
    return items


def _withheld_in(text: str, cleaner: Cleaner) -> dict[str, int]:
    """The lines of a file with something withheld, as they become, with their numbers."""
    lines = text.split("\n")
    changed = ((number, line, cleaner.redact(line)) for number, line in enumerate(lines, 1) if line.strip())
    return {_bare(after): number for number, line, after in changed if after != line.strip()}


def _bare(line: str) -> str:
    """A line without the marks of a heading or a list item."""
    return line.strip().strip("#*-+ ")


def _files_in(paths: Sequence[Path]) -> list[Path]:
    """The files, and the files in the folders, by name, without linked and hidden folders."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            if not path.exists():
                raise ConfigError(f"There is no file or folder {str(path)!r}.")
            files.append(path)
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files += [Path(folder, name) for name in sorted(names) if name.endswith(ENDINGS)]
            if len(files) > MOST_FILES:
                raise ConfigError(
                    f"There are more than {MOST_FILES} files in {str(path)!r}; name a smaller folder."
                )
    return files


_LESSON_TITLE = re.compile(r"(?:Reflection|Procedure): \d{4}-\d\d-\d\d\b")
_REFERENCE = re.compile(r"\s*(?:[-*+]\s+)?@(\S+)\s*")


def _items_in(
    text: str, name: str, agent: str, day: date, numbers: Mapping[str, int] | None = None
) -> Iterator[ImportItem]:
    """Yield an item for each section of a redacted text, or for each part of a long section.

    `numbers` are the numbers of the lines with something withheld.
    """
    front, text = _front_of(text)
    about, settings = _about(front)
    if settings:
        listed = ", ".join(shortened(setting, _LONGEST_SUMMARY) for setting in settings)
        yield ImportItem(f"{name}: front matter", "left out", why=f"Settings of a tool: {listed}")
    sections = list(_sections_of(text))
    first = next((section for section in sections if section.title), None)
    if first is not None and _LESSON_TITLE.match(first.title):
        why = "This is the file of a lesson: `redraft lessons add --file` adds it."
        yield ImportItem(name, "left out", why=why)
        return
    levels = [section.level for section in sections]
    file_title = sections[1].title if levels.count(1) == 1 and levels[1] == 1 else ""
    is_used = False
    for number, section in enumerate(sections):
        path = section.path[1:] if file_title and len(section.path) > 1 else section.path
        heading = " / ".join(filter(None, map(one_line, path)))
        place = f"{name}#{heading}"
        for comment in section.comments:
            yield ImportItem(place, "left out", why=f"A comment: {shortened(comment, _LONGEST_SUMMARY)}")
        body = section.body
        if len(heading) > _LONGEST_SUMMARY:  # a paragraph with a line below it is a heading, too
            body = f"{section.title}\n\n{body}"
        if not body:
            has_sections = number + 1 < len(sections) and sections[number + 1].level > section.level
            if section.level and not has_sections:
                yield ImportItem(place, "left out", why="There is no text below this heading.")
            continue
        references = [_REFERENCE.fullmatch(line) for line in body.split("\n") if line.strip()]
        if all(references):
            files = ", ".join(reference[1] for reference in references if reference)
            yield ImportItem(place, "left out", why=f"It only refers to {files}; import that file.")
            continue
        title = heading or about or Path(name).name
        task = ": ".join(dict.fromkeys(filter(None, (about, one_line(file_title), title))))
        parts = list(_parts_of(body))
        for part_number, part in enumerate(parts, 1):
            suffix = f" ({part_number})" if len(parts) > 1 else ""
            why = f"{name} says so."
            content = Procedure(part, why) if section.is_steps else Decision(part, UNKNOWN, why)
            summary = shortened(f"{title}{suffix}", _LONGEST_SUMMARY) or "untitled"
            source = f"{place}{suffix}"
            lesson, is_used = Lesson(content, agent, day, summary, task, source=source), True
            withheld = Counter(_WITHHELD.findall(f"{task}\n{part}"))
            names = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in withheld.items())
            withheld_lines = tuple(
                WithheldLine(line.strip(), (numbers or {}).get(_bare(line)))
                for line in f"{section.title}\n{part}".split("\n")
                if _WITHHELD.search(line)
            )
            why = f"Withheld: {names}." if names else ""
            yield ImportItem(source, "added", lesson, why=why, withheld=withheld_lines)
    if about and not is_used:
        why = f"There is no text below it: {about}"
        yield ImportItem(f"{name}: front matter", "left out", why=why)


_WITHHELD = re.compile(r"\[withheld: ([^\]\n]+)\]")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_UNQUOTED = re.compile(r"^([\w-]+):[ \t]+([^\s\"'>|\[{].*)$(?!\n[ \t])", re.MULTILINE)
"""A value on one line; Cursor omits quotes even if YAML needs them, as in `*.ts`."""
_ABOUT = ("description", "name", "globs", "paths", "applyTo")


def _front_of(text: str) -> tuple[dict[Any, Any], str]:
    """The front matter of a file, and the text after it; front matter that is not YAML is a description."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    try:
        quoted = _UNQUOTED.sub(lambda line: f"{line[1]}: {json.dumps(line[2])}", match[1])
        front: Any = load_yaml(quoted) or {}
    except ConfigError:
        front = {"description": match[1]}
    if not isinstance(front, dict):  # text between two lines
        return {}, text
    return cast("dict[Any, Any]", front), text[match.end() :]


def _about(front: Mapping[Any, Any]) -> tuple[str, list[str]]:
    """The subject of a rule in its front matter, and the other entries."""
    texts: list[str] = []
    for key in _ABOUT:
        value: Any = front.get(key)
        values = cast("list[Any]", value) if isinstance(value, list) else [value]
        texts.append(one_line(", ".join(str(value) for value in values if value is not None)))
    others = [f"{key}: {value}" for key, value in front.items() if key not in _ABOUT]
    return "; ".join(dict.fromkeys(filter(None, texts))), others


@dataclass(frozen=True, slots=True)
class _Section:
    """The text between two headings of a file."""

    path: tuple[str, ...] = ()
    """The headings above it, from the first level; empty if a level is missing."""
    body: str = ""
    is_steps: bool = False
    """Whether it is a single numbered list."""
    comments: tuple[str, ...] = ()

    @property
    def level(self) -> int:
        return len(self.path)

    @property
    def title(self) -> str:
        return self.path[-1] if self.path else ""


_COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
"""For a text that ends with `-->`; otherwise the search would take quadratic time."""


def _sections_of(text: str) -> Iterator[_Section]:
    """Yield the sections of a Markdown text, with every line except headings and comments."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 (most commands read no Markdown)

    lines = text.split("\n")
    path: tuple[str, ...] = ()
    start, kinds, comments = 0, list[str](), list[str]()

    def section(end: int) -> _Section:
        body = "\n".join(lines[start:end])
        has_text = body.strip("-*_ \t\n")  # at most lines between sections
        return _Section(path, body if has_text else "", kinds == ["ordered_list_open"], tuple(comments))

    tokens = MarkdownIt("commonmark").disable("inline").parse(text)
    for number, token in enumerate(tokens):
        if token.level or token.map is None:
            continue
        first, end = token.map
        if token.type == "heading_open":
            yield section(first)
            level = int(token.tag[1])
            above = (*path[: level - 1], *[""] * (level - 1 - len(path)))
            path = (*above, tokens[number + 1].content)
            start, kinds, comments = end, [], []
        elif token.type == "html_block" and token.content.lstrip().startswith("<!--"):
            closed, mark, open_end = "\n".join(lines[first:end]).rpartition("-->")
            comments += map(one_line, _COMMENT.findall(closed + mark))
            rest = f"{_COMMENT.sub('', closed + mark)}{open_end}".split("\n")
            lines[first:end] = [*rest, *[""] * (end - first - len(rest))]
            kinds += [token.type] if any(map(str.strip, rest)) else []
        else:
            kinds.append(token.type)
    yield section(len(lines))


_LONG_LINE = re.compile(rf".{{1,{LONGEST}}}(?!\S)|.{{1,{LONGEST}}}")


def _parts_of(text: str) -> Iterator[str]:
    """Yield parts of a text that fit into a field, cut between lines, or between words of a long line."""
    lines = [piece for line in text.split("\n") for piece in _LONG_LINE.findall(line) or [""]]
    part, size = list[str](), 0
    for line in [*lines, None]:
        if line is None or (part and size + len(line) > LONGEST):
            if whole := "\n".join(part).rstrip():
                yield whole
            part, size = [], 0
        if line is not None and (line.strip() or part):
            part.append(line)
            size += len(line) + 1


# --- import: comparing with stored lessons -----------------------------------------------------------------


def compared(items: Iterable[ImportItem], folder: LessonFolder, *, trusted: bool) -> Iterator[ImportItem]:
    """Mark items as already there if a lesson of the agent, or an earlier item, says the same.

    Lessons beyond the limit of an agent are marked for the archive.
    """
    items = list(items)
    texts = {text for item in items if item.lesson for text in _keys(item.lesson)}
    stored: dict[str, Lesson] = {}
    edited: dict[str, str] = {}
    for lesson in sorted(folder.lessons(archived=True), key=lambda lesson: lesson.status == "active"):
        section = section_of(lesson)
        # A quarantined lesson from a run does not count: its text may have been planted.
        if section or lesson.status != "quarantined":
            stored |= dict.fromkeys(_keys(lesson), lesson)
        if section and lesson.status not in REJECTED and texts.isdisjoint(_keys(lesson)):
            edited[section] = lesson.id
    status = "active" if trusted else "quarantined"
    room = MOST_LESSONS - sum(lesson.status == status for lesson in folder.lessons())
    for item in items:
        lesson = item.lesson
        if lesson is None:
            yield item
            continue
        [text] = _keys(lesson)
        same = stored.get(text)
        if same is None:
            stored[text] = replace(lesson, id=item.place)
            why = [item.why] if item.why else []
            why += [f"In the archive: the agent has {MOST_LESSONS} {status} lessons."] if room <= 0 else []
            if earlier := edited.get(lesson.source):
                why.append(
                    f"{earlier} has an earlier text; `redraft lessons retire` or `supersede` stops it."
                )
            yield replace(item, is_archived=room <= 0, why=" ".join(why))
            room -= 1
        elif trusted and same.content == lesson.content and (same.status, same.trust) == _WAITING:
            yield replace(item, what="approved", lesson=same, why=same.id)
        else:
            why = same.id if same.status == "active" else f"{same.id} ({same.status})"
            yield replace(item, what="already there", lesson=same, why=why)


def section_of(lesson: Lesson) -> str:
    """The file and the section that a lesson was imported from; empty for any other lesson."""
    return lesson.source if "#" in lesson.source else ""


def _keys(lesson: Lesson) -> list[str]:
    return [one_line(text) for text in _advice_of(lesson.content)]


_WAITING = ("quarantined", "untrusted")


def _advice_of(content: Content) -> list[str]:
    """The non-empty fields that say what to do."""
    match content:
        case Failure():
            texts = [content.do_differently, content.rule]
        case Partial():
            texts = [content.do_differently]
        case Procedure():
            texts = [content.strategy]
        case Decision():
            texts = [content.decision]
        case CorrectedAnswer():
            texts = [content.changes]
        case Fact():
            texts = [fact_line(content)]
    return [text for text in texts if not is_empty(text)] or texts[:1]


def add_imported(folder: LessonFolder, item: ImportItem, lesson: Lesson) -> Lesson:
    """Write an imported lesson to a new file, in quarantine."""
    with folder.documents.locked(folder.name):
        new = replace(lesson, status="quarantined", trust="untrusted", why=UNVERIFIED)
        return folder.add(new, archived=item.is_archived)


# --- import: a folder of lessons ----------------------------------------------------------------------------


def copied(
    source: LessonFiles, target: Documents, agent: str | None, *, dry_run: bool
) -> Iterator[ImportItem]:
    """Copy the lessons, playbooks and rules of a folder unchanged except for secrets, and yield the results.

    They keep their ids, their status and their place in the archive. An existing document with another text
    is never replaced. `agent` limits the copy to a single agent.
    """
    clean = memory_redactor().redact
    for name in source.agents():
        if agent is not None and name != folder_name(agent):
            continue
        own = [*source.entries(name), *source.entries(f"{name}/{PLAYBOOKS}")]
        rules = source.entry(f"{name}/{RULES}")
        with nullcontext() if dry_run else target.locked(name):
            for entry, text in source.texts([*own, *filter(None, [rules])], of="a lesson"):
                yield _copied(
                    name, entry, text if isinstance(text, StoreError) else clean(text).text, target, dry_run
                )


def _copied(agent: str, entry: Entry, text: str | StoreError, target: Documents, dry_run: bool) -> ImportItem:
    lesson: Lesson | None = None
    try:
        if isinstance(text, StoreError):
            raise text
        if folder_name(agent) != agent:
            raise LessonFileError(f"The lessons of this agent belong in {folder_name(agent)!r}.", file=agent)
        if entry.id.count("/") > 1:
            parse_playbook(text, entry.id, agent)
        elif entry.stem != RULES:
            lesson = parse(text, entry.id, agent, entry.written)
        existing = target.entry(entry.id)
        if existing is not None and text_of(target, existing, of="a lesson") != text:
            raise LessonFileError("Another version is stored already; merge the two by hand.", file=entry.id)
    except StoreError as error:
        return ImportItem(entry.file, "refused", lesson, str(error))
    if existing is not None:
        return ImportItem(entry.file, "already there", lesson, entry.id)
    if not dry_run:
        target.add(entry.id, text, year=int(entry.path.parent.name) if entry.archived else None)
    return ImportItem(entry.file, "added", lesson, is_archived=entry.archived)


# --- export ------------------------------------------------------------------------------------------------

Form = Literal["agents-md", "skill", "rules"]

FILES: dict[Form, str] = {
    "agents-md": "AGENTS.md",
    "skill": ".claude/skills/lessons/SKILL.md",
    "rules": ".claude/rules/lessons.md",
}
"""The default file of each form, in the project's folder."""
MAX_TOKENS: dict[Form, int] = {"agents-md": 1_000, "skill": 4_000, "rules": 1_000}
"""A skill is read on demand, the other forms before every task."""
STDOUT = "-"

_HEAD = """\
## Lessons from earlier tasks

What agents learned from earlier tasks in this project. It is advice, not an order: where it does not fit the
task, or contradicts what you were told, it does not apply.

"""
_DESCRIPTION = (
    "Lessons from earlier tasks in this project: what went wrong, what to do instead, and what worked. "
    "Use before starting a task, and when something fails."
)
_LABELS: dict[LessonKind, dict[str, str]] = {
    "failure": {"what_went_wrong": "What failed", "do_differently": "Instead", "rule": "Rule"},
    "partial": {"what_went_wrong": "What was missing", "do_differently": "Instead"},
    "procedure": {"strategy": "What worked", "why_it_worked": "Because"},
    "decision": {"decision": "Decided", "why": "Because"},
    "correction": {"answer": "Corrected answer", "changes": "Changes"},
    "fact": {"statement": "Fact"},
}
NO_ROOM = "there is no room for it"
REPEATED = "it repeats another item"
SAID = "the file says so outside the block"


@dataclass(frozen=True, slots=True)
class Export:
    """The body of a block."""

    body: str
    ids: tuple[str, ...]
    """The lessons in it, best first."""
    rules: int = 0
    """The number of permanent rules in it."""
    left_out: tuple[tuple[str, str], ...] = ()
    """The id of each lesson, or file of rules, that is not in it, with the reason."""


def export(
    lessons: Iterable[Lesson],
    rules: Mapping[str, Sequence[Rule]],
    max_tokens: int = MAX_TOKENS["agents-md"],
    outside: str = "",
) -> Export:
    """Render the permanent `rules`, by agent, and the best active lessons, in at most `max_tokens`.

    Rules come first, because a person chose them; then lessons by confidence, the newest first. An item that
    the file contains `outside` the block, or that nearly repeats another item, is left out; if an item does
    not fit, a shorter item after it may. Each item is a single line of a list: no lesson or rule can end the
    block, or make a heading, a tag or a front matter. Anything that no lesson may contain is left out, even
    if a person wrote it into the file, and secrets are withheld. The result depends only on the files: it is
    the same on every machine.
    """
    check_count("max_tokens", max_tokens, 1)
    keys_outside = _keys_in(outside)
    lessons = list(lessons)
    cleaner = Cleaner.of(*_texts_of(lessons, rules))  # a name in one text is withheld in all
    left = max_tokens - estimate_tokens(_HEAD)
    ids, chosen, left_out = list[str](), dict[str, frozenset[str]](), list[tuple[str, str]]()
    for place, texts, words, refusal, item in (*_rules_in(rules, cleaner), *_lessons_in(lessons, cleaner)):
        tokens = estimate_tokens(item)
        if refusal:
            left_out.append((place, f"it holds {refusal}"))
        elif keys_outside.issuperset(map(key_of, texts)):
            left_out.append((place, SAID))
        elif any(overlap(words, other) >= NEAR_DUPLICATE for other in chosen.values()):
            left_out.append((place, REPEATED))
        elif tokens > left:
            left_out.append((place, NO_ROOM))
        else:
            left -= tokens
            chosen[item] = words
            ids += [] if place.endswith(f"/{RULES}") else [place]
    body = _HEAD + ("".join(chosen) or "None yet.\n")
    return Export(body, tuple(ids), len(chosen) - len(ids), tuple(left_out))


def _texts_of(lessons: Iterable[Lesson], rules: Mapping[str, Sequence[Rule]]) -> Iterator[str]:
    for lesson in lessons:
        texts = lesson.content.texts
        content = (texts[name] for name in _LABELS[lesson.kind])
        yield "\n".join((lesson.name, lesson.task_type, *lesson.tools, *content))
    for permanent in rules.values():
        yield from (rule.text for rule in permanent)


_BULLET = re.compile(r"\A\s*(?:[-*+]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")


def _keys_in(text: str) -> frozenset[str]:
    """The keys of all sections and of all lines of a text."""
    clean = Cleaner().redact(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    sections = (item.lesson for item in _items_in(clean, "", "", date.min))
    texts = [text for lesson in sections if lesson is not None for text in _advice_of(lesson.content)]
    lines = (_BULLET.sub("", line) for line in clean.splitlines())
    return frozenset(map(key_of, (*texts, *lines))) - {""}


_Candidate = tuple[str, list[str], frozenset[str], str, str]
"""An id, the advice, its words, the reason for refusing it, and its line of the list."""


def _rules_in(rules: Mapping[str, Sequence[Rule]], cleaner: Cleaner) -> Iterator[_Candidate]:
    for agent, permanent in rules.items():
        place = f"{agent}/{RULES}"
        for rule in permanent:
            item = f"- {_sentence(_inert(rule.text, cleaner))} [{place}]\n"
            yield place, [rule.text], words_in(rule.text), violation(rule.text), item


def _lessons_in(lessons: Iterable[Lesson], cleaner: Cleaner) -> Iterator[_Candidate]:
    """Yield the active lessons with advice, best first."""
    for lesson in sorted(
        lessons, key=lambda lesson: (lesson.confidence, lesson.recency, lesson.id), reverse=True
    ):
        content = lesson.content.texts
        fields = {
            label: content[name]
            for name, label in _LABELS[lesson.kind].items()
            if not is_empty(content[name])
        }
        if lesson.status != "active" or not fields:
            continue
        texts = [f"{label}: {_sentence(_inert(text, cleaner))}" for label, text in fields.items()]
        about = [_inert(text, cleaner) for text in (lesson.task_type, ", ".join(lesson.tools)) if text]
        # In bold, so that it can't begin a heading, list or rule.
        title = f"**{_inert(lesson.name, cleaner)}**" + (f" ({'; '.join(about)})" if about else "")
        item = f"- {title}. {' '.join(texts)} [{_inert(lesson.id, cleaner)}]\n"
        content = lesson.content
        yield lesson.id, _advice_of(content), words_of(content), violation_in(lesson), item


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# Characters that a reader of the file would take for a tag, a comment, or a file to include.
_SPECIAL = re.compile(r"<(?=[!/?A-Za-z])|(?<!\w)@(?=[\w~./])|`{3,}")


def _inert(text: str, cleaner: Cleaner) -> str:
    """Redact a text, put it on one line, remove code fences, and escape what Markdown would interpret."""
    line = one_line(cleaner.redact(text))
    return _SPECIAL.sub(lambda match: "`" if match[0][0] == "`" else f"\\{match[0]}", line)


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file with a block for an export."""

    form: Form
    name: str
    """The name in messages."""
    target: Path | None
    """None for standard output."""
    text: str | None
    """The whole text; None if there is no file."""
    block: ManagedBlock

    @classmethod
    def read(cls, form: Form, file: str | None = None) -> ExportFile:
        """Read a file, by default the file of the form; raises `ConfigError` if it can't have a block."""
        name = file or FILES[form]
        if name == STDOUT:
            return cls(form, name, None, None, ManagedBlock(""))
        target = _target(project_folder() / name if file is None else Path(name))
        text = _read(target, name)
        if "\0" in (text or ""):
            raise ConfigError(f"{name!r} is not a UTF-8 text, so a block can't be written into it.")
        return cls(form, name, target, text, ManagedBlock.find(text or "", name))

    @property
    def front(self) -> str:
        """The text before the block in a new or empty file."""
        return "" if (self.text or "").strip() else front_matter(self.form, self.name)

    def with_body(self, body: str) -> str:
        """The whole text with a body in its block."""
        block = ManagedBlock(self.front) if self.front else self.block
        return block.with_body(body)

    def write(self, body: str) -> None:
        """Write the block atomically; raises `ConfigError` if the file has changed or can't be written."""
        if self.target is None:
            raise ConfigError("Standard output has no block to write.")
        if _read(self.target, self.name) != self.text:
            raise ConfigError(f"{self.name!r} was changed in the meantime; nothing was written.")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.target, self.with_body(body).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ConfigError(f"{self.name!r} can't be written: {error.strerror}.") from error


def _target(path: Path) -> Path:
    """The file to write; a link is only followed within its folder."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; --file takes a file.")
    try:
        check_regular(path)  # opening a pipe could hang
    except OSError as error:
        raise ConfigError(f"{str(path)!r} can't be written: {error.strerror}.") from error
    if not path.is_symlink():
        return path
    target = path.resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{str(path)!r} is a link to {str(target)!r}; pass that to --file if you mean it.")
    return target


def _read(path: Path, name: str) -> str | None:
    """The text of a file, losslessly even if it is not UTF-8; None if there is no file."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{name!r} can't be read: {error.strerror}.") from error


_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64


def front_matter(form: Form, file: str) -> str:
    """The front matter of a new file."""
    if form == "skill":
        folder = file.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
        name = folder if _NAME.fullmatch(folder) and len(folder) <= _LONGEST_NAME else "lessons"
        return f"---\nname: {name}\ndescription: {json.dumps(_DESCRIPTION)}\n---\n"
    if form == "rules" and file.endswith(".mdc"):  # a rule of Cursor
        return f"---\ndescription: {json.dumps(_DESCRIPTION)}\nalwaysApply: true\n---\n"
    return ""
