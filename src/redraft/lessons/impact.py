"""The impact of lessons: how runs with them score, and whether they avoid the failures that taught them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from redraft._codec import from_record, to_record
from redraft._texts import counted
from redraft.lessons.obedience import Obedience
from redraft.memory.effects import LATEST, payoff_of
from redraft.stats import rate_of
from redraft.stores.base import Record, intact
from redraft.stores.run_index import LESSON_USE, RunUse, run_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redraft.memory.effects import History, Payoff
    from redraft.stats import Effect
    from redraft.stores.base import Store

SCORED_RUN, VERDICT = "lesson_run", "lesson_verdict"
"""Kinds of records: the score of a run, and the latest verdict on a lesson."""
TRIAL = "lesson_trial"
"""The kind of the counters of runs for which a lesson on trial was relevant, one a task type."""
TRIAL_BLOCK = 4
"""Of so many runs in a row, one is given a lesson on trial, at a place that changes from block to block."""
HELPED, HURT = "helped", "hurt"
OBEYED, FAILED_AGAIN = "obeyed", "failed again"
"""Words of a use's outcome in the run index: one of each pair, both, separated by a comma, or neither."""
LATEST_USES = 100
"""Uses of a lesson that are read to see whether it is obeyed; of some runs that is not known."""
FEW = 4
"""Uses of a lesson that are too few to say much."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """An agent's run with its score (0..1, None if not judged) and the lessons that it was given at first."""

    run_id: str
    agent: str
    at: datetime
    score: float | None = None
    task_type: str = ""
    lessons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Use:
    """A run with a lesson, or a person's rating of it."""

    lesson: str
    run_id: str
    at: datetime
    helped: bool | None = None
    """Whether the scores up to this run show that the lesson helps or hurts, or how a person rated it."""
    rated: bool = False
    obeyed: bool | None = None
    """Whether the run avoided the failure that the lesson is about; None if unknown."""

    def record(self) -> Record:
        """Return the record of the use, which replaces an earlier one of the same lesson and run."""
        index = RunUse(self.lesson, self.run_id, self.at, _outcome(self.helped, self.obeyed))
        name = f"rated-{uuid4().hex}" if self.rated else self.run_id
        return Record(LESSON_USE, f"{self.lesson}/{name}", to_record(self) | {"index": index.to_data()})


@dataclass(frozen=True, slots=True)
class Counters:
    """How many runs were given a lesson, how often it helped and hurt, and how often it was obeyed."""

    uses: int = 0
    helped: int = 0
    """Uses in which the scores so far showed that it helps, or that a person rated so."""
    hurt: int = 0
    obeyed: int = 0
    """Runs that were given it and avoided the failure that it is about."""
    failed_again: int = 0
    """Runs that were given it, and in which the same failure occurred again.

    The remaining uses are runs of which neither is known.
    """

    @property
    def effect(self) -> float:
        """How often it helped rather than hurt, from -1 to 1, and near 0 for a few uses."""
        return (self.helped - self.hurt) / (self.helped + self.hurt + FEW)

    @property
    def failure_rate(self) -> Effect | None:
        """The share of runs that failed again, with its 95 % interval; None for fewer than five runs."""
        return rate_of([1.0] * self.failed_again + [0.0] * self.obeyed)

    @property
    def obedience(self) -> str:
        """How often it was obeyed, with the figures; empty if that is known of no run."""
        known = self.obeyed + self.failed_again
        if not known:
            return ""
        line = f"obeyed in {self.obeyed} of {counted(known, 'run')}, failed again in {self.failed_again}"
        rate = self.failure_rate
        return line if rate is None else f"{line} (95 % interval {rate.low:.0%} to {rate.high:.0%})"


