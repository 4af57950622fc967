"""Guidance: the rules and playbooks of lessons, in use as long as the lesson is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from redraft._codec import from_record, to_record
from redraft.errors import ConfigError, LessonFileError
from redraft.lessons.documents import RULES
from redraft.lessons.folder import LessonFolder, folder_name
from redraft.lessons.playbooks import Playbook, Playbooks
from redraft.lessons.rules import Rule, Rules, key_of
from redraft.lessons.writer import Replay
from redraft.redact.kinds import MARK
from redraft.redact.log import logger
from redraft.stores.base import Record, Store, intact, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import date

    from redraft.lessons.documents import Documents
    from redraft.lessons.impact import Impact
    from redraft.lessons.lesson import Lesson
    from redraft.lessons.writer import LessonReflection
    from redraft.types import Advice, PlainTask

QUARANTINED = "lesson_quarantined"
"""The kind of records."""
_STOPPED = "stopped"
"""Replaces the task in the keys of retired and superseded lessons."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A lesson that is not in use, with its rule and playbook, which are used once it is approved."""

    lesson: str
    principle: str = ""
    replay: Replay | None = None


class Guidance:
    """The rules and playbooks of one agent, each of which follows the status of its lesson.

    While the lesson is active, they are documents like the lesson. Otherwise they are in the store; those of
    a quarantined lesson have the task that taught it in their key. A document that can't be read or written
    is logged and left out.
    """

    def __init__(
        self,
        documents: Documents,
        agent: str,
        store: Store,
        impact: Impact,
        today: Callable[[], date],
        *,
        trusted: bool = False,
    ) -> None:
        self._trusted = trusted
        self._documents = documents
        self._folder = folder_name(agent)
        self._store = store
        self._impact = impact
        self._today = today
        self._rules = Rules(documents, agent, today=today)
        self._playbooks = Playbooks(documents, agent, today=today)

    def rules(self, checked: Collection[str] = ()) -> tuple[list[Rule], list[Rule]]:
        """The rules in use: the agent's own rules, and those that are quoted as data.

        A rule that is not permanent is in use as long as its lesson is, also if a person edits or deletes the
        document of the lesson. A rule whose lesson is replaced by one of the criteria `checked` is left out.

        A rule is the agent's own if it is permanent, or if a person or the program vouches for its lesson and
        the lesson contains it: a person who approves a lesson does not see other rules that a model drew from
        it. With `trusted`, these count, too.
        """
        try:
            rules = self._rules.active()
        except LessonFileError as error:
            logger.warning("The agent runs without its rules: %s", error)
            return [], []
        own: list[Rule] = []
        quoted: list[Rule] = []
        for rule in rules:
            lesson = self._lesson(rule.source)
            if lesson is not None and lesson.check in checked:
                continue
            if rule.status == "permanent":
                own.append(rule)
            elif lesson is None or lesson.status != "active":
                quoted += [] if rule.source else [rule]  # a person wrote it without a lesson
            elif lesson.trust == "vouched" and (self._trusted or _contains(lesson, rule)):
                own.append(rule)
            else:
                quoted.append(rule)
        return own, quoted

    def _lesson(self, lesson_id: str) -> Lesson | None:
        try:
            return LessonFolder(self._documents, _folder_of(lesson_id)).read(lesson_id)
        except LessonFileError:  # it is deleted or broken, or there is none
            return None

    def untrusted(self, task_type: str, advice: Sequence[Advice]) -> str:
        """The id of an untrusted lesson whose rule or playbook is in the advice; empty if there is none."""
        rules = [piece.text for piece in advice if piece.source == f"{self._folder}/{RULES}"]
        sources = {piece.source for piece in advice}
        try:
            # What its mark withholds may be in the advice.
            taught = [
                rule.source
                for rule in self._rules.active()
                if any(all(part in text for part in MARK.split(rule.text)) for text in rules)
            ]
        except LessonFileError:
            taught = []
        taught += [playbook.lesson for playbook in self.playbooks(task_type) if playbook.id in sources]
        lessons = filter(None, map(self._lesson, taught))
        return next((lesson.id for lesson in lessons if lesson.trust == "untrusted"), "")

    def playbooks(self, task_type: str) -> list[Playbook]:
        """The playbooks for a type of task whose lessons are in use."""

        def is_in_use(playbook: Playbook) -> bool:
            lesson = self._lesson(playbook.lesson)
            return not playbook.lesson or (lesson is not None and lesson.status == "active")

        return self._playbooks.for_task(task_type, is_in_use=is_in_use)

    async def quarantined(self, task: PlainTask) -> list[str]:
        """The ids of the quarantined lessons that this very task taught, newest first."""
        records = await self._store.find(
            QUARANTINED, prefix=f"{self._folder}/{digest_of(task)}/", newest_first=True
        )
        return [quarantined.lesson for quarantined in values_of(records, Quarantined)]

    async def add(self, lesson: Lesson, taught_by: str, reflection: LessonReflection) -> None:
        """Add the rule and the playbook of a new lesson, or store those of a quarantined lesson.

        `taught_by` is the digest of its task (see `digest_of`).
        """
        quarantined = Quarantined(lesson.id, reflection.principle, reflection.replay)
        if lesson.status == "active":
            await self._use(lesson, quarantined)
            return
        await self._put(quarantined, f"{self._folder}/{taught_by}/")

    async def apply_status(self, lesson: Lesson) -> None:
        """Start or stop using the rule and the playbook of a lesson according to its status."""
        if lesson.status == "quarantined":
            return
        stored = await self._remove(lesson.id)
        if lesson.status != "active":
            dropped = await self._drop(lesson.id)
            if (stopped := stored or dropped) is not None:
                await self._put(stopped, f"{_folder_of(lesson.id)}/{_STOPPED}/")
        elif stored is not None:
            await self._use(lesson, stored)

    async def expire(self) -> None:
        """Remove expired rules and playbooks; propose the rules of helpful lessons as permanent."""
        try:
            if await asyncio.to_thread(self._rules.due):
                helpful = await self._helpful()
                await asyncio.to_thread(self._rules.expire, lambda rule: rule.source in helpful)
        except LessonFileError as error:
            logger.warning("The rules stay as they are: %s", error)
        await asyncio.to_thread(self._playbooks.archive)

    async def _use(self, lesson: Lesson, quarantined: Quarantined) -> None:
        if quarantined.principle:
            await self._add_rule(quarantined.principle, lesson.id)
        if quarantined.replay is not None:
            playbook = Playbook(
                title=lesson.name,
                steps=quarantined.replay.steps,
                strategy=quarantined.replay.strategy,
                agent=lesson.agent,
                day=lesson.day,
                task_type=lesson.task_type,
                tools=lesson.tools,
                lesson=lesson.id,
                source=lesson.source,
            )
            try:
                await asyncio.to_thread(self._playbooks_of(lesson.id).add, playbook)
            except LessonFileError as error:
                logger.warning("The playbook of the lesson %s was not saved: %s", lesson.id, error)

    async def _add_rule(self, principle: str, lesson_id: str) -> None:
        helpful = await self._helpful()
        try:
            await asyncio.to_thread(
                self._rules_of(lesson_id).add,
                principle,
                lesson_id,
                is_needed=lambda rule: rule.source in helpful,
            )
        except ConfigError as error:
            logger.info("The rule of the lesson %s was refused: %s", lesson_id, error)
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s was not saved: %s", lesson_id, error)

    async def _put(self, quarantined: Quarantined, prefix: str) -> None:
        data = to_record(quarantined) | {"lesson": quarantined.lesson}  # `_remove` searches it
        await self._store.put(Record(QUARANTINED, f"{prefix}{quarantined.lesson.rpartition('/')[2]}", data))

    async def _drop(self, lesson_id: str) -> Quarantined | None:
        """Remove the rule and archive the playbook of a lesson; None if it has neither."""
        rules: list[Rule] = []
        try:
            rules = await asyncio.to_thread(self._rules_of(lesson_id).drop, lesson_id)
        except LessonFileError as error:
            logger.warning("The rule of the lesson %s may still be in use: %s", lesson_id, error)
        playbooks = await asyncio.to_thread(self._playbooks_of(lesson_id).drop, lesson_id)
        if not rules and not playbooks:
            return None
        replays = [Replay(playbook.steps, playbook.strategy) for playbook in playbooks]
        return Quarantined(lesson_id, rules[0].text if rules else "", replays[0] if replays else None)

    def _rules_of(self, lesson_id: str) -> Rules:
        return Rules(self._documents, _folder_of(lesson_id), today=self._today)

    def _playbooks_of(self, lesson_id: str) -> Playbooks:
        return Playbooks(self._documents, _folder_of(lesson_id), today=self._today)

    async def _remove(self, lesson_id: str) -> Quarantined | None:
        """Remove the record of a lesson, and return it to a single caller; None if there is none."""
        records = intact(await self._store.find(QUARANTINED, where={"lesson": lesson_id}))
        if not records or not await self._store.delete(QUARANTINED, records[0].key):
            return None
        return from_record(Quarantined, records[0].data)

    async def _helpful(self) -> frozenset[str]:
        """The ids of the lessons that helped more often than they hurt."""
        counters = await self._impact.all_counters()
        return frozenset(
            lesson_id for lesson_id, counter in counters.items() if counter.helped > counter.hurt
        )


def digest_of(task: PlainTask) -> str:
    """The key of a task: a hash, because its description may contain secrets."""
    words = " ".join(task.description.split())
    return sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def _contains(lesson: Lesson, rule: Rule) -> bool:
    return key_of(rule.text) in map(key_of, lesson.content.texts.values())


def _folder_of(lesson_id: str) -> str:
    return lesson_id.partition("/")[0]
