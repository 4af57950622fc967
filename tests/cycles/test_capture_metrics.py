from dataclasses import replace

import pytest

from cycles_made import at, reflecting
from redraft.core.usage import TokenUsage
from redraft.cycles.capture_metrics import metrics_of, tracked
from redraft.cycles.record import CycleMetrics
from redraft.cycles.spec_reflect import MetricsConfig

DERIVED = {
    "analysis": {"anomalies": [{"rule": "hot"}, {"rule": "late"}]},
    "execution": {
        "actions": [
            {"type": "alert", "status": "succeeded"},
            {"type": "alert", "status": "failed"},
            {"type": "alert", "status": "blocked"},
            {"type": "log", "status": "succeeded"},
        ]
    },
}
FLAGS = ["trackCycleDuration", "trackLLMTokens", "trackCost", "trackAnomalyCount", "trackAlertCount"]
ALL = CycleMetrics(1_500.0, 120, 0.25, 2, 1)
ENDED = at(1_500)


def ended(derived=DERIVED):
    cycle = reflecting()
    cycle.state.derived_data = derived
    cycle.usage = TokenUsage(100, 20, requests=1, cost_usd=0.25)
    return cycle


@pytest.mark.parametrize(
    ("flags", "metrics"),
    [
        (FLAGS, ALL),
        ([], CycleMetrics()),
        (FLAGS[:1], CycleMetrics(duration_ms=1_500.0)),
        (FLAGS[1:2], CycleMetrics(tokens=120)),
        (FLAGS[2:3], CycleMetrics(cost_usd=0.25)),
        (FLAGS[3:4], CycleMetrics(anomalies=2)),
        (FLAGS[4:], CycleMetrics(alerts=1)),
    ],
)
def test_what_is_tracked_is_counted(flags, metrics):
    config = MetricsConfig.model_validate(dict.fromkeys(flags, True))
    assert metrics_of(ended(), config, ENDED) == metrics


@pytest.mark.parametrize(
    "derived",
    [{}, {"analysis": {}, "execution": {}}, {"analysis": "none", "execution": {"actions": 3}}],
)
def test_where_nothing_was_there_is_nothing(derived):
    config = MetricsConfig.model_validate(dict.fromkeys(FLAGS, True))
    assert metrics_of(ended(derived), config, ENDED) == replace(ALL, anomalies=0, alerts=0)


def test_failures_and_what_was_skipped_are_always_told():
    cycle = ended()
    cycle.failures, cycle.skipped = ["sense: no line"], ["reason", "actuate"]
    assert metrics_of(cycle, None, ENDED) == CycleMetrics(
        failures=("sense: no line",), skipped=("reason", "actuate")
    )


def test_a_clock_that_went_back_is_no_negative_time():
    config = MetricsConfig.model_validate({"trackCycleDuration": True})
    assert metrics_of(ended(), config, at(-5)).duration_ms == 0.0


def test_what_any_capture_metrics_tracks_is_tracked():
    first = {"type": "capture-metrics", "name": "one", "config": {"trackLLMTokens": True}}
    second = {"type": "capture-metrics", "name": "two", "config": {"trackAlertCount": True}}
    assert tracked(reflecting(first, second).spec) == MetricsConfig.model_validate(
        {"trackLLMTokens": True, "trackAlertCount": True}
    )
    assert tracked(reflecting().spec) is None
