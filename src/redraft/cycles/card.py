"""AgentCard: what an agent says of itself to those who look for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

from redraft.core.codec import from_record, to_json
from redraft.cycles.parts import ANY, parameters_of
from redraft.cycles.spec import IntervalTrigger, MessageTrigger
from redraft.cycles.spec_actuate import Execute
from redraft.cycles.spec_sense import MessagesSense
from redraft.stores.base import Record

if TYPE_CHECKING:
    from redraft.cycles.spec import AgentSpec
    from redraft.stores.base import Store

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
