"""Entry: what lists, sums and comparisons need of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from sys import intern
from typing import TYPE_CHECKING, Any, TypeAlias

from redraft.errors import StoreError
from redraft.loop.record import Process
from redraft.types import NOT_REPORTED, NOTHING_USED, TokenUsage

if TYPE_CHECKING:
    from collections.abc import Hashable

    from redraft.stores.base import Record

Scores: TypeAlias = tuple[float | None, ...]
OPTIONS = ("revision_strategy", "max_iterations", "quality_threshold", "best_version_selection", "judge")
"""The choices of a pattern by which runs can be told apart."""
AT_WORK = ("running", "unknown")
"""The states of runs that may go on: where this machine can't tell, they are watched all the same."""
TASK_DIGITS = 16
_shared: dict[Hashable, Any] = {}
"""One of each that many runs have alike: the options, the names of criteria."""
NO_SCORES: Scores = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold a few words on a run; `task` is the beginning of the SHA-256 of its description, in hexadecimal.

    `first` and `best` are the scores of those versions by `criteria`, in their order. `usage` is by role.
    `after_best` is what the versions after the best one used. `process` is there while the run has not ended.
    """

    run_id: str
    created_at: datetime
    status: str
    reason: str
    name: str
    model: str
    task: str
    is_inner: bool
    process: Process | None
    options: Mapping[str, Any]
    is_advised: bool
    versions: int
    first_score: float | None
    best_score: float | None
    criteria: tuple[str, ...]
    first: Scores
    best: Scores
    satisfactory: bool
    usage: Mapping[str, TokenUsage]
    after_best: TokenUsage
    seconds: float

    @property
    def state(self) -> str:
        """How it stands now: its status, or for a running one what is known of its process."""
        return self.status if self.process is None else self.process.state_of_run

    @property
    def cost_usd(self) -> float | None:
        """What it cost; None where a part of that is not known, or nothing was written down."""
        known = [used.cost_usd for used in self.usage.values() if used.cost_usd is not None]
        return sum(known) if known and len(known) == len(self.usage) else None


def entry_of(record: Record) -> Entry:
    """Make an entry of the record of a run, as it is stored; raises `StoreError` where it is of another form.

    Of one that is damaged, the entry says no more than that.
    """
    began = record.created_at or datetime.now(UTC)
    try:
        if record.damage:
            return _entry(record.key, began, {"status": "damaged", "task": {"description": ""}})
        return _entry(record.key, began, record.data)
    except (KeyError, TypeError, AttributeError) as error:
        raise StoreError(f"The record of the run {record.key!r} is damaged: {error!r}.") from error


def task_key(description: str) -> str:
    """Return by what an entry knows its task."""
    return sha256(description.encode("utf-8", "surrogatepass")).hexdigest()[:TASK_DIGITS]


def _entry(run_id: str, created_at: datetime, data: Mapping[str, Any]) -> Entry:
    origin, status = data.get("origin", {}), data.get("status", "running")
    versions: Mapping[int, Mapping[str, Any]] = {one["iteration"]: one for one in data.get("versions", ())}
    made = data.get("revisions", 0) + 1 if versions else 0
    best: Mapping[str, Any] = versions.get(data.get("best", 0), {}).get("evaluation", {})
    first: Mapping[str, Any] = next((one["evaluation"] for one in versions.values()), best)
    criteria = _one(tuple(map(intern, best.get("criteria_scores", ()))))
    best_scores = _scores(best, criteria)
    return Entry(
        run_id,
        created_at,
        intern(status),
        intern(data.get("reason") or ""),
        intern(origin.get("name", "")),
        intern(origin.get("model", "")),
        intern(task_key(data["task"]["description"])),
        bool(data.get("inner")),
        Process(**data["process"]) if status == "running" else None,
        _options(data.get("options", {})),
        bool(data.get("advice")),
        made,
        first.get("overall_score"),
        best.get("overall_score"),
        criteria,
        best_scores if first is best else _scores(first, criteria),
        best_scores,
        bool(best.get("satisfactory")),
        {intern(role): TokenUsage(**used) for role, used in data.get("usage_by_role", {}).items()},
        _after(data.get("best"), versions, made),
        data.get("execution_time", 0.0),
    )


def _scores(evaluation: Mapping[str, Any], criteria: tuple[str, ...]) -> Scores:
    given = evaluation.get("criteria_scores", {})
    return tuple(given.get(name) for name in criteria) if criteria else NO_SCORES


def _options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    chosen = tuple((name, options.get(name)) for name in OPTIONS)
    if chosen not in _shared:
        _shared[chosen] = dict(chosen)
    return _shared[chosen]


def _one(value: Any) -> Any:
    return _shared.setdefault(value, value)


def _after(best: int | None, versions: Mapping[int, Mapping[str, Any]], made: int) -> TokenUsage:
    """Add up what the versions after the best one used; of those that are not kept it is not known."""
    if best is None:
        return NOTHING_USED
    later = [one for number, one in versions.items() if number > best]
    known = sum(map(_usage, later), NOTHING_USED)
    return known if len(later) == made - best else known + NOT_REPORTED


def _usage(version: Mapping[str, Any]) -> TokenUsage:
    used = version.get("token_usage")
    return NOTHING_USED if used is None else TokenUsage(**used)
