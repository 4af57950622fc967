"""FleetOverview: what a fleet is doing, as its command, its page and its metrics show it."""

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
    """The workers of a fleet, how deep its queue is, and its jobs.

    `jobs` are those that run and wait, in their order, then those that ended last; `failed` are those that
    failed or were poisoned, newest first. `limits` are those that workers have used, by the pattern of their
    models. `spending` is that of today, if the fleet has a daily budget.
    """

    depth: QueueDepth
    workers: tuple[WorkerState, ...]
    jobs: tuple[FleetJob, ...]
    failed: tuple[FleetJob, ...]
    limits: Mapping[str, LimitState]
    spending: SpendingState | None = None

    @classmethod
    async def of(cls, queue: Queue, store: Store, *, limit: int = 20) -> FleetOverview:
        """Ask a queue, and the store of the limits."""
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
        """The versions of the workers that were heard of lately."""
        return frozenset(one.card.version for one in self.workers if not one.is_gone)

    @property
    def stranded(self) -> dict[str, int]:
        """How many jobs wait for a version that no worker has, by version."""
        return stranded_jobs(self.depth, self.versions)

    def state_of(self, job: FleetJob) -> str:
        """Return the state of a job in words: `waiting for version X`, if that is what it does."""
        if job.state == "running" and job.is_cancelling:
            return "cancelling"
        if job.state == "queued" and job.version and job.version not in self.versions:
            return f"waiting for version {job.version}"
        return job.state

    def document(self) -> dict[str, Any]:
        """Return the overview as JSON data."""
        return {
            "depth": to_json(self.depth),
            "stranded": self.stranded,
            "workers": [to_json(one) | {"is_gone": one.is_gone} for one in self.workers],
            "jobs": [to_json(job) | {"shown_as": self.state_of(job)} for job in self.jobs],
            "failed": to_json(self.failed),
            "limits": {models: limit_document(state) for models, state in self.limits.items()},
            "spending": None if self.spending is None else spending_document(self.spending),
        }


async def fleet_gauges(fleet: Fleet) -> Gauges:
    """Measure the queue, the limits and the budget of a fleet, for its metrics."""
    depth = await fleet.queue.depth(LIVE)  # ended jobs, of which there are many, are not counted each time
    workers = [one.card for one in await fleet.queue.workers() if not one.is_gone]
    stranded = stranded_jobs(depth, {card.version for card in workers})
    limits = {models: limit_document(state) for models, state in (await limit_states(fleet.store)).items()}
    values: dict[str, float] = {
        "redraft.queue_up": 1,
        "redraft.oldest_job_seconds": depth.oldest_seconds or 0.0,
        "redraft.stranded_jobs": sum(stranded.values()),
        "redraft.workers": len(workers),
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
            (one["wait_seconds"], {"limit": at}) for at, one in limits.items()
        ],
        "redraft.limit_blocked_seconds": [
            (one["blocked_seconds"], {"limit": at}) for at, one in limits.items()
        ],
    }


def stranded_jobs(depth: QueueDepth, versions: Collection[str]) -> dict[str, int]:
    """Return how many jobs wait for a version other than those of the workers, by version."""
    return {
        version: count for version, count in depth.waiting_for.items() if version and version not in versions
    }


def limit_document(state: LimitState, now: float | None = None) -> dict[str, Any]:
    """Return a limit as JSON data: calls under way, and the seconds until the next call may begin."""
    now = time.time() if now is None else now
    state = state.at(now)
    blocked = max(state.blocked.values(), default=now) - now
    return {
        "slots": sum(share[0] for share in state.shares.values()),
        "wait_seconds": max(blocked, state.requests_at - now, state.tokens_at - now),
        "blocked_seconds": blocked,
    }


def spending_document(state: SpendingState) -> dict[str, Any]:
    """Return the spending of today as JSON data."""
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
