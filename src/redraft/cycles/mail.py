"""Messages and feedback to an agent."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import urandom
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from uuid import uuid4

from redraft._codec import from_record, to_json, to_record
from redraft._validation import nearest
from redraft.cycles.memory import stamp_of
from redraft.cycles.spec import ANY, Execute, IntervalTrigger, MessagesSense, MessageTrigger, parameters_of
from redraft.errors import ConfigError
from redraft.stores.base import Record, Store, intact

if TYPE_CHECKING:
    from redraft.cycles.records import CycleRecord
    from redraft.cycles.spec import AgentSpec


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """Hold one message: plain JSON data under a topic, and who sent it."""

    id: str
    topic: str
    data: Any
    timestamp: str
    sender: str = ""


Verdict: TypeAlias = Literal["approve", "reject", "modify"]


@dataclass(frozen=True, slots=True)
class Feedback:
    """Hold one verdict.

    `cycle` is what it is about (None: in general); with `action` about this one of its actions alone, by its
    name or id. `changes` are the parameters that a `modify` puts in place of the planned ones.
    """

    id: str
    verdict: Verdict
    message: str
    timestamp: str
    cycle: int | None = None
    action: str | None = None
    changes: Mapping[str, Any] | None = None
    by: str = ""


FEEDBACK, MESSAGE = "feedback", "message"
"""The kinds of these records; the key is the id, and ids sort by time."""
OUTBOX = "outbox"
"""The kind of what an agent is to send when the database is back, in the order of the keys."""
_ID = re.compile(r"\d+-\d+")
"""The id of an action in some cycle."""
PENDING, TAKEN = "pending", "taken"
_WAITS = {"status": PENDING}
WAITING, PAGE = 1_000, 100
"""So much feedback, and so many messages, wait for an agent; they are looked through a page at a time."""
MODIFY = "modify"
VERDICTS = ("approve", "reject", MODIFY)
LONGEST, DATA = 4_000, 100_000
"""Characters that the text of a feedback may have, and the data of a message as JSON."""

T = TypeVar("T", Feedback, AgentMessage)


def mail_id(moment: datetime) -> str:
    """Return an id that nothing else has; later ones sort behind."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S%f}-{urandom(4).hex()}"


def mail_record(mail: Feedback | AgentMessage, status: Literal["pending", "taken"] = PENDING) -> Record:
    """Return feedback or a message as the record that keeps it."""
    kind = FEEDBACK if isinstance(mail, Feedback) else MESSAGE
    return Record(kind, mail.id, to_record(mail) | {"status": status})


async def pending(store: Store, kind: type[T], most: int, *, topic: str | None = None) -> list[T]:
    """Return the newest so many that no cycle has taken yet, oldest first."""
    name = FEEDBACK if kind is Feedback else MESSAGE
    where = {"status": PENDING} if topic is None else {"status": PENDING, "topic": topic}
    found = await store.find(name, where=where, newest_first=True, limit=most)
    return [from_record(kind, record.data) for record in reversed(intact(found))]


async def thin_out(store: Store) -> int:
    """Delete what waits behind the newest of its kind, for it may be nobody's to take; return how much."""
    count = 0
    for kind in (FEEDBACK, MESSAGE):
        last: Record | None = None
        for _ in range(WAITING // PAGE):
            page = await store.find(kind, where=_WAITS, newest_first=True, after=last, limit=PAGE)
            if len(page) < PAGE:
                break
            last = page[-1]
        else:
            while old := intact(
                await store.find(kind, where=_WAITS, newest_first=True, after=last, limit=PAGE)
            ):
                await asyncio.gather(*(store.delete(kind, record.key) for record in old))
                count += len(old)
    return count


def check_about(
    verdict: str,
    action: str | None,
    changes: Mapping[str, Any] | None,
    card: AgentCard,
    cycle: CycleRecord | None,
) -> None:
    """Raise `ConfigError` for a verdict about an action, or with parameters, that the agent does not have.

    `cycle` is what the verdict is about, if it is kept: its plan has actions by their ids, and parameters.
    """
    plan: dict[str, Any] = {} if cycle is None else cycle.derived_data.get("plan", {})
    planned: list[dict[str, Any]] = plan.get("actions", [])
    if not card.actions and not planned:
        return  # nobody knows what it can do
    about = [one for one in planned if action in (None, one["id"], one["action"])]
    if action is not None and not about and action not in card.actions and not _ID.fullmatch(action):
        there: list[str] = [*card.actions, *(one["id"] for one in planned)]
        raise ConfigError(f"The agent {card.name!r} has no action {action!r}; {nearest(action, there)}")
    of_all: list[str] = list(card.actions) if action not in card.actions else [str(action)]
    names: list[str] = list(dict.fromkeys(one["action"] for one in about)) or of_all
    known: set[str] = {key for one in about for key in one["params"]}
    known |= {key for name in names for key in card.actions.get(name, ())}
    unknown = [key for key in changes or () if key not in known and verdict == MODIFY]
    if unknown and ANY not in known:
        whose = (
            f"The action {names[0]!r} takes" if len(names) == 1 else f"The actions {', '.join(names)} take"
        )
        raise ConfigError(f"{whose} no parameter {unknown[0]!r}; {nearest(unknown[0], sorted(known))}")


@dataclass(frozen=True, slots=True)
class Post:
    """Write mail for one agent: `withheld` gives plain data without the secrets in it.

    `keep` writes it where the store may be out of reach (None: into the store, at once).
    """

    store: Store
    withheld: Callable[[Any], Any]
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    keep: Callable[[Record], Awaitable[None]] | None = None

    async def feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str = "",
    ) -> Feedback:
        """Leave feedback; raises `ConfigError` for what is none."""
        if verdict not in VERDICTS:
            raise ConfigError(f"A verdict is one of {', '.join(VERDICTS)}; got {verdict!r}.")
        if (verdict == MODIFY) != (changes is not None):
            raise ConfigError("The verdict 'modify' has `changes`, parameters in place of the planned ones.")
        if len(message) > LONGEST:
            raise ConfigError(f"Feedback may have {LONGEST:,} characters; this one has {len(message):,}.")
        now = self.clock()
        feedback = Feedback(
            mail_id(now),
            verdict,
            self.withheld(message),
            stamp_of(now),
            cycle,
            action,
            None if changes is None else self.withheld(to_json(dict(changes))),
            self.withheld(by),
        )
        if self.keep is not None:
            await self.keep(mail_record(feedback))
        else:
            await self.store.put(mail_record(feedback))
        return feedback

    async def message(
        self, topic: str, data: Any = None, *, sender: str = "", key: str | None = None
    ) -> AgentMessage:
        """Leave a message: plain JSON data under a topic; with a `key` once, however often it is sent."""
        if not topic.strip():
            raise ConfigError("A message has a topic: `send_message(agent, topic, data)`.")
        now = self.clock()
        plain = self.withheld(to_json(data))
        if (size := len(repr(plain))) > DATA:
            raise ConfigError(f"The data of a message may have {DATA:,} characters; these have {size:,}.")
        message = AgentMessage(key or mail_id(now), topic, plain, stamp_of(now), self.withheld(sender))
        await self.store.put_if_absent(mail_record(message))
        return message


