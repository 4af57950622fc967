"""FleetOverview: the workers, jobs, limits and spending of a fleet, for its command, page and metrics."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft._codec import to_json
from redraft.fleet.gate import DailyBudget, LimitState, SpendingState, limit_states, spending_state
from redraft.fleet.queue import LIVE, FleetJob, QueueDepth, WorkerState

if TYPE_CHECKING:
    from redraft._telemetry import Gauges
    from redraft.fleet.fleet import Fleet
    from redraft.fleet.queue import Queue
    from redraft.stores.base import Store


@dataclass(frozen=True, slots=True)
class FleetOverview:
    """A fleet at one moment."""

    depth: QueueDepth
    workers: tuple[WorkerState, ...]
    jobs: tuple[FleetJob, ...]
    """Running and waiting jobs in their order, then ended ones, newest first."""
    failed: tuple[FleetJob, ...]
    """Failed and poisoned jobs, newest first."""
    limits: Mapping[str, LimitState]
    """The limits that workers have used, by their patterns of models."""
    spending: SpendingState | None = None
    """Today's spending; None without a daily budget."""

    @classmethod
    async def of(cls, queue: Queue, store: Store, *, limit: int = 20) -> FleetOverview:
        """Read a queue, and the store of the limits."""
        return cls(
            await queue.depth(),
            tuple(await queue.workers()),
            tuple(await queue.find(limit=limit)),
            tuple(await queue.find(("failed", "poisoned"), limit=limit)),
            await limit_states(store),
            await spending_state(store),
        )

    @property
    def versions(self) -> frozenset[str]:
        """The versions of the live workers."""
        return frozenset(worker.card.version for worker in self.workers if not worker.is_gone)

    @property
    def stranded(self) -> dict[str, int]:
        """The number of jobs that wait for a version without a worker, by version."""
        return stranded_jobs(self.depth, self.versions)

    def state_of(self, job: FleetJob) -> str:
        """The state of a job in words: also `cancelling` and `waiting for version X`."""
        if job.state == "running" and job.is_cancelling:
            return "cancelling"
        if job.state == "queued" and job.version and job.version not in self.versions:
            return f"waiting for version {job.version}"
        return job.state

    def document(self) -> dict[str, Any]:
        """The overview as JSON data."""
        return {
            "depth": to_json(self.depth),
            "stranded": self.stranded,
            "workers": [to_json(worker) | {"is_gone": worker.is_gone} for worker in self.workers],
            "jobs": [to_json(job) | {"shown_as": self.state_of(job)} for job in self.jobs],
            "failed": to_json(self.failed),
            "limits": {models: limit_document(state) for models, state in self.limits.items()},
            "spending": None if self.spending is None else spending_document(self.spending),
        }


async def fleet_gauges(fleet: Fleet) -> Gauges:
    """Measure the queue, the limits and the budget of a fleet, for its metrics."""
    depth = await fleet.queue.depth(LIVE)  # counting the ended jobs, of which there are many, takes long
    cards = [worker.card for worker in await fleet.queue.workers() if not worker.is_gone]
    stranded = stranded_jobs(depth, {card.version for card in cards})
    limits = {models: limit_document(state) for models, state in (await limit_states(fleet.store)).items()}
    values: dict[str, float] = {
        "redraft.queue_up": 1,
        "redraft.oldest_job_seconds": depth.oldest_seconds or 0.0,
        "redraft.stranded_jobs": sum(stranded.values()),
        "redraft.workers": len(cards),
    }
    if fleet.budget is not None:
        spending = await spending_state(fleet.store) or SpendingState()
        spending = spending.on(fleet.budget, time.time())
        values |= {
            "redraft.budget_usd": spending.budget,
            "redraft.budget_spent_usd": spending.spent,
            "redraft.budget_left_usd": spending.left,
        }
    return {
        **{name: [(value, {})] for name, value in values.items()},
        "redraft.jobs": [(depth.jobs[state], {"state": state}) for state in LIVE],
        "redraft.limit_next_call_seconds": [
            (limit["wait_seconds"], {"limit": models}) for models, limit in limits.items()
        ],
        "redraft.limit_blocked_seconds": [
            (limit["blocked_seconds"], {"limit": models}) for models, limit in limits.items()
        ],
    }


def stranded_jobs(depth: QueueDepth, versions: Collection[str]) -> dict[str, int]:
    """The number of jobs that wait for other versions than `versions`, by version."""
    return {
        version: count for version, count in depth.waiting_for.items() if version and version not in versions
    }


def limit_document(state: LimitState, now: float | None = None) -> dict[str, Any]:
    """A limit as JSON data: the slots in use, and the seconds until the next call may begin."""
    now = time.time() if now is None else now
    state = state.at(now)
    blocked = max(state.blocked.values(), default=now) - now
    return {
        "slots": sum(share[0] for share in state.shares.values()),
        "wait_seconds": max(blocked, state.requests_at - now, state.tokens_at - now),
        "blocked_seconds": blocked,
    }


def spending_document(state: SpendingState) -> dict[str, Any]:
    """Today's spending as JSON data."""
    next_day = DailyBudget(state.budget, state.zone).next_day(time.time())
    return {
        "day": state.day,
        "zone": state.zone,
        "budget_usd": state.budget,
        "spent_usd": state.spent,
        "under_way_usd": state.under_way,
        "left_usd": state.left,
        "is_reached": state.is_reached,
        "unpriced_calls": state.unpriced,
        "next_day": next_day.isoformat(),
        "earlier": dict(state.earlier),
    }
