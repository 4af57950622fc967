"""Bus: mail between a running agent, the people who watch it, and the other agents of its network."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any

from redraft._codec import from_record, to_record
from redraft._tasks import end_tasks
from redraft.approvals import ANSWER, APPROVAL, Approval, Approvals, HumanAnswer
from redraft.cycles.mail import (
    POLL_SECONDS,
    AgentMessage,
    Feedback,
    Mailbox,
    mail_signals,
    pending_mail,
    signal_mail,
    wait_for_mail,
)
from redraft.cycles.records import card_of
from redraft.cycles.storage import known_locations
from redraft.errors import StoreError
from redraft.redact.log import logger
from redraft.stores.base import Record, restored

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from redraft.cycles.notices import Notice
    from redraft.cycles.outbox import Outbox
    from redraft.cycles.records import AgentCard, CycleStatus
    from redraft.cycles.storage import AgentLocation
    from redraft.cycles.write_behind import WriteBehind

FEEDBACK_TIMEOUT = 0.015
"""Seconds that a cycle waits for feedback from a database; a later look has it."""
MAX_FEEDBACK = 1_000
"""How much feedback one cycle takes at most."""
REFRESH_SECONDS = 5.0
"""Seconds for which the other agents of the network are remembered."""


class AgentBus:
    """The mail to and from a running agent: a `Bus`.

    Mail from this process is seen at once, mail from another one within 0.2 seconds. While the store is away
    it is not read. Messages to other agents go into their stores through `egress`; those that can't be sent
    are queued with the agent's own records, and sent later, by a later process if need be. Notices to people
    go through its `outbox`.

    `on_wait` is called when the cycle starts or stops waiting for a person: with its status (`waiting` or
    `running`), and the seconds that it waits at most (None: without limit).
    """

    def __init__(
        self,
        location: AgentLocation,
        outbox: Outbox,
        write_behind: WriteBehind,
        on_wait: Callable[[CycleStatus, float | None], Awaitable[None]],
    ) -> None:
        self._location = location
        self._outbox = outbox
        self._write_behind = write_behind
        self._on_wait = on_wait
        self._questions: dict[str, Approval] = {}
        self._answered: dict[str, HumanAnswer] = {}
        self._feedback: list[Feedback] = []
        self._own: list[Feedback] = []
        self._looking: asyncio.Task[list[Feedback]] | None = None
        self._rings = -1
        self._looked_at = 0.0

    async def open(self) -> None:
        """Remember what an earlier process has asked; raises `StoreError` if that can't be read."""
        asked = await self._location.store.find(APPROVAL)
        self._questions |= restored(asked, lambda record: from_record(Approval, record.data))

    async def aclose(self) -> None:
        """Stop looking for feedback."""
        await end_tasks([self._looking])
        self._looking = None

    # Feedback

    def add_own(self, feedback: Feedback) -> None:
        """Add feedback given in this process: cycles see it before the store does."""
        self._own = [*self._own, feedback][-MAX_FEEDBACK:]

    async def feedback(self) -> tuple[Feedback, ...]:
        """Return all feedback that no cycle has taken yet, oldest first."""
        agent = self._location.agent
        is_due = mail_signals(agent) != self._rings or monotonic() - self._looked_at >= POLL_SECONDS
        if is_due and not self._write_behind.is_away:
            self._rings, self._looked_at = mail_signals(agent), monotonic()
            found = await self._look()
            self._feedback = self._feedback if found is None else found
        known = {one.id for one in self._feedback}
        own = [one for one in self._own if one.id not in known]
        return tuple(sorted([*self._feedback, *own], key=attrgetter("id")))

    def remove(self, feedback: tuple[Feedback, ...]) -> None:
        """Forget feedback that a cycle has taken."""
        taken = {one.id for one in feedback}
        self._feedback = [one for one in self._feedback if one.id not in taken]
        self._own = [one for one in self._own if one.id not in taken]
        if self._looking is not None:  # it may still find what has just been taken
            self._looking.cancel()
            self._looking = None

    async def _look(self) -> list[Feedback] | None:
        """Return pending feedback; None if it can't be read in time for this cycle."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(pending_mail(self._location.store, Feedback, MAX_FEEDBACK))
        is_remote = self._location.storage is not None
        done, _ = await asyncio.wait([self._looking], timeout=FEEDBACK_TIMEOUT if is_remote else None)
        if not done:
            return None
        looked, self._looking = self._looking, None
        try:
            return looked.result()
        except StoreError as error:
            if not self._write_behind.is_away:
                logger.info("Feedback for the agent %r can't be read now: %s", self._location.agent, error)
            return None

    # Questions

    async def ask(self, questions: Sequence[Approval], within: float | None, /) -> dict[str, HumanAnswer]:
        """Ask people, and wait for their answers; after `within` seconds, the defaults are the answers.

        Questions and answers are stored, so that any process can answer, and a later one continue.
        """
        for question in questions:
            if question.id not in self._questions:
                await self._write_behind.save([question.stored()])
            self._questions[question.id] = question
        await self._on_wait("waiting", within)
        end = None if within is None else monotonic() + within
        while True:
            rings = mail_signals(self._location.agent)
            answers = await self._answers(questions)
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - monotonic())
            if len(answers) == len(questions) or left <= 0:
                break
            await wait_for_mail(self._location.agent, rings, left)
        for question in questions:
            if question.id not in answers and (default := question.default_answer) is not None:
                answers[question.id] = await self.answer(question, default)
        # Not after a cancellation: the wait continues when the cycle is resumed.
        await self._on_wait("running", None)
        return answers

    async def answer(self, question: Approval, answer: HumanAnswer) -> HumanAnswer:
        """Store an answer; return the stored one, since the first one counts."""
        try:
            stored = await Approvals(self._location.store).put(question, answer)
        except StoreError:  # away: it holds in this process
            stored = self._answered.setdefault(question.id, answer)
            await self._write_behind.save([Record(ANSWER, question.id, to_record(stored))])
        self._answered[question.id] = stored
        return stored

    def open_questions(self) -> list[Approval]:
        """Return the questions of the cycle under way that this process has not seen answered."""
        return [one for one in self._questions.values() if one.id not in self._answered]

    def drop_questions(self) -> list[tuple[str, str]]:
        """Forget the questions of a cycle that is over; return the kinds and keys of their records."""
        ids, self._questions, self._answered = list(self._questions), {}, {}
        return [(kind, one) for one in ids for kind in (APPROVAL, ANSWER)]

    async def _answers(self, questions: Sequence[Approval]) -> dict[str, HumanAnswer]:
        ids = {question.id for question in questions}
        if not self._write_behind.is_away and ids - self._answered.keys():
            with suppress(StoreError):  # away; it may be back in time
                self._answered |= await Approvals(self._location.store).answers(self._location.agent)
        return {one: answer for one, answer in self._answered.items() if one in ids}

    # Messages

    async def messages(self, topic: str | None, limit: int, /) -> list[AgentMessage]:
        """Return the newest messages that no cycle has taken yet, oldest first; none if unreadable."""
        if self._write_behind.is_away:
            return []
        try:
            async with asyncio.timeout(self._write_behind.answer_timeout):
                return await pending_mail(self._location.store, AgentMessage, limit, topic=topic)
        except (StoreError, TimeoutError) as error:
            logger.info("Messages for the agent %r can't be read now: %s", self._location.agent, error)
            return []

    async def newest_message(self, topic: str | None) -> str | None:
        """Return the id of the newest message that no cycle has taken yet, if there is one."""
        return next((message.id for message in await self.messages(topic, 1)), None)

    # What the agent sends

    async def notify(self, notice: Notice, /) -> None:
        """Notify people, through the webhook of the agent's file."""
        await self._outbox.notify(notice)

    async def publish(self, topic: str, data: Any, key: str, /) -> bool:
        """Send data to all agents that listen to a topic, once per `key`; return False if it is queued."""
        return await self._outbox.publish(topic, data, key)


