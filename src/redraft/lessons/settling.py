"""Settling: what the end of a run means for the lessons that it had."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from redraft.core.errors import LessonFileError
from redraft.lessons.counting import ScoredRun
from redraft.lessons.ended import score_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redraft.core.result import ReflectionResult
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.memory import Memory
    from redraft.lessons.outcome import Outcome
    from redraft.lessons.upkeep import Upkeep


class Settling:
    """Count a run for its lessons, release those that helped, and retire those that hurt."""

    def __init__(self, memory: Memory, upkeep: Upkeep) -> None:
        self._memory = memory
        self._upkeep = upkeep

    async def settle(self, result: ReflectionResult, outcome: Outcome | None) -> None:
        """Do so; `outcome` is how the run ended, None where that is not known."""
        if result.task is None:
            return
        memory, score = self._memory, score_of(result)
        lessons = await asyncio.to_thread(self._had, result)
        run = ScoredRun(
            result.run_id,
            memory.folder,
            memory.now(),
            score,
            result.task.task_type,
            tuple(lesson.id for lesson in lessons),
        )
        runs = await memory.counting.count(run)
        for lesson in lessons:
            if lesson.status == "quarantined":
                await self._release(lesson, result.run_id, score, succeeded=_succeeded(outcome))
            elif lesson.status == "active":
                await self._retire(lesson, runs)

    def _had(self, result: ReflectionResult) -> list[Lesson]:
        """Return the lessons that were put before a run and are still there."""
        found: dict[str, Lesson] = {}
        for advice in result.advice:
            with suppress(LessonFileError):  # advice from elsewhere, or a file that was deleted
                filing = self._memory.filing_of(advice.source)
                found[advice.source] = filing.folder.read(advice.source)
        return list(found.values())

    async def _release(self, lesson: Lesson, run_id: str, score: float | None, *, succeeded: bool) -> None:
        before = await self._memory.counting.score(lesson.source) if lesson.source else None
        better = score is not None and before is not None and score > before
        if lesson.source != run_id and (succeeded or better):
            await self._upkeep.approve(lesson.id, f"The attempt {run_id} with it did better.")

    async def _retire(self, lesson: Lesson, runs: Sequence[ScoredRun]) -> None:
        effect = await self._memory.counting.harm(lesson.id, runs)
        if effect is not None:
            why = (
                f"It hurt: runs with it scored {-effect.mean:.2f} less than runs without "
                f"(95 % interval {effect.low:.2f} to {effect.high:.2f})."
            )
            await self._upkeep.retire(lesson.id, why)
            await self._memory.counting.judged(lesson.id, runs)


def _succeeded(outcome: Outcome | None) -> bool:
    return outcome is not None and outcome.status == "success"
