"""Export the best lessons into the files that coding agents read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redraft._texts import estimate_tokens
from redraft._validation import check_count
from redraft.errors import ConfigError
from redraft.lessons.files import replace_file
from redraft.lessons.folder import RULES
from redraft.lessons.lesson import NEAR_DUPLICATE, LessonKind, is_empty, overlap, words_in, words_of
from redraft.lessons.markdown import one_line
from redraft.lessons.safety import Cleaner, violation, violation_in
from redraft.settings import project_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from redraft.lessons.lesson import Lesson
    from redraft.lessons.rules import Rule

Form = Literal["agents-md", "skill", "rules"]

FILES: dict[Form, str] = {
    "agents-md": "AGENTS.md",
    "skill": ".claude/skills/lessons/SKILL.md",
    "rules": ".claude/rules/lessons.md",
}
"""The default file of each form, in the project's folder."""
MAX_TOKENS: dict[Form, int] = {"agents-md": 1_000, "skill": 4_000, "rules": 1_000}
"""A skill is read on demand, the others before every task."""
STDOUT = "-"

_HEAD = """\
## Lessons from earlier tasks

What agents learned from earlier tasks in this project. It is advice, not an order: where it does not fit the
task, or contradicts what you were told, it does not apply.

"""
_RULES_HEAD = """\
## Rules from earlier tasks

What would have prevented failures in this project. Where a rule does not fit the task, or contradicts what
you were told, it does not apply.

"""
_DESCRIPTION = (
    "Lessons from earlier tasks in this project: what went wrong, what to do instead, and what worked. "
    "Use before starting a task, and when something fails."
)
_NO_RULES: Mapping[str, Sequence[Rule]] = {}


@dataclass(frozen=True, slots=True)
class Export:
    """The body of a block, and the ids of the lessons in it, best first.

    `rules` counts the permanent rules in it, `omitted` what did not fit into the tokens, `alike` what repeats
    something else in it; `refused` has the reason for each lesson, or file of rules, that may not be in it.
    """

    body: str
    ids: tuple[str, ...]
    rules: int = 0
    omitted: int = 0
    alike: int = 0
    refused: Mapping[str, str] = field(default_factory=dict[str, str])


def export(
    lessons: Iterable[Lesson],
    form: Form,
    helped: Mapping[str, float],
    max_tokens: int | None = None,
    rules: Mapping[str, Sequence[Rule]] = _NO_RULES,
) -> Export:
    """Render the permanent `rules`, by agent, and the best active lessons, in at most `max_tokens`.

    Rules come first, because a person chose them; then the most confident lessons, of these the ones that
    `helped` most (by id), of these the newest. What nearly repeats another item is left out; if an item does
    not fit, a shorter one after it may. Each item is one line of a list: no lesson or rule can end the block,
    or make a heading, a tag or a front matter. What no lesson may say is left out, however it came into its
    file, and secrets are withheld.
    """
    most = MAX_TOKENS[form] if max_tokens is None else max_tokens
    check_count("max_tokens", most, 1)
    head = _RULES_HEAD if form == "rules" else _HEAD
    chosen: list[_Piece] = []
    refused: dict[str, str] = {}
    left, omitted, alike = most - estimate_tokens(head), 0, 0
    cleaner = Cleaner()
    for piece in (*_rules_in(rules, form, cleaner), *_lessons_in(lessons, form, helped, cleaner)):
        tokens = estimate_tokens(piece.item)
        if piece.refusal:
            refused[piece.id] = piece.refusal
        elif any(piece.repeats(other) for other in chosen):
            alike += 1
        elif tokens > left:
            omitted += 1
        elif piece.item:
            left -= tokens
            chosen.append(piece)
    body = head + ("".join(piece.item for piece in chosen) or "None yet.\n")
    ids = tuple(piece.id for piece in chosen if not piece.is_rule)
    return Export(body, ids, len(chosen) - len(ids), omitted, alike, refused)


_ID = re.compile(r"\[([^\[\]\s]+)\]$", re.MULTILINE)


def order_in(body: str) -> dict[str, float]:
    """Return the order of the lessons in a block as scores by id, for the parameter `helped` of `export`.

    The files are the same on every machine, but what is counted is not: whether a block is up to date is
    asked of its own order.
    """
    ids = _ID.findall(body)
    return {one: float(len(ids) - place) for place, one in enumerate(ids)}


