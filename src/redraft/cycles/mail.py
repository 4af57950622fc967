"""Mail: feedback and messages to an agent, and the signal that wakes it."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import urandom
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from redraft._codec import plain_data, to_record
from redraft._hints import keyword_hints
from redraft._validation import check_name, check_text, nearest
from redraft.approvals import HumanAnswer
from redraft.cycles.memory import moment_of, stamp_of
from redraft.cycles.records import objects_in
from redraft.cycles.spec import ANY
from redraft.errors import ConfigError
from redraft.stores.base import Record, Store, intact, json_text, values_of

if TYPE_CHECKING:
    from redraft.approvals import Approval
    from redraft.cycles.records import AgentCard, CycleRecord
    from redraft.web.people import Person


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """A message to an agent: plain JSON data under a topic."""

    id: str
    topic: str
    data: Any
    timestamp: str
    sender: str = ""


Verdict: TypeAlias = Literal["approve", "reject", "modify"]


@keyword_hints()
@dataclass(frozen=True, slots=True)
class Feedback:
    """A person's verdict on what an agent did or is about to do."""

    id: str
    verdict: Verdict
    message: str
    timestamp: str
    cycle: int | None = None
    """The number of the cycle; None: feedback on the agent in general."""
    action: str | None = None
    """An action of that cycle, by name or id; None: all actions."""
    changes: Mapping[str, Any] | None = None
    """The parameters of a `modify`, which replace planned parameters."""
    by: str = ""
    """The author."""
    proof: str = ""
    """The id of the token that proves the author's identity, if any."""
    cycle_id: str = ""
    """The ULID of the cycle, if it is stored or under way, so that a verdict decides on no other cycle."""


FEEDBACK, MESSAGE = "feedback", "message"
"""The kinds of the records. Their keys are the ids, which sort by time."""
NOTICE, OUTBOX = "notice", "outbox"
"""The kinds of the records of undelivered notices and messages (see `outbox`)."""
DELIVERY = "delivery"
"""The kind of the records of webhook deliveries, which may be repeated."""
DELIVERY_AGE = timedelta(minutes=10)
"""How long a delivery is remembered: the whole time in which its signature is valid."""
_ID = re.compile(r"\d+-\d+")
"""The id of an action in a cycle."""
PENDING, TAKEN = "pending", "taken"
MAX_PENDING, PAGE = 1_000, 100
"""The limit of pending feedback, and of pending messages, of an agent; the page size to delete more."""
_PENDING = {"status": PENDING}
MODIFY = "modify"
VERDICTS = ("approve", "reject", MODIFY)
DECISIONS = {"approve": "approved", "reject": "rejected", MODIFY: "modified"}
"""The decision on a plan after each verdict."""
MAX_FEEDBACK, MAX_DATA = 4_000, 100_000
"""The size limits of the text of feedback, and of the data of a message, in characters."""

T = TypeVar("T", Feedback, AgentMessage)
R = TypeVar("R")


def mail_id(moment: datetime) -> str:
    """A unique id; ids sort by time."""
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S%f}-{urandom(4).hex()}"


def mail_record(mail: Feedback | AgentMessage, status: Literal["pending", "taken"] = PENDING) -> Record:
    """The record of feedback or of a message."""
    kind = FEEDBACK if isinstance(mail, Feedback) else MESSAGE
    return Record(kind, mail.id, to_record(mail) | {"status": status})


async def pending_mail(store: Store, kind: type[T], limit: int, *, topic: str | None = None) -> list[T]:
    """The newest mail that no cycle has taken yet, oldest first."""
    name = FEEDBACK if kind is Feedback else MESSAGE
    where = {"status": PENDING} if topic is None else {"status": PENDING, "topic": topic}
    records = await store.find(name, where=where, newest_first=True, limit=limit)
    return values_of(records[::-1], kind)


