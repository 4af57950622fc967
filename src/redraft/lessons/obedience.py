"""Obedience: whether runs avoid the failures that their lessons warn of."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Any

from redraft._texts import counted
from redraft._words import overlap, words_in
from redraft.evaluate.criteria import needs_model
from redraft.evaluate.requirements import missed_requirements
from redraft.lessons.advice import required_by
from redraft.lessons.lesson import NEAR_DUPLICATE, Failure, Lesson, Partial, Procedure
from redraft.lessons.outcome import tool_errors
from redraft.lessons.ranking import normalized
from redraft.lessons.writer import FAILED_BEFORE, FAILED_WITH
from redraft.memory.safety import Cleaner
from redraft.types import FAILED_VERSION, NOT_MET, in_one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.lessons.outcome import Outcome
    from redraft.types import Advice, ReflectionResult

SAME_PROBLEM = 0.5
"""Two messages of a check, error class or tool with at least this `overlap` are about the same problem."""
_MARK = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|[A-Za-z]*\d{3,}\w*)\b")
"""An error class or an error code, such as `E4031`."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[\w#]+")


@dataclass(frozen=True, slots=True)
class RunProblem:
    """A problem in a run."""

    text: str
    source: str = ""
    """The criterion, or the class of the error."""
    tool: str = ""
    """The tool that answered with the error."""
    is_opinion: bool = False
    """Whether a model judges the criterion, in different words each time."""

    def is_in(self, lesson: Lesson, facts: Sequence[str]) -> bool:
        """Whether a lesson is about this problem; `facts` are its lines on the failure."""
        if self.tool:
            tool, marks = normalized(self.tool), set(_MARK.findall(self.text))
            if tool not in map(normalized, lesson.tools) and not any(
                tool in words_in(fact) for fact in facts
            ):
                return False
            if marks:
                return not marks.isdisjoint(_MARK.findall("\n".join(facts)))
            return any(self._resembles(fact, SAME_PROBLEM) for fact in facts)
        source = self.source.rstrip(".")
        if self.source and any(
            self.is_opinion or self.text == NOT_MET or self._resembles(fact, SAME_PROBLEM)
            for fact in facts
            if fact.startswith(source) and not fact[len(source) : len(source) + 1].isalnum()
        ):
            return True
        text = _plain(self.text)
        return any(text in _plain(fact) or self._resembles(fact, NEAR_DUPLICATE) for fact in facts)

    def _resembles(self, fact: str, share: float) -> bool:
        return overlap(_words(self.text), _words(fact.removeprefix(f"{self.source.rstrip('.')}:"))) >= share


@dataclass(frozen=True, slots=True)
class RunFailures:
    """The failures of a run: of its first version, of the version that it returned, and of its tools."""

    requirements: tuple[str, ...] = ()
    """The requirements of criteria that these versions missed."""
    problems: tuple[RunProblem, ...] = ()
    is_judged: bool = False
    """Whether there can be no other failures."""

    @classmethod
    def of(cls, result: ReflectionResult, outcome: Outcome | None, *, later: bool = False) -> RunFailures:
        """Collect the failures of a finished run, as far as its writer may know them.

        With `later`, only those of its last version: for lessons that the run received after a failure.
        """
        versions = result.history.versions
        judged = [versions[0], result.history.best_version] if versions else []
        criteria = {criterion.name: criterion for criterion in result.criteria}
        requirements: list[str] = []
        problems = [RunProblem(_clean(text), tool=tool) for tool, text in tool_errors(result)]
        if later:
            judged, problems = list(versions[-1:]), []
        issues = dict.fromkeys(issue for each in judged for issue in each.evaluation.for_writer().issues)
        for issue in issues:
            criterion = criteria.get(issue.criterion or "")
            missed = [] if criterion is None else missed_requirements([criterion], [issue])
            requirements += map(as_stored, missed)
            if not missed:
                is_opinion = criterion is not None and needs_model(criterion)
                problems.append(RunProblem(_clean(issue), issue.criterion or "", is_opinion=is_opinion))
        if result.error is not None:
            problems += cls.of_error(result.error).problems
        is_judged = outcome is not None and result.error is None
        return cls(tuple(dict.fromkeys(requirements)), tuple(dict.fromkeys(problems)), is_judged)

    @classmethod
    def of_error(cls, error: BaseException) -> RunFailures:
        """The failure of a run that raised an error before it had any output."""
        name = type(error).__name__
        return cls(problems=(RunProblem(_clean(f"{name}: {error}"), name),))

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> RunFailures:
        """The failures in an outcome."""
        problems = [] if outcome.requirements else [RunProblem(_clean(issue)) for issue in outcome.issues]
        if outcome.error and not outcome.issues:
            problems.append(RunProblem(_clean(outcome.error), outcome.error.partition(":")[0]))
        return cls(tuple(map(as_stored, outcome.requirements)), tuple(problems))

    def obeyed(self, lesson: Lesson) -> bool | None:
        """Whether the run avoided the failure that a lesson is about; None if unknown."""
        facts = _failure_in(lesson)
        if not facts:
            return None
        if self.include(lesson):
            return False
        is_other = bool(lesson.error) or not (self.requirements or self.problems)
        return True if self.is_judged and is_other else None

    def include(self, lesson: Lesson) -> bool:
        """Whether the failure that a lesson is about is among these."""
        facts = _failure_in(lesson)
        if not facts:
            return False
        is_named = bool(required_by(lesson, self.requirements))
        return is_named or any(problem.is_in(lesson, facts) for problem in self.problems)