EVERY = 0.2
"""Seconds between two looks at what another process may have sent."""

_lock = Lock()
_rung: defaultdict[str, int] = defaultdict(int)
_waiting: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)


def rung(agent: str) -> int:
    """Return how often something was sent to an agent in this process."""
    return _rung[agent]


def ring(agent: str) -> None:
    """Wake all in this process that wait for something sent to an agent; from any thread."""
    with _lock:
        _rung[agent] += 1
        waiting = tuple(_waiting[agent])
    for loop, event in waiting:
        with suppress(RuntimeError):  # its loop has just ended: nobody waits there any more
            loop.call_soon_threadsafe(event.set)


async def heard(agent: str, seen: int, seconds: float | None = EVERY) -> bool:
    """Wait until the bell of an agent has rung more often than `seen`, or the seconds are over; say which."""
    if rung(agent) != seen:
        return True
    place = asyncio.get_running_loop(), asyncio.Event()
    with _lock:
        if _rung[agent] != seen:
            return True
        _waiting[agent].add(place)
    try:
        async with asyncio.timeout(seconds):
            await place[1].wait()
    except TimeoutError:
        return False
    finally:
        with _lock:
            _waiting[agent].discard(place)
    return True


CARD = "agent"
"""The kind of the record in the agent's own space, and its key."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """Hold what an agent is: its file, what begins its cycles, and the topics it listens to (`*`: all).

    `actions` are those that it can do, each with the parameters that it reads (`*`: any). `id` is made with
    its store: another agent of its name, kept elsewhere or later, has another.
    """

    name: str = ""
    id: str = ""
    description: str = ""
    file: str = ""
    triggers: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    actions: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])

    def listens_to(self, topic: str) -> bool:
        """Say whether a message with this topic is anything to the agent."""
        return topic in self.topics or ANY in self.topics

    @property
    def record(self) -> Record:
        """The record that keeps it."""
        return Record(CARD, CARD, to_json(self))

    @classmethod
    def of(cls, spec: AgentSpec, file: str) -> AgentCard:
        """Return the card of an agent."""
        topics = [one.topic or ANY for one in spec.triggers if isinstance(one, MessageTrigger)]
        sources = spec.stages.sense.substages if spec.stages.sense is not None else ()
        topics += [one.config.topic or ANY for one in sources if isinstance(one, MessagesSense)]
        said = tuple(
            f"every {one.interval_ms:,} ms" if isinstance(one, IntervalTrigger) else one.type
            for one in spec.triggers
        )
        actuate = spec.stages.actuate.substages if spec.stages.actuate is not None else ()
        executes = (substage for substage in actuate if isinstance(substage, Execute))
        actions = {one.name: parameters_of(one) for each in executes for one in each.config.actions}
        return cls(
            spec.name, uuid4().hex, spec.description, file, said, tuple(dict.fromkeys(topics)), actions
        )


async def card_of(store: Store) -> AgentCard:
    """Return the card of the agent that a store belongs to; an empty one where it has left none yet."""
    record = await store.get(CARD, CARD)
    return AgentCard() if record is None else from_record(AgentCard, dict(record.data))