async def drop_excess_mail(store: Store) -> int:
    """Delete all but the newest pending mail, in case no cycle ever takes it; return the number deleted.

    Deletes the records of old deliveries, too.
    """
    count = 0
    now = datetime.now(UTC)
    while old := [
        record
        for record in await store.find(DELIVERY, limit=PAGE)
        if record.created_at and abs(now - record.created_at) > DELIVERY_AGE
    ]:
        await asyncio.gather(*(store.delete(DELIVERY, record.key) for record in old))
    for kind in (FEEDBACK, MESSAGE):
        last: Record | None = None
        for _ in range(MAX_PENDING // PAGE):
            page = await store.find(kind, where=_PENDING, newest_first=True, after=last, limit=PAGE)
            if len(page) < PAGE:
                break
            last = page[-1]
        else:
            while old := intact(
                await store.find(kind, where=_PENDING, newest_first=True, after=last, limit=PAGE)
            ):
                await asyncio.gather(*(store.delete(kind, record.key) for record in old))
                count += len(old)
    return count


def check_cycle(agent: str, cycle: int | None, last: int) -> None:
    """Raise `ConfigError` for feedback on a cycle outside of 1 to `last`, the number of the newest cycle."""
    if cycle is None or (type(cycle) is int and 1 <= cycle <= last):
        return
    numbers = f"from 1 to {last}" if last else "but none has run yet"
    raise ConfigError(
        f"The agent {agent!r} has no cycle {cycle!r} to give feedback on; expected the number of a cycle, "
        f"{numbers}, or None for the agent in general."
    )


def check_feedback(
    verdict: str,
    action: str | None,
    changes: Mapping[str, Any] | None,
    card: AgentCard,
    cycle: CycleRecord | None,
) -> None:
    """Raise `ConfigError` for a verdict on an action, or with parameters, that the agent does not have.

    `cycle` is the cycle of the verdict, if it is stored: its plan has actions and their parameters.
    """
    if action is not None:
        check_text("action", action)
    if changes is not None and not isinstance(changes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] (untyped callers)
        raise ConfigError(f"changes must be a mapping of parameters to values, got {changes!r}.")
    planned = [] if cycle is None else objects_in(cycle.derived_data, "plan", "actions")
    if not card.actions and not planned:
        return  # its actions are unknown
    entries = [entry for entry in planned if action in (None, entry["id"], entry["action"])]
    if action is not None and not entries and action not in card.actions and not _ID.fullmatch(action):
        candidates: list[str] = [*card.actions, *(entry["id"] for entry in planned)]
        raise ConfigError(f"The agent {card.name!r} has no action {action!r}; {nearest(action, candidates)}")
    declared: list[str] = list(card.actions) if action not in card.actions else [str(action)]
    names: list[str] = list(dict.fromkeys(entry["action"] for entry in entries)) or declared
    parameters: set[str] = {key for entry in entries for key in entry["params"]}
    parameters |= {key for name in names for key in card.actions.get(name, ())}
    unknown = [str(key) for key in changes or () if key not in parameters and verdict == MODIFY]
    if unknown and ANY not in parameters:
        subject = (
            f"The action {names[0]!r} takes" if len(names) == 1 else f"The actions {', '.join(names)} take"
        )
        raise ConfigError(f"{subject} no parameter {unknown[0]!r}; {nearest(unknown[0], sorted(parameters))}")


def answers_of(
    feedback: Feedback, questions: Iterable[Approval], card: AgentCard, cycle: CycleRecord
) -> Iterator[tuple[Approval, HumanAnswer]]:
    """The questions about a plan that feedback decides, each with the answer."""
    planned = objects_in(cycle.derived_data, "plan", "actions")
    names: dict[str, str] = {entry["id"]: entry["action"] for entry in planned}
    for question in questions:
        name = names.get(question.node, "")
        if feedback.action not in (None, question.node, name):
            continue
        parameters = {*question.data, *card.actions.get(name, [ANY])}
        changes = {
            key: value
            for key, value in (feedback.changes or {}).items()
            if key in parameters or ANY in parameters
        }
        yield (
            question,
            HumanAnswer(
                feedback.verdict != "reject",
                {**question.data, **changes},
                feedback.message,
                feedback.by,
                moment_of(feedback.timestamp),
                proof=feedback.proof,
            ),
        )


@dataclass(frozen=True, slots=True)
class Mailbox:
    """Stores mail for an agent."""

    store: Store
    redact: Callable[[Any], Any]
    """Removes the secrets from plain data."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    save: Callable[[Record], Awaitable[object]] | None = None
    """Writes feedback while the store may be out of reach; None: write it into the store."""

    async def feedback(
        self,
        verdict: Verdict,
        message: str = "",
        *,
        cycle: int | None = None,
        cycle_id: str = "",
        action: str | None = None,
        changes: Mapping[str, Any] | None = None,
        by: str | Person = "",
    ) -> Feedback:
        """Store feedback. Raises `ConfigError` for an invalid verdict."""
        if verdict not in VERDICTS:
            raise ConfigError(f"Unknown verdict {verdict!r}; expected one of {', '.join(VERDICTS)}.")
        if (verdict == MODIFY) != (changes is not None):
            raise ConfigError("Pass `changes` (new parameters) with the verdict 'modify', and only with it.")
        check_text("message", message)
        check_text("by", getattr(by, "name", by))
        if len(message) > MAX_FEEDBACK:
            raise ConfigError(f"Feedback is limited to {MAX_FEEDBACK:,} characters, got {len(message):,}.")
        now = self.clock()
        feedback = Feedback(
            mail_id(now),
            verdict,
            self.redact(message),
            stamp_of(now),
            cycle,
            action,
            None if changes is None else self.redact(plain_data(dict(changes), "changes")),
            self.redact(by) if isinstance(by, str) else by.name,
            "" if isinstance(by, str) else by.token_id,
            cycle_id,
        )
        await (self.save or self.store.put)(mail_record(feedback))
        return feedback

    async def message(
        self, topic: str, data: Any = None, *, sender: str = "", key: str | None = None
    ) -> AgentMessage:
        """Store plain JSON data under a topic; a repetition with the same `key` is ignored."""
        check_name("topic", topic)
        check_text("sender", sender)
        now = self.clock()
        plain = plain_data(data, "The data of a message")
        text = plain if isinstance(plain, str) else json_text(plain)
        if (size := len(text)) > MAX_DATA:
            raise ConfigError(f"The data of a message is limited to {MAX_DATA:,} characters, got {size:,}.")
        message = AgentMessage(
            key or mail_id(now), topic, self.redact(plain), stamp_of(now), self.redact(sender)
        )
        await self.store.put_if_absent(mail_record(message))
        return message


POLL_SECONDS = 0.2
"""Polling interval for mail from other processes, in seconds."""

_lock = Lock()
_signals: defaultdict[str, int] = defaultdict(int)
_waiters: defaultdict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)


def mail_signals(agent: str) -> int:
    """How often mail to an agent has been signalled in this process."""
    return _signals[agent]


def signal_mail(agent: str) -> None:
    """Wake the tasks of this process that wait for mail to an agent. Thread-safe."""
    with _lock:
        _signals[agent] += 1
        waiters = tuple(_waiters[agent])
    for loop, event in waiters:
        with suppress(RuntimeError):  # its loop has just been closed
            loop.call_soon_threadsafe(event.set)


async def wait_for_mail(agent: str, signals: int, seconds: float | None = POLL_SECONDS) -> bool:
    """Wait until there were more than `signals` signals of mail to an agent; False after `seconds`."""
    if mail_signals(agent) != signals:
        return True
    waiter = asyncio.get_running_loop(), asyncio.Event()
    with _lock:
        if _signals[agent] != signals:
            return True
        _waiters[agent].add(waiter)
    try:
        async with asyncio.timeout(seconds):
            await waiter[1].wait()
    except TimeoutError:
        return False
    finally:
        with _lock:
            _waiters[agent].discard(waiter)
    return True
