"""AfterBest: what a run spent after its best version was there, and got nothing for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redraft.core.codec import from_json
from redraft.core.evaluation import ReflectionEvaluation
from redraft.core.usage import NOTHING_USED, TokenUsage
from redraft.core.version import Draft
from redraft.loop.tell import ROLES

if TYPE_CHECKING:
    from redraft.loop.kept_run import KeptRun
    from redraft.loop.runs import KeptStep


@dataclass(frozen=True, slots=True)
class AfterBest:
    """Hold what came after the best version: how many versions, their usage, and seconds.

    `usage` is None where not all of these versions are kept, so that it is not known.
    """

    versions: int
    usage: TokenUsage | None
    seconds: float


def after_best(run: KeptRun) -> AfterBest | None:
    """Add up what a run spent after its best version; None where it has none."""
    record = run.record
    best = record.version(record.best)
    if best is None:
        return None
    later = [step for step in run.outer_steps if step.at > best.timestamp]
    until = max((step.elapsed for step in run.outer_steps if step.at <= best.timestamp), default=0.0)
    made = record.revisions + 1 - best.iteration
    kept = sum(version.iteration > best.iteration for version in record.versions)
    usage = sum(map(_usage_of, later), NOTHING_USED) if kept == made else None
    if usage is not None:
        looks_back = (one.usage for one in record.reflections if one.iteration > best.iteration)
        usage = sum(looks_back, usage)
    return AfterBest(made, usage, max(0.0, record.execution_time - until))


def _usage_of(step: KeptStep) -> TokenUsage:
    if step.name not in ROLES:
        return NOTHING_USED
    if step.error is not None:
        used: Any = step.error.get("usage")
        failed = TokenUsage(failed_requests=1) if step.error.get("type") == "ModelError" else NOTHING_USED
        return failed if used is None else failed + from_json(TokenUsage, used)
    if step.name == "evaluate":
        return from_json(ReflectionEvaluation, step.result).usage
    return from_json(Draft, step.result).usage