class Impact:
    """The scores of one agent's runs, and the uses of its lessons, in a store.

    Runs with a lesson are compared with the agent's runs of the same task type without it.
    """

    def __init__(self, store: Store, agent: str) -> None:
        self._store = store
        self._index = run_index(store)
        self._agent = agent

    async def count(
        self, run: ScoredRun, obeyed: Mapping[str, bool | None] = MappingProxyType({})
    ) -> dict[str, Payoff]:
        """Record a run, replacing an earlier record of it, and the uses of its lessons.

        `obeyed` says of each lesson whether the run avoided its failure, if known; it may have more lessons
        than the run began with, which count as used and are not compared. Returns for each lesson whether it
        helps, as the latest runs show.
        """
        await self._store.put(Record(SCORED_RUN, f"{self._agent}/{run.run_id}", _run_data(run)))
        runs = await self._runs(run.task_type) if run.lessons else []
        payoffs = {lesson: await self._payoff(lesson, runs) for lesson in run.lessons}
        for lesson, payoff in payoffs.items():
            helped = None if run.score is None else {"helps": True, "hurts": False}.get(payoff.verdict)
            use = Use(lesson, run.run_id, run.at, helped, obeyed=obeyed.get(lesson))
            await self._store.put(use.record())
        for lesson in obeyed.keys() - payoffs.keys():
            await self._store.put(Use(lesson, run.run_id, run.at, obeyed=obeyed[lesson]).record())
        return payoffs

    async def fail(self, lesson: str, run_id: str, at: datetime) -> None:
        """Record that a run which was given a lesson failed again as the lesson says."""
        found = await self._store.get(LESSON_USE, f"{lesson}/{run_id}")
        use = Use(lesson, run_id, at) if found is None else from_record(Use, found.data)
        await self._store.put(replace(use, obeyed=False).record())

    async def obedience(self, lesson: str) -> Obedience:
        """Return whether the latest runs obeyed a lesson, of those since the last verdict on it."""
        since = await self._judged_at(lesson)
        uses = [use for use in await self._uses(lesson) if since is None or use.at > since]
        return Obedience.of([use.obeyed for use in reversed(uses) if use.obeyed is not None])

    async def recurring(self) -> dict[str, tuple[str, ...]]:
        """Return the lessons whose failure keeps coming back although runs are told, retired ones included.

        Each is listed by its id with the runs that failed again, the latest first.
        """
        found: dict[str, tuple[str, ...]] = {}
        for lesson, counters in (await self.all_counters()).items():
            if counters.failed_again:
                uses = [use for use in await self._uses(lesson) if use.obeyed is not None]
                if Obedience.of([use.obeyed is True for use in reversed(uses)]).is_disobeyed:
                    found[lesson] = tuple(use.run_id for use in uses if not use.obeyed)
        return found

    async def groups(self) -> list[History]:
        """Return the scores of the latest runs by task type; the flag says whether a run had lessons."""
        found: dict[str, list[tuple[bool, float]]] = {}
        for run in await self._runs():
            if run.score is not None:
                found.setdefault(run.task_type, []).append((bool(run.lessons), run.score))
        return list(found.values())

    async def rate(self, lesson: str, *, helped: bool, at: datetime) -> None:
        """Record a person's rating of a lesson."""
        await self._store.put(Use(lesson, "", at, helped, rated=True).record())

    async def counters(self, lesson: str) -> Counters:
        """Return the counters of a lesson."""
        return (await self._counters(lesson)).get(lesson, Counters())

    async def all_counters(self) -> dict[str, Counters]:
        """Return the counters of all lessons of the agent that were ever used, by id."""
        return await self._counters(f"{self._agent}/")

    async def latest(self, lesson: str, most: int) -> tuple[Use, ...]:
        """Return at most `most` uses of a lesson, the latest first."""
        uses = await self._index.uses(LESSON_USE, lesson, limit=most)
        found: list[Use] = []
        for use in uses:
            helped, obeyed = _OUTCOMES.get(use.outcome, (None, None))
            found.append(Use(lesson, use.run_id, use.at, helped, not use.run_id, obeyed))
        return tuple(found)

    async def _payoff(self, lesson: str, runs: Iterable[ScoredRun]) -> Payoff:
        """Compare runs with a lesson and without, by the test that decides which notes are in force.

        Only runs since the last verdict on the lesson count, so that one that a person approves after it is
        judged anew.
        """
        since = await self._judged_at(lesson)
        runs = runs if since is None else [run for run in runs if run.at > since]
        return payoff_of([[(lesson in run.lessons, run.score) for run in runs if run.score is not None]])

    async def takes_trial(self, task_type: str) -> bool:
        """Count a run for which a lesson on trial is relevant; return whether it may be given the lesson.

        Of runs that ask at the same moment at most one may.
        """
        key = f"{self._agent}/{task_type}"
        before = await self._store.get(TRIAL, key)
        if before is None:
            await self._store.put_if_absent(Record(TRIAL, key, {"runs": 1}))
            return False
        block, place = divmod(before.data["runs"], TRIAL_BLOCK)
        counted = await self._store.replace(replace(before, data={"runs": before.data["runs"] + 1}))
        return counted is not None and place == (-1 - block) % TRIAL_BLOCK

    async def judged(self, lesson: str, at: datetime) -> None:
        """Record that a lesson was judged by the runs until a time, and acted upon."""
        await self._store.put(Record(VERDICT, lesson, {"at": at.isoformat()}))

    async def _judged_at(self, lesson: str) -> datetime | None:
        """Return when a lesson was last judged; None if it never was."""
        before = await self._store.get(VERDICT, lesson)
        if before is None:
            return None
        # Records of earlier versions have no time of their own.
        at = before.data.get("at")
        return before.updated_at if at is None else datetime.fromisoformat(at)

    async def _uses(self, lesson: str) -> list[Use]:
        """Return the runs that were given a lesson, the latest first, without ratings."""
        return [use for use in await self.latest(lesson, LATEST_USES) if not use.rated]

    async def score(self, run_id: str) -> float | None:
        """Return the score of a run; None if unknown."""
        found = await self._store.get(SCORED_RUN, f"{self._agent}/{run_id}")
        return None if found is None else from_record(ScoredRun, found.data).score

    async def _runs(self, task_type: str | None = None) -> list[ScoredRun]:
        """Return the latest runs, by default of any task type, earliest first."""
        where = {"agent": self._agent} | ({} if task_type is None else {"task_type": task_type})
        found = await self._store.find(SCORED_RUN, where=where, newest_first=True, limit=LATEST)
        return sorted((from_record(ScoredRun, one.data) for one in intact(found)), key=attrgetter("at"))

    async def _counters(self, prefix: str) -> dict[str, Counters]:
        counts = await self._index.count_uses(LESSON_USE, tuple(_OUTCOMES), prefix=prefix)
        found: dict[str, Counters] = {}
        for lesson, (uses, *numbers) in counts.items():
            by_word: dict[str, int] = dict.fromkeys((HELPED, HURT, OBEYED, FAILED_AGAIN), 0)
            for outcome, number in zip(_OUTCOMES, numbers, strict=True):
                for word in outcome.split(", "):
                    by_word[word] += number
            found[lesson] = Counters(uses, *by_word.values())
        return found


def _outcome(helped: bool | None, obeyed: bool | None) -> str:
    """Return the outcome of a use, as the run index has it."""
    words = ("" if helped is None else HELPED if helped else HURT,)
    words += ("" if obeyed is None else OBEYED if obeyed else FAILED_AGAIN,)
    return ", ".join(filter(None, words))


_OUTCOMES = {
    _outcome(helped, obeyed): (helped, obeyed)
    for helped in (True, False, None)
    for obeyed in (True, False, None)
    if (helped, obeyed) != (None, None)
}
"""What each outcome of a use says: whether the lesson helped, and whether the run obeyed it."""


def _run_data(run: ScoredRun) -> dict[str, Any]:
    return to_record(run) | {"agent": run.agent, "task_type": run.task_type}
