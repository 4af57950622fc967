"""Learning: from how a task ended to a lesson among the files, and what follows from it."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from redraft.core.errors import ConfigError, LessonFileError
from redraft.core.texts import shortened
from redraft.lessons.clean import Cleaner
from redraft.lessons.content import Content, Failure
from redraft.lessons.lesson import Lesson
from redraft.lessons.playbook import Playbook
from redraft.lessons.trust import LONGEST
from redraft.lessons.writing import FORMS, Written, write_content
from redraft.redact.log import logger
from redraft.text.middle import without_middle

if TYPE_CHECKING:
    from redraft.core.protocols import ChatModel
    from redraft.lessons.mars import Replay
    from redraft.lessons.memory import Memory
    from redraft.lessons.outcome import Outcome

SUMMARY_WORDS = 8
LONGEST_SUMMARY = 200
_MOST = 1_000
"""Characters of the task and of the error that a lesson is found by."""


class Learning:
    """Put what is learnt into the memory of an agent."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def reflect(
        self, outcome: Outcome, model: ChatModel, *, only_replicable: bool = False
    ) -> Lesson | None:
        """Have a model write what is to be learnt, and file it.

        With `only_replicable` nothing is filed unless the model says that it helps other tasks, too. Raises
        what `write_content` raises.
        """
        written = await write_content(outcome, model)
        if written.problem:
            about = f"the run {outcome.run_id!r}" if outcome.run_id else f"{outcome.task.description!r:.100}"
            logger.warning("The reflection on %s is not all a model's: %s", about, written.problem)
        if only_replicable and not written.principle and written.procedure is None:
            return None
        return await self.file(outcome, written)

    async def file(self, outcome: Outcome, written: Written, *, by_hand: bool = False) -> Lesson:
        """File what is to be learnt from how a task ended, redacted already; return the lesson.

        It waits in quarantine unless the outcome is trusted or a person wrote it.
        """
        memory = self._memory
        lesson = await asyncio.to_thread(self._lesson, outcome, written, by_hand=by_hand)
        filed = await asyncio.to_thread(memory.filing.file, lesson, by_hand=by_hand)
        lesson = filed.lesson
        is_other = lesson.content != written.content or lesson.status != "active"
        if by_hand and not filed.is_new and is_other and lesson.source == outcome.run_id:
            # A person's words take the place of a model's, and count whatever was decided before.
            changed = {"content": written.content, "status": "active", "why": "", "superseded_by": ""}
            lesson = await asyncio.to_thread(_changed, memory, lesson.id, changed)
            await self.admit(lesson)
        if filed.is_new:
            if lesson.status == "active":
                await self.follow(lesson, written.principle, written.procedure)
            else:
                await memory.waiting.enter(lesson.id, outcome.task, written.principle, written.procedure)
        if outcome.run_id:
            await memory.duties.fulfil(outcome.run_id, lesson.kind, lesson.id)
        memory.backlog.begin()
        return lesson

    async def admit(self, lesson: Lesson) -> None:
        """Let the rule and the steps that waited with a lesson follow it."""
        waited = await self._memory.waiting.leave(lesson.id)
        if waited is not None:
            await self.follow(lesson, waited.principle, waited.replay)

    async def follow(self, lesson: Lesson, principle: str, replay: Replay | None) -> None:
        """Add the rule and the steps that came with a lesson to those of the agent."""
        playbooks = self._memory.playbooks
        if principle:
            await self._add_rule(principle, lesson.id)
        if replay is not None:
            playbook = Playbook(
                lesson.summary,
                replay.steps,
                replay.strategy,
                replay.outcome,
                lesson.agent,
                lesson.day,
                lesson.task_type,
                lesson.tools,
                lesson.id,
                lesson.source,
            )
            try:
                await asyncio.to_thread(playbooks.add, playbook)
            except LessonFileError as error:
                logger.warning("The steps of the lesson %s are lost: %s", lesson.id, error)

    async def _add_rule(self, principle: str, lesson_id: str) -> None:
        needed = await self.needed()
        try:
            added = await asyncio.to_thread(
                self._memory.rules.add, principle, lesson_id, is_needed=lambda rule: rule.source in needed
            )
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s is lost: %s", lesson_id, error)
            return
        if added.rule is None:
            logger.info("The rule of the lesson %s was refused: %s.", lesson_id, added.why)

    async def needed(self) -> frozenset[str]:
        """Return the ids of the lessons that helped more often than they hurt."""
        counted = await self._memory.counting.all_counters()
        return frozenset(lesson for lesson, its in counted.items() if its.helped > its.hurt)

    async def expire(self) -> None:
        """End the rules and playbooks whose time is over; rules still needed are proposed to a person."""
        rules = self._memory.rules
        try:
            if await asyncio.to_thread(rules.due):
                needed = await self.needed()
                await asyncio.to_thread(rules.expire, lambda rule: rule.source in needed)
        except LessonFileError as error:
            logger.warning("The rules stay as they are: %s", error)
        await asyncio.to_thread(self._memory.playbooks.archive)

    def _lesson(self, outcome: Outcome, written: Written, *, by_hand: bool) -> Lesson:
        cleaner, task = Cleaner(), outcome.task
        described = cleaner.redacted(task.description)
        summary = " ".join(described[:LONGEST].split()[:SUMMARY_WORDS])
        return Lesson(
            written.content,
            self._memory.agent,
            self._memory.now().date(),
            shortened(cleaner.kept(summary), LONGEST_SUMMARY) if summary else "untitled",
            task=without_middle(described, _MOST),
            task_type=cleaner.redacted(task.task_type),
            tools=tuple(map(cleaner.redacted, outcome.tools or task.tools)),
            error=without_middle(cleaner.redacted(outcome.error), _MOST),
            confidence=written.confidence,
            status="active" if by_hand or outcome.trusted else "quarantined",
            source=outcome.run_id,
        )


def given(content: Content, task_status: str = "") -> Written:
    """Return what a person or a program wrote, its secrets withheld.

    Raises `ConfigError` for what no lesson may say, which names the field and the reason, and for another
    kind of reflection than how the task ended asks for.
    """
    if task_status and not isinstance(content, FORMS[task_status]):
        raise ConfigError(
            f"A task that ended as {task_status!r} takes a {FORMS[task_status].__name__}, "
            f"got a {type(content).__name__}."
        )
    cleaner = Cleaner()
    clean: dict[str, Any] = {}
    for one in fields(content):
        clean[one.name] = cleaner.redacted(getattr(content, one.name))
        if why := cleaner.refusal(clean[one.name]):
            raise ConfigError(f"{type(content).__name__}.{one.name} can't be kept in a lesson: {why}.")
    kept = replace(content, **clean)
    return Written(kept, principle=kept.rule if isinstance(kept, Failure) else "")


def _changed(memory: Memory, lesson_id: str, changed: dict[str, Any]) -> Lesson:
    return memory.filing_of(lesson_id).change(lesson_id, **changed)
