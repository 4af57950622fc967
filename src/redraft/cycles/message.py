"""AgentMessage: what agents and programs send to an agent over the bus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AgentMessage:
    """Hold one message: plain JSON data under a topic, and who sent it."""

    id: str
    topic: str
    data: Any
    timestamp: str
    sender: str = ""
