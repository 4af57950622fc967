"""A lesson: one thing learned, in the fields of its kind, with where it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import date
from typing import Any, ClassVar, Literal, TypeAlias

from redraft._codec import to_json
from redraft.errors import ConfigError

# "None: what is known does not tell", but not "None of the pages may be left out".
_NOTHING = re.compile(
    r"\W*(?:(?:none|n/?a|not known)(?:\W*|\s*[:(].*)|(?:nothing|not applicable|unknown|no rule|withheld)\W*)",
    re.IGNORECASE,
)

LessonKind = Literal["failure", "partial", "procedure", "decision"]


def _under(heading: str, says: str) -> Any:
    return field(metadata={"heading": heading, "says": says})


class _Written:
    """Refuse a reflection with an empty field, which the protocol asks for."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for name in headings_of(type(self)):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise ConfigError(f"{type(self).__name__}.{name} must be a text that is not empty.")


@dataclass(frozen=True, slots=True)
class Failure(_Written):
    """Reflect on a task that failed, in five fields. Reflexion Protocol, section 3a."""

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


@dataclass(frozen=True, slots=True)
class Partial(_Written):
    """Reflect on a task that succeeded in part, in three fields (3b)."""

    kind: ClassVar[LessonKind] = "partial"
    what_happened: str = _under("What happened?", "The task and its outcome, as facts.")
    what_went_wrong: str = _under("What went wrong?", "What is missing or wrong, and at which step.")
    do_differently: str = _under(
        "What should I do differently?", "The correction, specific enough to be followed."
    )


@dataclass(frozen=True, slots=True)
class Procedure(_Written):
    """Record how a task succeeded, in two fields (3c)."""

    kind: ClassVar[LessonKind] = "procedure"
    strategy: str = _under("Strategy", "What was done, in steps that can be repeated.")
    why_it_worked: str = _under("Why it worked", "What made the difference.")


@dataclass(frozen=True, slots=True)
class Decision(_Written):
    """Record why one of several options was chosen, in three fields (3d)."""

    kind: ClassVar[LessonKind] = "decision"
    decision: str = _under("What was the decision?", "The choice, as a fact.")
    alternatives: str = _under("What alternatives existed?", "The other ways, and what spoke for them.")
    why: str = _under("Why was this option chosen?", "The reason that decided.")


Content: TypeAlias = Failure | Partial | Procedure | Decision

KINDS: dict[LessonKind, type[Content]] = {kind.kind: kind for kind in (Failure, Partial, Procedure, Decision)}


def is_empty(text: str) -> bool:
    """Return whether a field only says that there is nothing to say, as models and people put it."""
    return _NOTHING.fullmatch(" ".join(text.split())) is not None


def headings_of(kind: type[Any]) -> dict[str, str]:
    """Return the heading of each field of a kind of reflection, in order."""
    return {one.name: one.metadata["heading"] for one in fields(kind)}


Status = Literal["active", "quarantined", "retired", "superseded"]
STATUSES: tuple[Status, ...] = ("active", "quarantined", "retired", "superseded")

CONFIDENCE = 0.7
"""The confidence of a lesson that states none."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """Hold one lesson as its file has it.

    `id` is `<agent>/<file name without .md>`, empty until it is filed; `summary` is the task in a few words.
    `task`, `task_type`, `tools` and `error` are what it is recalled by. `confidence` is in 0..1. Only
    `active` lessons are shown to a model: a `quarantined` one comes from text that nobody vouches for, and
    waits until a person approves it or an attempt does better with it; a `superseded` one names its successor
    in `superseded_by`; `why` says why it was retired. `source` is the id of the run that taught it. Reflexion
    Protocol, sections 3 and 4.
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
    why: str = ""
    superseded_by: str = ""
    source: str = ""
    id: str = ""

    @property
    def kind(self) -> LessonKind:
        """What sort of lesson it is."""
        return self.content.kind


_WORD = re.compile(r"\w+")
NEAR_DUPLICATE = 0.8
"""The `overlap` from which two lessons say the same."""


def words_of(content: Content) -> frozenset[str]:
    """Return the words of a reflection."""
    return words_in(" ".join(str(getattr(content, one.name)) for one in fields(content)))


def words_in(text: str) -> frozenset[str]:
    """Return the words of a text, regardless of case."""
    return frozenset(_WORD.findall(text.casefold()))


def overlap(words: frozenset[str], others: frozenset[str]) -> float:
    """Return the share (0..1) of two texts' words that both have."""
    return len(words & others) / len(words | others) if words or others else 1.0


def lesson_document(lesson: Lesson) -> dict[str, Any]:
    """Return a lesson as JSON data: its id, its kind, its fields and its front matter."""
    known = to_json(lesson)
    return {"id": known.pop("id"), "kind": lesson.kind, **known, "day": str(lesson.day)}
