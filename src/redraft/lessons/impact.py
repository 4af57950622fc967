"""The impact of lessons: the scores of runs with them, and whether these avoid the failures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING
from uuid import uuid4

from redraft._clock import is_future
from redraft._codec import from_record, to_record
from redraft._texts import counted
from redraft.lessons.obedience import Obedience
from redraft.memory.effects import LATEST, payoff_of
from redraft.stats import rate_of
from redraft.stores.base import Record, values_of
from redraft.stores.run_index import LESSON_USE, RunUse, run_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redraft.memory.effects import History, Payoff
    from redraft.stats import Effect
    from redraft.stores.base import Store

SCORED_RUN, VERDICT = "lesson_run", "lesson_verdict"
"""Kinds of records: the score of a run, and the latest verdict on a lesson."""
TRIAL = "lesson_trial"
"""The kind of the counters, by task type, of runs for which a lesson on trial was relevant."""
TRIAL_BLOCK = 4
"""One in this many runs gets a lesson on trial, at a position that changes from block to block."""
HELPED, HURT = "helped", "hurt"
OBEYED, FAILED_AGAIN = "obeyed", "failed again"
"""Words of a use's outcome in the run index: at most one from each pair, separated by a comma."""
LATEST_USES = 100
"""Uses of a lesson that are read to determine whether it is obeyed; some runs do not show it."""
FEW = 4
"""Added to the number of rated uses, so that a few uses have little effect."""


@dataclass(frozen=True, slots=True)
class ScoredRun:
    """An agent's run with its score and lessons."""

    run_id: str
    agent: str
    at: datetime
    score: float | None = None
    """From 0 to 1; None if not judged."""
    task_type: str = ""
    lessons: tuple[str, ...] = ()
    """The lessons that it received at its start."""


@dataclass(frozen=True, slots=True)
class Use:
    """A run with a lesson, or a person's rating of it."""

    lesson: str
    run_id: str
    at: datetime
    helped: bool | None = None
    """Whether the scores up to this run show that the lesson helps or hurts; or a person's rating."""
    rated: bool = False
    obeyed: bool | None = None
    """Whether the run avoided the failure that the lesson is about; None if unknown."""

    def record(self) -> Record:
        """The record of the use, which replaces an earlier record of the same lesson and run."""
        index = RunUse(self.lesson, self.run_id, self.at, _outcome(self.helped, self.obeyed))
        name = f"rated-{uuid4().hex}" if self.rated else self.run_id
        return Record(LESSON_USE, f"{self.lesson}/{name}", to_record(self) | {"index": index.to_data()})


