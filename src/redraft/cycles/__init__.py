"""Cycles: agents that sense, reason, act and reflect again and again, with a memory of bounded size."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.cycles.agent import CycleAgent as CycleAgent
    from redraft.cycles.agents import AgentHandle as AgentHandle
    from redraft.cycles.agents import Agents as Agents
    from redraft.cycles.agents import AgentSummary as AgentSummary
    from redraft.cycles.cycle import CycleEvent as CycleEvent
    from redraft.cycles.cycle import CycleFinished as CycleFinished
    from redraft.cycles.cycle import CycleResult as CycleResult
    from redraft.cycles.cycle import CycleStarted as CycleStarted
    from redraft.cycles.cycle import CycleWaiting as CycleWaiting
    from redraft.cycles.cycle import SubstageFinished as SubstageFinished
    from redraft.cycles.host import AgentHost as AgentHost
    from redraft.cycles.mail import AgentMessage as AgentMessage
    from redraft.cycles.mail import Feedback as Feedback
    from redraft.cycles.memory import Memory as Memory
    from redraft.cycles.memory import MemoryChange as MemoryChange
    from redraft.cycles.records import CycleMetrics as CycleMetrics
    from redraft.cycles.records import CycleRecord as CycleRecord
    from redraft.cycles.spec import AgentSpec as AgentSpec
    from redraft.cycles.storage import LongTermStorage as LongTermStorage

_PLACES = {
    "agent": ("CycleAgent",),
    "agents": ("AgentHandle", "Agents", "AgentSummary"),
    "host": ("AgentHost",),
    "mail": ("AgentMessage", "Feedback"),
    "memory": ("Memory", "MemoryChange"),
    "records": ("CycleMetrics", "CycleRecord"),
    "spec": ("AgentSpec",),
    "cycle": (
        "CycleEvent",
        "CycleFinished",
        "CycleResult",
        "CycleStarted",
        "CycleWaiting",
        "SubstageFinished",
    ),
    "storage": ("LongTermStorage",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
