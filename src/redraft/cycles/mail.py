"""Mail: feedback and messages as records of the agent that they are for, pending until a cycle took them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from os import urandom
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from redraft.core.codec import from_record, to_json, to_record
from redraft.core.errors import ConfigError
from redraft.core.nearest import nearest
from redraft.cycles.feedback import Feedback
from redraft.cycles.message import AgentMessage
from redraft.cycles.parts import ANY
from redraft.cycles.stamp import stamp_of
from redraft.stores.base import Record, Store, intact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redraft.cycles.card import AgentCard
    from redraft.cycles.feedback import Verdict
    from redraft.cycles.record import CycleRecord

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
