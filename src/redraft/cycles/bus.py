"""Bus: mail between a running agent, the people who supervise it, and the other agents of its network."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from redraft._clock import uptime
from redraft._codec import from_record, to_record
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

    from redraft.cycles.records import AgentCard, CycleStatus
    from redraft.cycles.storage import AgentLocation
    from redraft.cycles.write_behind import WriteBehind

M = TypeVar("M", Feedback, AgentMessage)

MAX_FEEDBACK = 1_000
"""The maximum feedback items per cycle."""
REFRESH_SECONDS = 5.0
"""Seconds for which the list of the network's other agents is cached."""


class AgentBus:
    """The mail to a running agent, and its questions to people.

    Mail from this process is seen immediately, mail from other processes within 0.2 seconds. While the store
    is away, it is not read.

    `on_wait` is called when the cycle starts or stops waiting for a person, with its status (`waiting` or
    `running`) and the longest wait in seconds (None: without limit).
    """

    def __init__(
        self,
        location: AgentLocation,
        write_behind: WriteBehind,
        on_wait: Callable[[CycleStatus, float | None], Awaitable[None]],
    ) -> None:
        self._location = location
        self._write_behind = write_behind
        self._on_wait = on_wait
        self._questions: dict[str, Approval] = {}
        self._answered: dict[str, HumanAnswer] = {}
        self._feedback: list[Feedback] = []
        self._own: list[Feedback] = []
        self._signals = -1
        self._polled_at = 0.0

    async def open(self) -> None:
        """Load the questions of an earlier process. Raises `StoreError` if they can't be read."""
        records = await self._location.store.find(APPROVAL)
        self._questions |= restored(records, lambda record: from_record(Approval, record.data))

    # Feedback

    def add_own(self, feedback: Feedback) -> None:
        """Add feedback of this process, which cycles see even before it is stored."""
        self._own = [*self._own, feedback][-MAX_FEEDBACK:]

    async def feedback(self) -> tuple[Feedback, ...]:
        """All feedback that no cycle has taken yet, oldest first."""
        agent = self._location.agent
        is_due = mail_signals(agent) != self._signals or monotonic() - self._polled_at >= POLL_SECONDS
        if is_due:
            self._signals, self._polled_at = mail_signals(agent), monotonic()
            pending = await self._pending(Feedback, MAX_FEEDBACK)
            self._feedback = self._feedback if pending is None else pending
        stored_ids = {feedback.id for feedback in self._feedback}
        own = [feedback for feedback in self._own if feedback.id not in stored_ids]
        return tuple(sorted([*self._feedback, *own], key=attrgetter("id")))

    def remove(self, feedback: tuple[Feedback, ...]) -> None:
        """Forget feedback that a cycle has taken."""
        taken = {item.id for item in feedback}
        self._feedback = [item for item in self._feedback if item.id not in taken]
        self._own = [item for item in self._own if item.id not in taken]

    # Questions

    async def ask(self, questions: Sequence[Approval], within: float | None, /) -> dict[str, HumanAnswer]:
        """Ask people, and wait for their answers; after `within` seconds, the defaults are the answers.

        Questions and answers are stored, so that any process can answer, and a later process can continue.
        """
        for question in questions:
            if question.id not in self._questions:
                await self._write_behind.save([question.stored()])
            self._questions[question.id] = question
        # A cycle that resumes may have been decided on meanwhile, or have no time left.
        if within != 0 and len(await self._answers(questions)) < len(questions):
            await self._on_wait("waiting", within)
        end = None if within is None else uptime() + within
        while True:
            signals = mail_signals(self._location.agent)
            answers = await self._answers(questions)
            left = POLL_SECONDS if end is None else min(POLL_SECONDS, end - uptime())
            if len(answers) == len(questions) or left <= 0:
                break
            await wait_for_mail(self._location.agent, signals, left)
        for question in questions:
            if question.id not in answers and (default := question.default_answer) is not None:
                answers[question.id] = await self.answer(question, default)
        # Not in a finally block: after a cancellation, the resumed cycle continues to wait.
        await self._on_wait("running", None)
        return answers

    async def answer(self, question: Approval, answer: HumanAnswer) -> HumanAnswer:
        """Store an answer; return the stored answer, which is the first that was given."""
        try:
            stored = await Approvals(self._location.store).put(question, answer)
        except StoreError:  # the store is away, so the answer is held in this process
            stored = self._answered.setdefault(question.id, answer)
            await self._write_behind.save([Record(ANSWER, question.id, to_record(stored))])
        self._answered[question.id] = stored
        return stored

    def open_questions(self) -> list[Approval]:
        """The questions of the current cycle without an answer that this process has seen."""
        return [question for question in self._questions.values() if question.id not in self._answered]

    def drop_questions(self) -> list[tuple[str, str]]:
        """Forget the questions of a cycle that has ended; return the kinds and keys of their records."""
        ids, self._questions, self._answered = list(self._questions), {}, {}
        return [(kind, question_id) for question_id in ids for kind in (APPROVAL, ANSWER)]

    async def _answers(self, questions: Sequence[Approval]) -> dict[str, HumanAnswer]:
        ids = {question.id for question in questions}
        if not self._write_behind.is_away and ids - self._answered.keys():
            with suppress(StoreError):  # it may be back in time
                self._answered |= await Approvals(self._location.store).answers(self._location.agent)
        return {key: answer for key, answer in self._answered.items() if key in ids}

    # Messages

    async def messages(self, topic: str | None, limit: int, /) -> list[AgentMessage]:
        """The newest messages that no cycle has taken yet, oldest first; none if they can't be read."""
        return await self._pending(AgentMessage, limit, topic) or []

    async def _pending(self, kind: type[M], limit: int, topic: str | None = None) -> list[M] | None:
        """The newest mail that no cycle has taken yet, oldest first; None if it can't be read now."""
        if self._write_behind.is_away:
            return None
        try:
            async with asyncio.timeout(self._write_behind.answer_timeout):
                return await pending_mail(self._location.store, kind, limit, topic=topic)
        except (StoreError, TimeoutError) as error:
            logger.info("Mail for the agent %r can't be read now: %s", self._location.agent, error)
            return None

    async def newest_message(self, topic: str | None) -> str | None:
        """The id of the newest message that no cycle has taken yet, if any."""
        return next((message.id for message in await self.messages(topic, 1)), None)


class Peers:
    """The other agents of a network, which may listen to an agent's messages."""

    def __init__(self, agent: str, network: str, mailbox: Mailbox, answer_timeout: float | None) -> None:
        self._agent = agent
        self._network = network
        self._mailbox = mailbox
        self._answer_timeout = answer_timeout
        self._cards: list[tuple[AgentLocation, AgentCard | None]] = []
        self._refreshed_at = -REFRESH_SECONDS

    async def send(self, message: AgentMessage, reached: list[str]) -> None:
        """Send a message to each agent that listens to its topic, or whose card can't be read.

        Agents in `reached` have received it already; each further agent that receives it is added. Raises
        `StoreError` or `TimeoutError`, after the last agent, if it could not be sent to an agent.
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
