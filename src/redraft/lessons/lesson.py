"""The lesson: what an agent learned, and the kinds of content that it can have."""

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
from redraft.types import unwrapped

# Matches "None: the transcript does not say", but not "None of the pages may be left out".
_NOTHING = re.compile(
    r"\W*(?:(?:none|n/?a|not known)(?:\W*|\s*[:(].*)|(?:nothing|not applicable|unknown|no rule|withheld)\W*)",
    re.IGNORECASE,
)

LessonKind = Literal["failure", "partial", "procedure", "decision", "correction", "fact"]


def _section(heading: str, hint: str) -> Any:
    return field(metadata={"heading": heading, "hint": hint})


class _Content:
    """Content in fields of non-empty text."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name, text in self.texts.items():
            if not isinstance(text, str) or not text.strip():  # pyright: ignore[reportUnnecessaryIsInstance] (callers may be untyped)
                raise ConfigError(f"{type(self).__name__}.{name} must be a non-empty text.")

    @property
    def texts(self) -> dict[str, str]:
        """The text of each field, in order."""
        return {name: getattr(self, name) for name in headings_of(type(self))}


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Failure(_Content):
    """What an agent learned from a task that failed."""

    kind: ClassVar[LessonKind] = "failure"
    what_happened: str = _section("What happened?", "The task and its outcome, as facts.")
    what_went_wrong: str = _section("What went wrong?", "The point of failure: which step, tool, input.")
    why: str = _section(
        "Why did it go wrong?",
        "The root cause: a wrong strategy, bad input, missing knowledge, a failure outside.",
    )
    do_differently: str = _section(
        "What should I do differently?", "The correction, specific enough to be followed."
    )
    rule: str = _section("Tactical rule candidate", "One sentence that would have prevented it.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Partial(_Content):
    """What an agent learned from a task that succeeded in part."""

    kind: ClassVar[LessonKind] = "partial"
    what_happened: str = _section("What happened?", "The task and its outcome, as facts.")
    what_went_wrong: str = _section("What went wrong?", "What is missing or wrong, and at which step.")
    do_differently: str = _section(
        "What should I do differently?", "The correction, specific enough to be followed."
    )


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Procedure(_Content):
    """What an agent learned from a success: how it was done, and why that worked."""

    kind: ClassVar[LessonKind] = "procedure"
    strategy: str = _section("Strategy", "What was done, in steps that can be repeated.")
    why_it_worked: str = _section("Why it worked", "What made the difference.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Decision(_Content):
    """A decision, its alternatives, and the reason for it."""

    kind: ClassVar[LessonKind] = "decision"
    decision: str = _section("What was the decision?", "The choice, as a fact.")
    alternatives: str = _section("What alternatives existed?", "The other ways, and what spoke for them.")
    why: str = _section("Why was this option chosen?", "The reason that decided.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class CorrectedAnswer(_Content):
    """An answer corrected by a person: an example for similar tasks."""

    kind: ClassVar[LessonKind] = "correction"
    answer: str = _section("What is the corrected answer?", "The whole answer, as it should have been.")
    changes: str = _section("What did the person change?", "What was added, left out or replaced.")
    why: str = _section("Why was it changed?", "The reason, or None where it is not known.")


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Fact(_Content):
    """A statement about the environment of tasks, with its evidence."""

    kind: ClassVar[LessonKind] = "fact"
    subject: str = _section("What is it about?", "The name of the thing: a table, a command, a field.")
    statement: str = _section(
        "What is so?", "How it is, in one line: its columns, units, format, limits. Clauses end with ';'."
    )
    evidence: str = _section("What shows it?", "The error or reply that shows it, quoted, newest first.")


Content: TypeAlias = Failure | Partial | Procedure | Decision | CorrectedAnswer | Fact

KINDS: dict[LessonKind, type[Content]] = {
    kind.kind: kind for kind in (Failure, Partial, Procedure, Decision, CorrectedAnswer, Fact)
}
ADVICE_KINDS: tuple[LessonKind, ...] = ("failure", "partial", "procedure", "decision", "correction")
"""The kinds of lessons that give advice."""


def is_empty(text: str) -> bool:
    """Whether a text says nothing, as in "n/a" or "none: not known"."""
    return _NOTHING.fullmatch(" ".join(text.split())) is not None


def headings_of(kind: type[Any]) -> dict[str, str]:
    """The heading of each field of a kind of content, in order."""
    return {section.name: section.metadata["heading"] for section in fields(kind)}


Status = Literal["active", "quarantined", "retired", "superseded"]
STATUSES: tuple[Status, ...] = ("active", "quarantined", "retired", "superseded")

Trust = Literal["", "vouched", "checked", "untrusted"]
TRUSTS: tuple[Trust, ...] = ("vouched", "checked", "untrusted")
TRUST_MEANINGS: dict[Trust, str] = {
    "vouched": "a person or the program wrote or approved it",
    "checked": "checks or the program showed how its run ended, and no tool answered in it",
    "untrusted": "neither a person nor a check has confirmed it",
    "": "its file does not say where it comes from",
}

CONFIDENCE = 0.7
"""The default confidence."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """A lesson with its front matter. Search uses `task`, `task_type`, `tools` and `error`."""

    content: Content
    agent: str
    day: date
    summary: str
    """The task in a few words."""
    task: str = ""
    task_type: str = ""
    tools: tuple[str, ...] = ()
    error: str = ""
    confidence: float = CONFIDENCE
    """How well it is supported (0..1).

    Rises by 0.1 when a run without the lesson learns it again; falls when a run with it fails again.
    """
    status: Status = "active"
    """An `active` lesson is recalled for any similar task.

    A `quarantined` lesson is recalled for the task that taught it, and tried in some runs of similar tasks
    until it has helped or hurt, or a person approves it.
    """
    trust: Trust = ""
    """Where it comes from; empty if unknown.

    `vouched`: a person or the program wrote or approved it. `checked`: checks or the program showed the
    outcome of a run without texts from tools. `untrusted`: neither.
    """
    overrules: str = ""
    """The violations, such as "a command", in spite of which a person approved it."""
    why: str = ""
    """The reason for the status."""
    disobeyed: str = ""
    """How often runs received it and failed again, such as "told in 5 runs, failed again in 5".

    Such a lesson is stressed in prompts. Empty for all others.
    """
    superseded_by: str = ""
    """The id of its successor."""
    source: str = ""
    """The id of the run that taught it."""
    title: str = ""
    """The lesson itself in a few words, after which its file is named."""
    check: str = ""
    """The name of the criterion that replaces it: a run judged by that criterion does not get the lesson."""
    id: str = ""
    """`<agent>/<file name without .md>`; empty until the lesson has a file."""
    at: datetime | None = None
    """When it was written, to the millisecond; None if only its day is known."""
    others: str = ""
    """A JSON object with the unknown entries of the front matter, which stay in the file."""

    @property
    def kind(self) -> LessonKind:
        """The kind of its content."""
        return self.content.kind

    @property
    def name(self) -> str:
        """Its title, or else its summary."""
        return self.title or self.summary

    @property
    def headline(self) -> str:
        """One line for a list: what a fact says, or the name of another lesson."""
        if isinstance(self.content, Fact):
            return unwrapped(f"{self.content.subject}: {self.content.statement}")
        return self.name

    @property
    def recency(self) -> int:
        """Milliseconds since 1970 at which it was written; the start of its day if only that is known.

        Files of the same name are numbered in the order of writing; each number adds a millisecond.
        """
        written = self.at or datetime.combine(self.day, time(), UTC)
        numbered = _NUMBERED.search(self.id)
        return int(written.timestamp() * 1000) + (int(numbered[1]) if numbered else 0)


_NUMBERED = re.compile(r"-([0-9]{1,4})$")

NEAR_DUPLICATE = 0.8
"""Two lessons with at least this `overlap` count as the same."""


def words_of(content: Content) -> frozenset[str]:
    """The words of a lesson's content, without the evidence of a fact."""
    return words_in(" ".join(text for name, text in content.texts.items() if name != "evidence"))


