"""This run: the loop, when it stops, how it revises, which version it returns."""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft._steps import Retry as Retry
    from redraft._steps import direct as direct
    from redraft.loop.agent import Agent as Agent
    from redraft.loop.criteria_file import read_criteria as read_criteria
    from redraft.loop.decorator import reflected as reflected
    from redraft.loop.display import watch as watch
    from redraft.loop.event_log import EventLog as EventLog
    from redraft.loop.journal import Journalled as Journalled
    from redraft.loop.pattern import ReflectionPattern as ReflectionPattern
    from redraft.loop.record import RunRecord as RunRecord
    from redraft.loop.runs import Runs as Runs
    from redraft.loop.runs import StoredRun as StoredRun
    from redraft.loop.runs import Why as Why
    from redraft.loop.stream import RunStream as RunStream
    from redraft.loop.version_diff import VersionDiff as VersionDiff

_PLACES = {
    "._steps": ("Retry", "direct"),
    "agent": ("Agent",),
    "criteria_file": ("read_criteria",),
    "decorator": ("reflected",),
    "display": ("watch",),
    "event_log": ("EventLog",),
    "journal": ("Journalled",),
    "pattern": ("ReflectionPattern",),
    "record": ("RunRecord",),
    "runs": ("Runs", "StoredRun", "Why"),
    "stream": ("RunStream",),
    "version_diff": ("VersionDiff",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
