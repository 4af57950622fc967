"""Fleet: the same agents, workflows and cycles on many machines, with one queue.

Import from here: `from redraft.fleet import Fleet`.
"""

from __future__ import annotations

from redraft._lazy import lazily

TYPE_CHECKING = False  # what type checkers read as True, without the cost of importing typing
if TYPE_CHECKING:
    from redraft.fleet.fleet import Fleet as Fleet
    from redraft.fleet.fleet import JobHandle as JobHandle
    from redraft.fleet.gate import Limit as Limit
    from redraft.fleet.queue import FleetJob as FleetJob
    from redraft.fleet.queue import Queue as Queue
    from redraft.fleet.queue import StoreQueue as StoreQueue
    from redraft.fleet.schedule import Schedule as Schedule
    from redraft.fleet.worker import FleetWorker as FleetWorker

_PLACES = {
    "fleet": ("Fleet", "JobHandle"),
    "gate": ("Limit",),
    "schedule": ("Schedule",),
    "queue": ("FleetJob", "Queue", "StoreQueue"),
    "worker": ("FleetWorker",),
}

__all__, __getattr__, __dir__ = lazily(__name__, _PLACES)  # pyright: ignore[reportUnsupportedDunderAll] (pinned by a test)