def later_advice(advice: Sequence[Advice]) -> dict[str, bool]:
    """The lessons that a run received after its start, each with whether a version had failed by then.

    If no version had failed, a tool had, and it is unknown whether it failed again.
    """
    first = {piece.source for piece in advice if not piece.after}
    return {
        piece.source: piece.after.startswith(FAILED_VERSION) for piece in advice if piece.source not in first
    }


@lru_cache(maxsize=512)
def as_stored(requirement: str) -> str:
    """A requirement as lessons store it; all runs of an agent ask for the same ones."""
    return Cleaner().clean(requirement)


def _failure_in(lesson: Lesson) -> list[str]:
    """The facts about the failure in a lesson; empty if it is not about a failure."""
    match lesson.content:
        case Failure() | Partial():
            text = lesson.content.what_went_wrong
        case Procedure() if lesson.content.why_it_worked.startswith(FAILED_BEFORE):
            text = lesson.content.why_it_worked.removeprefix(FAILED_BEFORE)
        case _:
            return []
    lines = [line.removeprefix(FAILED_WITH) for line in (*text.split("\n"), *lesson.error.split("\n"))]
    return [line for line in map(str.strip, lines) if line]


def _clean(text: str) -> str:
    return in_one_line(Cleaner().clean(text))


def _plain(text: str) -> str:
    """The words of a text with each number as `#`, since numbers differ from run to run."""
    words: list[str] = _WORD.findall(_NUMBER.sub("#", text.casefold()))
    return f" {' '.join(words)} "


def _words(text: str) -> frozenset[str]:
    return frozenset(_plain(text).split())


# --- the latest runs ---------------------------------------------------------------------------------------

LATEST_RUNS = 20
"""Number of latest runs that show whether a lesson is obeyed at present."""
STRESSED, RETIRED = 0.05, 0.0002
"""A lesson is stressed or retired if so few obedient runs are less probable, supposing that half obey.

A lesson that no run obeys is stressed after 5 runs and retired after 13; of lessons that half of the runs
obey, none in 1,000 is retired within 200 runs: see "Lessons that are not obeyed" in benchmarks/README.md.
"""
DOUBT = 0.85
"""The factor by which a failure lowers the confidence of a lesson that the run received."""
MOST_DOUBTS = 10


@dataclass(frozen=True, slots=True)
class Obedience:
    """Whether the latest runs with a lesson avoided its failure; unknown cases don't count."""

    runs: int = 0
    failed_again: int = 0
    doubts: int = 0
    """Failures that no later obedient run offset."""

    @classmethod
    def of(cls, runs: Sequence[bool]) -> Obedience:
        """Count runs, the earliest first: True if the run avoided the failure."""
        latest, doubts = runs[-LATEST_RUNS:], 0
        for obeyed in latest:
            doubts = max(0, doubts - 1) if obeyed else min(MOST_DOUBTS, doubts + 1)
        return cls(len(latest), latest.count(False), doubts)

    @property
    def is_disobeyed(self) -> bool:
        """Whether prompts should stress the lesson."""
        return self._probability <= STRESSED

    @property
    def is_in_vain(self) -> bool:
        """Whether the lesson is useless and should be retired."""
        return self._probability <= RETIRED

    @property
    def is_obeyed(self) -> bool:
        """Whether at least half of the runs obeyed, so that the lesson need not be stressed."""
        return 2 * self.failed_again <= self.runs

    @property
    def _probability(self) -> float:
        """The probability of so few obedient runs if each obeyed with a probability of one half."""
        obeyed = self.runs - self.failed_again
        return sum(comb(self.runs, count) for count in range(obeyed + 1)) / 2**self.runs

    def __str__(self) -> str:
        """The figures, as in `told in 12 runs, failed again in 11`."""
        return f"told in {counted(self.runs, 'run')}, failed again in {self.failed_again}"


def changes_after(lesson: Lesson, before: Obedience, after: Obedience) -> dict[str, Any]:
    """The fields of a lesson that change after a run that received it.

    Its confidence falls when the run failed again, and recovers as later runs obey. A disobeyed lesson is
    stressed from then on; if that does not help, it is retired.
    """
    changes: dict[str, Any] = {}
    if after.doubts != before.doubts:
        factor = DOUBT ** (after.doubts - before.doubts)
        changes["confidence"] = min(1.0, round(lesson.confidence * factor, 2))
    if after.is_in_vain:
        changes |= {"status": "retired", "why": f"It was told in vain: {after}.", "disobeyed": str(after)}
    elif after.is_disobeyed and not lesson.disobeyed:
        changes["disobeyed"] = str(after)
    elif after.is_obeyed and lesson.disobeyed:
        changes["disobeyed"] = ""
    return changes