@dataclass(frozen=True, slots=True)
class Counters:
    """How many runs received a lesson, how often it helped and hurt, and how often it was obeyed."""

    uses: int = 0
    helped: int = 0
    """Uses in which the scores so far showed that it helps, and people's ratings that it helped."""
    hurt: int = 0
    obeyed: int = 0
    """Runs that received it and avoided the failure that it warns of."""
    failed_again: int = 0
    """Runs that received it and failed in the same way; it is unknown for the remaining uses."""

    @property
    def effect(self) -> float:
        """How often it helped rather than hurt, from -1 to 1; near 0 for a few uses."""
        return (self.helped - self.hurt) / (self.helped + self.hurt + FEW)

    @property
    def failure_rate(self) -> Effect | None:
        """The share of runs that failed again, with its 95 % interval; None for fewer than five runs."""
        return rate_of([1.0] * self.failed_again + [0.0] * self.obeyed)

    @property
    def obedience(self) -> str:
        """How often it was obeyed, with the figures; empty if that is unknown for all runs."""
        known_runs = self.obeyed + self.failed_again
        if not known_runs:
            return ""
        line = f"obeyed in {self.obeyed} of {counted(known_runs, 'run')}, failed again in {self.failed_again}"
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

        `obeyed` says for each lesson whether the run avoided its failure, if known. It may contain lessons
        that the run received later; these count as used and are not compared. Returns for each lesson of the
        run whether it helps, according to the latest runs.
        """
        data = to_record(run) | {"agent": run.agent, "task_type": run.task_type}  # `_runs` searches these
        await self._store.put(Record(SCORED_RUN, f"{self._agent}/{run.run_id}", data))
        runs = await self._runs(run.task_type) if run.lessons else []
        payoffs = {lesson: await self._payoff(lesson, runs, run.at) for lesson in run.lessons}
        for lesson, payoff in payoffs.items():
            helped = None if run.score is None else {"helps": True, "hurts": False}.get(payoff.verdict)
            use = Use(lesson, run.run_id, run.at, helped, obeyed=obeyed.get(lesson))
            await self._store.put(use.record())
        for lesson in obeyed.keys() - payoffs.keys():
            await self._store.put(Use(lesson, run.run_id, run.at, obeyed=obeyed[lesson]).record())
        return payoffs

    async def fail(self, lesson: str, run_id: str, at: datetime) -> None:
        """Record that a run with a lesson failed again in the way that the lesson warns of."""
        record = await self._store.get(LESSON_USE, f"{lesson}/{run_id}")
        use = Use(lesson, run_id, at) if record is None else from_record(Use, record.data)
        await self._store.put(replace(use, obeyed=False).record())

    async def obedience(self, lesson: str, now: datetime) -> Obedience:
        """Whether the runs since the last verdict on a lesson obeyed it, according to the latest of them."""
        since = await self._judged_at(lesson, now)
        latest = await self.latest(lesson, LATEST_USES)
        uses = [use for use in latest if not use.rated and (since is None or use.at > since)]
        return Obedience.of([use.obeyed for use in reversed(uses) if use.obeyed is not None])

    async def groups(self) -> list[History]:
        """The scores of the latest runs by task type; the flag says whether a run had lessons."""
        groups: dict[str, list[tuple[bool, float]]] = {}
        for run in await self._runs():
            if run.score is not None:
                groups.setdefault(run.task_type, []).append((bool(run.lessons), run.score))
        return list(groups.values())

    async def rate(self, lesson: str, *, helped: bool, at: datetime) -> None:
        """Record a person's rating of a lesson."""
        await self._store.put(Use(lesson, "", at, helped, rated=True).record())

    async def counters(self, lesson: str) -> Counters:
        """The counters of a lesson."""
        return (await self._counters(lesson)).get(lesson, Counters())

    async def all_counters(self) -> dict[str, Counters]:
        """The counters of all lessons of the agent that were ever used, by id."""
        return await self._counters(f"{self._agent}/")

    async def latest(self, lesson: str, most: int) -> tuple[Use, ...]:
        """At most `most` uses of a lesson, the latest first."""
        uses = await self._index.uses(LESSON_USE, lesson, limit=most)
        latest: list[Use] = []
        for use in uses:
            helped, obeyed = _OUTCOMES.get(use.outcome, (None, None))
            latest.append(Use(lesson, use.run_id, use.at, helped, not use.run_id, obeyed))
        return tuple(latest)

    async def _payoff(self, lesson: str, runs: Iterable[ScoredRun], now: datetime) -> Payoff:
        """Compare runs with a lesson and without, by the test that decides which notes are in force.

        Only runs since the last verdict on the lesson count, so that a lesson that a person approves after
        the verdict gets a new trial.
        """
        since = await self._judged_at(lesson, now)
        runs = runs if since is None else [run for run in runs if run.at > since]
        return payoff_of([[(lesson in run.lessons, run.score) for run in runs if run.score is not None]])

    async def takes_trial(self, task_type: str) -> bool:
        """Count a run for which a lesson on trial is relevant: whether the run gets the lesson.

        Of concurrent runs, at most one gets it.
        """
        key = f"{self._agent}/{task_type}"
        before = await self._store.get(TRIAL, key)
        if before is None:
            await self._store.put_if_absent(Record(TRIAL, key, {"runs": 1}))
            return False
        block, place = divmod(before.data["runs"], TRIAL_BLOCK)
        updated = await self._store.replace(replace(before, data={"runs": before.data["runs"] + 1}))
        return updated is not None and place == (-1 - block) % TRIAL_BLOCK

    async def judged(self, lesson: str, at: datetime) -> None:
        """Record that a lesson was judged by the runs until a time, with consequences."""
        await self._store.put(Record(VERDICT, lesson, {"at": at.isoformat()}))

    async def _judged_at(self, lesson: str, now: datetime) -> datetime | None:
        """When a lesson was last judged; None if it never was."""
        verdict = await self._store.get(VERDICT, lesson)
        at = None if verdict is None else datetime.fromisoformat(verdict.data["at"])
        if at is None or not is_future(at, now):
            return at
        await self.judged(lesson, now)  # a wrong clock wrote it: runs from now on count
        return now

    async def score(self, run_id: str) -> float | None:
        """The score of a run; None if unknown."""
        record = await self._store.get(SCORED_RUN, f"{self._agent}/{run_id}")
        return None if record is None else from_record(ScoredRun, record.data).score

    async def _runs(self, task_type: str | None = None) -> list[ScoredRun]:
        """The latest runs, by default of any task type, earliest first."""
        where = {"agent": self._agent} | ({} if task_type is None else {"task_type": task_type})
        records = await self._store.find(SCORED_RUN, where=where, newest_first=True, limit=LATEST)
        return sorted(values_of(records, ScoredRun), key=attrgetter("at"))

    async def _counters(self, prefix: str) -> dict[str, Counters]:
        counts = await self._index.count_uses(LESSON_USE, tuple(_OUTCOMES), prefix=prefix)
        counters: dict[str, Counters] = {}
        for lesson, (uses, *numbers) in counts.items():
            by_word: dict[str, int] = dict.fromkeys((HELPED, HURT, OBEYED, FAILED_AGAIN), 0)
            for outcome, number in zip(_OUTCOMES, numbers, strict=True):
                for word in outcome.split(", "):
                    by_word[word] += number
            counters[lesson] = Counters(uses, *by_word.values())
        return counters


def _outcome(helped: bool | None, obeyed: bool | None) -> str:
    """The outcome of a use in the words of the run index."""
    words = ("" if helped is None else HELPED if helped else HURT,)
    words += ("" if obeyed is None else OBEYED if obeyed else FAILED_AGAIN,)
    return ", ".join(filter(None, words))


_OUTCOMES = {
    _outcome(helped, obeyed): (helped, obeyed)
    for helped in (True, False, None)
    for obeyed in (True, False, None)
    if (helped, obeyed) != (None, None)
}
"""The meaning of each outcome of a use: whether the lesson helped, and whether the run obeyed it."""