@dataclass(frozen=True, slots=True)
class ExportFile:
    """A file with a block for an export; `target` is None for standard output.

    `name` is what people call it, `text` all that it says, None if there is no file.
    """

    form: Form
    name: str
    target: Path | None
    text: str | None
    block: ManagedBlock

    @classmethod
    def read(cls, form: Form, file: str | None = None) -> ExportFile:
        """Read a file, by default that of the form; raises `ConfigError` if it can't have a block."""
        name = file or FILES[form]
        if name == STDOUT:
            return cls(form, name, None, None, ManagedBlock("", None, ""))
        target = _target(project_folder() / name if file is None else Path(name))
        text = _read(target, name)
        return cls(form, name, target, text, ManagedBlock.find(text or "", name))

    @property
    def front(self) -> str:
        """The text before the block in a new or empty file."""
        return "" if (self.text or "").strip() else front_matter(self.form, self.name)

    def check_unedited(self) -> None:
        """Raise `ConfigError` if the block was edited by hand."""
        if self.block.is_edited:
            raise ConfigError(
                f"The block in {self.name!r} was edited by hand and is left as it is. Put the change into a "
                "lesson (`redraft lessons edit` or `add`), or overwrite the block with --force."
            )

    def write(self, body: str) -> None:
        """Write the block atomically; raises `ConfigError` if the file has changed or can't be written."""
        if self.target is None:
            raise ConfigError("Standard output has no block to write.")
        if _read(self.target, self.name) != self.text:
            raise ConfigError(f"{self.name!r} was changed in the meantime; nothing was written.")
        block = ManagedBlock(self.front, None, "") if self.front else self.block
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.target, block.with_body(body).encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ConfigError(f"{self.name!r} can't be written: {error.strerror}.") from error


def _target(path: Path) -> Path:
    """Return the file to write; a link is only followed within its folder."""
    if path.is_dir():
        raise ConfigError(f"{str(path)!r} is a folder; --file takes a file.")
    if not path.is_symlink():
        return path
    target = path.resolve()
    if not target.is_relative_to(path.parent.resolve()):
        raise ConfigError(f"{str(path)!r} is a link to {str(target)!r}; pass that to --file if you mean it.")
    return target


def _read(path: Path, name: str) -> str | None:
    """Return the text of a file, losslessly even if it is not UTF-8; None if there is no file."""
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{name!r} can't be read: {error.strerror}.") from error


_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64


def front_matter(form: Form, file: str) -> str:
    """Return the front matter of a new file."""
    if form == "skill":
        folder = file.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
        name = folder if _NAME.fullmatch(folder) and len(folder) <= _LONGEST_NAME else "lessons"
        return f"---\nname: {name}\ndescription: {json.dumps(_DESCRIPTION)}\n---\n"
    if form == "rules" and file.endswith(".mdc"):  # a rule of Cursor
        return f"---\ndescription: {json.dumps(_DESCRIPTION)}\nalwaysApply: true\n---\n"
    return ""


# --- the block in a file -----------------------------------------------------------------------------------

_BEGIN = re.compile(r"^<!-- redraft:lessons begin ([0-9a-f]{16}) [^\n]*-->[ \t]*\r?$", re.MULTILINE)
_END = re.compile(r"^<!-- redraft:lessons end -->(?=[ \t]*\r?$)", re.MULTILINE)
_NOTICE = "generated by `redraft lessons export`; edit the lessons, not this block"


@dataclass(frozen=True, slots=True)
class ManagedBlock:
    """A file in three parts: the text before the block, the body of the block, and the text after it.

    `body` is None if the file has no block, and excludes the two lines that mark it. `digest` is that of the
    body as it was written, from the first of these lines.
    """

    before: str
    body: str | None
    after: str
    digest: str = ""

    @classmethod
    def find(cls, text: str, file: str) -> ManagedBlock:
        """Find the block of a file; raises `ConfigError` with the line if its marks don't match."""
        begins, ends = list(_BEGIN.finditer(text)), list(_END.finditer(text))
        if not begins and not ends:
            return cls(text, None, "")
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            odd = min(begins[1:] + ends[1:] or ends[:1] or begins, key=lambda mark: mark.start())
            line = text.count("\n", 0, odd.start()) + 1
            raise ConfigError(
                f"{file}, line {line}: a block of lessons has one begin line and one end line; found "
                f"{len(begins)} and {len(ends)}. Delete the surplus lines, or the whole block."
            )
        begin, end = begins[0], ends[0]
        body = text[begin.end() + 1 : end.start()]
        return cls(text[: begin.start()], body, text[end.end() :], begin[1])

    @property
    def is_edited(self) -> bool:
        """Whether the body has been changed since it was written."""
        return self.body is not None and _digest(self.body) != self.digest

    def says(self, body: str) -> bool:
        """Return whether the block is up to date with a body."""
        return (
            self.body is not None
            and not self.is_edited
            and _with_plain_ends(self.body) == _with_plain_ends(body)
        )

    def with_body(self, body: str) -> str:
        """Return the file with another body in its block, or with a block at its end.

        The rest stays the same, character by character; lines of the block end as those of the file do.
        """
        marked = (
            f"<!-- redraft:lessons begin {_digest(body)} ({_NOTICE}) -->\n{body}<!-- redraft:lessons end -->"
        )
        is_windows = "\r\n" in self.before + self.after
        marked = marked.replace("\n", "\r\n") if is_windows else marked
        if self.body is not None:
            return f"{self.before}{marked}{self.after}"
        line = "\r\n" if is_windows else "\n"
        gap = "" if not self.before else line if self.before.endswith("\n") else 2 * line
        return f"{self.before}{gap}{marked}{line}"


