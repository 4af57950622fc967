"""The capture-metrics substage: how a cycle went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from redraft.cycles.execute import QUEUED
from redraft.cycles.record import CycleMetrics
from redraft.cycles.spec_reflect import CaptureMetrics, MetricsConfig

if TYPE_CHECKING:
    from datetime import datetime

    from redraft.cycles.cycle import Cycle
    from redraft.cycles.spec import AgentSpec


def metrics_of(cycle: Cycle, config: MetricsConfig | None, ended_at: datetime) -> CycleMetrics:
    """Return the metrics of a cycle: what `config` tracks, and always what failed or was skipped.

    To be taken when Reflect has ended, wherever capture-metrics stands in it. Anomalies are those of
    `derivedData.analysis`, alerts the actions of this type that were done; one that waits for the database
    to be back is not sent.
    """
    flags = config or MetricsConfig()  # pyright: ignore[reportCallIssue] (all its fields have defaults)
    derived = cycle.state.derived_data
    anomalies = _listed(derived, "analysis", "anomalies")
    alerts = [one for one in _listed(derived, "execution", "actions") if _is_alert(one)]
    elapsed = (ended_at - cycle.started_at).total_seconds() * 1000
    return CycleMetrics(
        duration_ms=max(0.0, elapsed) if flags.track_cycle_duration else None,
        tokens=cycle.usage.total_tokens if flags.track_llm_tokens else None,
        cost_usd=cycle.usage.cost_usd if flags.track_cost else None,
        anomalies=len(anomalies) if flags.track_anomaly_count else None,
        alerts=len(alerts) if flags.track_alert_count else None,
        failures=tuple(cycle.failures),
        skipped=tuple(cycle.skipped),
    )


def tracked(spec: AgentSpec) -> MetricsConfig | None:
    """Return what the agent's file tracks: a flag that any of its capture-metrics sets; None without one."""
    reflect = spec.stages.reflect
    configs = [
        substage.config
        for substage in (reflect.substages if reflect is not None else ())
        if isinstance(substage, CaptureMetrics)
    ]
    if not configs:
        return None
    return MetricsConfig(
        **{name: any(dict(config)[name] for config in configs) for name in MetricsConfig.model_fields}
    )


def _listed(derived: Mapping[str, Any], stage: str, name: str) -> list[Any]:
    part: Any = derived.get(stage)
    listed: Any = cast("Mapping[str, Any]", part).get(name) if isinstance(part, Mapping) else None
    return cast("list[Any]", listed) if isinstance(listed, list) else []


def _is_alert(action: Any) -> bool:
    if not isinstance(action, Mapping):
        return False
    fields = cast("Mapping[str, Any]", action)
    result: Any = fields.get("result")
    is_queued = isinstance(result, Mapping) and cast("Mapping[str, Any]", result).get(QUEUED) is True
    return fields.get("type") == "alert" and fields.get("status") == "succeeded" and not is_queued
