"""Recurrence: match lessons with a failure that has just happened."""

from __future__ import annotations

import builtins
import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from redraft._words import folded, words_of
from redraft.lessons.full_text import names_in, tokens_of
from redraft.lessons.lesson import ADVICE_KINDS
from redraft.lessons.ranking import LessonQuery, normalized
from redraft.text.characters import without_invisible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from redraft.lessons.index import LessonMatch
    from redraft.lessons.lesson import Lesson
    from redraft.protocols import Mistake

CANDIDATES = 8
"""Lessons with words of a mistake, among which the matching ones are chosen."""
MOST_MATCHING = 2
SAME_ERROR, FEWEST_WORDS = 0.6, 3
"""Two errors are the same with this share of the shorter error's words, and this many words, in common."""
SHARED_NAMES = 2
"""Errors match with this many identifiers in common; with fewer, their words count, too."""
RELATED = 0.25
"""Errors with a single identifier in common match with this share of words in common."""


def query_of(mistake: Mistake, agent: str | None, now: datetime) -> LessonQuery:
    """The query for the lessons that may be about a mistake."""
    return LessonQuery(
        "",
        tools=(mistake.tool,) if mistake.tool else (),
        error=" ".join((*mistake.errors, *mistake.criteria)),
        agent=agent,
        k=CANDIDATES,
        kinds=ADVICE_KINDS,
        requirements=mistake.requirements,
        now=now,
    )


def matching_lessons(mistake: Mistake, candidates: Iterable[LessonMatch]) -> list[LessonMatch]:
    """The lessons that are about a mistake, best first, each with the reason for the match."""
    errors = [ErrorText(error) for error in mistake.errors]
    matching: list[tuple[int, LessonMatch]] = []
    for candidate in candidates:
        if candidate.lesson.kind == "decision":  # no failure taught it
            continue
        rank, reason = _match(mistake, errors, candidate.lesson)
        if reason:
            doubt = f"; {candidate.reason}" if candidate.lesson.status != "active" else ""
            matching.append((rank, replace(candidate, reason=f"{reason}{doubt}")))
    matching.sort(key=lambda ranked: -ranked[0])
    return [match for _, match in matching[:MOST_MATCHING]]


def _match(mistake: Mistake, errors: Sequence[ErrorText], lesson: Lesson) -> tuple[int, str]:
    """The rank of a lesson for a mistake, and the reason for the match; empty if it does not match."""
    lesson_text = ErrorText("\n".join([lesson.error, *lesson.content.texts.values()]))
    reasons: list[str] = []
    rank = 0
    if names := next((names for error in errors if (names := error.shared_names(lesson_text))), ()):
        reasons.append(f"names {', '.join(names[:3])}")
        rank += 2
    if any(error.is_same(ErrorText(lesson.error)) for error in errors):
        reasons.append("same error")
        rank += 2
    requirements = map(ErrorText, mistake.requirements)
    if any(text.phrase in lesson_text.phrase for text in requirements if text.phrase):
        reasons.append("same requirement")
        rank += 1
    elif criterion := next((name for name in mistake.criteria if lesson_text.names_criterion(name)), ""):
        reasons.append(f"same criterion {criterion!r}")
        rank += 1
    if mistake.tool and _is_about_tool(lesson, lesson_text, mistake.tool):
        reasons.append(f"tool {mistake.tool}")
        rank += 1
    elif mistake.tool and lesson.tools and normalized(mistake.tool) not in map(normalized, lesson.tools):
        return 0, ""  # an error of another tool, whatever its text
    return rank, "; ".join(reasons)


def _is_about_tool(lesson: Lesson, lesson_text: ErrorText, tool: str) -> bool:
    """Whether a lesson is about a tool: its only tool, or an identifier in its text."""
    if [normalized(name) for name in lesson.tools] == [normalized(tool)]:
        return True
    return bool(names_in(tool)) and tokens_of(tool)[0] in lesson_text.words


# --- the words of an error ----------------------------------------------------------------------------------

_COMMON = frozenset(
    words_of(
        "and are but by can could did does for from had has have how if in into is it its must no not of on "
        "or should so such than that the their them then there these they this to was were what when where "
        "which while who why will with would you your error failed found expected got met missing"
    )
)
_GENERAL = frozenset(name.lower() for name in vars(builtins)) | {"traceback", "stdin", "stdout", "stderr"}
"""Names that any error may contain."""
_TYPE = re.compile(r"(?:error|exception|warning)$")
"""The end of the name of an error type, which many different errors share."""
_QUOTES = "`'\""


@dataclass(frozen=True)
class ErrorText:
    """The text of an error or a lesson, by its words and its identifiers."""

    text: str

    @cached_property
    def _visible(self) -> str:
        return without_invisible(self.text)

    @cached_property
    def words(self) -> frozenset[str]:
        """Its significant words, with each identifier as a single token."""
        written = set(map(folded, self.names.values()))
        return frozenset(
            word
            for word in (*words_of(self._visible), *self.names)
            if len(word) > 1
            and not word[0].isdecimal()
            and word not in _COMMON
            and word not in written.difference(self.names)
            and not _TYPE.search(word)
        )

    @cached_property
    def names(self) -> dict[str, str]:
        """Its identifiers by token, without those that any error may contain, such as `ValueError`."""
        return {
            tokens[0]: name
            for name in names_in(self._visible)
            if (tokens := tokens_of(name))
            and not tokens[0].isdecimal()
            and tokens[0] not in _GENERAL
            and not _TYPE.search(tokens[0])
        }

    @cached_property
    def phrase(self) -> str:
        """Its words in order, between spaces."""
        words = " ".join(words_of(self._visible))
        return f" {words} " if words else ""

    def shared_names(self, other: ErrorText) -> tuple[str, ...]:
        """The identifiers that two texts share, if they suffice to show the same subject."""
        shared = [name for token, name in self.names.items() if token in other.names]
        if len(shared) >= min(SHARED_NAMES, len(self.names)) or self._overlap(other) >= RELATED:
            return tuple(sorted(shared))
        return ()

    def is_same(self, other: ErrorText) -> bool:
        """Whether two errors have most words in common, whatever values they name."""
        return len(self.words & other.words) >= FEWEST_WORDS and self._overlap(other) >= SAME_ERROR

    def _overlap(self, other: ErrorText) -> float:
        shorter = min(len(self.words), len(other.words))
        return len(self.words & other.words) / shorter if shorter else 0.0

    def names_criterion(self, criterion: str) -> bool:
        """Whether the text names a criterion: as a label, in quotes, or by a distinctive name."""
        name = " ".join(criterion.split())
        if not name:
            return False
        if len(name.split()) > 1 or names_in(name):
            return ErrorText(name).phrase in self.phrase
        quoted = rf"[{_QUOTES}]{re.escape(name)}[{_QUOTES}]|(?:^|[\n;])[\s-]*{re.escape(name)}\s*:"
        return re.search(quoted, self._visible, re.IGNORECASE) is not None