class Peers:
    """The other agents of a network, to which an agent sends messages; their `cards` say who listens."""

    def __init__(self, agent: str, network: str, mailbox: Mailbox, answer_timeout: float | None) -> None:
        self._agent = agent
        self._network = network
        self._mailbox = mailbox
        self._answer_timeout = answer_timeout
        self._cards: list[tuple[AgentLocation, AgentCard | None]] = []
        self._refreshed_at = -REFRESH_SECONDS

    async def send(self, message: AgentMessage, reached: list[str]) -> None:
        """Leave a message with each agent that listens to its topic, or whose card can't be read.

        Agents that are in `reached` have it already; those that get it are added. Raises `StoreError` or
        `TimeoutError` after the last agent if one could not get it.
        """
        failure: StoreError | TimeoutError | None = None
        async with asyncio.timeout(self._answer_timeout):
            others = await self._others()
        for location, card in others:
            if location.agent in reached or not (card is None or card.listens_to(message.topic)):
                continue
            mailbox = replace(self._mailbox, store=location.store, save=None)
            try:
                async with asyncio.timeout(self._answer_timeout):
                    await mailbox.message(message.topic, message.data, sender=message.sender, key=message.id)
            except (StoreError, TimeoutError) as error:
                failure = error
            else:
                reached.append(location.agent)
                signal_mail(location.agent)
        if failure is not None:
            raise failure

    async def aclose(self) -> None:
        """Close the stores of the other agents."""
        for location, _ in self._cards:
            if location.kind == "project":
                await location.store.aclose()
        self._cards, self._refreshed_at = [], -REFRESH_SECONDS

    async def _others(self) -> list[tuple[AgentLocation, AgentCard | None]]:
        if monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._cards = [
                (location, await _card_of(location))
                for location in await known_locations(self._network)
                if location.agent != self._agent
            ]
            self._refreshed_at = monotonic()
        return self._cards


async def _card_of(location: AgentLocation) -> AgentCard | None:
    try:
        return await card_of(location.store)
    except StoreError as error:
        logger.info("The card of the agent %r can't be read now: %s", location.agent, error)
        return None