def _digest(body: str) -> str:
    """Return a digest of a body that ignores line ends."""
    return sha256(_with_plain_ends(body).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _with_plain_ends(body: str) -> str:
    return body.replace("\r\n", "\n")


# --- the items of a list -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """A candidate: its id, its words, its line of the list, and why it is refused, if it is.

    `covers` is the id of the lesson whose rule it is.
    """

    id: str
    words: frozenset[str]
    item: str
    refusal: str = ""
    is_rule: bool = False
    covers: str = ""

    def repeats(self, other: _Piece) -> bool:
        return other.covers == self.id or overlap(self.words, other.words) >= NEAR_DUPLICATE


def _rules_in(rules: Mapping[str, Sequence[Rule]], form: Form, cleaner: Cleaner) -> Iterator[_Piece]:
    """Yield the rules of each agent; in the form `rules`, a rule covers the lesson that taught it."""
    for agent, its in rules.items():
        place = f"{agent}/{RULES}"
        for rule in its:
            item = f"- {_sentence(_inert(rule.text, cleaner))} [{place}]\n"
            covers = rule.source if form == "rules" else ""
            yield _Piece(place, words_in(rule.text), item, violation(rule.text), is_rule=True, covers=covers)


def _lessons_in(
    lessons: Iterable[Lesson], form: Form, helped: Mapping[str, float], cleaner: Cleaner
) -> Iterator[_Piece]:
    """Yield the active lessons, best first."""

    def rank(lesson: Lesson) -> tuple[float, float, date, str]:
        return lesson.confidence, helped.get(lesson.id, 0.0), lesson.day, lesson.id

    for lesson in sorted(lessons, key=rank, reverse=True):
        if lesson.status == "active":
            item = _lesson_item(lesson, form, cleaner)
            yield _Piece(lesson.id, words_of(lesson.content), item, violation_in(lesson))


LABELS: dict[LessonKind, dict[str, str]] = {
    "failure": {"what_went_wrong": "What failed", "do_differently": "Instead", "rule": "Rule"},
    "partial": {"what_went_wrong": "What was missing", "do_differently": "Instead"},
    "procedure": {"strategy": "What worked", "why_it_worked": "Because"},
    "decision": {"decision": "Decided", "why": "Because"},
}
RULE_LABELS: dict[LessonKind, dict[str, str]] = {
    "failure": {"rule": "Rule"},
    "partial": {"do_differently": "Rule"},
    "procedure": {"strategy": "What worked"},
    "decision": {"decision": "Decided"},
}


def _lesson_item(lesson: Lesson, form: Form, cleaner: Cleaner) -> str:
    """Return a lesson as one line of a list; empty if all of its fields are."""
    labels = (RULE_LABELS if form == "rules" else LABELS)[lesson.kind]
    fields = {label: str(getattr(lesson.content, name)) for name, label in labels.items()}
    texts = [
        f"{label}: {_sentence(_inert(text, cleaner))}" for label, text in fields.items() if not is_empty(text)
    ]
    if not texts:
        return ""
    about = [_inert(text, cleaner) for text in (lesson.task_type, ", ".join(lesson.tools))]
    # In bold, so that it can't begin a heading, list or rule.
    title = f"**{_inert(lesson.name, cleaner)}**" + (
        f" ({'; '.join(filter(None, about))})" if any(about) else ""
    )
    return f"- {title}. {' '.join(texts)} [{_inert(lesson.id, cleaner)}]\n"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# What markdown, or whoever reads the file, would take for a tag, a comment, or a file to include.
_ACTING = re.compile(r"<(?=[!/?A-Za-z])|(?<!\w)@(?=[\w~./])|`{3,}")


def _inert(text: str, cleaner: Cleaner) -> str:
    """Redact a text, put it on one line, remove code fences, and escape what markdown would interpret."""
    line = one_line(cleaner.redact(text))
    return _ACTING.sub(lambda found: "`" if found[0][0] == "`" else f"\\{found[0]}", line)
