"""Obedience: whether runs avoid the failures that the lessons they are given are about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import TYPE_CHECKING, Any

from redraft._texts import counted
from redraft.evaluate.criteria import needs_model
from redraft.evaluate.requirements import missed_requirements
from redraft.lessons.advice import required_by
from redraft.lessons.lesson import NEAR_DUPLICATE, Failure, Lesson, Partial, Procedure
from redraft.lessons.outcome import tool_errors
from redraft.lessons.ranking import normalized
from redraft.lessons.writer import FAILED_BEFORE, FAILED_WITH
from redraft.memory.safety import Cleaner
from redraft.types import NOT_MET, VERSION, overlap, words_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.lessons.outcome import Outcome
    from redraft.types import Advice, ReflectionResult

SAME_PROBLEM = 0.5
"""The `overlap` from which two messages of one check, error class or tool are about the same problem."""
_MARK = re.compile(r"\b(?:[A-Z]\w*(?:Error|Exception)|[A-Za-z]*\d{3,}\w*)\b")
"""An error class or an error code, such as `E4031`."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"[\w#]+")


@dataclass(frozen=True, slots=True)
class RunProblem:
    """One thing that went wrong in a run.

    `source` is the criterion or the class of the error, `tool` the tool that answered with it.
    `is_opinion` says that a model judges the criterion, whose words differ each time.
    """

    text: str
    source: str = ""
    tool: str = ""
    is_opinion: bool = False

    def is_in(self, lesson: Lesson, facts: Sequence[str]) -> bool:
        """Return whether a lesson is about this problem; `facts` are what it says went wrong."""
        if self.tool:
            marks = set(_MARK.findall(self.text))
            return _concerns(lesson, facts, self.tool) and (
                not marks.isdisjoint(_MARK.findall("\n".join(facts)))
                if marks
                else any(self._resembles(fact, SAME_PROBLEM) for fact in facts)
            )
        if self.source and any(
            self.is_opinion or self.text == NOT_MET or self._resembles(fact, SAME_PROBLEM)
            for fact in facts
            if _begins_with(fact, self.source)
        ):
            return True
        said = _plain(self.text)
        return any(said in _plain(fact) or self._resembles(fact, NEAR_DUPLICATE) for fact in facts)

    def _resembles(self, fact: str, share: float) -> bool:
        return overlap(_words(self.text), _words(fact.removeprefix(f"{self.source.rstrip('.')}:"))) >= share


@dataclass(frozen=True, slots=True)
class RunFailures:
    """What went wrong in a run: in its first version, in the version it returned, and in its tools.

    `requirements` are what criteria ask for and these versions lack. `is_judged` says that nothing else can
    have gone wrong.
    """

    requirements: tuple[str, ...] = ()
    problems: tuple[RunProblem, ...] = ()
    is_judged: bool = False

    @classmethod
    def of(cls, result: ReflectionResult, outcome: Outcome | None, *, later: bool = False) -> RunFailures:
        """Collect what went wrong in a finished run, as far as its writer may know it.

        With `later`, in its last version alone: for lessons that it was given once something had failed.
        """
        versions = result.history.versions
        judged = [versions[0], result.history.best_version] if versions else []
        criteria = {one.name: one for one in result.criteria}
        requirements: list[str] = []
        problems = [RunProblem(_clean(text), tool=tool) for tool, text in tool_errors(result)]
        if later:
            judged, problems = list(versions[-1:]), []
        issues = dict.fromkeys(one for each in judged for one in each.evaluation.for_writer().issues)
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
        """Return what went wrong in a run that raised an error before it had any output."""
        name = type(error).__name__
        return cls(problems=(RunProblem(_clean(f"{name}: {error}"), name),))

    @classmethod
    def of_outcome(cls, outcome: Outcome) -> RunFailures:
        """Return what an outcome says was wrong."""
        problems = [] if outcome.requirements else [RunProblem(_clean(issue)) for issue in outcome.issues]
        if outcome.error and not outcome.issues:
            problems.append(RunProblem(_clean(outcome.error), outcome.error.partition(":")[0]))
        return cls(tuple(map(as_stored, outcome.requirements)), tuple(problems))

    def obeyed(self, lesson: Lesson) -> bool | None:
        """Return whether the run avoided the failure that a lesson is about; None if unknown."""
        facts = _failure_in(lesson)
        if not facts:
            return None
        if self.include(lesson):
            return False
        is_other = bool(lesson.error) or not (self.requirements or self.problems)
        return True if self.is_judged and is_other else None

    def include(self, lesson: Lesson) -> bool:
        """Return whether the failure that a lesson is about is one of these."""
        facts = _failure_in(lesson)
        if not facts:
            return False
        is_named = bool(required_by(lesson, self.requirements))
        return is_named or any(one.is_in(lesson, facts) for one in self.problems)


def later_advice(advice: Sequence[Advice]) -> dict[str, bool]:
    """Return the lessons that a run was not given at its start, and whether a version had failed by then.

    Otherwise it was a tool: nothing says whether it failed again after that.
    """
    first = {one.source for one in advice if not one.after}
    return {one.source: one.after.startswith(VERSION) for one in advice if one.source not in first}


@lru_cache(maxsize=512)
def as_stored(requirement: str) -> str:
    """Return a requirement as lessons store it; all runs of an agent ask for the same ones."""
    return Cleaner().clean(requirement)


def _failure_in(lesson: Lesson) -> list[str]:
    """Return the facts about the failure in a lesson; empty if it is about none."""
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
    return " ".join(Cleaner().clean(text).split())


def _begins_with(fact: str, source: str) -> bool:
    source = source.rstrip(".")
    return fact.startswith(source) and not fact[len(source) : len(source) + 1].isalnum()


def _concerns(lesson: Lesson, facts: Sequence[str], tool: str) -> bool:
    name = normalized(tool)
    return name in map(normalized, lesson.tools) or any(name in words_in(fact) for fact in facts)


def _plain(text: str) -> str:
    """Return the words of a text with each number as `#`: it differs from run to run."""
    words: list[str] = _WORD.findall(_NUMBER.sub("#", text.casefold()))
    return f" {' '.join(words)} "


def _words(text: str) -> frozenset[str]:
    return frozenset(_plain(text).split())


# --- the latest runs ---------------------------------------------------------------------------------------

HEEDED = 20
"""The latest runs that show whether a lesson is obeyed at present."""
STRESSED, RETIRED = 0.05, 0.0002
"""How improbable so few obedient runs are, if half of all obeyed, when a lesson is stressed and retired.

A lesson that no run obeys is stressed after 5 runs and retired after 13; of lessons that half of the runs
obey, none in 1,000 is retired within 200 runs: see "Lessons that are not obeyed" in benchmarks/README.md.
"""
DOUBT = 0.85
"""The factor by which a failure lowers the confidence of a lesson that its run was given."""
MOST_DOUBTS = 10


@dataclass(frozen=True, slots=True)
class Obedience:
    """Whether the latest runs that were given a lesson avoided the failure that it is about.

    Runs of which that is not known don't count.
    """

    told: int = 0
    failed_again: int = 0
    doubts: int = 0
    """Failures that no later obedient run has made up for."""

    @classmethod
    def of(cls, runs: Sequence[bool]) -> Obedience:
        """Count runs, the earliest first: True if the run avoided the failure."""
        latest, doubts = runs[-HEEDED:], 0
        for obeyed in latest:
            doubts = max(0, doubts - 1) if obeyed else min(MOST_DOUBTS, doubts + 1)
        return cls(len(latest), latest.count(False), doubts)

    @property
    def is_disobeyed(self) -> bool:
        """Whether the lesson is to be stressed where it is told."""
        return self._chance <= STRESSED

    @property
    def is_in_vain(self) -> bool:
        """Whether telling the lesson is useless, so that it is to be retired."""
        return self._chance <= RETIRED

    @property
    def is_obeyed(self) -> bool:
        """Whether at least half of the runs obeyed, so that the lesson needs no stress."""
        return 2 * self.failed_again <= self.told

    @property
    def _chance(self) -> float:
        """The probability of so few obedient runs if each obeyed with a probability of one half."""
        obeyed = self.told - self.failed_again
        return sum(comb(self.told, count) for count in range(obeyed + 1)) / 2**self.told

    def __str__(self) -> str:
        """Return the figures, as in `told in 12 runs, failed again in 11`."""
        return f"told in {counted(self.told, 'run')}, failed again in {self.failed_again}"


def changes_after(lesson: Lesson, before: Obedience, after: Obedience) -> dict[str, Any]:
    """Return the fields of a lesson that change after a run that was given it.

    Its confidence falls when the run failed again, and recovers as later runs obey. A lesson that is
    disobeyed is stressed from then on; if that does not help either, it is retired.
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
