"""Cycles: agents that go round, Sense, Reason, Actuate, Reflect, and remember within bounds."""

from __future__ import annotations

from redraft.core.lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.cycles.agent import CycleAgent as CycleAgent
    from redraft.cycles.agents import AgentSummary as AgentSummary
    from redraft.cycles.agents import AgentView as AgentView
    from redraft.cycles.agents import agent_view as agent_view
    from redraft.cycles.agents import known_agents as known_agents
    from redraft.cycles.agents import send_feedback as send_feedback
    from redraft.cycles.agents import send_message as send_message
    from redraft.cycles.events import CycleEvent as CycleEvent
    from redraft.cycles.events import CycleFinished as CycleFinished
    from redraft.cycles.events import CycleStarted as CycleStarted
    from redraft.cycles.events import CycleWaiting as CycleWaiting
    from redraft.cycles.events import SubstageFinished as SubstageFinished
    from redraft.cycles.feedback import Feedback as Feedback
    from redraft.cycles.long_term import LongTermStorage as LongTermStorage
    from redraft.cycles.memory import Memory as Memory
    from redraft.cycles.memory import MemoryChange as MemoryChange
    from redraft.cycles.message import AgentMessage as AgentMessage
    from redraft.cycles.record import CycleMetrics as CycleMetrics
    from redraft.cycles.record import CycleRecord as CycleRecord
    from redraft.cycles.result import CycleResult as CycleResult
    from redraft.cycles.spec import AgentSpec as AgentSpec

_PLACES = {
    "agent": ("CycleAgent",),
    "agents": ("AgentSummary", "AgentView", "agent_view", "known_agents", "send_feedback", "send_message"),
    "events": ("CycleEvent", "CycleFinished", "CycleStarted", "CycleWaiting", "SubstageFinished"),
    "feedback": ("Feedback",),
    "long_term": ("LongTermStorage",),
    "memory": ("Memory", "MemoryChange"),
    "message": ("AgentMessage",),
    "record": ("CycleMetrics", "CycleRecord"),
    "result": ("CycleResult",),
    "spec": ("AgentSpec",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