def advice_lines(content: Content) -> tuple[str, ...]:
    """The lines that say what to do, in lower case; decisions and facts have none."""
    match content:
        case Failure() | Partial():
            advice = content.do_differently
        case Procedure():
            advice = content.strategy
        case CorrectedAnswer():
            advice = content.changes
        case Decision() | Fact():
            advice = ""
    lines = (" ".join(line.split()) for line in advice.casefold().splitlines())
    return tuple(filter(None, lines))


def lesson_document(lesson: Lesson) -> dict[str, Any]:
    """A lesson as JSON data: id, kind, name, content and front matter."""
    data = to_json(lesson)
    return {
        "id": data.pop("id"),
        "kind": lesson.kind,
        "name": lesson.headline,
        **data,
        "day": str(lesson.day),
    }


# --- what no lesson may contain ----------------------------------------------------------------------------


def violations_in(lesson: Lesson) -> list[str]:
    """All violations in a lesson without duplicates, approved ones included."""
    about = (lesson.title, lesson.summary, lesson.task_type, " ".join(lesson.tools))
    texts = (*lesson.content.texts.values(), *about)
    return list(dict.fromkeys(violation for text in texts for violation in violations_of(text)))


def violation_in(lesson: Lesson) -> str:
    """The first violation in a lesson that no person approved; empty if there is none."""
    overruled = lesson.overrules.split("; ")
    return next((violation for violation in violations_in(lesson) if violation not in overruled), "")


def checked_content(content: Content, cleaner: Cleaner | None = None) -> Content:
    """Withhold the secrets in content that a person or a program wrote.

    Raises `ConfigError` with the field and the reason for content that no lesson may contain.
    """
    texts: dict[str, Any] = content.texts
    cleaner = cleaner or Cleaner.of(*texts.values())
    for name, text in texts.items():
        texts[name] = cleaner.redact(text)
        if why := cleaner.refusal(texts[name]):
            raise ConfigError(f"{type(content).__name__}.{name} can't be kept in a lesson: {why}.")
    return replace(content, **texts)


def checked_title(title: str, cleaner: Cleaner | None = None) -> str:
    """Withhold the secrets in a title; raises `ConfigError` for one that no lesson may have."""
    cleaner = cleaner or Cleaner()
    clean = unwrapped(cleaner.redact(title))
    if why := cleaner.refusal(clean):
        raise ConfigError(f"The title can't be kept in a lesson: {why}.")
    return clean


def checked_lesson(lesson: Lesson) -> Lesson:
    """Withhold the secrets in a lesson that a person wrote; raises as `checked_content` does."""
    names = ("task", "task_type", "error", "why", "disobeyed")
    texts: dict[str, Any] = {name: getattr(lesson, name) for name in (*names, "title", "summary")}
    cleaner = Cleaner.of(*texts.values(), *lesson.content.texts.values(), *lesson.tools)
    texts = {name: cleaner.redact(texts[name]) for name in names}
    texts |= {name: checked_title(getattr(lesson, name), cleaner) for name in ("title", "summary")}
    tools = tuple(map(cleaner.redact, lesson.tools))
    return replace(lesson, content=checked_content(lesson.content, cleaner), tools=tools, **texts)
