"""Export the best lessons to the files that coding agents read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from redraft._texts import estimate_tokens
from redraft._validation import check_count
from redraft.errors import ConfigError
from redraft.lessons.folder import RULES
from redraft.lessons.lesson import (
    NEAR_DUPLICATE,
    Content,
    Decision,
    Failure,
    Partial,
    Procedure,
    is_empty,
    overlap,
    words_in,
    words_of,
)
from redraft.lessons.markdown import one_line
from redraft.lessons.safety import Cleaner, violation, violation_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from redraft.lessons.lesson import Lesson
    from redraft.lessons.rules import Rule

Form = Literal["agents-md", "skill", "rules"]

FILES: dict[Form, str] = {
    "agents-md": "AGENTS.md",
    "skill": ".claude/skills/lessons/SKILL.md",
    "rules": ".claude/rules/lessons.md",
}
"""Where each form goes if nothing else is said."""
MAX_TOKENS: dict[Form, int] = {"agents-md": 1_000, "skill": 4_000, "rules": 1_000}
"""A skill is read when it is needed, the others before every task."""

_CURSOR = ".mdc"
_HEAD = """\
## Lessons from earlier tasks

What agents learnt from tasks that they did here. It is advice, and no order: where it does not fit the task,
or contradicts what you were told, it does not apply.

"""
_RULES_HEAD = """\
## Rules from earlier tasks

What would have prevented failures here. Where a rule does not fit the task, or contradicts what you were
told, it does not apply.

