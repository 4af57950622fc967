"""AgentBus: what people and programs send to one agent, kept in its store until a cycle takes it."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from redraft.core.codec import from_record
from redraft.core.errors import LeaseError, StoreError
from redraft.cycles.bell import EVERY, heard, ring, rung
from redraft.cycles.card import card_of
from redraft.cycles.feedback import Feedback
from redraft.cycles.journal import check_lease
from redraft.cycles.mail import FEEDBACK, OUTBOX, PENDING, Post, mail_id, pending
from redraft.cycles.message import AgentMessage
from redraft.cycles.places import all_places
from redraft.redact.log import logger
from redraft.stores.base import Record, intact

if TYPE_CHECKING:
    from collections.abc import Collection

    from redraft.cycles.card import AgentCard
    from redraft.cycles.keeping import Keeping
    from redraft.cycles.places import AgentPlace
    from redraft.stores.base import Where


class Waiting(Protocol):
    """Hear that a cycle waits for a person, within so many seconds; and that it does no more."""

    async def __call__(self, cycle: int, within: float | None, /, *, is_waiting: bool) -> None:
        """Hear which cycle it is."""
        ...


MOST = 1_000
"""How much feedback one cycle takes at most."""

SENDS_AGAIN, LONGEST_WAIT = 0.5, 30.0
"""Seconds between two tries to send what could not be sent, at first and at most."""

LOOKED_FOR = 5.0
"""Seconds after which it is looked again which other agents there are."""


class AgentBus:
    """Carry mail to one agent and from it: a `Bus`.

    What this process sends is seen at once, what another one sends within 0.2 seconds. While the store is
    known to be out of reach (`keeping` says so) nothing is asked of it; what was to be sent is kept with the
    agent's own records, and sent when the store is back. `patience` is how many seconds a look for feedback
    may take before the cycle goes on without (None: as long as it takes); what it finds counts for the next.
    `waiting` is told that a cycle waits for a person, and that it does no more.
    """

    def __init__(
        self,
        place: AgentPlace,
        network: str,
        post: Post,
        keeping: Keeping,
        *,
        waiting: Waiting,
        patience: float | None = None,
    ) -> None:
        self._place = place
        self._network = network
        self._post = post
        self._keeping = keeping
        self._waiting = waiting
        self._patience = patience
        self._feedback: list[Feedback] = []
        self._own: list[Feedback] = []
        self._sending: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[list[Feedback]] | None = None
        self._seen = -1
        self._looked = 0.0
        self._others: list[tuple[AgentPlace, AgentCard]] = []
        self._asked = -LOOKED_FOR

    async def open(self) -> None:
        """Begin to send what an earlier process could not."""
        if not self._keeping.is_away:
            try:
                waits = await self._place.store.find(OUTBOX, limit=1)
            except StoreError as error:
                logger.info("What the agent %r is to send can't be read now: %s", self._place.agent, error)
            else:
                if waits:
                    self._send_later()

    def sent(self, feedback: Feedback) -> None:
        """Hear of feedback that this process was given: cycles see it before the store does."""
        self._own = [*self._own, feedback][-MOST:]

    async def feedback(self) -> tuple[Feedback, ...]:
        """Return all feedback that no cycle has taken yet, oldest first."""
        agent = self._place.agent
        is_news = rung(agent) != self._seen or monotonic() - self._looked >= EVERY
        if is_news and not self._keeping.is_away:
            self._seen, self._looked = rung(agent), monotonic()
            found = await self._look()
            self._feedback = self._feedback if found is None else found
        there = {one.id for one in self._feedback}
        own = [one for one in self._own if one.id not in there]
        return tuple(sorted([*self._feedback, *own], key=attrgetter("id")))

    def took(self, feedback: tuple[Feedback, ...]) -> None:
        """Hear that a cycle took this."""
        taken = {one.id for one in feedback}
        self._feedback = [one for one in self._feedback if one.id not in taken]
        self._own = [one for one in self._own if one.id not in taken]
        if self._looking is not None:  # what it finds may be older than this
            self._looking.cancel()
            self._looking = None

    async def messages(self, topic: str | None, most: int, /) -> list[AgentMessage]:
        """Return the newest messages that no cycle has taken yet, oldest first.

        Those that can't be read now are there for the next cycle.
        """
        if self._keeping.is_away:
            return []
        try:
            async with asyncio.timeout(self._keeping.silence):
                return await pending(self._place.store, AgentMessage, most, topic=topic)
        except (StoreError, TimeoutError) as error:
            logger.info("Messages for the agent %r can't be read now: %s", self._place.agent, error)
            return []

    async def newest_message(self, topic: str | None) -> str | None:
        """Return the id of the newest message that no cycle has taken yet, if there is one."""
        return next((message.id for message in await self.messages(topic, 1)), None)

    async def publish(self, topic: str, data: Any, key: str, /) -> bool:
        """Send something to all agents that listen to its topic, once for each `key`; say if it is sent.

        While the database is away it is kept, and sent when that is back, also by a later process.
        """
        if not self._keeping.is_away:
            try:
                async with asyncio.timeout(self._keeping.silence):
                    await self._send(topic, data, key)
            except (StoreError, TimeoutError) as error:
                logger.info("The agent %r sends later what it can't now: %s", self._place.agent, error)
            else:
                return True
        waits = Record(OUTBOX, mail_id(self._post.clock()), {"topic": topic, "data": data, "key": key})
        await self._keeping.save([waits])
        self._send_later()
        return False

    async def _send(self, topic: str, data: Any, key: str) -> None:
        sender = self._place.agent
        name = sha256(f"{sender}/{key}".encode()).hexdigest()[:32]
        for place, card in await self._others_now():
            if card.listens_to(topic):
                post = Post(place.store, self._post.withheld, self._post.clock)
                await post.message(topic, data, sender=sender, key=name)
                ring(place.agent)

    def _send_later(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(
                self._sent_when_back(), name=f"redraft-outbox-{self._place.agent}"
            )

    async def _sent_when_back(self) -> None:
        """Send what is kept to be sent, as soon as that is possible."""
        store, wait = self._place.store, SENDS_AGAIN
        while True:
            await self._keeping.settled()
            if not self._keeping.is_away:
                try:
                    if not (found := intact(await store.find(OUTBOX, limit=MOST))):
                        return
                    for record in found:
                        await check_lease(self._keeping)
                        await self._send(record.data["topic"], record.data["data"], record.data["key"])
                        await store.delete(OUTBOX, record.key)
                except LeaseError:  # who runs the agent now sends it
                    return
                except StoreError as error:
                    logger.info("The agent %r can't send yet what waits: %s", self._place.agent, error)
                    wait = min(2 * wait, LONGEST_WAIT)
            await asyncio.sleep(wait)

    async def _others_now(self) -> list[tuple[AgentPlace, AgentCard]]:
        """Return the other agents of the network, with what each listens to; looked for now and then."""
        if monotonic() - self._asked >= LOOKED_FOR:
            self._asked = monotonic()
            places = [one for one in await all_places(self._network) if one.agent != self._place.agent]
            self._others = [(place, await card_of(place.store)) for place in places]
        return self._others

    async def verdict(
        self, cycle: int, within: float | None, known: Collection[str] = (), /
    ) -> Feedback | None:
        """Wait for what a person says about the plan of a cycle; None when `within` seconds are over.

        `known` are the ids of what was said before.
        """
        await self._waiting(cycle, within, is_waiting=True)
        found = await self._next_said_of(cycle, within, known)
        await self._waiting(cycle, within, is_waiting=False)  # not if it is cancelled: then it goes on later
        return found

    async def _next_said_of(
        self, cycle: int, within: float | None, known: Collection[str]
    ) -> Feedback | None:
        ends = None if within is None else monotonic() + within
        while True:
            seen = rung(self._place.agent)
            if (found := await self._said_of(cycle, known)) is not None:
                return found
            left = EVERY if ends is None else min(EVERY, ends - monotonic())
            if left <= 0:
                return None
            await heard(self._place.agent, seen, left)

    async def _said_of(self, cycle: int, known: Collection[str]) -> Feedback | None:
        for one in self._own:
            if one.cycle == cycle and one.id not in known:
                return one
        try:
            where: Where = {"status": PENDING, "cycle": (cycle, self._keeping.number_of(cycle))}
            found = intact(await self._place.store.find(FEEDBACK, where=where))
        except StoreError:  # away: whoever would decide can't reach us either, and it may come back in time
            return None
        new = (record for record in found if record.key not in known)
        return next((from_record(Feedback, record.data) for record in new), None)

    async def _look(self) -> list[Feedback] | None:
        """Return what is pending; None where that takes too long, or can't be seen."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(pending(self._place.store, Feedback, MOST))
        done, _ = await asyncio.wait([self._looking], timeout=self._patience)
        if not done:
            return None
        looked, self._looking = self._looking, None
        try:
            return looked.result()
        except StoreError as error:
            if not self._keeping.is_away:
                logger.info("Feedback for the agent %r can't be read now: %s", self._place.agent, error)
            return None

    async def aclose(self) -> None:
        """Stop looking, and let go of the stores of others; what is not sent yet, the next process sends."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        for place, _ in self._others:
            if place.kind == "project":
                await place.store.aclose()
        self._others, self._asked = [], -LOOKED_FOR
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
            self._looking = None
