"""Lesson: one thing learned, and the kinds of content it can have."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, time
from typing import Any, ClassVar, Literal, TypeAlias

from redraft._codec import to_json
from redraft._hints import keyword_hints
from redraft._words import words_in
from redraft.errors import ConfigError
from redraft.memory.safety import Cleaner, violations_of

# "None: what is known does not tell", but not "None of the pages may be left out".
_NOTHING = re.compile(
    r"\W*(?:(?:none|n/?a|not known)(?:\W*|\s*[:(].*)|(?:nothing|not applicable|unknown|no rule|withheld)\W*)",
    re.IGNORECASE,
)

LessonKind = Literal["failure", "partial", "procedure", "decision", "correction", "fact"]


def _under(heading: str, says: str) -> Any:
    return field(metadata={"heading": heading, "says": says})


class _Written:
    """Require a text in every field."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name in headings_of(type(self)):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"{type(self).__name__}.{name} must be a non-empty text.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Failure(_Written):
    """What an agent learned from a task that failed."""

    kind: ClassVar[LessonKind] = "failure"
    what_happened: str = _under("What happened?", "The task and its outcome, as facts.")
    what_went_wrong: str = _under("What went wrong?", "The point of failure: which step, tool, input.")
    why: str = _under(
        "Why did it go wrong?",
        "The root cause: a wrong strategy, bad input, missing knowledge, a failure outside.",
    )
    do_differently: str = _under(
        "What should I do differently?", "The correction, specific enough to be followed."
    )
    rule: str = _under("Tactical rule candidate", "One sentence that would have prevented it.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Partial(_Written):
    """What an agent learned from a task that succeeded in part."""

    kind: ClassVar[LessonKind] = "partial"
    what_happened: str = _under("What happened?", "The task and its outcome, as facts.")
    what_went_wrong: str = _under("What went wrong?", "What is missing or wrong, and at which step.")
    do_differently: str = _under(
        "What should I do differently?", "The correction, specific enough to be followed."
    )


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Procedure(_Written):
    """What an agent learned from a success: how it was done, and why that worked."""

    kind: ClassVar[LessonKind] = "procedure"
    strategy: str = _under("Strategy", "What was done, in steps that can be repeated.")
    why_it_worked: str = _under("Why it worked", "What made the difference.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Decision(_Written):
    """What an agent decided, between what, and why."""

    kind: ClassVar[LessonKind] = "decision"
    decision: str = _under("What was the decision?", "The choice, as a fact.")
    alternatives: str = _under("What alternatives existed?", "The other ways, and what spoke for them.")
    why: str = _under("Why was this option chosen?", "The reason that decided.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class CorrectedAnswer(_Written):
    """An answer as a person corrected it, which is an example for similar tasks."""

    kind: ClassVar[LessonKind] = "correction"
    answer: str = _under("What is the corrected answer?", "The whole answer, as it should have been.")
    changes: str = _under("What did the person change?", "What was added, left out or replaced.")
    why: str = _under("Why was it changed?", "The reason, or None where it is not known.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Fact(_Written):
    """How something in the environment of tasks is, and what shows it."""

    kind: ClassVar[LessonKind] = "fact"
    subject: str = _under("What is it about?", "The name of the thing: a table, a command, a field.")
    statement: str = _under(
        "What is so?", "How it is, in one line: its columns, units, format, limits. Clauses end with ';'."
    )
    evidence: str = _under("What shows it?", "The error or reply that shows it, quoted, newest first.")


Content: TypeAlias = Failure | Partial | Procedure | Decision | CorrectedAnswer | Fact

KINDS: dict[LessonKind, type[Content]] = {
    kind.kind: kind for kind in (Failure, Partial, Procedure, Decision, CorrectedAnswer, Fact)
}
ADVISING: tuple[LessonKind, ...] = ("failure", "partial", "procedure", "decision", "correction")
"""The kinds of lessons that say what to do."""


def is_empty(text: str) -> bool:
    """Return whether a text says nothing, as in "n/a" or "none: not known"."""
    return _NOTHING.fullmatch(" ".join(text.split())) is not None


def headings_of(kind: type[Any]) -> dict[str, str]:
    """Return the heading of each field of a kind of reflection, in order."""
    return {one.name: one.metadata["heading"] for one in fields(kind)}


Status = Literal["active", "quarantined", "retired", "superseded"]
STATUSES: tuple[Status, ...] = ("active", "quarantined", "retired", "superseded")

Trust = Literal["", "vouched", "checked", "untrusted"]
TRUSTS: tuple[Trust, ...] = ("vouched", "checked", "untrusted")
TRUST_MEANS: dict[Trust, str] = {
    "vouched": "a person or the program wrote or approved it",
    "checked": "checks or the program showed how its run ended, and no tool answered in it",
    "untrusted": "neither a person nor a check has confirmed it",
    "": "its file does not say where it comes from",
}

CONFIDENCE = 0.7
"""The default confidence."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One lesson, with what its file says about it.

    `id` is `<agent>/<file name without .md>`, empty until the lesson has a file. `summary` is the task in a
    few words, `title` the lesson itself, after which its file is named; it may be empty. A lesson is found by
    its `task`, `task_type`, `tools` and `error`. `confidence` (0..1) says how well it is supported: it rises
    by 0.1 when a run that was not told learns it again, and falls when a run that was told fails again. An
    `active` lesson is recalled for any similar task. A `quarantined` one is recalled for the task that taught
    it, and tried in some runs of similar tasks, until it has helped or hurt, or a person approves it. A
    `superseded` one names its successor in `superseded_by`. `why` is the reason for the status. `source` is
    the id of the run that taught it.

    `disobeyed` says how many runs were told and failed at it again, such as "told in 5 runs, failed again in
    5": such a lesson is stressed where it is told. It is empty for all others.

    `trust` says where it comes from: `vouched` if a person or the program wrote or approved it, `checked` if
    checks or the program showed the outcome of a run without texts from tools, `untrusted` otherwise, and
    empty if unknown. `overrules` names what a person approved it in spite of, such as "a command".
    """

    content: Content
    agent: str
    day: date
    summary: str
    task: str = ""
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    confidence: float = CONFIDENCE
    status: Status = "active"
    trust: Trust = ""
    overrules: str = ""
    why: str = ""
    disobeyed: str = ""
    superseded_by: str = ""
    source: str = ""
    title: str = ""
    check: str = ""
    """The name of the criterion that stands for it: a run that is judged by it is not told the lesson."""
    id: str = ""
    at: datetime | None = None
    """When it was written, to the millisecond; None if only its day is known."""
    others: str = ""
    """A JSON object with the entries of the front matter that have no meaning here; they stay in the file."""

    @property
    def kind(self) -> LessonKind:
        """The kind of its content."""
        return self.content.kind

    @property
    def name(self) -> str:
        """Its title, or else the task that taught it, in a few words."""
        return self.title or self.summary

    @property
    def recency(self) -> int:
        """Milliseconds from 1970 until it was written; until its day began if only that is known.

        Files of one name are numbered as they are written, so each number counts as a millisecond more.
        """
        written = self.at or datetime.combine(self.day, time(), UTC)
        numbered = _NUMBERED.search(self.id)
        return int(written.timestamp() * 1000) + (int(numbered[1]) if numbered else 0)


_NUMBERED = re.compile(r"-([0-9]{1,4})$")

NEAR_DUPLICATE = 0.8
"""The `overlap` from which two lessons count as the same."""


def words_of(content: Content) -> frozenset[str]:
    """Return the words of a reflection; those that show a fact are not part of it."""
    names = [one.name for one in fields(content) if one.name != "evidence"]
    return words_in(" ".join(str(getattr(content, name)) for name in names))


def advice_lines(content: Content) -> tuple[str, ...]:
    """Return the lines of a reflection that say what to do, in lower case; decisions and facts have none."""
    match content:
        case Failure() | Partial():
            advice = content.do_differently
        case Procedure():
            advice = content.strategy
        case CorrectedAnswer():
            advice = content.changes
        case Decision() | Fact():
            advice = ""
    return tuple(one for line in advice.casefold().splitlines() if (one := " ".join(line.split())))


def lesson_document(lesson: Lesson) -> dict[str, Any]:
    """A lesson as JSON data: its id, its kind, its name, its fields and its front matter."""
    known = to_json(lesson)
    return {
        "id": known.pop("id"),
        "kind": lesson.kind,
        "name": lesson.name,
        **known,
        "day": str(lesson.day),
    }


# --- what no lesson may contain ----------------------------------------------------------------------------


def violations(content: Content) -> dict[str, str]:
    """Return the violations in a reflection, by field."""
    texts: dict[str, Any] = {one.name: getattr(content, one.name) for one in fields(content)}
    return {name: "; ".join(found) for name, text in texts.items() if (found := list(violations_of(text)))}


def violations_in(lesson: Lesson) -> list[str]:
    """Return what a lesson contains that no lesson may, each once, whether a person overruled it or not."""
    about = (lesson.title, lesson.summary, lesson.task_type, " ".join(lesson.tools))
    found = [*violations(lesson.content).values(), *(what for text in about for what in violations_of(text))]
    return list(dict.fromkeys(what for one in found for what in one.split("; ")))


def violation_in(lesson: Lesson) -> str:
    """Return what a lesson contains that no lesson may; empty if nothing, or what a person overruled."""
    return next((what for what in violations_in(lesson) if what not in lesson.overrules.split("; ")), "")


def checked_content(content: Content, cleaner: Cleaner | None = None) -> Content:
    """Withhold the secrets in content that a person or a program wrote.

    Raises `ConfigError` with the field and the reason for content that no lesson may contain.
    """
    texts: dict[str, Any] = {one.name: getattr(content, one.name) for one in fields(content)}
    cleaner = cleaner or Cleaner.of(*texts.values())
    for name, text in texts.items():
        texts[name] = cleaner.redact(text)
        if why := cleaner.refusal(texts[name]):
            raise ConfigError(f"{type(content).__name__}.{name} can't be kept in a lesson: {why}.")
    return replace(content, **texts)


def checked_title(title: str, cleaner: Cleaner | None = None) -> str:
    """Withhold the secrets in a title; raises `ConfigError` for one that no lesson may have."""
    cleaner = cleaner or Cleaner()
    clean = " ".join(cleaner.redact(title).split())
    if why := cleaner.refusal(clean):
        raise ConfigError(f"The title can't be kept in a lesson: {why}.")
    return clean


def checked_lesson(lesson: Lesson) -> Lesson:
    """Withhold the secrets in a lesson that a person wrote; raises as `checked_content` does."""
    names = ("task", "task_type", "error", "why", "disobeyed")
    texts: dict[str, Any] = {name: getattr(lesson, name) for name in (*names, "title", "summary")}
    content = [getattr(lesson.content, one.name) for one in fields(lesson.content)]
    cleaner = Cleaner.of(*texts.values(), *content, *lesson.tools)
    texts = {name: cleaner.redact(texts[name]) for name in names}
    texts |= {name: checked_title(getattr(lesson, name), cleaner) for name in ("title", "summary")}
    tools = tuple(map(cleaner.redact, lesson.tools))
    return replace(lesson, content=checked_content(lesson.content, cleaner), tools=tools, **texts)