"""
_DESCRIPTION = (
    "Lessons from earlier tasks in this project: what went wrong, what to do instead, and what worked. "
    "Use before starting a task, and when something fails."
)
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64
# What markdown, or what reads the file, would take for a tag, a comment, or a file to be read in.
_ACTING = re.compile(r"<(?=[!/?A-Za-z])|(?<!\w)@(?=[\w~./])|`{3,}")
_NO_RULES: Mapping[str, Sequence[Rule]] = {}
_ID = re.compile(r"\[([^\[\]\s]+)\]$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Export:
    """Hold the text of a block, the ids of the lessons in it, the best first, and what was left out.

    `rules` counts the permanent rules in it, `omitted` what did not fit into the tokens, `alike` what another
    says; `refused` gives for each lesson, or file of rules, that may not be there the reason.
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
    """Make a text of the permanent `rules`, by their agents, and the best active lessons.

    It has at most `max_tokens`. The rules come first, since a person chose them; then the lessons, the best
    first: by confidence, then by how often each helped (`helped`, by id), then the newest. What says nearly
    the same counts once; a longer one that does not fit may let a shorter one in. No lesson or rule can end
    the block, or make a heading, a tag or a front matter: each is one item of a list on one line. What no
    lesson may say is left out, however it came into its file, and secrets are withheld.
    """
    most = MAX_TOKENS[form] if max_tokens is None else max_tokens
    check_count("max_tokens", most, 1)
    head = _RULES_HEAD if form == "rules" else _HEAD
    chosen: list[_Piece] = []
    items: list[str] = []
    barred: dict[str, str] = {}
    left, omitted, alike = most - estimate_tokens(head), 0, 0
    cleaner = Cleaner()
    for piece in (*_rules_in(rules, form, cleaner), *_lessons_in(lessons, form, helped, cleaner)):
        if piece.refusal:
            barred[piece.id] = piece.refusal
        elif any(piece.is_said_by(other) for other in chosen):
            alike += 1
        elif (tokens := estimate_tokens(item := piece.item())) > left:
            omitted += 1
        elif item:
            left -= tokens
            chosen.append(piece)
            items.append(item)
    body = head + ("".join(items) or "None yet.\n")
    ids = tuple(piece.id for piece in chosen if not piece.is_rule)
    return Export(body, ids, len(chosen) - len(ids), omitted, alike, barred)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Hold what may become an item: whose id it bears, what it says, and why it may not be there, if so.

    `covers` is the id of the lesson that a rule says all of.
    """

    id: str
    words: frozenset[str]
    item: Callable[[], str]
    refusal: str = ""
    is_rule: bool = False
    covers: str = ""

    def is_said_by(self, other: _Piece) -> bool:
        return other.covers == self.id or overlap(self.words, other.words) >= NEAR_DUPLICATE


def _rules_in(rules: Mapping[str, Sequence[Rule]], form: Form, cleaner: Cleaner) -> Iterator[_Piece]:
    """Yield the rules of each agent; among rules, one stands for the lesson that it is from."""
    for agent, its in rules.items():
        place = f"{agent}/{RULES}"
        for rule in its:
            covers = rule.source if form == "rules" else ""
            said = partial(_rule_item, rule.text, place, cleaner)
            yield _Piece(place, words_in(rule.text), said, violation(rule.text), is_rule=True, covers=covers)


def _lessons_in(
    lessons: Iterable[Lesson], form: Form, helped: Mapping[str, float], cleaner: Cleaner
) -> Iterator[_Piece]:
    """Yield the active lessons, the best first."""
    for lesson in sorted(lessons, key=lambda one: _rank(one, helped), reverse=True):
        if lesson.status == "active":
            said = partial(_item, lesson, form, cleaner)
            yield _Piece(lesson.id, words_of(lesson.content), said, violation_in(lesson))


def _rule_item(text: str, place: str, cleaner: Cleaner) -> str:
    return f"- {_sentence(_inert(one_line(cleaner.redact(text))))} [{place}]\n"


def standing_in(body: str) -> dict[str, float]:
    """Return how the lessons of a block stand in it, by their ids, as `export` takes it for `helped`.

    Whether a block is up to date must not depend on who asks: the files are everywhere the same, the counters
    are those of a machine. So what is there stays before what is equally sure.
    """
    ids = _ID.findall(body)
    return {each: float(len(ids) - place) for place, each in enumerate(ids)}


def front_matter(form: Form, file: str) -> str:
    """Return what a new file begins with, in front of its block; nothing of it comes from a lesson."""
    if form == "skill":
        folder = file.replace("\\", "/").rpartition("/")[0].rpartition("/")[2]
        name = folder if _NAME.fullmatch(folder) and len(folder) <= _LONGEST_NAME else "lessons"
        return f"---\nname: {name}\ndescription: {json.dumps(_DESCRIPTION)}\n---\n"
    if form == "rules" and file.endswith(_CURSOR):
        return f"---\ndescription: {json.dumps(_DESCRIPTION)}\nalwaysApply: true\n---\n"
    return ""


def _rank(lesson: Lesson, helped: Mapping[str, float]) -> tuple[float, float, str, str]:
    return lesson.confidence, helped.get(lesson.id, 0.0), lesson.day.isoformat(), lesson.id


def _item(lesson: Lesson, form: Form, cleaner: Cleaner) -> str:
    """Return a lesson as an item of a list, on one line; empty where it has nothing to say there."""

    def said(text: str) -> str:
        return _inert(one_line(cleaner.redact(text)))

    parts = _rule_of(lesson.content) if form == "rules" else _parts_of(lesson.content)
    parts = {label: text for label, text in parts.items() if not is_empty(text)}
    if not parts:
        return ""
    texts = " ".join(f"{label}: {_sentence(said(text))}" for label, text in parts.items())
    about = "; ".join(filter(None, map(said, (lesson.task_type, ", ".join(lesson.tools)))))
    # A title that is marked as one begins no heading, list or rule, whatever it begins with.
    title = f"**{said(lesson.summary)}**" + (f" ({about})" if about else "")
    return f"- {title}. {texts} [{said(lesson.id)}]\n"


def _parts_of(content: Content) -> dict[str, str]:
    match content:
        case Failure():
            return {
                "What failed": content.what_went_wrong,
                "Instead": content.do_differently,
                "Rule": content.rule,
            }
        case Partial():
            return {"What was missing": content.what_went_wrong, "Instead": content.do_differently}
        case Decision():
            return {"Decided": content.decision, "Because": content.why}
        case Procedure():
            return {"What worked": content.strategy, "Because": content.why_it_worked}


def _rule_of(content: Content) -> dict[str, str]:
    match content:
        case Failure():
            return {"Rule": content.rule}
        case Partial():
            return {"Rule": content.do_differently}
        case Decision():
            return {"Decided": content.decision}
        case Procedure():
            return {"What worked": content.strategy}


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _inert(text: str) -> str:
    """Return a text with a backslash before what would act, and no fence of code."""
    return _ACTING.sub(lambda found: "`" if found[0][0] == "`" else f"\\{found[0]}", text)


_BEGIN = re.compile(r"^<!-- redraft:lessons begin ([0-9a-f]{16}) [^\n]*-->[ \t]*\r?$", re.MULTILINE)
_END = re.compile(r"^<!-- redraft:lessons end -->(?=[ \t]*\r?$)", re.MULTILINE)
_NOTICE = "made by `redraft lessons export`: edit the lessons, not what stands here"


@dataclass(frozen=True, slots=True)
class ManagedBlock:
    """Hold a file in three parts: what stands before the block, the block's own text, what stands after it.

    `body` is None where the file has no block, and is without the two lines that mark it. `digest` is what
    the first of them says of the text as it was written.
    """

    before: str
    body: str | None
    after: str
    digest: str = ""

    @classmethod
    def find(cls, text: str, file: str) -> ManagedBlock:
        """Find the block of a file; raises `ConfigError` with the line where its marks don't fit together."""
        begins, ends = list(_BEGIN.finditer(text)), list(_END.finditer(text))
        if not begins and not ends:
            return cls(text, None, "")
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            odd = min(begins[1:] + ends[1:] or ends[:1] or begins, key=lambda mark: mark.start())
            line = text.count("\n", 0, odd.start()) + 1
            raise ConfigError(
                f"{file}, line {line}: a block of lessons takes one line that begins it and one below that "
                f"ends it; there are {len(begins)} and {len(ends)}. Delete what is too much, or all of it."
            )
        begin, end = begins[0], ends[0]
        body = text[begin.end() + 1 : end.start()]
        return cls(text[: begin.start()], body, text[end.end() :], begin[1])

    @property
    def is_edited(self) -> bool:
        """Whether somebody changed the block by hand since it was written."""
        return self.body is not None and digest_of(self.body) != self.digest

    def says(self, body: str) -> bool:
        """Say whether the block is the one that this text would make."""
        return self.body is not None and not self.is_edited and _plain(self.body) == _plain(body)

    def with_body(self, body: str) -> str:
        """Return the file with another text in the block, which goes to the end where there was none.

        The rest stays as it is, character by character; the block's lines end as those of the file do.
        """
        marked = (
            f"<!-- redraft:lessons begin {digest_of(body)} ({_NOTICE}) -->\n"
            f"{body}<!-- redraft:lessons end -->"
        )
        is_windows = "\r\n" in self.before + self.after
        marked = marked.replace("\n", "\r\n") if is_windows else marked
        if self.body is not None:
            return f"{self.before}{marked}{self.after}"
        line = "\r\n" if is_windows else "\n"
        gap = "" if not self.before else line if self.before.endswith("\n") else 2 * line
        return f"{self.before}{gap}{marked}{line}"


def digest_of(body: str) -> str:
    """Return what tells whether a block was changed; how its lines end does not matter."""
    return sha256(_plain(body).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _plain(body: str) -> str:
    return body.replace("\r\n", "\n")
